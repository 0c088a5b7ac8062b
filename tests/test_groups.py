"""Rows of groups end to end, against plain loops."""

import numpy as np
import pytest

from platt_jax.groups import Groups, order_by

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


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_cumulated_sums_restart_in_each_group(sizes):
    groups, x = Groups(sizes), np.random.default_rng(0).normal(size=(2, sum(sizes)))
    parts = np.split(x, np.cumsum(sizes)[:-1], axis=1) if sizes else []
    expected = [np.cumsum(part, axis=1) for part in parts]
    found = groups.cumulated(x)
    assert found.shape == x.shape and found.tolist() == np.hstack([*expected, x[:, :0]]).tolist()


def test_lines_hold_each_row_once_and_groups_of_like_sizes():
    sizes = np.random.default_rng(0).permutation([*range(70), 1000, 1, 1, 0])
    groups, seen = Groups(sizes), []
    for some, rows, inside in groups.lines():
        assert inside.sum(1).tolist() == sizes[some].tolist() and inside.mean() > 0.4
        assert np.arange(groups.rows)[rows].tolist() == groups.rows_of(some).tolist()
        seen += np.arange(groups.rows)[rows].tolist()
    assert sorted(seen) == list(range(groups.rows))


def test_a_group_loses_no_digit_beside_a_large_one():
    groups, x = Groups([2, 1, 3]), np.array([1e17, 1e300, 1e308, 0.1, 0.2, 0.3])
    assert groups.cumulated(x)[3:].tolist() == np.cumsum(x[3:]).tolist()


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


@pytest.mark.parametrize("digits", [None, 1, 0])
def test_rows_are_ordered_by_group_number_label_and_place(digits):
    rng = np.random.default_rng(0)
    for largest in (2, 40, 300):
        groups = Groups(rng.integers(0, largest, 30))
        x, label = rng.normal(size=groups.rows), rng.random(groups.rows) < 0.5
        x = x if digits is None else np.round(x, digits)  # ties
        x[:2] = np.inf, -0.0
        assert groups.order(x).tolist() == np.lexsort((x, groups.owner)).tolist()
        expected = np.lexsort((label, x, groups.owner)).tolist()
        assert groups.order(x, label).tolist() == expected


@pytest.mark.parametrize("most", [1, 300, 1 << 17, 1 << 40])
def test_integers_are_ordered_stably(most):
    numbers = np.random.default_rng(0).integers(0, most, 5_000)
    assert order_by(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()
