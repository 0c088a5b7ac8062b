"""Columns of Parquet files, and a copy with more columns, without Python objects per row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from platt_jax.cli.csvio import columns_there, label, labels_by_name, refuse_taken
from platt_jax.cli.inputs import Input
from platt_jax.extras import install_hint

_BATCH_ROWS = 1 << 20


def read_rows(
    inputs: Sequence[Input], columns: Mapping[str, list[str]], pos_label: str | None
) -> dict[str, Any]:
    """`reading.read_rows` for Parquet files."""
    tables = []
    for source in inputs:
        file = _open(source, columns.get("segments", []))
        tables.append(file.read(_checked(source, file.schema_arrow.names, columns)))
    import pyarrow as pa

    return _arguments(pa.concat_tables(tables), columns, inputs[0], pos_label)


def copy_with_columns(
    source: Input,
    write: BinaryIO,
    names: Sequence[str],
    columns: Mapping[str, list[str]],
    predict: Callable[[dict[str, Any]], NDArray[np.floating]],
    as_parquet: bool,
) -> None:
    """Write the rows of `source` as Parquet or CSV, each with its predictions as the last fields.

    `columns` are as in `reading.read_rows`; `predict` gets some rows at a time, and returns a
    column for each of `names`.
    """
    import pyarrow as pa

    file = _open(source)
    column_names = file.schema_arrow.names
    refuse_taken(source, names, column_names)
    _checked(source, column_names, columns)
    schema = file.schema_arrow
    for name in names:
        schema = schema.append(pa.field(name, pa.float64()))
    with _writer(write, schema, as_parquet) as writer:
        for batch in file.iter_batches(_BATCH_ROWS):
            rows = pa.table(batch)
            proba = predict(_arguments(rows, columns, source)).astype(float)
            for name, column in zip(names, proba.T, strict=True):
                rows = rows.append_column(name, pa.array(column))
            writer.write_table(rows.cast(schema))


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


def _checked(source: Input, there: Sequence[str], columns: Mapping[str, list[str]]) -> list[str]:
    """The names of all columns, each once."""
    wanted = list(dict.fromkeys(name for names in columns.values() for name in names))
    for name in wanted:
        if name not in there:
            raise ValueError(f"{source.name}: has no column {name!r}, but {columns_there(there)}")
    return wanted


def _arguments(
    table: Any, columns: Mapping[str, list[str]], source: Input, pos_label: str | None = None
) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for x, names in columns.items():
        column = table[names[0]]
        if x in ("segments", "clusters"):
            arrays[x] = column if len(names) == 1 else table.select(names)
        elif x == "covariates":
            arrays[x] = [_without_codes(table[name]) for name in names]
        elif x == "class_labels":
            arrays[x] = column.cast("string")
        elif x == "labels" and pos_label is not None:
            arrays[x] = _labels_by_name(column, pos_label, names[0])
        else:
            convert = _labels if x == "labels" else _numbers
            parts = [convert(table[name], f"{source.name}, column {name!r}") for name in names]
            arrays[x] = parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
    return arrays


def _without_codes(column: Any) -> Any:
    import pyarrow as pa

    coded = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if coded else column


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

    column = _without_codes(column)
    try:
        positive = pa.scalar(pos_label).cast(column.type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(
            f"column {name!r}: expected --pos-label of its type, {column.type}, got {pos_label!r}"
        ) from None
    missing = column.is_null(nan_is_null=True).to_numpy()
    return labels_by_name(column.filter(pa.array(~missing)), missing, positive, name)


def _labels(column: Any, where: str) -> Any:
    import pyarrow as pa

    column = _without_codes(column)
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        plain = not column.null_count and not pa.types.is_decimal(column.type)
        return column.to_numpy() if plain else _numbers(column, where)
    coded = column.dictionary_encode().combine_chunks()
    try:
        distinct = [label(word) for word in coded.dictionary.to_pylist()]
    except ValueError as error:
        raise ValueError(f"{where}: a value {error}") from None
    missing = len(distinct)
    return np.array([*distinct, np.nan])[coded.indices.fill_null(missing).to_numpy()]
