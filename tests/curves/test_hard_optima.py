"""Curves that converged are at their optimum, also where rows far from 1/2 tell of them."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import platt_jax as pj
from platt_jax import Status


def _hard(rng, problems=1500, rows=8):
    """Rows nearly separable, with ties, offsets, and counts from 0 to thousands."""
    steep = rng.choice([1, 5, 50, -2], (problems, 1))
    f = rng.choice([0.1, 1, 3], (problems, 1)) * rng.normal(size=(problems, rows)).round(1)
    y = rng.random(f.shape) < expit(steep * f - rng.choice([0, 3], (problems, 1)))
    share = rng.dirichlet(np.full(rows, 0.15), problems)
    offset = np.where(np.arange(problems)[:, None] % 2, 0, 20 * rng.normal(size=f.shape).round(2))
    return f, y, np.floor(20_000 * share), offset


@pytest.mark.parametrize("curve", ["beta", "quadratic"])
def test_a_curve_that_converged_is_where_its_gradient_is_nothing(curve):
    """Also where rows far from 1/2 have no curvature left, but a slope."""
    f, y, w, offset = _hard(np.random.default_rng(1))
    curves = pj.fit(f, y, weights=w, offset=offset, curve=curve).curves
    center = np.asarray(curves.center)[:, None]
    if curve == "beta":
        columns = [-np.logaddexp(0, -f), np.logaddexp(0, f)]
        at = [-np.logaddexp(0, -center), np.logaddexp(0, center)]
        columns = [x - x0 for x, x0 in zip(columns, at, strict=True)]
    else:
        u = (f - center) * np.asarray(curves.scale)[:, None]
        columns = [u, u * u]
    X = np.stack([np.ones_like(f), *columns], -1)
    n_pos, n_neg = (w * y).sum(1, keepdims=True), (w * ~y).sum(1, keepdims=True)
    targets = np.where(y, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))
    p = expit(np.einsum("knp,kp->kn", X, curves.coefficients) + offset)
    gradient = np.einsum("knp,kn->kp", X, w * (p - targets))
    root = np.sqrt(np.einsum("knp,kn->kp", X * X, w * p * (1 - p)))
    sizes = np.einsum("knp,kn->kp", np.abs(X), w * np.abs(p - targets))
    if curve == "beta":
        at_bound = (np.asarray(curves.coefficients)[:, 1:] <= 0) & (gradient[:, 1:] > 0)
        gradient[:, 1:][at_bound] = 0
    off = (np.abs(gradient) > 1e-4 * np.where(root > 0, root, 1)) & (
        np.abs(gradient) > 1e-9 * sizes
    )
    converged = curves.status == Status.CONVERGED
    assert converged.mean() > 0.9 and not off[converged].any()


def test_a_row_that_the_start_puts_on_the_wrong_side_tells_of_a_beta_curve():
    """Its loss is a straight line there; against L-BFGS-B, and the mirrored rows."""
    f, y = np.repeat([-1.2, 0.0, 4.2], [850, 149, 1]), np.repeat([0, 1, 0], [850, 149, 1])
    found, mirrored = (pj.fit(*x, curve="beta").curves for x in ((f, y), (-f, 1 - y)))
    X = np.column_stack([np.ones(1000), -np.logaddexp(0, -f), np.logaddexp(0, f)])
    targets = np.where(y == 1, 150 / 151, 1 / 853)

    def loss(theta):
        z = X @ theta
        return np.sum(np.logaddexp(0, z) - targets * z), X.T @ (expit(z) - targets)

    bounds = [(None, None), (0, None), (0, None)]
    best = minimize(loss, [0, 1, 1], jac=True, method="L-BFGS-B", bounds=bounds)
    np.testing.assert_allclose([found.nll, mirrored.nll], np.full((2, 1), best.fun), rtol=1e-6)


def test_a_function_that_is_nothing_at_all_scores_has_no_coefficient():
    """The log of a probability within 1e-160 of 1, one of the two functions of a beta curve."""
    rng = np.random.default_rng(2)
    f = 1e5 * rng.lognormal(-1, 2, (300, 5)) + 350
    y, offset = rng.random(f.shape) < 0.8, rng.normal(size=f.shape)
    curves = pj.fit(f, y, offset=offset, curve="beta").curves
    assert (curves.status == Status.CONVERGED).all() and np.isfinite(curves.nll).all()
