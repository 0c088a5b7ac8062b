"""What inference costs and how well it covers: ``python -m benchmarks.inference.NAME``."""
