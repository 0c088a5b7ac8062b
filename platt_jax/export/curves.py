"""What an export of probabilities needs of a calibrator, as plain Python values."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.fit import Fit, Sigmoid

# What an export of probabilities takes; of SegmentCalibrators those without a population.
Exportable: TypeAlias = SegmentCalibrator | Sigmoid | Fit


class Curves(NamedTuple):
    """Sigmoids P(y=1) = 1 / (1 + exp(A score + B)), as `predict_proba` evaluates them.

    Attributes:
        segments: the segments, ascending: text, numbers, dates; tuples where they are of several
            columns. None for one sigmoid for all rows.
        types: for each of their columns, what its values are.
        A: the slope of each, NaN where there is no curve (NON_FINITE, EMPTY).
        B: the intercept of each.
        fallback: (A, B) of all other segments; or of the one sigmoid.
    """

    segments: list[Any] | None
    types: list[set[type]]
    A: list[float]
    B: list[float]
    fallback: tuple[float, float]


def curves(calibrator: Exportable) -> Curves:
    """The sigmoids of a calibrator.

    Raises:
        ValueError: it is something else than a SegmentCalibrator without a population, or one
            Sigmoid or Fit.
    """
    if isinstance(calibrator, Fit):
        calibrator = calibrator.sigmoid
    if isinstance(calibrator, Sigmoid) and np.ndim(calibrator.A) == 0:
        return Curves(None, [], [], [], (float(calibrator.A), float(calibrator.B)))
    if not isinstance(calibrator, SegmentCalibrator):
        raise ValueError(
            "calibrator: expected a SegmentCalibrator or one sigmoid, got a "
            f"{type(calibrator).__name__}"
        )
    if calibrator.population is not None:
        raise ValueError(
            "calibrator: expected one without a population, whose probability for segments that "
            "were not fitted is an integral; with dataclasses.replace(calibrator, "
            "population=None) they have the fallback's"
        )
    A, B = (np.asarray(x, np.float64).tolist() for x in (calibrator.fit.A, calibrator.fit.B))
    fallback = float(calibrator.fallback.A), float(calibrator.fallback.B)
    return Curves(_values(calibrator.keys), _types(calibrator.keys), A, B, fallback)


def _types(keys: NDArray[Any]) -> list[set[type]]:
    """Of each column, the types of its values; without a segment, that of its dtype."""
    columns = [keys] if keys.dtype.names is None else [keys[name] for name in keys.dtype.names]
    return [
        {object}
        if column.dtype == object and not len(column)
        else set(map(type, _values(column if len(column) else np.zeros(1, column.dtype))))
        for column in columns
    ]


def require_integers(found: Curves, bits: int, where: str) -> None:
    """Refuses segments that are integers of more bits, the sign's included.

    Raises:
        ValueError: there is one.
    """
    for segment in found.segments or []:
        for part in segment if isinstance(segment, tuple) else (segment,):
            if type(part) is int and not -(1 << bits - 1) <= part < 1 << bits - 1:
                raise ValueError(
                    f"segments: expected integers of {bits} bits, which {where} have, got {part}; "
                    "fit such ids as text"
                )


def _values(keys: NDArray[Any]) -> list[Any]:
    if keys.dtype.names is not None:
        return list(zip(*(_values(keys[name]) for name in keys.dtype.names), strict=True))
    if keys.dtype.kind == "M" and np.datetime_data(keys.dtype)[0] not in ("Y", "M", "W", "D"):
        keys = keys.astype("M8[us]")  # Python's own; finer ones would come out as integers
    values: list[Any] = keys.tolist()
    return values
