"""Roots of many decreasing functions at once."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from platt_jax.arrays import Bools, Floats

# Maps points to values, Newton's steps from there, and the longest step after which none is needed.
# A value of 0 needs no step.
Function: TypeAlias = Callable[[Floats], tuple[Floats, Floats, Any]]


def newton_roots(
    function: Function, start: Floats, low: Floats, high: Floats, most_steps: int
) -> tuple[Floats, Bools]:
    """The roots between bounds, which close in, and whether each was found.

    Where Newton's step leaves the bounds, they are halved. No root depends on the others.
    """
    at, found = start, np.asarray(low == high)
    for _ in range(most_steps):
        if (found | np.isnan(at)).all():
            break
        value, step, near = function(at)
        low, high = np.where(value > 0, at, low), np.where(value > 0, high, at)
        moved = at + step
        # A step may be too short to leave a bound.
        inside = ((moved > low) & (moved < high)) | (np.abs(step) <= near)
        moved = np.where(inside, moved, (low + high) / 2)
        moved = np.where(found | (value == 0), at, moved)
        found, at = found | (np.abs(moved - at) <= near), moved
    return at, found
