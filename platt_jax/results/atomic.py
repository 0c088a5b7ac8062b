"""Writes files so that readers see the old file or the new one, never a part."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def to_path(path: str | os.PathLike[str]) -> Path:
    """The path as a Path."""
    try:
        return Path(os.fsdecode(path))
    except TypeError:  # a file object, or an integer, which `open` would accept
        raise ValueError(f"path: expected a str or a Path, got {type(path).__name__}") from None


def destination(path: str | os.PathLike[str]) -> Path:
    """The file to write for this path. A symbolic link is followed, not replaced."""
    path = Path(os.path.realpath(to_path(path)))
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no such directory: {path.parent}")
    if path.exists() and not path.is_file():
        raise ValueError(f"path: expected a file to write, {path} is something else")
    return path


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes beside the target, then moves over it: readers see the old file or the new one."""
    # A name that no other thread or process uses, and short even if the target's is long.
    partial_path = path.with_name(f".platt-jax-{secrets.token_hex(8)}.partial")
    try:
        with naming_file(path), open(partial_path, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial_path, path)
    finally:
        partial_path.unlink(missing_ok=True)


@contextmanager
def naming_file(name: str | os.PathLike[str]) -> Iterator[None]:
    """Adds the file name to system errors inside, as errors of a full disk have none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:  # else the error has its own message
            error.filename = os.fspath(name)
        raise
