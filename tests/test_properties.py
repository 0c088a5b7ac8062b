"""What must hold for every problem, on problems that hypothesis draws.

Two fits of the same rows, one way or another, may differ by what each is off its optimum: 1e-6
standard errors in float64, 1e-2 in float32 (the tests of the oracle hold them to it).
"""

import dataclasses
import warnings

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import six_sums

import platt_jax as pj
from platt_jax import Fit, Flag, Options, Sigmoid, Status

pytestmark = pytest.mark.slow

settings.register_profile(
    "properties",
    deadline=None,  # the first example compiles
    derandomize=True,
    max_examples=100,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("properties")

FIELDS = [field.name for field in dataclasses.fields(Fit)]
BOUND = {np.float64: 1e-6, np.float32: 1e-2}

SEEDS = st.integers(0, 2**32 - 1)
DTYPES = st.sampled_from([np.float64, np.float32])
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def problems(draw, rows=None):
    """(scores, labels) with both classes among 2 to 60 rows, or 300; often tied or separable."""
    rows = draw(st.integers(2, 60) | st.just(300)) if rows is None else rows
    rng = np.random.default_rng(draw(SEEDS))
    labels = (rng.random(rows) < draw(st.sampled_from([0.5, 0.2, 0.05]))).astype(np.int8)
    labels[:2] = 0, 1
    scores = rng.normal(size=rows) + draw(st.sampled_from([-1, 0, 1, 3, 10])) * labels
    if draw(st.booleans()):
        scores = np.round(scores)
    return scores, labels


@st.composite
def batches(draw):
    """(scores, labels) of 1 to 6 problems of one size."""
    rows = draw(st.integers(2, 60))
    parts = draw(st.lists(problems(rows), min_size=1, max_size=6))
    return tuple(np.stack(x) for x in zip(*parts, strict=True))


def assert_same_optimum(one: Fit, A, B, times=1):
    """(A, B) is as far from the parameters of `one` as two answers to one question may be.

    In standard errors, by the Hessian of `one`; or by the rounding of a few units of A and B.
    """
    dtype = type(np.asarray(one.A)[()])
    off = np.stack([np.asarray(A, float) - one.A, np.asarray(B, float) - one.B], -1)
    hessian = np.asarray(one.hessian, float)
    error = np.sqrt(np.abs(np.einsum("...i,...ij,...j", off, hessian, off)))
    units = np.stack([np.spacing(np.abs(one.A)), np.spacing(np.abs(one.B))], -1).astype(float)
    rounding = np.max(4 * units * np.sqrt(hessian[..., (0, 1), (0, 1)]), -1)
    assert np.all(error <= np.maximum(2 * times * BOUND[dtype], rounding)), (error, rounding)


# --- the same rows, otherwise arranged -----------------------------------------------------------


@given(batches(), DTYPES)
def test_a_batch_is_a_loop(batch, dtype):
    scores, labels = batch[0].astype(dtype), batch[1]
    together = pj.fit(scores, labels)
    for k in range(len(scores)):
        alone = pj.fit(scores[k], labels[k])
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(together, name)[k], getattr(alone, name))


