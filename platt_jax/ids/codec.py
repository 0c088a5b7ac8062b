"""Stores ids that are Python objects as text: JSON, with names for types that JSON lacks."""

import datetime as dt
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The type, its writer to text and its reader from text, by the name used in the file.
_TYPES: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "datetime": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "Decimal": (Decimal, str, Decimal),
    "UUID": (uuid.UUID, str, uuid.UUID),
}


def to_text(objects: NDArray[np.object_]) -> NDArray[np.str_]:
    """Objects (K,) as text (K,).

    Raises:
        TypeError: an object is of a type that cannot be stored.
    """
    return np.array([_write(value) for value in objects.tolist()], str)


def from_text(text: NDArray[np.str_]) -> NDArray[np.object_]:
    """The objects that `to_text` stored.

    Raises:
        Exception: `to_text` did not write this text. The class depends on the fault.
    """
    objects = np.empty(len(text), object)
    objects[:] = [_read(one) for one in text.tolist()]
    return objects


def is_kept(value: Any) -> bool:
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
