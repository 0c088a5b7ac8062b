"""Fits over a mesh of devices: the answers of one device, and no row that leaves its own."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import platt_jax as pj

PROGRAM = Path(__file__).parents[1] / "mesh_process.py"
# As in pyproject.toml; test_programs.py expects this warning.
WARNINGS = "error", "ignore:jaxlib 0.10.2 adds up some sums wrongly:RuntimeWarning"


@pytest.mark.slow
@pytest.mark.parametrize("part", ["segments", "solve", "dense", "oversized"])
def test_on_eight_devices(part):
    filters = [f"-W{warning}" for warning in WARNINGS]
    done = subprocess.run(
        [sys.executable, *filters, str(PROGRAM), part],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "done\n", done.stderr


def test_bad_meshes_are_refused():
    device = np.array(jax.devices()[:1])
    for mesh, message in (
        ("cpu:0", "mesh: expected a jax.sharding.Mesh, got str"),
        (Mesh(device, ("x",)), 'mesh: expected axes named "problems", "rows" or both, got'),
        (Mesh(device.reshape(1, 1), ("rows", "y")), "mesh: expected axes named"),
    ):
        with pytest.raises(ValueError, match=message):
            pj.fit([1.0, 0.0], [1, 0], mesh=mesh)
        with pytest.raises(ValueError, match=message):
            pj.fit_segments([1.0, 0.0], [1, 0], ["a", "a"], mesh=mesh)


@pytest.mark.parametrize("axis", ["problems", "rows"])
def test_the_mesh_may_be_that_of_the_context(axis, rng):
    scores = rng.normal(size=(3, 50))
    labels, segments = rng.random((3, 50)) < 0.4, np.arange(150) % 3
    mesh = Mesh(np.array(jax.devices()[:1]), (axis,))
    with jax.set_mesh(mesh):
        found = pj.fit(scores, labels, mesh=mesh)
        of_segments = pj.fit_segments(scores.ravel(), labels.ravel(), segments, mesh=mesh)
        assert jax.sharding.get_abstract_mesh().axis_names == (axis,)
    np.testing.assert_allclose(found.A, pj.fit(scores, labels).A, rtol=1e-12)
    expected = pj.fit_segments(scores.ravel(), labels.ravel(), segments)
    np.testing.assert_allclose(of_segments.fit.A, expected.fit.A, rtol=1e-12)


def test_the_mesh_of_the_context_may_be_that_of_a_traced_program(rng):
    scores, labels = rng.normal(size=50), rng.random(50) < 0.4
    mesh, expected = Mesh(np.array(jax.devices()[:1]), ("problems",)), pj.fit(scores, labels).A

    @jax.jit
    def program(x):
        return x * float(pj.fit(scores, labels, mesh=mesh).A)

    with jax.set_mesh(mesh):
        np.testing.assert_allclose(program(1.0), expected, rtol=1e-6)
    assert jax.config.jax_default_device is None


@pytest.mark.slow
def test_one_device_is_a_mesh_too(rng):
    scores = rng.normal(size=(3, 50))
    labels = rng.random((3, 50)) < 0.4
    mesh = Mesh(np.array(jax.devices()[:1]), ("problems",))
    expected, found = pj.fit(scores, labels), pj.fit(scores, labels, mesh=mesh)
    for x, y in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
