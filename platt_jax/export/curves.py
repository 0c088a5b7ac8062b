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
        A: the slope of each, NaN where there is no curve (NON_FINITE, EMPTY).
        B: the intercept of each.
        fallback: (A, B) of all other segments; or of the one sigmoid.
    """

    segments: list[Any] | None
    A: list[float]
    B: list[float]
    fallback: tuple[float, float]

    @property
    def columns(self) -> int:
        """How many columns a segment has."""
        first = self.segments[0] if self.segments else ""
        return len(first) if isinstance(first, tuple) else 1


def curves(calibrator: Exportable) -> Curves:
    """The sigmoids of a calibrator.

    Raises:
        ValueError: it is something else than a SegmentCalibrator without a population, or one
            Sigmoid or Fit.
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
    if calibrator.population is not None:
        raise ValueError(
            "calibrator: expected one without a population, whose probability for segments that "
            "were not fitted is an integral; with dataclasses.replace(calibrator, "
            "population=None) they have the fallback's"
        )
    A, B = (np.asarray(x, np.float64).tolist() for x in (calibrator.fit.A, calibrator.fit.B))
    fallback = float(calibrator.fallback.A), float(calibrator.fallback.B)
    return Curves(_values(calibrator.keys), A, B, fallback)


def _values(keys: NDArray[Any]) -> list[Any]:
    if keys.dtype.names is not None:
        return list(zip(*(_values(keys[name]) for name in keys.dtype.names), strict=True))
    if keys.dtype.kind == "M" and np.datetime_data(keys.dtype)[0] not in ("Y", "M", "W", "D"):
        keys = keys.astype("M8[us]")  # Python's own; finer ones would come out as integers
    values: list[Any] = keys.tolist()
    return values
