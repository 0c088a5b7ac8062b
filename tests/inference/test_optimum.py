"""Rows that are given again beside a fit are those of the fit, or they are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import accelerated
from data import labels_of

import platt_jax as pj
from platt_jax import GaussianPrior, Options
from platt_jax.inference import robust_covariance

PRIOR = GaussianPrior(np.array([-1.0, 0.5]), np.array([[30.0, 4], [4, 70]]))
ROOMS = pj.inference.leave_one_out, robust_covariance
FITS = {
    "problem": pj.fit,
    "segments": pj.fit_segments,
    "one curve": lambda *rows, **given: pj.fit_segments(*rows, **given, pooling="complete"),
    "classes": pj.fit_one_vs_rest,
}


def rows_of(rng, kind, dtype=np.float64):
    """Rows for a fit, and what may be given beside them."""
    scores = rng.normal(size=(400, 2) if kind == "classes" else 400) + 1
    labels = labels_of(rng, 2 * scores - 1).astype(int)
    rows = [scores.astype(dtype), labels[:, 0] if kind == "classes" else labels]
    if kind in ("segments", "one curve"):
        rows.append(np.arange(400) % 2)
    offset = rng.normal(size=scores.shape).astype(dtype)
    return rows, {"offset": offset, "prior": PRIOR, "options": Options(targets="none")}


def assert_refused(room, fitted, rows, given):
    with pytest.raises(
        ValueError, match="scores, labels: expected the rows of the fit, with its weights"
    ):
        room(fitted, *rows, **given)


@pytest.mark.parametrize("kind", FITS)
@pytest.mark.parametrize("room", ROOMS)
def test_what_was_not_fitted_is_refused(rng, room, kind):
    rows, given = rows_of(rng, kind)
    fitted = FITS[kind](*rows, **given)
    room(fitted, *rows, **given)
    for name in given:
        assert_refused(room, fitted, rows, {x: given[x] for x in given if x != name})
    mirrored = [-rows[0], *rows[1:]]
    assert_refused(room, fitted, mirrored, given)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["problem", "segments", "one curve"])
@pytest.mark.parametrize("room", ROOMS)
def test_what_was_not_fitted_is_refused_on_a_device(monkeypatch, rng, room, kind):
    rows, given = rows_of(rng, kind, np.float32)
    fitted = FITS[kind](*rows, **given)
    with accelerated(monkeypatch, np.float32):
        rows, given["offset"] = jax.tree.map(jnp.asarray, (rows, given["offset"]))
        room(fitted, *rows, **given)
        for name in given:
            assert_refused(room, fitted, rows, {x: given[x] for x in given if x != name})


@pytest.mark.parametrize("room", ROOMS)
def test_a_shifted_fit_is_refused(rng, room):
    rows, _ = rows_of(rng, "problem")
    fitted = pj.fit(*rows)
    room(fitted, *rows)
    assert_refused(room, fitted.shift_prior(0.5, 0.2), rows, {})


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("room", ROOMS)
def test_rounding_is_no_reason(rng, room, dtype):
    """Scores far from 0, codes, weights of all sizes, saturated and one-sided labels."""
    shape = (8, 200)
    scores = rng.normal(size=shape)
    scores[1] += 1e4
    scores[2, ::10] = -1e20
    scores[3] *= 1e-20
    labels = labels_of(rng, 2 * scores * np.array([1, 0, 1, 1e20, 30, 1, 1, 1])[:, None])
    labels[5] = 1
    weights = rng.uniform(0.1, 1, shape) * np.array([1] * 6 + [1e-9, 1e9])[:, None]
    rows, weights = (scores.astype(dtype), labels), weights.astype(dtype)
    for targets in ("platt", "none"):
        given = {"weights": weights, "options": Options(targets=targets)}
        room(pj.fit(*rows, **given), *rows, **given)


@pytest.mark.parametrize("center", [0.0, 1.0])
def test_the_sandwich_of_temperatures(rng, center):
    """A alone is fitted: the sandwich is a ratio of sums."""
    scores = rng.normal(size=400) + center
    labels = labels_of(rng, 2 * scores)
    only_a = Options(intercept=False, targets="none")
    fitted = pj.fit(scores, labels, options=only_a)
    p = fitted.predict_proba(scores)
    meat, bread = np.sum((labels - p) ** 2 * scores**2), np.sum(p * (1 - p) * scores**2)
    found = robust_covariance(fitted, scores, labels, options=only_a).covariance
    np.testing.assert_allclose(found, [[meat / bread**2, 0], [0, 0]], rtol=1e-9)


@pytest.mark.parametrize("pooling", ["none", "complete"])
def test_sandwiches_are_not_updated(rng, pooling):
    """New rows would mix them with inverse Hessians."""
    rows, _ = rows_of(rng, "segments")
    robust = robust_covariance(pj.fit_segments(*rows, pooling=pooling), *rows)
    with pytest.raises(ValueError, match=r"calibrator: .* got one after robust_covariance"):
        pj.update(robust, *rows)


def test_segments_that_a_population_leaves_out_are_taken(rng):
    """They were fitted alone, without the population as their prior."""
    segments = np.arange(2_000) % 20
    scores = rng.normal(size=2_000)
    labels = labels_of(rng, 2 * scores)
    scores[segments == 3] *= 1e4
    with pytest.warns(RuntimeWarning, match="are fitted alone"):
        calibrator = pj.fit_segments(scores, labels, segments, pooling="partial")
    assert np.isfinite(pj.inference.leave_one_out(calibrator, scores, labels, segments)).all()


@pytest.mark.parametrize("room", ROOMS)
def test_fits_that_stopped_by_the_gradient_are_taken(rng, room):
    """Of small scores a small gradient is no small distance."""
    rows = rng.normal(size=200) * 1e-4, rng.random(200) < 0.4
    options = Options.libsvm()
    room(pj.fit(*rows, options=options), *rows, options=options)
