"""Sources of rows as batches of columns: arrays read in blocks, and batches."""

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from platt_jax.columns import require_one_order
from platt_jax.ids import structured
from platt_jax.streaming.checked_files import xxhash

# JSON that identifies the content of a source; None if that is not possible.
Fingerprint: TypeAlias = dict[str, Any] | None

BATCH_ROWS = 1 << 20
EXPECTED = "(scores, labels, segments[, weights[, offset]])"


class SourceColumns(NamedTuple):
    """The column names of a source, None for columns without a name."""

    score: str | None
    label: str | None
    segment: Any  # a name, or a list of names for ids of several columns
    weight: str | None = None
    offset: str | None = None

    @property
    def columns(self) -> list[str]:
        """All names."""
        segment = [self.segment] if isinstance(self.segment, str) else list(self.segment)
        others = [name for name in (self.weight, self.offset) if name is not None]
        return [str(self.score), str(self.label), *segment, *others]

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The names by argument; as before there were offsets if there is none."""
        names = self._asdict()
        if self.offset is None:
            del names["offset"]
        return names

    def __str__(self) -> str:
        given = {name: x for name, x in self._asdict().items() if x is not None}
        return f" ({', '.join(f'{name} {x!r}' for name, x in given.items())})" if given else ""


class Batch(NamedTuple):
    """A batch of rows."""

    where: str  # name of the batch in messages
    scores: Any
    labels: Any
    segments: Any
    weights: Any
    offset: Any = None


class Source(NamedTuple):
    """Rows that can be read in order."""

    batches: Callable[[], Iterator[Batch]]
    fingerprint: Callable[[], Fingerprint]
    rows: int | None  # None if unknown


def require_names(names: SourceColumns) -> None:
    """Refuses a source with named columns if the score, label or segment has no name."""
    for argument, name in zip(names._fields[:3], names, strict=False):
        if name is None:
            raise ValueError(f"{argument}: expected the name of a column of the source, got None")


def batches_of(tables: Iterable[Any], names: SourceColumns, source: str = "") -> Iterator[Batch]:
    """The rows of tables; messages name the source and the first row of a table there."""
    first = 0
    for table in tables:
        where = f"rows from {first:,} on{source}{names}"
        batch = Batch(where, *(column(table, name, where) for name in names))
        yield batch
        first += len(batch.scores)


def column(table: Any, name: Any, where: str) -> Any:
    """A column of a mapping or table; a table for several names, None for no name."""
    if name is None:
        return None
    if not isinstance(name, str):
        if hasattr(table, "select"):  # pyarrow and polars
            return table.select(list(name))
        if not isinstance(table, Mapping):
            return table[list(name)]
        columns = [np.asarray(column(table, part, where)) for part in name]
        return structured(name, columns)
    try:
        return table[name]
    except (KeyError, IndexError, LookupError):
        there = list(getattr(table, "column_names", None) or table.keys())
        raise ValueError(f"{where}: expected a column {name!r}, there are {there}") from None


# --- arrays ---------------------------------------------------------------------------------------


def arrays_source(arrays: dict[str, Any], names: SourceColumns, key: str | None) -> Source:
    """Rows of arrays of one length, which are copied in blocks."""
    require_one_order(**arrays)
    arrays = {name: x if hasattr(x, "dtype") else np.asarray(x) for name, x in arrays.items()}
    rows = len(arrays[str(names.score)])
    for name, array in arrays.items():
        if len(array) != rows:
            raise ValueError(f"{name}: expected one per score, {rows:,}, got {len(array):,}")

    def copies() -> Iterator[dict[str, Any]]:
        for first in range(0, rows, BATCH_ROWS):
            part = slice(first, first + BATCH_ROWS)
            yield {name: np.array(x[part]) for name, x in arrays.items()}
            for array in arrays.values():
                _release(array)

    def fingerprint() -> Fingerprint:
        return {**names.fingerprint, "key": key, **{n: _digest(x) for n, x in arrays.items()}}

    return Source(lambda: batches_of(copies(), names), fingerprint, rows)


def _release(column: Any) -> None:
    """Release the pages of a file mapped read-only, which count towards this process's memory."""
    mapped = getattr(column, "_mmap", None)
    if mapped is not None and getattr(column, "mode", None) == "r" and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _digest(column: Any) -> list[Any]:
    """The shape and dtype of an array, and a hash of all its rows."""
    digest = xxhash().xxh3_128()
    for first in range(0, len(column), BATCH_ROWS):
        rows = np.ascontiguousarray(column[first : first + BATCH_ROWS])
        if rows.dtype.hasobject:
            digest.update(repr(rows.tolist()).encode(errors="surrogatepass"))
        else:
            digest.update(rows.view(np.uint8).data)
        _release(column)
    return [list(column.shape), str(column.dtype), digest.hexdigest()]


# --- batches --------------------------------------------------------------------------------------


def batches_source(source: Iterable[Any], names: SourceColumns, key: str | None) -> Source:
    """Rows of tuples, mappings or tables."""

    def read() -> Iterator[Batch]:
        first = 0
        for number, batch in enumerate(source):
            where = f"batch {number:,}, rows from {first:,} on{names}"
            columns = _columns(batch, names, where)
            require_one_order(**dict(zip(Batch._fields[1:], columns, strict=True)))
            made = Batch(where, *columns)
            yield made
            first += np.size(made.scores)

    return Source(read, lambda: None if key is None else {"key": key}, None)


def _columns(batch: Any, names: SourceColumns, where: str) -> list[Any]:
    if isinstance(batch, tuple | list):
        if len(batch) not in (3, 4, 5):
            raise ValueError(
                f"source: expected batches {EXPECTED}, got {len(batch)} columns in {where}"
            )
        return [*batch, None, None][:5]
    if not (hasattr(batch, "columns") or isinstance(batch, Mapping)):
        raise ValueError(
            f"source: expected batches that are tuples {EXPECTED}, "
            f"mappings or tables, got a {type(batch).__name__} in {where}"
        )
    require_names(names)
    return [column(batch, name, where) for name in names]
