"""Run by test_mesh.py, since JAX must be told of eight devices before it starts."""

import os
import re
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import numpy as np
from data import rows_of
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import platt_jax as pj
from platt_jax.execution import run

DEVICES = np.array(jax.devices())
MESHES = {
    "problems": Mesh(DEVICES, ("problems",)),
    "rows": Mesh(DEVICES, ("rows",)),
    "both": Mesh(DEVICES.reshape(4, 2), ("rows", "problems")),
    "three": Mesh(DEVICES[:3], ("problems",)),
}
COLLECTIVES = "all-gather|all-to-all|collective-permute|collective-broadcast|reduce-scatter"
programs = []
compiled = {}


def recorded(columns, where, given, **static):
    """`_solve_on_mesh`, whose compiled text is kept."""
    arrays, tree = jax.tree.flatten((columns, where, given))
    kind = (tree, *((x.shape, x.dtype) for x in arrays), *static.items())
    if kind not in compiled:
        compiled[kind] = solve_on_mesh.lower(columns, where, given, **static).compile()
    programs.append((compiled[kind].as_text(), where))
    return compiled[kind](columns, where, given)


solve_on_mesh, run._solve_on_mesh = run._solve_on_mesh, recorded


def ragged(rng, sizes):
    """Rows of segments of these sizes, in any order."""
    segments = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return rows_of(rng, segments, A=-rng.uniform(0.2, 2, len(sizes)))


def check(found, expected, what):
    """Equal to rounding, statuses and flags exactly."""
    for name in ("status", "flags", "n_pos", "n_neg"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), what)
    with np.errstate(all="ignore"):
        errors = np.sqrt(expected.covariance[..., [0, 1], [0, 1]])
        for parameter, error in zip("AB", np.moveaxis(errors, -1, 0), strict=True):
            a, b = getattr(found, parameter), getattr(expected, parameter)
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b), what)
            off = np.abs(a - b) / np.maximum(error, 1e-300)
            assert np.nanmax(np.where(error > 0, off, 0)) < 1e-9, (what, np.nanmax(off))
    np.testing.assert_allclose(found.nll, expected.nll, rtol=1e-12, err_msg=what)


def check_programs():
    """No row leaves its device: what is added up is as large as the problems."""
    for text, where in programs:
        assert not re.search(rf" ({COLLECTIVES})(-start)?\(", text)
        for line in re.findall(r".* all-reduce(?:-start)?\(.*", text):
            for shape in re.findall(r"[a-z]+\d*\[([\d,]*)\]", line.split(" all-reduce")[0]):
                assert np.prod([int(x) for x in shape.split(",") if x]) <= where_problems(where)
    programs.clear()


def where_problems(where):
    """Places for problems of a chunk."""
    return len(where.tiles_per_group) // 8 * where.start.shape[1]


def segments():
    rng = np.random.default_rng(0)
    sizes = np.r_[20_000, 9_000, 70_000, 3, 1, rng.integers(1, 400, 695)]
    scores, labels, ids = ragged(rng, sizes)
    weights = rng.integers(0, 3, len(scores)).astype(float)
    expected = pj.fit_segments(scores, labels, ids, weights=weights)
    for name in ("both", "three"):
        mesh = MESHES[name]
        found = pj.fit_segments(scores, labels, ids, weights=weights, mesh=mesh)
        check(found.fit, expected.fit, name)
        again = pj.fit_segments(scores, labels, ids, weights=weights, mesh=mesh)
        for x, y in zip(*map(jax.tree.leaves, (found.fit, again.fit)), strict=True):
            np.testing.assert_array_equal(x, y, name)
        shared = any("all-reduce" in text for text, _ in programs)
        assert shared == (name == "both")
        np.testing.assert_allclose(found.fallback.A, expected.fallback.A, rtol=1e-12)
        check_programs()


def dense():
    """Batches that do not divide, priors, starts, options, bad rows; few problems."""
    rng = np.random.default_rng(1)
    prior = pj.GaussianPrior(rng.normal(size=(3, 2)), np.broadcast_to(np.eye(2), (3, 2, 2)))
    cases = (
        ("problems", {}),
        ("rows", {}),
        ("problems", {"prior": prior}),
        ("rows", {"start": (np.array([-1.0, np.nan, 5.0]), 0.5)}),
        ("problems", {"options": pj.Options(targets="none", monotone=True)}),
        ("both", {"options": pj.Options(intercept=False, line_search="loss")}),
        ("both", {"options": pj.Options(non_finite="omit")}),
    )
    scores = rng.normal(size=(3, 1003))
    labels = rng.random((3, 1003)) < 0.3
    scores[2, 7] = np.inf
    for name, case in cases:
        if case.get("options", pj.Options()).non_finite != "omit":
            scores[2, 7] = 0.5
        expected = pj.fit(scores, labels, **case)
        check(pj.fit(scores, labels, mesh=MESHES[name], **case), expected, f"{name} {case}")
        scores[2, 7] = np.inf
    check_programs()


def oversized():
    """A problem that fits no chunk is shared by all devices; a population."""
    rng = np.random.default_rng(2)
    scores, labels, ids = ragged(rng, np.r_[600_000, np.full(60, 300)])
    for pooling, name in (("none", "problems"), ("partial", "both")):
        expected = pj.fit_segments(scores, labels, ids, pooling=pooling)
        found = pj.fit_segments(scores, labels, ids, pooling=pooling, mesh=MESHES[name])
        # Of a population that was estimated anew, to rounding too.
        np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(found.fit.status, expected.fit.status)


def solve():
    """Arrays that are sharded already, and derivatives."""
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(16, 512)).astype(np.float32)
    labels, weights = rng.random((16, 512)) < 0.4, rng.random((16, 512)).astype(np.float32)
    prior = pj.GaussianPrior(np.zeros(2, np.float32), np.eye(2, dtype=np.float32))

    def slopes(scores, labels):
        return pj.solve(scores, labels, weights=weights, prior=prior).A

    def gradient(scores, labels):
        return jax.grad(lambda f: slopes(f, labels).sum())(scores)

    expected = slopes(scores, labels), gradient(jax.numpy.asarray(scores), labels)
    for kind, problems, rows in (
        (AxisType.Auto, "p", "r"),
        (AxisType.Explicit, "p", "r"),
        (AxisType.Explicit, None, ("p", "r")),
    ):
        mesh = jax.make_mesh((2, 4), ("p", "r"), axis_types=(kind,) * 2)
        over = NamedSharding(mesh, PartitionSpec(problems, rows))
        f, y = (jax.device_put(jax.numpy.asarray(x), over) for x in (scores, labels))
        with jax.set_mesh(mesh):
            one = jax.jit(slopes).lower(f, y).compile() if kind is AxisType.Explicit else slopes
            found = one(f, y), gradient(f, y)
        assert found[0].sharding.spec in (PartitionSpec(problems), PartitionSpec())
        for x, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, want, rtol=2e-3, atol=1e-6)
        if kind is AxisType.Explicit:
            text = one.as_text()
            assert not re.search(rf" ({COLLECTIVES})(-start)?\(", text)
            assert bool(rows) == ("all-reduce" in text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
    print("done")
