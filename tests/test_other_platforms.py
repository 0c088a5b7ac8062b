"""Every program can be lowered for GPUs and TPUs, on a machine that has none."""

import jax
import numpy as np
import pytest

NAMES = [
    "solve 10,000 x 1,000",
    "solve 100,000 x 100",
    "gradient 10,000 x 1,000",
    "fit_segments, about 100 rows each",
    "fit_segments, about 1,000 rows each",
    "bootstrap",
    "posteriors of partial pooling",
    "block of one problem",
    "all rows as one problem",
    "leave_one_out",
    "predict_proba",
    "predict_proba by segment",
    "predict_proba by segment, ids far apart",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_is_lowered(name, dtype):
    from benchmarks.gpu import entries, target

    platforms = ("cuda", "rocm", "tpu") if dtype == "float32" else ("cuda", "rocm")
    with jax.enable_x64(dtype == "float64"), target.chosen():
        entry = entries.entries(np.dtype(dtype))[name]
        exported = jax.export.export(entry.program, platforms=platforms)(
            *entry.arguments, **entry.static
        )
    assert exported.platforms == platforms
    assert "stablehlo.sort" not in exported.mlir_module()


def test_every_entry_is_named():
    from benchmarks.gpu import entries, target

    with jax.enable_x64(False), target.chosen():
        every = entries.entries(np.dtype("float32"))
    similar = {
        "solve 100,000 x 1,000",
        "solve 1 x 10,000,000",
        "fit_segments, about 20,000 rows each",
    }
    assert set(every) == {*NAMES, *similar}
