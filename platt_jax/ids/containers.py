"""Reads segment ids from the user's containers as plain columns that can be compared and saved.

One rule holds for all containers: ids are equal if Python considers them equal (1 and 1.0 are, 1
and "1" are not). A missing id (None, NaN, NaT, NA, a masked or a null entry) is an error.

In Python a date and a datetime differ, so a list of Python ids that has both stays a list of
objects. In NumPy's arrays a day equals its midnight. Ids that are all dates, or all datetimes,
become such arrays; there they can be looked up by any of these types.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import columns as tables
from platt_jax.ids.objects import PLAIN, as_typed, missing


class Coded(NamedTuple):
    """Ids as codes into a list of ids, as in a pandas categorical."""

    codes: NDArray[Any]  # (N,) integers
    values: NDArray[Any]  # distinct ids; a structured array if they are tuples


Column: TypeAlias = NDArray[Any] | Coded


class IdColumns(NamedTuple):
    """Ids of several columns. Two rows have the same id if they agree in all columns."""

    names: tuple[str, ...]
    columns: tuple[Column, ...]


Ids: TypeAlias = NDArray[Any] | Coded | IdColumns

# A column's name, and the column as given.
_Named: TypeAlias = tuple[str, tables.Column]


def read(values: tables.Column, name: str = "segments") -> Ids:
    """The ids of N rows.

    They come in an array, a list, or a column of pandas, polars, pyarrow or DuckDB; or as ids of
    several columns: a list of tuples of one length, an (N, M) array, a table of those libraries or
    a structured array. Missing and traced ids are refused, and types that cannot be saved.
    """
    if isinstance(values, jax.core.Tracer):
        raise ValueError(f"{name}: expected ids, got a traced array; group the rows outside of jit")
    values = tables.on_host(values)
    return _read(values, tables.labelled(name, values))


def _read(values: tables.Column, name: str) -> Ids:
    if hasattr(values, "columns") and hasattr(values, "shape"):  # a DataFrame or pyarrow's Table
        labels = getattr(values, "column_names", values.columns)
        return _several([(str(x), values[x]) for x in labels], name)
    if (coded := tables.dictionary(values)) is not None:
        return _coded(*coded, name)
    if tables.is_wide(values):
        values = values.to_list()
    is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    array = _from_list(values) if is_list else _from_array(values, name)
    if array.dtype.names is not None:
        return _columns([(field, array[field]) for field in array.dtype.names], name)
    if array.ndim == 2:
        return _several(list(zip(_numbered_names(array.shape[1]), array.T, strict=True)), name)
    return _plain_or_coded(array, name)


def read_rows(values: tables.Column, rows: int, name: str = "segments") -> Ids:
    """The ids of `rows` rows, as `read`; refuses any other number of ids."""
    ids = read(values, name)
    require_length(length(ids), rows, tables.labelled(name, values))
    return ids


def require_length(number: int, rows: int, name: str) -> None:
    """Refuses another number of ids than rows."""
    if number != rows:
        raise ValueError(f"{name}: expected one id per row, {rows} of them, got {number}")


def number_like(keys: NDArray[Any], values: tables.Column) -> int:
    """How many ids there are; 1 if it is one for all, as in `read_like`."""
    values = tables.on_host(values)
    is_single = _is_one(values, several_columns=keys.dtype.names is not None)
    return 1 if is_single else length(read(values))


def read_like(keys: NDArray[Any], values: tables.Column, rows: int, name: str = "segments") -> Ids:
    """The ids of `rows` rows, from one id per row or one for all; keys are the fitted ids."""
    values = tables.on_host(values)
    if not _is_one(values, several_columns=keys.dtype.names is not None):
        row_ids = read_rows(values, rows, name)
        # An empty list has neither the type nor the columns of the keys.
        return row_ids if rows else read(keys[:0])
    single = values.reshape(1) if isinstance(values, np.generic | np.ndarray) else [values]
    return _repeated(read(single, name), rows)


def length(ids: Ids) -> int:
    """The number of rows."""
    if isinstance(ids, IdColumns):
        return length(ids.columns[0])
    return len(ids.codes if isinstance(ids, Coded) else ids)


def single_column(ids: Ids, name: str) -> NDArray[Any]:
    """The ids as one array; refuses several columns."""
    if isinstance(ids, IdColumns):
        raise ValueError(f"{name}: expected one id each, got {len(ids.columns)} columns")
    return ids.values[ids.codes] if isinstance(ids, Coded) else ids


def structured(names: Sequence[str], columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Columns of one length as a structured array, with a field for each."""
    dtype = [(name, column.dtype) for name, column in zip(names, columns, strict=True)]
    array = np.empty(columns[0].shape, dtype)
    for name, column in zip(names, columns, strict=True):
        array[name] = column
    return array


def fields(ids: NDArray[Any]) -> list[NDArray[Any]]:
    """The columns of an array of ids; a plain array is its only column."""
    return [ids] if ids.dtype.names is None else [ids[name] for name in ids.dtype.names]


def _is_one(values: tables.Column, several_columns: bool) -> bool:
    if several_columns and isinstance(values, tuple):
        return not any(isinstance(part, tuple | list | np.ndarray) for part in values)
    if isinstance(values, str | bytes | np.generic):
        return True
    return not hasattr(values, "__len__") or getattr(values, "ndim", None) == 0


