"""How sure fits are: intervals, bands and tests, as functions over results."""

from platt_jax.inference.bootstrap import Bootstrap, bootstrap

__all__ = ["Bootstrap", "bootstrap"]
