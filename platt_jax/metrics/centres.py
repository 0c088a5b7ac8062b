"""Calibration in many centres, and what it says of a new one."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Floats, Integers
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.groups import Groups
from platt_jax.ids.factorize import compact, factorize
from platt_jax.metrics.centre_population import (
    UNKNOWN,
    CentreRows,
    expected_positives,
    intercepts,
    overall,
    overall_of_one,
    overall_table,
)
from platt_jax.metrics.rows import ratio, read_flat_predictions
from platt_jax.metrics.segments import by_segment
from platt_jax.metrics.significance import cox_calibration
from platt_jax.results.probabilities import critical_value, expit
from platt_jax.results.tables import Table, keyed

# Rows of the rarer class below which a centre says little of its slope.
_FEW = 10
_ONE_CLUSTER = (
    "clusters: expected several in a centre with labels of both classes, found none: how much the "
    "rows of a cluster have in common is not known, and errors are NaN. Pass ids of smaller "
    "clusters, or no clusters if rows are independent"
)
_COLUMNS = (
    *("rows", "positives", "expected", "ratio", "se_log_ratio", "ratio_lower", "ratio_upper"),
    *("in_the_large", "se_in_the_large", "intercept", "se_intercept", "slope", "se_slope"),
)


class Centres(Table):
    """A table with a line per centre, and `overall`, what they say together.

    Attributes:
        overall: a table with a line for each parameter.
        design_effect: how many times as large variances are as of independent rows.
    """

    overall: Table
    design_effect: float

    def __init__(self, columns: Any, overall: Table, design_effect: float = 1.0) -> None:
        super().__init__(columns)
        self.overall, self.design_effect = overall, design_effect


@takes_columns
def summarize_centres(
    proba: Column,
    labels: Column,
    segments: Column,
    *,
    weights: Column = None,
    clusters: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
    tolerance: float = 0.2,
) -> Centres:
    """How well probabilities are calibrated in each of several centres, and in a new one.

    Each centre (hospital, site, country) has three usual measures (Van Calster et al. 2016): the
    ratio of observed to expected positives, O:E; calibration in the large, the intercept a of
    logit P(y=1) = logit(proba) + a; and intercept and slope fitted together.

    Over centres each measure is normal (O:E on the log scale), and its mean, its standard deviation
    and a prediction interval for a new centre are estimated as in a meta-analysis of validations
    (Debray et al. 2019), but by the likelihoods of the rows. Intercept and slope together have the
    population of ``fit_segments(..., pooling="partial")``; the other two have their spread
    integrated out, under the same prior. `docs/howto/centres.md` has how often intervals held the
    truth in simulated studies, and compares a meta-analysis by normal errors.

    Args:
        proba: (N,) probabilities of class 1, or logits.
        labels: (N,) bool, {0, 1} or {-1, +1}.
        segments: (N,) ids of the centres, as in `fit_segments`.
        weights: (N,) counts of rows >= 0.
        clusters: (N,) ids of what rows of a centre have in common, such as patients with several
            rows; None if rows are independent. By their design effect (Kish 1965, "Survey
            sampling") variances are larger, and rows count for less in `overall`.
        from_logits: whether proba holds logits.
        level: probability of the intervals, in (0, 1).
        tolerance: how far off a centre may be: log-odds within `tolerance` of 0, a slope within it
            of 1, a ratio between 1 / (1 + tolerance) and 1 + tolerance.

    Returns:
        A Centres table with a line per centre, in ascending order, and the columns

        - `segment`, or one column for each of its several columns; `rows` and `positives`,
          weighted; and `expected`, the sum of the probabilities;
        - `ratio`, positives / expected, `se_log_ratio`, and the interval from `ratio_lower` to
          `ratio_upper`;
        - `in_the_large` and `se_in_the_large`;
        - `intercept`, `se_intercept`, `slope` and `se_slope` of the joint fit, as by
          `metrics.cox_calibration`;
        - `status`: OK; FEW_EVENTS with fewer than 10 rows of the rarer class, whose joint fit says
          little; ONE_CLASS, whose intercepts, slope and errors are NaN; SEPARABLE, without a joint
          fit; EMPTY, without rows of positive weight; NON_FINITE, with a NaN in a row, so that all
          is NaN and the centre counts nowhere.

        Its `overall` is a Table with a line per `parameter` ("ratio", "in_the_large", "intercept",
        "slope") and the columns `segments`, the number of centres; `value`, the mean, with the
        interval from `lower` to `upper`; `standard_deviation` of the centres, of the log for the
        ratio; `new_lower` and `new_upper`, the prediction interval for a new centre; and `within`,
        the probability that a new centre is within the tolerance. NaN where no centre counts, or a
        population cannot be estimated; if one counts, its own numbers, and NaN for new ones.
        `design_effect`, of all centres, is 1 without clusters, else 1 or more. It and all errors
        are NaN, with a RuntimeWarning, if no centre has several clusters and both classes.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> sites, logits = np.arange(6000) % 30, rng.normal(-1, 1, 6000)
        >>> off = 0.4 * rng.normal(size=30)[sites]
        >>> labels = rng.random(6000) < 1 / (1 + np.exp(-logits - off))
        >>> centres = summarize_centres(logits, labels, sites, from_logits=True)
        >>> overall = centres.overall
        >>> overall["parameter"].tolist()
        ['ratio', 'in_the_large', 'intercept', 'slope']
        >>> float(overall["standard_deviation"][1].round(2))
        0.36
    """
    validation.require_fraction(level, "level")
    validation.require_not_negative(tolerance, "tolerance")
    validation.require_each(proba, "proba", labels=labels, segments=segments)
    values = validation.floating(proba, "proba")
    validation.require_flat(values, "proba")
    if not len(values):
        raise ValueError("proba: expected rows, got none")
    if not from_logits:
        validation.require_probabilities(values, "proba", validation.IF_LOGITS)
    numbered = compact(factorize(ids.read_rows(segments, len(values))))
    number = numbered.of(slice(None))
    labelled = validation.labelled_rows(values, labels, weights, "proba")
    y, w, spoilt = (x.reshape(-1) for x in labelled.flat())
    owner = None
    if clusters is not None:
        owner = factorize(ids.read_rows(clusters, len(values), "clusters")).of(slice(None))
    total = numbered.numbers
    finite = np.bincount(number, spoilt & (w != 0), total) == 0
    counted = finite[number] & (w > 0)
    order = np.flatnonzero(counted)[np.argsort(number[counted], kind="stable")]
    sizes = np.bincount(number[counted], minlength=total)
    used = np.flatnonzero(sizes)
    columns = {name: np.full(total, np.nan) for name in _COLUMNS}
    design_effect = 1.0
    status = np.where(finite, "EMPTY", "NON_FINITE").astype("<U10")
    together = overall_table([UNKNOWN] * 4, 0)
    if len(used):
        problem = read_flat_predictions(y[order], values[order], w[order], from_logits)
        rows = CentreRows(
            Groups(sizes[used]), problem.logits()[0], problem.positive[0], w[order].astype(float)
        )
        if owner is not None:
            design_effect = _design_effect(rows, owner[order])
            if np.isnan(design_effect):
                Caller().warn(_ONE_CLUSTER)
        for name, column in _centre_columns(rows, level, design_effect).items():
            columns[name][used] = column
        status[used] = _statuses(*(columns[x][used] for x in ("rows", "positives", "slope")))
        if len(used) == 1:
            together = overall_of_one({name: x[used[0]] for name, x in columns.items()}, level)
        elif np.isfinite(design_effect):
            rows = rows._replace(weights=rows.weights / design_effect)
            together = overall(rows, level, tolerance)
        else:
            together = overall_table([UNKNOWN] * 4, len(used))
    table = keyed("segment", numbered.named(np.arange(total)), {**columns, "status": status})
    return Centres(table, together, design_effect)


def _statuses(rows: Floats, positives: Floats, slope: Floats) -> NDArray[np.str_]:
    rarer = np.minimum(positives, rows - positives)
    status = np.where(rarer < _FEW, "FEW_EVENTS", "OK")
    return np.where(rarer == 0, "ONE_CLASS", np.where(np.isnan(slope), "SEPARABLE", status))


def _design_effect(rows: CentreRows, cluster: Integers) -> float:
    """The variance of the centres' positives by clusters (N,), over their variance by rows.

    1 if each row is a cluster; NaN if no centre has two clusters and both classes.
    """
    groups, in_the_large = rows.groups, _large(rows)
    p = expit(rows.logits + groups.by_row(in_the_large))
    first, number = np.unique(
        groups.owner * (np.int64(cluster.max()) + 1) + cluster,
        return_index=True,
        return_inverse=True,
    )[1:]
    off = np.bincount(number, rows.weights * (rows.positive - p))
    centre = groups.owner[first]
    clusters = np.bincount(centre, minlength=len(in_the_large))
    used = (clusters > 1) & np.isfinite(in_the_large)
    more = clusters / np.maximum(clusters - 1, 1)
    squares = more * np.bincount(centre, off**2, len(in_the_large))
    independent = groups.sums(rows.weights * p * (1 - p))
    if not used.any():
        return 1.0 if len(first) == len(cluster) else np.nan
    return max(float(squares[used].sum() / independent[used].sum()), 1.0)


def _large(rows: CentreRows) -> Floats:
    """(K,) calibration in the large; NaN for centres of one class."""
    positives = rows.groups.sums(rows.weights * rows.positive)
    one_class = (positives == 0) | (positives == rows.groups.sums(rows.weights))
    return np.where(one_class, np.nan, intercepts(rows, 0.0))


def _centre_columns(
    rows: CentreRows, level: float, design_effect: float
) -> dict[str, NDArray[Any]]:
    """The columns of the centres."""
    groups, w = rows.groups, rows.weights
    positives, number = groups.sums(w * rows.positive), groups.sums(w)
    expected = groups.sums(w * expit(rows.logits))
    in_the_large, more = _large(rows), np.sqrt(design_effect)
    information = expected_positives(rows, in_the_large)[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        se_log_ratio = more * np.sqrt(information) / positives
        reach = np.exp(critical_value(level, simultaneous=False) * se_log_ratio)
        se_in_the_large = more / np.sqrt(information)
    observed = ratio(positives, expected)
    cox = by_segment(
        cox_calibration, rows.positive, rows.logits, groups.owner, weights=w, from_logits=True
    ).values
    return {
        "rows": number,
        "positives": positives,
        "expected": expected,
        "ratio": observed,
        "se_log_ratio": se_log_ratio,
        "ratio_lower": observed / reach,
        "ratio_upper": observed * reach,
        "in_the_large": in_the_large,
        "se_in_the_large": se_in_the_large,
        "intercept": cox.intercept,
        "se_intercept": more * cox.se_intercept,
        "slope": cox.slope,
        "se_slope": more * cox.se_slope,
    }
