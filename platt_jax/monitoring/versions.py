"""Refuses to replace a file that another process has replaced since it was read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias
from zipfile import BadZipFile, ZipFile

from platt_jax.results.atomic import destination, to_path

_Contents: TypeAlias = list[tuple[str, int, int]] | None  # names, checksums, sizes; None: no file


class Versions:
    """What a monitor, and those that come from it, last read from each file or wrote to it."""

    def __init__(self) -> None:
        self._last: dict[str, _Contents] = {}

    def note(self, path: str | os.PathLike[str]) -> None:
        """Remembers what a file has; call it before the file is read."""
        path = Path(os.path.realpath(to_path(path)))
        self._last[str(path)] = _contents(path)

    @contextmanager
    def replacing(self, path: str | os.PathLike[str], *, new: bool) -> Iterator[None]:
        """Around the replacement of a file, which no other process can then replace.

        Raises:
            ValueError: the file has changed since it was read or written; it exists, if `new`; or
                another process replaces it now.
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
