"""Monitors on disk: one .npz of plain arrays, without pickle, versioned.

A file that another process has replaced since it was read is not replaced.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile, ZipFile

import numpy as np

from platt_jax.monitoring.evidence import ALTERNATIVES, Night, shocks_of, terms_of
from platt_jax.monitoring.history import History
from platt_jax.monitoring.judging import Settings
from platt_jax.monitoring.shocks import LARGEST
from platt_jax.monitoring.state import COLUMNS, EvidenceState
from platt_jax.results.archive import NewerVersionError, read_archive, write_archive
from platt_jax.results.atomic import destination, to_path
from platt_jax.results.id_arrays import arrays_to_ids, ids_to_arrays

_FORMAT = "platt_jax monitor"
# A change of the alternatives, the units or the weights of starting nights must add a version.
_VERSION = 1
_HEADER_BYTES = 1 << 20
_REFUSAL = "not a monitor that platt_jax saved, or damaged"
_WIDE = "log_sums", "since"  # (K, ALTERNATIVES)
_FLOATS = "log_sums", "highest"
_COUNTS = "since", "nights", "rows", "positives", "tonight_rows", "tonight_positives"

_Contents: TypeAlias = list[tuple[str, int, int]] | None  # names, checksums, sizes; None: no file


def save(
    path: str | os.PathLike[str],
    settings: Settings,
    history: History,
    known: int,
    state: EvidenceState,
) -> None:
    """Writes a monitor; see `Monitor.save`. `known` is as in `require_successor`."""
    layout, key_arrays = ids_to_arrays("keys", state.keys)
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        **settings._asdict(),
        "night": history.night,
        "judged_by": history.judged_by,
        "last": history.last,
        "known": known,
        "keys": layout,
    }
    named = {"named_nights": np.array(history.names, dtype=str)}
    write_archive(path, header, {**key_arrays, **named, **_arrays(state)})


def _arrays(state: EvidenceState) -> dict[str, Any]:
    tonight = {f"tonight_{name}": x for name, x in state.tonight._asdict().items()}
    return {**{name: getattr(state, name) for name in COLUMNS}, **tonight}


def load(path: str | os.PathLike[str]) -> tuple[Settings, History, int, EvidenceState]:
    """Reads a monitor; see `Monitor.load`."""
    source = str(to_path(path))
    with read_archive(path, _FORMAT, source, _REFUSAL, _HEADER_BYTES) as (header, _, read_array):
        if header["version"] > _VERSION:
            raise NewerVersionError(
                f"a monitor of version {header['version']}; this platt_jax knows up to {_VERSION}"
            )
        keys = arrays_to_ids("keys", header["keys"], read_array)
        night, number_known = header["night"], int(header["known"])
        settings = Settings(header["against"], float(header["margin"]), float(header["night_sd"]))
        names = tuple(str(x) for x in read_array("named_nights"))
        history = History(night, names, str(header["judged_by"]), str(header.get("last", "")))
        if settings.against not in ("fit", "predictions") or not 0 <= settings.margin < np.inf:
            raise ValueError("header")
        if not (0 <= settings.night_sd <= LARGEST and 0 <= number_known <= len(keys)):
            raise ValueError("header")
        terms = terms_of(shocks_of(settings.night_sd))
        night_names = [f"tonight_{name}" for name in Night._fields]
        arrays = {x: _checked(x, read_array(x), len(keys), terms) for x in (*COLUMNS, *night_names)}
        tonight = Night(*(arrays.pop(name) for name in night_names))
        most_nights = arrays["nights"].max(initial=0)
        if not isinstance(night, int) or not most_nights <= night < np.iinfo(np.int32).max:
            raise ValueError("nights")
        return settings, history, number_known, EvidenceState(keys, **arrays, tonight=tonight)


def _checked(name: str, values: Any, segments: int, terms: int) -> Any:
    wide = {**dict.fromkeys(_WIDE, (ALTERNATIVES,)), "tonight_log_ratios": (terms,)}
    shape = segments, *wide.get(name, ())
    dtype = np.float64 if name in _FLOATS else np.int32 if name == "since" else np.int64
    if values.shape != shape or values.dtype != dtype or np.isnan(values).any():
        raise ValueError(name)
    if (values < 0).any() if name in _COUNTS else (values == np.inf).any():
        raise ValueError(name)
    return values


class Versions:
    """What a monitor, and monitors that come from it, last read from each file or wrote to it."""

    def __init__(self) -> None:
        self._last: dict[str, _Contents] = {}

    def note(self, path: str | os.PathLike[str]) -> None:
        """Remembers what a file has; call it before the file is read."""
        path = Path(os.path.realpath(to_path(path)))
        self._last[str(path)] = _contents(path)

    @contextmanager
    def replacing(self, path: str | os.PathLike[str], *, new: bool) -> Iterator[None]:
        """Around the replacement of a file, which no other process can then replace.

        It is refused if the file has changed since it was read or written, if it exists and is to
        be `new`, or if another process replaces it now.
        """
        path = destination(path)
        last = None if new else self._last.get(str(path), _contents(path))
        with _locked(path):
            if _contents(path) != last:
                raise ValueError(
                    f"{path}: expected no file, there is one"
                    if new
                    else f"{path}: has changed since it was read: another process has saved a "
                    "night; read it, and judge this night again"
                )
            yield
            self._last[str(path)] = _contents(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = path.with_name(f".{path.name}.lock")
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        raise ValueError(
            f"{path}: another process is saving it; if none is, because one was killed, remove "
            f"{lock}"
        ) from None
    try:
        yield
    finally:
        lock.unlink()


def _contents(path: Path) -> _Contents:
    if not path.exists():
        return None
    try:
        with ZipFile(path) as archive:
            return [(x.filename, x.CRC, x.file_size) for x in archive.infolist()]
    except BadZipFile:
        return []
