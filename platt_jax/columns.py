"""Converts columns and tables of pandas, polars, pyarrow and DuckDB, and device arrays, to NumPy.

A library is imported only once one of its objects arrives; the object's type names the library.
Columns that NumPy can read itself, which are most, are left to NumPy.
"""

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from platt_jax.extras import install_hint

# Users' arrays: NumPy's, JAX's, a list, or anything that this module reads.
Column: TypeAlias = Any

# Codes (N,), and the distinct values that they index.
_Coded: TypeAlias = tuple[NDArray[Any], NDArray[Any]]

# Modules whose tables are computed only on request.
_DEFERRED = ("duckdb.", "_duckdb.", "polars.lazyframe.", "narwhals.")

# Packages whose columns are queries, which run again at every read; so do lazy frames.
_QUERIES = ("duckdb.", "_duckdb.", "dask.", "ibis.", "pyspark.")

# Arguments that have other rows than the scores: a pool's, and a line for each segment.
_OTHER_ROWS = "pool", "covariates"

# polars' integers of 128 bits, which NumPy does not have.
_WIDE = "Int128", "UInt128"

# Other packages' words for arguments, and the names that these may have here.
_WORDS = {
    "sample_weight": ("weights",),
    "y_true": ("labels",),
    "y": ("labels",),
    "y_prob": ("proba", "scores"),
    "y_proba": ("proba", "scores"),
    "y_pred": ("proba", "scores"),
    "y_score": ("proba", "scores"),
    "X": ("scores", "logits"),
    "random_state": ("seed",),
}

