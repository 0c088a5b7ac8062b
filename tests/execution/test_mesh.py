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


@pytest.mark.slow
def test_one_device_is_a_mesh_too(rng):
    scores = rng.normal(size=(3, 50))
    labels = rng.random((3, 50)) < 0.4
    mesh = Mesh(np.array(jax.devices()[:1]), ("problems",))
    expected, found = pj.fit(scores, labels), pj.fit(scores, labels, mesh=mesh)
    for x, y in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
