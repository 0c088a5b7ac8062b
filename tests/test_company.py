"""No segment depends on the others, to the last bit, in any function that takes segments.

Each is tried for a segment alone, beside a huge segment, beside one of weights of 1e300, beside one
with NaN, and with the rows of all segments in another order.
"""

import warnings
from typing import NamedTuple

import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax import curves, inference, metrics

SIZES = dict(a=40, b=285, c=3, d=25)
KINDS = "alone", "huge", "heavy", "nan", "reordered"
AT = np.linspace(-3, 3, 13)
# Of these several segments are judged together.
JOINT = "q_value", "flagged", "rank"


class Rows(NamedTuple):
    scores: np.ndarray
    labels: np.ndarray
    segments: np.ndarray
    weights: np.ndarray

    @property
    def proba(self):
        return 1 / (1 + np.exp(-self.scores))


def segment_rows(rng, name, size):
    """With ties, and weights that are no counts."""
    scores = rng.normal(size=size).round(1)
    labels = labels_of(rng, 1.5 * scores - 0.3).astype(int)
    labels[:2] = 0, 1
    return Rows(scores, labels, np.full(size, name), rng.uniform(0.1, 2, size).round(2))


def joined(*parts):
    return Rows(*(np.concatenate(x) for x in zip(*parts, strict=True)))


def own_rows():
    rng = np.random.default_rng(0)
    return {name: segment_rows(rng, name, size) for name, size in SIZES.items()}


def rows_in_company(kind):
    rng, own = np.random.default_rng(1), own_rows()
    if kind == "alone":
        return own["b"]
    if kind == "reordered":
        backwards = list(own.values())[::-1]
        # Rows of a segment keep their order.
        place = np.concatenate([np.sort(rng.random(len(x.scores))) for x in backwards])
        return Rows(*(x[np.argsort(place)] for x in joined(*backwards)))
    other = segment_rows(rng, "z", 3000 if kind == "huge" else 50)
    if kind == "heavy":
        other = other._replace(weights=other.weights * 1e300)
    if kind == "nan":
        other.scores[7] = np.nan
    return joined(own["a"], other, *(own[name] for name in "bcd"))


# --- the numbers of each segment, by its id -------------------------------------------------------


def by_id(keys, **columns):
    return {str(key): {name: x[k] for name, x in columns.items()} for k, key in enumerate(keys)}


def lines_of(table, key="segment"):
    columns = {name: x for name, x in table.items() if name not in JOINT}
    return by_id(columns.pop(key), **columns)


def predicted(calibrator, at=AT, **more):
    """Beside what more is known of each of the calibrator's segments."""
    keys = calibrator.keys
    proba = calibrator.predict_proba(np.concatenate([at] * len(keys)), np.repeat(keys, len(at)))
    return by_id(keys, proba=proba.reshape(len(keys), -1), **more)


def fitted(rows, **options):
    return pj.fit_segments(*rows[:3], **options)


def sigmoid(**options):
    def run(rows):
        found = fitted(rows, weights=rows.weights, **options)
        at = np.tile(AT, len(found.keys)), np.repeat(found.keys, len(AT))
        low, high = (x.reshape(len(found.keys), -1) for x in found.band(*at))
        known = predicted(
            found, A=found.fit.A, errors=found.fit.standard_errors, low=low, high=high
        )
        table = lines_of(found.threshold_table(0.7))
        return {key: x | table[key] for key, x in known.items()}

    return run


def curve(kind):
    def run(rows):
        found = fitted(rows, weights=rows.weights, curve=kind)
        return predicted(found, status=found.curves.status)

    return run


def metric(function, **options):
    def run(rows):
        given = dict(weights=rows.weights, **options)
        found = metrics.by_segment(function, rows.labels, rows.proba, rows.segments, **given)
        return lines_of(found.table())

    return run


def expected(rows):
    return lines_of(
        metrics.expected(rows.proba, weights=rows.weights, segments=rows.segments).table()
    )


def multicalibration(rows):
    given = dict(segments=rows.segments, weights=rows.weights, replicates=2, min_rows=1)
    found = lines_of(
        metrics.multicalibration_error(rows.labels, rows.proba, **given).groups, "group"
    )
    del found["all rows"]
    return found


def triage(**options):
    return lambda rows: lines_of(pj.triage(fitted(rows), *rows[:3], **options))


def monitor(rows):
    return lines_of(pj.Monitor.start(fitted(rows)).update(*rows[:3]).table())


def update(rows):
    found = pj.update(fitted(rows), *rows[:3], weights=rows.weights)
    return predicted(found, covariance=found.fit.covariance)


