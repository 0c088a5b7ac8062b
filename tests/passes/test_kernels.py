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
from platt_jax.passes import kernels, packing, shapes
from platt_jax.passes.columns import Columns
from platt_jax.population import quadrature
from platt_jax.solver import dense, in_kernel
from platt_jax.solver.solution import ProblemInputs

slow = pytest.mark.slow  # compiles many programs

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


def by_kernels(columns, sizes, problems_per_group, numbers, options, compiler="interpreter"):
    """`all_sums` of one kernel."""
    start = np.cumsum(sizes) - sizes
    grid = len(sizes) // problems_per_group, problems_per_group
    where = shapes.RowRanges(*(x.astype(np.int32).reshape(grid) for x in (start, sizes)))
    numbers = [x.reshape(grid) for x in numbers]
    return kernels.by_problem(partial(all_sums, options=options), columns, where, numbers, compiler)


def by_tiles(columns, sizes):
    shape = shapes.TileShape(0, 128, 1)
    length = -(-sizes // shape.block).sum() + np.sum(sizes == 0)
    chunk = planning.Chunk(slice(0, len(sizes)), sizes, shape, length * shape.block, len(sizes))
    padded = jax.tree.map(lambda x: jnp.pad(x, (0, shape.block)), columns)
    return packing.gather_tiles(padded, chunk.row_map(), block=shape.block)


def all_sums(rows, numbers, options):
    """The results of all methods, by their names."""
    A, B, center = numbers
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
        loss=rows.loss((A, B), targets),
        change=rows.loss_change((B, A), (A, B), targets),
    ).__dict__


@slow
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

    @jax.jit
    def both(arrays, numbers):
        on_tiles = [x[:, None] for x in numbers]
        return (
            by_kernels(arrays, sizes, problems_per_group, numbers, options),
            all_sums(by_tiles(arrays, sizes), on_tiles, options),
        )

    ours, theirs = (jax.tree.map(np.ravel, x) for x in both(arrays, numbers))
    bad = theirs["ranges"].bad
    assert bad.sum() == (0 if non_finite == "omit" else 2)
    rtol = 1e-12 if dtype == np.float64 else 2e-5
    for name, expected in theirs.items():
        for x, y in zip(*map(jax.tree.leaves, (ours[name], expected)), strict=True):
            if name == "ranges":
                np.testing.assert_array_equal(x[~bad], y[~bad])
            else:
                scale = np.abs(y[~bad]).max()
                np.testing.assert_allclose(x[~bad], y[~bad], rtol=rtol, atol=rtol * scale)
    np.testing.assert_array_equal(ours["ranges"].bad, bad)


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
    "monotone": Options(targets="none", monotone=True, non_finite="omit"),
    "loss": Options(line_search="loss", stopping="gradient", sigma="dynamic", standardize=False),
}


@slow
@pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing")
@pytest.mark.parametrize("options", OPTIONS)
def test_fits_are_those_of_vectors_or_tiles(rng, monkeypatch, options):
    """Tiles take longer to compile; test_vectors.py compares them with vectors."""
    one_shape = options not in ("default", "monotone")
    arrays, options = statuses_and_flags(rng, one_shape), OPTIONS[options]
    with monkeypatch.context() as patch:
        if options.targets == "none":  # a search without an optimum ends where rounding decides
            patch.setattr(xla, "fused_cpu_supported", lambda: False)
        theirs = pj.fit_segments(**arrays, options=options).fit
    monkeypatch.setenv("PLATT_JAX_KERNELS", "interpreter")
    ours = pj.fit_segments(**arrays, options=options).fit
    if options == Options():
        found = np.bitwise_or.reduce(theirs.flags)
        assert Flag(int(found)) == ~Flag(0)
        assert set(theirs.status) == {Status.CONVERGED, Status.NON_FINITE, Status.EMPTY}
    finite = theirs.status != Status.NON_FINITE
    # A search without an optimum ends where rounding decides.
    ended = (options.targets != "none") | (theirs.status != Status.MAX_ITERATIONS)
    for name in ("status", "flags", "iterations", "passes", "n_pos", "n_neg"):
        x, y = (getattr(fit, name) for fit in (ours, theirs))
        of = finite | (name in ("status", "flags"))
        if name in ("iterations", "passes"):
            of &= ended
        np.testing.assert_array_equal(x[of], y[of], err_msg=name)
    theta = (np.stack([fit.A, fit.B], -1) for fit in (ours, theirs))
    distance = np.abs(np.subtract(*theta))
    known = (theirs.standard_errors > 0) & ended[:, None]
    assert np.all(distance[known] <= 1e-6 * theirs.standard_errors[known])
    for name in ("A", "B", "nll", "hessian", "covariance"):
        x, y = (getattr(fit, name)[ended] for fit in (ours, theirs))
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-7, err_msg=name)


