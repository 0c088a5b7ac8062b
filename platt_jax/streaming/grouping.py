"""Grouping of rows by segment on disk, for rows that do not fit in memory.

The source is read once, and its rows are written in the given order, with segment numbers in place
of ids. After that the size and place of every segment are known. Adjacent segments form a bucket,
whose rows fit in memory. Each row is written to its bucket's place, and then the buckets are sorted
one by one. A segment that fills a bucket alone needs no sorting.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Integers
from platt_jax.backend.threads import ordered_map, row_slices, run_programs
from platt_jax.caller import Caller
from platt_jax.execution import planning
from platt_jax.execution.grouping import row_positions
from platt_jax.execution.progress import SILENT, Stage, reporting
from platt_jax.execution.segment_rows import checked_rows
from platt_jax.groups import Groups
from platt_jax.ids.factorize import Factorized
from platt_jax.ids.labels import labels_and_other
from platt_jax.ids.vocabulary import Vocabulary, distinct
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns
from platt_jax.streaming import checked_files
from platt_jax.streaming.checked_files import checksums_of, read_at, xxhash
from platt_jax.streaming.sources import Batch, Fingerprint, Source
from platt_jax.streaming.stored_rows import write_manifest

# Maximum number of rows per bucket, except for a larger segment; a few buckets are in memory.
BUCKET_ROWS = 1 << 22

_BLOCK_ROWS = 1 << 20
_NUMBERS = "numbers"


class _CheckedBatch(NamedTuple):
    columns: dict[str, NDArray[Any]]  # by their names in `Columns`
    rows: Integers  # index into the keys, for each row
    keys: NDArray[Any]
    coding: NDArray[np.bool_]  # (2,) whether labels include -1, and 0
    other: NDArray[Any]  # (0,) or (1,) label of class 0, if there is a pos_label
    in_unit_interval: validation.UnitInterval
    where: str


def group_source(
    source: Source,
    directory: Path,
    fingerprint: Fingerprint,
    pos_label: Any,
    stage: Callable[[str], Stage],
    caller: Caller,
) -> None:
    """Write the rows of a source, read once, to an empty directory for StoredRows.

    The fingerprint of the source is stored with the rows. `stage` returns the stage of a given
    name, and `caller` is where the warning about scores that look like probabilities points.
    """
    xxhash()  # before hours of reading
    spill = directory / "spill"
    spill.mkdir()
    reading = SILENT if source.rows is None else stage("reading rows")
    vocabulary, counts, dtypes = _spill(source, spill, pos_label, reading, caller)
    largest_first = planning.largest_first(counts[vocabulary.numbers])
    sizes = counts[vocabulary.numbers][largest_first]
    starts, length = planning.layout_rows(sizes)
    rank = np.empty(len(sizes), np.int32)  # position in largest_first of each segment number
    rank[vocabulary.numbers[largest_first]] = np.arange(len(sizes))
    buckets = _Buckets.of(sizes, starts, length)
    with reporting(_repeated(2 * int(sizes.sum())), stage("grouping rows")) as advance:
        _partition(spill, directory, dtypes, rank, buckets, advance)
        shutil.rmtree(spill)
        checksums = run_programs(
            partial(_put_in_order, directory, dtypes, buckets, advance), x64=True
        )
    (directory / _NUMBERS).unlink()
    header = {
        "rows": int(sizes.sum()),
        "length": length,
        "dtypes": [dtypes[name].str if name in dtypes else None for name in _up_to(dtypes)],
        "source": fingerprint,
        "identity": secrets.token_hex(16),
    }
    # In four bytes if they suffice, as in GroupedRows.
    kind = np.min_scalar_type(-length - 1) if length > np.iinfo(np.int32).max else np.int32
    arrays = {"largest_first": largest_first, "sizes": sizes, "starts": starts}
    arrays = {name: x.astype(kind) for name, x in arrays.items()}
    write_manifest(directory, header, vocabulary.keys, arrays, checksums)


# --- reading --------------------------------------------------------------------------------------


def _spill(
    source: Source, spill: Path, pos_label: Any, stage: Stage, caller: Caller
) -> tuple[Vocabulary, NDArray[np.int64], dict[str, np.dtype[Any]]]:
    """Write the rows in order; returns their ids, the number of rows of each, and the dtypes."""
    vocabulary, counts = Vocabulary(), np.zeros(0, np.int64)
    first: _CheckedBatch | None = None
    codings, other_labels, files = np.zeros(2, bool), set(), []
    unit_interval, check = validation.UnitInterval(), partial(_check, pos_label=pos_label)
    with_rows = (batch for batch in source.batches() if np.shape(batch.scores) != (0,))
    with ExitStack() as open_files, reporting(_repeated(source.rows or 0), stage) as advance:
        for batch in ordered_map(check, with_rows):
            if first is None:
                first = batch
                names = [*batch.columns, _NUMBERS]
                files = [_open(open_files, spill / name) for name in names]
            codings |= batch.coding
            other_labels |= set(batch.other.tolist())
            with _naming(batch.where):
                _require_alike(first, batch, codings)
                _require_one_other(other_labels, pos_label)
                numbers = vocabulary.add(batch.rows, batch.keys)
            new_counts = np.bincount(numbers, minlength=len(vocabulary.numbers))
            new_counts[: len(counts)] += counts
            counts = new_counts
            unit_interval = unit_interval.with_more(batch.in_unit_interval)
            for file, column in zip(files, (*batch.columns.values(), numbers), strict=True):
                _write(file, column)
            advance(len(numbers))
    if first is None:
        raise ValueError("source: expected rows to fit, got none")
    if (doubt := unit_interval.doubt) is not None:
        caller.warn_once(doubt)
    return vocabulary, counts, {name: x.dtype for name, x in first.columns.items()}


def _check(batch: Batch, pos_label: Any) -> _CheckedBatch:
    other = np.zeros(0)
    with _naming(batch.where):
        if pos_label is not None:
            labels, other = labels_and_other(batch.labels, pos_label, 1)
            batch = batch._replace(labels=labels)
        rows, segments = checked_rows(
            batch.scores, batch.labels, batch.segments, batch.weights, offset=batch.offset
        )
        raw_labels = validation.array(batch.labels, "labels")
        coding = np.array([(raw_labels == -1).any(), (raw_labels == 0).any()])
    in_unit_interval = validation.in_unit_interval(rows.scores)
    rows = rows._replace(scores=packing.bad_labels_as_nan(rows.scores, rows.labels))
    columns = {name: x for name, x in rows._asdict().items() if x is not None}
    return _CheckedBatch(columns, *distinct(segments), coding, other, in_unit_interval, batch.where)


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Adds the batch's name to errors raised inside."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _require_alike(first: _CheckedBatch, batch: _CheckedBatch, codings: NDArray[np.bool_]) -> None:
    if codings.all():
        raise ValueError(
            f"labels: expected one of the codings {validation.LABEL_CODINGS} in all batches, got "
            "0 and -1"
        )
    for name in ("weights", "offset"):
        if (name in batch.columns) != (name in first.columns):
            raise ValueError(f"{name}: expected them in all batches or in none")
    had, got = first.columns["scores"].dtype, batch.columns["scores"].dtype
    if got != had:
        raise ValueError(f"scores: expected one dtype in all batches, got {got} after {had}")


def _require_one_other(other_labels: set[Any], pos_label: Any) -> None:
    if len(other_labels) > 1:
        raise ValueError(
            f"labels: expected pos_label={pos_label!r} and at most one other value in all batches, "
            f"got {', '.join(sorted(map(repr, other_labels)))}"
        )


# --- buckets --------------------------------------------------------------------------------------


class _Buckets(NamedTuple):
    """Buckets of adjacent segments, given by their boundaries."""

    segments: Integers  # (buckets + 1,) first segment of each bucket, and the end
    places: Integers  # (buckets + 1,) first row position of each bucket, and the end
    sizes: Integers  # (K,) number of rows of each segment
    starts: Integers  # (K,) first row position of each segment

    @classmethod
    def of(cls, sizes: Integers, starts: Integers, length: int) -> Self:
        with_gaps = Groups(np.diff(starts, append=length))
        segments = np.array([0, *(part.stop for part in with_gaps.slices(BUCKET_ROWS))])
        return cls(segments, np.append(starts[segments[:-1]], length), sizes, starts)

    @property
    def number(self) -> int:
        return len(self.segments) - 1


def _partition(
    spill: Path,
    directory: Path,
    dtype_by_column: dict[str, np.dtype[Any]],
    rank: NDArray[np.int32],
    buckets: _Buckets,
    advance: Callable[[int], None],
) -> None:
    """Write each row to its bucket's place, in the original order."""
    bucket = Groups(np.diff(buckets.segments)).owner
    bucket = bucket.astype(np.min_scalar_type(buckets.number))
    names = [*dtype_by_column, _NUMBERS]
    dtypes = [*dtype_by_column.values(), np.dtype(np.int32)]
    rows = (spill / _NUMBERS).stat().st_size // 4

    def read_block(part: slice) -> tuple[list[NDArray[Any]], list[int]]:
        columns: list[NDArray[Any]] = []
        for name, dtype in zip(names, dtypes, strict=True):
            columns.append(np.empty(part.stop - part.start, dtype))
            with open(spill / name, "rb", buffering=0) as file:
                read_at(file, part.start, columns[-1])
        columns[-1] = rank[columns[-1]]
        numbers = bucket[columns[-1]]
        order = np.argsort(numbers, kind="stable")
        edges = np.cumsum(np.bincount(numbers, minlength=buckets.number))
        return [column[order] for column in columns], [0, *edges.tolist()]

    with ExitStack() as open_files:
        files = [_open(open_files, directory / name) for name in names]
        for file, dtype in zip(files, dtypes, strict=True):
            file.truncate(int(buckets.places[-1]) * dtype.itemsize)
        next_places = buckets.places[:-1].tolist()
        for columns, edges in ordered_map(read_block, row_slices(rows, _BLOCK_ROWS)):
            for i, (first, last) in enumerate(pairwise(edges)):
                if first < last:
                    for file, column in zip(files, columns, strict=True):
                        _write(file, column[first:last], next_places[i])
                    next_places[i] += last - first
            advance(edges[-1])


