"""What a fit tells of its own uncertainty; functions over results."""

from platt_jax.inference.left_out import leave_one_out

__all__ = ["leave_one_out"]
