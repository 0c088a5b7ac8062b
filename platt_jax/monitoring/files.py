"""Monitors on disk: one .npz of plain arrays, without pickle, versioned."""

import os
from typing import Any, TypeAlias

import numpy as np

from platt_jax.monitoring.evidence import ALTERNATIVES, Night
from platt_jax.monitoring.judging import Against
from platt_jax.monitoring.state import COLUMNS, State
from platt_jax.results.archive import NewerVersionError, read_archive, write_archive
from platt_jax.results.atomic import to_path
from platt_jax.results.id_arrays import arrays_to_ids, check_ids, ids_to_arrays

_FORMAT = "platt-jax monitor"
# A change of the alternatives, the units or the weights of starting nights must add a version.
_VERSION = 1
_HEADER_BYTES = 1 << 20
_REFUSAL = "not a monitor that platt_jax saved, or damaged"
_WIDE = "log_sums", "since", "tonight_log_ratios"  # (K, ALTERNATIVES)
_FLOATS = "log_sums", "highest"
_COUNTS = "since", "nights", "rows", "positives", "tonight_rows", "tonight_positives"


Settings: TypeAlias = tuple[Against, float, int]  # the hypothesis, the margin, number of nights


def save(path: str | os.PathLike[str], settings: Settings, state: State) -> None:
    """Writes a monitor; see `Monitor.save`."""
    layout, of_keys = ids_to_arrays("keys", state.keys)
    against, margin, night = settings
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "against": against,
        "margin": margin,
        "night": night,
        "keys": layout,
    }
    write_archive(path, header, {**of_keys, **_arrays(state)})


def _arrays(state: State) -> dict[str, Any]:
    tonight = {f"tonight_{name}": x for name, x in state.tonight._asdict().items()}
    return {**{name: getattr(state, name) for name in COLUMNS}, **tonight}


def load(path: str | os.PathLike[str]) -> tuple[Settings, State]:
    """Reads a monitor; see `Monitor.load`."""
    source = str(to_path(path))
    with read_archive(path, _FORMAT, source, _REFUSAL, _HEADER_BYTES) as (header, _, read):
        if header["version"] > _VERSION:
            raise NewerVersionError(
                f"a monitor of version {header['version']}; this platt_jax knows up to {_VERSION}"
            )
        keys = arrays_to_ids("keys", header["keys"], read)
        check_ids("keys", keys)
        names = [*COLUMNS, *(f"tonight_{name}" for name in Night._fields)]
        arrays = {name: _checked(name, read(name), len(keys)) for name in names}
        night = Night(*(arrays.pop(f"tonight_{name}") for name in Night._fields))
        against, margin = header["against"], float(header["margin"])
        nights = header["night"]
        of_segments = arrays["nights"].max(initial=0)
        if against not in ("fit", "predictions") or not 0 <= margin < np.inf:
            raise ValueError("header")
        if not isinstance(nights, int) or not of_segments <= nights < np.iinfo(np.int32).max:
            raise ValueError("nights")
        return (against, margin, nights), State(keys, **arrays, tonight=night)


def _checked(name: str, values: Any, segments: int) -> Any:
    shape = (segments, ALTERNATIVES) if name in _WIDE else (segments,)
    dtype = np.float64 if name in _FLOATS else np.int32 if name == "since" else np.int64
    if values.shape != shape or values.dtype != dtype or np.isnan(values).any():
        raise ValueError(name)
    if (values < 0).any() if name in _COUNTS else (values == np.inf).any():
        raise ValueError(name)
    return values
