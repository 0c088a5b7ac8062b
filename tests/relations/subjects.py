"""Every function over rows by segment as a function of `Rows`, and what of its answer is compared.

A quantity is `by` "row", "segment" or "all", and of a kind that says how a change of the scores
moves it: a "probability" of class 1, a "score" of which class 1 is sure, or "fixed". A "sided" one
and a "score" belong to one of the classes, and have no counterpart where these change places. A
"drawn" one is from random numbers, and equal only where the draws are.
"""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

import platt_jax as pj
from platt_jax import curves, inference, metrics


class Quantity(NamedTuple):
    """A part of an answer: a value for each row, for each of these segments, or one."""

    values: np.ndarray
    by: str = "row"
    kind: str = "fixed"
    keys: np.ndarray | None = None


class Subject(NamedTuple):
    """A function from `Rows` to quantities by name.

    Attributes:
        answer: the function.
        weighted: all its rows take weights.
        pooled: segments tell something of each other.
    """

    answer: object
    weighted: bool = True
    pooled: bool = False


def of_table(table, kinds, key="segment"):
    """Columns of a table by segment as quantities."""
    keys = np.asarray(table[key])
    return {name: Quantity(np.asarray(table[name]), "segment", kinds[name], keys) for name in kinds}


def covariate(rows):
    """A number of each segment, the same under each of its names."""
    values = np.array([0.3, -1.2, 0.8, 0.0, 1.5, -0.4, 0.9])
    return {"segment": list(rows.names), "x": values[list(rows.names.values())]}


def fitted(rows, weights=True, **given):
    if weights:
        given["weights"] = rows.weights
    if given.get("covariates") == "x":
        given["covariates"] = covariate(rows)
    return pj.fit_segments(rows.scores, rows.labels, rows.segments, **given)


def fit(weights=True, sure=False, **given):
    """The curves of `fit_segments`: probabilities of the rows, thresholds, statuses."""

    def answer(rows):
        made = fitted(rows, weights, **given)
        told = {
            "proba": Quantity(made.predict_proba(rows.scores, rows.segments), "row", "probability"),
            **of_table(made.table(), {"status": "fixed", "n_pos": "sided", "n_neg": "sided"}),
        }
        if "curve" not in given or given["curve"] in ("quadratic", "temperature", "shift"):
            lower, upper = made.band(rows.scores, rows.segments)
            told |= {"lower": Quantity(lower, kind="sided"), "upper": Quantity(upper, kind="sided")}
        if "curve" not in given:
            told["threshold"] = Quantity(made.threshold(0.7), "segment", "score", made.keys)
        if "covariates" in given:
            told["p_value"] = Quantity(np.asarray(made.population.coefficients["p_value"]), "all")
        return told

    return Subject(answer, pooled=given.get("pooling", "none") != "none")


def chosen(rows):
    made = pj.inference.choose_curve(
        rows.scores, rows.labels, rows.segments, weights=rows.weights, candidates=CANDIDATES
    )
    proba = made.calibrator.predict_proba(rows.scores, rows.segments)
    return {"proba": Quantity(proba, kind="probability")}


CANDIDATES = ("sigmoid", "quadratic", "isotonic")


def triage(against, **given):
    def answer(rows):
        made = fitted(rows, **given)
        labels = np.where(rows.origin % 5 == 0, 1 - rows.labels, rows.labels)
        kinds = {"rows": "fixed", "positives": "sided", "expected": "sided"}
        kinds |= {"p_value": "fixed" if against == "fit" else "drawn"}
        kinds |= {"intercept": "sided", "slope": "fixed", "cox_p_value": "fixed"}
        return of_table(pj.triage(made, rows.scores, labels, rows.segments, against=against), kinds)

    return Subject(answer, weighted=False, pooled=given["pooling"] != "none")


def monitor(against):
    def answer(rows):
        watch = pj.Monitor.start(fitted(rows), against=against)
        for labels in (rows.labels, np.where(rows.origin % 3 == 0, 1 - rows.labels, rows.labels)):
            watch = watch.update(rows.scores, labels, rows.segments)
        kinds = {"rows": "fixed", "positives": "sided", "expected": "sided"}
        return of_table(watch.table(), kinds | {"log_e_value": "fixed", "intercept": "sided"})

    return Subject(answer, weighted=False)


