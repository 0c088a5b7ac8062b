"""Rows of groups end to end, against plain loops."""

import numpy as np
import pytest

from platt_jax.groups import Groups

SIZES = {
    "usual": [3, 1, 4],
    "empty groups": [0, 2, 0, 0, 5, 0],
    "no groups": [],
    "no rows": [0, 0],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_values_of_groups_equal_a_plain_loop(sizes):
    groups, x = Groups(sizes), np.random.default_rng(0).normal(size=(2, sum(sizes)))
    parts = np.split(x, np.cumsum(sizes)[:-1], axis=1) if sizes else []
    owner = [k for k, size in enumerate(sizes) for _ in range(size)]
    assert groups.rows == sum(sizes)
    assert groups.owner.tolist() == owner
    assert groups.place.tolist() == [place for size in sizes for place in range(size)]
    assert groups.starts.tolist() == [sum(sizes[:k]) for k in range(len(sizes))]
    assert groups.by_row(np.arange(len(sizes))).tolist() == owner
    for reduced, plain, nothing in (
        (groups.sums, np.sum, 0),
        (groups.minima, np.min, np.inf),
        (groups.maxima, np.max, -np.inf),
        (groups.means, np.mean, np.nan),
    ):
        expected = [plain(part, axis=1) if part.size else [nothing] * 2 for part in parts]
        found = reduced(x)
        assert found.shape == (2, len(sizes))
        np.testing.assert_allclose(found.T, np.reshape(expected, (len(sizes), 2)), rtol=1e-15)


def test_sums_of_integers_are_integers():
    assert Groups([0, 2]).sums([1, 2]).dtype == Groups([2]).sums([1, 2]).dtype == np.int64


def test_slices_have_at_most_so_many_rows_or_one_group():
    groups = Groups([2, 0, 3, 9, 1, 1])
    found = list(groups.slices(5))
    assert [groups.sizes[some].tolist() for some in found] == [[2, 0, 3], [9], [1, 1]]
    assert list(Groups([]).slices(5)) == []


def test_the_rows_of_some_groups():
    groups = Groups([2, 0, 3, 1])
    assert groups.rows_of([2, 1, 0]).tolist() == [2, 3, 4, 0, 1]
