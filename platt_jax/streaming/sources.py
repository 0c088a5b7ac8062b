"""Sources of rows: Parquet files, arrays read in blocks, and batches."""

import hashlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from glob import glob
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from platt_jax.extras import needing
from platt_jax.ids import structured

# JSON that identifies the content of a source; None if that is not possible.
Fingerprint: TypeAlias = dict[str, Any] | None

BATCH_ROWS = 1 << 20

# Number and length of the evenly spaced stretches of an array that its hash covers.
_STRETCHES = 256
_STRETCH_ROWS = 1024


_ARGUMENTS = ("scores", "labels", "segments", "weights", "offset")
_EXPECTED = "(scores, labels, segments[, weights[, offset]])"


class Names(NamedTuple):
    """The column names of a source, None for columns without a name."""

    score: str | None
    label: str | None
    segment: Any  # a name, or a list of names for ids of several columns
    weight: str | None
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


def open_source(source: Any, names: Names, key: str | None) -> Source:
    """The rows of a source, given as in `store_rows`.

    Raises:
        ValueError: source is of no known type, or lacks a column.
        ImportError: the source is Parquet files, and pyarrow is missing.
    """
    if isinstance(source, str | os.PathLike):
        return _of_parquet(_files_at(Path(source)), names)
    if isinstance(source, list | tuple) and source and _all_are(source, str | os.PathLike):
        return _of_parquet([Path(path) for path in source], names)
    if isinstance(source, Mapping):
        _require_names(names)
        arrays = {name: _column(source, name, "source") for name in names.columns}
        return _of_arrays(arrays, names, key)
    if isinstance(source, tuple) and source and _all_are(source, np.ndarray):
        if len(source) not in (3, 4, 5) or any(x.ndim < 1 for x in source):
            raise ValueError(
                f"source: expected arrays {_EXPECTED}, got shapes {[x.shape for x in source]}"
            )
        columns = _ARGUMENTS[: len(source)]
        arrays = dict(zip(columns, source, strict=True))
        return _of_arrays(arrays, Names(*[*columns, None][:4], *columns[4:]), key)
    if hasattr(source, "columns"):  # a whole table
        source = [source]
    if not isinstance(source, Iterable):
        raise ValueError(
            "source: expected Parquet files, arrays or batches, got a " + type(source).__name__
        )
    return _of_batches(source, names, key)


def _all_are(values: Iterable[Any], kind: type | UnionType) -> bool:
    return all(isinstance(value, kind) for value in values)


def _require_names(names: Names) -> None:
    for argument, name in zip(("score", "label", "segment"), names, strict=False):
        if name is None:
            raise ValueError(f"{argument}: expected the name of a column of the source, got None")


def _column(table: Any, name: Any, where: str) -> Any:
    """A column of a mapping or table; a table for several names, None for no name."""
    if name is None:
        return None
    if not isinstance(name, str):
        if hasattr(table, "select"):  # pyarrow and polars
            return table.select(list(name))
        if not isinstance(table, Mapping):
            return table[list(name)]
        columns = [np.asarray(_column(table, part, where)) for part in name]
        return structured(name, columns)
    try:
        return table[name]
    except (KeyError, IndexError, LookupError):
        there = list(getattr(table, "column_names", None) or table.keys())
        raise ValueError(f"{where}: expected a column {name!r}, there are {there}") from None


# --- Parquet --------------------------------------------------------------------------------------


def _files_at(path: Path) -> list[Path]:
    """The files of a directory or pattern; or the one file at the path."""
    path = path.expanduser()
    if path.is_dir():
        if (path / "_delta_log").is_dir():  # its files may hold rows that were deleted
            raise ValueError(
                f"source: {path} is a Delta table, expected plain Parquet files; give its batches, "
                "deltalake.DeltaTable(path).to_pyarrow_dataset().to_batches()"
            )
        if not (inside := _parquet_in(path)):
            raise ValueError(f"source: expected a directory of .parquet files, {path} has none")
        return inside
    if path.exists() or not any(character in str(path) for character in "*?["):
        return [path]
    found = [Path(x) for x in glob(str(path), recursive=True)]
    # A pattern may match both a file and a directory that contains it.
    files = {file for x in found for file in (_parquet_in(x) if x.is_dir() else [x])}
    if not files:
        raise ValueError(f"source: expected Parquet files, none match {path}")
    return sorted(files)


