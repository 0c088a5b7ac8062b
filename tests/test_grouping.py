"""Rows dealt out to buckets and brought together by segment, against a plain sort."""

import numpy as np
import pytest

from platt_jax import threads
from platt_jax.grouping import GroupedRows


@pytest.mark.parametrize(
    ("segments", "firsts"),
    [(1, [0]), (7, [0]), (7, [0, 1, 5]), (300, [0, 3, 299]), (300, range(300)), (70_000, [0, 9])],
)
@pytest.mark.parametrize("smallest", [True, False])
def test_rows_of_every_slice(segments, firsts, smallest, rng, monkeypatch):
    dtype = np.min_scalar_type(segments) if smallest else np.int64
    monkeypatch.setattr(threads, "_PIECE", 1_000)
    codes = rng.integers(0, segments, 5_432).astype(dtype)
    rows = GroupedRows(codes, segments)
    sizes = np.bincount(codes, minlength=segments)
    np.testing.assert_array_equal(rows.sizes, sizes[rows.tallest_first])
    np.testing.assert_array_equal(rows.rank[rows.tallest_first], np.arange(segments))

    rows.deal(np.array(firsts))
    values, ids = rng.normal(size=len(codes)), np.arange(len(codes))
    by_rank = np.argsort(rows.rank[codes], kind="stable")
    ends = np.append(0, np.cumsum(rows.sizes))
    slices = [(0, segments), (0, 1), (segments - 1, segments), (segments // 3, segments // 2 + 1)]
    for start, stop in slices:
        wanted = by_rank[ends[start] : ends[stop]]
        found = rows.take(slice(start, stop), slice(None), (values, None, ids))
        np.testing.assert_array_equal(found[0], values[wanted])
        assert found[1] is None
        np.testing.assert_array_equal(found[2], wanted)
        if stop - start == 1:
            for part in (slice(0, 3), slice(2, len(wanted)), slice(len(wanted) // 2, len(wanted))):
                (found,) = rows.take(slice(start, stop), part, (ids,))
                np.testing.assert_array_equal(found, wanted[part])


def test_pieces_cover_the_rows_once(monkeypatch):
    monkeypatch.setattr(threads, "_PIECE", 10)
    for rows in (1, 9, 10, 11, 35):
        cut = threads.pieces(rows)
        np.testing.assert_array_equal(
            np.concatenate([np.arange(rows)[piece] for piece in cut]), np.arange(rows)
        )
        assert all(0 < piece.stop - piece.start <= 10 for piece in cut)