def _put_in_order(
    directory: Path,
    dtypes: dict[str, np.dtype[Any]],
    buckets: _Buckets,
    advance: Callable[[int], None],
) -> dict[str, list[int]]:
    """Sort the rows of each bucket by segment; returns the checksums of each column."""
    checksums: dict[str, list[int]] = {name: [] for name in dtypes}

    def sort_bucket(i: int) -> int:
        segments = slice(*buckets.segments[i : i + 2])
        sizes = buckets.sizes[segments]
        first, last = buckets.places[i : i + 2].tolist()
        rows = int(sizes.sum())
        if len(sizes) == 1:
            positions: slice | NDArray[np.int32] = slice(0, 0)
            gap = first + rows
        else:
            positions = _positions(directory / _NUMBERS, buckets, segments, first, rows)
            gap = first
        for name, dtype in dtypes.items():
            ordered = np.full(last - gap, np.nan if name == "scores" else 0, dtype)
            with open(directory / name, "r+b", buffering=0) as file:
                if gap == first:
                    column = np.empty(rows, dtype)
                    read_at(file, first, column)
                    ordered[positions] = column
                _write(file, ordered, gap)
        return rows

    start, block, ends = 0, checked_files.BLOCK_ROWS, buckets.places[1:].tolist()
    for rows, end in zip(ordered_map(sort_bucket, range(buckets.number)), ends, strict=True):
        # Now, while these rows are in the system's cache of files.
        last = end if end == ends[-1] else end // block * block
        for name, dtype in dtypes.items():
            checksums[name] += checksums_of(directory / name, dtype, slice(start, last))
        start = last
        advance(rows)
    for name in dtypes:
        with open(directory / name, "r+b") as file:
            os.fsync(file.fileno())
    return checksums


