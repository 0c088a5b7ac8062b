"""Tests of segments on fresh rows, against their predictions or their fitted curves."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from platt_jax.arrays import Bools, Floats, Ints, Words
from platt_jax.backend.threads import ordered_map
from platt_jax.caller import Caller
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.groups import Groups
from platt_jax.hypothesis_tests import cluster_shocks
from platt_jax.hypothesis_tests.cluster_shocks import Clusters
from platt_jax.hypothesis_tests.count_tests import UncertainRows, p_values
from platt_jax.hypothesis_tests.curve_distributions import FARTHEST, Ends, ends
from platt_jax.hypothesis_tests.posteriors import SegmentPosteriors
from platt_jax.hypothesis_tests.score_tests import MixingDistribution, ScoreTests
from platt_jax.hypothesis_tests.simulation import canonical_order, sequential_p_values
from platt_jax.hypothesis_tests.tilting import tilted_p_values
from platt_jax.model.objective import Array
from platt_jax.options import Options
from platt_jax.population.chunked import ChunkedSegments
from platt_jax.population.gaussians import NormalMoments, normals
from platt_jax.population.segments import Coordinates
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.results.fit import Fit
from platt_jax.results.probabilities import expit

COLUMNS = (
    *("positives", "expected"),
    *("intercept", "slope", "se_intercept", "se_slope"),
    *("cox_p_value", "spiegelhalter_z", "p_value"),
)

# Least distance of probabilities from 0 and 1.
LEAST = 2.0**-53

# P-values up to _SMALL use importance sampling. Where the chi-square p-value is up to _TINY, plain
# simulation is skipped.
_SMALL, _TINY = 0.05, 1e-3

# Rows that are tested together, to stay in a cache.
_AT_ONCE = 1 << 17

_KNOWN = 1e-30  # variance of log-odds that are known
_FARTHEST = 37.0  # a shift by which labels are as sure as predictions may be

# Halvings of the margin in the search for the shift that fits best.
HALVINGS = 30

# Prior of the recalibration: (A, B) of slope 1 and intercept 0, and the covariance.
_RIGHT = np.array([-1.0, 0.0])
_SPREAD = np.eye(2)


class FreshRows(NamedTuple):
    """Rows of K segments, concatenated by segment."""

    scores: Floats  # (N,)
    proba: Floats  # (N,) predictions
    labels: Bools  # (N,)
    groups: Groups  # of K segments
    ids: Words  # (K,); a segment's draws depend only on its own
    offset: Floats | None = None  # (N,) log-odds added to the curves
    clusters: Clusters | None = None  # of rows that depend on each other

    def of(self, some: slice) -> "FreshRows":
        """The rows of adjacent segments; clusters are those of all."""
        groups = Groups(self.groups.sizes[some])
        rows = slice(first := self.groups.starts[some.start], first + groups.rows)
        offset = None if self.offset is None else self.offset[rows]
        columns = self.scores[rows], self.proba[rows], self.labels[rows]
        return FreshRows(*columns, groups, self.ids[some], offset, self.clusters)

    def moved(self, by: Floats) -> "FreshRows":
        """The rows with the log-odds of each segment (K,) moved."""
        by_row = self.groups.by_row(by)
        offset = by_row if self.offset is None else self.offset + by_row
        return self._replace(proba=expit(_logit(self.proba) + by_row), offset=offset)


def judged(
    rows: FreshRows, fitted: SegmentPosteriors | None, margin: float = 0.0
) -> dict[str, Array]:
    """The columns of `triage` for each segment: arrays (K,) by the names in `COLUMNS`.

    Without posteriors (K,) of the segments' curves the tests are against the predictions. They are
    of log-odds moved within the margin to where they fit the labels best: farther off, p-values are
    smaller.
    """
    if fitted is None or not (slope_known := _has_known_slope(fitted)).any():
        return _judged(rows, fitted, margin)
    by_shift = _judged(*_with_slopes_in_offset(rows, fitted, slope_known), margin)
    if slope_known.all():
        return by_shift
    columns = _judged(rows, fitted, margin)
    return {name: np.where(slope_known, by_shift[name], columns[name]) for name in columns}


def _judged(rows: FreshRows, fitted: SegmentPosteriors | None, margin: float) -> dict[str, Array]:
    positives, expected = rows.groups.sums([rows.labels.astype(float), rows.proba])
    by_score = fitted is not None and rows.offset is None
    order = canonical_order(rows.scores if by_score else rows.proba, rows.labels, rows.groups)
    rows = rows._replace(
        offset=None if rows.offset is None else rows.offset[order],
        scores=rows.scores[order],
        proba=np.clip(rows.proba[order], LEAST, 1 - LEAST),
        labels=rows.labels[order],
        clusters=rows.clusters and rows.clusters._replace(owner=rows.clusters.owner[order]),
    )
    logit_rows = SegmentRows(_logit(rows.proba), rows.labels, rows.groups.owner)
    fit = recalibrated(ChunkedSegments(logit_rows, Caller()), Options(targets="none"))
    if margin:
        rows = rows.moved(_best_within(rows, margin))
    tests, p_value = _against_predictions(rows) if fitted is None else _against_fit(rows, fitted)
    return columns_of(positives, expected, fit, tests, p_value)


def _has_known_slope(fitted: SegmentPosteriors) -> Bools:
    """(K,) whether a slope is so well known that log-odds at an end would be clipped."""
    slope_known: Bools = np.abs(fitted.curves.mean[:, 0]) * _ends(fitted).half_width > FARTHEST
    return slope_known


def _ends(fitted: SegmentPosteriors) -> Ends:
    return ends(*fitted.curves, fitted.rounding)


def _with_slopes_in_offset(
    rows: FreshRows, fitted: SegmentPosteriors, known: Bools
) -> tuple[FreshRows, SegmentPosteriors]:
    """The same with known slopes (K,) as a part of the offset, as a shift has."""
    (A, B), center, by_row = fitted.curves.mean.T, _ends(fitted).center, rows.groups.by_row
    slope = np.where(known, A, 0)
    offset = by_row(slope) * (by_row(center) - rows.scores)
    offset = offset if rows.offset is None else offset + rows.offset
    mean = np.stack([A - slope, B + slope * np.where(known, center, 0)], -1)
    curves = fitted.curves._replace(mean=mean)
    return rows._replace(offset=offset), fitted._replace(curves=curves)


def columns_of(
    positives: Floats, expected: Floats, fit: Fit, tests: Any, p_value: Floats
) -> dict[str, Array]:
    """The columns (K,), given the recalibration, and tests as `ScoreTests`."""
    se_slope, se_intercept = fit.standard_errors.T
    estimates = (positives, expected, -fit.B, -fit.A, se_intercept, se_slope)
    p_values = (tests.cox_p_value, tests.spiegelhalter_z, p_value)
    return dict(zip(COLUMNS, (*estimates, *p_values), strict=True))


def _best_within(rows: FreshRows, margin: float) -> Floats:
    """(K,) the shift of the log-odds, within the margin, by which the labels are likeliest."""
    log_odds, labels, groups = _logit(rows.proba), rows.labels.astype(float), rows.groups
    low, high = (np.full(len(groups.sizes), x) for x in (-margin, margin))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        proba = expit(log_odds + groups.by_row(middle))
        more = groups.sums(labels - proba) > 0
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return (low + high) / 2


def _against_predictions(rows: FreshRows) -> tuple[ScoreTests, Floats]:
    tests = ScoreTests(_logit(rows.proba), rows.proba, rows.labels, rows.groups)
    if rows.clusters is not None:
        return tests, _cluster_p_values(rows)
    by_draws = partial(sequential_p_values, tests), partial(tilted_p_values, tests)
    return tests, simulated_p_values(tests, rows.ids, *by_draws)


def simulated_p_values(
    tests: Any,
    ids: Words,
    sequential: Callable[[Words, Ints], Floats],
    tilted: Callable[[Words, Ints], Floats],
) -> Floats:
    """(K,) p-values of tests as `ScoreTests`, by the two kinds of simulation of some of them."""
    # Bonferroni: twice the smaller of two p-values is a p-value.
    p_value = np.minimum(2 * tests.least_p_value, 1)
    few = np.flatnonzero(~tests.normal & (p_value > _TINY))
    p_value[few] = sequential(ids, few)
    small = np.flatnonzero(~(p_value > _SMALL))
    p_value[small] = tilted(ids, small)
    return p_value


class _Tested(NamedTuple):
    """Columns (K,) of `triage`."""

    cox_p_value: Floats
    spiegelhalter_z: Floats
    p_value: Floats


def _against_fit(rows: FreshRows, fitted: SegmentPosteriors) -> tuple[_Tested, Floats]:
    """Tests of mean probabilities, with variances that include the curves' variance."""

    def tested(some: slice) -> _Tested:
        return _part_against_fit(rows.of(some), fitted.of(some))

    joint = rows.clusters is not None  # whose numbers are those of all segments
    parts = list(ordered_map(tested, rows.groups.slices(rows.groups.rows if joint else _AT_ONCE)))
    tests = _Tested(*(np.concatenate(x) for x in zip(*parts, strict=True)))
    return tests, tests.p_value


