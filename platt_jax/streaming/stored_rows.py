"""Rows on disk, grouped by segment: a directory that is written once, and read during fits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.caller import Caller
from platt_jax.execution.checkpoint import Checkpoint, digest
from platt_jax.execution.devices import checked
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns
from platt_jax.population.chunked import ChunkedSegments
from platt_jax.population.segments import FitArguments, Segments
from platt_jax.results.archive import read_archive, write_archive
from platt_jax.results.id_arrays import arrays_to_ids, ids_to_arrays
from platt_jax.results.tables import counted
from platt_jax.streaming import checked_files
from platt_jax.streaming.checked_files import CheckedFile

FORMAT = "platt-jax rows 2"
MANIFEST = "rows.npz"

_CHECKSUMS = "checksums_"

# Number of rows read at a time for a sample.
_SAMPLED_TOGETHER = 1 << 20


class StoredRows(SegmentRows):
    """Rows that `rows` wrote, for `platt_jax.fit_segments`; accepted in place of SegmentRows.

    The rows stay on disk. A fit reads the rows of a chunk of segments once for all passes. The
    pooled fit, and the fit of a segment with more than half a million rows, read them in each pass.
    A fit that reads rows changed since they were written, such as by a disk's fault, is an error:
    each block of 16,384 rows has a checksum, compared when a call first reads the block.
    `Monitor.update` reads the rows of some segments at a time. `triage`, `robust_covariance`,
    `estimate_rates`, `estimate_means`, `estimate_drift`, metrics and pages read all rows into
    memory.

    Args:
        directory: the cache directory given to `rows`.
        checkpoint: file for the segments' fits so far, written every few seconds. After a crash the
            same fit continues from there, with bitwise equal results. The file is removed at the
            end. The pooled fit, a few passes over the rows, starts anew. Not for pooling="partial",
            "nested" or "crossed".

    Attributes:
        keys: (K,) distinct segment ids, ascending.
        dtype: dtype of the scores and of the fits, float32 or float64.
        identity: text that is unique to these stored rows.

    Raises:
        ValueError: the directory has no stored rows, or they are damaged; in a fit also if the
            checkpoint is of other rows or other arguments.
        OSError: the rows cannot be read; in a fit also if the checkpoint cannot be read or written.
    """

    reread = True

    def __init__(
        self,
        directory: str | os.PathLike[str],
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self._directory, self._checkpoint = Path(directory), checkpoint
        header, arrays = _read_manifest(self._directory)
        self.keys = arrays_to_ids("keys", header["ids"], arrays.__getitem__)
        self.largest_first, self.sizes = arrays["largest_first"], arrays["sizes"]
        self._starts = arrays["starts"]
        self.length, self._rows = header["length"], header["rows"]
        self.fingerprint, self.identity = header["source"], header["identity"]
        self._files = {
            name: CheckedFile(
                self._directory / name,
                np.dtype(dtype),
                self.length,
                header["block_rows"],
                arrays[_CHECKSUMS + name],
            )
            for name, dtype in zip(Columns._fields, header["dtypes"], strict=False)
            if dtype is not None
        }
        self.dtype = self._files["scores"].dtype
        for column in self._files.values():
            if not column.complete:
                raise ValueError(
                    f"cache: {column.path} is missing or damaged: delete {self._directory}"
                )

    @property
    def has_offset(self) -> bool:
        """See GroupedRows."""
        return "offset" in self._files

    def __repr__(self) -> str:
        return (
            f"StoredRows: {counted(len(self), 'row')} of {counted(len(self.keys), 'segment')}, "
            f"{self.dtype}, "
            f"in {self._directory}"
        )

    def for_one_call(self) -> Self:
        """See SegmentRows. What the call reads again is not compared with checksums again."""
        duplicate = copy(self)
        duplicate._files = {name: column.checked_once() for name, column in self._files.items()}
        return duplicate

    @contextmanager
    def open_segments(self, arguments: FitArguments, caller: Caller) -> Iterator[Segments]:
        """See `platt_jax.population.segments.SegmentSource`."""
        arguments.check()
        if self._checkpoint is not None and arguments.pooling not in ("none", "complete"):
            raise ValueError(
                f'checkpoint: expected None with pooling="{arguments.pooling}": it keeps the fits '
                "of segments one by one, and a population is of all of them"
            )
        checkpoint = None
        if self._checkpoint is not None:
            checkpoint = Checkpoint(self._checkpoint, self._call(arguments))
        yield ChunkedSegments(self.for_one_call(), caller, checked(arguments.mesh), checkpoint)
        if checkpoint is not None:
            checkpoint.remove()

    def _call(self, arguments: FitArguments) -> dict[str, str]:
        """What the segments' fits depend on, by name."""
        return {
            "rows": self.identity,
            "prior": digest(arguments.prior or ()),
            "start": digest(arguments.start or ()),
            "options": repr(arguments.options.with_tol(self.dtype)),
        }

    def all(self, part: slice, space: packing.Space) -> Columns:
        """See GroupedRows."""
        return self._read([slice(*part.indices(self.length))], space)

    def sampled_scores(self, most: int) -> NDArray[Any]:
        """See GroupedRows."""
        step = max(1, self.length // most)
        together = max(1, _SAMPLED_TOGETHER // step) * step
        samples = []
        for first in range(0, self.length, together):
            part = slice(first, min(first + together, self.length))
            sampled = slice(0, part.stop - first, step)
            rows = jax.tree.map(itemgetter(sampled), self.all(part, packing.Space(together)))
            samples.append(rows.weighted_scores())
        return np.concatenate(samples)

    def take(self, problems: slice, part: slice, space: packing.Space) -> Columns:
        """See GroupedRows."""
        starts, sizes = self._starts[problems], self.sizes[problems]
        if len(starts) == 1 and part != slice(None):
            first = int(starts[0])
            return self._read([slice(first + part.start, first + part.stop)], space)
        ends = starts + sizes
        gaps = np.flatnonzero(starts[1:] != ends[:-1])
        firsts, lasts = starts[[0, *(gaps + 1)]].tolist(), ends[[*gaps, -1]].tolist()
        return self._read([slice(*ends) for ends in zip(firsts, lasts, strict=True)], space)

    def _read(self, parts: list[slice], space: packing.Space) -> Columns:
        """These stretches of the columns, concatenated."""
        columns: dict[str, NDArray[Any]] = {}
        for number, (name, column) in enumerate(self._files.items()):
            into, filled = packing.room(space, number, column.dtype), 0
            # Opened in each call: threads share no position, and processes no descriptor.
            with open(column.path, "rb", buffering=0) as file:
                for part in parts:
                    rows = part.stop - part.start
                    column.read(file, part, into[filled : filled + rows])
                    filled += rows
            columns[name] = into
        return Columns(**columns)


def is_stored(directory: Path) -> bool:
    """Whether a directory has stored rows."""
    return (directory / MANIFEST).is_file()


def write_manifest(
    directory: Path,
    header: dict[str, Any],
    keys: NDArray[Any],
    arrays: dict[str, NDArray[Any]],
    checksums: dict[str, list[int]],
) -> None:
    """Write the manifest, which StoredRows reads besides the columns.

    The header says what holds for all rows; checksums are by column, for its blocks of BLOCK_ROWS
    rows.
    """
    layout, id_arrays = ids_to_arrays("keys", keys)
    header = {"format": FORMAT, **header, "block_rows": checked_files.BLOCK_ROWS, "ids": layout}
    checksum_arrays = {_CHECKSUMS + name: np.array(x, np.uint64) for name, x in checksums.items()}
    write_archive(directory / MANIFEST, header, {**id_arrays, **arrays, **checksum_arrays})


def _read_manifest(directory: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    if not is_stored(directory):
        raise ValueError(f"cache: expected a directory that streaming.rows wrote, got {directory}")
    path = directory / MANIFEST
    refusal = f"{path} is damaged, or another version of platt_jax made it: delete {directory}"
    with read_archive(path, FORMAT, "cache", refusal) as (header, names, read_array):
        return header, {name: read_array(name) for name in names}
