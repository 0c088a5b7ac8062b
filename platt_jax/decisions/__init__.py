"""What to do with calibrated scores: which rows to accept by segment, and proof that they hold."""

from platt_jax.decisions.certify import certify
from platt_jax.decisions.gate import gate

__all__ = ["certify", "gate"]
