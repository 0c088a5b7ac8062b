"""The decision, one problem at a time, under a plain Python loop with plain sums."""

from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from data import problem
from reference import appendix_3, six_sums, targets

from platt_jax.model.objective import Derivatives
from platt_jax.model.prior import CenteredPrior, GaussianPrior
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.solver import direction, newton, search
from platt_jax.solver.stopping import ProblemConstants
from platt_jax.status import Flag, Status

# Compiled once for all tests.
step = jax.jit(newton.step, static_argnames="options")
trial, proves = jax.jit(newton.trial_point), jax.jit(newton._proves_decrease)


def run(scores, labels, options, start, sums=six_sums, weights=None):
    """Drives the state machine with the reference sums; the trials, and the final state."""
    options = options.with_tol(np.float64)
    constants = ProblemConstants(
        *(jnp.asarray(float(x)) for x in (min(scores), max(scores), len(scores)))
    )
    state = newton.start(*(jnp.asarray(float(x)) for x in start), options)
    history = []
    while int(state.status) < 0:
        A, B = (float(x) for x in trial(state))
        loss, *at = sums(scores, labels, A, B, weights)
        before = sums(scores, labels, float(state.A), float(state.B), weights)[0]
        at = Derivatives(*(jnp.asarray(x) for x in at))
        history.append((bool(proves(state, at, constants)), loss - before, state))
        change = jnp.asarray(loss - before) if options.line_search == "loss" else None
        state = step(state, at, change, constants, options=options)
    return history, state


def prior_start(labels):
    n_pos, n_neg = np.sum(labels == 1), np.sum(labels == 0)
    return 0.0, np.log((n_neg + 1) / (n_pos + 1))


@pytest.mark.parametrize(
    "scale", [1.0, *(pytest.param(x, marks=pytest.mark.slow) for x in (1e-3, 50.0))]
)
def test_libsvm_options_follow_appendix_3_step_by_step(scale, rng, x64):
    for base_rate in (0.5, 0.1, 0.02):
        scores, labels = problem(rng, 120, shift=2.0, scale=scale, base_rate=base_rate)
        scores[0] *= 30
        A, B, iterations, halvings = appendix_3(scores, labels)
        _, state = run(scores, labels, Options.libsvm(), prior_start(labels))
        assert Status(int(state.status)) == Status.CONVERGED
        assert int(state.iterations) == iterations
        assert int(state.passes) - int(state.iterations) - 1 == halvings
        assert float(state.A) == pytest.approx(A, rel=1e-9)
        assert float(state.B) == pytest.approx(B, rel=1e-9, abs=1e-12)


@pytest.mark.slow
def test_the_decrease_of_the_loss_counts_the_prior(rng, x64):
    """Each decision is that of the loss and the penalty added up beforehand."""
    scores, labels = problem(rng, 60, scale=20.0)
    options = Options.libsvm().with_tol(np.float64)
    mean, precision = np.array([0.0, 1e4]), np.diag([0.0, 1e-6])

    def penalized(scores, labels, A, B, weights):
        off = np.array([A, B]) - mean
        loss, *at = six_sums(scores, labels, A, B, weights)
        pull, entries = precision @ off, precision[[0, 0, 1], [0, 1, 1]]
        return [loss + off @ pull / 2, *np.add(at, [*pull, *entries])]

    expected, _ = run(scores, labels, options, (-8.0, 3.0), sums=penalized)
    problem_ = search.Problem(
        Standardization(*(jnp.asarray(x) for x in (0.0, 1.0))),
        ProblemConstants(*(jnp.asarray(float(x)) for x in (min(scores), max(scores), 60))),
        *(jnp.asarray(x) for x in (False, False, -8.0, 3.0)),
    )
    decide = jax.jit(partial(search._decide, options=options))
    state = newton.start(jnp.asarray(-8.0), jnp.asarray(3.0), options)
    for *_, state_expected in expected:
        np.testing.assert_allclose(
            [state.A, state.B, state.step_size],
            [state_expected.A, state_expected.B, state_expected.step_size],
            rtol=1e-9,
        )
        A, B = newton.trial_point(state)
        loss, *at = six_sums(scores, labels, float(A), float(B))
        before = six_sums(scores, labels, float(state.A), float(state.B))[0]
        at = Derivatives(*(jnp.asarray(x) for x in at))
        prior = CenteredPrior.around_zero(GaussianPrior(mean, precision))
        state = decide(state, (A, B), at, jnp.asarray(loss - before), prior, problem_)
    proven = [proven for proven, *_ in expected[1:]]
    assert not all(proven)  # so some were accepted, or not, by the loss


