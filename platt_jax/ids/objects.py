"""Python objects as ids: their kinds, arrays that keep them, and text for files."""

import datetime as dt
import json
import numbers
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.ids import times

# Kinds of NumPy dtype whose values are used as ids directly.
PLAIN = "biufcSUmM"

# Types that files store as JSON with the name of the type: writers to text and readers from text.
_TYPES: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "datetime": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "Decimal": (Decimal, str, Decimal),
    "UUID": (uuid.UUID, str, uuid.UUID),
}


def missing(value: Any) -> str | None:
    """The name of a missing value, or None if the value is not missing."""
    if isinstance(value, tuple):
        return next((name for part in value if (name := missing(part)) is not None), None)
    if value is None:
        return "None"
    kind = type(value).__name__
    if kind in ("NAType", "NaTType"):  # pandas'
        return kind.removesuffix("Type")
    if isinstance(value, numbers.Number | np.generic) and value != value:
        return "NaT" if isinstance(value, np.datetime64 | np.timedelta64) else "NaN"
    return None


def as_typed(values: list[Any], name: str) -> NDArray[Any]:
    """Python objects as an array of a plain dtype if that keeps them, else as an object array."""
    values = [_unboxed(value) for value in values]
    kinds = {kind(value) for value in values}
    if len(kinds) == 1:
        try:
            plain = _plain_array(kinds.pop(), values)
        except (OverflowError, ValueError):  # beyond NumPy's integers or years
            plain = None
        if plain is not None:
            return plain
    values = [_python_time(value) for value in values]
    require_savable(values, name)
    return _object_array(values)


def as_objects(values: NDArray[Any]) -> NDArray[np.object_]:
    """Ids (K,) as Python objects, equal where the ids are; tuples for ids of several columns.

    Times in whole days become dates, finer ones datetimes. Values without a Python type, such as
    nanoseconds, stay NumPy's.
    """
    if values.dtype.names is not None:
        columns = [as_objects(values[field]).tolist() for field in values.dtype.names]
        return _object_array(list(zip(*columns, strict=True)))
    if values.dtype.kind in "mM":
        return _object_array(times.to_python(values))
    return values.astype(object, copy=False)


def _object_array(values: list[Any]) -> NDArray[np.object_]:
    return np.fromiter(values, object, len(values))


def _python_time(value: Any) -> Any:
    """A time of NumPy as Python's, if Python has it."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return times.to_python(np.array([value]))[0]
    return value


def _unboxed(value: Any) -> Any:
    """NumPy's scalars as Python's if possible, and pandas' times as NumPy's or Python's."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        return value.item()
    if hasattr(value, "to_pydatetime") and value.tzinfo is not None and not value.nanosecond:
        return value.to_pydatetime()
    for method in ("to_datetime64", "to_timedelta64"):
        if hasattr(value, method) and getattr(value, "tzinfo", None) is None:
            return getattr(value, method)()
    return value


def kind(value: Any) -> str:
    """The kind of a value, for messages and comparisons. Only values of one kind can be equal."""
    if isinstance(value, np.ndarray | np.timedelta64) and times.in_months(value.dtype):
        return "durations in months"
    if isinstance(value, np.ndarray):
        return _KINDS_OF_DTYPES.get(value.dtype.kind, "objects")
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes):
        return "bytes"
    if isinstance(value, numbers.Number) and not isinstance(value, np.timedelta64):
        return "numbers"
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return "times with a time zone"
    if isinstance(value, dt.date | np.datetime64):
        return "dates and times"
    if isinstance(value, dt.timedelta | np.timedelta64):
        return "durations"
    return f"objects of type {type(value).__name__}"


_KINDS_OF_DTYPES = {
    **dict.fromkeys("biufc", "numbers"),
    "U": "text",
    "S": "bytes",
    "M": "dates and times",
    "m": "durations",
}


def _plain_array(kind: str, values: list[Any]) -> NDArray[Any] | None:
    """Values of one kind as an array that keeps each of them, or None."""
    if kind == "dates and times" and _dates_beside_times(values):
        return None
    if kind == "dates and times":
        return times.join([np.array([np.datetime64(value)]) for value in values])
    if kind.startswith("durations"):
        return times.join([np.array([np.timedelta64(value)]) for value in values])
    if kind not in ("numbers", "text", "bytes"):
        return None
    # NumPy rounds large integers, which would merge them, and drops NUL characters at a text's end.
    plain = np.array(values)
    return plain if plain.dtype.kind in PLAIN and plain.tolist() == values else None


def _dates_beside_times(values: list[Any]) -> bool:
    """Whether there are both Python dates and times. A time at midnight equals no Python date."""
    has_dates = any(isinstance(x, dt.date) and not isinstance(x, dt.datetime) for x in values)
    return has_dates and any(
        isinstance(x, dt.datetime)
        or (isinstance(x, np.datetime64) and times.unit(x.dtype) not in times.DAYS)
        for x in values
    )


def require_savable(values: list[Any], name: str) -> None:
    """Refuses Python objects that a file cannot store."""
    for value in values:
        if not _is_kept(value):
            raise ValueError(
                f"{name}: expected ids that a file can hold (numbers, text, dates, times, Decimal, "
                f"UUID, or tuples of these), got a {type(value).__name__}; convert them to text"
            )


def to_text(objects: NDArray[np.object_]) -> NDArray[np.str_]:
    """Objects (K,) as text (K,); a TypeError if an object is of a type that cannot be stored."""
    return np.array([_write(value) for value in objects.tolist()], str)


def from_text(text: NDArray[np.str_]) -> NDArray[np.object_]:
    """The objects that `to_text` stored; for other text an exception of any class."""
    return _object_array([_read(entry) for entry in text.tolist()])


def _is_kept(value: Any) -> bool:
    """Whether reading a value back from text gives an equal one."""
    try:
        return _read(_write(value)) == value
    except (TypeError, ValueError, RecursionError):
        return False


def _write(value: Any) -> str:
    return json.dumps(_to_json(value))


def _read(text: str) -> Any:
    return _from_json(json.loads(text))


def _to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_json(part) for part in value]
    for name, (type_, write, _) in _TYPES.items():
        if type(value) is type_:
            return {name: write(value)}
    if isinstance(value, str | int | float):
        return value
    raise TypeError(f"no text for a {type(value).__name__}")


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(part) for part in value)
    if isinstance(value, dict):
        ((name, text),) = value.items()
        return _TYPES[name][2](text)
    return value
