"""Arrays of other libraries on a GPU: JAX takes them without a copy."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import accelerated, assert_same_fit, assert_same_proba

import platt_jax as pj
from platt_jax.backend import accelerators
from platt_jax.passes import packing

pytestmark = pytest.mark.slow  # compiles many programs


class Shared:
    """An array of a library that shares its memory."""

    def __init__(self, array, device=(2, 0)):
        self.array, self.device = array, device
        self.shape, self.ndim = array.shape, array.ndim

    def __dlpack__(self, **settings):
        return self.array.__dlpack__(**{**settings, "stream": None, "dl_device": None})

    def __dlpack_device__(self):
        return self.device


class Tensor(Shared):
    """As torch's."""

    @property
    def dtype(self):
        return f"torch.{self.array.dtype}"

    def detach(self):
        return self

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.array))


class CupyArray(Shared):
    """As CuPy's."""

    @property
    def dtype(self):
        return self.array.dtype

    @property
    def flags(self):
        return SimpleNamespace(c_contiguous=self.array.flags.c_contiguous)

    def copy(self):
        return CupyArray(self.array.copy())


@pytest.mark.on_cpu  # whose memory DLPack's arrays share
@pytest.mark.parametrize("kind", [Tensor, CupyArray])
class TestOtherLibraries:
    """JAX's 64-bit types are off."""

    @pytest.fixture(autouse=True)
    def on_accelerator(self, monkeypatch):
        """DLPack's arrays lie on an accelerator, which is JAX's CPU."""
        monkeypatch.setattr(Shared, "__dlpack_device__", lambda self: (1, 0))
        with accelerated(monkeypatch, np.float32, (jax.Array, Shared)):
            yield

    def test_memory_is_shared(self, kind):
        array = packing.aligned((3, 5), np.dtype(np.float64))
        array[:] = np.arange(15).reshape(3, 5)
        found = accelerators.taken(kind(array))
        assert found.dtype == np.float64
        assert found.unsafe_buffer_pointer() == array.ctypes.data
        strided = accelerators.taken(kind(array[:, 1]))
        np.testing.assert_array_equal(strided, [1, 6, 11])

    def test_fit_and_predict(self, rng, dtype, kind):
        scores = rng.normal(size=(2, 3, 60)).astype(dtype)
        labels, weights = np.arange(360).reshape(scores.shape) % 3 % 2, np.ones((), dtype)
        expected = pj.fit(scores, labels, weights=weights)
        found = pj.fit(kind(scores), kind(labels), weights=kind(weights))
        assert_same_fit(found, expected, dtype, np.ndarray if dtype == np.float64 else jax.Array)
        assert repr(found) == repr(expected)
        for fitted in (found, expected):
            proba = fitted.predict_proba(kind(scores))
            assert_same_proba(proba, expected.predict_proba(scores))

    def test_fit_segments(self, rng, dtype, kind):
        scores, segments = rng.normal(size=900).astype(dtype), np.arange(900) // 300
        rows = scores, np.arange(900) % 3 == 0, segments
        found, expected = pj.fit_segments(*map(kind, rows)), pj.fit_segments(*rows)
        np.testing.assert_array_equal(found.keys, expected.keys)
        of = np.ndarray if dtype == np.float64 else jax.Array
        assert_same_fit(found.fit, expected.fit, dtype, of)
        proba = found.predict_proba(*map(kind, rows[::2]))
        np.testing.assert_allclose(
            jax.device_get(proba), expected.predict_proba(*rows[::2]), rtol=1e-4
        )

    def test_predict_by_segment(self, rng, dtype, kind):
        scores, segments = rng.normal(size=90).astype(dtype), np.arange(90) // 40
        fitted = pj.fit_segments(scores, np.arange(90) % 3 == 0, segments)
        found = fitted.predict_proba(kind(scores), kind(segments))
        assert_same_proba(found, fitted.predict_proba(scores, segments))


@pytest.mark.on_cpu
def test_what_is_on_an_accelerator(monkeypatch, rng):
    deleted = jnp.ones(3)
    deleted.delete()
    on_cuda = Tensor(np.ones(3))
    for values in (np.ones(3), [1.0], None, jnp.ones(3), deleted, Tensor(np.ones(3), (1, 0))):
        assert not accelerators.holds(values)
        assert accelerators.taken(values) is values
    assert not accelerators.holds(on_cuda)  # this JAX has no CUDA
    monkeypatch.setattr(jax, "devices", lambda platform: [platform])
    assert accelerators.holds(on_cuda)
    assert not accelerators.holds(Tensor(np.ones(3), (1, 0)))


@pytest.mark.on_cpu
def test_arrays_are_fetched_together_bit_for_bit(monkeypatch, x64):
    tree = {
        "floats": jnp.asarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "status": jnp.arange(2, dtype=jnp.int32),
        "numbers": (jnp.asarray(np.array(-np.nan, np.float32)), jnp.ones((0, 4), np.float64)),
        "flags": jnp.asarray([True, False]),
        "more": jnp.full((1, 2, 2), 7, jnp.int32),
    }
    assert accelerators.fetched_together(tree) is tree  # on a CPU
    with accelerated(monkeypatch, np.float64):
        found = accelerators.fetched_together(tree)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for x, y in zip(*map(jax.tree.leaves, (found, tree)), strict=True):
        assert isinstance(x, np.ndarray) and x.dtype == y.dtype and x.shape == y.shape
        assert x.tobytes() == np.asarray(y).tobytes()
