"""Every function over segments on random worlds, at the edges: ``python -m tests.gauntlet``."""
