"""Fits of arrays on a GPU: those of the host's arrays, without a copy of rows to the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import accelerated, assert_rows_stay, assert_same_fit, outcome
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import platt_jax as pj
from platt_jax import validation
from platt_jax.caller import Caller
from platt_jax.execution import on_device
from platt_jax.execution.dense_rows import DenseRows
from platt_jax.execution.on_device import DeviceRows

pytestmark = pytest.mark.slow  # compiles many programs


@pytest.fixture
def dtype():
    """That of most tests; 64-bit types take programs of their own, and the same way."""
    return np.float32


@pytest.fixture
def on_accelerator(monkeypatch, dtype):
    """JAX arrays are taken for arrays on an accelerator."""
    with accelerated(monkeypatch, dtype):
        yield


@pytest.fixture
def rows(rng, dtype):
    """Scores (2, 3, 60) and labels, of problems of all kinds, and weights."""
    scores = rng.normal(size=(2, 3, 60)).astype(dtype)
    labels = (rng.random(scores.shape) < 1 / (1 + np.exp(-2 * scores))).astype(np.int32)
    labels[0, 1] = 1
    labels[1, 0] = scores[1, 0] > 0
    scores[1, 1] = 3
    return scores, labels, rng.integers(0, 3, scores.shape).astype(dtype)


def test_a_copy_of_rows_is_found(monkeypatch):
    with pytest.raises(jax.errors.TracerArrayConversionError):
        assert_rows_stay(monkeypatch, np.asarray, [jnp.ones(3)], 1)
    with pytest.raises(AssertionError):
        assert_rows_stay(monkeypatch, lambda x: jax.device_get(x), [jnp.ones(3)], 1)


def label_codings():
    zero_one = np.arange(40) % 3 == 0
    of_floats = np.where(zero_one, 1.0, -1.0).astype(np.float32)
    of_floats[[3, 7]] = np.nan, np.inf
    one_bad = zero_one.astype(np.int32)
    one_bad[5] = 2
    mixed = one_bad - 1
    return {
        "bool": zero_one,
        "uint8": zero_one.astype(np.uint8),
        "minus": np.where(zero_one, 1, -1),
        "floats": of_floats,
        "class ids": one_bad,
        "of both codings": mixed,
        "uint8 255": np.where(zero_one, 1, 255).astype(np.uint8),
        "column": zero_one[:, None],
        "complex": zero_one.astype(np.complex64),
        "all negative": np.zeros(40, np.int8),
    }


@pytest.mark.usefixtures("on_accelerator")
class TestFit:
    @pytest.mark.parametrize(("dtype", "weighted"), [(np.float64, True), (np.float32, False)])
    def test_as_on_the_host(self, rows, weighted, dtype):
        scores, labels, weights = rows
        weights = weights if weighted else None
        found = pj.fit(*map(jnp.asarray, (scores, labels)), weights=weights)
        assert_same_fit(found, pj.fit(scores, labels, weights=weights), dtype)
        assert repr(found) == repr(pj.fit(scores, labels, weights=weights))

    def test_no_row_is_copied(self, monkeypatch, rows):
        def job(f, y, w):
            return pj.fit(f, y, weights=w).A

        assert_rows_stay(monkeypatch, job, list(map(jnp.asarray, rows)), 8)

    def test_solve_copies_no_row(self, monkeypatch, rows):
        def job(f, y, w):
            return pj.solve(f, y, weights=w).A

        assert_rows_stay(monkeypatch, job, list(map(jnp.asarray, rows)), 8)

    def test_one_large_problem(self, rng, dtype):
        scores = rng.normal(size=40_000).astype(dtype)
        labels = rng.random(40_000) < 1 / (1 + np.exp(-scores))
        found = pj.fit(jnp.asarray(scores), jnp.asarray(labels))
        assert_same_fit(found, pj.fit(scores, labels), dtype)

    @pytest.mark.parametrize("coding", label_codings())
    def test_labels(self, rng, dtype, coding):
        scores, labels = rng.normal(size=40).astype(dtype), label_codings()[coding]
        expected = outcome(DenseRows, scores, labels)[1]
        for given in (jnp.asarray(labels), labels):
            found = outcome(DeviceRows, jnp.asarray(scores), given)[1]
            if isinstance(expected, str):
                assert found == expected
                continue
            bad = expected.labels == validation.BAD_LABEL
            columns = jax.device_get(found.columns)
            np.testing.assert_array_equal(columns.labels, expected.labels)
            np.testing.assert_array_equal(columns.scores, np.where(bad, np.nan, scores))

    @pytest.mark.parametrize(("axis", "dtype"), [(0, np.float64), (1, np.float32)])
    def test_labels_and_weights_are_broadcast(self, rows, dtype, axis):
        scores, labels, weights = (x[0] for x in rows)
        some = (slice(None, 1), slice(None)) if axis == 0 else (slice(None), slice(None, 1))
        labels, weights = labels[some], weights[some] + 1
        found = pj.fit(*map(jnp.asarray, (scores, labels)), weights=jnp.asarray(weights))
        assert_same_fit(found, pj.fit(scores, labels, weights=weights), dtype)

    def test_named_labels(self, rng, dtype):
        scores, labels = rng.normal(size=40).astype(dtype), np.arange(40) % 3
        names = np.array(["no", "yes", "no"])[labels]
        found = pj.fit(jnp.asarray(scores), names, pos_label="yes")
        assert_same_fit(found, pj.fit(scores, labels == 1), dtype)
        with pytest.raises(
            ValueError, match=r"pos_label: expected None for .* pass labels == 1 as"
        ):
            pj.fit(jnp.asarray(scores), jnp.asarray(labels), pos_label=1)

    def test_prior_and_start(self, rows, dtype):
        scores, labels, _ = rows
        prior = pj.GaussianPrior(np.array([-1.0, 0.0], dtype), np.eye(2, dtype=dtype))
        start = tuple(np.zeros((2, 2, 3), dtype))
        there = jax.tree.map(jnp.asarray, (prior, start))
        found = pj.fit(*map(jnp.asarray, (scores, labels)), prior=there[0], start=there[1])
        assert_same_fit(found, pj.fit(scores, labels, prior=prior, start=start), dtype)

    @pytest.mark.parametrize("non_finite", ["flag", "raise", "omit"])
    def test_non_finite_rows(self, rows, dtype, non_finite):
        scores, labels, weights = rows
        scores[0, 0, 3], weights[1, 2, 4] = np.nan, np.inf
        options = pj.Options(non_finite=non_finite)
        expected = outcome(pj.fit, scores, labels, weights=weights, options=options)
        rows = list(map(jnp.asarray, rows))
        found = outcome(pj.fit, rows[0], rows[1], weights=rows[2], options=options)
        assert found[0] == expected[0]
        if non_finite == "raise":
            assert found[1] == expected[1]
        else:
            assert_same_fit(found[1], expected[1], dtype)

    @pytest.mark.parametrize("negative", [-1.5, -np.inf])
    def test_negative_weights(self, rows, negative):
        scores, labels, weights = map(jnp.asarray, rows)
        with pytest.raises(ValueError, match=f"weights: expected >= 0, got {negative}"):
            pj.fit(scores, labels, weights=weights.at[1, 2, 3].set(negative))

    def test_bad_arrays(self, rows):
        scores, labels, weights = rows
        for f, y, w in (
            (scores[..., :0], labels[..., :0], None),
            (scores[0, 0, 0], 1, None),
            (scores.astype(np.complex64), labels, None),
            (scores, labels[0, 0, :7], None),
            (scores, labels, weights[0, :2]),
            (scores, labels, weights.astype(np.complex64)),
        ):
            there = [None if x is None else jnp.asarray(x) for x in (f, y, w)]
            expected = outcome(pj.fit, f, y, weights=w)[1]
            assert isinstance(expected, str)
            assert outcome(pj.fit, there[0], there[1], weights=there[2])[1] == expected

    @pytest.mark.parametrize("shape", [(30, 1), (60, 5), (120,), (2, 120)])
    def test_doubtful_rows(self, rng, dtype, shape):
        scores, labels = rng.random(shape).astype(dtype), np.zeros(shape, bool)
        labels[..., 0] = True
        expected, found = DenseRows(scores, labels), DeviceRows(*map(jnp.asarray, (scores, labels)))
        assert found.doubtful_shape == expected.doubtful_shape
        assert found.doubtful_scores == expected.doubtful_scores
        assert (found.doubtful_shape is None) != (found.doubtful_scores is None)

    def test_doubts_are_warned_of(self, monkeypatch, rng):
        monkeypatch.setattr(Caller, "_warned_once", set())
        with pytest.warns(RuntimeWarning, match="scores: all lie in"):
            pj.fit(*map(jnp.asarray, (rng.random(120), np.arange(120) % 2)))

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_integers_get_jax_usual_dtype(self, dtype):
        found = DeviceRows(jnp.arange(40), jnp.arange(40) == 3)
        assert found.dtype == found.columns.scores.dtype == dtype

    def test_progress_is_reported(self, rows):
        reports = []
        pj.fit(*map(jnp.asarray, rows[:2]), progress=reports.append)
        assert [(x.problems_done, x.rows_done) for x in reports] == [(6, 360)]

    def test_a_mesh_is_refused(self, rows):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("problems",))
        with pytest.raises(ValueError, match="mesh: expected None for scores on a device"):
            pj.fit(*map(jnp.asarray, rows[:2]), mesh=mesh)

    def test_sharded_scores(self, rows, dtype):
        scores, labels, _ = (x[0] for x in rows)
        mesh = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))
        over = NamedSharding(mesh, PartitionSpec("x"))
        prior = pj.GaussianPrior(np.array([-1.0, 0.0], dtype), np.eye(2, dtype=dtype))
        found = pj.fit(jax.device_put(scores, over), jnp.asarray(labels), prior=prior)
        assert_same_fit(found, pj.fit(scores, labels, prior=prior), dtype)

    def test_out_of_memory(self, monkeypatch, rows):
        def fail(*_):
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 1 TB")

        monkeypatch.setattr(on_device, "solve_checked", fail)
        with pytest.raises(MemoryError, match="the device's memory is too small"):
            pj.fit(*map(jnp.asarray, rows[:2]))

    @pytest.mark.parametrize("dtype", [np.float64])
    def test_within_a_users_program(self, rows, dtype):
        scores, labels, _ = map(jnp.asarray, rows)
        found = {}

        def traced(x):
            found["fit"] = pj.fit(scores, labels)
            return x + 1

        jax.jit(traced)(jnp.zeros(3))
        assert_same_fit(found["fit"], pj.fit(*rows[:2]), dtype)


@pytest.mark.on_cpu
def test_a_cpu_is_no_accelerator(rng):
    scores, labels = rng.normal(size=(3, 50)).astype(np.float32), rng.random((3, 50)) < 0.4
    found, expected = pj.fit(jnp.asarray(scores), jnp.asarray(labels)), pj.fit(scores, labels)
    for x, y in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        assert isinstance(x, np.ndarray)
        np.testing.assert_array_equal(x, y)
