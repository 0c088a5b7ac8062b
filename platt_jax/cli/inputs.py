"""Input files and standard input, plain or compressed by gzip."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, cast

from platt_jax.results.atomic import naming_file

# Name for standard input or standard output.
DASH = "-"
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1\x15"
_TAB_ENDINGS = (".tsv", ".tab", ".tsv.gz", ".tab.gz")
# What files of rows are named, plain or compressed.
ROWS_ENDINGS = (*_TAB_ENDINGS, ".csv", ".csv.gz", ".txt", ".parquet")
# Missing numbers and labels, in any case, as written by pandas, R, SQL and spreadsheets.
MISSING = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "null", "None")


class Input(NamedTuple):
    """A file of rows."""

    name: str  # name in messages
    path: str  # path of the bytes
    delimiter: str = ","

    @property
    def is_parquet(self) -> bool:
        """Whether the file begins with Parquet's mark."""
        return self._begins(_PARQUET)

    def open(self) -> io.BufferedReader:
        """Open the file for reading, decompressed."""
        if self._begins(_GZIP):
            return io.BufferedReader(cast(Any, gzip.open(self.path)))
        return open(self.path, "rb")

    def _begins(self, mark: bytes) -> bool:
        if not os.path.isfile(self.path):  # a pipe cannot be read twice
            return False
        with open(self.path, "rb") as file:
            return file.read(len(mark)) == mark


@contextmanager
def staged(names: Sequence[str], delimiter: str | None) -> Iterator[list[Input]]:
    """The named files; standard input is copied to a file, so that it can be read repeatedly.

    Without a delimiter it is a tab in files named like TSV, else a comma.
    """
    if list(names).count(DASH) > 1:
        raise ValueError(f"{DASH}: expected standard input once, got it {names.count(DASH)} times")
    with ExitStack() as files:
        yield [_staged(name, delimiter, files) for name in names]


def _staged(name: str, delimiter: str | None, files: ExitStack) -> Input:
    if delimiter is None:
        delimiter = "\t" if name.lower().endswith(_TAB_ENDINGS) else ","
    if name != DASH:
        return Input(name, name, delimiter)
    if sys.stdin is None:
        raise ValueError(f"{DASH}: standard input is closed")
    copy = files.enter_context(tempfile.NamedTemporaryFile())  # noqa: SIM115 - left with the others
    with naming_file(copy.name):
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
    return Input("standard input", copy.name, delimiter)