def _part_against_fit(rows: FreshRows, fitted: SegmentPosteriors) -> _Tested:
    at = ends(*fitted.curves, fitted.rounding)
    owner = rows.groups.owner
    offset = np.zeros(len(rows.scores)) if rows.offset is None else rows.offset
    spread = MixingDistribution(at.basis(rows.scores, owner), *at.nodes(), owner, offset)
    mixed = spread.probabilities()
    proba = np.clip(mixed.mean, LEAST, 1 - LEAST)
    # In the order of the rows: by the scores, or by the probabilities if there are offsets.
    position = spread.basis[0] - spread.basis[1] if rows.offset is None else _logit(rows.proba)
    tests = ScoreTests(position, proba, rows.labels, rows.groups, mixed)
    judged_rows = UncertainRows(
        owner, rows.labels, mixed.mean, mixed.variance, spread.basis, rows.offset, rows.clusters
    )
    return _Tested(tests.cox_p_value, tests.spiegelhalter_z, p_values(judged_rows, at, fitted))


def _cluster_p_values(rows: FreshRows) -> Floats:
    """P-values of predictions that are right but for the clusters' shifts."""
    K, p = len(rows.groups.sizes), rows.proba
    owner, nothing = rows.groups.owner, np.zeros((K, 2))
    judged_rows = UncertainRows(
        owner, rows.labels, p, p * (1 - p), np.zeros((2, len(p))), _logit(p), rows.clusters
    )
    at = Ends(np.zeros(K), np.ones(K), nothing, nothing + _KNOWN)
    curves = NormalMoments(nothing, np.zeros((K, 2, 2)))
    fixed = SegmentPosteriors(curves, nothing[:, 0], nothing[:, 0], True, 0)
    return p_values(judged_rows, at, fixed)


def shock_variance(rows: FreshRows, owner: Ints) -> float:
    """The variance of the clusters' shifts, given each row's cluster; NaN if it is not known."""
    clipped = rows._replace(proba=np.clip(rows.proba, LEAST, 1 - LEAST))
    shifted = clipped.moved(_best_within(clipped, _FARTHEST)).proba
    labels = rows.labels.astype(float)
    return cluster_shocks.shock_variance(rows.groups.owner, owner, labels, shifted)


def _logit(proba: Floats) -> Floats:
    return np.log(proba) - np.log1p(-proba)


def recalibrated(by_segment: ChunkedSegments, options: Options) -> Fit:
    """The fits of the labels to the predicted log-odds, which are the scores."""
    segments = StandardizedSegments(by_segment, Coordinates(center=0.0, scale=1.0), options)
    return segments.modes(normals(_RIGHT, _SPREAD))
