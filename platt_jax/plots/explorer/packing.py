"""Columns of numbers as few bytes that a browser reads at once.

A column is stored as planes: the first byte of every number, then the second, and so on, which
deflate compresses well. `static/unpack.js` reads it.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.model.objective import Array

# Fast, and larger by a few per cent than the best.
_LEVEL = 6
_MANTISSA = 23  # bits of a float32, without its leading 1


class Column(NamedTuple):
    """Numbers of one type.

    Attributes:
        values: (n,) numbers.
        dtype: "u1", "u4" or "f4", in little-endian order.
        bits: of a float's mantissa, how many to keep: 16 for five digits, 11 for three.
    """

    values: Array
    dtype: str
    bits: int = _MANTISSA

    def stored(self) -> NDArray[Any]:
        """(n,) the numbers as a reader finds them."""
        values = np.asarray(self.values).astype(f"<{self.dtype}")
        return _rounded(values, self.bits) if self.dtype == "f4" else values


NamedColumns: TypeAlias = Mapping[str, Column]


def packed(columns: NamedColumns) -> bytes:
    """The columns, one after the other, deflated."""
    return zlib.compress(b"".join(map(_planes, columns.values())), _LEVEL)


def layout(columns: NamedColumns) -> list[list[str]]:
    """Name and type of each column, by which a reader finds them in `packed`."""
    return [[name, column.dtype] for name, column in columns.items()]


def packed_texts(texts: Iterable[str]) -> bytes:
    """Texts as a list in JSON, deflated."""
    return zlib.compress(json.dumps(list(texts), separators=(",", ":")).encode(), _LEVEL)


def _planes(column: Column) -> bytes:
    values = column.stored()
    return values.view(np.uint8).reshape(len(values), values.itemsize).T.tobytes()


def _rounded(values: NDArray[np.float32], bits: int) -> NDArray[np.float32]:
    """The nearest numbers with this many bits of mantissa; the other bits are 0."""
    dropped = _MANTISSA - bits
    if not dropped:
        return values
    coded = values.view("<u4") + np.uint32(1 << (dropped - 1))
    return (coded & np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)).view("<f4")
