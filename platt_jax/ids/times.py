"""Dates, times and durations of NumPy, compared and converted exactly.

NumPy compares two units in the finer one, where distant dates overflow: silently before NumPy 2.5,
which raises an error.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Units of whole days or more. Python has dates for these, and datetimes for finer ones.
DAYS = ("Y", "M", "W", "D")
_MONTHS = ("Y", "M")  # units without a fixed length in days
_FINER_THAN_PYTHONS = ("ns", "ps", "fs", "as")
# Units to try if the finest unit of several arrays covers too few years.
_OTHER_UNITS = ("us", "ms", "s", "D")


def unit(dtype: np.dtype[Any]) -> str:
    """The unit of times of this dtype."""
    return np.datetime_data(dtype)[0]


def in_months(dtype: np.dtype[Any]) -> bool:
    """Whether the dtype holds durations in months or years, which never equal durations in days."""
    return dtype.kind == "m" and unit(dtype) in _MONTHS


def in_dtype(
    times: NDArray[Any], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.bool_] | np.bool_]:
    """Times in another unit, and whether each is exact. An overflow is found by converting back."""
    if times.dtype == dtype:
        return times, np.True_
    converted = _converted(times, dtype)
    return converted, _converted(converted, times.dtype) == times


def _converted(times: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Times (K,) in another unit; 0 in place of times that it does not reach."""
    try:
        return times.astype(dtype)
    except OverflowError:  # from NumPy 2.5 on
        converted = np.zeros(times.shape, dtype)
        for index, time in enumerate(times):
            with suppress(OverflowError):
                converted[index] = time.astype(dtype)
        return converted


def join(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenates arrays of one kind of times, in a unit that holds all of them exactly.

    The unit is the finest of the arrays if possible.
    """
    dtypes = list({part.dtype for part in parts})
    if len(dtypes) == 1:
        return np.concatenate(parts)
    for dtype in _candidates(dtypes):
        converted = [in_dtype(part, dtype) for part in parts]
        if all(np.all(is_exact) for _, is_exact in converted):
            return np.concatenate([part for part, _ in converted])
    raise ValueError(
        "expected ids that fit one unit of time, got "
        + " and ".join(sorted(dtype.name for dtype in dtypes))
    )


def _candidates(dtypes: list[np.dtype[Any]]) -> list[np.dtype[Any]]:
    if len({in_months(dtype) for dtype in dtypes}) > 1:
        return []
    other_dtypes = [np.dtype(f"{dtypes[0].kind}8[{unit}]") for unit in _OTHER_UNITS]
    try:
        finest = np.result_type(*dtypes)
    except OverflowError:  # attoseconds beside days
        return other_dtypes
    return [finest] if in_months(finest) else [finest, *other_dtypes]


def to_python(times: NDArray[Any]) -> list[Any]:
    """Times (K,) as Python's dates, datetimes or durations, or NumPy's where Python has none."""
    is_exact: NDArray[np.bool_] | np.bool_ = np.True_
    converted = times
    if unit(times.dtype) in _FINER_THAN_PYTHONS:
        converted, is_exact = in_dtype(times, np.dtype(f"{times.dtype.kind}8[us]"))
    # NumPy returns an integer where Python has no type.
    return [
        scalar if isinstance(value, int) or not exact else value
        for value, scalar, exact in zip(
            converted.tolist(), times, np.broadcast_to(is_exact, times.shape), strict=True
        )
    ]
