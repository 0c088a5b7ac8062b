"""One row's loss and derivatives, against mpmath and against autodiff."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from reference import targets as reference_targets

import platt_jax as pj
from platt_jax.model import objective
from platt_jax.model import prior as priors
from platt_jax.model.objective import Row, Targets
from platt_jax.model.prior import CenteredPrior, GaussianPrior

# As in a fit: one program, and not one for each operation.
loss = jax.jit(objective.loss)
analytic_derivatives = jax.jit(objective.analytic_derivatives)
autodiff_derivatives = jax.jit(objective.autodiff_derivatives)

MARGINS = [0.0, 1e-300, -1e-30, 1e-8, -0.3, 0.7, -5.0, 20.0, -36.0, 45.0, -80.0, 85.0, -700.0, 1e4]


def rows(dtype, rng):
    """(point, row, targets): random rows, and rows with extreme margins by a huge or tiny score."""
    f = np.concatenate([rng.normal(size=40), np.array(MARGINS), np.array(MARGINS[1:]) * 1e3])
    y = (np.arange(len(f)) % 2).astype(np.int8)
    A = np.ones_like(f)
    A[-len(MARGINS[1:]) :] = 1e-3
    B = np.concatenate([rng.normal(size=40), np.zeros(len(f) - 40)])
    full = lambda x: jnp.full(f.shape, x, dtype)  # noqa: E731
    targets = Targets(*(full(x) for x in (0.98, 0.01, 0.02, 0.99)))
    point = jnp.asarray(A, dtype), jnp.asarray(B, dtype)
    return point, Row(jnp.asarray(f, dtype), y), targets


@pytest.mark.parametrize("kind", ["platt", "none"])
def test_targets_are_those_of_the_counts(kind, x64):
    labels = np.array([1, 0, 0, 1, 1])
    weights = np.array([0.5, 2.0, 1.0, 1.5, 0.25])
    make = objective.platt_targets if kind == "platt" else objective.plain_targets
    targets = make(jnp.asarray(2.25), jnp.asarray(3.0))
    expected = reference_targets(labels, weights, kind)
    assert targets.positive == pytest.approx(expected[0], abs=1e-15)
    assert targets.negative == pytest.approx(expected[1], abs=1e-15)
    assert targets.positive + targets.positive_complement == pytest.approx(1, abs=1e-15)
    assert targets.negative + targets.negative_complement == pytest.approx(1, abs=1e-15)


def exact_row(z, t, u):
    """Loss, d1 = t - p and d2 = p q at margin z for target t = 1 - u, to 60 digits."""
    with mpmath.workdps(60):
        z, t, u = (mpmath.mpf(float(x)) for x in (z, t, u))
        p, q = 1 / (1 + mpmath.exp(z)), 1 / (1 + mpmath.exp(-z))
        d1 = q - u if z < 0 else t - p
        return [float(x) for x in (-t * mpmath.log(p) - u * mpmath.log(q), d1, p * q)]


def test_loss_and_derivatives_match_mpmath(dtype, rng, x64):
    margins = np.concatenate([rng.normal(size=40), MARGINS]).astype(dtype)
    y = (np.arange(len(margins)) % 2).astype(np.int8)
    one, zero = jnp.ones(len(margins), dtype), jnp.zeros(len(margins), dtype)
    targets = Targets(*(jnp.full(len(margins), x, dtype) for x in (0.98, 0.01, 0.02, 0.99)))
    args = (one, zero), Row(jnp.asarray(margins), y), targets
    linear, odds = (np.asarray(x) for x in loss(*args))
    at = analytic_derivatives(*args)

    ends = [(targets.negative, targets.negative_complement)]
    ends += [(targets.positive, targets.positive_complement)]
    exact = [exact_row(z, ends[i][0][0], ends[i][1][0]) for z, i in zip(margins, y, strict=True)]
    exact = np.array(exact)
    eps, tiny = float(np.finfo(dtype).eps), float(np.finfo(dtype).tiny)
    f = margins.astype(float)
    np.testing.assert_allclose(linear + np.log1p(odds), exact[:, 0], rtol=8 * eps)
    in_product = linear + np.log(1 + odds)
    np.testing.assert_allclose(in_product, exact[:, 0], rtol=8 * eps, atol=2 * eps)
    # d1 cancels only where p meets its target, so an absolute error of a few eps is its due.
    np.testing.assert_allclose(at.g_B, exact[:, 1], rtol=8 * eps, atol=2 * eps)
    np.testing.assert_allclose(at.g_A, f * np.asarray(at.g_B, float), rtol=2 * eps)
    # d2 keeps its relative accuracy down to where exp underflows.
    np.testing.assert_allclose(at.h_BB, exact[:, 2], rtol=8 * eps, atol=tiny)
    np.testing.assert_allclose(at.h_AB, f * np.asarray(at.h_BB, float), rtol=2 * eps, atol=tiny)
    np.testing.assert_allclose(at.h_AA, f * np.asarray(at.h_AB, float), rtol=2 * eps, atol=tiny)


def test_autodiff_agrees_entry_by_entry(dtype, rng, x64):
    args = rows(dtype, rng)
    f = np.asarray(args[1].f, np.float64)
    analytic, autodiff = analytic_derivatives(*args), autodiff_derivatives(*args)
    eps, tiny = np.finfo(dtype).eps, float(np.finfo(dtype).tiny)
    for name, power in zip(analytic._fields, (1, 0, 2, 1, 0), strict=True):
        size = np.maximum(1, np.abs(f)) ** power
        a, b = (np.asarray(getattr(d, name), np.float64) for d in (analytic, autodiff))
        atol = (4 * eps if name.startswith("g") else tiny) * size
        assert np.all(np.abs(a - b) <= 16 * eps * np.abs(a) + atol), name


def test_padding_contributes_exactly_nothing(dtype, x64):
    f = jnp.asarray([0.0, 3.0, -1e6], dtype)
    y, present = jnp.asarray([True, False, True]), jnp.zeros(3, bool)
    A, B = jnp.full(3, -2.0, dtype), jnp.full(3, 0.5, dtype)
    targets = Targets(*(jnp.full(3, x, dtype) for x in (0.9, 0.1, 0.1, 0.9)))
    arguments = (A, B), Row(f, y, present), targets
    for term in (
        *loss(*arguments),
        *analytic_derivatives(*arguments),
        *autodiff_derivatives(*arguments),
    ):
        assert np.all(np.asarray(term) == 0)


def test_prior_derivatives_are_those_of_its_penalty(rng, x64):
    root = rng.normal(size=(2, 2))
    prior = GaussianPrior(jnp.asarray(rng.normal(size=2)), jnp.asarray(root @ root.T))
    theta = rng.normal(size=2)
    off = theta - np.asarray(prior.mean)
    expected = off @ np.asarray(prior.precision) @ off / 2
    own = CenteredPrior.around_zero(prior)
    assert priors.penalty(own, *theta) == pytest.approx(expected, rel=1e-14)
    at = priors.derivatives(own, *theta)
    np.testing.assert_allclose([at.g_A, at.g_B], root @ root.T @ off, rtol=1e-13)
    np.testing.assert_allclose([at.h_AA, at.h_AB, at.h_BB], (root @ root.T)[[0, 0, 1], [0, 1, 1]])


def test_a_prior_at_its_own_center_is_the_same_prior(rng):
    """Also where B, or all, is left free; and of a precision that rounding made indefinite."""
    root = rng.normal(size=(4, 2, 2))
    precision = root @ np.swapaxes(root, 1, 2)
    precision[1] = np.diag([2.0, 0])
    precision[2] = 0
    precision[3] = np.outer([100, 1], [100, 1])
    prior = GaussianPrior(rng.normal(size=(4, 2)), precision)
    own = CenteredPrior.of(prior, float)
    assert (own.precision_AB == 0).all()
    for found, expected in zip(own.original(), prior, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    rounded = precision[3:].astype(np.float32) * np.array([[1 - 1e-7, 1], [1, 1]], np.float32)
    assert np.linalg.det(rounded.astype(float)) < 0
    narrow = CenteredPrior.of(GaussianPrior(prior.mean[3:], rounded), np.float32)
    assert 0 < narrow.precision_AA[0] < 1e-2


@pytest.mark.parametrize("center", [0.0, 100.0])
def test_float32_holds_a_prior_of_scores_far_from_0(rng, center):
    """Before, a precision of 1e8 hid one of 3: the search ended without an optimum."""
    scores = (center + rng.normal(size=(50, 4)) / 2).astype(np.float32)
    labels = rng.random((50, 4)) < 0.3
    shift = np.array([[1, 0], [center, 1]])
    precision = shift.T @ np.diag([3.0, 1e4]) @ shift
    prior = GaussianPrior(np.array([-1.0, center + 1]), precision)
    found = pj.fit(scores, labels, prior=prior).raise_if_failed()
    expected = pj.fit(scores.astype(float), labels, prior=prior)
    np.testing.assert_allclose(found.A, expected.A, atol=1e-4)
