"""Promises of metrics, of predictions that are the truth and of others."""

import numpy as np
from scipy.special import expit

import platt_jax as pj
from platt_jax import metrics

from . import chance
from .cell import Cell
from .worlds import Rows

# Those that one number answers, and its range.
NUMBERS = {
    "brier_score": (0, 1),
    "log_loss": (0, np.inf),
    "roc_auc": (0, 1),
    "expected_calibration_error": (0, 1),
    "maximum_calibration_error": (0, 1),
    "smooth_ece": (0, 1),
    "ece_by_chance": (0, 1),
}


def _independent(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Labels and true probabilities: given the log-odds with their shocks, rows are independent."""
    return rows.labels, expit(rows.log_odds)


def numbers(cell: Cell) -> None:
    rows = cell.world.nights[0]
    labels, truth = _independent(rows)
    one_class = len(np.unique(labels)) < 2
    weights = np.random.default_rng(cell.world.seed).integers(0, 3, len(rows)).astype(float)
    weights[0] = 1.0
    twice = np.repeat(np.arange(len(rows)), weights.astype(int))
    for name, (low, high) in NUMBERS.items():
        function = getattr(metrics, name)
        value = float(function(labels, truth))
        known = np.isfinite(value) or (name == "roc_auc" and one_class)
        cell.want(known and not low - 1e-9 > value and not value > high + 1e-9, f"{name} {value}")
        weighted = float(function(labels, truth, weights=weights))
        repeated = float(function(labels[twice], truth[twice]))
        cell.want_same(weighted, repeated, f"{name}: weight 2 and the row twice", 1e-6)
        smaller = float(function(labels, truth, weights=weights * 1e-9))
        cell.want(
            np.isnan(smaller) or low - 1e-9 <= smaller <= high + 1e-9,
            f"{name} of small weights {smaller}",
        )
    for given in ({}, {"n_bins": 5, "strategy": "quantile"}):
        parts = metrics.brier_decomposition(labels, truth, **given)
        for part, value in zip(
            parts._fields if hasattr(parts, "_fields") else parts, parts, strict=True
        ):
            cell.want(np.isfinite(value), f"brier_decomposition: {part} {value}")


def tests_of_chance(cell: Cell) -> None:
    """The truth is not found to be wrong; labels that are all flipped are."""
    rows = cell.world.nights[0]
    labels, truth = _independent(rows)
    cox = metrics.cox_calibration(labels, truth)
    found = {
        "spiegelhalter": metrics.spiegelhalter(labels, truth).p_value,
        "hosmer_lemeshow": metrics.hosmer_lemeshow(labels, truth).p_value,
        "cox_calibration": cox.joint_test.p_value,
    }
    # Spiegelhalter's z and Cox's likelihood ratio are those of many labels of either class.
    many = min(truth.sum(), (1 - truth).sum()) >= 50 and (truth * (1 - truth)).sum() >= 30
    for name, p in found.items():
        p = float(p)
        cell.want(np.isnan(p) or 0 <= p <= 1, f"{name}: p {p}")
        least = chance.NEVER if name == "hosmer_lemeshow" or many else 0
        cell.want(np.isnan(p) or p >= least / 100, f"{name}: p {p:.1g} of the truth")
    interval = metrics.ece_interval(labels, truth, level=1 - chance.NEVER)
    value, lower, upper = (float(x) for x in interval)
    cell.want_order(lower, value, upper, "ece_interval")
    cell.want(0 <= lower and upper <= 1, f"ece_interval {interval}")
    cell.want(lower == 0, f"ece_interval leaves out 0, which is true: {lower}")
    if (truth * (1 - truth)).sum() >= 30 and ((1 - 2 * truth) ** 2).sum() >= 100:
        p = float(metrics.spiegelhalter(1 - labels, truth).p_value)
        cell.want(p < 1e-4, f"spiegelhalter: p {p:.1g} of flipped labels")


def by_segment(cell: Cell) -> None:
    """The answer of each segment's rows alone."""
    rows = cell.world.nights[0]
    labels, truth = _independent(rows)
    some = np.unique(rows.segments)[:3]
    for name in (*NUMBERS, "spiegelhalter", "cox_calibration", "hosmer_lemeshow"):
        function = getattr(metrics, name)
        found = metrics.by_segment(function, labels, truth, rows.segments)
        cell.want(len(found.keys) == len(np.unique(rows.segments)), f"{name}: lines")
        for i, segment in enumerate(some):
            here = rows.segments == segment
            alone = function(labels[here], truth[here])
            mine, other = (_flat(x, at) for x, at in ((found.values, i), (alone, None)))
            cell.want_same(mine, other, f"{name} of a segment", 1e-6 * (1 + np.abs(other).max()))
        found.table()


def _flat(value, at) -> np.ndarray:
    """The numbers of a result, nested or not."""
    if isinstance(value, tuple):
        return np.concatenate([_flat(x, at) for x in value])
    value = np.asarray(value, float)
    return np.nan_to_num(np.atleast_1d(value if at is None else value[at]), posinf=1e300)


def curves(cell: Cell) -> None:
    rows = cell.world.nights[0]
    labels, truth = _independent(rows)
    for p, name in ((truth, "truth"), (np.full(len(rows), truth.mean()), "one probability")):
        for function in (metrics.reliability_curve, metrics.isotonic_curve, metrics.smooth_curve):
            given = {"replicates": 20} if function is metrics.isotonic_curve else {}
            found = function(labels, p, **given)
            what = f"{function.__name__}, {name}"
            true, lower, upper = (
                np.asarray(x, float) for x in (found.prob_true, found.lower, found.upper)
            )
            cell.want(((true >= 0) & (true <= 1) | np.isnan(true)).all(), f"{what}: outside [0, 1]")
            # The isotonic band is around the predictions, and the curve may leave it.
            middle = lower if function is metrics.isotonic_curve else true
            cell.want_order(lower, middle, upper, what)
            half = np.isfinite(true) & ~np.isfinite(lower)
            # Fewer than five rows of a class determine no smooth curve: it is the mean, see there.
            few = function is metrics.smooth_curve and min(labels.sum(), (1 - labels).sum()) < 5
            cell.want(few or not half.any(), f"{what}: a curve without a band")


def decisions(cell: Cell) -> None:
    """Net benefits and costs with their intervals, of the truth and of what is nearly none."""
    rows = cell.world.nights[0]
    labels, truth = _independent(rows)
    at = [0.01, float(np.clip(truth.mean(), 0.02, 0.9)), 0.95]
    curve = metrics.decision_curve(labels, truth, before=truth**2, threshold=at)
    alone = metrics.net_benefit(labels, truth, threshold=at)
    cell.want_same(curve.value, alone.value, "decision_curve and net_benefit", 1e-12)
    cell.want_order(curve.lower, curve.value, curve.upper, "net benefit")
    cell.want_order(curve.difference_lower, curve.difference, curve.difference_upper, "difference")
    cell.want((curve.value <= labels.mean() + 1e-12).all(), "more true positives than positives")
    cost = metrics.expected_cost(labels, truth, cost=(1, 9))
    cell.want_order(cost.lower, cost.value, cost.upper, "cost")
    cell.want(0 <= cost.lower and cost.upper <= 9, f"cost {cost}")
    sure = metrics.decision_curve(
        labels, truth, before=truth**2, threshold=at[1], level=1 - chance.NEVER
    )
    gain = truth - (1 - truth) * at[1] / (1 - at[1])
    now, then = truth >= at[1], truth**2 >= at[1]
    # Given the probabilities; normal ends of rare levels hold where some rows count.
    if (truth * (now != then)).sum() >= 20:
        expected = float((gain * (now * 1.0 - then)).mean())
        inside = sure.difference_lower[0] <= expected <= sure.difference_upper[0]
        cell.want(inside, f"difference {expected:.3g} outside its interval")
    indices = metrics.integrated_calibration_index(labels, truth, replicates=50)
    for name, each in zip(indices._fields, indices, strict=True):
        cell.want_order(each.lower, each.value, each.upper, name)
        known = np.isnan(each.value) or (0 <= each.lower and each.upper <= 1)
        cell.want(known, f"{name} {each}")


def centres(cell: Cell) -> None:
    """Each segment is a centre."""
    rows = cell.world.nights[0]
    labels, truth = _independent(rows)
    made = pj.metrics.summarize_centres(truth, labels, rows.segments, tolerance=0.5)
    cell.want(made["positives"].sum() == labels.sum(), "centres: positives do not add up")
    cell.want(np.isclose(made["expected"].sum(), truth.sum()), "centres: expected do not add up")
    cell.want_order(made["ratio_lower"], made["ratio"], made["ratio_upper"], "O:E")
    found = made.overall
    cell.want_order(found["lower"], found["value"], found["upper"], "the mean of centres")
    cell.want_order(found["new_lower"], found["value"], found["new_upper"], "a new centre")
    within = found["within"]
    cell.want(((within >= 0) & (within <= 1) | np.isnan(within)).all(), f"within {within}")
    cell.want(len(made["rows"]) < 2 or np.isfinite(found["value"][:2]).all(), "no population")
    if len(rows) > 2_000:
        return
    # Given the shocks rows are independent, in clusters of any kind.
    clusters = np.arange(len(rows)) // 3
    days = pj.metrics.summarize_centres(
        truth, labels, rows.segments, tolerance=0.5, clusters=clusters
    )
    more, variance = days.design_effect, (truth * (1 - truth)).sum()
    pairs = np.unique(np.stack([rows.segments, clusters]), axis=1)
    number = min(pairs.shape[1], variance)
    _, owner = np.unique(pairs[0], return_counts=True)
    known = 1 <= more < 1 + 8 / np.sqrt(max(number, 1e-9))
    cell.want(known or np.isnan(more), f"design effect {more:.3g}")
    both = np.isfinite(made["in_the_large"]) & (owner > 1)
    single = pairs.shape[1] == len(rows)  # each row is a cluster
    cell.want(np.isnan(more) != (both.any() or single), "design effect without several clusters")
    errors = np.sqrt(more) * made["se_in_the_large"]
    cell.want_same(days["se_in_the_large"], errors, "errors by clusters", 1e-9)


def fields(cell: Cell) -> None:
    """Errors over groups of rows."""
    rows = cell.world.nights[0]
    labels, truth = _independent(rows)
    found = metrics.multicalibration_error(
        labels, truth, segments=rows.segments, min_rows=1, replicates=50
    )
    cell.want(0 < float(found.p_value) <= 1, f"multicalibration_error: p {found.p_value}")
    cell.want_order(found.lower, found.sigma, found.upper, "multicalibration_error")
    for function in (
        metrics.field_calibration_error,
        metrics.field_relative_error,
        metrics.field_squared_error,
    ):
        result = function(labels, truth, rows.segments)
        name = function.__name__
        value, lower, upper = (float(x) for x in (result.value, result.lower, result.upper))
        cell.want(np.isfinite(value) or "squared" in name, f"{name} {value}")
        cell.want(not lower > upper, f"{name}: interval upside down")


def expectations(cell: Cell) -> None:
    """What labels to come will show: they are here."""
    rows = cell.world.nights[0]
    labels, truth = _independent(rows)
    found = metrics.expected(truth, level=1 - chance.NEVER)
    actual = {
        "log_loss": metrics.log_loss(labels, truth),
        "brier_score": metrics.brier_score(labels, truth),
        "rate": labels.mean(),
        "positives": labels.sum(),
    }
    for name, value in actual.items():
        about = getattr(found, name)
        cell.want_order(about.lower, about.value, about.upper, f"expected {name}")
        # The docstring: levels of 99.9 % can fall short by 0.1 %.
        if name == "positives":
            inside = about.lower - 1e-6 <= value <= about.upper + 1e-6
            cell.want(inside, f"{name} {value:.4g} outside {about.lower:.4g} to {about.upper:.4g}")
    each = metrics.expected(truth, segments=rows.segments)
    values = np.asarray(each.values.positives.value, float)
    cell.want(np.isclose(values.sum(), truth.sum(), rtol=1e-6), "segments do not add up")
