"""Likelihood ratios of recalibrated predictions to the predictions themselves.

An alternative moves the log-odds of each row away from what is predicted. The prediction may itself
be off by a margin; the null hypothesis has the true log-odds within the margin. The ratio is taken
between a point beyond the margin's boundary and the boundary on that side. It grows with the share
of labels on that side, so its expectation is at most 1 wherever in the margin the truth lies, and
however that varies between rows. Products of such ratios over rows and nights, and mixtures of such
products, are e-processes (Ramdas, Grünwald, Vovk & Shafer 2023, "Game-theoretic statistics and safe
anytime-valid inference"). If the rows of a night share a shock, it is integrated out (`shocks.py`).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from platt_jax.arrays import Bools, Floats, Integers, Ints
from platt_jax.monitoring.shocks import Shocks, shocks
from platt_jax.population.places import namespace

# Alternatives: shifts of all log-odds beyond the margin, up and down, and slopes of the log-odds
# around the segment's base rate. Neighbouring shifts have a ratio of 2, so that the true one is
# near one of them. They are multiples of UNIT.
SHIFTS: Floats = np.array([3 / 32 * 2.0**i for i in range(6)])
SLOPES = 0.0, 0.5, 1.5, 2.0  # two below 1, two above
ALTERNATIVES = 2 * len(SHIFTS) + len(SLOPES)

# Logarithms and probabilities of rows are rounded to integers of this unit. Sums of integers depend
# neither on the order of the rows nor on how they are divided, so that a night's parts add up
# exactly. A row's error is below 6e-8.
UNIT = 2.0**-24
ROWS_AT_ONCE = 1 << 15  # so that arrays stay in a cache


class JudgedRows(NamedTuple):
    """Rows of K segments with finite predictions, concatenated by segment."""

    log_odds: Floats  # (N,) predicted; like the margins they are far from where exp overflows
    margin: Floats  # (N,) of the log-odds, >= 0
    labels: Bools  # (N,)
    owner: Any  # (N,) the segment of each row, ascending from 0; ... if each row has a pivot
    pivot: Floats  # (K,) the log-odds around which slopes turn
    reported: Floats | None = None  # (N,) the share of positives that are known by now; None for 1

    def part(self, rows: slice) -> "JudgedRows":
        """Some of the rows, with the pivots of all segments."""
        return JudgedRows(
            self.log_odds[rows],
            self.margin[rows],
            self.labels[rows],
            self.owner[rows],
            self.pivot,
            None if self.reported is None else self.reported[rows],
        )


class Night(NamedTuple):
    """Sums over the rows of a night for each of K segments, as integers."""

    # (K, T) in UNIT nats: log likelihood ratios of the alternatives; with shocks, ratios of the
    # shocks at the nodes of both sides
    log_ratios: Ints
    rows: Ints  # (K,)
    positives: Ints  # (K,)
    expected: Ints  # (K,) sum of the predictions, in UNIT
    margin: Ints  # (K,) sum of the margins, in UNIT

    @classmethod
    def without_rows(cls, segments: int, terms: int) -> "Night":
        """The sums of no rows, with T terms of log likelihood ratios."""
        none = np.zeros((4, segments), np.int64)
        return cls(np.zeros((segments, terms), np.int64), *none)

    def add(self, first: int, other: "Night") -> None:
        """Adds the sums of other rows to the segments from the first on, in place."""
        for into, x in zip(self, other, strict=True):
            into[first : first + len(x)] += x

    def of(self, some: Any) -> "Night":
        """The sums of some of the segments."""
        return Night(*(x[some] for x in self))

    def placed(self, place: Integers, segments: int) -> "Night":
        """The sums at these places among more segments, and none elsewhere."""
        wide = Night.without_rows(segments, self.log_ratios.shape[1])
        for into, x in zip(wide, self, strict=True):
            into[place] = x
        return wide


def shocks_of(night_sd: float) -> Shocks | None:
    """The shocks of nights, as the alternatives need them; None for a standard deviation of 0."""
    return shocks(night_sd, tuple(SHIFTS.tolist()), UNIT) if night_sd else None


def terms_of(shared: Shocks | None) -> int:
    """T, the number of terms of log likelihood ratios."""
    return ALTERNATIVES if shared is None else 2 * len(shared.nodes)


def night_sums(rows: JudgedRows, shared: Shocks | None = None) -> tuple[int, Night]:
    """The first segment of these rows, and the sums from that segment to the last.

    It takes the least time for about ROWS_AT_ONCE rows.
    """
    terms = terms_of(shared)
    if not len(rows.labels):
        return 0, Night.without_rows(0, terms)
    first = int(rows.owner[0])
    starts = np.flatnonzero(np.diff(rows.owner, prepend=-1))
    positions = rows.owner[starts] - first
    sums = np.zeros((positions[-1] + 1, terms + len(Night._fields) - 1), np.int64)
    for column, row_terms in enumerate(rounded_terms(rows, shared)):
        # Floats are exact up to 2^53.
        sums[positions, column] = np.add.reduceat(row_terms, starts)
    return first, night_of_sums(sums, shared)


def night_of_sums(sums: Ints, shared: Shocks | None) -> Night:
    """The night (K,), given the sums of `rounded_terms` (K, T + 4)."""
    terms = terms_of(shared)
    night = Night(sums[:, :terms], *sums[:, terms:].T)
    favoured = night.positives[:, None], (night.rows - night.positives)[:, None]
    sizes = np.rint(_sizes(shared) / UNIT).astype(np.int64)
    night.log_ratios[:, : 2 * len(sizes)] += np.hstack([sizes * x for x in favoured])
    return night


def log_ratios(night: Night, shared: Shocks | None) -> Floats:
    """(K, ALTERNATIVES) log likelihood ratios in nats.

    A shock moves all log-odds, so that the slopes' ratios are 1 with shocks: only shifts are found.
    """
    values = night.log_ratios * np.float64(UNIT)
    if shared is None:
        return values
    result, sizes = np.zeros((len(night.rows), ALTERNATIVES)), len(SHIFTS)
    for side, at_nodes in enumerate(np.split(values, 2, axis=1)):
        ratios = shared.log_ratios(at_nodes, night.rows)
        result[:, side * sizes :][:, :sizes] = np.floor(ratios / UNIT) * UNIT
    return result


def _sizes(shared: Shocks | None) -> Floats:
    """How far log-odds move on a side: by the shifts, or by the shocks at the nodes."""
    return SHIFTS if shared is None else shared.nodes


def rounded_terms(rows: JudgedRows, shared: Shocks | None) -> Iterator[Any]:
    """What is summed, as whole numbers; see `_terms`. Rows are arrays of NumPy or of JAX."""
    terms = terms_of(shared)
    for column, row_terms in enumerate(_terms(rows, shared)):
        # Ratios are rounded down, so that their expectations stay at most 1.
        name = "floor" if column < terms else "rint"
        if isinstance(row_terms, np.ndarray):
            yield getattr(np, name)(row_terms, out=row_terms)
        else:
            yield getattr(jnp, name)(row_terms)


def _terms(rows: JudgedRows, shared: Shocks | None) -> Iterator[Any]:
    """What is summed, in the order of the fields of `Night`, in new arrays.

    For the sizes of a side it is minus the cost; `night_of_sums` adds the size for each favoured
    label.
    """
    for sign in (1, -1):
        side = _Side.of(rows, sign, shared)
        for size in _sizes(shared):
            cost = side.cost(size, np.expm1(size))
            cost *= -1 / UNIT
            yield cost
    if shared is None:
        yield from _slope_terms(rows)
    proba = _expit(rows.log_odds)
    yield namespace(proba).ones_like(proba)
    yield rows.labels.astype(float)
    yield (proba if rows.reported is None else proba * rows.reported) / UNIT
    yield rows.margin / UNIT


def _slope_terms(rows: JudgedRows) -> Iterator[Floats]:
    """The log likelihood ratios of the slopes, in UNIT."""
    xp = namespace(rows.log_odds)
    from_pivot = rows.log_odds - rows.pivot[rows.owner]
    away, outwards = xp.abs(from_pivot), xp.sign(from_pivot)
    growths = {by: xp.expm1(by * away) for by in {abs(slope - 1) for slope in SLOPES}}
    for direction, slopes in ((-outwards, SLOPES[:2]), (outwards, SLOPES[2:])):
        side = _Side.of(rows, direction, None)
        gain = xp.where(rows.labels == (direction > 0), away, 0)
        for by in (abs(slope - 1) for slope in slopes):
            ratio = by * gain
            ratio -= side.cost(by * away, growths[by])
            ratio *= 1 / UNIT
            yield ratio


class _Side(NamedTuple):
    """Rows at the boundary of the margin, on the side of an alternative."""

    rows: JudgedRows
    sign: Any  # 1 where it favours label 1, -1 where it favours label 0
    log_odds: Floats  # of the label that the alternative favours
    boundary: Floats  # its probability

    @classmethod
    def of(cls, rows: JudgedRows, sign: Any, shared: Shocks | None) -> "_Side":
        log_odds = sign * rows.log_odds + rows.margin
        if shared is not None:
            log_odds = shared.centred(log_odds)
        return cls(rows, sign, log_odds, _expit(log_odds))

    def cost(self, size: Any, growth: Any) -> Any:
        """What is subtracted from `size` for a label that the alternative favours, and from 0 else.

        The difference is the log likelihood ratio for log-odds moved by `size` to this side.
        `growth` is exp(size) - 1.
        """
        xp = namespace(self.boundary)
        cost: Any = xp.multiply(self.boundary, growth)
        cost = xp.log1p(cost, out=cost) if xp is np else xp.log1p(cost)
        reported = self.rows.reported
        if reported is None:
            return cost
        # A row without a reported positive is negative, or its positive is still to come.
        null = self.sign * self.log_odds
        still = _log_unreported(reported, null)
        ratio = _log_unreported(reported, null + self.sign * size) - still
        return xp.where(self.rows.labels, cost, (self.sign < 0) * size - ratio)


def _log_unreported(reported: Floats, log_odds: Floats) -> Floats:
    """The log probability that a row has no reported positive, without cancellation."""
    unreported: Floats = namespace(log_odds).log(
        _expit(-log_odds) + (1 - reported) * _expit(log_odds)
    )
    return unreported


def _expit(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), to rounding errors of this and not of its complement."""
    if not isinstance(x, np.ndarray):
        return 1 / (1 + jnp.exp(-x))
    proba = np.exp(-x)
    proba += 1
    return np.reciprocal(proba, out=proba)
