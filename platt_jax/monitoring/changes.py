"""When a segment changed, and by how much; and the table of the evidence."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats, Ints
from platt_jax.monitoring.evidence import SHIFTS, SLOPES, UNIT
from platt_jax.monitoring.state import EvidenceState, e_q_values, lifted, start_weights
from platt_jax.results import tables
from platt_jax.results.probabilities import expit
from platt_jax.results.tables import Table

# By how much the log-odds of the rows that tell of a shift may differ from their mean: a normal
# prior with the first as its standard deviation, on a grid. The second is the standard deviation of
# the log likelihoods' errors, in nats.
_SPREAD, _ERROR = 0.7, 0.5
# At a shift of 0 each start has the evidence of its weight, and other starts add up to some nats.
_ERROR_AT_0 = 3.0
_DIFFERENCES = _SPREAD * np.linspace(-4, 4, 17)
_SHIFTS = np.append(0.0, SHIFTS)
_SEGMENTS_AT_ONCE = 1 << 10  # so that arrays stay in a cache
# From this log e-value on, an interval of 95 % that does not agree with the change is none.
_CERTAIN, _Z = np.log(20), 1.96
_KINDS = np.array(
    [*["higher"] * len(SHIFTS), *["lower"] * len(SHIFTS)]
    + ["flatter" if slope < 1 else "steeper" for slope in SLOPES]
)


class Changes(NamedTuple):
    """The change that explains the evidence best; arrays (K,)."""

    kind: NDArray[np.str_]  # "higher", "lower", "flatter", "steeper" than predicted, or "" for none
    since: Ints  # the night of the start, 0 for none
    intercept: Floats  # the shift of the log-odds, NaN for none or if it contradicts the change
    se_intercept: Floats


def evidence_table(state: EvidenceState) -> Table:
    """`Monitor.table` of segments: those with the most evidence first."""
    highest, log_e = state.highest, state.log_e()
    expected = state.expected * UNIT
    with np.errstate(divide="ignore", invalid="ignore"):  # expected may be rounded to 0
        ratio = state.positives / expected
    detected = changes(state)
    columns: dict[str, Any] = {
        "nights": state.nights,
        "rows": state.rows,
        "positives": state.positives,
        "expected": expected,
        "ratio": ratio,
        "q_value": e_q_values(log_e),
        "change": detected.kind,
        "since": detected.since,
        "intercept": detected.intercept,
        "se_intercept": detected.se_intercept,
        "log_e_value": log_e,
        "highest": highest,
        "q_value_ever": e_q_values(lifted(highest)),
    }
    order = np.argsort(-log_e, kind="stable")
    table = tables.keyed("segment", state.keys, columns)
    return Table({name: x[order] for name, x in table.items()})


def changes(state: EvidenceState) -> Changes:
    """The changes of K segments, from what is known of them before tonight."""
    best = state.log_sums.argmax(1)
    # The starts' weights add up to less than 1, so ratios of 1 have a weighted sum below 1.
    has_evidence = state.log_sums[np.arange(len(best)), best] > 0
    indices = np.flatnonzero(has_evidence)
    since, shift = np.zeros(len(best), np.int64), np.full((2, len(best)), np.nan)
    since[indices] = state.since[indices, best[indices]]
    for part in np.array_split(indices, 1 + len(indices) // _SEGMENTS_AT_ONCE):
        shift[:, part] = _shift(state.of(part))
    side = np.where(best < len(SHIFTS), 1, -1)
    with np.errstate(invalid="ignore"):
        beyond_0 = side * shift[0] > _Z * shift[1]
    contradicts = (best < 2 * len(SHIFTS)) & (state.log_e() >= _CERTAIN) & ~beyond_0
    shift[:, contradicts] = np.nan
    return Changes(np.where(has_evidence, _KINDS[best], ""), since, *shift)


def _shift(state: EvidenceState) -> tuple[Floats, Floats]:
    """The most likely shift of the log-odds, and its standard error; finite.

    The log likelihood of a shift a is approximated by n rows of one probability p, O of them with
    the label that it favours: O a - n log(1 + p (exp(a) - 1)). For each p of a grid, O and n are
    the numbers for which it is closest to the evidence, at the alternatives of one side. The
    shift is estimated from O + 1/2 of n + 1 rows (Haldane 1956), so that it is finite. The mean and
    the variance are over p.
    """
    sizes = len(SHIFTS)
    sides = state.log_sums[:, : 2 * sizes].reshape(-1, 2, sizes)
    side, index = sides.max(2).argmax(1), np.arange(len(sides))
    value, since = sides[index, side], state.since[:, : 2 * sizes].reshape(sides.shape)[index, side]
    best = value.argmax(1)
    # Alternatives with one start have the same rows. Three at least are needed.
    beside = np.abs(np.arange(sizes) - np.clip(best, 1, sizes - 2)[:, None]) <= 1
    start = since[index, best]
    weight = (beside | (since == start[:, None])).astype(float)
    at_0 = np.log(start_weights(int(start.max(initial=0)))[0][start])
    value, weight = (
        np.insert(x, 0, first, axis=1)[:, None]
        for x, first in ((value, at_0), (weight, (_ERROR / _ERROR_AT_0) ** 2))
    )

    rows, sign = state.rows.astype(float), np.where(side == 0, 1.0, -1.0)
    # It is a mean of numbers that were rounded to UNIT.
    proba, margin = (x * UNIT / rows for x in (state.expected, state.margin))
    proba = np.clip(proba, UNIT, 1 - UNIT)
    predicted = sign * (np.log(proba) - np.log1p(-proba)) + margin
    log_odds = predicted[:, None] + _DIFFERENCES
    cost = np.log1p(expit(log_odds)[:, :, None] * np.expm1(_SHIFTS))
    number, favoured, error = _counts(weight, value, cost, rows[:, None])

    penalty = error / _ERROR**2 + (_DIFFERENCES / _SPREAD) ** 2
    share = np.exp((penalty.min(1, keepdims=True) - penalty) / 2)
    share /= share.sum(1, keepdims=True)
    more, fewer = favoured + 0.5, number - favoured + 0.5
    shift = np.log(more) - np.log(fewer) - log_odds
    mean = (share * shift).sum(1)
    variance = (share * (1 / more + 1 / fewer + (shift - mean[:, None]) ** 2)).sum(1)
    return sign * (margin + mean), np.sqrt(variance)


def _counts(weight: Floats, value: Floats, cost: Floats, rows: Floats) -> tuple[Floats, ...]:
    """The n and O, (K, P), for which O _SHIFTS - n cost plus a constant is closest to the values.

    `rows` (K, 1) is the largest n. n is from 1 on, and O from 0 to n. Also returns the sum of
    squares of what is left.
    """

    def centred(x: Floats) -> Floats:
        return x - (weight * x).sum(-1, keepdims=True) / weight.sum(-1, keepdims=True)

    def products(x: Floats, y: Floats) -> Floats:
        total: Floats = (weight * x * y).sum(-1)
        return total

    size, cost, value = centred(_SHIFTS), centred(cost), centred(value)
    ss, cc, sc = products(size, size), products(cost, cost), products(size, cost)
    sv, cv = products(size, value), products(cost, value)
    number = np.clip((sc * sv - ss * cv) / np.maximum(ss * cc - sc**2, UNIT**2), 1, rows)
    favoured = np.clip((sv + number * sc) / ss, 0, number)
    number = np.clip((favoured * sc - cv) / cc, np.maximum(favoured, 1), rows)
    residual = value - favoured[..., None] * size + number[..., None] * cost
    return number, favoured, products(residual, residual)
