"""What an export of probabilities needs of a calibrator, as plain Python values."""

from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.ids import times
from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.fit import Fit
from platt_jax.results.sigmoid import Sigmoid

# What an export of probabilities takes.
Exportable: TypeAlias = SegmentCalibrator | Sigmoid | Fit


class Curves(NamedTuple):
    """Sigmoids P(y=1) = 1 / (1 + exp(A score + B)), as `predict_proba` evaluates them.

    With a population (A, B) is normal, and the probability the sigmoid's mean: for that it has five
    numbers, the means of A and B, and their covariance's AA, AB and BB.

    Attributes:
        segments: the segments, ascending: text, numbers, dates; tuples where they are of several
            columns. None for one sigmoid for all rows.
        columns: for each of their columns, its values.
        types: for each of their columns, what its values are.
        parameters: (A, B) of each, or its five numbers; NaN where there is no curve (NON_FINITE,
            EMPTY).
        fallback: those of all other segments; or of the one sigmoid.
    """

    segments: list[Any] | None
    columns: list[list[Any]]
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
        return Curves(None, [], [], [], (float(calibrator.A), float(calibrator.B)))
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
    keys = calibrator.keys
    fields = [keys] if keys.dtype.names is None else [keys[name] for name in keys.dtype.names]
    columns = list(map(_values, fields))
    segments = columns[0] if keys.dtype.names is None else list(zip(*columns, strict=True))
    types = [
        set(map(type, column)) or {_type(x.dtype)}
        for column, x in zip(columns, fields, strict=True)
    ]
    return Curves(segments, columns, types, parameters, fallback)


def require_integers(found: Curves, bits: int, where: str) -> None:
    """Refuses segments that are integers of more bits, the sign's included.

    Raises:
        ValueError: there is one.
    """
    for part in chain(*found.columns):
        if is_wider(part, bits):
            raise ValueError(
                f"segments: expected integers of {bits} bits, which {where} have, got {part}; "
                "fit such ids as text"
            )


def is_wider(part: Any, bits: int) -> bool:
    """Whether it is an integer of more bits, the sign's included."""
    return type(part) is int and not -(1 << bits - 1) <= part < 1 << bits - 1


def _type(dtype: np.dtype[Any]) -> type:
    """What the values of a column without any would be."""
    return object if dtype.kind == "O" else type(_values(np.zeros(1, dtype))[0])


def _values(column: NDArray[Any]) -> list[Any]:
    """As Python has them; times that its own do not hold exactly stay NumPy's."""
    values: list[Any] = times.to_python(column) if column.dtype.kind in "mM" else column.tolist()
    return values
