"""Files named to a command, and standard input: plain, or compressed by gzip."""

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

from platt_jax.results.files import naming_file

# Instead of the name of a file: standard input, or standard output.
DASH = "-"
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1\x15"
_TAB_ENDINGS = (".tsv", ".tab", ".tsv.gz", ".tab.gz")


class Input(NamedTuple):
    """A file of rows."""

    name: str  # what messages call it
    path: str  # where its bytes are
    delimiter: str = ","

    @property
    def is_parquet(self) -> bool:
        """Whether it begins as Parquet does."""
        return self._begins(_PARQUET)

    def open(self) -> io.BufferedReader:
        """Its bytes, decompressed."""
        if self._begins(_GZIP):
            return io.BufferedReader(cast(Any, gzip.open(self.path)))
        return open(self.path, "rb")

    def _begins(self, mark: bytes) -> bool:
        if not os.path.isfile(self.path):  # of a pipe nothing can be read twice
            return False
        with open(self.path, "rb") as file:
            return file.read(len(mark)) == mark


@contextmanager
def staged(names: Sequence[str], delimiter: str | None) -> Iterator[list[Input]]:
    """The files of these names; standard input is copied to a file, to be read more than once.

    Args:
        names: of files, of which one may be `DASH`.
        delimiter: between fields; None for a tab in files whose name ends so, else a comma.

    Raises:
        ValueError: standard input is named twice, or closed.
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