@given(problems(), DTYPES, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(problem, dtype, random):
    scores, labels = problem[0].astype(dtype), problem[1]
    order = random.sample(range(len(labels)), len(labels))
    one, other = pj.fit(scores, labels), pj.fit(scores[order], labels[order])
    assert one.flags == other.flags and one.status == other.status == Status.CONVERGED
    assert_same_optimum(one, other.A, other.B)


@given(problems(), st.integers(-900, 900), st.sampled_from([-1, 1]), st.floats(-1e4, 1e4))
def test_affine_invariance(problem, exponent, sign, shift):
    """The fit of a f + b is that of f, in the units of a f + b; a power of two rounds nothing."""
    scores, labels = problem
    scores = scores + shift  # whatever that rounds, both fits get
    one = pj.fit(scores, labels)
    a = sign * 2.0**exponent
    other = pj.fit(a * scores, labels)
    assert other.status == one.status == Status.CONVERGED
    assert_same_optimum(one, other.A * a, other.B)


@given(problems(), st.integers(-40, 40))
def test_a_shift_moves_the_intercept_only(problem, shift):
    scores, labels = problem
    scores = np.round(scores * 1024) / 1024  # so that the shift rounds nothing
    one, other = pj.fit(scores, labels), pj.fit(scores + shift, labels)
    assert_same_optimum(one, other.A, other.B + other.A * shift, times=2)


@given(problems(), DTYPES)
def test_the_other_class_has_the_other_sign(problem, dtype):
    """Platt's targets mirror with the labels: t becomes 1 - t."""
    scores, labels = problem[0].astype(dtype), problem[1]
    one, other = pj.fit(scores, labels), pj.fit(scores, 1 - labels)
    assert (one.n_pos, one.n_neg) == (other.n_neg, other.n_pos)
    assert_same_optimum(one, -other.A, -other.B)


@given(problems(), SEEDS, st.sampled_from(["platt", "none"]))
def test_weights_count_rows(problem, seed, targets):
    """Weight 2 is the row twice; weight 0 is the row gone, and may then be anything."""
    scores, labels = problem
    weights = np.random.default_rng(seed).integers(0, 4, len(labels))
    weights[:2] = np.maximum(weights[:2], 1)
    repeated = np.repeat(np.arange(len(labels)), weights)
    options = Options(targets=targets)
    one = pj.fit(scores, labels, weights=weights, options=options)
    other = pj.fit(scores[repeated], labels[repeated], options=options)
    assert one.status == other.status and one.flags == other.flags
    assert (one.n_pos, one.n_neg) == (other.n_pos, other.n_neg)
    if one.converged:
        assert_same_optimum(one, other.A, other.B)
    scores = np.where(weights == 0, np.nan, scores)
    gone = pj.fit(scores, labels, weights=weights, options=options)
    assert (gone.A, gone.B, gone.status) == (one.A, one.B, one.status)


@given(st.lists(problems(), min_size=2, max_size=5), SEEDS, SEEDS)
def test_merged_segments_are_fitted_as_one(parts, mixing, merging):
    """The fit of two segments under one name is the fit of their rows."""
    scores, labels = (np.concatenate(x) for x in zip(*parts, strict=True))
    ids = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    order = np.random.default_rng(mixing).permutation(len(ids))
    scores, labels, ids = scores[order], labels[order], ids[order]
    names = np.random.default_rng(merging).integers(0, 2, len(parts))
    merged = pj.fit_segments(scores, labels, names[ids])
    assert merged.keys.tolist() == sorted(set(names.tolist()))
    for k, key in enumerate(merged.keys):
        mine = names[ids] == key
        one = pj.fit(scores[mine], labels[mine])
        assert_same_optimum(one, merged.fit.A[k], merged.fit.B[k])


# --- the answer is the optimum -------------------------------------------------------------------


@given(problems(), DTYPES, SEEDS)
def test_no_other_point_is_better(problem, dtype, seed):
    """The loss is computed apart, in float64, with exact sums."""
    scores, labels = problem[0].astype(dtype), problem[1]
    one = pj.fit(scores, labels)

    def loss(A, B):
        return six_sums(scores, labels, float(A), float(B))[0]

    best = loss(one.A, one.B)
    # lambda standard errors off the optimum cost lambda^2 / 2; each term of the loss rounds.
    slack = BOUND[dtype] ** 2 + 1e-14 * best
    rng = np.random.default_rng(seed)
    for size in (1e-3, 1e-1, 1, 10):
        for step in size * rng.normal(size=(4, 2)) * one.standard_errors:
            assert best <= loss(one.A + step[0], one.B + step[1]) + slack


# --- predictions ---------------------------------------------------------------------------------


@given(FINITE, FINITE, st.lists(FINITE, min_size=2, max_size=30))
def test_probabilities_are_monotone_and_within_0_and_1(A, B, scores):
    with np.errstate(over="ignore", invalid="ignore"):  # A f + B beyond float64
        p = Sigmoid(A, B).predict_proba(np.sort(scores))
    p = p[~np.isnan(p)]  # infinity less infinity
    assert np.all((p >= 0) & (p <= 1))
    assert np.all(np.diff(-np.sign(A) * p) >= 0)


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=30), DTYPES)
def test_both_classes_share_probability_1_without_cancellation(logits, dtype):
    """p(f) and the flipped sigmoid's p(f) come apart: the smaller keeps all its digits."""
    f = np.asarray(logits, dtype)
    one, flipped = Sigmoid(dtype(-1), dtype(0)), Sigmoid(dtype(1), dtype(0))
    p, q = one.predict_proba(f), flipped.predict_proba(f)
    assert p.dtype == q.dtype == dtype
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(p + q, 1, rtol=2 * eps)
    # exp rounds its argument's last place into |f| eps of its value.
    smaller, exact = np.minimum(p, q).astype(float), 1 / (1 + np.exp(np.abs(f.astype(float))))
    there = exact > np.finfo(dtype).tiny
    np.testing.assert_allclose(smaller[there], exact[there], rtol=4 * eps)


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=30), DTYPES)
def test_logarithms_stay_finite_in_the_tails(scores, dtype):
    f = np.asarray(scores, dtype)
    one, flipped = Sigmoid(dtype(-2), dtype(1)), Sigmoid(dtype(2), dtype(-1))
    logit = one.logit(f)
    for sigmoid, sign in ((one, 1), (flipped, -1)):
        assert np.isfinite(sigmoid.logit(f)).all()
        log_p = sigmoid.log_proba(f)
        assert log_p.dtype == dtype and np.isfinite(log_p).all() and (log_p <= 0).all()
        exact = -np.logaddexp(0, -sign * logit.astype(float))
        eps, tiny = np.finfo(dtype).eps, np.finfo(dtype).tiny
        np.testing.assert_allclose(log_p, exact, rtol=4 * eps, atol=tiny)
        with np.errstate(under="ignore"):
            np.testing.assert_allclose(
                np.exp(log_p.astype(float)), sigmoid.predict_proba(f), rtol=400 * eps, atol=tiny
            )


