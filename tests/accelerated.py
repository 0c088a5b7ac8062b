"""What tests of arrays on an accelerator share: the CPU's JAX arrays are taken for such arrays.

On a CPU JAX's transfer guard lets all copies pass. So calls are also traced, where a copy of rows
to the host is an error.
"""

import warnings
from contextlib import contextmanager

import jax
import numpy as np

from platt_jax.backend import accelerators, threads, xla
from platt_jax.execution import (
    class_labels,
    class_rows,
    device_grouping,
    device_segments,
    on_device,
    oversized,
    replicates,
    row_sums,
    run,
    sent_rows,
)
from platt_jax.inference import left_out_there
from platt_jax.metrics import device_rows as metric_rows
from platt_jax.metrics import segments
from platt_jax.population import chunked
from platt_jax.results import device_rows

# Compiled programs, and their static arguments.
PROGRAMS = {
    accelerators: {"_end_to_end": ()},
    device_grouping: {
        "_id_facts": (),
        "_in_order": ("kind", "place", "padded", "ascending"),
        "_firsts": ("most",),
        "_laid_out": (),
        "_given_order": (),
    },
    device_segments: {
        "_fit_as_one": ("options", "loss"),
        "_slice": ("length",),
        "_quartiles": ("length", "step"),
        "_sample": ("length", "step"),
        "_end_to_end": ("more",),
        "_padded": ("width",),
        "_of_padded": ("width", "function"),
        "_placed": ("length",),
        "_taken": (),
        "_other_columns": ("function",),
    },
    segments: {"_coded": ()},
    class_labels: {"_columns": ()},
    class_rows: {"_by_key": ()},
    row_sums: {"_wide": ()},
    left_out_there: {"_count": (), "_doubtful": ("size",), "_replaced": ()},
    sent_rows: {"_end_to_end": ()},
    replicates: {"_solve_chunk": ("options", "kind", "block"), "_draw_in_turn": ("kind",)},
    run: {"solve_chunk": ("options", "block", "function", "then")},
    on_device: {"_facts": ("coded",), "_longer": ("length",)},
    device_rows: {
        "_key_places": ("length",),
        "_proba": ("length",),
        "_mean": ("length", "dtype"),
        "_band": ("length", "dtype"),
        "_class_probabilities": ("normalize",),
    },
    metric_rows: {
        "_first_outside": (),
        "_facts": (),
        "_sum_of": ("from_logits", "function"),
        "_sorted": (),
        "_sums_of_bins": ("from_logits", "number", "strategy"),
        "_outranked": ("from_logits",),
    },
}


@contextmanager
def accelerated(monkeypatch, dtype, kinds=(jax.Array,)):
    """Takes arrays of these kinds for arrays on an accelerator, with 64-bit types for float64.

    One thread does all work, in the same order each time.
    """
    monkeypatch.setattr(accelerators, "devices", lambda array: {jax.devices()[0]})
    monkeypatch.setattr(xla, "fused_cpu_supported", lambda: False)
    for module in (run, oversized):
        monkeypatch.setattr(module, "ordered_map", map)
    monkeypatch.setattr(chunked, "run_concurrently", lambda other, mine: (other(), mine()))
    monkeypatch.setattr(accelerators, "holds", lambda values: isinstance(values, kinds))
    guard = jax.transfer_guard_device_to_host
    name = "jax_transfer_guard_device_to_host"
    monkeypatch.setitem(threads._SETTINGS_TO_DEBUG, name, (guard, "disallow"))
    with jax.enable_x64(dtype == np.float64), guard("disallow"):
        yield


def assert_same_fit(found, expected, dtype, kind=jax.Array):
    """Equal up to rounding in standard errors; statuses, flags and counts are the same."""
    assert all(isinstance(x, kind) for x in jax.tree.leaves(found))
    found = jax.device_get(found)
    for name in ("status", "flags", "n_pos", "n_neg"):
        x, y = getattr(found, name), getattr(expected, name)
        np.testing.assert_array_equal(x, y)
        assert x.dtype == y.dtype
    errors = np.moveaxis(expected.standard_errors, -1, 0)
    for x, y, error in zip((found.A, found.B), (expected.A, expected.B), errors, strict=True):
        assert x.dtype == y.dtype == dtype and x.shape == y.shape
        np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
        off = (x - y) / np.where(error > 0, error, 1)
        np.testing.assert_allclose(off[~np.isnan(y)], 0, atol=1e-9 if dtype == np.float64 else 1e-3)


class Fetched(list):
    """What `jax.device_get` returned, call by call."""

    def __call__(self, values, get=jax.device_get):
        self.append(get(values))
        return self[-1]

    @property
    def most(self):
        return max(map(np.size, jax.tree.leaves(list(self))), default=0)


def run_here(work, x64):
    """`run_programs`, as part of the program that is traced."""
    with jax.enable_x64(x64):
        return work()


@contextmanager
def in_users_program(monkeypatch, fetched):
    """Has programs become part of the user's, where `jax.device_get` returns these values."""
    with monkeypatch.context() as patch:
        values = iter(fetched)
        patch.setattr(jax, "device_get", lambda _: next(values))
        for module, programs in PROGRAMS.items():
            patch.setattr(module, "run_programs", run_here, raising=False)
            for name, static in programs.items():
                function = getattr(module, name).__wrapped__
                patch.setattr(module, name, jax.jit(function, static_argnames=static))
        yield
        assert next(values, None) is None


def assert_rows_stay(monkeypatch, job, rows, most):
    """Runs a job for its fetched values, at most so many at once, and again with traced rows."""
    fetched = Fetched()
    with monkeypatch.context() as patch:
        patch.setattr(jax, "device_get", fetched)
        job(*rows)
    assert fetched.most <= most
    with in_users_program(monkeypatch, fetched):
        jax.eval_shape(job, *rows)


def assert_same_proba(found, expected):
    assert isinstance(found, jax.Array) and found.dtype == expected.dtype
    rtol = 1e-12 if found.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(jax.device_get(found), expected, rtol=rtol)


def outcome(job, *arguments, **named):
    """The messages of a job's warnings, and its result or its error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = job(*arguments, **named)
        except (ValueError, MemoryError) as error:
            made = f"{type(error).__name__}: {error}"
    return [str(warning.message) for warning in caught], made
