"""The command line, `platt-jax`."""

from platt_jax.cli.main import main

__all__ = ["main"]
