"""Programs of one call that do not wait for each other, and what they may grow to."""

import threading

import jax
import numpy as np
import pytest
from scipy.special import expit

import platt_jax as pj
from platt_jax.execution import run


@pytest.fixture
def calls(monkeypatch):
    """The calls of the program for chunks: their threads and arguments."""
    made, program = [], run.solve_chunk

    def recorded(*arguments, **named):
        made.append((threading.get_ident(), arguments, named))
        return program(*arguments, **named)

    monkeypatch.setattr(run, "solve_chunk", recorded)
    monkeypatch.setattr(run, "_compiled", set())
    return made


def rows():
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(40), 30)
    scores = rng.normal(size=ids.size)
    return scores, rng.random(ids.size) < expit(scores + rng.normal(size=40)[ids]), ids


def with_prior(calls):
    return [x for x in calls if getattr(x[1][2], "prior", None) is not None]


@pytest.mark.on_cpu
def test_segments_program_is_compiled_beside_the_fit_of_all_rows(calls):
    first = pj.fit_segments(*rows(), pooling="partial")
    thread, arguments, _ = with_prior(calls)[0]
    assert thread != threading.get_ident()
    # The same program as the fits that follow.
    later = with_prior(calls)[1]
    assert later[0] == threading.get_ident()
    assert [x.shape for x in arguments[0][:2]] == [x.shape for x in later[1][0][:2]]
    calls.clear()
    again = pj.fit_segments(*rows(), pooling="partial")
    assert {x[0] for x in with_prior(calls)} == {threading.get_ident()}
    np.testing.assert_array_equal(first.fit.A, again.fit.A)


@pytest.mark.on_cpu
def test_out_of_memory_ahead_leaves_the_fit_as_it_is(calls, monkeypatch):
    expected = pj.fit_segments(*rows(), pooling="partial")
    monkeypatch.setattr(run, "_compiled", set())
    recorded, here = run.solve_chunk, threading.get_ident()

    def out_of_memory_ahead(*arguments, **named):
        if threading.get_ident() != here:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return recorded(*arguments, **named)

    monkeypatch.setattr(run, "solve_chunk", out_of_memory_ahead)
    made = pj.fit_segments(*rows(), pooling="partial")
    np.testing.assert_array_equal(made.fit.A, expected.fit.A)


@pytest.mark.slow
@pytest.mark.on_cpu
def test_conditions_are_computed_once(calls):
    """XLA would compute a condition anew for each field of a search's state."""

    def operations(function):
        calls.clear()
        function()
        _, arguments, named = calls[-1]
        lowered = PROGRAM.lower(*arguments, **named)
        quickly = {"xla_backend_optimization_level": 0}
        return lowered.compile(compiler_options=quickly).as_text().count(" = ")

    scores, labels = (x.reshape(40, 30) for x in rows()[:2])
    plain = operations(lambda: pj.fit(scores, labels))
    prior = pj.GaussianPrior(np.array([-1.0, 0.0]), np.eye(2))
    start = np.full(40, -1.0), np.zeros(40)
    with_start = operations(lambda: pj.fit(scores, labels, prior=prior, start=start))
    spline = operations(lambda: pj.fit(scores, labels, curve="spline"))
    assert with_start < 1.5 * plain
    assert spline < 1.6 * plain


PROGRAM = run.solve_chunk
