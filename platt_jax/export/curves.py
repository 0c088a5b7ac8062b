"""The curves of a calibrator as plain Python values, for exports of probabilities."""

from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.ids import times
from platt_jax.results.calibrators import SegmentCalibrator, parameters
from platt_jax.results.fit import Fit
from platt_jax.results.sigmoid import Sigmoid

# Calibrators whose probabilities can be exported.
Exportable: TypeAlias = SegmentCalibrator | Sigmoid | Fit


class Curves(NamedTuple):
    """Sigmoids P(y=1) = 1 / (1 + exp(A score + B)), as `predict_proba` evaluates them.

    With a population (A, B) is normal, and a probability is the mean of the sigmoid. A curve then
    has five parameters: the means of A and B, and their covariance's AA, AB and BB.

    Attributes:
        segments: segment ids, ascending: text, numbers, dates; tuples if they have several columns.
            None for one sigmoid for all rows.
        columns: the values of each column of the ids.
        types: the types of the values of each column.
        parameters: the two or five parameters of each segment; NaN without a curve (NON_FINITE,
            EMPTY).
        fallback: the parameters for all other segments; or those of the one sigmoid.
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
        """Names of the parameters."""
        return NORMAL if self.averaged else SIGMOID


SIGMOID = "A", "B"
NORMAL = *SIGMOID, "AA", "AB", "BB"


def curves(calibrator: Exportable) -> Curves:
    """The curves of a calibrator.

    Raises:
        ValueError: calibrator is neither a SegmentCalibrator nor one Sigmoid or Fit.
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
    *of_each, fallback = map(tuple, parameters(calibrator).tolist())
    fields = ids.fields(calibrator.keys)
    columns = list(map(_values, fields))
    plain = calibrator.keys.dtype.names is None
    segments = columns[0] if plain else list(zip(*columns, strict=True))
    types = [
        set(map(type, column)) or {_type(x.dtype)}
        for column, x in zip(columns, fields, strict=True)
    ]
    return Curves(segments, columns, types, of_each, fallback)


def require_integers(found: Curves, bits: int, where: str) -> None:
    """Check that integer segment ids fit in this number of bits, including the sign."""
    for part in chain(*found.columns):
        if is_wider(part, bits):
            raise ValueError(
                f"segments: expected integers of {bits} bits, which {where} have, got {part}; "
                "fit such ids as text"
            )


def is_wider(part: Any, bits: int) -> bool:
    """Whether a value is an integer that does not fit in this number of bits."""
    return type(part) is int and not -(1 << bits - 1) <= part < 1 << bits - 1


def _type(dtype: np.dtype[Any]) -> type:
    """The type that values of this dtype have, for a column without any."""
    return object if dtype.kind == "O" else type(_values(np.zeros(1, dtype))[0])


def _values(column: NDArray[Any]) -> list[Any]:
    """A column as Python values; times that Python's types cannot hold exactly stay NumPy's."""
    return times.to_python(column) if column.dtype.kind in "mM" else column.tolist()