# Those of a public function.
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def takes_columns(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorates a public function of columns, which are paired by position.

    Columns that would pair the wrong rows are a ValueError: two queries, each of which may return
    its rows in another order, and two pandas objects of one length whose indices differ. A keyword
    that is another package's word for an argument is a TypeError that names the argument.
    """
    code: Any = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    words = {x: y for x, terms in _WORDS.items() if x not in names for y in terms if y in names}

    @functools.wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if kwargs and not words.keys().isdisjoint(kwargs):
            keyword = next(iter(words.keys() & kwargs.keys()))
            raise TypeError(
                f"{function.__name__}() got an unexpected keyword argument {keyword!r}; "
                f"its name here is {words[keyword]!r}"
            )
        arguments = *args, *kwargs.values()
        orders = [*map(_order, map(type, arguments))]
        if len(orders) - orders.count(None) > 1 or any(map(_has_columns, arguments)):
            require_one_order(**dict(zip(names, args, strict=False)) | kwargs)
        return function(*args, **kwargs)

    return checked


def _found_order(kind: Any) -> str | None:
    """What says in which order the rows of such a column come: a query, or an index."""
    if kind.__name__ == "LazyFrame" or f"{kind.__module__}.".startswith(_QUERIES):
        return "query"
    in_narwhals = kind.__module__.startswith("narwhals.") and hasattr(kind, "to_native")
    indexed = in_narwhals or (hasattr(kind, "index") and hasattr(kind, "reindex"))
    return "index" if indexed else None


_order: Callable[[Any], str | None] = functools.cache(_found_order)


def _has_columns(x: Any) -> bool:
    """Whether this is a list, tuple or mapping of columns whose order may be another."""
    if type(x) not in (list, tuple, dict) or not x:  # a subclass may be a sparse matrix
        return False
    return _order(type(next(iter(x.values() if isinstance(x, dict) else x)))) is not None


def _each_column(given: dict[str, Any]) -> dict[str, Any]:
    """The columns by name, those in lists and mappings by the names of these and of their place."""
    columns: dict[str, Any] = {}
    for name, x in given.items():
        parts = x if isinstance(x, dict) else dict(enumerate(x)) if _has_columns(x) else None
        columns |= {name: x} if parts is None else {f"{name}[{i!r}]": y for i, y in parts.items()}
    return columns


def require_one_order(**given: Any) -> None:
    """Refuses columns that would pair the wrong rows; see `takes_columns`."""
    given = _each_column(given)
    queries = {name: type(x).__name__ for name, x in given.items() if _order(type(x)) == "query"}
    if len(queries) > 1:
        kinds = ", ".join(sorted(set(queries.values())))
        raise ValueError(
            f"{', '.join(queries)}: expected one deferred column at most, got {len(queries)} "
            f"({kinds}): each is computed by itself, and its rows may come in another order; first "
            "compute one table of all columns, such as query.collect(), relation.df() or "
            "frame.compute(), then pass its columns"
        )
    first: dict[tuple[bool, int], tuple[str, Any]] = {}
    for name, x in given.items():
        if _order(type(x)) != "index":
            continue
        index = getattr(x.to_native() if hasattr(x, "to_native") else x, "index", None)
        if index is not None:  # narwhals' columns have one if they are pandas'
            rows = name.startswith(_OTHER_ROWS), len(index)
            first_name, first_index = first.setdefault(rows, (name, index))
            if not first_index.equals(index):
                raise ValueError(
                    f"{first_name}, {name}: expected pandas objects with one index, got two that "
                    "differ, and rows are paired by position; align the objects, then "
                    "reset_index(drop=True), or pass arrays"
                )


def require_class_order(values: Column, classes: Any, name: str) -> None:
    """Refuses a table whose columns have the names of the classes in another order."""
    if hasattr(values, "collect_schema"):  # polars and narwhals, also of a lazy frame
        table_names: Any = values.collect_schema().names()
    else:
        table_names = getattr(values, "column_names", None) or getattr(values, "columns", None)
    if table_names is None:
        return
    actual, expected = list(table_names), np.asarray(classes).tolist()
    if actual != expected and sorted(map(str, actual)) == sorted(map(str, expected)):
        raise ValueError(
            f"{name}: expected columns in the order of the classes, {expected[:10]}, got "
            f"{actual[:10]}, and columns are taken by position"
        )


def on_host(values: Column) -> Any:
    """Computes a lazy table, and moves a device's tensor to the host; others are not copied.

    A DuckDB relation or a lazy frame of one column becomes that column.
    """
    if isinstance(values, np.ndarray | list):
        return values
    if f"{type(values).__module__}.".startswith(_DEFERRED):
        return _run(values)
    if hasattr(values, "detach"):  # torch: without the gradient; NumPy has no bfloat16
        values = values.detach().cpu()
        return values.float() if str(values.dtype) == "torch.bfloat16" else values
    if _library(values) == "cupy":  # NumPy may not read it
        return values.get()
    return _with_nulls(values)


def _with_nulls(values: Any) -> Any:
    """A pyarrow dictionary with nulls as a plain column: NumPy could read nulls as other values."""
    kind: Any = getattr(values, "type", None)
    if _library(values) != "pyarrow" or not str(kind).startswith("dictionary"):
        return values
    parts = getattr(values, "chunks", [values])
    if any(part.null_count or part.dictionary.null_count for part in parts):
        return values.cast(kind.value_type)
    return values


def _run(values: Any) -> Any:
    with install_hint(f"a {type(values).__name__} needs narwhals", "platt-jax[tables]"):
        import narwhals as nw
    table = nw.from_native(values, allow_series=True, pass_through=True)
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
        if len(table.columns) == 1:
            table = table[table.columns[0]]
    return nw.to_native(table, pass_through=True)


def floats(values: Column) -> NDArray[np.float64] | None:
    """Decimals, and numbers or booleans with nulls, as float64; None for other columns.

    NumPy would read these as Python objects.
    """
    library = _library(values)
    if library not in ("pandas", "polars", "pyarrow"):
        return None
    kind = getattr(getattr(values, "dtype", values), "pyarrow_dtype", getattr(values, "type", ""))
    if str(kind).startswith("decimal"):  # narwhals knows those of 128 bits only
        arrow = values if library == "pyarrow" else values.array.__arrow_array__()
        return np.asarray(arrow.cast("string").cast("double"))  # the nearest, as DuckDB and polars
    try:
        import narwhals as nw
    except ImportError:  # then NumPy's array is used
        return None
    if library == "pyarrow" and hasattr(values, "type"):  # narwhals takes chunked arrays only
        import pyarrow as pa

        values = pa.chunked_array(getattr(values, "chunks", [values]), values.type)
    column = nw.from_native(values, allow_series=True, pass_through=True)
    if not isinstance(column, nw.Series):
        return None
    if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
        return None
    return column.cast(nw.Float64).to_numpy()


def is_wide(values: Column) -> bool:
    """Whether this is a polars column of 128-bit integers."""
    return _library(values) == "polars" and str(getattr(values, "dtype", None)) in _WIDE


def narrowed(values: Column) -> Any:
    """Converts 128-bit integers of a column or a table to float64; others stay unchanged."""
    if is_wide(values):
        return values.cast(float)
    if _library(values) == "polars" and hasattr(values, "get_columns"):
        return values.with_columns(x.cast(float) for x in values.get_columns() if is_wide(x))
    return values


def dictionary(values: Column) -> _Coded | None:
    """The codes (N,) and the distinct values of a column of categories or text, or None.

    A missing value has code -1, or the result is None as for other columns. The column's library
    encodes text ten times faster than Python objects can be.
    """
    encoders: dict[str, Callable[[Any], _Coded | None]] = {
        "pandas": _coded_pandas,
        "polars": _coded_polars,
        "pyarrow": _coded_arrow,
    }
    return encoders.get(_library(values), lambda _: None)(values)


def ordered_categories(values: Column) -> list[Any] | None:
    """The categories of an ordered categorical of pandas or an Enum of polars, in their order."""
    dtype = getattr(values, "dtype", None)
    ordered = getattr(dtype, "ordered", False) or str(type(dtype).__name__) == "Enum"
    return list(getattr(dtype, "categories", ())) if ordered else None


def labelled(name: str, values: Column) -> str:
    """The name of an argument in messages, with its column's name if it has one."""
    column = getattr(values, "name", None)
    return f"{name}, column {column!r}" if isinstance(column, str) and column else name


def _library(values: Any) -> str:
    return type(values).__module__.partition(".")[0]


def _coded_pandas(values: Any) -> _Coded | None:
    dtype = getattr(values, "dtype", None)
    if dtype is None or isinstance(dtype, np.dtype):
        return None
    array = getattr(values, "array", values)
    if hasattr(array, "codes"):
        return np.asarray(array.codes), np.asarray(array.categories)
    in_arrow = getattr(dtype, "storage", None) == "pyarrow" or hasattr(dtype, "pyarrow_dtype")
    return _coded_arrow(array.__arrow_array__()) if in_arrow else None


def _coded_polars(values: Any) -> _Coded | None:
    dtype = getattr(values, "dtype", None)
    kind = None if dtype is None else dtype.base_type().__name__
    if getattr(dtype, "time_zone", None) is not None:
        return _with_zone(values.to_numpy())
    if kind not in ("Categorical", "Enum", "String") or values.null_count():
        return None
    if kind == "String":
        import polars as pl

        values = values.cast(pl.Categorical)
    codes = values.to_physical().to_numpy()
    # The codes index a list that columns share, and most of it may belong to other columns.
    row = np.full(codes.max(initial=0) + np.intp(1), -1)
    row[codes] = np.arange(len(codes))  # an arbitrary row of each
    used = np.flatnonzero(row >= 0)
    positions = np.zeros(len(row), np.min_scalar_type(len(used)))
    positions[used] = np.arange(len(used))
    return positions[codes], values.gather(row[used]).to_numpy()


def _coded_arrow(values: Any) -> _Coded | None:
    kind = str(getattr(values, "type", None))
    if getattr(getattr(values, "type", None), "tz", None) is not None:
        return _with_zone(np.asarray(values))
    if not kind.startswith(("dictionary", "string", "large_string")):
        return None
    if getattr(values, "null_count", True):  # a scalar has none
        return None
    encoded = values if kind.startswith("dictionary") else values.dictionary_encode()
    if hasattr(encoded, "chunks"):
        encoded = encoded.combine_chunks()
    if encoded.dictionary.null_count:
        return None
    return tuple(x.to_numpy(zero_copy_only=False) for x in (encoded.indices, encoded.dictionary))


def _with_zone(utc: NDArray[Any]) -> _Coded | None:
    """Times with a zone, as Python objects: NumPy's have none, and would equal times without."""
    distinct, codes = np.unique(utc, return_inverse=True)
    if np.isnat(distinct).any() or (distinct.astype("M8[us]") != distinct).any():
        return None
    aware = [time.replace(tzinfo=dt.UTC) for time in distinct.astype("M8[us]").tolist()]
    return codes, np.array(aware, object)
