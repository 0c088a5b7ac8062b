"""The score of a probability, with an error: against other formulas, a loop, and the truth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import labels_of
from scipy import optimize, stats

import platt_jax as pj
from platt_jax import Fit, Sigmoid


@pytest.fixture
def problems(rng):
    scores = rng.normal(1.0, 2.0, size=(2, 3, 200))
    return scores, labels_of(rng, 0.8 * scores - 1)


def test_errors_are_those_of_mass(problems):
    """`dose.p`: x = (eta - b0) / b1, its error from the covariance of (b0, b1)."""
    scores, labels = (x[0, 0] for x in problems)
    fit = pj.fit(scores, labels, options=pj.Options(targets="none"))
    X, b = np.stack([np.ones(200), scores], 1), np.zeros(2)
    for _ in range(30):
        p = 1 / (1 + np.exp(-X @ b))
        covariance = np.linalg.inv(X.T @ (X * (p * (1 - p))[:, None]))
        b += covariance @ X.T @ (labels - p)
    proba = np.array([0.25, 0.5, 0.9])
    dose = (np.log(proba / (1 - proba)) - b[0]) / b[1]
    pd = -np.stack([np.ones(3), dose], 1) / b[1]
    error = np.sqrt(((pd @ covariance) * pd).sum(1))
    np.testing.assert_allclose(fit.sigmoid.inverse(proba), dose, rtol=1e-6)
    np.testing.assert_allclose(fit.inverse_standard_error(proba), error, rtol=1e-5)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_end_where_scores_are_significant(problems, level):
    """A loop: the ends are found by a search on the test that Fieller inverts."""
    fit = pj.fit(*problems)
    proba = np.array([0.05, 0.5, 0.7])
    lower, upper = fit.inverse_interval(proba, level)
    assert lower.shape == upper.shape == (2, 3, 3)
    limit = stats.norm.isf((1 - level) / 2)
    for at in np.ndindex(2, 3, 3):
        A, B, C = (x[at[:2]] for x in (fit.A, fit.B, fit.covariance))
        logit = np.log(proba[at[2]] / (1 - proba[at[2]]))

        def excess(f, A=A, B=B, C=C, logit=logit):
            error = np.sqrt(np.array([f, 1]) @ C @ np.array([f, 1]))
            return abs(A * f + B + logit) / error - limit

        center = -(logit + B) / A
        for end, side in ((lower[at], -1), (upper[at], 1)):
            found = optimize.brentq(excess, center, center + side * 40, xtol=1e-12)
            np.testing.assert_allclose(end, found, rtol=1e-9)


@pytest.mark.slow
def test_a_batch_is_a_loop_and_jax_is_numpy(problems):
    fit = pj.fit(*problems)
    proba = np.linspace(0.1, 0.9, 5)
    results = fit.inverse_standard_error(proba), *fit.inverse_interval(proba)

    @jax.jit
    def on_device(scores, labels, proba):
        fit = pj.solve(scores, labels)
        return fit.inverse_standard_error(proba), *fit.inverse_interval(proba)

    single = on_device(*(np.float32(x) for x in (*problems, proba[None, None])))
    for together, other in zip(results, single, strict=True):
        assert isinstance(other, jnp.ndarray) and together.dtype == np.float64
        np.testing.assert_allclose(other, together, rtol=2e-3, atol=2e-3)
    for at in np.ndindex(2, 3):
        one = pj.fit(problems[0][at], problems[1][at])
        alone = one.inverse_standard_error(proba), *one.inverse_interval(proba)
        for together, single_ in zip(results, alone, strict=True):
            np.testing.assert_allclose(together[at], single_, rtol=1e-9)
        assert np.shape(one.inverse_standard_error(0.3)) == ()


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
def test_intervals_scale_with_the_scores(problems, scale):
    scores, labels = (x[0, 0] for x in problems)
    near, far = (pj.fit(scores * by, labels).inverse_interval(0.3) for by in (1, scale))
    np.testing.assert_allclose(np.array(far) / scale, near, rtol=1e-6)


def test_slopes_of_no_significance_leave_it_open(rng):
    scores = rng.normal(size=200)
    flat = pj.fit(scores, rng.random(200) < 0.5)
    assert abs(flat.A) < 1.9 * flat.standard_errors[0]
    assert flat.inverse_interval(0.5) == (-np.inf, np.inf)
    lower, upper = flat.inverse_interval(0.5, level=0.01)
    assert lower < flat.sigmoid.inverse(0.5) < upper
    assert flat.inverse_interval(1.0) == (-np.inf, np.inf)
    constant = pj.fit(np.ones(50), np.arange(50) % 2)
    assert np.isnan([constant.inverse_standard_error(0.5), *constant.inverse_interval(0.5)]).all()


def test_certainties_are_at_infinite_scores(problems):
    fit = pj.fit(problems[0][0, 0], problems[1][0, 0])
    for end, score in ((0, -np.inf), (1, np.inf)):
        assert fit.inverse_standard_error(end) == np.inf
        assert fit.inverse_interval(end) == (score, score)


def test_booleans_are_zero_and_one():
    sigmoid = Sigmoid(A=np.float32(-2), B=np.float32(1))
    for bools in (np.array([True, False]), jnp.array([True, False]), [True, False]):
        found = sigmoid.inverse(bools)
        assert found.dtype == np.float32 and found.tolist() == [np.inf, -np.inf]
    assert Sigmoid(-2.0, 1.0).inverse(True) == np.inf


def test_what_is_refused(problems):
    fit = pj.fit(*problems)
    for call in (Fit.inverse_interval, Fit.inverse_standard_error):
        with pytest.raises(ValueError, match=r"proba: expected probabilities in \[0, 1\], got 2"):
            call(fit, 2)
        with pytest.raises(ValueError, match=r"proba: expected \(..., N\) for parameters"):
            call(fit, np.full((5, 4), 0.5))
    with pytest.raises(ValueError, match=r"level: expected a number in \(0, 1\), got 95"):
        fit.inverse_interval(0.5, level=95)


@pytest.mark.parametrize(("rows", "slope", "intercept"), [(50, 2, -2), (100, 0.3, 0), (400, 1, -3)])
def test_intervals_hold_the_score(rng, rows, slope, intercept):
    """The delta method's hold it in 86 % of problems of the second kind."""
    scores = rng.normal(size=(2000, rows))
    labels = labels_of(rng, slope * scores + intercept)
    fit = pj.fit(scores, labels, options=pj.Options(targets="none"))
    proba = np.tile([0.1, 0.5, 0.9], (2000, 1))
    truth = (np.log(proba / (1 - proba)) - intercept) / slope
    lower, upper = fit.inverse_interval(proba)
    covered = ((lower <= truth) & (truth <= upper))[fit.converged].mean(0)
    assert (covered > 0.935).all() and (covered < 0.995).all(), covered
