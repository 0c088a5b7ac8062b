"""Chunks that fail: for want of memory, and otherwise."""

import warnings

import jax
import numpy as np
import pytest
from data import batch

import platt_jax as pj
from platt_jax.execution import planning, replicates, run
from platt_jax.execution.problems import Context, Problems
from platt_jax.passes import shapes
from platt_jax.solver.solution import ProblemInputs

pytestmark = pytest.mark.usefixtures("chunks_of_all_sizes")
ROWS_OF_A_SMALL_CHUNK = 17 * 1024


@pytest.fixture
def failing(monkeypatch):
    """A function that makes the program fail for some calls, as `fails(call, rows)` says."""
    program, calls = run.solve_chunk, []

    def install(fails, message):
        def instead(columns, *rest, **options):
            calls.append(len(columns.scores))
            if fails(len(calls), len(columns.scores)):
                raise jax.errors.JaxRuntimeError(message)
            return program(columns, *rest, **options)

        monkeypatch.setattr(run, "solve_chunk", instead)
        return calls

    return install


OUT_OF_MEMORY = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."


@pytest.mark.on_cpu
@pytest.mark.parametrize("first_failure", [1, 2])
def test_out_of_memory_goes_on_with_smaller_chunks_and_says_so_once(first_failure, rng, failing):
    scores, labels = batch(rng, 900, 1_000)
    calm = pj.fit(scores, labels)
    calls = failing(
        lambda call, rows: call >= first_failure and rows > ROWS_OF_A_SMALL_CHUNK, OUT_OF_MEMORY
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = pj.fit(scores, labels)
    assert [str(w.message) for w in said] == [
        "the device's memory ran out: going on with smaller chunks, which takes longer"
    ]
    assert said[0].filename == __file__
    assert max(calls[-20:]) <= ROWS_OF_A_SMALL_CHUNK
    np.testing.assert_array_equal(fit.status, calm.status)
    np.testing.assert_allclose(fit.A, calm.A, rtol=1e-9)


def test_both_fits_of_segments_warn_once_at_the_users_line(rng, failing):
    scores, labels = (x.reshape(-1) for x in batch(rng, 60, 1_000))
    failing(lambda call, rows: rows > ROWS_OF_A_SMALL_CHUNK, OUT_OF_MEMORY)
    with pytest.warns(RuntimeWarning, match="smaller chunks") as said, pytest.raises(MemoryError):
        pj.fit_segments(scores, labels, np.repeat(np.arange(60), 1_000))  # the pooled fit is large
    assert [warning.filename for warning in said] == [__file__]


def test_no_memory_for_the_smallest_chunk_is_an_error(rng, failing):
    scores, labels = batch(rng, 30, 1_000)
    failing(lambda call, rows: True, OUT_OF_MEMORY)
    with pytest.warns(RuntimeWarning), pytest.raises(MemoryError, match="too small"):
        pj.fit(scores, labels)


@pytest.mark.slow
def test_a_problem_that_fits_no_smaller_chunk(rng, failing):
    """The small ones are fitted by small chunks, the large one has to have a large one."""
    scores, labels = (x.reshape(-1) for x in batch(rng, 60, 1_000))
    segments = np.repeat([0, *range(1, 151)], [30_000] + [200] * 150)
    calm = pj.fit_segments(scores, labels, segments).fit
    # The pooled fit's only chunk or a large one: they are fitted at the same time.
    calls = failing(lambda call, rows: call == 2, OUT_OF_MEMORY)
    with pytest.warns(RuntimeWarning, match="smaller chunks"):
        fit = pj.fit_segments(scores, labels, segments).fit
    assert len(calls) > 3
    np.testing.assert_allclose(fit.A, calm.A, rtol=1e-9)
    failing(lambda call, rows: rows > ROWS_OF_A_SMALL_CHUNK, OUT_OF_MEMORY)
    with pytest.warns(RuntimeWarning), pytest.raises(MemoryError, match="too small") as raised:
        pj.fit(scores[:30_000], labels[:30_000])
    assert "RESOURCE_EXHAUSTED" in str(raised.value.__cause__)


@pytest.mark.on_cpu
def test_another_failure_is_passed_on_and_spoils_nothing(rng, failing):
    scores, labels = batch(rng, 900, 1_000)
    calm = pj.fit(scores, labels)
    failing(lambda call, rows: call == 2, "INTERNAL: something else")
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        pj.fit(scores, labels)
    again = pj.fit(scores, labels)
    np.testing.assert_array_equal(again.A, calm.A)


def test_no_memory_for_the_pooled_fit_is_the_same_error(rng, failing):
    scores, labels = (x.reshape(-1) for x in batch(rng, 3, 100))
    failing(lambda call, rows: True, OUT_OF_MEMORY)
    with pytest.warns(RuntimeWarning), pytest.raises(MemoryError, match="too small"):
        pj.fit_segments(scores, labels, np.repeat([1, 2, 3], 100))


def test_sizes_up_to_the_largest_that_fits_a_chunk_are_ordered():
    sizes = np.geomspace(1, 2 * shapes.ACCELERATOR.problem_rows, 3000).astype(int)
    sizes = sizes[planning.largest_first(sizes)]
    tile_rows = -(-np.minimum(sizes, shapes.ACCELERATOR.problem_rows + 1) // 1024)
    assert (np.diff(tile_rows) <= 0).all()
    starts, length = planning.layout_rows(sizes)
    assert (np.diff(starts) >= sizes[:-1]).all() and length >= sizes.sum()


@pytest.mark.parametrize("numbers", [[100], [1_000], [300, 5, 1], 3_000 * [9_000, 2_000, 100]])
def test_a_problem_has_the_same_arrays_in_any_company(monkeypatch, numbers):
    """On a GPU the order in which XLA adds up may depend on the shapes of arrays."""
    monkeypatch.setattr(shapes, "sizes", lambda: shapes.ACCELERATOR)
    sizes = np.array(numbers)[planning.largest_first(np.array(numbers))]
    chunks = list(planning.chunks(sizes, alike=1 << 20))
    assert sum(len(chunk.sizes) for chunk in chunks) == len(sizes)
    for chunk in chunks:
        tile_rows = chunk.rows // chunk.tile_shape.rows
        assert chunk.rows == 1 << 20
        assert chunk.groups == tile_rows // {128: 8, 16: 2, 1: 1}[chunk.tile_shape.lanes]
        heights = -(-chunk.sizes[:: chunk.tile_shape.group] // chunk.tile_shape.block)
        assert heights.sum() <= tile_rows
    alone = np.array([3_000_000, 10])
    first, second = planning.chunks(alone, alike=1 << 20)
    assert first.rows == 1 << 22 and second.rows == 1 << 20


def test_replicates_have_the_same_arrays_in_any_company(monkeypatch):
    monkeypatch.setattr(shapes, "sizes", lambda: shapes.ACCELERATOR)
    cuts = []

    def in_chunks(*arguments):
        cuts.append(arguments[-1])
        return [np.zeros(10)] * 4

    monkeypatch.setattr(replicates, "in_chunks", in_chunks)
    plan = replicates.Plan("poisson", 0, 5, np.arange(2, dtype=np.uint64))
    problems = Problems(np.array([900, 300]), None, np.dtype(np.float32))
    replicates.fit_replicates(problems, ProblemInputs(), plan, Context(pj.Options(), None))
    few, many = (next(cuts[0](np.full(number, 300), 0, 1 << 25)) for number in (1, 400_000))
    assert (few.rows, few.groups) == (many.rows, many.groups)
