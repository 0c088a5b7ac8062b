"""Archives: a header, which is JSON, and plain arrays in one .npz file, written atomically.

Calibrators, checkpoints, the sums of a distributed fit, and the manifest of stored rows are such
files.

A file is read as untrusted. `numpy.load` trusts the sizes that a file declares, and allocates
memory accordingly. Here a size counts only if the bytes exist. Members must be stored uncompressed,
as `numpy.savez` writes them. So together they cannot be larger than the file, and an array is
exactly as large as its bytes.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from numpy.typing import NDArray

from platt_jax.results.atomic import destination, write_atomically

# The beginning of a member with a plain array, as NumPy writes it: magic, version 1.0, the length
# of the rest, and a dict. It is matched as text, so that nothing is evaluated.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(?P<length>..)"
    rb"\{'descr': '(?P<dtype>[<>|][biufcSUmM]\d{1,9}(\[\w{1,20}\])?)', "
    rb"'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>[\d, ]*)\), \} *\n",
    re.DOTALL,
)


class NewerVersionError(Exception):
    """A file of a version that this platt_jax does not know."""


def write_archive(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Writes an archive, atomically; an existing file is replaced.

    The header is what JSON can hold, with the name of the format as "format". No array is named
    "header".
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
    """Opens an archive: its header, the names of the arrays, and a function that reads one by name.

    What fails inside the `with` block is taken for damage of the file, a ValueError, but for what
    is the machine's fault: an OSError, or a MemoryError. Messages name the source first, the file
    or the argument that has it, and then the problem.
    """
    with open(path, "rb") as file, as_value_error(source, problem):
        archive = _open_archive(file)
        text = _read_array(archive, "header")
        if header_bytes is not None and text.nbytes > header_bytes:
            raise ValueError("a header that is too large")
        header = json.loads(text.item())
        if header["format"] != format_name:
            raise ValueError("another format")
        names = [name.removesuffix(".npy") for name in archive.namelist() if name != "header.npy"]
        yield header, names, partial(_read_array, archive)


@contextmanager
def as_value_error(source: str, problem: str) -> Iterator[None]:
    """Turns errors of a damaged file or text into a ValueError "source: problem".

    An OSError or a MemoryError stays as it is: the fault is the machine's.
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


def _open_archive(file: BinaryIO) -> ZipFile:
    """The archive in a file, after a check that its members claim no more bytes than it has."""
    size = os.fstat(file.fileno()).st_size
    if not size:  # empty, or a device that may never end
        raise ValueError("no bytes")
    archive = ZipFile(file)
    members = archive.infolist()
    if sum(member.compress_size for member in members) > size:
        raise ValueError("members are larger than the file")
    if not all(0 <= member.header_offset < size for member in members):
        raise ValueError("a member lies outside the file")
    if len(set(archive.namelist())) < len(members):
        raise ValueError("two members of one name")
    return archive


def _read_array(archive: ZipFile, name: str) -> NDArray[Any]:
    """One array of the archive, with its checksum tested."""
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type != ZIP_STORED or member.file_size != member.compress_size:
        raise ValueError("compressed")
    content = archive.read(member)
    header = _HEADER.match(content)
    if header is None or int.from_bytes(header["length"], "little") != header.end() - 10:
        raise ValueError("not the header of a plain array")
    dtype = np.dtype(header["dtype"].decode())
    shape = tuple(int(axis) for axis in re.findall(rb"\d+", header["shape"]))
    values = np.frombuffer(content, dtype, offset=header.end())  # all remaining bytes, or an error
    fortran = header["fortran"] == b"True"
    array = values.reshape(shape, order="F" if fortran else "C").copy()
    _check_values(array)
    return array


def _check_values(array: NDArray[Any]) -> None:
    """Refuses invalid bit patterns of text and booleans, which would fail when used."""
    valid: bool | np.bool_
    if array.dtype.kind == "U":
        code_points = np.dtype(np.uint32).newbyteorder(array.dtype.byteorder)
        valid = (array.reshape(-1).view(code_points) <= 0x10FFFF).all()
    else:
        valid = array.dtype.kind != "b" or (array.view(np.uint8) <= 1).all()
    if not valid:
        raise ValueError("not a value of its type")
