"""Rows put in their places, segment by segment, against a plain sort."""

import itertools

import numpy as np
import pytest

from platt_jax import validation
from platt_jax.backend import threads
from platt_jax.execution import grouping, planning
from platt_jax.execution.grouping import GroupedRows
from platt_jax.ids.factorize import Factorized
from platt_jax.passes import shapes
from platt_jax.passes.columns import Columns
from platt_jax.passes.packing import Space

EVERY = slice(None)


@pytest.fixture(params=["by sort", "by loop"])
def way(request, monkeypatch, sizes):
    """Both ways to find the places, on three cores, with problems that count as tall.

    A stretch of the rows is cut into two pieces.
    """
    monkeypatch.setattr(grouping, "_MANY", 0 if request.param == "by loop" else 10**9)
    monkeypatch.setattr(threads, "_ROWS_PER_SLICE", 1_000)
    monkeypatch.setattr(grouping, "cores", lambda: 3)
    sizes(problem_rows=600)


def grouped(rng, numbers, low=0, dtype=np.int64):
    """Segments of very different sizes, some of none: the ids, the columns, and GroupedRows."""
    ids = (numbers * rng.random(5_432) ** 3).astype(np.int64) + low
    columns = Columns(
        rng.normal(size=len(ids)),
        rng.integers(0, 2, len(ids)).astype(np.int8),
        rng.random(len(ids)).astype(np.float32),
        rng.normal(size=len(ids)),
    )
    rows = GroupedRows(Factorized(ids.astype(dtype), dtype(low), numbers, None), columns)
    return ids, columns, rows


@pytest.mark.parametrize(
    ("numbers", "low", "dtype"),
    [(1, 5, np.uint8), (7, -3, np.int8), (300, 0, np.uint16), (70_000, 2**62, np.int64)],
)
def test_rows_of_every_slice(numbers, low, dtype, way, rng):
    ids, columns, rows = grouped(rng, numbers, low, dtype)
    keys, sizes = np.unique(ids, return_counts=True)
    np.testing.assert_array_equal(rows.keys, keys)
    np.testing.assert_array_equal(rows.sizes, sizes[rows.largest_first])

    number = np.searchsorted(keys, ids)
    by_rank = np.argsort(np.argsort(rows.largest_first)[number], kind="stable")
    ends = np.append(0, np.cumsum(rows.sizes))
    K = len(keys)
    for start, stop in {(0, K), (0, 1), (K - 1, K), (K // 3, K // 2 + 1)}:
        parts = [EVERY]
        if stop - start == 1:
            parts += [slice(0, 3), slice(2, sizes.max())]
        for part in parts:
            wanted = by_rank[ends[start] : ends[stop]][part]
            found = rows.take(slice(start, stop), part, Space(len(wanted) + 9))
            for got, column in zip(found, columns, strict=True):
                assert len(got) == len(wanted) + 9
                np.testing.assert_array_equal(got[: len(wanted)], column[wanted])


def test_all_rows_and_gaps_that_say_so(way, rng):
    _, columns, rows = grouped(rng, 300)
    everything = rows.all(EVERY, Space(rows.length))
    gap = np.isnan(everything.scores)
    assert 0 < gap.sum() == rows.length - 5_432
    assert not any(column[gap].any() for column in everything[1:])
    order, place = np.argsort(columns.scores), np.argsort(everything.scores[~gap])
    for got, column in zip(everything, columns, strict=True):
        np.testing.assert_array_equal(got[~gap][place], column[order])
    later = rows.all(slice(64, None), Space(10))
    np.testing.assert_array_equal(later.labels, everything.labels[64:74])


@pytest.mark.on_cpu
def test_chunks_and_tall_problems_begin_where_jax_takes_them_as_they_are(way, rng):
    _, _, rows = grouped(rng, 60)
    tall = int(np.sum(rows.sizes > shapes.sizes().problem_rows))
    chunks = list(planning.chunks(rows.sizes, tall))
    assert tall > 0 and len(chunks) > 1
    begun = [slice(i, i + 1) for i in range(tall)] + [chunk.problems for chunk in chunks]
    for problems in begun:
        for column in rows.take(problems, EVERY, Space(5)):
            assert column.ctypes.data % 64 == 0


def test_bad_labels_and_no_weights(way):
    scores, labels = np.arange(4.0), np.array([1, validation.BAD_LABEL, 0, 1], np.int8)
    segments = Factorized(np.array([1, 0, 1, 0]), 0, 2, None)
    rows = GroupedRows(segments, Columns(scores, labels))
    found = rows.take(slice(0, 2), EVERY, Space(4))
    np.testing.assert_array_equal(found.scores, [np.nan, 3, 0, 2])
    assert found.weights is None and found.offset is None


@pytest.mark.on_cpu
@pytest.mark.parametrize(("spare", "dtype"), [(1, np.int32), (0, np.int64)])
def test_places_have_room_for_the_end_of_any_slab(spare, dtype):
    counts = np.array([2**31 - shapes.CPU.block_rows - 64 * spare, 5])
    rows = GroupedRows.__new__(GroupedRows)
    first = rows._lay_out(Factorized(np.arange(2), 0, 2, None), counts)
    assert rows.length >= counts.sum()
    for places in (first, rows.sizes, rows.largest_first):
        assert places.dtype == dtype


def test_row_slices_cover_the_rows_once(monkeypatch):
    monkeypatch.setattr(threads, "_ROWS_PER_SLICE", 10)
    assert threads.row_slices(0) == []
    for rows, begin in itertools.product((1, 9, 10, 11, 35), (0, 100)):
        cut = threads.row_slices(rows, begin=begin)
        all_rows = [row for piece in cut for row in range(piece.start, piece.stop)]
        assert all_rows == list(range(begin, begin + rows))
        assert all(0 < piece.stop - piece.start <= 10 for piece in cut)
