"""Equality of results that hold arrays."""

from dataclasses import fields

import numpy as np


class ComparedByValue:
    """Results are equal if they have the same class and equal arrays; NaN equals NaN."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(
            _equal(vars(self)[field.name], vars(other)[field.name])
            for field in fields(self)  # type: ignore[arg-type]  # of a dataclass
            if field.compare
        )


def _equal(one: object, other: object) -> bool:
    if isinstance(one, ComparedByValue):
        return one == other
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
