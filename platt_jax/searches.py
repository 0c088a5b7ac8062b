"""Searches for roots and maxima. Each says whether it has found what it searched for."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from platt_jax.arrays import Bools, Floats

# Maps points to values, Newton's steps from there, and the longest step after which none is needed.
# A value of 0 needs no step.
Function: TypeAlias = Callable[[Floats], tuple[Floats, Floats, Any]]

# Newton's steps between bounds that are made however little they gain, and the maximum number of
# steps. The others halve the bounds, or are at most half as long as the last but one.
_ANY_STEPS, _MOST_STEPS = 20, 150
_MOST_ASCENTS = 50  # maximum number of steps to a maximum


class Roots(NamedTuple):
    """Roots of many functions, or the last points of searches that failed."""

    at: Floats
    found: Bools

    def or_nan(self) -> Floats:
        """The roots, NaN where none was found."""
        return np.where(self.found, self.at, np.nan)


def newton_roots(function: Function, start: Floats, low: Floats, high: Floats) -> Roots:
    """The roots of decreasing functions between bounds, which close in.

    Where Newton's step leaves the bounds, or is slow, they are halved (Press et al. 2007,
    "Numerical Recipes", section 9.4). No root depends on the others. None is found where the value
    is NaN.
    """
    at, converged = start, np.asarray(low == high)
    last_but_one = last = np.full(np.shape(at), np.inf)
    for number in range(_MOST_STEPS):
        if (converged | np.isnan(at)).all():
            break
        value, step, near = function(at)
        low, high = np.where(value > 0, at, low), np.where(value > 0, high, at)
        moved = at + step
        near = np.maximum(near, np.spacing(np.abs(at)))  # the next number is the nearest there is
        newton = (moved > low) & (moved < high)
        if number >= _ANY_STEPS:
            newton &= np.abs(step) <= last_but_one / 2
        newton |= np.abs(step) <= near  # which may be too short to leave a bound
        moved = np.where(newton, moved, (low + high) / 2)
        moved = np.where(converged | (value == 0), at, np.where(np.isnan(value), np.nan, moved))
        last_but_one, last = last, np.abs(moved - at)
        converged, at = converged | (last <= near), moved
    return Roots(at, converged)


class Ascent(Protocol):
    """A point of a search for a maximum."""

    @property
    def parameters(self) -> Floats:
        """(P,)."""

    @property
    def value(self) -> float:
        """The function's value."""

    @property
    def step(self) -> Floats:
        """(P,) Newton's step from here."""

    @property
    def decrement(self) -> float:
        """The product of gradient and step; NaN where there is no step."""


_Point = TypeVar("_Point", bound=Ascent)


def newton_maximum(
    function: Callable[[Floats], _Point],
    start: Floats,
    *,
    enough: float,
    near: float,
    lengths: int,
    lost: float = 0.0,
) -> tuple[_Point, bool]:
    """The last point of a search for one maximum, and whether it is near enough.

    Newton's steps are halved until the value grows, so many `lengths` at most. A decrement that is
    `enough` ends the search, and the last point's must be `near`; `lost` is the share of the value
    that rounding may hide. The function makes a point of its parameters (P,).
    """
    point = function(start)
    for _ in range(_MOST_ASCENTS):
        if not point.decrement > enough:
            break
        least = point.value - lost * abs(point.value)
        trials = (function(point.parameters + 0.5**i * point.step) for i in range(lengths))
        improved = next((trial for trial in trials if trial.value > least), None)
        if improved is None:
            break
        point = improved
    return point, bool(point.decrement <= near)
