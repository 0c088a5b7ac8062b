"""Sources of Parquet files, and of Arrow's datasets."""

import hashlib
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from platt_jax.extras import install_hint
from platt_jax.streaming import sources
from platt_jax.streaming.files import File
from platt_jax.streaming.sources import (
    Batch,
    Fingerprint,
    Source,
    SourceColumns,
    batches_of,
    require_names,
)


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
                there, rows = opened.schema_arrow.names, rows + opened.metadata.num_rows
        except ValueError as error:  # base class of pyarrow's own errors
            raise ValueError(f"source: {file} is not a Parquet file ({error})") from None
        _require_columns(names, [*there, *file.partition], str(file))
        in_files.append([name for name in _distinct(names) if name in there])
    integers = _integer_partitions(files)

    def read() -> Iterator[Batch]:
        for file, here in zip(files, in_files, strict=True):
            with parquet.ParquetFile(file.path, filesystem=file.filesystem) as opened:
                others = {x: file.partition[x] for x in _distinct(names) if x not in here}
                tables = opened.iter_batches(sources.BATCH_ROWS, columns=here)
                full = (_with_partitions(table, others, integers) for table in tables)
                yield from batches_of(full, names, f" of {file}")

    def fingerprint() -> Fingerprint:
        return {**names.fingerprint, "files": _about(files)}

    return Source(read, fingerprint, rows)


def dataset_source(dataset: Any, names: SourceColumns, key: str | None) -> Source:
    """Rows of a pyarrow.dataset.Dataset, in its order.

    It is identified by its files; by the key alone if it is filtered, or is not of files.
    """
    from pyarrow.dataset import ParquetFileFormat

    require_names(names)
    _require_columns(names, dataset.schema.names, "the dataset")
    files, expressions = _dataset_files(dataset)
    in_parquet = files and isinstance(getattr(dataset, "format", None), ParquetFileFormat)

    def read() -> Iterator[Batch]:
        # Read ahead less than by default, which would be 16 batches of each of 4 files.
        scanner = dataset.scanner(
            columns=_distinct(names),
            batch_size=sources.BATCH_ROWS,
            batch_readahead=1,
            fragment_readahead=1,
        )
        return batches_of(scanner.to_batches(), names, " of the dataset")

    def fingerprint() -> Fingerprint:
        if not files:
            return None if key is None else {**names.fingerprint, "key": key}
        about = {"files": _about(files), "expressions of the files": expressions}
        return {**names.fingerprint, "key": key, **about}

    return Source(read, fingerprint, dataset.count_rows() if in_parquet else None)


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
        found = alike[0].filesystem.get_file_info([file.path for file in alike])
        for file, info in zip(alike, found, strict=True):
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


def _with_partitions(table: Any, values: dict[str, str | None], integers: set[str]) -> Any:
    """A table with columns added, in which each row has the same value."""
    import pyarrow as pa

    for name, text in values.items():
        rows = table.num_rows
        if text is None:
            column = pa.nulls(rows, pa.string())
        elif name in integers:
            column = pa.array(np.full(rows, int(text)))
        else:  # the text is stored once
            column = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [text])
        table = table.append_column(name, column)
    return table


def _is_integer(text: str | None) -> bool:
    """Whether this is how a 64-bit integer is written, without leading zeros."""
    try:
        number = int(text or "")
    except ValueError:
        return False
    return str(number) == text and -(2**63) <= number < 2**63