def gates(pooling):
    def answer(rows):
        made = fitted(rows, pooling=pooling)
        found = pj.gate(made, rows.scores, rows.segments, precision=0.7, level=0.6)
        kinds = {"threshold": "score", "share": "sided", "precision": "sided", "lower": "sided"}
        told = of_table(found, kinds | {"status": "sided"})
        proof = pj.certify(found, rows.scores, rows.labels, rows.segments)
        kinds = {"rows": "sided", "right": "sided", "p_value": "sided", "status": "sided"}
        return told | {f"certified {k}": v for k, v in of_table(proof, kinds).items()}

    return Subject(answer, weighted=False, pooled=pooling != "none")


def rates(rows):
    made = pj.inference.estimate_rates(fitted(rows), rows.scores, rows.segments)
    kinds = {"rows": "fixed", "from_rate": "probability", "rate": "probability"}
    return of_table(made, kinds | {"se_rate": "fixed", "status": "fixed"})


def means(rows):
    few = rows.where(rows.origin % 2 == 0)
    made = pj.inference.estimate_means(
        fitted(few),
        *(few.scores, few.labels, few.segments),
        pool=rows.scores,
        pool_segments=rows.segments,
    )
    kinds = {"mean": "probability", "lower": "sided", "upper": "sided", "labels_worth": "fixed"}
    return of_table(made, kinds | {"status": "fixed", "labels_only": "probability"})


def left_out(**given):
    def answer(rows):
        data = rows.scores, rows.labels, rows.segments
        made = pj.inference.leave_one_out(fitted(rows, **given), *data, weights=rows.weights)
        return {"proba": Quantity(made, kind="probability")}

    return Subject(answer, pooled=given["pooling"] != "none")


def robust(rows):
    data = rows.scores, rows.labels, rows.segments
    made = inference.robust_covariance(fitted(rows), *data, weights=rows.weights)
    lower, upper = made.band(rows.scores, rows.segments)
    return {"lower": Quantity(lower, kind="sided"), "upper": Quantity(upper, kind="sided")}


def updated(**given):
    def answer(rows):
        made = fitted(rows, **given)
        later = rows.scores, rows.labels, rows.segments
        made = pj.update(made, *later, weights=rows.weights)
        proba = made.predict_proba(rows.scores, rows.segments)
        return {
            "proba": Quantity(proba, kind="probability"),
            **of_table(made.table(), {"status": "fixed", "n_pos": "sided", "n_neg": "sided"}),
        }

    return Subject(answer, pooled=given["pooling"] != "none")


def bootstrapped(rows):
    data = {"segments": rows.segments, "weights": rows.weights, "replicates": 20}
    made = pj.inference.bootstrap(rows.scores, rows.labels, **data)
    errors = made.standard_errors
    return {"slope error": Quantity(errors[:, 0] * abs(rows.scale), "segment", "drawn", made.keys)}


def prior(rows):
    made = inference.prior_from(fitted(rows), fitted(rows).keys)
    slope = np.asarray(made.mean)[:, 0] * abs(rows.scale)
    return {"slope": Quantity(slope, "segment", "fixed", fitted(rows).keys)}


def drift(rows):
    earlier = fitted(rows, pooling="partial")
    made = pj.inference.estimate_drift(earlier, rows.scores, 1 - rows.labels, rows.segments)
    proba = made.calibrator.predict_proba(rows.scores, rows.segments)
    return {"proba": Quantity(proba, kind="probability")}