def _repeated(ids: Ids, rows: int) -> Coded | IdColumns:
    first = np.broadcast_to(np.int8(0), rows)
    if isinstance(ids, IdColumns):
        columns = tuple(Coded(first, single_column(column, "segments")) for column in ids.columns)
        return IdColumns(ids.names, columns)
    return Coded(first, single_column(ids, "segments"))


def _several(columns: Sequence[_Named], name: str) -> Ids:
    """Named columns of a table. A single column is read like an array."""
    if not columns:
        raise ValueError(f"{name}: expected at least one column of ids")
    if len(columns) == 1:
        return _read(tables.on_host(columns[0][1]), name)
    return _columns(columns, name)


def _columns(columns: Sequence[_Named], name: str) -> IdColumns:
    names = tuple(column_name for column_name, _ in columns)
    if len(set(names)) < len(names) or "" in names:
        raise ValueError(
            f"{name}: expected columns of distinct names, none empty, got {list(names)}"
        )
    id_columns = []
    for column_name, values in columns:
        column = _read(tables.on_host(values), f"{name}, column {column_name!r}")
        has_tuples = isinstance(column, Coded) and column.values.dtype.names is not None
        if isinstance(column, IdColumns) or has_tuples:
            raise ValueError(
                f"{name}, column {column_name!r}: expected one id per row, got several"
            )
        id_columns.append(column)
    return IdColumns(names, tuple(id_columns))


def _numbered_names(columns: int) -> list[str]:
    return [f"segment_{i}" for i in range(columns)]


def _from_list(values: Sequence[Any]) -> NDArray[Any]:
    """A list as an array that merges no ids. NumPy would convert [1, "1"] to text."""
    kinds = set(map(type, values))
    if kinds in ({int}, {bool}, {float}):
        array = np.asarray(values)
        if kinds != {int} or array.dtype.kind in "iu":  # large ints become floats or objects
            return array
    if kinds == {list} or _are_records(kinds, values):
        values = [tuple(row) for row in values]
    return np.fromiter(values, object, len(values))


def _are_records(kinds: set[type], values: Sequence[Any]) -> bool:
    """Whether these are rows of a structured array, as keys with several columns are."""
    return kinds <= {np.void, np.record} and all(value.dtype.names for value in values)


def _from_array(values: Any, name: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.asanyarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: expected ids ({error})") from None
    if array.dtype.names is not None:  # each column has its own mask
        return array
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        masked: Any = np.ma.getmaskarray(array).reshape(len(array), -1)
        _refuse_missing("a masked entry", masked.any(axis=1), name)
    array = np.asarray(array)
    if array.ndim not in (1, 2):
        raise ValueError(f"{name}: expected one id per row, got shape {array.shape}")
    return array


def _coded(codes: NDArray[Any], values: NDArray[Any], name: str) -> Coded:
    if len(codes) and codes.min() < 0:
        _refuse_missing("a missing one", codes < 0, name)
    if set(map(type, values.tolist())) == {str}:  # already known to be distinct
        return Coded(codes, as_typed(values.tolist(), name))
    return Coded(codes, single_column(_read(values, name), name))


def _plain_or_coded(array: NDArray[Any], name: str) -> Column:
    """One column of ids, after a check that none is missing."""
    if array.dtype.kind not in PLAIN:
        return _coded_objects(array.astype(object, copy=False).tolist(), name)
    if array.dtype.kind in "fcmM" and (unequal := array != array).any():
        _refuse_missing("NaT" if array.dtype.kind in "mM" else "NaN", unequal, name)
    return array


def _coded_objects(values: list[Any], name: str) -> Coded:
    """Python objects. Equal ones get the same code, even if their types differ."""
    code_of: dict[Hashable, int] = {}
    try:
        codes = np.fromiter(
            (code_of.setdefault(value, len(code_of)) for value in values), np.int64, len(values)
        )
    except (TypeError, ValueError) as error:  # ValueError: NumPy's durations without a unit
        raise ValueError(f"{name}: expected hashable ids ({error})") from None
    for i, value in enumerate(code_of):
        if (missing_name := missing(value)) is not None:
            _refuse_missing(missing_name, codes == i, name)
    distinct = list(code_of)
    lengths = {len(value) if isinstance(value, tuple) else 0 for value in distinct}
    if len(lengths) == 1 and 0 not in lengths:
        columns = [as_typed(list(column), name) for column in zip(*distinct, strict=True)]
        return Coded(codes, structured(_numbered_names(len(columns)), columns))
    typed = as_typed(distinct, name)
    if typed.dtype == object and len(set(typed.tolist())) < len(typed):
        # Equal times of NumPy and Python have different hashes. By now all are Python's.
        return _coded_objects(typed[codes].tolist(), name)
    return Coded(codes, typed)


def _refuse_missing(what: str, rows: NDArray[np.bool_], name: str) -> NoReturn:
    raise ValueError(
        f"{name}: expected ids, got {what} at row {np.argmax(rows)}; leave such rows out, or give "
        "them an id of their own"
    )