# --- bad problems among good ones ----------------------------------------------------------------

POISONS = {
    "NaN score": ("scores", np.nan, Status.NON_FINITE),
    "infinite score": ("scores", np.inf, Status.NON_FINITE),
    "minus infinite score": ("scores", -np.inf, Status.NON_FINITE),
    "NaN label": ("labels", np.nan, Status.NON_FINITE),
    "NaN weight": ("weights", np.nan, Status.NON_FINITE),
    "infinite weight": ("weights", np.inf, Status.NON_FINITE),
    "no weight": ("weights", 0.0, Status.EMPTY),
}


@given(batches(), st.data(), DTYPES)
def test_a_bad_problem_leaves_every_bit_of_the_others(batch, data, dtype):
    arrays = {
        "scores": batch[0].astype(dtype),
        "labels": batch[1].astype(float),
        "weights": np.ones(batch[0].shape),
    }
    clean = pj.fit(**arrays)
    k = data.draw(st.integers(0, len(batch[0]) - 1), "problem")
    row = data.draw(st.integers(0, batch[0].shape[1] - 1), "row")
    name, value, status = POISONS[data.draw(st.sampled_from(list(POISONS)), "poison")]
    arrays[name][k, slice(None) if status == Status.EMPTY else row] = value
    with warnings.catch_warnings(action="ignore"):
        poisoned = pj.fit(**arrays)
    assert poisoned.status[k] == status and np.isnan([poisoned.A[k], poisoned.B[k]]).all()
    assert not poisoned.flags[k] & Flag.REVERSED
    for field in FIELDS:
        for fit in (clean, poisoned):
            getattr(fit, field)[k] = 0
        np.testing.assert_array_equal(getattr(poisoned, field), getattr(clean, field), field)


# --- types ---------------------------------------------------------------------------------------

SCORE_TYPES = {
    np.float64: np.float64,
    np.float32: np.float32,
    np.float16: np.float32,
    np.int64: np.float64,
    np.int8: np.float64,
}
LABEL_CODINGS = (
    lambda y: y.astype(bool),
    lambda y: y.astype(np.int64),
    lambda y: y.astype(np.float32),
    lambda y: 2 * y - 1,
    lambda y: 2.0 * y - 1,
)


@given(
    problems(),
    st.sampled_from(list(SCORE_TYPES)),
    st.sampled_from(LABEL_CODINGS),
    st.sampled_from([np.float64, np.float32, np.float16, np.int64, bool]),
)
def test_types_change_no_bit(problem, score_type, code, weight_type):
    """The numbers count, not how they are stored: all of these are exact in every type."""
    scores, labels = np.round(4 * problem[0]).astype(score_type), problem[1]
    weights = np.arange(len(labels)) % 3  # and True is 1
    weights = weights.astype(weight_type)
    expected_type = SCORE_TYPES[score_type]
    expected = pj.fit(scores.astype(expected_type), labels, weights=weights.astype(expected_type))
    got = pj.fit(scores, code(labels), weights=weights)
    assert got.A.dtype == expected_type
    jax.tree.map(np.testing.assert_array_equal, got, expected)
