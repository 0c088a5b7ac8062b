"""A meeting by files: a site writes what it says in each round, and reads what the others wrote.

A fit is a function of a site's rows and of what the rounds gave so far. So a call that found no
file of another site is made again from the beginning, and comes one round further.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.distributed.exchange import Merge
from platt_jax.distributed.shared_sums import Meeting
from platt_jax.results.archive import read_archive, write_archive
from platt_jax.results.atomic import to_path

_FORMAT = "platt-jax sums of a site 2"
_LONGEST_PAUSE = 1.0  # seconds between looks for files
_REDUCED: dict[Merge, np.ufunc] = {"sum": np.add, "minimum": np.minimum}


@dataclass(frozen=True)
class Folder:
    """A meeting of sites by files in a folder: all see one folder, or copies are carried by hand.

    The site writes a file `round-NNN-SITE.npz` for each round, and reads the other sites' files.
    It removes none. For another fit use another folder.

    Args:
        path: the folder; it is created if missing.
        site: the name of this site: letters, digits, "-" and "_".
        sites: the names of all sites, in any order.

    Raises:
        ValueError: a name is invalid or occurs twice, or `site` is none of `sites`.
    """

    path: str | os.PathLike[str]
    site: str
    sites: Sequence[str]

    def __post_init__(self) -> None:
        to_path(self.path)
        names = self.sites
        # A text is a sequence too, of letters that may be names.
        valid = (
            isinstance(names, Sequence)
            and not isinstance(names, str)
            and all(isinstance(x, str) and re.fullmatch(r"[\w-]+", x) for x in names)
        )
        if not valid or len(set(names)) < len(names):
            raise ValueError(
                'sites: expected a list of different names of letters, digits, "-" and "_", got '
                f"{names!r}"
            )
        if self.site not in names:
            raise ValueError(f"site: expected one of {names!r}, got {self.site!r}")


class MeetingByFiles(Meeting):
    """The meeting of a site with the others, for one call; see `Meeting` for the methods.

    They raise a TimeoutError if a file of another site is not there within so many seconds, and a
    ValueError if a file is of another call or damaged.
    """

    def __init__(self, folder: Folder, time_limit: float | None) -> None:
        self._path, self._site, self._sites = to_path(folder.path), folder.site, folder.sites
        self._time_limit, self._round = time_limit, 0
        self._so_far = hashlib.blake2b(digest_size=16)  # of what all sites have said
        self._path.mkdir(exist_ok=True)

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """See `Meeting`; in the order of the sites' names."""
        gathered = self._gathered("bytes", np.frombuffer(mine, np.uint8))
        return [array.tobytes() for array in gathered]

    def merged(self, mine: Floats, merge: Merge) -> Floats:
        """See `Meeting`."""
        in_float64 = np.asarray(mine, np.float64)
        reduced: Floats = _REDUCED[merge].reduce(self._gathered(merge, in_float64))
        return reduced

    def _gathered(self, kind: Merge | Literal["bytes"], mine: NDArray[Any]) -> list[NDArray[Any]]:
        """The arrays of all sites, of the name `kind` in their files."""
        own_file = self._file(self._site)
        after = self._so_far.hexdigest()
        if not own_file.exists():
            header = {"format": _FORMAT, "site": self._site, "after": after}
            write_archive(own_file, header, {kind: mine})
        self._wait()
        arrays = list(self._read(kind, mine, after))
        for array in arrays:
            self._so_far.update(array.tobytes())
        self._round += 1
        return arrays

    def _wait(self) -> None:
        began, pause = time.monotonic(), 0.001
        while missing := [x for x in map(self._file, self._sites) if not x.exists()]:
            if self._time_limit is not None and time.monotonic() - began >= self._time_limit:
                raise TimeoutError(
                    f"folder: {', '.join(x.name for x in missing)} not in {self._path} after "
                    f"{self._time_limit} seconds (time_limit): bring what the other sites wrote "
                    "there, and make the same call again"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _read(self, kind: str, mine: NDArray[Any], after: str) -> Iterator[NDArray[Any]]:
        for site in sorted(self._sites):
            path = self._file(site)
            problem = (
                f"{path} is of another fit, of another site, rows or arguments, or damaged; "
                "use another folder"
            )
            with read_archive(path, _FORMAT, "folder", problem) as (header, _, read_array):
                array = read_array(kind)
                fits = kind == "bytes" or (array.shape, array.dtype) == (mine.shape, mine.dtype)
                if site == self._site:  # the call may be made again, and says the same again
                    fits = np.array_equal(array, mine, equal_nan=kind != "bytes")
                if (header["site"], header["after"]) != (site, after) or not fits:
                    raise ValueError
            yield array

    def _file(self, site: str) -> Path:
        return self._path / f"round-{self._round:03d}-{site}.npz"
