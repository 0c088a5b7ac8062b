"""How programs are compiled: by one function, which keeps XLA from sums that it gets wrong."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import platt_jax as pj
from platt_jax.backend import xla
from platt_jax.caller import Caller
from platt_jax.execution import run
from platt_jax.inference import expansion
from platt_jax.population import search

PACKAGE = Path(pj.__file__).parent
ROWS = 16_385

# Where `jax.jit` may stand.
_ALLOWED = "xla.py", "stored_programs.py"


def lengths(points):
    """Of points [N, 3] the squares of their lengths, once they are multiplied by a matrix."""
    matrix = jnp.eye(3, dtype=points.dtype)
    return jax.vmap(lambda point: jnp.sum((matrix @ point) ** 2))(points)


@pytest.fixture
def points(x64):
    """Some whose length is their number: https://github.com/jax-ml/jax/issues/39103."""
    numbers = jnp.arange(ROWS, dtype=float)
    return jnp.stack([numbers, 0 * numbers, 0 * numbers], axis=1)


@pytest.mark.parametrize("compiled", [xla.jit, xla.jit_or_inline])
def test_a_program_adds_up_rightly(points, compiled):
    np.testing.assert_array_equal(compiled(lengths)(points), np.arange(ROWS) ** 2.0)


def test_a_part_of_a_users_program_takes_its_options(points):
    part = xla.jit_or_inline(lengths)
    whole = jax.jit(lambda x: part(x) + 1, compiler_options=xla._options(wide=False))
    np.testing.assert_array_equal(whole(points), np.arange(ROWS) ** 2.0 + 1)
    slope = jax.grad(lambda scale: part(scale * points)[10])(1.0)
    assert slope == 200


@pytest.fixture
def wrong_sums(monkeypatch):
    """As if this were jaxlib 0.10.2, in a process that has not warned of it."""
    monkeypatch.setattr(xla.jaxlib, "__version__", "0.10.2")
    monkeypatch.setattr(Caller, "_warned_once", set())
    monkeypatch.delenv("XLA_FLAGS", raising=False)


SCORES, LABELS = np.array([5.0, -4.0, 1.0], np.float32), np.array([1, 0, 0])


@pytest.mark.on_cpu
@pytest.mark.parametrize(
    "traced",
    [
        pytest.param(lambda: jax.make_jaxpr(pj.solve)(SCORES, LABELS), id="traced itself"),
        pytest.param(lambda: jax.make_jaxpr(lambda f: pj.solve(f, LABELS))(SCORES), id="within"),
        pytest.param(lambda: jax.make_jaxpr(lambda: pj.solve(SCORES, LABELS))(), id="constants"),
        pytest.param(
            lambda: jax.vmap(lambda f: pj.solve(f, LABELS))(SCORES[None]),
            id="vmap",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_wrong_sums_are_told_once_at_the_users_line(wrong_sums, traced):
    with pytest.warns(RuntimeWarning, match="XLA_FLAGS=--xla_cpu_experimental_ynn") as told:
        traced()
        traced()
    assert [(Path(x.filename), "solve" in line_of(x)) for x in told] == [(Path(__file__), True)]


def line_of(warning):
    return Path(warning.filename).read_text(encoding="utf-8").splitlines()[warning.lineno - 1]


@pytest.mark.slow
def test_no_wrong_sums_are_told_of_our_own_programs(wrong_sums, recwarn):
    pj.solve(SCORES, LABELS)
    pj.fit(SCORES, LABELS)
    pj.fit(jnp.asarray(SCORES), LABELS)
    # Within a user's program, too, this one is compiled apart.
    jax.make_jaxpr(lambda x: x + pj.fit(SCORES, LABELS).A)(1.0)
    assert not recwarn.list


def test_no_wrong_sums_are_told_where_they_are_avoided(wrong_sums, recwarn, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type= --another=1")
    jax.make_jaxpr(pj.solve)(SCORES, LABELS)
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(xla.jaxlib, "__version__", "0.12.0.1")
    jax.make_jaxpr(pj.solve)(SCORES, LABELS)
    assert not recwarn.list


@pytest.mark.slow
@pytest.mark.parametrize("inside", [jax.jit, jax.make_jaxpr, jax.checkpoint, jax.linearize])
def test_a_part_is_none_of_our_programs(inside):
    """JAX takes compiler options for a whole program alone."""
    scores, labels = np.array([5.0, -4.0, 1.0], np.float32), np.array([1, 0, 0])
    arguments = (scores,) if inside is jax.linearize else ()
    made = inside(lambda scores=scores: pj.solve(scores, labels).A, *arguments)
    jax.block_until_ready(made if arguments else made())


def test_leave_one_out_multiplies_in_full_precision():
    from benchmarks.gpu import entries

    with jax.enable_x64(False):
        entry = entries.entries(np.dtype(np.float32))["leave_one_out"]
        arrays, center, _ = entry.arguments
        assert_full_precision(expansion.sums.lower(arrays, center))


def assert_full_precision(lowered):
    products = [line for line in lowered.as_text().splitlines() if "stablehlo.dot_general" in line]
    assert products
    assert all("precision = [HIGHEST, HIGHEST]" in line for line in products)


@pytest.mark.parametrize(
    "version, known",
    [("0.8.0", False), ("0.10.0", True), ("0.10.2", True), ("0.12.0.1", True), ("0.13.0", False)],
)
def test_the_option_is_for_versions_that_know_it(monkeypatch, version, known):
    """Others fail to compile."""
    monkeypatch.setattr(xla, "platform", lambda: "cpu")
    monkeypatch.setattr(xla.jaxlib, "__version__", version)
    assert ("xla_cpu_experimental_ynn_fusion_type" in xla._options(wide=True)) == known
    assert ("YNNPACK" in xla.sums_status()) == known
    assert ("XLA_FLAGS" in xla.sums_status()) == (version == "0.10.2")


@pytest.mark.slow
def test_partial_pooling_of_other_sizes_compiles_no_pass_anew(rng, monkeypatch):
    monkeypatch.setattr(search, "_is_fine_enough", lambda at: False)  # so both grids are in use
    for segments, rows in ((6, 50), (7, 50), (7, 55)):
        scores, ids = rng.normal(size=segments * rows), np.repeat(np.arange(segments), rows)
        pj.fit_segments(scores, rng.random(scores.size) < 0.5, ids, pooling="partial")
        if segments == 6:
            compiled = run.solve_chunk._cache_size()
    assert run.solve_chunk._cache_size() == compiled


def test_all_programs_are_compiled_by_one_function():
    """A function that is jitted inside another, `inline`, is no program."""
    elsewhere = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        if path.name not in _ALLOWED
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\bjax\.jit\b", line) and "inline=True" not in line and ">>>" not in line
    ]
    assert elsewhere == []


@pytest.mark.parametrize("right", [True, False])
def test_a_gpu_that_computes_wrongly_is_told(right, monkeypatch):
    """On no GPU at hand: the platform and the sum are replaced."""
    monkeypatch.setattr(xla, "platform", lambda: "gpu")
    if not right:
        monkeypatch.setattr(xla.jnp, "ones", jnp.zeros)
    xla._wrong_operations.cache_clear()
    told = xla.wrong_operations()
    xla._wrong_operations.cache_clear()
    assert told is None if right else "computes single operations of JAX wrongly" in told
