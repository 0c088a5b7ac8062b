"""Hashes of ids that depend on the id alone."""

import datetime as dt
import hashlib
import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

_UTC_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

# Attoseconds (NumPy's shortest unit) per unit of time, and months per unit.
_ATTOSECONDS = {
    **{"W": 604_800 * 10**18, "D": 86_400 * 10**18, "h": 3_600 * 10**18, "m": 60 * 10**18},
    **{"s": 10**18, "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1},
}
_MONTHS = {"Y": 12, "M": 1}

# The Gregorian calendar repeats after this period.
_PERIOD_MONTHS, _PERIOD_DAYS = 4_800, 146_097


def hashes(keys: NDArray[Any]) -> NDArray[np.uint64]:
    """Hashes (K,) uint64 of ids (K,), the same in every process and for equal ids."""
    return np.array([_hash(value) for value in _values(keys)], np.uint64)


def _hash(value: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest(), "little")


def _values(keys: NDArray[Any]) -> list[Any]:
    """Python objects for ids, with equal reprs for equal ids."""
    if keys.dtype.names is not None:
        return list(zip(*(_values(keys[name]) for name in keys.dtype.names), strict=True))
    if keys.dtype.kind in "USiu":
        return list(keys.tolist())
    # Python's times are coarser than NumPy's.
    return list(map(_value, keys if keys.dtype.kind in "mM" else keys.tolist()))


def _value(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_value, key))
    if isinstance(key, np.datetime64 | np.timedelta64):
        return _numpy_time(key)
    if isinstance(key, numbers.Number):
        return _number(key)
    if isinstance(key, dt.datetime) and key.tzinfo is not None:
        return "UTC", _numpy_time(np.timedelta64(key - _UTC_EPOCH))
    if isinstance(key, dt.date):
        return _numpy_time(np.datetime64(key))
    if isinstance(key, dt.timedelta):
        return _numpy_time(np.timedelta64(key))
    return str.__str__(key) if isinstance(key, str) else key


def _number(key: Any) -> Any:
    """The int or float that equals a number, if there is one."""
    if key.imag != 0:
        return _number(key.real), _number(key.imag)
    key = key.real
    near = key if isinstance(key, int) else float(key)
    if near != key:  # a Decimal or NumPy's long double
        is_int = -1e300 < key < 1e300 and key == int(key)
        return int(key) if is_int else ("number", hash(key))
    is_int = isinstance(near, int) or near.is_integer()
    return int(near) if is_int else near


def _numpy_time(key: Any) -> tuple[str, int]:
    """A time or a duration, as its kind and a count of the shortest unit."""
    unit, count = np.datetime_data(key.dtype)
    number = int(key.astype(np.int64)) * count
    kind = "duration" if isinstance(key, np.timedelta64) else "time"
    if unit in _MONTHS:
        months = number * _MONTHS[unit]
        if kind == "duration":
            return "months", months
        periods, months = divmod(months, _PERIOD_MONTHS)
        days = np.datetime64(months, "M").astype("M8[D]").astype(np.int64)
        number, unit = int(days) + periods * _PERIOD_DAYS, "D"
    return kind, number * _ATTOSECONDS.get(unit, 1)
