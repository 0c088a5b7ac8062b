"""Replicates are the fits with their weights handed over, whatever the layout and the company."""

import importlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import batch, labels_of

import platt_jax as pj
from platt_jax import Status
from platt_jax.backend import xla
from platt_jax.execution import planning, replicates
from platt_jax.passes import replicated, shapes

KINDS = ["poisson", "bayesian"]


def weights(kind, number, ids, rows, seed=0, dtype=np.float64):
    """(R, K, N), as the passes draw them."""
    ids = np.asarray(ids, np.uint64)
    which = np.repeat(ids, number), np.tile(np.arange(number), len(ids))
    stream = replicated.Stream(*(x[:, None] for x in replicated.streams(seed, *which)))
    draw = jax.jit(replicated.draw, static_argnums=(0, 3))
    with jax.enable_x64(True):
        drawn = draw(kind, stream, jnp.arange(rows, dtype=jnp.int32)[None], dtype)
    return np.asarray(drawn).reshape(len(ids), number, rows).swapaxes(0, 1)


@pytest.mark.parametrize(
    ("tile_shapes", "size", "kind", "weighted"),
    [
        (shapes.VECTOR_SHAPES, 40, "poisson", True),
        pytest.param(shapes.VECTOR_SHAPES, 700, "bayesian", False, marks=pytest.mark.slow),
        pytest.param(shapes.VECTOR_SHAPES, 40, "bayesian", False, marks=pytest.mark.slow),
        pytest.param(shapes.VECTOR_SHAPES, 1000, "poisson", False, marks=pytest.mark.slow),
        pytest.param(shapes.VECTOR_SHAPES, 1000, "bayesian", True, marks=pytest.mark.slow),
        pytest.param(shapes.TILE_SHAPES, 40, "poisson", True, marks=pytest.mark.slow),
        pytest.param(shapes.TILE_SHAPES, 1000, "bayesian", False, marks=pytest.mark.slow),
    ],
)
def test_a_replicate_is_the_fit_with_its_weights(rng, sizes, tile_shapes, size, kind, weighted):
    scores, labels = batch(rng, 3, size)
    own = rng.integers(0, 3, scores.shape) if weighted else np.ones(scores.shape)
    drawn = own * weights(kind, 5, range(3), size, seed=3)
    expected = pj.fit(np.tile(scores, (5, 1, 1)), labels, weights=drawn)
    sizes(tile_shapes=tile_shapes)
    given = own if weighted else None
    made = pj.inference.bootstrap(scores, labels, weights=given, replicates=5, kind=kind, seed=3)
    np.testing.assert_allclose(made.A, expected.A, rtol=1e-9)
    np.testing.assert_allclose(made.B, expected.B, rtol=1e-9, atol=1e-9)
    assert made.status.shape == (5, 3) and (made.status == Status.CONVERGED).all()