@slow
def test_bits_depend_neither_on_other_problems_nor_on_the_place(rng, x64):
    sizes = np.array([700, 9_000, 4_500])
    rows = columns(rng, sizes, np.float64, True)

    @jax.jit
    def fits(arrays, start, size):
        where = shapes.RowRanges(start[:, None], size[:, None])
        options = Options().with_tol(np.float64)
        return in_kernel.fit_ranges(arrays, where, ProblemInputs(), options, "interpreter").nll

    among = fits(rows, np.int32([0, 700, 9_700]), np.int32(sizes))
    moved = jax.tree.map(lambda x: np.roll(x, 1_235 - 700), rows)
    alone = fits(moved, np.int32([0, 0, 1_235]), np.int32([0, 0, 9_000]))
    assert alone[2] == among[1] > 0


@pytest.mark.parametrize("weighted", [pytest.param(False, marks=slow), True])
def test_solve_by_a_kernel_is_solve(rng, monkeypatch, weighted, x64):
    """With offsets and priors; one class, constant scores, a NaN; two leading axes."""
    scores, offset = rng.normal(size=(2, 2, 3, 400))
    labels = (rng.random(scores.shape) < 0.4).astype(int)
    labels[0, 0], scores[0, 1], scores[1, 1, 7] = 1, 3.0, np.nan
    weights = rng.integers(0, 3, scores.shape) if weighted else None
    root = rng.normal(size=(2, 3, 2, 2))
    prior = pj.GaussianPrior(rng.normal(size=2), root @ root.swapaxes(-1, -2)) if weighted else None
    with monkeypatch.context() as patch:
        patch.setenv("PLATT_JAX_KERNELS", "none")
        expected = pj.solve(scores, labels, weights=weights, offset=offset, prior=prior)
    monkeypatch.setenv("PLATT_JAX_KERNELS", "interpreter")
    made = []
    monkeypatch.setattr(dense, "_solve_by_kernel", spy(dense._solve_by_kernel, made))
    found = pj.solve(scores, labels, weights=weights, offset=offset, prior=prior)
    assert len(made) == 1
    np.testing.assert_array_equal(found.status, expected.status)
    np.testing.assert_array_equal(found.flags, expected.flags)
    for name in ("A", "B", "nll", "covariance", "n_pos"):
        x, y = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12, err_msg=name)
    # A kernel has neither derivatives nor a rule for vmap.
    slope = jax.grad(lambda f: pj.solve(f, labels[1, 0]).A)(scores[1, 0])
    assert np.all(np.isfinite(slope))
    assert len(made) == 1


@slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_population_by_kernels_is_one_by_vectors(rng, monkeypatch, dtype):
    """The losses at the nodes, and the fits with the population as prior."""
    scores, _, segments = ragged(rng, [400, 300, 350, 500, 280, 30], dtype)
    offset, weights = rng.normal(size=len(scores)), rng.integers(0, 3, len(scores))
    labels = rng.random(len(scores)) < 1 / (1 + np.exp(-scores * (1 + segments / 3) - offset))
    made = []
    monkeypatch.setattr(kernels, "by_problem", spy(kernels.by_problem, made))
    monkeypatch.setattr(quadrature, "by_problem", kernels.by_problem)
    rows = {"scores": scores, "labels": labels, "segments": segments}
    fits = []
    for compiler in ("none", "interpreter"):
        assert not made
        monkeypatch.setenv("PLATT_JAX_KERNELS", compiler)
        fits.append(pj.fit_segments(**rows, offset=offset, weights=weights, pooling="partial"))
    assert len(made) > 2
    theirs, ours = fits
    rtol = 1e-8 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(ours.population.mean, theirs.population.mean, rtol=rtol)
    np.testing.assert_allclose(ours.population.covariance, theirs.population.covariance, rtol=rtol)
    np.testing.assert_allclose(
        ours.predict_proba(scores, segments), theirs.predict_proba(scores, segments), rtol=rtol
    )


def spy(function, calls):
    def run(*arguments):
        calls.append(arguments)
        return function(*arguments)

    return run


def test_an_unknown_compiler_is_an_error(rng, monkeypatch):
    monkeypatch.setenv("PLATT_JAX_KERNELS", "gcc")
    with pytest.raises(ValueError, match=r"PLATT_JAX_KERNELS: .*gcc"):
        pj.fit([1.0, 2.0, 3.0], [0, 1, 0])


@slow
@pytest.mark.skipif(jax.default_backend() == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("sizes, problems_per_group", [(LARGE, 1), (SMALL, 4)])
@pytest.mark.parametrize("weighted", [False, True])
def test_compiled_kernels_are_the_interpreters(
    rng, dtype, sizes, problems_per_group, weighted, x64
):
    arrays = columns(rng, sizes, dtype, weighted)
    numbers = [rng.normal(size=len(sizes)).astype(dtype) for _ in range(3)]

    @partial(jax.jit, static_argnames="compiler")
    def run(arrays, numbers, compiler):
        options = Options(non_finite="omit")
        return by_kernels(arrays, sizes, problems_per_group, numbers, options, compiler)

    ours, theirs = (run(arrays, numbers, compiler=x) for x in ("mosaic", "interpreter"))
    rtol = 1e-12 if dtype == np.float64 else 2e-5
    for x, y in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        scale = np.abs(np.where(np.isfinite(y), y, 0)).max()
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * scale)
