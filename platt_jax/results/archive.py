"""Archives: a header, which is JSON, and plain arrays in one .npz file, written atomically.

Calibrators, checkpoints, the sums of a distributed fit, and the manifest of stored rows are such
files. A file is read as untrusted (`npz.py`).
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.results import npz
from platt_jax.results.atomic import destination, write_atomically


class NewerVersionError(Exception):
    """A file of a version that this platt_jax does not know."""


def write_archive(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Writes an archive, atomically; an existing file is replaced.

    Args:
        path: the file. Its directory must exist.
        header: what JSON can hold, with the name of the format as "format".
        arrays: plain arrays by their names, none of them "header".

    Raises:
        ValueError: path is not a path, or names something other than a file.
        OSError: the file cannot be written.
    """
    members = {"header": np.array(json.dumps(header)), **arrays}
    write_atomically(destination(path), lambda file: np.savez(file, **members))


@contextmanager
def read_archive(
    path: str | os.PathLike[str],
    format_name: str,
    source: str,
    problem: str,
    header_bytes: int | None = None,
) -> Iterator[tuple[dict[str, Any], list[str], Callable[[str], NDArray[Any]]]]:
    """Opens an archive. What fails inside the `with` block is taken for damage of the file.

    Args:
        path: the file.
        format_name: the "format" that its header must have.
        source: what messages name first: the file, or the argument that has it.
        problem: the rest of the message if the file is something else or damaged.
        header_bytes: maximum size of the header; None for any.

    Returns:
        The header, the names of the arrays, and a function that reads the array of a name.

    Raises:
        ValueError: the file is something else, is damaged, or is from a newer version.
        OSError, MemoryError: the fault is the machine's, not the file's.
    """
    with open(path, "rb") as file, as_value_error(source, problem):
        archive = npz.open_archive(file)
        text = npz.read_array(archive, "header")
        if header_bytes is not None and text.nbytes > header_bytes:
            raise ValueError("a header that is too large")
        header = json.loads(text.item())
        if header["format"] != format_name:
            raise ValueError("another format")
        names = [name.removesuffix(".npy") for name in archive.namelist() if name != "header.npy"]
        yield header, names, partial(npz.read_array, archive)


@contextmanager
def as_value_error(source: str, problem: str) -> Iterator[None]:
    """Turns errors of a damaged file or text into a ValueError "source: problem".

    Raises:
        ValueError: for errors inside; it has its own words for a newer version.
        OSError, MemoryError: as they are, because they are the machine's.
    """
    try:
        yield
    except NewerVersionError as newer:
        raise ValueError(f"{source}: {newer}") from None
    except (OSError, MemoryError):
        raise
    except Exception:
        # Damage can show anywhere in zip, header or array parsing, with many exceptions.
        raise ValueError(f"{source}: {problem}") from None
