"""Sources of rows as batches of columns: arrays, batches, Parquet files, and Arrow's datasets."""

import hashlib
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from platt_jax.columns import require_one_order
from platt_jax.extras import install_hint
from platt_jax.ids import structured
from platt_jax.streaming.checked_files import xxhash
from platt_jax.streaming.files import File

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
        optional = [name for name in (self.weight, self.offset) if name is not None]
        return [str(self.score), str(self.label), *segment, *optional]

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The names by argument; as before there were offsets if there is none."""
        names = self._asdict()
        if self.offset is None:
            del names["offset"]
        return names

    def __str__(self) -> str:
        columns = {name: x for name, x in self._asdict().items() if x is not None}
        return f" ({', '.join(f'{name} {x!r}' for name, x in columns.items())})" if columns else ""


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
        names = list(getattr(table, "column_names", None) or table.keys())
        raise ValueError(f"{where}: expected a column {name!r}, there are {names}") from None


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

    def batches() -> Iterator[Batch]:
        first = 0
        for number, batch in enumerate(source):
            where = f"batch {number:,}, rows from {first:,} on{names}"
            columns = _columns(batch, names, where)
            require_one_order(**dict(zip(Batch._fields[1:], columns, strict=True)))
            named_batch = Batch(where, *columns)
            yield named_batch
            first += np.size(named_batch.scores)

    return Source(batches, lambda: None if key is None else {"key": key}, None)


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


# --- Parquet files, and Arrow's datasets ----------------------------------------------------------


def parquet_source(files: list[File], names: SourceColumns) -> Source:
    """Rows of Parquet files, in order.

    A column that a file lacks is taken from the names of its directories, as "year=2026".
    """
    with install_hint("Parquet files need pyarrow", "platt-jax[streaming]"):
        from pyarrow import parquet
    require_names(names)
    rows, in_files = 0, []
    for file in files:
        try:
            with parquet.ParquetFile(file.path, filesystem=file.filesystem) as opened:
                column_names, rows = opened.schema_arrow.names, rows + opened.metadata.num_rows
        except ValueError as error:  # base class of pyarrow's own errors
            raise ValueError(f"source: {file} is not a Parquet file ({error})") from None
        _require_columns(names, [*column_names, *file.partition], str(file))
        in_files.append([name for name in _distinct(names) if name in column_names])
    integers = _integer_partitions(files)

    def batches() -> Iterator[Batch]:
        for file, columns in zip(files, in_files, strict=True):
            with parquet.ParquetFile(file.path, filesystem=file.filesystem) as opened:
                partitions = {x: file.partition[x] for x in _distinct(names) if x not in columns}
                tables = opened.iter_batches(BATCH_ROWS, columns=columns)
                full = (_with_partitions(table, partitions, integers) for table in tables)
                yield from batches_of(full, names, f" of {file}")

    def fingerprint() -> Fingerprint:
        return {**names.fingerprint, "files": _about(files)}

    return Source(batches, fingerprint, rows)


def dataset_source(dataset: Any, names: SourceColumns, key: str | None) -> Source:
    """Rows of a pyarrow.dataset.Dataset, in its order.

    It is identified by its files; by the key alone if it is filtered, or is not of files.
    """
    from pyarrow.dataset import ParquetFileFormat

    require_names(names)
    _require_columns(names, dataset.schema.names, "the dataset")
    files, expressions = _dataset_files(dataset)
    in_parquet = files and isinstance(getattr(dataset, "format", None), ParquetFileFormat)

    def batches() -> Iterator[Batch]:
        # Read ahead less than by default, which would be 16 batches of each of 4 files.
        scanner = dataset.scanner(
            columns=_distinct(names),
            batch_size=BATCH_ROWS,
            batch_readahead=1,
            fragment_readahead=1,
        )
        return batches_of(scanner.to_batches(), names, " of the dataset")

    def fingerprint() -> Fingerprint:
        if not files:
            return None if key is None else {**names.fingerprint, "key": key}
        about = {"files": _about(files), "expressions of the files": expressions}
        return {**names.fingerprint, "key": key, **about}

    return Source(batches, fingerprint, dataset.count_rows() if in_parquet else None)


def _dataset_files(dataset: Any) -> tuple[list[File], str]:
    """The files of a dataset, none if it is not just files, and a hash of what they state."""
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # it is filtered
        return [], ""
    if not all(getattr(fragment, "path", None) for fragment in fragments):
        return [], ""
    files = [File(fragment.filesystem, fragment.path, "") for fragment in fragments]
    digest = hashlib.blake2b(digest_size=16)
    for fragment in fragments:
        digest.update(f"{fragment.partition_expression}\n".encode())
    return files, digest.hexdigest()


def _about(files: list[File]) -> dict[str, list[int | None]]:
    """By file its size, its modification time and, of a local one, its change time."""
    about: dict[str, list[int | None]] = {}
    for _, group in groupby(files, key=lambda file: id(file.filesystem)):
        alike = list(group)
        infos = alike[0].filesystem.get_file_info([file.path for file in alike])
        for file, info in zip(alike, infos, strict=True):
            if not info.is_file:
                raise FileNotFoundError(f"{file}: no such file")
            about[str(file)] = [info.size, info.mtime_ns, file.change_time]
    return about


def _require_columns(names: SourceColumns, there: list[str], where: str) -> None:
    for name in names.columns:
        if name not in there:
            raise ValueError(f"source: expected a column {name!r} in {where}, there are {there}")


def _distinct(names: SourceColumns) -> list[str]:
    return list(dict.fromkeys(names.columns))


def _integer_partitions(files: list[File]) -> set[str]:
    """The columns in names of directories that are integers everywhere; others are text."""
    parts = [item for file in files for item in file.partition.items()]
    return {name for name, _ in parts} - {name for name, text in parts if not _is_integer(text)}


def _is_integer(text: str | None) -> bool:
    """Whether this is how a 64-bit integer is written, without leading zeros."""
    try:
        number = int(text or "")
    except ValueError:
        return False
    return str(number) == text and -(2**63) <= number < 2**63


def _with_partitions(table: Any, values: dict[str, str | None], integers: set[str]) -> Any:
    """A table with columns added, in which each row has the same value."""
    import pyarrow as pa

    for name, text in values.items():
        rows = table.num_rows
        if text is None:
            added = pa.nulls(rows, pa.string())
        elif name in integers:
            added = pa.array(np.full(rows, int(text)))
        else:  # the text is stored once
            added = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [text])
        table = table.append_column(name, added)
    return table
