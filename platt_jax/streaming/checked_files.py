"""Columns on disk, with a checksum of every block of rows that each read compares."""

from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax.extras import install_hint

# Rows of a block. A read of part of a block reads all of it; a chunk of a fit has 16 or more.
BLOCK_ROWS = 1 << 14
_BLOCKS_READ_TOGETHER = 64


class CheckedFile(NamedTuple):
    """A column of a cache."""

    path: Path  # the file, of items of the dtype and nothing else
    dtype: np.dtype[Any]  # dtype of the items
    length: int  # number of items
    block_rows: int  # number of items in a block; the last block may be shorter
    checksums: NDArray[np.uint64]  # (blocks,) uint64 checksum of each block
    # (blocks,) which blocks were compared, and are not again; None: each read compares
    seen: NDArray[np.bool_] | None = None

    @property
    def complete(self) -> bool:
        """Whether the file has the right size, and each block a checksum."""
        size = self.length * self.dtype.itemsize
        blocks = -(-self.length // self.block_rows)
        as_long = self.path.is_file() and self.path.stat().st_size == size
        return as_long and self.checksums.shape == (blocks,)

    def checked_once(self) -> Self:
        """The same column, whose blocks are compared in their first read only."""
        return self._replace(seen=np.zeros(len(self.checksums), bool))

    def read(self, file: FileIO, part: slice, into: NDArray[Any]) -> None:
        """Fill an array with a part of the column, from blocks with the right checksums."""
        blocks = slice(part.start // self.block_rows, -(-part.stop // self.block_rows))
        if self.seen is not None and self.seen[blocks].all():
            read_at(file, part.start, into)
            return
        for piece, around in self._pieces(part):
            rows = into[piece.start - part.start : piece.stop - part.start]
            buffer = rows if around == piece else np.empty(around.stop - around.start, self.dtype)
            read_at(file, around.start, buffer)
            self._compare(buffer, around.start // self.block_rows)
            if around != piece:
                rows[:] = buffer[piece.start - around.start : piece.stop - around.start]
        if self.seen is not None:
            self.seen[blocks] = True

    def _pieces(self, part: slice) -> list[tuple[slice, slice]]:
        """Up to three pieces of the part, each with the blocks around it.

        All but the first and the last piece, which may be parts of a block, are blocks themselves.
        """
        block = self.block_rows
        inner = min(-(-part.start // block) * block, part.stop)
        edges = sorted({part.start, inner, max(part.stop // block * block, inner), part.stop})
        return [
            (
                slice(first, last),
                slice(first // block * block, min(-(-last // block) * block, self.length)),
            )
            for first, last in pairwise(edges)
        ]

    def _compare(self, rows: NDArray[Any], first: int) -> None:
        actual = _checksums(rows, self.block_rows)
        expected = self.checksums[first : first + len(actual)].tolist()
        if actual == expected:
            return
        block = first + next(i for i in range(len(actual)) if actual[i] != expected[i])
        begin = block * self.block_rows
        end = min(begin + self.block_rows, self.length)
        raise ValueError(
            f"cache: {self.path} is damaged: block {block:,} (rows {begin:,} to {end - 1:,}) is "
            f"not as it was written; delete {self.path.parent}"
        )


def checksums_of(path: Path, dtype: np.dtype[Any], rows: slice) -> list[int]:
    """Checksums of the blocks of BLOCK_ROWS in a stretch of a file, which begins with a block."""
    together, checksums = _BLOCKS_READ_TOGETHER * BLOCK_ROWS, []
    with open(path, "rb", buffering=0) as file:
        for first in range(rows.start, rows.stop, together):
            column = np.empty(min(first + together, rows.stop) - first, dtype)
            read_at(file, first, column)
            checksums += _checksums(column, BLOCK_ROWS)
    return checksums


def _checksums(rows: NDArray[Any], block_rows: int) -> list[int]:
    digest, content = xxhash().xxh3_64_intdigest, memoryview(rows.view(np.uint8).data)
    step = block_rows * rows.itemsize
    return [digest(content[first : first + step]) for first in range(0, len(content), step)]


def xxhash() -> Any:
    """The module of the hash XXH3, several times as fast as the standard library's CRC-32."""
    with install_hint("checksums of rows on disk need xxhash", "platt-jax[streaming]"):
        import xxhash
    return xxhash


def read_at(file: FileIO, first: int, into: NDArray[Any]) -> None:
    """Fill an array with items of an unbuffered file from `first` on, or raise an OSError."""
    file.seek(first * into.itemsize)
    remaining = memoryview(into.view(np.uint8).data)
    while len(remaining):
        number = file.readinto(remaining)
        if not number:
            raise OSError(f"{file.name}: {len(remaining):,} bytes are missing: was it changed?")
        remaining = remaining[number:]