@pytest.mark.slow
def test_replicates_in_single_precision(rng):
    scores, labels = batch(rng, 2, 500)
    single, double = (
        pj.inference.bootstrap(scores.astype(x), labels, replicates=5) for x in ("f4", "f8")
    )
    assert single.A.dtype == np.float32
    np.testing.assert_allclose(single.A, double.A, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_replicates_of_an_oversized_problem(rng, sizes, kind):
    scores, labels = (x.ravel() for x in batch(rng, 1, 40_000))
    expected = pj.inference.bootstrap(scores, labels, replicates=3, kind=kind)
    sizes(problem_rows=32_768, block_rows=32_768)
    made = pj.inference.bootstrap(scores, labels, replicates=3, kind=kind)
    np.testing.assert_allclose(made.A, expected.A, rtol=1e-9)
    np.testing.assert_allclose(made.B, expected.B, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.on_cpu
def test_bits_do_not_depend_on_company_with_a_gpus_arrays(rng, monkeypatch):
    """On any device: one program computes all replicates of problems of this size."""
    gpu = shapes.CPU._replace(tile_shapes=shapes.TILE_SHAPES, tiles_at_once=None, in_lanes=False)
    monkeypatch.setattr(shapes, "sizes", lambda: gpu)
    monkeypatch.setattr(xla, "fused_cpu_supported", lambda: False)
    monkeypatch.setattr(replicates, "_CHUNK_ON_GPU", 1 << 17)
    programs, solve = set(), replicates._solve_chunk

    def seen(*arrays, **static):
        programs.add(tuple(np.shape(x) for x in jax.tree.leaves(arrays)))
        return solve(*arrays, **static)

    monkeypatch.setattr(replicates, "_solve_chunk", seen)
    scores, labels = batch(rng, 120, 250)
    whole = pj.inference.bootstrap(scores, labels, replicates=5)
    alone = pj.inference.bootstrap(scores[:2], labels[:2], replicates=4)
    for name in ("A", "B", "status"):
        assert np.array_equal(getattr(alone, name), getattr(whole, name)[:4, :2])
    assert len(programs) == 1


@pytest.mark.slow
@pytest.mark.on_cpu
@pytest.mark.parametrize("size", [250, 700])
def test_bits_depend_neither_on_chunks_nor_on_threads_nor_on_company(rng, monkeypatch, size):
    scores, labels = batch(rng, 30, size)
    whole = pj.inference.bootstrap(scores, labels, replicates=20)
    alone = pj.inference.bootstrap(scores[:2], labels[:2], replicates=7)
    for name in ("A", "B", "status"):
        assert np.array_equal(getattr(alone, name), getattr(whole, name)[:7, :2])
    before = [chunk.problems for chunk in planning.chunks(np.full(600, size))]
    monkeypatch.setattr("platt_jax.backend.threads.cores", lambda: 5)
    monkeypatch.setattr(planning, "_WORTH_A_CORE", 1 << 14)
    assert before != [chunk.problems for chunk in planning.chunks(np.full(600, size))]
    assert pj.inference.bootstrap(scores, labels, replicates=20) == whole


@pytest.mark.slow
def test_a_segment_has_its_replicates_whatever_the_other_segments(rng):
    scores, labels = (x.ravel() for x in batch(rng, 4, 300))
    segments = rng.permutation(np.repeat(["a", "bcd", "e", "f"], [500, 300, 300, 100]))
    whole = pj.inference.bootstrap(scores, labels, segments=segments, replicates=6)
    assert whole.A.shape == (6, 4) and whole.keys.tolist() == ["a", "bcd", "e", "f"]
    rows = pj.SegmentRows(scores, labels, segments)
    assert pj.inference.bootstrap(rows, replicates=6) == whole
    some = segments != "bcd"
    fewer = pj.inference.bootstrap(
        scores[some], labels[some], segments=segments[some], replicates=6
    )
    assert np.array_equal(fewer.A, whole.A[:, [0, 2, 3]])
    # The rows of a segment keep their order, and start from the segment's own fit.
    mine = segments == "f"
    one = pj.fit(scores[mine], labels[mine])
    assert abs(whole.A[:, 3].mean() - one.A) < 3 * one.standard_errors[0]
    assert whole.interval()[0].shape == (4, 2) and whole.band([0.0, 1.0])[0].shape == (4, 2)


def test_the_seed_decides(rng):
    scores, labels = batch(rng, 1, 200)
    one, same, other = (
        pj.inference.bootstrap(scores, labels, replicates=4, seed=s) for s in (1, 1, 2)
    )
    assert one == same and not np.isin(one.A, other.A).any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_are_independent_of_mean_and_variance_one(kind, dtype):
    drawn = weights(kind, 60, range(20), 1000, dtype=dtype).astype(float)
    number = drawn.size
    assert abs(drawn.mean() - 1) < 4 / np.sqrt(number)
    fourth = {"poisson": 4, "bayesian": 9}[kind]  # central moment
    assert abs(drawn.var() - 1) < 4 * np.sqrt((fourth - 1) / number)
    centred = (drawn - 1) / drawn.std()
    products = {
        "rows": centred[..., 1:] * centred[..., :-1],
        "rows 128 apart": centred[..., 128:] * centred[..., :-128],
        "replicates": centred[1:] * centred[:-1],
        "problems": centred[:, 1:] * centred[:, :-1],
    }
    for name, product in products.items():
        assert abs(product.mean()) < 4 / np.sqrt(product.size), name
    flat = centred.transpose(1, 0, 2).reshape(-1, 1000)
    correlations = np.corrcoef(flat)[np.triu_indices(len(flat), 1)]
    assert abs(correlations.std() * np.sqrt(1000) - 1) < 0.02
    assert abs(correlations).max() < 6.5 / np.sqrt(1000) * (1 if kind == "poisson" else 1.3)


def test_the_counts_of_poisson_weights():
    drawn = weights("poisson", 100, range(10), 1000)
    shares = [0.367879, 0.367879, 0.183940, 0.061313, 0.015328]
    for count, share in enumerate(shares):
        spread = np.sqrt(share * (1 - share) / drawn.size)
        assert abs((drawn == count).mean() - share) < 4 * spread


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_standard_errors_are_those_of_the_hessian(rng, kind):
    scores, labels = batch(rng, 10, 2000)
    made = pj.inference.bootstrap(scores, labels, replicates=400, kind=kind)
    ratio = made.standard_errors / made.fit.standard_errors
    assert abs(ratio.mean() - 1) < 0.03 and abs(ratio - 1).max() < 0.2


@pytest.mark.slow
def test_intervals_cover_the_parameters(rng):
    """Nearly 95 of 100 intervals hold the slope and intercept that the data were made with."""
    scores = rng.normal(size=(600, 600))
    labels = labels_of(rng, scores + 0.3)
    options = pj.Options(targets="none")
    made = pj.inference.bootstrap(scores, labels, replicates=200, options=options)
    truth = np.array([-1.0, -0.3])
    for kind in ("bca", "percentile", "basic"):
        lower, upper = made.interval(kind=kind)
        covered = ((lower <= truth) & (truth <= upper)).mean(0)
        assert (abs(covered - 0.94) < 0.03).all(), (kind, covered)
    lower, upper = made.band([-1.0, 0.0, 2.0])
    truth = 1 / (1 + np.exp(-1.0 * np.array([-1.0, 0.0, 2.0]) - 0.3))
    assert (abs(((lower <= truth) & (truth <= upper)).mean(0) - 0.94) < 0.03).all()


def test_quantiles_and_bands_are_those_of_the_replicates(rng):
    scores, labels = batch(rng, 6, 12)
    made = pj.inference.bootstrap(scores.reshape(2, 3, 12), labels.reshape(2, 3, 12), replicates=50)
    assert made.failed.any()
    A, B = (np.where(made.failed, np.nan, x) for x in (made.A, made.B))
    lower, upper = made.interval(0.9, "percentile")
    for i, x in enumerate((A, B)):
        np.testing.assert_allclose(lower[..., i], np.nanquantile(x, 0.05, axis=0), rtol=1e-12)
        np.testing.assert_allclose(upper[..., i], np.nanquantile(x, 0.95, axis=0), rtol=1e-12)
        deviation = np.nanstd(x, axis=0, ddof=1)
        np.testing.assert_allclose(made.standard_errors[..., i], deviation, rtol=1e-12)
    mirrored = 2 * np.stack([made.fit.A, made.fit.B], -1) - upper
    np.testing.assert_allclose(made.interval(0.9, "basic")[0], mirrored, rtol=1e-12)
    at = np.array([-1.0, 0.5])
    logits = -(A[..., None] * at + B[..., None])
    for found, part in zip(made.band(at, 0.9, "percentile"), (0.05, 0.95), strict=True):
        expected = 1 / (1 + np.exp(-np.nanquantile(logits, part, axis=0)))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_bands_of_many_scores_are_those_of_each(rng, monkeypatch):
    module = importlib.import_module("platt_jax.inference.bootstrap")
    scores, labels = batch(rng, 3, 60)
    made = pj.inference.bootstrap(scores, labels, replicates=20)
    whole = made.band(scores)
    monkeypatch.setattr(module, "_AT_ONCE", 20 * 7)
    assert np.array_equal(made.band(scores), whole)


@pytest.mark.slow
def test_a_prior_holds_for_every_replicate(rng):
    scores, labels = batch(rng, 2, 30)
    mean = np.array([[-1.0, 0.2], [-3.0, 0.0]])
    made = pj.inference.bootstrap(
        scores, labels, prior=pj.GaussianPrior(mean, 1e8 * np.eye(2)), replicates=5
    )
    np.testing.assert_allclose(made.A, np.tile(mean[:, 0], (5, 1)), atol=1e-5)


def test_replicates_that_fail_are_left_out(rng):
    scores = np.array([[1.0, 2.0, 3.0, np.nan], [2.0, 1.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]])
    labels = np.array([[0, 1, 0, 1], [0, 1, 0, 1], [1, 1, 1, 1]])
    with pytest.warns(RuntimeWarning, match="1 of 3 problems"):
        made = pj.inference.bootstrap(scores, labels, replicates=1000)
    assert (made.status[:, 0] == Status.NON_FINITE).all() and np.isnan(made.A[:, 0]).all()
    drawn = weights("poisson", 1000, range(3), 4)
    empty = drawn.sum(-1) == 0
    assert np.array_equal(made.status[:, 1:] == Status.EMPTY, empty[:, 1:]) and empty[:, 1].any()
    n_pos, n_neg = (drawn * labels).sum(-1), (drawn * (1 - labels)).sum(-1)
    one_class = (n_pos > 0) != (n_neg > 0)
    assert np.array_equal(made.one_class[:, 1:], one_class[:, 1:])
    assert np.isfinite(made.standard_errors[1]).all()
    for answer in (made.standard_errors, *made.interval(), *made.band(2.5 * np.ones((3, 1)))):
        assert np.isnan(answer[[0, 2]]).all() and np.isfinite(answer[1]).all()
    count = one_class[:, 1:].sum()
    text = f"{count:,} of one class, 1,000 NON_FINITE, {empty[:, 1:].sum():,} EMPTY"
    left_out = f"{int(made.failed.sum()):,} fits left out: {text}"
    assert repr(made) == f"Bootstrap: 1,000 replicates of 3 problems, {left_out}"


@pytest.mark.slow
def test_rows_that_are_not_finite_are_omitted_where_asked(rng):
    scores, labels = batch(rng, 1, 300)
    without = pj.inference.bootstrap(scores[:, :299], labels[:, :299], replicates=5)
    scores[0, 299] = np.inf
    made = pj.inference.bootstrap(
        scores, labels, replicates=5, options=pj.Options(non_finite="omit")
    )
    np.testing.assert_allclose(made.A, without.A, rtol=1e-9)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"replicates": 1}, "replicates: expected an integer from 2 to"),
        ({"replicates": 2.5}, "replicates: expected an integer"),
        ({"seed": -1}, "seed: expected an integer from 0 to"),
        ({"kind": "jackknife"}, r"kind: expected one of \('poisson', 'bayesian'\), got 'jack"),
        ({"labels": None}, "labels: "),
        ({"weights": [-1.0, 1.0]}, "weights: expected >= 0"),
        ({"segments": [1, 2, 3]}, "segments: expected one id per score"),
        ({"clusters": [1, 2, 3]}, "clusters: expected one id per row, 2 of them, got 3"),
        ({"clusters": [1, None]}, "clusters: "),
    ],
)
def test_what_is_no_bootstrap_is_refused(changed, message):
    arguments = {"scores": [1.0, 2.0], "labels": [0, 1]} | changed
    with pytest.raises(ValueError, match=message):
        pj.inference.bootstrap(**arguments)


def test_what_is_no_interval_is_refused(rng):
    made = pj.inference.bootstrap(*batch(rng, 2, 30), replicates=2)
    for level in (0, 1, "a", np.nan):
        with pytest.raises(ValueError, match=r"level: expected a number in \(0, 1\)"):
            made.interval(level)
        with pytest.raises(ValueError, match=r"level: expected a number in \(0, 1\)"):
            made.band([0.0], level)
    for call in (made.interval, partial(made.band, [0.0])):
        with pytest.raises(ValueError, match=r"kind: expected one of .'bca', .*, got 'normal'"):
            call(kind="normal")
    with pytest.raises(ValueError, match="scores: expected"):
        made.band(np.zeros((3, 5)))
