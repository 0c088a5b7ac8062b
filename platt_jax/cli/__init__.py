"""The command line, `platt-jax`: CSV files in and out, and the demo."""

from platt_jax.cli.commands import main

__all__ = ["main"]
