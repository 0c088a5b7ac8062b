"""Promises of leave-one-out, robust covariances, bootstraps, rates, spreads and priors."""

import warnings

import numpy as np
from scipy.special import expit, logit

import platt_jax as pj
from platt_jax import inference

from . import chance
from .cell import Cell
from .fits import first_of_each


def leave_one_out(cell: Cell) -> None:
    """The answer of a fit of all other rows of the segment."""
    rows, made = cell.world.fitted, cell.bench.fitted("none")
    found = pj.inference.leave_one_out(made, *rows.data(), weights=rows.weights, offset=rows.offset)
    found = np.asarray(found, float)
    cell.want(((found >= 0) & (found <= 1) | np.isnan(found)).all(), "outside [0, 1]")
    owner = np.searchsorted(made.keys, rows.segments)
    several = np.bincount(owner)[owner] > 1
    if rows.weights is None:
        cell.want(np.isfinite(found[several]).all(), "NaN where other rows are")
    rng = np.random.default_rng(cell.world.seed)
    for i in rng.choice(np.flatnonzero(several), min(2, several.sum()), replace=False):
        others = (rows.segments == rows.segments[i]) & (np.arange(len(rows)) != i)
        rest, one = rows.where(others), rows.where([i])
        if rest.weights is not None and not rest.weights.any():
            continue
        refit = cell.bench.fit(rest, "none")
        expected = refit.predict_proba(one.scores, one.segments, offset=one.offset)
        to = 2e-3 if rows.scores.dtype == np.float32 else 1e-5
        cell.want_same(found[i], np.asarray(expected, float)[0], f"row {i}", to)


def robust_covariance(cell: Cell) -> None:
    rows = cell.world.fitted
    at = first_of_each(rows)
    for pooling in cell.poolings("none", "partial", "nested"):
        made = cell.bench.fitted(pooling)
        given = {"segments": rows.ids(pooling), "weights": rows.weights, "offset": rows.offset}
        if pooling != "none":
            if made.population is None or not made.population.estimated:
                continue
            # Bands of a population must change, or the call be refused.
            with cell.refusing("clusters", "calibrator", "pooling"):
                robust = inference.robust_covariance(
                    made, rows.scores, rows.labels, clusters=rows.days, **given
                )
                before, after = (
                    np.asarray(x.band(at.scores, at.ids(pooling), offset=at.offset))
                    for x in (made, robust)
                )
                cell.want(not np.array_equal(before, after), f"{pooling}: bands are the same")
            continue
        robust = inference.robust_covariance(made, rows.scores, rows.labels, **given)
        covariance = np.asarray(robust.fit.covariance, float)
        known = np.isfinite(covariance).all((1, 2))
        smallest = np.linalg.eigvalsh(
            covariance[known] / np.abs(covariance[known]).max((1, 2), keepdims=True).clip(1e-300)
        )[:, 0]
        cell.want((smallest > -1e-4).all(), "a covariance that is none")
        if rows.weights is None:
            _own_clusters(cell, made, robust, given)
        lower, upper = robust.band(at.scores, at.segments, offset=at.offset)
        p = robust.predict_proba(at.scores, at.segments, offset=at.offset)
        cell.want_order(lower, p, upper, "band", 1e-5)


def _own_clusters(cell: Cell, made, robust, given) -> None:
    """Each row a cluster: that is no clusters, times n / (n - 1)."""
    rows = cell.world.fitted
    found = inference.robust_covariance(
        made, rows.scores, rows.labels, clusters=np.arange(len(rows)), **given
    )
    n = np.bincount(np.searchsorted(made.keys, rows.segments), minlength=len(made.keys))
    several = n > 1
    expected = np.asarray(robust.fit.covariance, float)[several]
    expected = expected * (n / np.maximum(n - 1, 1))[several, None, None]
    mine = np.asarray(found.fit.covariance, float)[several]
    largest = np.abs(expected).max((1, 2), keepdims=True) + 1e-300
    cell.want_same(mine / largest, expected / largest, "a cluster for each row", 1e-3)


def bootstrap(cell: Cell) -> None:
    rows = cell.world.fitted
    made = pj.inference.bootstrap(
        *(rows.scores, rows.labels),
        segments=rows.segments,
        weights=rows.weights,
        offset=rows.offset,
        replicates=20,
        kind="poisson" if cell.world.counts else "bayesian",
    )
    cell.want(made.A.shape == (20, len(made.keys)), f"shape {made.A.shape}")
    errors = np.asarray(made.standard_errors, float)
    cell.want(not (errors < 0).any(), "negative standard errors")
    for kind in ("percentile", "bca"):
        lower, upper = made.interval(kind=kind)
        cell.want_order(lower, lower, upper, kind)


def rates(cell: Cell) -> None:
    """Rates without labels, where nothing has changed."""
    world, made = cell.world, cell.bench.fitted("none")
    night = world.nights[0]
    rows = night.where(night.seen)
    if rows.offset is not None or not len(rows) or world.fitted.weights is not None:
        return
    found = pj.inference.estimate_rates(made, rows.scores, rows.segments, level=1 - chance.NEVER)
    rate, lower, upper = (np.asarray(found[x], float) for x in ("rate", "lower", "upper"))
    cell.want_order(lower, rate, upper, "rate")
    cell.want(((rate >= 0) & (rate <= 1)).all(), "a rate outside [0, 1]")
    cell.want((found["status"] == "CONVERGED").all(), f"status {set(found['status'])}")
    fit = made.fit
    enough = made.keys[np.minimum(np.asarray(fit.n_pos), np.asarray(fit.n_neg)) >= 20]
    here = np.isin(found["segment"], enough) & np.isfinite(lower)
    if world.plain and here.any():
        k = world.numbers(found["segment"][here])
        z = world.slope[k][:, None] * world.points + world.intercept[k][:, None]
        truth = expit(z).mean(1)
        # The mean over POINTS scores is itself a draw.
        error = chance.SIGMAS * expit(z).std(1) / np.sqrt(z.shape[1])
        held = (lower[here] <= truth + error) & (truth - error <= upper[here])
        cell.want(held.all(), f"{(~held).sum()} of {len(held)} rates outside intervals of 1 - 1e-6")