def _positions(
    path: Path, buckets: _Buckets, segments: slice, first: int, rows: int
) -> NDArray[np.int32]:
    """The position of each row in its bucket."""
    ranks = np.empty(rows, np.int32)
    with open(path, "rb", buffering=0) as file:
        read_at(file, first, ranks)
    starts = (buckets.starts[segments] - first).astype(np.int32)
    numbers = Factorized(ranks, segments.start, len(starts), None)
    positions = np.empty(rows, np.int32)
    for piece_positions, piece in row_positions(numbers, slice(0, rows), starts):
        positions[piece] = piece_positions
    return positions


def _up_to(dtypes: dict[str, np.dtype[Any]]) -> tuple[str, ...]:
    """The names of columns, up to the last that there is."""
    return Columns._fields[: 1 + max(map(Columns._fields.index, dtypes))]


def _open(stack: ExitStack, path: Path) -> FileIO:
    return stack.enter_context(open(path, "wb", buffering=0))


def _write(file: FileIO, column: NDArray[Any], first: int | None = None) -> None:
    """Write a column to an unbuffered file, at the item `first`, or at the current position."""
    if first is not None:
        file.seek(first * column.itemsize)
    remaining = memoryview(np.ascontiguousarray(column).view(np.uint8).data)
    try:
        while len(remaining):
            remaining = remaining[file.write(remaining) :]
    except OSError as error:  # its message lacks the file's name
        raise OSError(error.errno, error.strerror, file.name) from None


def _repeated(rows: int) -> NDArray[np.int8]:
    """Each row as a problem of size 1, for progress reports."""
    return np.broadcast_to(np.int8(1), rows)
