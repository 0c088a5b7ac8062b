"""The command line, `platt-jax`."""

from platt_jax.cli.main import main, run

__all__ = ["main", "run"]
