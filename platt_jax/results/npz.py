"""Reads plain arrays from an untrusted .npz file.

`numpy.load` trusts the sizes that a file declares, and allocates memory accordingly. Here a size
counts only if the bytes exist. Members must be stored uncompressed, as `numpy.savez` writes them.
So together they cannot be larger than the file, and an array is exactly as large as its bytes.
"""

import os
import re
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from numpy.typing import NDArray

# Kinds of plain dtypes: numbers, text and times, but not objects or records.
KINDS = "biufcSUmM"

# The beginning of a member with a plain array, as NumPy writes it: magic, version 1.0, the length
# of the rest, and a dict. It is matched as text, so that nothing is evaluated.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(?P<length>..)"
    rb"\{'descr': '(?P<dtype>[<>|][biufcSUmM]\d{1,9}(\[\w{1,20}\])?)', "
    rb"'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>[\d, ]*)\), \} *\n",
    re.DOTALL,
)


def open_archive(file: BinaryIO) -> ZipFile:
    """The archive in a file, after a check that its members claim no more bytes than it has.

    Raises:
        Exception: the file is not such an archive. The class depends on the fault.
    """
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


def read_array(archive: ZipFile, name: str) -> NDArray[Any]:
    """One array of the archive, with its checksum tested.

    Raises:
        Exception: it is missing, damaged or not plain. The class depends on the fault.
    """
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
