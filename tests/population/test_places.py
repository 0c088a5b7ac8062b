"""Partial pooling whose numbers of segments are computed on a device: as by NumPy on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import accelerated

import platt_jax as pj
from platt_jax.population import places, recentring
from platt_jax.population.gaussians import normals
from platt_jax.population.integral import plausible_populations
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import COARSE, posteriors

BY_SEGMENT = (
    "likelihood_precision",
    "likelihood_pull",
    "posterior_mean",
    "posterior_covariance",
    "shrinkage",
)
OF_ALL = ("mean", "covariance", "mean_covariance", "predictive_mean", "predictive_covariance")


@pytest.fixture
def on_accelerator(monkeypatch):
    """JAX arrays are taken for arrays on an accelerator."""
    with accelerated(monkeypatch, np.float64):
        yield


def rows_of(rng, segments, rows, spread, odd=False):
    """Scores, labels, segments, and weights and offsets; some segments are odd."""
    A, B = rng.normal(-1, spread, segments), rng.normal(0.5, 1.5 * spread, segments)
    which = np.repeat(np.arange(segments), rng.integers(1, 2 * rows, segments))
    scores = rng.normal(size=len(which))
    labels = rng.random(len(which)) < 1 / (1 + np.exp(A[which] * scores + B[which]))
    if not odd:
        return scores, labels, which
    weights = rng.integers(0, 3, len(which)).astype(float)
    weights[which % 7 == 2] = 0  # empty
    labels[which % 7 == 4] = True  # of one class
    scores[np.flatnonzero(which == segments - 2)[:1]] = np.nan
    return scores, labels, which, weights, 0.3 * rng.normal(size=len(which))


def fitted(rows, monkeypatch, there, pooling="partial"):
    monkeypatch.setattr(places, "is_worth_sending", lambda segments: there)
    scores, labels, segments, *more = rows
    named = dict(zip(("weights", "offset"), more, strict=False))
    return pj.fit_segments(jnp.asarray(scores), labels, segments, pooling=pooling, **named)


def columns_of(segments, pooling):
    """Ids of two columns, from segments 0, 1, ..., K - 1."""
    city = segments if pooling == "nested" else segments % 10
    both = np.empty(len(segments), [("country", int), ("city", int)])
    both["country"], both["city"] = segments // 10, city
    return both


def assert_same(found, expected):
    """Both populations are the same to rounding."""
    assert found.status == expected.status
    for name in (*OF_ALL, *BY_SEGMENT):
        x, y = getattr(found, name), getattr(expected, name)
        assert isinstance(x, np.ndarray) and x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 * np.abs(y).max())


@pytest.mark.slow  # compiles many programs
@pytest.mark.usefixtures("on_accelerator")
@pytest.mark.filterwarnings("ignore:NaN")
@pytest.mark.parametrize(
    ("segments", "rows", "spread", "odd"),
    [
        (2, 200, 0.5, False),
        (4, 100, 0.7, True),
        (1_000, 20, 0.4, True),
        (1_000, 10, 0.0, False),
        (12_000, 5, 0.5, True),
    ],
)
def test_as_by_numpy(monkeypatch, rng, segments, rows, spread, odd):
    rows = rows_of(rng, segments, rows, spread, odd)
    expected = fitted(rows, monkeypatch, False)
    found = fitted(rows, monkeypatch, True)
    assert expected.population.estimated
    assert_same(found.population, expected.population)
    for x, y in zip(*map(jax.tree.leaves, (found.fit, expected.fit)), strict=True):
        np.testing.assert_allclose(*map(jax.device_get, (x, y)), rtol=1e-9, atol=1e-9)


@pytest.mark.slow  # compiles many programs
@pytest.mark.usefixtures("on_accelerator")
@pytest.mark.filterwarnings("ignore:NaN")
@pytest.mark.parametrize("pooling", ["nested", "crossed"])
def test_levels_as_by_numpy(monkeypatch, rng, pooling):
    scores, labels, segments, *more = rows_of(rng, 600, 30, 0.5, odd=True)
    rows = scores, labels, columns_of(segments, pooling), *more
    expected = fitted(rows, monkeypatch, False, pooling)
    found = fitted(rows, monkeypatch, True, pooling)
    assert_same(found.population, expected.population)
    for level, other in zip(found.by_level.each, expected.by_level.each, strict=True):
        np.testing.assert_allclose(level.mean, other.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(level.spread, other.spread, rtol=1e-9, atol=1e-12)


def test_segments_added_do_not_count(rng):
    """Three segments, to which `sent` adds others; the user's settings do not matter."""
    population = normals(np.array([-1.0, 0.5]), np.array([[0.5, 0.1], [0.1, 0.8]]))
    own = Likelihoods.from_arrays(rng.uniform(1, 9, (3, 1, 1)) * np.eye(2), rng.normal(size=(3, 2)))
    nodes = own.under(population)
    losses = own.losses(COARSE, nodes) + 0.1 * np.sin(rng.normal(size=(3, 25)))

    def known(losses, nodes):
        found = posteriors(COARSE, losses, nodes, population, own.total)
        likelihoods = Likelihoods.of(found, population)
        response = recentring.response_of(likelihoods.precision, population.covariance)
        terms = recentring.node_terms(COARSE), losses, nodes, response
        around = plausible_populations(
            likelihoods,
            population,
            np.vstack([population.mean, [0.1, 0.2]]),
            certain=False,
            total=own.total,
            covariates=np.array([[-1.0], [0.5], [2.0]]),
        )
        made = found, likelihoods, recentring._loss_slope_and_bend(*terms), around.segments()
        assert places.is_there(made) == places.is_there(losses)
        return places.fetched(made)

    expected = known(losses, nodes)
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        there = known(places.sent(losses, np.nan), places.sent(nodes, 1.0))
    assert there[0].number == 3
    for x, y in zip(*map(jax.tree.leaves, (there, expected)), strict=True):
        x = x[:3] if np.shape(x) != np.shape(y) else x
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_a_posterior_between_two_nodes_has_a_width():
    """Far from all nodes but one column, moments have no width; the next nodes are closer."""
    population = normals(np.zeros(2), np.eye(2))
    own = Likelihoods.from_arrays(np.array([[[1e12, 0], [0, 1e2]]]), np.zeros((1, 2)))
    nodes = Likelihoods.from_arrays(np.zeros((1, 2, 2)), np.zeros((1, 2))).under(population)
    losses = own.losses(COARSE, nodes)
    found = posteriors(COARSE, losses, nodes, population, own.total)
    assert np.linalg.det(found.segments.covariance) <= 0
    closer = Likelihoods.of(found, population).under(population)
    assert np.isfinite(jax.tree.leaves(closer)).all()
    assert 0 < closer.factor_AA < 0.1
