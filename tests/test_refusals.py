"""Classes and classifiers take part in what segments do, or are refused by the name of a part."""

import numpy as np
import pytest

import platt_jax as pj
from platt_jax import export, plots
from platt_jax.inference import prior_from, robust_covariance

X = np.random.default_rng(0).normal(size=(60, 3))
CLASSES = X.argmax(1)
ROWS = X[:, 0], CLASSES == 0, CLASSES

NEEDS_SEGMENTS = {
    "estimate_drift": lambda c: pj.inference.estimate_drift(c, *ROWS),
    "estimate_rates": lambda c: pj.inference.estimate_rates(c, X[:, 0], CLASSES),
    "estimate_means": lambda c: pj.inference.estimate_means(
        c, *ROWS, pool=[0.0], pool_segments=[0]
    ),
    "compare_means": lambda c: pj.inference.compare_means(
        c, *ROWS, first=[0], second=1, pool=[0.0], pool_segments=[0]
    ),
    "to_sql": lambda c: export.to_sql(c, "score", "segment"),
    "to_onnx": lambda c: export.to_onnx(c),
    "to_python": lambda c: export.to_python(c),
    "to_javascript": lambda c: export.to_javascript(c),
    "plots.shrinkage": lambda c: plots.shrinkage(c),
    "plots.sigmoid": lambda c: plots.sigmoid(c, *ROWS[:2]),
    "plots.summary": lambda c: plots.summary(c, *ROWS),
}
TAKES_CLASSES = {
    "triage": lambda c: pj.triage(c, X, CLASSES),
    "update": lambda c: pj.update(c, X, CLASSES),
    "Monitor.start": lambda c: pj.Monitor.start(c),
    "gate": lambda c: pj.gate(c, X),
    "leave_one_out": lambda c: pj.inference.leave_one_out(c, X, CLASSES),
    "robust_covariance": lambda c: robust_covariance(c, X, CLASSES),
    "prior_from": lambda c: prior_from(c, [0]),
    "save": lambda c: pj.save("never.npz", c),
    "to_json": lambda c: export.to_json(c),
    "plots.explore": lambda c: plots.explore(c, X, CLASSES),
    "plots.risk_coverage": lambda c: plots.risk_coverage(c, X, CLASSES),
}


@pytest.mark.parametrize("call", NEEDS_SEGMENTS.values(), ids=NEEDS_SEGMENTS)
def test_classes_are_refused_by_the_name_of_their_part(call):
    with pytest.raises(ValueError, match="OneVsRestCalibrator: pass its by_class"):
        call(pj.fit_one_vs_rest(X, CLASSES))


EVERY = NEEDS_SEGMENTS | TAKES_CLASSES


@pytest.mark.parametrize("call", EVERY.values(), ids=EVERY)
def test_classifiers_are_refused_by_the_name_of_their_part(call):
    linear_model = pytest.importorskip("sklearn.linear_model")
    from platt_jax.sklearn import PlattCalibratedClassifier

    model = PlattCalibratedClassifier(linear_model.LogisticRegression(), cv=2).fit(X, CLASSES)
    with pytest.raises(ValueError, match="PlattCalibratedClassifier: pass one of its calibrators_"):
        call(model)


@pytest.mark.parametrize("name", ["parameter_map", "slope_funnel"])
def test_a_classifier_with_one_calibrator_is_plotted_as_that(name):
    linear_model = pytest.importorskip("sklearn.linear_model")
    pytest.importorskip("matplotlib")
    from platt_jax.sklearn import PlattCalibratedClassifier

    noisy = (X + np.random.default_rng(1).normal(size=X.shape)).argmax(1)
    base = linear_model.LogisticRegression()
    model = PlattCalibratedClassifier(base, cv=2, ensemble=False).fit(X, noisy)
    plot = getattr(plots, name)
    found, expected = (plots.alt_text(plot(x)) for x in (model, model.calibrators_[0]))
    assert found == expected
    other = PlattCalibratedClassifier(base, cv=2, ensemble=False, method="isotonic")
    with pytest.raises(
        ValueError, match="expected sigmoids, got a calibrator with isotonic curves"
    ):
        plot(other.fit(X, noisy))