def leave_one_out(rows):
    proba = pj.inference.leave_one_out(
        fitted(rows, weights=rows.weights), *rows[:3], weights=rows.weights
    )
    return {name: dict(proba=proba[rows.segments == name]) for name in set(rows.segments.tolist())}


def bootstrap(rows):
    given = dict(segments=rows.segments, weights=rows.weights, replicates=20)
    found = pj.inference.bootstrap(rows.scores, rows.labels, **given)
    return by_id(found.keys, A=found.A.T, B=found.B.T)


def robust(rows):
    given = dict(weights=rows.weights)
    found = inference.robust_covariance(fitted(rows, **given), *rows[:3], **given)
    return by_id(found.keys, covariance=found.fit.covariance)


def gate(rows):
    given = dict(precision=0.8, weights=rows.weights)
    return lines_of(pj.gate(fitted(rows), rows.scores, rows.segments, **given))


def certify(rows):
    gates = pj.gate(fitted(rows), rows.scores, rows.segments, precision=0.6)
    found = lines_of(pj.certify(gates, *rows[:3]))
    for line in found.values():
        del line["lower"], line["status"]  # certified at a false discovery rate of all gates
    return found


def rates(rows):
    return lines_of(pj.inference.estimate_rates(fitted(rows), rows.scores, rows.segments))


def classes(model):
    def logits(scores):
        return np.stack([scores, 0.3 * scores**2, -scores], 1)

    def run(rows):
        labels = np.where(rows.scores > 1, 2, rows.labels)
        given = dict(classes=[0, 1, 2], weights=rows.weights, model=model)
        found = pj.fit_multiclass(logits(rows.scores), labels, rows.segments, **given)
        return predicted(found, logits(AT), coefficients=found.coefficients)

    return run


FUNCTIONS = {
    "sigmoid": sigmoid(),
    "shift": sigmoid(curve="shift"),
    "temperature": sigmoid(curve="temperature"),
    "quadratic": curve("quadratic"),
    "beta": curve("beta"),
    "spline": curve("spline"),
    "spline of 7 knots": curve(curves.Spline(7)),
    "isotonic": curve("isotonic"),
    "centered": curve(curves.Isotonic(centered=True)),
    "bins": curve(curves.Bins(3)),
    "even bins": curve(curves.Bins(3, "uniform")),
    "Venn-Abers": curve("venn_abers"),
    "Brier score": metric(metrics.brier_score),
    "log loss": metric(metrics.log_loss),
    "decomposition": metric(metrics.brier_decomposition),
    "Cox": metric(metrics.cox_calibration),
    "error": metric(metrics.expected_calibration_error),
    "error of equal masses": metric(metrics.expected_calibration_error, strategy="quantile"),
    "error by chance": metric(metrics.ece_by_chance),
    "interval": metric(metrics.ece_interval),
    "largest error": metric(metrics.maximum_calibration_error),
    "smooth error": metric(metrics.smooth_ece),
    "Hosmer-Lemeshow": metric(metrics.hosmer_lemeshow),
    "Spiegelhalter": metric(metrics.spiegelhalter),
    "AUC": metric(metrics.roc_auc),
    "net benefit": metric(metrics.net_benefit),
    "expected": expected,
    "multicalibration": multicalibration,
    "triage": triage(),
    "triage of predictions": triage(against="predictions"),
    "monitor": monitor,
    "update": update,
    "leave one out": leave_one_out,
    "bootstrap": bootstrap,
    "sandwich": robust,
    "gate": gate,
    "certify": certify,
    "rates": rates,
    "temperature of classes": classes("temperature"),
    "biases": classes("temperature_bias"),
    "vector": classes("vector"),
}
# A NaN among all rows is a NaN of a group.
UNLIKE = {("multicalibration", "nan")}
# Of tests that compile much, one is in the default suite.
QUICK = {"isotonic", "centered", "bins", "Venn-Abers", "multicalibration", "error", "gate"}


def result(name, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the companion
        return FUNCTIONS[name](rows)


@pytest.fixture(scope="module")
def plain():
    """The results of the segments together, each made once."""
    rows, made = joined(*own_rows().values()), {}

    def of(name):
        if name not in made:
            made[name] = result(name, rows)
        return made[name]

    return of


def cells():
    for name in FUNCTIONS:
        for kind in KINDS:
            slow = kind != "heavy" and name not in QUICK
            if (name, kind) not in UNLIKE:
                yield pytest.param(name, kind, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(("name", "kind"), [*cells()])
def test_no_segment_depends_on_the_others(name, kind, plain):
    found = result(name, rows_in_company(kind))
    found.pop("z", None)
    assert found.keys() == ({"b"} if kind == "alone" else plain(name).keys())
    for key, columns in found.items():
        for column, x in columns.items():
            np.testing.assert_array_equal(x, plain(name)[key][column], err_msg=f"{key} {column}")
