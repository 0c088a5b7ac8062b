"""What all scalers promise alike: shapes, dtypes, batches, weights, and degenerate input."""

from dataclasses import FrozenInstanceError

import jax
import numpy as np
import pytest
from data import batch

import platt_jax as pj
from platt_jax import scalers
from platt_jax.scalers import (
    BetaCalibration,
    BetaScaling,
    Binning,
    Clip,
    CosineExpansion,
    Gaussian,
    Isotonic,
    LevenbergMarquardt,
    PlattScaling,
    PPClip,
    Softmax,
    Temperature,
    platt,
)

FIXED = [Softmax(), Clip()]
# What they answer where the scores tell nothing: the mean of Platt's targets, or the plain share.
FLAT = [
    PlattScaling(),
    Gaussian(),
    Gaussian(bias="zero"),
    Gaussian(variance="separate"),
    BetaScaling(),
    BetaCalibration(),
]
COUNTING = [CosineExpansion(), Binning(10), Binning(10, by="mass"), Isotonic()]
OTHERS = [
    LevenbergMarquardt(),
    LevenbergMarquardt(loss="platt"),
    PPClip(),
    BetaScaling("predicted"),
    Temperature(),
]
LEARNING = FLAT + COUNTING + OTHERS
# The fit of the library takes longest to compile, and has tests of its own.
OWN = [scaler for scaler in LEARNING if not isinstance(scaler, PlattScaling)]
MONOTONE = [
    *FIXED,
    PlattScaling(),
    LevenbergMarquardt(),
    Gaussian(),
    Gaussian(bias="zero"),
    PPClip(),
    BetaScaling(),
    Isotonic(),
    Temperature(),
    BetaCalibration(),
]

# One shape for nearly all fits, here and in test_scalers_methods.py: compiling takes the time.
PROBLEMS, ROWS = 20, 48
GRID = np.linspace(-4, 6, 41)


# One of each kind, for tests whose shape or dtype has to be compiled for them alone.
ONE_OF_EACH = list({type(scaler): scaler for scaler in reversed(FIXED + OWN)}.values())


def name(scaler):
    return repr(scaler).split(", options")[0]


def each(some):
    return pytest.mark.parametrize("scaler", some, ids=name)


def in_each_dtype(some):
    """All in float64; one of each kind in float32 as well, slow, as each has to be compiled."""
    again = [scaler for scaler in ONE_OF_EACH if scaler in some]
    pairs = [pytest.param(x, np.float64, id=f"{name(x)}-float64") for x in some]
    for x in again:
        pairs.append(pytest.param(x, np.float32, id=f"{name(x)}-float32", marks=pytest.mark.slow))
    return pytest.mark.parametrize(("scaler", "dtype"), pairs)


@pytest.fixture
def data(rng, dtype):
    return batch(rng, PROBLEMS, ROWS, dtype)


def predict(scaler, scores, labels, weights=None):
    """Probabilities on a grid, after a fit."""
    return scaler.fit(scores, labels, weights=weights).predict_proba(GRID.astype(scores.dtype))


def near(dtype):
    # A search in float32 may end a pass earlier or later when its sums are rounded differently; the
    # least sum of squares of beta scaling is found to the root of the rounding unit.
    return {"atol": 1e-7 if dtype == np.float64 else 2e-3}


@pytest.mark.slow
@in_each_dtype(LEARNING + FIXED)
def test_shapes_dtypes_and_ranges(scaler, data, dtype):
    scores, labels = data
    flag = jax.config.jax_enable_x64
    fitted = scaler.fit(scores.reshape(4, 5, ROWS), labels.reshape(4, 5, ROWS))
    assert jax.config.jax_enable_x64 == flag
    for leaf in jax.tree.leaves(fitted):
        assert isinstance(leaf, np.ndarray) and leaf.shape[:2] == (4, 5)
    p = fitted.predict_proba(scores.reshape(4, 5, ROWS))
    assert type(p) is np.ndarray and p.dtype == dtype and p.shape == (4, 5, ROWS)
    assert np.all((p >= 0) & (p <= 1))
    assert np.ptp(p) > 0.1
    for_all = fitted.predict_proba(scores[0])
    assert scaler in FIXED or for_all.shape == (4, 5, ROWS)
    with pytest.raises(FrozenInstanceError):
        scaler.bins = 3


