"""The kernels, run by the interpreter, against tiles and vectors; on a GPU, compiled."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import ragged

import platt_jax as pj
from platt_jax import Flag, Status
from platt_jax.backend import xla
from platt_jax.execution import planning
from platt_jax.model import objective
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.passes import packing, shapes
from platt_jax.passes.columns import Columns
from platt_jax.passes.pallas import pallas_rows

pytestmark = pytest.mark.slow  # compiles many programs

# Several programs and a part of one, one in full, a row more, less than a vector; and empty ones.
LARGE = np.array([9_000, 4_097, 4_096, 513, 300, 0, 0, 0])
SMALL = np.array([256, 200, 129, 128, 127, 60, 1, 0])


def columns(rng, sizes, dtype, weighted):
    """Scores, labels and weights (or None) of a chunk, some of them not finite."""
    scores, labels, _ = ragged(rng, sizes, dtype, shift=0.5)
    weights = rng.integers(0, 4, len(scores)).astype(dtype) if weighted else None
    scores[[20, 40, -1]] = np.nan, np.inf, np.nan
    if weighted:
        weights[[20, 40, 60, -1]] = 1, 0, np.inf, 1
    # What follows the rows is undefined, and less than a vector.
    long = 100 + len(scores)
    padded = np.full(long, np.nan, dtype), np.full(long, 7, np.int8), np.full(long, -1.0, dtype)
    for into, x in zip(padded, (scores, labels, weights), strict=True):
        into[: len(scores)] = 0 if x is None else x
    return Columns(*padded[:2], padded[2] if weighted else None)


def by_kernels(columns, sizes, problems_per_group, compiler="interpreter"):
    start = np.cumsum(sizes) - sizes
    ranges = (x.astype(np.int32).reshape(-1, problems_per_group) for x in (start, sizes))
    return pallas_rows(columns, *ranges, compiler)


def by_tiles(columns, sizes):
    shape = shapes.TileShape(0, 128, 1)
    length = -(-sizes // shape.block).sum() + np.sum(sizes == 0)
    chunk = planning.Chunk(slice(0, len(sizes)), sizes, shape, length * shape.block, len(sizes))
    padded = jax.tree.map(lambda x: jnp.pad(x, (0, shape.block)), columns)
    return packing.gather_tiles(padded, chunk.row_map(), block=shape.block)


def all_sums(rows, numbers, options):
    """The results of all methods, by their names."""
    A, B, center, active = (x.reshape(rows_shape(rows)) for x in numbers)
    ranges = rows.score_ranges(options)
    rows = rows.mask_nonfinite(options)
    coordinates = Standardization(center, jnp.full_like(center, 0.5))
    moments = rows.moments(coordinates)
    targets = objective.platt_targets(*(jnp.maximum(x.total, 0) for x in moments))
    rows = rows.standardized(coordinates)
    return SimpleNamespace(
        ranges=ranges,
        moments=moments,
        derivatives=rows.derivatives((A, B), targets, options),
        some=rows.derivatives((A, B), targets, options, active),
        loss=rows.loss((A, B), targets),
        change=rows.loss_change((B, A), (A, B), targets),
    ).__dict__


def rows_shape(rows):
    return rows.grid if hasattr(rows, "grid") else rows.size.shape


@pytest.mark.parametrize(
    "sizes, problems_per_group, dtype, weighted, non_finite",
    [
        (LARGE, 1, np.float64, True, "flag"),
        (LARGE, 1, np.float32, False, "omit"),
        (SMALL, 4, np.float64, False, "flag"),
        (SMALL, 4, np.float32, True, "omit"),
    ],
)
def test_all_sums_are_those_of_tiles(
    rng, sizes, problems_per_group, dtype, weighted, non_finite, x64
):
    arrays = columns(rng, sizes, dtype, weighted)
    options = Options(non_finite=non_finite)
    numbers = [rng.normal(size=len(sizes)).astype(dtype) for _ in range(3)]
    numbers.append(np.arange(len(sizes)) % 2 == 0)

    @jax.jit
    def both(arrays, numbers):
        kernels = by_kernels(arrays, sizes, problems_per_group)
        return [all_sums(rows, numbers, options) for rows in (kernels, by_tiles(arrays, sizes))]

    ours, theirs = (jax.tree.map(np.ravel, x) for x in both(arrays, numbers))
    bad = theirs["ranges"].bad
    assert bad.sum() == (0 if non_finite == "omit" else 2)
    active = numbers[-1]
    rtol = 1e-12 if dtype == np.float64 else 2e-5
    for name, expected in theirs.items():
        used = ~bad & (active if name == "some" else True)
        for x, y in zip(*map(jax.tree.leaves, (ours[name], expected)), strict=True):
            if name == "ranges":
                np.testing.assert_array_equal(x[~bad], y[~bad])
            else:
                scale = np.abs(y[used]).max()
                np.testing.assert_allclose(x[used], y[used], rtol=rtol, atol=rtol * scale)
    np.testing.assert_array_equal(ours["ranges"].bad, bad)
    assert not np.any(ours["some"].h_BB[~active])


def statuses_and_flags(rng, one_shape):
    """Rows of segments with all statuses that one call can have, and with all flags.

    With `one_shape` they are of similar sizes, for which one program is compiled, and not three.
    """
    sizes = [9_000, 500, 400, 600, 300, 700, 350, 280, 5_000, 30, 100, 20]
    if one_shape:
        sizes = [450, *sizes[1:8], 4_000]
    scores, labels, segments = ragged(rng, sizes)
    weights = rng.integers(0, 4, len(scores)).astype(float)
    of = [segments == i for i in range(len(sizes))]
    for i, value in ((1, np.nan), (7, 1e6), (9, np.inf)):
        if i < len(sizes):
            scores[np.argmax(of[i])], weights[np.argmax(of[i])] = value, 1
    scores[of[2]] = 7
    labels[of[3]] = 1
    labels[of[4]] = scores[of[4]] > 0
    labels[of[5]] = 1 - labels[of[5]]
    scores[of[8]] *= 1e-8
    weights[of[6]] = 0
    if not one_shape:
        weights[of[11]] = 0
    return {"scores": scores, "labels": labels, "segments": segments, "weights": weights}


OPTIONS = {
    "default": Options(),
    "one step": Options(max_iter=1, start="prior"),
    "libsvm": Options.libsvm(),
    "monotone": Options(derivatives="autodiff", targets="none", monotone=True, non_finite="omit"),
    "loss": Options(line_search="loss", stopping="gradient", sigma="dynamic", standardize=False),
}


@pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing")
@pytest.mark.parametrize(
    "kernels, options",
    [
        ("interpreter", "default"),
        *(("interpreter+search", options) for options in OPTIONS),
    ],
)
def test_fits_are_those_of_vectors_or_tiles(rng, monkeypatch, options, kernels):
    """Tiles take longer to compile; test_vectors.py compares them with vectors."""
    one_shape = options not in ("default", "monotone")
    arrays, options = statuses_and_flags(rng, one_shape), OPTIONS[options]
    with monkeypatch.context() as patch:
        if options.targets == "none":  # a search without an optimum ends where rounding decides
            patch.setattr(xla, "fused_cpu_supported", lambda: False)
        theirs = pj.fit_segments(**arrays, options=options).fit
    monkeypatch.setenv("PLATT_JAX_KERNELS", kernels)
    ours = pj.fit_segments(**arrays, options=options).fit
    if options == Options():
        found = np.bitwise_or.reduce(theirs.flags)
        assert Flag(int(found)) == ~Flag(0)
        assert set(theirs.status) == {Status.CONVERGED, Status.NON_FINITE, Status.EMPTY}
    finite = theirs.status != Status.NON_FINITE
    for name in ("status", "flags", "iterations", "passes", "n_pos", "n_neg"):
        x, y = (getattr(fit, name) for fit in (ours, theirs))
        of = finite | (name in ("status", "flags"))
        np.testing.assert_array_equal(x[of], y[of], err_msg=name)
    theta = (np.stack([fit.A, fit.B], -1) for fit in (ours, theirs))
    distance = np.abs(np.subtract(*theta))
    known = theirs.standard_errors > 0
    assert np.all(distance[known] <= 1e-6 * theirs.standard_errors[known])
    for name in ("A", "B", "nll", "hessian", "covariance"):
        x, y = (getattr(fit, name) for fit in (ours, theirs))
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-7, err_msg=name)


def test_bits_depend_neither_on_other_problems_nor_on_the_place(rng, x64):
    sizes = np.array([700, 9_000, 4_500])
    rows = columns(rng, sizes, np.float64, True)
    one = jnp.ones(3)

    @jax.jit
    def sums(arrays, start, size):
        rows = pallas_rows(arrays, start[:, None], size[:, None], "interpreter")
        rows = rows.standardized(Standardization(one[:, None], one[:, None]))
        targets = objective.plain_targets(one[:, None], one[:, None])
        return jnp.stack(rows.derivatives((one[:, None], one[:, None]), targets, Options()))

    among = sums(rows, np.int32([0, 700, 9_700]), np.int32(sizes))
    moved = jax.tree.map(lambda x: np.roll(x, 1_235 - 700), rows)
    alone = sums(moved, np.int32([0, 0, 1_235]), np.int32([0, 0, 9_000]))
    np.testing.assert_array_equal(alone[:, 2], among[:, 1])
    assert np.all(among[4] > 0)


@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_of_an_oversized_problem(rng, monkeypatch, sizes, weighted):
    sizes(problem_rows=1_000, block_rows=8 * 4096)
    scores, labels, _ = ragged(rng, [70_000])
    weights = rng.integers(0, 4, len(scores)).astype(float) if weighted else None
    theirs = pj.fit(scores, labels, weights=weights)
    monkeypatch.setenv("PLATT_JAX_KERNELS", "interpreter")
    ours = pj.fit(scores, labels, weights=weights)
    assert ours.status == theirs.status and ours.passes == theirs.passes
    np.testing.assert_allclose([ours.A, ours.B], [theirs.A, theirs.B], rtol=1e-9)
    np.testing.assert_allclose(ours.hessian, theirs.hessian, rtol=1e-9)


def test_an_unknown_compiler_is_an_error(rng, monkeypatch):
    monkeypatch.setenv("PLATT_JAX_KERNELS", "gcc+search")
    with pytest.raises(ValueError, match=r"PLATT_JAX_KERNELS: .*gcc"):
        pj.fit([1.0, 2.0, 3.0], [0, 1, 0])


@pytest.mark.skipif(jax.default_backend() == "cpu", reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:.*Pallas Triton backend is deprecated")
@pytest.mark.parametrize("compiler", ["triton", "mosaic"])
@pytest.mark.parametrize("sizes, problems_per_group", [(LARGE, 1), (SMALL, 4)])
@pytest.mark.parametrize("weighted", [False, True])
def test_compiled_kernels_are_the_interpreters(
    rng, dtype, compiler, sizes, problems_per_group, weighted, x64
):
    arrays = columns(rng, sizes, dtype, weighted)
    numbers = [rng.normal(size=len(sizes)).astype(dtype) for _ in range(3)]
    numbers.append(np.arange(len(sizes)) % 2 == 0)

    @partial(jax.jit, static_argnames="compiler")
    def run(arrays, numbers, compiler):
        rows = by_kernels(arrays, sizes, problems_per_group, compiler)
        return all_sums(rows, numbers, Options(non_finite="omit"))

    ours, theirs = (run(arrays, numbers, compiler=x) for x in (compiler, "interpreter"))
    rtol = 1e-12 if dtype == np.float64 else 2e-5
    for x, y in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        scale = np.abs(np.where(np.isfinite(y), y, 0)).max()
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * scale)
