"""`python -m platt_jax` runs the command `platt-jax`."""

from platt_jax.cli import run

run()
