"""Columns of tables as text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Line width of a printed table.
WIDTH = 100
_BETWEEN = 2
_DIGITS = 3
_MOST_DECIMALS = 8
# Largest ratio of two numbers of a column of equal decimals.
_SPREAD = 1e4


def cell(value: Any) -> str:
    """A value alone, as in a repr: a float with six digits."""
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def cells(values: NDArray[Any]) -> list[str]:
    """A column as text: floats with three digits or more and with equal decimals.

    Where numbers differ too much in size for that, each has three digits.
    """
    if values.dtype.kind != "f":
        # Python would have integers for NumPy's nanoseconds.
        return [cell(value) for value in (values if values.dtype.kind in "mM" else values.tolist())]
    numbers = values.astype(float)
    sizes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    if not len(sizes) or sizes.max() > _SPREAD * sizes.min():
        return [f"{number:.{_DIGITS}g}" for number in numbers]
    if (sizes == np.rint(sizes)).all():
        return [f"{number:.0f}" for number in numbers]
    typical, smallest = np.floor(np.log10([np.median(sizes), sizes.min()])).astype(int)
    decimals = max(_DIGITS - 1 - typical, _DIGITS - 2 - smallest, 0)
    if decimals > _MOST_DECIMALS:
        return [f"{number:.{_DIGITS}g}" for number in numbers]
    return [f"{number:.{decimals}f}" for number in numbers]


def fitting(columns: Sequence[list[str]]) -> int:
    """How many of the columns fit in a line."""
    widths = np.array([max(map(len, column), default=0) + _BETWEEN for column in columns])
    return max(int(np.count_nonzero(np.cumsum(widths) - _BETWEEN <= WIDTH)), 1)


def lines(columns: Sequence[list[str]]) -> list[str]:
    """Columns side by side, as lines."""
    widths = [max(map(len, column)) for column in columns]
    return [
        (" " * _BETWEEN).join(word.rjust(width) for word, width in zip(line, widths, strict=True))
        for line in zip(*columns, strict=True)
    ]
