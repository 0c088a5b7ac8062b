"""Problems of too many rows for a chunk, block by block."""

import warnings
from operator import itemgetter

import jax
import numpy as np
import pytest
from data import problem
from reference import six_sums

import platt_jax as pj
from platt_jax.execution import oversized, run
from platt_jax.passes import blocks, packing
from platt_jax.passes.columns import Columns
from platt_jax.solver.solution import ProblemInputs
from platt_jax.status import Status

FIELDS = ("A", "B", "status", "flags", "iterations", "nll", "hessian", "covariance", "n_pos")
ROWS = 8_000  # three blocks of the small ones below, the last of them in part


@pytest.fixture
def small_blocks(sizes):
    """A function that makes every problem of more than 1,000 rows go by small blocks."""

    return lambda: sizes(problem_rows=1_000, block_rows=3_072)


def both_ways(small_blocks, *arguments, **keywords):
    """The fit by one chunk, and the fit by blocks."""
    by_chunk = pj.fit(*arguments, **keywords)
    small_blocks()
    return by_chunk, pj.fit(*arguments, **keywords)


def assert_same(by_blocks, by_chunk, rtol=1e-9):
    for name in FIELDS:
        np.testing.assert_allclose(
            getattr(by_blocks, name), getattr(by_chunk, name), rtol=rtol, atol=1e-12, err_msg=name
        )


def rows(rng, count=ROWS):
    scores, labels = problem(rng, count, shift=1.5)
    return scores + 3, labels


@pytest.mark.parametrize(
    "options",
    [
        pj.Options(),
        pytest.param(pj.Options.libsvm(), marks=pytest.mark.slow),
        pytest.param(
            pj.Options(monotone=True, targets="none", start="prior"), marks=pytest.mark.slow
        ),
        pytest.param(pj.Options(derivatives="autodiff", sigma="dynamic"), marks=pytest.mark.slow),
    ],
    ids=["default", "libsvm", "monotone", "autodiff"],
)
def test_blocks_find_what_a_chunk_finds(small_blocks, rng, options):
    scores, labels = rows(rng)
    if options.monotone:
        scores = -scores
    by_chunk, by_blocks = both_ways(small_blocks, scores, labels, options=options)
    assert by_blocks.status == Status.CONVERGED
    assert by_blocks.passes == by_chunk.passes
    assert_same(by_blocks, by_chunk)


def test_the_gradient_vanishes_where_it_should(small_blocks, rng):
    small_blocks()
    scores, labels = rows(rng)
    fit = pj.fit(scores, labels)
    loss, g_A, g_B, *hessian = six_sums(scores, labels, fit.A, fit.B)
    assert fit.nll == pytest.approx(loss, rel=1e-12)
    assert max(abs(g_A), abs(g_B)) < 1e-6
    np.testing.assert_allclose(fit.hessian[[0, 0, 1], [0, 1, 1]], hessian, rtol=1e-9)


@pytest.mark.slow
def test_weights_and_prior(small_blocks, rng):
    scores, labels = rows(rng)
    weights = rng.integers(0, 3, ROWS).astype(float)
    scores[weights == 0] = np.where(rng.random((weights == 0).sum()) < 0.5, np.nan, 1e9)
    prior = pj.GaussianPrior(np.array([-3.0, 1.0]), np.diag([1e4, 1e2]))
    assert_same(*reversed(both_ways(small_blocks, scores, labels, weights=weights, prior=prior)))


@pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, ROWS - 1])
def test_one_bad_row(small_blocks, rng, bad, place):
    small_blocks()
    scores, labels = rows(rng)
    scores[place] = bad
    assert pj.fit(scores, labels).status == Status.NON_FINITE
    omitted = pj.fit(scores, labels, options=pj.Options(non_finite="omit"))
    assert_same(omitted, pj.fit(np.delete(scores, place), np.delete(labels, place)))


def test_a_bad_label_is_a_bad_row(small_blocks, rng):
    small_blocks()
    scores, labels = rows(rng)
    labels = labels.astype(float)
    labels[4_000] = np.nan
    with pytest.warns(RuntimeWarning, match="NaN"):
        assert pj.fit(scores, labels).status == Status.NON_FINITE


@pytest.mark.parametrize("kind", ["one class", "constant", "separable", "outlier"])
def test_flags(small_blocks, rng, kind):
    scores, labels = rows(rng)
    if kind == "one class":
        labels = np.ones(ROWS, bool)
    elif kind == "constant":
        scores = np.full(ROWS, 7.0)
    elif kind == "separable":
        labels = scores > 3
    else:
        scores[-1] = 1e6
    by_chunk, by_blocks = both_ways(small_blocks, scores, labels)
    assert by_blocks.flags == by_chunk.flags != 0
    assert by_blocks.status == Status.CONVERGED
    np.testing.assert_allclose(by_blocks.nll, by_chunk.nll, rtol=1e-9)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("place", [0, ROWS - 1])
