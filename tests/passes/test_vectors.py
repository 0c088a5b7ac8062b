"""Rows a vector at a time, against tiles and against arithmetic of many digits."""

from itertools import chain

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from data import problem, ragged

import platt_jax as pj
from platt_jax.backend import threads, xla
from platt_jax.execution import planning, run
from platt_jax.passes import elementary, shapes, vectors
from platt_jax.passes.columns import Columns
from platt_jax.solver.solution import ProblemInputs
from platt_jax.status import Status

# Side by side, and one after the other: full vectors, a row more, a row less, several blocks.
SIZES = [1, 2, 5, 128, 129, 256, 257, 300, 384, 1_000, 8_193, 20_000]
# Of each way some: all of them and their sum have one shape as tiles, which take long to compile.
SIDE_BY_SIDE, ONE_AFTER_THE_OTHER = [2, 5, 20, 30, 40, 50, 100], [257, 300, 384, 600, 1_000]

OPTIONS = [
    pj.Options(),
    pj.Options.libsvm(),
    pj.Options(derivatives="autodiff", targets="none", monotone=True),
    pj.Options(line_search="loss", stopping="gradient", start="prior", sigma="dynamic"),
    pj.Options(line_search="loss", standardize=False, non_finite="omit", monotone=True),
]


def by_both(monkeypatch, *arguments, **keywords):
    """The fit of segments by strips, and by tiles."""
    by_strips = pj.fit_segments(*arguments, **keywords)
    monkeypatch.setattr(xla, "fused_cpu_supported", lambda: False)
    return by_strips.fit, pj.fit_segments(*arguments, **keywords).fit


def segments(rng, dtype, sizes):
    """Problems of these sizes, some of the rows not finite, of which one has no weight."""
    scores, labels, ids = ragged(rng, sizes, dtype, shift=0.5)
    weights = rng.integers(0, 4, len(scores)).astype(dtype)
    bad = len(scores) * np.array([1, 6, 20]) // 25
    scores[bad] = np.nan, np.inf, np.nan
    weights[bad[1]] = 0
    return scores, labels, ids, weights


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing")
@pytest.mark.parametrize(
    "dtype, sizes, weighted, options",
    [
        (np.float32, SIZES, True, OPTIONS[0]),
        (np.float64, SIDE_BY_SIDE, False, OPTIONS[1]),
        (np.float64, ONE_AFTER_THE_OTHER, True, OPTIONS[2]),
        (np.float64, SIDE_BY_SIDE, True, OPTIONS[3]),
        (np.float64, ONE_AFTER_THE_OTHER, False, OPTIONS[4]),
    ],
)
def test_tiles_find_the_same(monkeypatch, rng, dtype, sizes, weighted, options):
    *rows, weights = segments(rng, dtype, sizes)
    prior = pj.GaussianPrior([-1.0, 0.5], [[2.0, 0.5], [0.5, 1.0]])
    extra = {"weights": weights, "prior": prior} if weighted else {}
    ours, theirs = by_both(monkeypatch, *rows, options=options, **extra)
    np.testing.assert_array_equal(ours.status, theirs.status)
    np.testing.assert_array_equal(ours.flags, theirs.flags)
    assert (ours.status == Status.CONVERGED).sum() > len(sizes) / 2
    rtol = 1e-7 if dtype == np.float64 else 2e-3
    for name in ("A", "B", "nll", "hessian", "covariance", "n_pos", "n_neg"):
        np.testing.assert_allclose(
            *(getattr(fit, name) for fit in (ours, theirs)), rtol=rtol, atol=rtol, err_msg=name
        )


def test_exponentials_are_exact_to_a_few_units(dtype, x64):
    top = 700 if dtype == np.float64 else 80
    distance = np.concatenate([[0], np.linspace(0, top, 3_001), np.geomspace(1e-9, top, 2_000)])
    distance = distance.astype(dtype)
    e, one = jax.jit(elementary.exp_quotient)(distance)
    exact = [mpmath.exp(-mpmath.mpf(float(x))) for x in distance]
    tail = np.array([float(x / (1 + x)) for x in exact])
    loss = np.array([float(mpmath.log1p(x)) for x in exact])
    few = 5 * np.finfo(dtype).eps
    np.testing.assert_allclose(e / (e + one), tail, rtol=few)
    np.testing.assert_allclose(jax.jit(elementary.log1p_unit)(e / one), loss, rtol=few)