def judged(rows):
    made = pj.inference.judge_pooling(
        rows.scores, rows.labels, rows.segments, rows.origin, [len(rows.scores) // 2]
    )
    return {"log loss": Quantity(np.asarray(made["log_loss"]), "all")}


def spreads(rows):
    data = rows.scores, rows.labels, rows.segments
    made = pj.inference.profile_spreads(*data, weights=rows.weights)
    return {name: Quantity(np.asarray(made[name]), "all") for name in ("p_value", "statistic")}


def centres(rows):
    proba = _forecast(rows)
    made = pj.metrics.summarize_centres(proba, rows.labels, rows.segments, weights=rows.weights)
    kinds = {"rows": "fixed", "positives": "sided", "expected": "sided", "slope": "fixed"}
    return of_table(made, kinds | {"in_the_large": "sided", "status": "fixed"})


def _forecast(rows):
    """Probabilities that the scores give before any fit, the same after each change of units."""
    standard = (rows.scores.astype(float) - rows.shift) / rows.scale
    proba = 1 / (1 + np.exp(0.5 - 1.2 * standard))
    return 1 / (1 + np.exp(0.5 + 1.2 * -standard)) if rows.scale > 0 else 1 - proba


def by_segment(metric, kind="fixed", **options):
    """A metric of each segment, of which each is a problem of its own."""

    def answer(rows):
        made = metrics.by_segment(
            *(metric, rows.labels, _forecast(rows), rows.segments),
            **({"weights": rows.weights} if metric is not metrics.expected else {}),
            **options,
        )
        values = made.values
        value = getattr(values, "value", getattr(values, "p_value", values))
        if isinstance(value, tuple):
            value = value[0]
        return {"value": Quantity(np.asarray(value), "segment", kind, made.keys)}

    return Subject(answer)


def of_groups(metric, *names):
    """A metric of all rows that compares segments."""

    def answer(rows):
        made = metric(rows.labels, _forecast(rows), segments=rows.segments, weights=rows.weights)
        return {name: Quantity(np.asarray(getattr(made, name)), "all") for name in names}

    return Subject(answer, pooled=True)


def multicalibration(rows):
    made = metrics.multicalibration_error(
        rows.labels, _forecast(rows), segments=rows.segments, weights=rows.weights, replicates=2
    )
    table, keys = made.groups, list(rows.names)
    place = {str(group): i for i, group in enumerate(table["group"])}
    seen = [key for key in keys if str(key) in place]
    sigma = np.asarray(table["sigma"])[[place[str(key)] for key in seen]]
    return {"sigma": Quantity(sigma, "segment", "fixed", np.array(seen))}


def stored(**given):
    """Saved and loaded: the probabilities of the file."""

    def answer(rows):
        made = fitted(rows, **given)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "calibrator.npz"
            pj.save(path, made)
            made = pj.load(path)
        proba = made.predict_proba(rows.scores, rows.segments)
        return {"proba": Quantity(proba, kind="probability")}

    return Subject(answer, pooled=given.get("pooling", "none") != "none")


CURVES = {
    "quadratic": "quadratic",
    "beta": "beta",
    "spline": "spline",
    "isotonic": "isotonic",
    "isotonic centered": curves.Isotonic(centered=True),
    "bins": curves.Bins(3),
    "bins uniform": curves.Bins(3, strategy="uniform"),
    "venn_abers": "venn_abers",
    "temperature": "temperature",
    "shift": "shift",
}
COVARIATES = {"pooling": "partial", "covariates": "x"}
METRICS = (
    *("log_loss", "brier_score", "expected_calibration_error", "maximum_calibration_error"),
    *("smooth_ece", "roc_auc", "hosmer_lemeshow", "spiegelhalter", "ece_interval"),
    *("ece_by_chance", "cox_calibration"),
)
SUBJECTS = {
    "fit_segments": fit(),
    **{f"fit_segments {pooling}": fit(pooling=pooling) for pooling in ("partial", "complete")},
    "fit_segments covariates": fit(**COVARIATES),
    "fit_segments targets=none": fit(options=pj.Options(targets="none")),
    "fit_segments monotone": fit(options=pj.Options(monotone=True)),
    **{f"fit_segments {name}": fit(curve=curve) for name, curve in CURVES.items()},
    "choose_curve": Subject(chosen, pooled=True),
    **{
        f"triage {against} {pooling}": triage(against, pooling=pooling)
        for against in ("fit", "predictions")
        for pooling in ("none", "partial")
    },
    "triage predictions covariates": triage("predictions", **COVARIATES),
    **{f"Monitor {against}": monitor(against) for against in ("fit", "predictions")},
    **{f"gate, certify {pooling}": gates(pooling) for pooling in ("none", "partial")},
    "estimate_rates": Subject(rates, weighted=False),
    "estimate_means": Subject(means, weighted=False, pooled=True),
    **{f"leave_one_out {pooling}": left_out(pooling=pooling) for pooling in ("none", "partial")},
    "leave_one_out covariates": left_out(**COVARIATES),
    "robust_covariance": Subject(robust),
    **{f"update {pooling}": updated(pooling=pooling) for pooling in ("none", "partial")},
    "update covariates": updated(**COVARIATES),
    "bootstrap": Subject(bootstrapped),
    "prior_from": Subject(prior),
    "estimate_drift": Subject(drift, weighted=False, pooled=True),
    "judge_pooling": Subject(judged, weighted=False, pooled=True),
    "profile_spreads": Subject(spreads, pooled=True),
    "summarize_centres": Subject(centres),
    **{f"by_segment {name}": by_segment(getattr(metrics, name)) for name in METRICS},
    "field_calibration_error": of_groups(metrics.field_calibration_error, "value", "excess"),
    "field_squared_error": of_groups(metrics.field_squared_error, "value"),
    "multicalibration_error": Subject(multicalibration),
    "save, load": stored(),
    "save, load isotonic": stored(curve="isotonic"),
    "save, load covariates": stored(**COVARIATES),
}
