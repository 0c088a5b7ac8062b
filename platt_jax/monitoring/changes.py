"""When a segment changed, and by how much."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats, Ints
from platt_jax.monitoring.evidence import SHIFTS, SLOPES, UNIT
from platt_jax.results.probabilities import expit

_KINDS = np.array(
    [*["higher"] * len(SHIFTS), *["lower"] * len(SHIFTS)]
    + ["flatter" if slope < 1 else "steeper" for slope in SLOPES]
)


class Changes(NamedTuple):
    """The change that explains the evidence best; arrays (K,)."""

    kind: NDArray[np.str_]  # "higher", "lower", "flatter", "steeper" than predicted, or "" for none
    since: Ints  # the night of the start, 0 for none
    intercept: Floats  # the shift of the log-odds, NaN for none
    se_intercept: Floats


def changes(log_sums: Floats, since: Any, margin: Floats, proba: Floats) -> Changes:
    """The changes of K segments.

    Args:
        log_sums: (K, ALTERNATIVES), as in `State`.
        since: (K, ALTERNATIVES), as in `State`.
        margin: (K,) mean margin.
        proba: (K,) mean prediction.
    """
    best = log_sums.argmax(1)
    each = np.arange(len(best))
    # The sum of the starts' weights is below 1, and so is that of a ratio of 1.
    found = log_sums[each, best] > 0
    intercept, error = _shift(log_sums, margin, proba)
    return Changes(
        np.where(found, _KINDS[best], ""),
        np.where(found, since[each, best], 0),
        np.where(found, intercept, np.nan),
        np.where(found, error, np.nan),
    )


def _shift(log_sums: Floats, margin: Floats, proba: Floats) -> tuple[Floats, Floats]:
    """The shift of maximum likelihood between the alternatives, and its standard error.

    The log likelihood of a shift a is that of n rows with one probability p, O of them positive:
    O a - n log(1 + p (exp(a) - 1)). O and n follow from its values at three shifts around the best.
    """
    shifts = np.concatenate([-SHIFTS[::-1], SHIFTS])
    places = [*range(2 * len(SHIFTS) - 1, len(SHIFTS) - 1, -1), *range(len(SHIFTS))]
    of_shifts = log_sums[:, places]
    best = of_shifts.argmax(1)
    up = shifts[best] > 0
    # Three neighbours on one side, in order of size.
    size = np.clip(np.where(up, best - len(SHIFTS), len(SHIFTS) - 1 - best), 1, len(SHIFTS) - 2)
    near = size[:, None] + np.arange(-1, 2)
    sign = np.where(up, 1.0, -1.0)
    a = sign[:, None] * SHIFTS[near]
    at = np.where(up[:, None], len(SHIFTS) + near, len(SHIFTS) - 1 - near)
    value = np.take_along_axis(of_shifts, at, 1)
    proba = np.clip(proba, UNIT, 1 - UNIT)  # it is a mean of numbers that were rounded to UNIT
    p = expit(np.log(proba) - np.log1p(-proba) + sign * margin)
    h = np.log1p(p[:, None] * np.expm1(a))
    d_a, d_h, d_v = (np.diff(x, axis=1) for x in (a, h, value))
    # d_v = O d_a - n d_h
    determinant = d_a[:, 0] * d_h[:, 1] - d_a[:, 1] * d_h[:, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        number = (d_a[:, 1] * d_v[:, 0] - d_a[:, 0] * d_v[:, 1]) / determinant
        positives = (d_v[:, 0] + number * d_h[:, 0]) / d_a[:, 0]
        share = positives / number
        shift = np.log(share) - np.log1p(-share) - np.log(p) + np.log1p(-p)
        error = 1 / np.sqrt(number * share * (1 - share))
    return sign * margin + shift, error