def _parquet_in(directory: Path) -> list[Path]:
    """Parquet files in a directory, without hidden ones, such as Spark's unfinished output."""
    return [
        path
        for path in sorted(directory.rglob("*.parquet"))
        if path.is_file()
        and not any(x.startswith((".", "_")) for x in path.relative_to(directory).parts)
    ]


def _of_parquet(files: list[Path], names: Names) -> Source:
    with needing("Parquet files need pyarrow", "platt-jax[streaming]"):
        import pyarrow.parquet as parquet
    _require_names(names)
    rows = 0
    for path in files:
        try:
            with parquet.ParquetFile(path) as file:
                there, rows = file.schema_arrow.names, rows + file.metadata.num_rows
        except ValueError as error:  # base class of pyarrow's own errors
            raise ValueError(f"source: {path} is not a Parquet file ({error})") from None
        for name in names.columns:
            if name not in there:
                raise ValueError(f"source: expected a column {name!r} in {path}, there are {there}")

    def batches() -> Iterator[Batch]:
        for path in files:
            with parquet.ParquetFile(path) as file:
                first = 0
                for table in file.iter_batches(BATCH_ROWS, columns=names.columns):
                    where = f"rows from {first:,} on of {path}{names}"
                    yield Batch(where, *(_column(table, name, where) for name in names))
                    first += table.num_rows

    def fingerprint() -> Fingerprint:
        about: dict[str, list[int]] = {}
        for path in files:
            found = path.stat()
            about[str(path)] = [found.st_size, found.st_mtime_ns]
        return {**names.fingerprint, "files": about}

    return Source(batches, fingerprint, rows)


# --- arrays ---------------------------------------------------------------------------------------


def _of_arrays(arrays: dict[str, Any], names: Names, key: str | None) -> Source:
    arrays = {name: x if hasattr(x, "dtype") else np.asarray(x) for name, x in arrays.items()}
    rows = len(arrays[str(names.score)])
    for name, array in arrays.items():
        if len(array) != rows:
            raise ValueError(f"{name}: expected one per score, {rows:,}, got {len(array):,}")

    def batches() -> Iterator[Batch]:
        for first in range(0, rows, BATCH_ROWS):
            copies = {name: np.array(x[first : first + BATCH_ROWS]) for name, x in arrays.items()}
            for array in arrays.values():
                _let_go(array)
            where = f"rows from {first:,} on{names}"
            yield Batch(where, *(_column(copies, name, where) for name in names))

    def fingerprint() -> Fingerprint:
        return {**names.fingerprint, "key": key, **{n: _digest(x) for n, x in arrays.items()}}

    return Source(batches, fingerprint, rows)


def _let_go(column: Any) -> None:
    """Release the pages of a file mapped read-only, which count towards this process's memory."""
    mapped = getattr(column, "_mmap", None)
    if mapped is not None and getattr(column, "mode", None) == "r" and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _digest(column: Any) -> list[Any]:
    """The shape and dtype of an array, and a hash of a sample of its rows."""
    digest = hashlib.blake2b(digest_size=16)
    for first in np.linspace(0, max(0, len(column) - _STRETCH_ROWS), _STRETCHES).astype(int):
        stretch = np.ascontiguousarray(column[first : first + _STRETCH_ROWS])
        if stretch.dtype.hasobject:
            digest.update(repr(stretch.tolist()).encode())
        else:
            digest.update(stretch.tobytes())
    _let_go(column)
    return [list(column.shape), str(column.dtype), digest.hexdigest()]


# --- batches --------------------------------------------------------------------------------------


def _of_batches(source: Iterable[Any], names: Names, key: str | None) -> Source:
    def batches() -> Iterator[Batch]:
        first = 0
        for number, batch in enumerate(source):
            where = f"batch {number:,}, rows from {first:,} on{names}"
            made = Batch(where, *_columns(batch, names, where))
            yield made
            first += np.size(made.scores)

    return Source(batches, lambda: None if key is None else {"key": key}, None)


def _columns(batch: Any, names: Names, where: str) -> list[Any]:
    if isinstance(batch, tuple | list):
        if len(batch) not in (3, 4, 5):
            raise ValueError(
                f"source: expected batches {_EXPECTED}, got {len(batch)} columns in {where}"
            )
        return [*batch, None, None][:5]
    if not (hasattr(batch, "columns") or isinstance(batch, Mapping)):
        raise ValueError(
            f"source: expected batches that are tuples {_EXPECTED}, "
            f"mappings or tables, got a {type(batch).__name__} in {where}"
        )
    _require_names(names)
    return [_column(batch, name, where) for name in names]
