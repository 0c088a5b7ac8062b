"""The smooth reliability curve: against SciPy's optimum, simulated truths, and odd input."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from platt_jax import logit, metrics
from platt_jax.metrics import curves

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "inference" / "smooth_curve.json"


def rows_of(rng, n, rate=0.3):
    x = rng.normal(float(logit(rate)), 1, n)
    return x, rng.random(n) < 1 / (1 + np.exp(-x - 0.5 * np.sin(x)))


@pytest.mark.parametrize(("rows", "knots"), [(1_500, 5), (300, 4), (130, 3), (40, 0)])
def test_it_is_the_likeliest_spline(rng, rows, knots):
    """Against an optimizer without derivatives of ours, on a basis by Harrell's own formula."""
    x, y = rows_of(rng, rows)
    at = next(iter(curves._choices(x, y, np.ones(rows))))
    assert len(at) == knots

    def basis(f):
        made = [np.ones_like(f), f]
        for j in range(len(at) - 2):
            t, a, b = at[j], at[-2], at[-1]
            terms = [np.clip(f - c, 0, None) ** 3 for c in (t, a, b)]
            made.append(
                (terms[0] - terms[1] * (b - t) / (b - a) + terms[2] * (a - t) / (b - a))
                / (at[-1] - at[0]) ** 2
            )
        return np.stack(made, 1)

    def loss(beta):
        z = basis(x) @ beta
        return np.logaddexp(0, np.where(y, -z, z)).sum()

    best = minimize(loss, np.eye(basis(x).shape[1])[1], method="BFGS", tol=1e-9)
    curve = metrics.smooth_curve(y, x, from_logits=True)
    expected = 1 / (1 + np.exp(-basis(logit(curve.prob_pred)) @ best.x))
    np.testing.assert_allclose(curve.prob_true, expected, atol=1e-4)
    assert np.all(curve.lower < curve.prob_true) and np.all(curve.prob_true < curve.upper)


def test_linear_beyond_the_outer_knots(rng):
    knots = np.array([-1.0, 0.0, 0.5, 2.0])
    for x in (np.linspace(-9, -1, 5), np.linspace(2, 9, 5)):
        np.testing.assert_allclose(np.diff(curves._basis(x, knots), 2, axis=0), 0, atol=1e-9)


def test_weights_count_rows(rng):
    x, y = rows_of(rng, 400)
    weights = rng.integers(0, 4, 400)
    weights[:2], x[0] = 0, np.nan
    found = metrics.smooth_curve(y, x, weights=weights, from_logits=True)
    repeated = metrics.smooth_curve(y.repeat(weights), x.repeat(weights), from_logits=True)
    for one, other in zip(found, repeated, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    p = 1 / (1 + np.exp(-x[1:]))
    np.testing.assert_allclose(
        metrics.smooth_curve(y[1:], p, weights=weights[1:]).prob_true, found.prob_true, rtol=1e-6
    )


@pytest.mark.filterwarnings("error")
def test_odd_input():
    p = np.linspace(0.1, 0.9, 50)
    for labels, mean in ((np.zeros(50), 0), (np.ones(50), 1)):
        curve = metrics.smooth_curve(labels, p)
        assert np.all(curve.prob_true == mean) and np.isnan(curve.lower).all()
    one = metrics.smooth_curve(np.arange(30) % 3 == 0, np.full(30, 0.4))
    assert one.prob_pred.tolist() == pytest.approx([0.4]) and one.prob_true == pytest.approx(1 / 3)
    assert np.isnan(metrics.smooth_curve(np.arange(50) < 4, p).lower).all()
    assert np.isfinite(metrics.smooth_curve(np.arange(50) % 10 < 1, p).lower).all()
    with pytest.warns(RuntimeWarning, match="of 0 or 1"):
        ends = metrics.smooth_curve(np.arange(60) % 2, np.arange(60) % 3 / 2)
    assert np.isfinite(ends.prob_true).all() and ends.prob_pred[[0, -1]] == pytest.approx([0, 1])
    assert np.isnan(metrics.smooth_curve([0, 1], [np.nan, 0.5])).all()
    assert np.isnan(metrics.smooth_curve([0, 1], [0.1, 0.5], weights=0)).all()
    with pytest.raises(ValueError, match=r"proba: expected \(N,\), one problem's"):
        metrics.smooth_curve([[0, 1]], [[0.1, 0.5]])
    with pytest.raises(ValueError, match="level: "):
        metrics.smooth_curve([0, 1], [0.1, 0.5], level=1)


def test_the_docstring_quotes_the_coverage():
    results = json.loads(RESULTS.read_text())["results"]
    found = [x for x in results if x["without a band"] <= 0.05]
    lucky = [x["coverage"] for x in results if 0.5 < x["without a band"] and x["coverage"]]
    straight = [x["coverage"] for x in found if x["truth"] != "wave"]
    waves = [x["coverage"] for x in found if x["truth"] == "wave"]
    said = " ".join(metrics.smooth_curve.__doc__.split())
    low, high = (round(100 * end(straight)) for end in (min, max))
    assert f"at {low} to {high} % of the points" in said
    assert f"it held {100 * min(waves) // 1:.0f} % or more" in said
    assert f"others held {100 * min(lucky) // 1:.0f} to {round(100 * max(lucky))} % (" in said
    assert {x["rows"] for x in found} == {30, 100, 300, 1_000, 10_000}


@pytest.mark.parametrize(("truth", "rate"), [("calibrated", 0.02), ("line", 0.5)])
def test_coverage(monkeypatch, truth, rate):
    from benchmarks.inference import smooth_curve as simulated

    monkeypatch.setattr(simulated, "_DRAWS", 100)
    assert 0.93 < simulated.measured(np.random.default_rng(1), truth, rate, 1_000)["coverage"] < 1


@pytest.mark.filterwarnings("error:.*encountered.*")
@pytest.mark.parametrize("unit", [1e300, 1e-300])
def test_a_curve_of_logits_in_any_unit(unit):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=200)
    labels = rng.random(200) < 1 / (1 + np.exp(-logits))
    found = metrics.integrated_calibration_index(labels, logits * unit, from_logits=True)
    assert np.isfinite(found.ici).all()
