"""Columns of Parquet files, and a copy with one more column, without Python objects per row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from platt_jax.cli import labels
from platt_jax.cli.csvio import columns_there, label
from platt_jax.cli.inputs import Input
from platt_jax.extras import install_hint

_BATCH_ROWS = 1 << 20


def read_rows(
    inputs: Sequence[Input], columns: Mapping[str, Any], pos_label: str | None
) -> dict[str, Any]:
    """`rows.read_rows` for Parquet files."""
    tables = [_read(source, columns) for source in inputs]
    import pyarrow as pa

    table = pa.concat_tables(tables)
    return _roles(table, columns, inputs[0], pos_label)


def copy_with_column(
    source: Input,
    write: BinaryIO,
    name: str,
    columns: Mapping[str, Any],
    predict: Callable[[dict[str, Any]], NDArray[np.floating]],
    as_parquet: bool,
) -> Iterator[NDArray[np.floating]]:
    """Write the rows of `source`, each with its prediction as the last field; yields predictions.

    Args:
        source: a Parquet file.
        write: file to write.
        name: name of the new column.
        columns: as in `rows.read_rows`.
        predict: function from the columns of some rows, by role, to their predictions.
        as_parquet: whether to write Parquet rather than CSV.

    Raises:
        ValueError: a column is missing, or `source` already has one of this name.
    """
    import pyarrow as pa

    file = _open(source)
    there = file.schema_arrow.names
    if name in there:
        raise ValueError(f"{source.name}: has a column {name!r} already: see --name")
    _check(source, there, columns)
    schema = file.schema_arrow.append(pa.field(name, pa.float64()))
    with _writer(write, schema, as_parquet) as writer:
        for batch in file.iter_batches(_BATCH_ROWS):
            rows = pa.table(batch)
            p = predict(_roles(rows, columns, source))
            writer.write_table(rows.append_column(name, pa.array(p.astype(float))).cast(schema))
            yield p


@contextmanager
def _writer(file: BinaryIO, schema: Any, as_parquet: bool) -> Iterator[Any]:
    if as_parquet:
        from pyarrow import parquet

        with parquet.ParquetWriter(file, schema) as writer:
            yield writer
    else:
        from pyarrow import csv

        with csv.CSVWriter(file, schema) as writer:
            yield writer


def _open(source: Input, text: Sequence[str] = ()) -> Any:
    with install_hint(f"{source.name} is a Parquet file, which needs pyarrow", "platt-jax[csv]"):
        from pyarrow import parquet
    try:
        # Text as codes and distinct values; Python objects would take ten times the memory.
        return parquet.ParquetFile(source.path, read_dictionary=list(text))
    except ValueError as error:  # base class of pyarrow's own errors
        raise ValueError(f"{source.name}: is a damaged Parquet file: {error}") from None


def _names(columns: Mapping[str, Any]) -> list[str]:
    plain = [columns[role] for role in columns if role != "segment"]
    return [*plain, *columns.get("segment", [])]


def _check(source: Input, there: Sequence[str], columns: Mapping[str, Any]) -> None:
    for name in _names(columns):
        if name not in there:
            raise ValueError(f"{source.name}: has no column {name!r}, but {columns_there(there)}")


def _read(source: Input, columns: Mapping[str, Any]) -> Any:
    file = _open(source, columns.get("segment", []))
    _check(source, file.schema_arrow.names, columns)
    return file.read(list(dict.fromkeys(_names(columns))))


def _roles(
    table: Any, columns: Mapping[str, Any], source: Input, pos_label: str | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for role, name in columns.items():
        if role == "segment":
            found[role] = table[name[0]] if len(name) == 1 else table.select(name)
        elif role == "cluster":
            found[role] = table[name]
        elif role == "label" and pos_label is not None:
            found[role] = _labels_by_name(table[name], pos_label, name)
        elif role == "label":
            found[role] = _labels(table[name], f"{source.name}, column {name!r}")
        else:
            found[role] = _numbers(table[name], f"{source.name}, column {name!r}")
    return found


def _numbers(column: Any, where: str) -> Any:
    import pyarrow as pa

    if pa.types.is_float32(column.type):
        return column.to_numpy()
    try:
        return column.cast(pa.float64(), safe=False).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"{where}: expected numbers, got {column.type}") from None


def _labels_by_name(column: Any, pos_label: str, name: str) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        positive = pa.scalar(pos_label).cast(column.type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(
            f"column {name!r}: expected --pos-label of its type, {column.type}, got {pos_label!r}"
        ) from None
    missing = column.is_null(nan_is_null=True).to_numpy()
    return labels.by_name(column.filter(pa.array(~missing)), missing, positive, name)


def _labels(column: Any, where: str) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        return column.to_numpy() if not column.null_count else _numbers(column, where)
    coded = column.dictionary_encode().combine_chunks()
    try:
        distinct = [label(word) for word in coded.dictionary.to_pylist()]
    except ValueError as error:
        raise ValueError(f"{where}: a value {error}") from None
    missing = len(distinct)
    return np.array([*distinct, np.nan])[coded.indices.fill_null(missing).to_numpy()]