def test_a_logarithm_of_a_product_is_exact_to_a_few_units(dtype, x64):
    x = np.concatenate([[0, 1], np.geomspace(1e-30, 1e-6, 100), 2 ** np.linspace(-20, 100, 5_001)])
    x = x.astype(dtype)
    exact = np.array([float(mpmath.log1p(mpmath.mpf(float(y)))) for y in x])
    np.testing.assert_allclose(jax.jit(elementary.log1p)(x), exact, rtol=5 * np.finfo(dtype).eps)


@pytest.mark.parametrize("rows", [30, pytest.param(20_000, marks=pytest.mark.slow)])
def test_losses_far_below_rounding_are_summed_up(rows):
    """Of a product of 1 + 1e-13, half the digits would be gone."""
    scores = np.where(np.arange(rows) % 3, 1.0, -1.0)
    prior = pj.GaussianPrior([-30.0, 0.0], np.eye(2) * 1e6)
    fit = pj.fit(scores, scores > 0, prior=prior, options=pj.Options(targets="none"))
    assert fit.status == Status.CONVERGED
    np.testing.assert_allclose(fit.nll, rows * np.exp(-30.0), rtol=1e-9)


def test_exponentials_far_out(dtype, x64):
    e, one = elementary.exp_quotient(jnp.asarray([1e4, 1e30, np.inf, np.nan], dtype))
    assert np.all(np.asarray(e / one)[:3] <= 2 * np.finfo(dtype).tiny)
    assert np.isnan(e[3])


def test_loops_are_marked_in_the_compiled_program():
    """As a call in the outermost computation, which XLA did not take apart."""

    def loop(x):
        return jax.lax.fori_loop(0, 10, lambda i, x: x / 2 + jnp.roll(x, 1), x)

    text = jax.jit(xla.single_call(loop)).lower(np.ones(5_000, np.float32)).compile().as_text()
    entry = text[text.index("ENTRY") :]
    assert 'xla_cpu_small_call="true"' in entry and " call(" in entry


@pytest.mark.on_cpu
def test_the_numbers_of_one_problem_are_scalars(x64):
    """Of operations on arrays [1, 1] XLA makes loops, and compiling takes a third longer."""
    chunk = next(planning.chunks(np.full(500, 1_000)))
    columns = Columns(np.zeros(chunk.capacity), np.zeros(chunk.capacity, np.int8))
    options = pj.Options().with_tol(np.float64)
    arguments = columns, chunk.row_map(), ProblemInputs()
    text = run.solve_chunk.lower(*arguments, options=options, block=128).as_text()
    assert text.count("-> tensor<f64>") > 100
    assert text.count("-> tensor<1x1xf64>") < 10


@pytest.mark.parametrize(
    "version, platform, expected",
    [
        ("0.8.0", "cpu", True),
        ("0.12.0.1", "cpu", True),
        ("0.11.1", "cpu", False),
        ("0.99.0", "cpu", False),
        ("0.12.0", "gpu", False),
    ],
)
def test_strips_are_for_cpus_and_versions_that_were_tried(monkeypatch, version, platform, expected):
    monkeypatch.setattr(xla.jaxlib, "__version__", version)
    monkeypatch.setattr(xla, "platform", lambda: platform)
    assert xla.fused_cpu_supported() == expected


def test_the_default_device_may_be_told_by_name():
    for device in chain(["cpu"], jax.devices("cpu")):
        with jax.default_device(device):
            assert xla.platform() == "cpu"


