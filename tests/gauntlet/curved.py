"""Promises of the choice of a curve, and of several classes by segment."""

import warnings

import numpy as np

import platt_jax as pj
from platt_jax import metrics

from .cell import Cell

MODELS = "temperature", "temperature_bias", "vector"


def choice(cell: Cell) -> None:
    """A kind of curve for all, and for each segment; the calibrator predicts by these."""
    rows, kinds = cell.world.fitted, ("sigmoid", "quadratic", "isotonic")
    if rows.offset is not None:
        kinds = kinds[:2]
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    some = weights > 0
    data = [x[some] for x in rows.data()]
    if some.sum() < 2:
        with cell.refusing("scores: expected two or more rows"):
            pj.inference.choose_curve(*data, weights=weights[some], candidates=kinds)
            cell.want(False, "no row is held out, and a curve is chosen")
        return
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = pj.inference.choose_curve(*data, weights=weights[some], candidates=kinds, folds=2)
    cell.warned += [str(x.message) for x in heard]
    cell.want(found.chosen in kinds, f"{found.chosen} is no candidate")
    chosen = set(found.segments["curve"].tolist())
    cell.want(chosen <= set(kinds), f"segments have {chosen}")
    least = found.candidates["log_loss"].min()
    place = kinds.index(found.chosen)
    worse = found.candidates["log_loss"][place] - least
    error = found.candidates["standard_error"][place]
    cell.want(worse <= error + 1e-12, f"{found.chosen} loses {worse:.3g}, error {error:.3g}")
    proba = found.calibrator.predict_proba(rows.scores[some], rows.segments[some])
    cell.want_probabilities(proba)


def several_classes(cell: Cell) -> None:
    """Statuses that are heard, probabilities that add up, and metrics in their ranges."""
    rows = cell.world.fitted
    rng = np.random.default_rng(cell.world.seed)
    scale = max(float(np.abs(rows.scores).max()), 1e-300)
    logits = rng.normal(size=(len(rows), 3))
    logits[:, 0] += rows.scores.astype(float) / scale
    logits[rng.random(len(rows)) < 0.1, 2] = -np.inf
    labels = np.where(rows.labels == 1, 0, 1)
    for model in MODELS:
        for pooling in ("none", "partial") if model == "temperature" else ("none",):
            made = pj.fit_multiclass(
                logits, labels, rows.segments, model=model, classes=[0, 1, 2], pooling=pooling
            )
            what = f"{model}, {pooling}"
            lost = {pj.Status(int(x)).name for x in np.unique(made.status)}
            cell.want(lost <= {"CONVERGED", "MAX_ITERATIONS"}, f"{what}: {lost}")
            proba = cell.want_probabilities(made.predict_proba(logits, rows.segments), what)
            off = np.abs(proba.sum(1) - 1).max()
            cell.want(off < 1e-9, f"{what}: sums of rows are off by {off:.1g}")
            cell.want((proba[np.isneginf(logits)] == 0).all(), f"{what}: an option that is missing")
    loss = metrics.multiclass_log_loss(labels, proba, classes=[0, 1, 2])
    brier = metrics.multiclass_brier_score(labels, proba, classes=[0, 1, 2])
    for name, found in (("log loss", loss), ("Brier score", brier)):
        cell.want_order(found.lower, found.value, found.upper, name)
    top = metrics.top_label_ece(labels, proba, classes=[0, 1, 2])
    each = metrics.classwise_ece(labels, proba, classes=[0, 1, 2])
    for name, x in (("top-label ECE", getattr(top, "value", top)), ("classwise ECE", each)):
        cell.want(0 <= float(np.mean(x)) <= 1, f"{name} {x}")
