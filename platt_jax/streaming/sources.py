"""Sources of rows: files and datasets of Arrow, arrays read in blocks, and batches."""

import mmap
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import Any

import numpy as np

from platt_jax.streaming import batches
from platt_jax.streaming.batches import (
    Batch,
    Fingerprint,
    Source,
    SourceColumns,
    column,
    require_names,
)
from platt_jax.streaming.checked_files import content_hash
from platt_jax.streaming.files import file_at, files_at
from platt_jax.streaming.parquet import dataset_source, parquet_source

_ARGUMENTS = ("scores", "labels", "segments", "weights", "offset")
_EXPECTED = "(scores, labels, segments[, weights[, offset]])"


def open_source(source: Any, names: SourceColumns, key: str | None) -> Source:
    """The rows of a source, given as in `rows`.

    Raises:
        ValueError: source is of no known type or place, or lacks a column.
        ImportError: the source is Parquet files, and pyarrow is missing.
    """
    if isinstance(source, str | os.PathLike):
        return parquet_source(files_at(source), names)
    if isinstance(source, list | tuple) and source and _all_are(source, str | os.PathLike):
        return parquet_source([file_at(path) for path in source], names)
    if _is_dataset(source):
        return dataset_source(source, names, key)
    if isinstance(source, Mapping):
        require_names(names)
        arrays = {name: column(source, name, "source") for name in names.columns}
        return _arrays_source(arrays, names, key)
    if isinstance(source, tuple) and source and _all_are(source, np.ndarray):
        if len(source) not in (3, 4, 5) or any(x.ndim < 1 for x in source):
            raise ValueError(
                f"source: expected arrays {_EXPECTED}, got shapes {[x.shape for x in source]}"
            )
        columns = _ARGUMENTS[: len(source)]
        arrays = dict(zip(columns, source, strict=True))
        return _arrays_source(arrays, SourceColumns(*[*columns, None][:4], *columns[4:]), key)
    if hasattr(source, "columns"):  # a whole table
        source = [source]
    if not isinstance(source, Iterable):
        raise ValueError(
            "source: expected Parquet files, a dataset, arrays or batches, got a "
            + type(source).__name__
        )
    return _batches_source(source, names, key)


def _is_dataset(source: Any) -> bool:
    arrow = sys.modules.get("pyarrow.dataset")  # whoever has a dataset has imported it
    return arrow is not None and isinstance(source, arrow.Dataset)


def _all_are(values: Iterable[Any], kind: type | UnionType) -> bool:
    return all(isinstance(value, kind) for value in values)


# --- arrays ---------------------------------------------------------------------------------------


def _arrays_source(arrays: dict[str, Any], names: SourceColumns, key: str | None) -> Source:
    arrays = {name: x if hasattr(x, "dtype") else np.asarray(x) for name, x in arrays.items()}
    rows = len(arrays[str(names.score)])
    for name, array in arrays.items():
        if len(array) != rows:
            raise ValueError(f"{name}: expected one per score, {rows:,}, got {len(array):,}")

    def read() -> Iterator[Batch]:
        for first in range(0, rows, batches.BATCH_ROWS):
            copies = {
                name: np.array(x[first : first + batches.BATCH_ROWS]) for name, x in arrays.items()
            }
            for array in arrays.values():
                _release(array)
            where = f"rows from {first:,} on{names}"
            yield Batch(where, *(column(copies, name, where) for name in names))

    def fingerprint() -> Fingerprint:
        return {**names.fingerprint, "key": key, **{n: _digest(x) for n, x in arrays.items()}}

    return Source(read, fingerprint, rows)


def _release(column: Any) -> None:
    """Release the pages of a file mapped read-only, which count towards this process's memory."""
    mapped = getattr(column, "_mmap", None)
    if mapped is not None and getattr(column, "mode", None) == "r" and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _digest(column: Any) -> list[Any]:
    """The shape and dtype of an array, and a hash of all its rows."""
    digest = content_hash()
    for first in range(0, len(column), batches.BATCH_ROWS):
        rows = np.ascontiguousarray(column[first : first + batches.BATCH_ROWS])
        if rows.dtype.hasobject:
            digest.update(repr(rows.tolist()).encode(errors="surrogatepass"))
        else:
            digest.update(rows.view(np.uint8).data)
        _release(column)
    return [list(column.shape), str(column.dtype), digest.hexdigest()]


# --- batches --------------------------------------------------------------------------------------


def _batches_source(source: Iterable[Any], names: SourceColumns, key: str | None) -> Source:
    def read() -> Iterator[Batch]:
        first = 0
        for number, batch in enumerate(source):
            where = f"batch {number:,}, rows from {first:,} on{names}"
            made = Batch(where, *_columns(batch, names, where))
            yield made
            first += np.size(made.scores)

    return Source(read, lambda: None if key is None else {"key": key}, None)


def _columns(batch: Any, names: SourceColumns, where: str) -> list[Any]:
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
    require_names(names)
    return [column(batch, name, where) for name in names]