def test_one_row_of_one_block_makes_classes_overlap(small_blocks, rng, label, side, place):
    small_blocks()
    scores, labels = rows(rng)
    labels = np.where(side * (scores - 3) > 0, 1 - label, label)
    assert pj.Flag(int(pj.fit(scores, labels).flags)) & pj.Flag.SEPARABLE
    scores[place], labels[place] = side * 100, label
    assert not pj.Flag(int(pj.fit(scores, labels).flags)) & pj.Flag.SEPARABLE


@pytest.mark.slow
def test_among_other_problems(small_blocks, rng):
    """The oversized ones of a job go by blocks, the rest by chunks, and each is where it was."""
    scores, labels = rows(rng, 6_000)
    segments = np.repeat([3, 1, 2, 5, 4], [2_000, 500, 3_000, 300, 200])
    order = rng.permutation(6_000)
    scores, labels, segments = scores[order], labels[order], segments[order]
    chunks = pj.fit_segments(scores, labels, segments)
    small_blocks()
    mixed = pj.fit_segments(scores, labels, segments)
    assert_same(mixed.fit, chunks.fit)
    np.testing.assert_allclose(mixed.fallback.A, chunks.fallback.A, rtol=1e-9)
    dense = pj.fit(scores.reshape(3, 2_000), labels.reshape(3, 2_000))
    for i in range(3):
        part = slice(2_000 * i, 2_000 * (i + 1))
        alone = pj.fit(scores[part], labels[part])
        assert_same(alone, jax.tree.map(lambda x: x[i], dense))  # noqa: B023


@pytest.mark.slow
def test_float32_counts_are_exact(sizes, rng):
    """Sums of float32 over all the rows would lose some; over a block they are whole numbers."""
    sizes(problem_rows=1_000, block_rows=128)
    scores, labels = rows(rng)
    weights = np.full(ROWS, 13_001.0, np.float32)
    fit = pj.fit(scores.astype(np.float32), labels, weights=weights)
    assert fit.n_pos == np.float32(13_001 * labels.sum())
    assert fit.n_neg == np.float32(13_001 * (ROWS - labels.sum()))


@pytest.mark.slow
@pytest.mark.parametrize("weight", [1e35, 1e36])
def test_sums_that_overflow_say_so_by_the_status_alone(small_blocks, rng, weight):
    small_blocks()
    scores, labels = rows(rng)
    weights = np.full(ROWS, weight, np.float32)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = pj.fit(scores.astype(np.float32), labels, weights=weights)
    assert fit.status != Status.CONVERGED or np.isfinite(fit.A)
    assert all("overflowing numbers in 1" in str(w.message) for w in said)


def test_same_input_same_bits(small_blocks, rng):
    small_blocks()
    scores, labels = rows(rng)
    one, other = (pj.fit(scores, labels) for _ in range(2))
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_any_size_runs_by_the_same_programs_and_leaves_the_rows_alone(small_blocks, rng):
    small_blocks()
    scores, labels = rows(rng)
    before = scores.copy(), labels.copy()
    pj.fit(scores, labels)
    compiled = blocks._block_result._cache_size()
    for count in (1_001, 4_000, 6_144):
        pj.fit(scores[:count], labels[:count])
    assert blocks._block_result._cache_size() == compiled
    np.testing.assert_array_equal((scores, labels), before)


@pytest.mark.on_cpu
def test_want_of_memory_is_a_memory_error(small_blocks, rng, monkeypatch):
    small_blocks()

    def fails(*rows, **options):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(run, "fit_on_host", fails)
    with pytest.raises(MemoryError, match="too small"):
        pj.fit(*rows(rng))


def test_a_loss_that_is_not_wanted_is_nan_outside_of_programs_only(small_blocks, rng, x64):
    small_blocks()
    columns = Columns(*rows(rng))

    def take(part, length):
        return packing.flat(jax.tree.map(itemgetter(part), columns), length)

    options = pj.Options().with_tol(np.float64)
    with jax.debug_nans(True):
        rows_of_blocks = blocks.Blocks(
            source=[oversized.read_block(take, x) for x in oversized.block_slices(ROWS)]
        )
        fit = oversized.fit_on_host(rows_of_blocks, ProblemInputs(), options, loss=False)
    assert fit.status == Status.CONVERGED and np.isnan(fit.nll)


@pytest.mark.slow
def test_the_pooled_fit_of_segments_makes_no_pass_for_the_loss(small_blocks, rng, monkeypatch):
    small_blocks()
    scores, labels = rows(rng)
    pooled = pj.fit(scores, labels).sigmoid

    def fails(*arguments, **keywords):
        raise AssertionError("a pass for a loss that nobody reads")

    monkeypatch.setattr(blocks.Blocks, "loss", fails)
    found = pj.fit_segments(scores, labels, np.arange(ROWS) % 20).fallback
    np.testing.assert_allclose([found.A, found.B], [pooled.A, pooled.B], rtol=1e-9)
