"""Fits where the user debugs: JAX's modes, a traced function, sharded arrays, warnings."""

import os
import subprocess
import sys
import warnings
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import platt_jax as pj
from platt_jax.backend import xla
from platt_jax.caller import Caller
from platt_jax.execution import grouping
from platt_jax.passes import shapes


@contextmanager
def everywhere(name, value):
    """A setting for all threads."""
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        yield
    finally:
        jax.config.update(name, before)


MODES = {
    "disable_jit": jax.disable_jit,
    "debug_nans": lambda: jax.debug_nans(True),
    "debug_infs": lambda: jax.debug_infs(True),
    "transfer_guard": lambda: jax.transfer_guard("disallow_explicit"),
    "disable_jit everywhere": lambda: everywhere("jax_disable_jit", True),
    "debug_nans everywhere": lambda: everywhere("jax_debug_nans", True),
}


@pytest.fixture
def jobs(rng, monkeypatch):
    """Fits of all kinds: functions that return arrays."""
    monkeypatch.setattr(grouping, "_MANY", 1_000)  # so that a compiled loop places the rows
    scores = rng.normal(size=(3, 50))
    labels = rng.random((3, 50)) < 0.4
    segments = np.repeat(np.arange(300), 20)
    many, of_many = rng.normal(size=6_000), rng.random(6_000) < 0.4

    def fit_segments():
        fitted = pj.fit_segments(many, of_many, segments)
        return fitted.fit.A, fitted.predict_proba(many, segments)

    return {
        "fit": lambda: pj.fit(scores, labels).A,
        "constant": lambda: pj.fit([1.0, 1.0, 1.0], [0, 1, 0]).covariance,
        "one-vs-rest": lambda: pj.fit_one_vs_rest(scores.T, np.arange(50) % 3).fit.A,
        "segments": fit_segments,
        "curve": lambda: pj.fit(scores, labels, curve="temperature").predict_proba(scores),
    }


def assert_same(found, expected):
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(got, np.ndarray)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("mode", MODES)
def test_what_people_debug_with_changes_no_fit(jobs, mode):
    for job in jobs.values():
        expected = job()
        with MODES[mode]():
            found = job()
        assert_same(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.make_jaxpr], ids=lambda f: f.__name__)
def test_concrete_arrays_are_fitted_inside_a_traced_function(jobs, transform):
    found = {}

    def traced(x):
        found.update({name: job() for name, job in jobs.items()})
        return x + 1

    transform(traced)(np.zeros(3, np.float32))
    for name, job in jobs.items():
        assert_same(found[name], job())


@pytest.mark.slow
@pytest.mark.parametrize("types", [None, (AxisType.Auto,)], ids=["explicit", "auto"])
@pytest.mark.parametrize("spec", [PartitionSpec("x"), PartitionSpec(None, "x")], ids=str)
def test_solve_takes_arrays_over_a_mesh(rng, types, spec):
    scores = rng.normal(size=(4, 48)).astype(np.float32)
    labels = rng.random((4, 48)) < 0.4
    mesh = jax.make_mesh((1,), ("x",), axis_types=types)
    over = NamedSharding(mesh, spec)
    f, y = jax.device_put(scores, over), jax.device_put(jnp.asarray(labels), over)
    expected = pj.solve(scores, labels)

    def slope(f, y):
        return pj.solve(f, y, weights=jnp.ones(48)).A

    for run in (slope, jax.jit(slope), jax.vmap(slope)):
        np.testing.assert_allclose(run(f, y), expected.A, rtol=1e-5)
    with jax.set_mesh(mesh):
        by_scores = jax.grad(lambda f: slope(f, y).sum())(f)
    plain = jax.grad(lambda f: slope(f, labels).sum())(jnp.asarray(scores))
    np.testing.assert_allclose(by_scores, plain, rtol=1e-4, atol=1e-7)


ON_FOUR_DEVICES = """
import jax, jax.numpy as jnp, numpy as np, platt_jax as pj
from jax.sharding import NamedSharding, PartitionSpec as P
rng = np.random.default_rng(0)
f, y = rng.normal(size=(8, 48)).astype(np.float32), rng.random((8, 48)) < 0.4
mesh = jax.make_mesh((4,), ("x",))
expected = pj.solve(f, y)
for spec, of_results in ((P("x"), P("x")), (P(None, "x"), P(None))):
    over = NamedSharding(mesh, spec)
    found = pj.solve(jax.device_put(f, over), jax.device_put(jnp.asarray(y), over))
    assert found.A.sharding.spec == of_results, found.A.sharding
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
print("done")
"""


@pytest.mark.slow
def test_results_are_sharded_as_the_problems_are(tmp_path):
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-W", "error", "-c", ON_FOUR_DEVICES]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.stdout == "done\n", done.stderr


@pytest.mark.slow
def test_traced_labels_of_any_type_under_strict_promotion(rng):
    scores = rng.normal(size=30).astype(np.float32)
    for labels in (scores > 0, (scores > 0).astype(np.int8), (scores > 0).astype(np.float32)):
        traced = jax.jit(pj.solve)(scores, labels)
        np.testing.assert_array_equal(traced.A, pj.solve(scores, labels).A)


def test_warnings_name_the_users_line():
    scores = np.array([np.nan, 1.0, 0.0, 2.0])
    calls = (
        lambda: pj.fit(scores, [0, 1, 0, 1]),
        lambda: pj.fit(np.zeros((4, 1)), np.array([[0], [1], [0], [1]])),
        lambda: pj.fit_segments(scores, [0, 1, 0, 1], [1, 1, 2, 2]),
        lambda: pj.fit_one_vs_rest(np.stack([scores, scores], 1), [0, 1, 0, 1]),
        lambda: pj.fit(scores, [0, 1, 0, 1], curve="bins"),
    )
    for call in calls:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            call()
        (warning,) = said
        assert warning.filename == __file__
        assert warning.lineno == call.__code__.co_firstlineno


def test_a_jaxlib_on_which_the_fast_path_was_not_tried_is_told_once(monkeypatch):
    monkeypatch.setattr(xla.jaxlib, "__version__", "0.99.0")
    monkeypatch.setattr(xla, "platform", lambda: "cpu")
    # The program of other tests; the one for such a jaxlib is that of a GPU.
    monkeypatch.setattr(shapes, "sizes", lambda: shapes.CPU)
    monkeypatch.setattr(Caller, "_warned_once", set())
    with pytest.warns(RuntimeWarning, match=r"jaxlib 0\.99\.0: .* twice as fast") as said:
        for _ in range(2):
            pj.fit([1.0, 2.0, 3.0], [0, 1, 0])
    assert len(said) == 1
    assert said[0].filename == __file__


def test_the_installed_jaxlib_was_tried():
    assert xla.is_tried(xla.jaxlib.__version__)


def test_no_module_is_named_like_a_public_function():
    """`from platt_jax import solve` must mean the function wherever it stands."""
    for name in pj.__all__:
        assert f"platt_jax.{name}" not in sys.modules
