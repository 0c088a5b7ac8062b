"""Results so far in a file, for a call that may be interrupted and repeated."""

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.model.objective import Array
from platt_jax.results.archive import read_archive, write_archive
from platt_jax.results.fit import Fit

_FORMAT = "platt-jax checkpoint 1"
# Minimum seconds between writes.
_SECONDS = 2.0
# Maximum share of time spent writing.
_PART_OF_TIME = 0.05


def read(path: Path, call: dict[str, str]) -> dict[str, NDArray[Any]] | None:
    """The arrays in a file, or None if there is no file.

    `call` is text for everything that the arrays depend on, by the names to use in messages; a file
    of another call is refused.
    """
    if not path.exists():
        if not path.parent.is_dir():
            raise FileNotFoundError(f"checkpoint: no such directory: {path.parent}")
        return None
    refusal = f"{path} is not a checkpoint written by platt_jax, or is damaged"
    with read_archive(path, _FORMAT, "checkpoint", refusal) as (header, names, read_array):
        stored_call, arrays = header["call"], {name: read_array(name) for name in names}
    differing = [name for name in call if stored_call.get(name) != call[name]]
    if differing:
        raise ValueError(
            f"checkpoint: {path} belongs to a fit with other {', '.join(differing)}; "
            "delete it, or use another file"
        )
    return arrays


def write(path: Path, call: dict[str, str], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes a file for `read`, atomically."""
    write_archive(path, {"format": _FORMAT, "call": call}, arrays)


def digest(arrays: Iterable[Array]) -> str:
    """A hash of the arrays' shapes and values."""
    hasher = hashlib.blake2b(digest_size=16)
    for array in arrays:
        array = np.ascontiguousarray(array, np.float64)
        hasher.update(repr(array.shape).encode() + array.tobytes())
    return hasher.hexdigest()


class Checkpoint:
    """A file with the fits of the first problems of a call; arguments and errors as of `read`."""

    def __init__(self, path: str | os.PathLike[str], call: dict[str, str]) -> None:
        self._path = Path(path)
        self._call = call
        self._next = 0.0
        self._kept = read(self._path, call)

    def restored(self) -> tuple[int, Fit] | None:
        """The number of stored fits, and the fits of all problems, undefined for the others."""
        if self._kept is None:
            return None
        fits = dict(self._kept)
        return int(fits.pop("count")), Fit(**fits)

    def keep(self, count: int, whole: Fit) -> None:
        """Writes results of all problems, of which the first `count` are defined.

        It writes nothing if the last write was a moment ago.
        """
        began = time.monotonic()
        if began < self._next:
            return
        fits = {field.name: getattr(whole, field.name) for field in fields(whole)}
        write(self._path, self._call, {"count": np.array(count), **fits})
        ended = time.monotonic()
        self._next = ended + max(_SECONDS, (ended - began) / _PART_OF_TIME)

    def remove(self) -> None:
        """Deletes the file, when the call is complete."""
        self._path.unlink(missing_ok=True)