def test_a_proven_decrease_is_a_decrease(rng, x64):
    """Where the derivatives claim sufficient decrease without the loss, the loss agrees."""
    counts = {True: 0, False: 0}
    for scale in (0.1, 20.0):
        for start in ((0.0, 0.0), (-8.0, 3.0)):
            scores, labels = problem(rng, 60, scale=scale)
            history, _ = run(scores, labels, Options(), start)
            for proven, change, state in history[1:]:
                slope = float(
                    state.derivatives.g_A * state.step_A + state.derivatives.g_B * state.step_B
                )
                rounding = 1e-13 * len(scores) * max(scale, 1)
                assert not proven or change <= 1e-4 * float(state.step_size) * slope + rounding
                counts[proven] += 1
    assert counts[True] > 15 and counts[False] > 5


def test_the_share_of_the_curvature_is_never_more_than_there_is(dtype, x64):
    """Integrated twice from the far end, to 60 digits; and nearly all of it where steps end."""
    x = np.concatenate([[0.0], np.geomspace(1e-8, 1e3, 200)]).astype(dtype)
    with mpmath.workdps(60):
        exact = [0.5] + [
            float((mpmath.exp(-mpmath.mpf(v)) + v - 1) / mpmath.mpf(v) ** 2) for v in x[1:].tolist()
        ]
    part = np.asarray(newton.backward_share(jnp.asarray(x))) / np.array(exact)
    assert np.max(part) <= 1 + 4 * np.finfo(dtype).eps
    assert np.min(part[x <= 1]) >= 0.9998 and np.min(part) >= 2 / 3


def test_what_decides_is_computed_once():
    """XLA would rather compute it anew for each field of the state."""
    zero = jnp.zeros((8, 128))
    options = Options().with_tol(zero.dtype)

    def decide(state, at, constants):
        return newton.step(state, at, None, constants, options)

    arguments = (
        newton.start(zero, zero, options),
        Derivatives(*[zero] * 5),
        ProblemConstants(*[zero] * 3),
    )
    text = jax.jit(decide).lower(*arguments).compile().as_text()
    assert text.count(" is-finite(") <= 2


@pytest.mark.slow
def test_statuses_of_the_search(rng, x64):
    scores, labels = problem(rng, 50)
    _, state = run(scores, labels, Options(max_iter=2), (-9.0, 2.0))
    assert state.status == Status.MAX_ITERATIONS and state.iterations == 2

    def walled_in(scores, labels, A, B, weights):
        """At the start as it is; everywhere else steeply uphill."""
        _, *at = six_sums(scores, labels, 0.0, 0.0)
        return (0.0, *at) if A == B == 0 else (1.0, *(-x for x in at[:2]), *at[2:])

    _, state = run(scores, labels, Options(min_step=1e-3), (0.0, 0.0), walled_in)
    assert state.status == Status.LINE_SEARCH_FAILED
    assert int(state.passes) == 1 + np.ceil(np.log2(1e3))

    _, state = run(scores, labels, Options(), (0.0, 0.0), lambda *a: np.full(6, np.nan))
    assert state.status == Status.NON_FINITE and state.passes == 1


def test_what_rounding_hides_is_not_searched_for(rng, x64):
    """Within ten tolerances of the optimum a rejected step ends the search, and well."""
    scores, labels = problem(rng, 50)
    _, found = run(scores, labels, Options(), prior_start(labels))
    near = float(found.A) + 5e-8 / float(found.derivatives.h_AA) ** 0.5, float(found.B)

    def uphill(scores, labels, A, B, weights):
        """At the start as it is; everywhere else uphill."""
        loss, *at = six_sums(scores, labels, *near)
        return (loss, *at) if (A, B) == near else (loss + 1, *(-x for x in at[:2]), *at[2:])

    _, state = run(scores, labels, Options(), near, uphill)
    assert state.status == Status.CONVERGED and state.passes == 2


def test_dynamic_sigma_is_zero_unless_scores_are_constant(x64):
    options = Options(sigma="dynamic")
    at = Derivatives(*(jnp.asarray(x) for x in (1.0, 1.0, 2.0, 0.0, 4.0)))
    unknown, little = (at._replace(h_AA=jnp.asarray(x)) for x in (0.0, 0.25))
    cases = (0.0, at, 0.0), (1.0, unknown, 1e-12), (1.0, little, 0.25e-12), (1.0, at, 1e-12)
    for low, given, expected in cases:
        constants = ProblemConstants(jnp.asarray(low), jnp.asarray(1.0), jnp.asarray(3.0))
        assert newton._sigma(given, constants, options) == expected
    step_A, step_B = direction.newton(at, 0.0, jnp.asarray(False))
    assert (step_A, step_B) == (-0.5, -0.25)


