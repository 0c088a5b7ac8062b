"""What an engine does: it brings each segment's rows together, and runs functions on the parts."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from platt_jax.cluster.meeting import Invitation, MeetingByServer
from platt_jax.cluster.tasks import EngineColumns, FittedPart, places, read_ids
from platt_jax.distributed.shared_sums import Meeting
from platt_jax.ids import IdColumns, Ids, length
from platt_jax.ids.factorize import factorize
from platt_jax.ids.hashing import hashes

# Fits the rows of a part, given where it meets the others, and its number.
FitPart: TypeAlias = Callable[[pa.Table, Meeting, int], FittedPart]
# Makes a table of a part's calibrator, or of a part's calibrator and rows.
MapPart: TypeAlias = Callable[[bytes], pa.Table]
JoinPart: TypeAlias = Callable[[bytes, pa.Table], pa.Table]
MapTable: TypeAlias = Callable[[pa.Table], pa.Table]


class Engine(Protocol):
    """Where rows are. A part is a number from 0 to P - 1. Schemas describe what tasks make."""

    @property
    def partitions(self) -> int:
        """P, the number of parts, which can all run at the same time."""

    def schema(self, rows: Any) -> pa.Schema:
        """The columns of the rows."""

    def select(self, rows: Any, columns: list[str]) -> Any:
        """These columns of the rows, for `collect` and `fit`."""

    def collect(self, rows: Any, columns: list[str], most: int | None = None) -> pa.Table:
        """These columns on this machine, in any order.

        With `most` they are of about so many random rows, the same at each call.
        """

    def fit(self, rows: Any, names: EngineColumns, task: FitPart) -> Any:
        """Runs the task on all parts, and keeps the results in the engine."""

    def results(self, fitted: Any, field: str) -> list[bytes]:
        """This field of the `FittedPart` of each part, on this machine."""

    def map(self, fitted: Any, task: MapPart, schema: pa.Schema) -> Any:
        """The engine's table of what a task makes of each part's calibrator."""

    def join(
        self, fitted: Any, rows: Any, names: EngineColumns, task: JoinPart, schema: pa.Schema
    ) -> Any:
        """The engine's table of what a task makes of each part's calibrator and rows."""

    def kept(self, table: Any) -> Any:
        """The same table, computed once and kept in the engine."""

    def with_column(self, table: Any, task: MapTable, schema: pa.Schema) -> Any:
        """The engine's table of what a task makes of each piece of a table."""

    def write_parquet(self, table: Any, path: str) -> None:
        """Writes one of its tables to a folder."""


def meet(task: FitPart, invitation: Invitation, part: int, rows: pa.Table) -> FittedPart:
    """Runs a task on the rows of a part, which meets the others."""
    with MeetingByServer(invitation, part) as meeting:
        return task(rows, meeting, part)


_DIVIDED_AT_ONCE = 1 << 20  # rows, because larger arrays need new memory each time
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio (Knuth 1998, 6.4)


def parts_of_rows(
    rows: pa.Table, names: EngineColumns, parts: int, first: int = 0
) -> NDArray[np.int64]:
    """The part (N,) of each row; rows of large segments are dealt out in turn, from `first` on.

    If ids are invalid, all rows are of part 0, whose fit says what is wrong with them.
    """
    part = np.zeros(rows.num_rows, np.int64)
    if not rows.num_rows:
        return part
    try:
        part = parts_of(read_ids(rows, names.segment), parts)
        if len(names.large):
            dealt = np.flatnonzero(places(rows, names.segment, names.large) >= 0)
            part[dealt] = (first + np.arange(len(dealt))) % parts
    except ValueError:
        pass
    return part


def parts_of(ids: Ids, parts: int) -> NDArray[np.int64]:
    """The part (N,) of each row by its id, the same in every process."""
    return (_hashed(ids) % np.uint64(parts)).astype(np.int64)


def _hashed(ids: Ids) -> NDArray[np.uint64]:
    if isinstance(ids, IdColumns):
        hashed = np.zeros(length(ids), np.uint64)
        for column in ids.columns:
            hashed = _mixed(hashed ^ _hashed(column))
        return hashed
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
        return _mixed(ids.astype(np.uint64))
    rows = factorize(ids)
    codes = rows.of(slice(None))
    used = np.flatnonzero(np.bincount(codes))
    keys = rows.named(used)
    hashed = np.zeros(rows.numbers, np.uint64)
    hashed[used] = _hashed(keys) if keys.dtype.kind in "iu" else hashes(keys)
    return hashed[codes]


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = numbers * _MULTIPLIER
    return mixed ^ (mixed >> np.uint64(32))


def pieces(rows: pa.Table, names: EngineColumns, parts: int, first: int = 0) -> list[bytes]:
    """The rows of each part (P,), in their order, as one value in Arrow's format.

    An engine shuffles a few values faster than many rows.
    """
    streams = [pa.BufferOutputStream() for _ in range(parts)]
    writers = [pa.ipc.new_stream(stream, rows.schema) for stream in streams]
    for start in range(0, rows.num_rows, _DIVIDED_AT_ONCE):
        block = rows.slice(start, _DIVIDED_AT_ONCE)
        part = parts_of_rows(block, names, parts, first)
        part = part.astype(np.min_scalar_type(parts))  # NumPy sorts short integers in linear time
        together = block.take(pa.array(np.argsort(part, kind="stable")))
        ends = np.cumsum(np.bincount(part, minlength=parts))
        for writer, begin, end in zip(writers, [0, *ends[:-1]], ends, strict=True):
            writer.write_table(together.slice(begin, end - begin))
    for writer in writers:
        writer.close()
    return [stream.getvalue().to_pybytes() for stream in streams]


def whole(pieces: Iterable[bytes]) -> pa.Table:
    """The rows of a part, from its pieces."""
    tables = [pa.ipc.open_stream(piece).read_all() for piece in pieces]
    return pa.concat_tables(tables, promote_options="permissive")


def adds_columns(rows: pa.Schema, made: pa.Schema) -> bool:
    """Whether a table has the columns of the rows, followed by new ones."""
    return made.names[: len(rows.names)] == rows.names