def means(cell: Cell) -> None:
    """Means of labels, and differences from the first segment."""
    world, rows, night = cell.world, cell.world.fitted, cell.world.nights[0]
    if rows.offset is not None or rows.weights is not None:
        return
    for pooling in ("none", "partial"):
        made = cell.bench.fitted(pooling)
        given = {"pool": night.scores, "pool_segments": night.segments}
        found = pj.inference.estimate_means(made, *rows.data(), **given, width=0.1)
        for mean, prefix in (("mean", ""), ("labels_only", "labels_"), ("model_mean", "model_")):
            lower, upper = found[f"{prefix}lower"], found[f"{prefix}upper"]
            known = np.isfinite(lower) | np.isfinite(upper)
            cell.want_order(lower[known], found[mean][known], upper[known], f"{pooling}: {mean}")
            value = np.asarray(found[mean], float)
            cell.want(not ((value < 0) | (value > 1)).any(), f"{pooling}: {mean} outside [0, 1]")
        has_labels = found["status"] != "NO_LABELS"
        for name in ("mean", "lower", "upper", "labels_worth", "more_labels"):
            cell.want(not np.isnan(found[name][has_labels]).any(), f"{pooling}: {name} is NaN")
        cell.want((found["more_labels"][has_labels] >= 0).all(), f"{pooling}: negative numbers")
        keys = found["segment"]
        one = pj.inference.compare_means(
            made, *rows.data(), **given, first=keys, second=keys[:1].repeat(len(keys))
        )
        cell.want_order(one["lower"], one["difference"], one["upper"], f"{pooling}: difference")
        k = world.numbers(keys)
        p = expit(world.slope[k][:, None] * world.points + world.intercept[k][:, None])
        truth = p.mean(1)
        enough = found["rows"] * np.minimum(truth, 1 - truth) >= 5
        enough &= found["status"] == "OK"
        if world.plain and enough.any():
            # The mean over POINTS scores is itself a draw; more than 3 of its errors are less than
            # an interval.
            error = 3 * p.std(1) / np.sqrt(p.shape[1])
            held = (found["lower"] <= truth + error) & (truth - error <= found["upper"])
            number = int(enough.sum())
            few = chance.too_few(int(held[enough].sum()), number, 0.85)
            cell.want(not few, f"{pooling}: {held[enough].sum()} of {number} intervals hold means")


def spreads(cell: Cell) -> None:
    world, rows = cell.world, cell.world.fitted
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = pj.inference.profile_spreads(
            *rows.data(), weights=rows.weights, offset=rows.offset, level=1 - chance.NEVER
        )
    heard = [str(x.message) for x in seen]
    cell.warned += heard
    value, lower, upper = (
        np.asarray(found[x], float)[:2] for x in ("standard_deviation", "lower", "upper")
    )
    lost = np.isfinite(value) & (np.isnan(lower) | np.isnan(upper))
    said = any("ends of intervals NaN" in text for text in heard)
    cell.want(said or not lost.any(), "an end that was not found is not heard")
    cell.want_order(lower[~lost], value[~lost], upper[~lost], "spread", 1e-3)
    p = np.asarray(found["p_value"], float)
    cell.want(((p >= 0) & (p <= 1) | np.isnan(p)).all(), "a p-value outside [0, 1]")
    statistic = np.asarray(found["statistic"], float)
    cell.want(not (statistic < 0).any(), f"statistic {statistic}")
    if world.plain and np.ptp(world.slope) == np.ptp(world.intercept) == 0:
        cell.want(not (p < chance.NEVER).any(), f"p-values {p} without spread")


def prior_from(cell: Cell) -> None:
    """A precision of all information there is: never negative."""
    for pooling in ("none", "partial"):
        made = cell.bench.fitted(pooling)
        prior = inference.prior_from(made, forgetting=0.5 if pooling == "none" else 1.0)
        precision = np.asarray(prior.precision, float)
        cell.want(
            np.isfinite(precision).all() and np.isfinite(prior.mean).all(), f"{pooling}: not finite"
        )
        scale = np.abs(precision).max((1, 2), keepdims=True).clip(1e-300)
        smallest = np.linalg.eigvalsh(precision / scale)[:, 0]
        cell.want((smallest > -1e-5).all(), f"{pooling}: a negative precision")


def shifted_rates(cell: Cell) -> None:
    """The odds of every prediction move by the same factor; there and back is no move."""
    made = cell.bench.fitted("none").fallback
    scores = cell.world.nights[0].scores
    p = np.asarray(made.predict_proba(scores), float)
    there = made.shift_prior(0.2, 0.05)
    q = cell.want_probabilities(there.predict_proba(scores))
    middle = (p > 1e-6) & (p < 1 - 1e-6) & (q > 1e-6) & (q < 1 - 1e-6)
    to = 1e-3 if scores.dtype == np.float32 else 1e-9
    cell.want_same(
        logit(q[middle]) - logit(p[middle]),
        np.full(middle.sum(), logit(0.05) - logit(0.2)),
        "odds",
        to * 100,
    )
    cell.want_same(there.shift_prior(0.05, 0.2).predict_proba(scores), p, "there and back", to)
