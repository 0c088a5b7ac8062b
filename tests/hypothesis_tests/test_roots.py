"""Roots between bounds, by Newton's method."""

import numpy as np

from platt_jax.hypothesis_tests.roots import newton_roots


def test_roots_are_found_where_newtons_steps_leave_the_bounds():
    goal = np.array([-0.9, 0.0, 0.9, 0.5])  # of tanh, whose steps from afar go astray

    def function(x):
        value = goal - np.tanh(x)
        return value, value * np.cosh(x) ** 2, 1e-9

    start, high = np.array([5.0, 0.0, -5.0, 2.0]), np.array([20.0, 20, 20, 2])
    low = np.array([-20.0, -20, -20, 2])
    roots, found = newton_roots(function, start, low, high, 60)
    assert found.all()
    np.testing.assert_allclose(roots[:3], np.arctanh(goal[:3]), atol=1e-12)
    assert roots[3] == 2  # equal bounds are the root
    _, found = newton_roots(function, start, low, high, 1)
    assert found.tolist() == [False, True, False, True]


def test_a_step_too_short_to_leave_a_bound_ends_the_search():
    points = []

    def function(x):
        points.append(x[0])
        return np.array([1e-20]), np.array([1e-20]), 1e-10  # x + step is x, which is now a bound

    start, high = np.array([0.25]), np.array([1.0])
    roots, found = newton_roots(function, start, np.zeros(1), high, 60)
    assert found.all() and roots[0] == 0.25 and len(points) == 1
