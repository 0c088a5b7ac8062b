"""Warnings of scores in another unit than the fitted ones: probabilities and log-odds."""

import warnings

import numpy as np
import pytest

import platt_jax as pj
from platt_jax.caller import Caller

INSIDE = r"scores: all lie in \[0, 1\], and those of the fit did not.* platt_jax.logit"
OUTSIDE = r"scores: most lie outside \[0, 1\], and those of the fit did not.* pass probabilities"
N = 3000


@pytest.fixture(autouse=True)
def unwarned(monkeypatch):
    monkeypatch.setattr(Caller, "_warned_once", set())


def rows(rng, center, width, slope):
    """Log-odds, their probabilities, labels and segments; the best slope is not 1."""
    z = rng.normal(center, width, N)
    p = 1 / (1 + np.exp(-z))
    return z, p, rng.random(N) < 1 / (1 + np.exp(-slope * z)), rng.integers(0, 9, N)


def fitted(scores, labels, segments):
    """Functions of scores and segments that predict by what was fitted to these rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that scores lie in [0, 1]
        fit = pj.fit(scores, labels)
        each = [pj.fit_segments(scores, labels, segments, pooling=x) for x in ("none", "partial")]
    return [lambda f, _: fit.predict_proba(f), *(x.predict_proba for x in each)]


@pytest.mark.parametrize(("center", "width"), [(0, 2), (0, 4), (-2, 1), (-4, 1.5)])
@pytest.mark.parametrize("slope", [0.5, 1, 2])
def test_probabilities_for_log_odds_and_the_reverse(rng, monkeypatch, center, width, slope):
    z, p, y, s = rows(rng, center, width, slope)
    for scores, other, message in ((z, p, INSIDE), (p, z, OUTSIDE)):
        for predict in fitted(scores, y, s):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                predict(scores, s)
                predict(other[:99], s[:99])  # few
            with pytest.warns(RuntimeWarning, match=message) as said:
                predict(other, s)
            assert said[0].filename == __file__
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                predict(other, s)  # once
            monkeypatch.setattr(Caller, "_warned_once", set())


@pytest.mark.parametrize(
    ("center", "width", "slope"),
    [(0, 1, 1), (0.5, 3, 9), (0.4, 0.2, 9), (0, 0.3, 3), (100, 30, 0.05), (0.5, 0.5, 30)],
)
def test_scores_of_the_fitted_unit_are_no_doubt(rng, center, width, slope):
    """In any unit, and after a shift of half a standard deviation."""
    f, s = rng.normal(center, width, N), rng.integers(0, 9, N)
    y = rng.random(N) < 1 / (1 + np.exp(-slope * (f - center)))
    for predict in fitted(f, y, s):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for given in (f, f + width / 2, f.tolist(), f.astype(np.float32)):
                predict(given, s)


def test_rounded_probabilities_have_no_log_odds(rng):
    _, p, y, _ = rows(rng, 0, 6, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact = pj.fit(pj.logit(p), y)
        pj.logit([0, 0.5, 1])
    with pytest.warns(RuntimeWarning, match="probabilities: a part is exactly 0 or 1") as said:
        rounded = pj.fit(pj.logit(p.round(2)), y)
    assert said[0].filename == __file__
    assert rounded.sigmoid.slope < exact.sigmoid.slope / 2


def test_a_calibrator_of_other_curves_warns_too(rng):
    z, p, y, s = rows(rng, 0, 2, 1)
    calibrator = pj.fit_segments(z, y, s, curve="isotonic")
    with pytest.warns(RuntimeWarning, match=INSIDE):
        calibrator.predict_proba(p, s)
    left = calibrator.only(np.arange(9) < 5)  # after a prediction as before
    assert list(left) == [0, 1, 2, 3, 4]


def test_calibrators_of_classes_warn_too(rng, monkeypatch):
    z, p, y, _ = rows(rng, 0, 2, 1)
    logits, shares = np.column_stack([-z, z]) / 2, np.column_stack([1 - p, p])
    for made, message in (
        (pj.fit_one_vs_rest(logits, y.astype(int)), INSIDE),
        (pj.fit_one_vs_rest(logits, y.astype(int), pooling="complete"), INSIDE),
        (pj.fit_multiclass(logits, y.astype(int)), r"logits: each row lies in \[0, 1\]"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made.predict_proba(logits)
        with pytest.warns(RuntimeWarning, match=message) as said:
            made.predict_proba(shares)
        assert said[0].filename == __file__
        monkeypatch.setattr(Caller, "_warned_once", set())
