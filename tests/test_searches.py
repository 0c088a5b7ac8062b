"""Searches for roots and maxima."""

from typing import NamedTuple

import numpy as np
import pytest

from platt_jax.searches import newton_maximum, newton_roots


def test_roots_are_found_where_newtons_steps_leave_the_bounds():
    goal = np.array([-0.9, 0.0, 0.9, 0.5])  # of tanh, whose steps from afar go astray

    def function(x):
        value = goal - np.tanh(x)
        return value, value * np.cosh(x) ** 2, 1e-9

    start, high = np.array([5.0, 0.0, -5.0, 2.0]), np.array([20.0, 20, 20, 2])
    low = np.array([-20.0, -20, -20, 2])
    roots = newton_roots(function, start, low, high)
    assert roots.found.all()
    np.testing.assert_allclose(roots.at[:3], np.arctanh(goal[:3]), atol=1e-12)
    assert roots.at[3] == 2  # equal bounds are the root


def test_roots_are_found_where_newtons_steps_gain_little():
    goal = 1e-200  # of exp(-x), towards which each step is 1 long

    def function(x):
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return np.exp(-x) - goal, 1 - goal * np.exp(x), 1e-9

    roots = newton_roots(function, np.zeros(1), np.full(1, -1e6), np.full(1, 1e6))
    assert roots.found.all()
    np.testing.assert_allclose(roots.at, -np.log(goal), rtol=1e-9)


def test_a_root_that_is_not_found_is_nan():
    def function(x):
        return np.where(x > 0.4, np.nan, 0.9 - x), 0.9 - x, 1e-9

    roots = newton_roots(function, np.zeros(2), np.full(2, -1.0), np.array([1.0, 0.0]))
    assert roots.found.tolist() == [False, True]
    np.testing.assert_array_equal(roots.or_nan(), [np.nan, 0.0])


class _Parabola(NamedTuple):
    """-|x|^2, with steps that are too long by this factor."""

    parameters: np.ndarray
    factor: float

    @property
    def value(self):
        return -float(self.parameters @ self.parameters)

    @property
    def step(self):
        return -self.factor * self.parameters

    @property
    def decrement(self):
        return 2 * float(self.parameters @ self.parameters)


@pytest.mark.parametrize(("factor", "found"), [(1.0, True), (3.0, True), (64.0, False)])
def test_a_maximum_is_found_if_some_length_of_the_steps_gains(factor, found):
    made = newton_maximum(
        lambda x: _Parabola(x, factor), np.ones(2), enough=1e-8, near=1e-8, lengths=4
    )
    assert made[1] == found
    assert (abs(made[0].value) < 1e-8) == found


def test_an_end_that_is_near_counts_as_a_maximum():
    def function(x):
        return _Parabola(x, 64.0)

    start = np.full(2, 1e-3)
    assert newton_maximum(function, start, enough=1e-8, near=1e-5, lengths=4)[1]
    assert not newton_maximum(function, start * np.nan, enough=1e-8, near=1e-5, lengths=4)[1]


def test_a_step_too_short_to_leave_a_bound_ends_the_search():
    points = []

    def function(x):
        points.append(x[0])
        return np.array([1e-20]), np.array([1e-20]), 1e-10  # x + step is x, which is now a bound

    start, high = np.array([0.25]), np.array([1.0])
    roots, found = newton_roots(function, start, np.zeros(1), high)
    assert found.all() and roots[0] == 0.25 and len(points) == 1


def test_a_root_between_two_neighbours_is_found():
    """Near 1 numbers are 1e-16 apart, and a tolerance relative to the complement is smaller."""
    apart = 2.0**-53
    below = 1 - 2.0**-20

    def function(at):
        # Rounding makes the step from either neighbour lead to the other.
        step = (below - at) + np.where(at <= below, 0.7, 0.3) * apart
        return step, step, 1e-10 * (1 - at)

    roots = newton_roots(function, np.full(1, 0.5), np.zeros(1), np.ones(1))
    assert 1e-10 * (1 - below) < apart
    assert roots.found[0] and abs(roots.at[0] - below) <= apart