def test_direction_descends_even_where_the_hessian_is_singular(rng, dtype, x64):
    for _ in range(200):
        f = (1e3 + rng.normal(size=3) * 10.0 ** rng.uniform(-9, 0)).astype(dtype)
        d2 = rng.uniform(0, 0.25, 3).astype(dtype)
        sums = (np.sum(f * f * d2), np.sum(f * d2), np.sum(d2))
        g = rng.normal(size=2)
        at = Derivatives(*(jnp.asarray(x, dtype) for x in (*g, *sums)))
        step_A, step_B = direction.newton(at, 0.0, jnp.asarray(False))
        slope = float(step_A) * g[0] + float(step_B) * g[1]
        assert np.isfinite(slope) and slope < 0


def test_the_corrected_direction_is_chebyshevs_where_the_third_derivative_is_constant(x64):
    """F = a_A A^2 / 2 + a_B B^2 / 2 + c (A + 2 B)^3 / 6, the last step along the next one."""
    u, c = np.array([1.0, 2.0]), 0.02

    def derivatives(theta):
        g = np.diag([3.0, 2.0]) @ theta + c / 2 * (u @ theta) ** 2 * u
        return g, np.diag([3.0, 2.0]) + c * (u @ theta) * np.outer(u, u)

    def as_sums(g, h):
        return Derivatives(*map(jnp.asarray, (*g, h[0, 0], h[0, 1], h[1, 1])))

    theta = np.array([1.0, -2.0])
    g, h = derivatives(theta)
    s = -np.linalg.solve(h, g)
    d = 0.7 * s
    before = newton.start(*map(jnp.asarray, theta - d), Options())._replace(
        derivatives=as_sums(*derivatives(theta - d)),
        step_A=jnp.asarray(2 * d[0]),
        step_B=jnp.asarray(2 * d[1]),
        step_size=jnp.asarray(0.5),
    )
    constants = ProblemConstants(*map(jnp.asarray, (-1.0, 1.0, 10.0)))
    for way, third in (("tensor", c * (u @ s) ** 2 * u), ("newton", 0 * u)):
        options = Options(direction=way).with_tol(np.float64)
        after = newton.step(before, as_sums(g, h), None, constants, options)
        expected = -np.linalg.solve(h, g + third / 2)
        assert (after.A, after.B) == pytest.approx(theta, rel=1e-12)
        assert (after.step_A, after.step_B) == pytest.approx(expected, rel=1e-9)


def test_monotone_restarts_on_the_boundary(rng, x64):
    scores, labels = problem(rng, 80, shift=-1.0)
    _, state = run(scores, labels, Options(monotone=True), (0.0, 0.0))
    mean_target = targets(labels).mean()
    assert state.status == Status.CONVERGED
    assert float(state.A) == 0
    assert float(state.B) == pytest.approx(np.log(1 / mean_target - 1), abs=1e-8)
    _, free = run(scores, labels, Options(), (0.0, 0.0))
    assert float(free.A) > 0


@pytest.mark.parametrize(
    "bad",
    [
        {"max_iter": 0},
        {"max_iter": 1.5},
        {"max_iter": True},
        {"max_iter": 2**31},
        {"min_step": 0},
        {"min_step": 2.0},
        {"sigma": 0},
        {"sigma": "adaptive"},
        {"sigma": np.ones(2)},
        {"tol": -1e-8},
        {"tol": "tight"},
        {"start": "zero"},
        {"start": np.array(["prior"])},
        {"derivatives": "numeric"},
        {"targets": "Platt"},
        {"monotone": "yes"},
        {"non_finite": "ignore"},
        {"stopping": "loss"},
        {"standardize": None},
        {"direction": "steepest"},
    ],
)
def test_options_refuse_what_they_do_not_know(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=f"{name}=.*expected"):
        Options(**bad)


def test_options_and_messages():
    with pytest.raises(TypeError):
        Options(tolerance=1e-3)
    assert hash(Options()) == hash(Options())
    assert Options().with_tol(np.float32).tol == 1e-4
    assert Options().with_tol(np.float64).tol == 1e-8
    assert Options(stopping="gradient").with_tol(np.float32).tol == 1e-5
    assert Options(tol=0.1).with_tol(np.float32).tol == 0.1
    assert Options(max_iter=np.int64(5), tol=np.float32(1e-3)).max_iter == 5
    largest = Options(max_iter=2**31 - 1, tol=Fraction(1, 8), sigma=np.float32(0.25), min_step=1)
    assert largest == Options(max_iter=2**31 - 1, tol=0.125, sigma=0.25, min_step=1.0)
    assert {type(largest.tol), type(largest.sigma), type(largest.min_step)} == {float}
    for member in (*Status, *Flag):
        assert len(member.message) > 20