@pytest.mark.slow
@each(ONE_OF_EACH)
def test_a_batch_is_a_loop(scaler, rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    together = np.broadcast_to(predict(scaler, scores, labels), (PROBLEMS, len(GRID)))
    for f, y, p in zip(scores, labels, together, strict=True):
        np.testing.assert_allclose(p, predict(scaler, f, y), atol=1e-9)


@pytest.mark.slow
@in_each_dtype(OWN)
def test_weights_are_repeated_rows(scaler, data, dtype):
    scores, labels = data
    half = ROWS // 2
    weights = np.repeat([2, 0], half)
    # What weighs nothing may be anything at all.
    scores[:, half], scores[:, half + 1] = np.nan, 1e9
    twice = (np.repeat(x[:, :half], 2, axis=1) for x in (scores, labels))
    np.testing.assert_allclose(
        predict(scaler, scores, labels, weights), predict(scaler, *twice), **near(dtype)
    )
    assert not np.allclose(
        predict(scaler, scores, labels, weights),
        predict(scaler, np.where(weights, scores, dtype(1.5)), labels),
        atol=1e-3,
    )


@each(OWN)
@pytest.mark.parametrize("spoilt", ["score", "label", "weight"])
def test_one_bad_problem_is_told_of_and_spoils_no_other(scaler, spoilt, rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    clean = predict(scaler, scores, labels)
    labels, weights = labels.astype(float), np.ones(scores.shape)
    {"score": scores, "label": labels, "weight": weights}[spoilt][3, 5] = np.nan
    with pytest.warns(RuntimeWarning, match=r"in 1 of 20 problems, first in 3") as caught:
        spoiled = predict(scaler, scores, labels, weights)
    assert len(caught) == 1
    assert np.isnan(spoiled[3]).all()
    others = np.arange(PROBLEMS) != 3
    np.testing.assert_array_equal(spoiled[others], clean[others])


@each(OWN)
def test_an_empty_problem_is_nan(scaler, rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    weights = np.ones(scores.shape)
    weights[2] = 0
    p = predict(scaler, scores, labels, weights)
    others = np.arange(PROBLEMS) != 2
    assert np.isnan(p[2]).all()
    np.testing.assert_array_equal(p[others], predict(scaler, scores, labels)[others])


# A GPU keeps the scale, 1 over the scores' range, which is subnormal.
@pytest.mark.on_cpu
@each([Gaussian(), LevenbergMarquardt()])
def test_an_overflow_is_told_of(scaler, rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    scores[3] = np.where(scores[3] > 0, 1.7e308, -1.7e308)
    with pytest.warns(RuntimeWarning, match=r"in 1 of 20 problems, first in 3"):
        p = predict(scaler, scores, labels)
    assert np.isnan(p[3]).all() and np.isfinite(np.delete(p, 3, axis=0)).all()


@each(FIXED)
def test_what_learns_nothing_is_spoilt_by_nothing(scaler):
    p = predict(scaler, np.full((PROBLEMS, ROWS), np.nan), 0, 0)
    assert np.isfinite(p).all()


def share_and_target(labels):
    n_pos, n_neg = np.sum(labels == 1), np.sum(labels == 0)
    targets = np.where(labels == 1, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))
    return np.mean(labels == 1), np.mean(targets)


@in_each_dtype(FLAT + COUNTING)
@pytest.mark.parametrize("positive", [0, 1])
def test_one_class(scaler, positive, data, dtype):
    scores, _ = data
    labels = np.full(scores.shape[1], positive)
    share, target = share_and_target(labels)
    expected = share if scaler in COUNTING else target
    np.testing.assert_allclose(predict(scaler, scores, labels), expected, **near(dtype))


@in_each_dtype(FLAT + COUNTING)
@pytest.mark.parametrize("score", [0.0, -1.7, 1e6])
def test_constant_scores(scaler, score, data, dtype):
    labels = data[1][0]
    share, target = share_and_target(labels)
    expected = share if scaler in COUNTING else target
    p = predict(scaler, np.full((PROBLEMS, ROWS), score, dtype), labels)
    np.testing.assert_allclose(p, expected, atol=1e-9 if dtype == np.float64 else 1e-6)


@each(LEARNING + FIXED)
@pytest.mark.parametrize("positive", [0, 1])
def test_one_class_and_constant_scores_are_answered(scaler, positive):
    scores = np.zeros((PROBLEMS, ROWS))
    scores[0], scores[1] = np.linspace(-2, 3, ROWS), 0.3
    p = predict(scaler, scores, positive)
    assert np.all((p >= 0) & (p <= 1))


@pytest.mark.slow
@each(ONE_OF_EACH)
def test_one_row_is_answered(scaler):
    p = predict(scaler, np.array([[0.3], [0.3], [0.0]]), np.array([[1], [0], [1]]))
    assert np.all((p >= 0) & (p <= 1))


@in_each_dtype([LevenbergMarquardt(), PlattScaling()])
def test_constant_scores_have_the_right_probability_there(scaler, dtype):
    labels = np.arange(ROWS) < 10
    fitted = scaler.fit(np.full((PROBLEMS, ROWS), 0.7, dtype), labels)
    _, target = share_and_target(labels)
    np.testing.assert_allclose(fitted.predict_proba(np.array([0.7], dtype)), target, rtol=1e-4)


@in_each_dtype(LEARNING)
def test_wild_scores_of_good_problems_stay_finite(scaler, rng, dtype):
    scores, labels = batch(rng, PROBLEMS, ROWS, dtype)
    for scale in (1e-20, 1e15):
        p = scaler.fit(scores * dtype(scale), labels).predict_proba(scores * dtype(scale))
        assert np.all((p >= 0) & (p <= 1))


@each([Gaussian(), Gaussian(variance="separate"), CosineExpansion(), Isotonic(), Binning(10)])
def test_affine_maps_of_the_scores_change_nothing(scaler, rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    p = scaler.fit(scores, labels).predict_proba(scores)
    # A shift would round the scores; a scale that is a power of two does not.
    far = scores * 2.0**-900
    np.testing.assert_allclose(scaler.fit(far, labels).predict_proba(far), p, atol=1e-12)
    far = scores + 1000
    np.testing.assert_allclose(scaler.fit(far, labels).predict_proba(far), p, atol=1e-9)


@in_each_dtype(MONOTONE)
def test_monotone_where_promised(scaler, data):
    scores, labels = data
    p = scaler.fit(scores, labels).predict_proba(np.linspace(-50, 50, 1001).astype(scores.dtype))
    useful = [f[y == 1].mean() > f[y == 0].mean() for f, y in zip(scores, labels, strict=True)]
    assert sum(useful) >= 15
    p = p if scaler in FIXED else p[useful]
    assert np.all(np.diff(p) >= 0)


def test_two_variances_are_not_monotone():
    scores = np.tile([-3.0, -1.0, 1.0, 3.0, -0.2, 0.0, 0.2, 0.4], (PROBLEMS, ROWS // 8))
    fitted = Gaussian(variance="separate").fit(scores, np.tile(np.repeat([0, 1], 4), ROWS // 8))
    low, middle, high = fitted.predict_proba([-3.0, 0.1, 3.0])[0]
    assert middle > 0.8 and low < 0.01 and high < 0.01


@each(LEARNING + FIXED)
def test_bad_arguments_are_named(scaler):
    scores, labels = np.zeros((2, 3)), [0, 1, 1]
    for name, bad in {
        "scores": (np.zeros((2, 0)), []),
        "labels": (scores, [0, 1, 2]),
        "labels: expected a shape": (scores, [0, 1]),
    }.items():
        with pytest.raises(ValueError, match=f"^{name}"):
            scaler.fit(*bad)
    for weights in ([1, -1, 1], np.ones((3, 2))):
        with pytest.raises(ValueError, match=r"^weights"):
            scaler.fit(scores, labels, weights=weights)
    fitted = scaler.fit(*batch(np.random.default_rng(0), PROBLEMS, ROWS))
    with pytest.raises(ValueError, match=r"^scores"):
        fitted.predict_proba(["a"])
    if scaler not in FIXED:
        with pytest.raises(ValueError, match=r"^scores: .* \(20,\), got \(3, 4\)"):
            fitted.predict_proba(np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"^scores: .*got \(\)"):
        fitted.predict_proba(0.5)


@in_each_dtype(LEARNING + FIXED)
def test_predictions_of_odd_scores(scaler, data, dtype):
    scores, labels = data
    fitted = scaler.fit(scores / 100, labels)
    p = fitted.predict_proba(np.array([np.nan, -np.inf, -1e30, 1e30, np.inf], dtype))
    assert p.dtype == dtype
    assert np.isnan(p[..., 0]).all() and np.all((p[..., 1:] >= 0) & (p[..., 1:] <= 1))
    assert np.isfinite(fitted.predict_proba([1, 2])).all()


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (LevenbergMarquardt, {"loss": "wrong"}),
        (LevenbergMarquardt, {"tol": 0.0}),
        (LevenbergMarquardt, {"max_iter": 0}),
        (Gaussian, {"variance": "both"}),
        (Gaussian, {"bias": "half"}),
        (Gaussian, {"bias": "zero", "variance": "separate"}),
        (CosineExpansion, {"terms": 0}),
        (CosineExpansion, {"penalty": -1.0}),
        (Binning, {"bins": 1}),
        (Binning, {"by": "hand"}),
        (BetaScaling, {"form": "unary"}),
        (BetaCalibration, {"inputs": "odds"}),
    ],
)
def test_bad_options_are_named(make, options):
    name, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=f"^{make.__name__}.{name}={value!r}"):
        make(**options)


@pytest.mark.slow
def test_probabilities_must_be_some(rng):
    scaler = BetaCalibration("probabilities")
    scaler.fit(rng.integers(0, 3, (PROBLEMS, ROWS)) / 2, np.arange(ROWS) % 2)
    with pytest.raises(ValueError, match=r"^scores: expected probabilities in \[0, 1\], got 1.5"):
        scaler.fit([0.0, 1.5], [0, 1])


def test_every_scaler_is_listed_tested_and_has_an_example():
    assert {type(scaler).__name__ for scaler in LEARNING + FIXED} == set(scalers.__all__)
    for name in scalers.__all__:
        assert name in scalers.__doc__ and ">>>" in getattr(scalers, name).__doc__, name


def test_platt_scaling_hands_everything_to_the_fit_of_the_library(monkeypatch):
    handed = []
    monkeypatch.setattr(platt, "fit", lambda *args, **kwargs: handed.append((args, kwargs)))
    prior, options = pj.GaussianPrior(np.zeros(2), np.eye(2)), pj.Options(targets="none")
    PlattScaling(prior, options).fit("scores", "labels", weights="weights")
    assert handed == [
        (("scores", "labels"), {"weights": "weights", "prior": prior, "options": options})
    ]


@pytest.mark.parametrize("weight", [2.0**-1060, 2.0**1020])
@pytest.mark.parametrize(
    "scaler", [Isotonic(), Binning(10), pytest.param(Temperature(), marks=pytest.mark.slow)]
)
def test_weights_may_be_of_any_size(rng, scaler, weight, dtype):
    """Their sum overflowed, or they were infinite in float32."""
    scores, labels = batch(rng, PROBLEMS, ROWS, dtype)
    once = predict(scaler, scores, labels)
    again = predict(scaler, scores, labels, weights=np.full(scores.shape, weight))
    np.testing.assert_allclose(again, once, **near(dtype))
    assert np.isfinite(once).all()
