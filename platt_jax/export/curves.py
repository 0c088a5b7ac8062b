"""What an export of probabilities needs of a calibrator, as plain Python values."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.fit import Fit, Sigmoid

# What an export of probabilities takes.
Exportable: TypeAlias = SegmentCalibrator | Sigmoid | Fit


class Curves(NamedTuple):
    """Sigmoids P(y=1) = 1 / (1 + exp(A score + B)), as `predict_proba` evaluates them.

    With a population (A, B) is normal, and the probability the sigmoid's mean: for that it has five
    numbers, the means of A and B, and their covariance's AA, AB and BB.

    Attributes:
        segments: the segments, ascending: text, numbers, dates; tuples where they are of several
            columns. None for one sigmoid for all rows.
        types: for each of their columns, what its values are.
        parameters: (A, B) of each, or its five numbers; NaN where there is no curve (NON_FINITE,
            EMPTY).
        fallback: those of all other segments; or of the one sigmoid.
    """

    segments: list[Any] | None
    types: list[set[type]]
    parameters: list[tuple[float, ...]]
    fallback: tuple[float, ...]

    @property
    def averaged(self) -> bool:
        """Whether probabilities are means over a population's (A, B)."""
        return len(self.fallback) > len(SIGMOID)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters."""
        return NORMAL if self.averaged else SIGMOID


SIGMOID = "A", "B"
NORMAL = *SIGMOID, "AA", "AB", "BB"


def curves(calibrator: Exportable) -> Curves:
    """The sigmoids of a calibrator.

    Raises:
        ValueError: it is something else than a SegmentCalibrator, or one Sigmoid or Fit.
    """
    if isinstance(calibrator, Fit):
        calibrator = calibrator.sigmoid
    if isinstance(calibrator, Sigmoid) and np.ndim(calibrator.A) == 0:
        return Curves(None, [], [], (float(calibrator.A), float(calibrator.B)))
    if not isinstance(calibrator, SegmentCalibrator):
        raise ValueError(
            "calibrator: expected a SegmentCalibrator or one sigmoid, got a "
            f"{type(calibrator).__name__}"
        )
    table = calibrator.predictive()
    if table is None:
        fit, of_others = calibrator.fit, calibrator.fallback
        pairs = (
            np.append(each, other) for each, other in ((fit.A, of_others.A), (fit.B, of_others.B))
        )
        table = np.column_stack([x.astype(np.float64) for x in pairs])
    *parameters, fallback = map(tuple, table.tolist())
    return Curves(_values(calibrator.keys), _types(calibrator.keys), parameters, fallback)


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
