"""Results so far in a file, for a call that may be stopped and made again."""

import json
import os
import time
from pathlib import Path

import numpy as np

from platt_jax.results import files, npz
from platt_jax.results.fit import Fit

_FORMAT = "platt-jax checkpoint 1"
_SECONDS = 2.0
# At most so large a part of the time goes to writing.
_PART_OF_TIME = 0.05


class Checkpoint:
    """The fits of the first problems of a call.

    Args:
        path: the file; it need not exist. Its directory must.
        call: what the fits depend on, by names that messages use.

    Raises:
        ValueError: the file is something else, or is of another call.
        OSError: it cannot be read, or there is no such directory.
    """

    def __init__(self, path: str | os.PathLike, call: dict[str, str]):
        self._path = Path(path)
        self._call = call
        self._next = 0.0
        self._kept = self._read()

    def restored(self) -> tuple[int, Fit] | None:
        """How many problems were fitted, and the fits of all, with anything for the others."""
        return self._kept

    def keep(self, count: int, whole: Fit) -> None:
        """Write these results, unless that was done a moment ago.

        Args:
            count: how many problems have theirs.
            whole: those of all problems, with anything for the others.

        Raises:
            OSError: the file cannot be written.
        """
        began = time.monotonic()
        if began < self._next:
            return
        header = {"format": _FORMAT, "count": count, "call": self._call}
        arrays = {"header": np.array(json.dumps(header)), **files.fit_arrays(whole)}
        files.write_arrays(self._path, arrays)
        ended = time.monotonic()
        self._next = ended + max(_SECONDS, (ended - began) / _PART_OF_TIME)

    def remove(self) -> None:
        """The call is over."""
        self._path.unlink(missing_ok=True)

    def _read(self):
        if not self._path.exists():
            if not self._path.parent.is_dir():
                raise FileNotFoundError(f"checkpoint: no such directory: {self._path.parent}")
            return None
        with open(self._path, "rb") as file:
            try:
                archive = npz.open_archive(file)
                header = json.loads(npz.read_array(archive, "header").item())
                if header["format"] != _FORMAT:
                    raise ValueError("not our header")
                names = [x.removesuffix(".npy") for x in archive.namelist()]
                arrays = {x: npz.read_array(archive, x) for x in names if x != "header"}
                count, call, whole = header["count"], header["call"], Fit(**arrays)
            except (OSError, MemoryError):
                raise  # the machine's fault, not the file's
            except Exception:
                # As of `files.load`: a damaged file can fail anywhere.
                raise ValueError(
                    f"checkpoint: {self._path} is not a checkpoint that platt_jax wrote, or damaged"
                ) from None
        differing = [name for name in self._call if call.get(name) != self._call[name]]
        if differing:
            raise ValueError(
                f"checkpoint: {self._path} is of a fit with other {', '.join(differing)}; delete "
                "it, or name another file"
            )
        return count, whole