@pytest.mark.parametrize("rows", [30, 400])
def test_a_row_of_weight_0_is_gone_however_far_out(rng, rows):
    scores, labels = problem(rng, rows + 1)
    scores, weights = scores * 1e-8, np.ones(rows + 1)
    without = pj.fit(scores[:-1], labels[:-1], weights=weights[:-1])
    scores[-1], weights[-1] = 1e305, 0
    np.testing.assert_array_equal(pj.fit(scores, labels, weights=weights).A, without.A)


@pytest.mark.on_cpu
def test_any_mix_of_sizes_is_two_shapes(rng):
    found = set()
    for mix in (
        np.full(1000, 1000),
        np.full(8, 100_000),
        np.maximum(1, rng.lognormal(5, 1.5, 20_000)).astype(int),
        np.repeat([250, 12, 1], [50_000, 150_000, 1_000_000]),
    ):
        sizes = mix[planning.largest_first(mix)]
        plan = list(planning.chunks(sizes, tile_shapes=shapes.VECTOR_SHAPES))
        np.testing.assert_array_equal(np.concatenate([c.sizes for c in plan]), sizes)
        for chunk in plan:
            start, size = (x.ravel() for x in chunk.row_map())
            problems = len(chunk.sizes)
            np.testing.assert_array_equal(size[:problems], chunk.sizes)
            assert np.all(size[problems:] == 0)
            np.testing.assert_array_equal(start[1:problems], np.cumsum(chunk.sizes)[:-1])
            # A vector may be read past the last row.
            assert (
                chunk.sizes.sum() + (vectors.LANES if chunk.tile_shape.group == 1 else 0)
                <= chunk.capacity
            )
        most = shapes.CPU.chunk_rows[-1]
        found |= {(c.capacity, c.grid) for c in plan if c.rows == (c.tile_shape.most or most)}
    assert len(found) == 2


def test_problems_side_by_side_end_together_and_their_results_stay_near(rng):
    sizes = rng.integers(5, 21, 50_000)
    order = planning.largest_first(sizes)
    np.testing.assert_array_equal(np.sort(order), np.arange(len(sizes)))
    whole = len(sizes) // vectors.LANES * vectors.LANES
    slices = sizes[order][:whole].reshape(-1, vectors.LANES)
    assert vectors.LANES * slices.max(1).sum() < 1.05 * slices.sum()
    # Not from all over: a chunk's results would take longer on their way home.
    assert np.median([np.ptp(order[i : i + 4_096]) for i in range(0, whole, 4_096)]) < 20_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line_search", "derivatives", "stopping"),
    [
        ("gradient", "analytic", "decrement"),
        ("gradient", "autodiff", "gradient"),
        ("loss", "analytic", "gradient"),
        ("loss", "autodiff", "decrement"),
    ],
)
def test_no_option_makes_an_operation_too_large(rng, line_search, derivatives, stopping):
    """One that XLA shares among threads cannot be linked within a function: an INTERNAL error."""
    rows = 20  # side by side, where operations are the largest
    scores, labels = problem(rng, 3 * rows)
    options = pj.Options(
        line_search=line_search,
        derivatives=derivatives,
        stopping=stopping,
        monotone=True,
        targets="none",
        start="prior",
        sigma="dynamic",
        non_finite="omit",
        standardize=line_search == "gradient",
    )
    prior = pj.GaussianPrior([-1.0, 0.0], np.eye(2))
    fit = pj.fit(
        scores.reshape(3, -1),
        labels.reshape(3, -1),
        weights=np.ones((3, rows)),
        prior=prior,
        options=options,
    )
    assert np.all(fit.A <= 0)


@pytest.mark.on_cpu
def test_chunks_and_slabs_end_together_on_all_cores(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 4)
    plan = list(planning.chunks(np.full(3_000, 1_000), tile_shapes=shapes.VECTOR_SHAPES))
    problems = [chunk.problems.stop - chunk.problems.start for chunk in plan]
    assert len(plan) == 8 and max(problems) - min(problems) < 10
    assert len(list(planning.chunks(np.full(60, 1_000), tile_shapes=shapes.VECTOR_SHAPES))) == 1
    assert -(-5_000_000 // planning.block_length(5_000_000)) == 8
