"""Calibration curves other than the sigmoid, of many problems: what a fitted curve can do.

A `SegmentCalibrator` whose `curves` are not None predicts by them. Every kind of curve is a
subclass of `FittedCurves`, here; how each is fitted is in `platt_jax.curves`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Integers
from platt_jax.columns import Column
from platt_jax.results import tables
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.fit import problem_names
from platt_jax.results.pieces import Pieces
from platt_jax.results.probabilities import band, clipped_logit, critical_value, expit
from platt_jax.status import Status

# A fall of a curve that is rounding.
NO_FALL = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedCurves(ComparedByValue, ABC):
    """The curves of K problems.

    Attributes:
        status: (K,) int, how each fit ended: a `Status`. Probabilities are NaN if it is NON_FINITE
            or EMPTY.
        low, high: (K,) the smallest and the largest score of the fit.
    """

    kind: ClassVar[str]  # its name in files and messages
    has_errors: ClassVar[bool] = False  # whether `variance` is known

    status: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]

    def __len__(self) -> int:
        return len(self.status)

    @property
    def label(self) -> str:
        """The name of the kind of curve in messages."""
        return self.kind

    def proba(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """P(y=1) of scores (N,) by the curves of the problems `which` (N,)."""
        return expit(self.log_odds(scores, which))

    def log_odds(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """The log-odds of class 1, by `platt_jax.logit` where a curve has probabilities."""
        return clipped_logit(self.proba(scores, which))

    def variance(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """The variance of the log-odds (N,).

        Raises:
            ValueError: the kind of curve has no standard errors.
        """
        raise ValueError(
            f"calibrator: expected curves with standard errors for a band, got {self.kind!r}"
        )

    @property
    @abstractmethod
    def is_monotone(self) -> Bools:
        """(K,) whether no higher score has a lower probability; False where these are NaN."""

    @abstractmethod
    def pieces(self) -> Pieces:
        """The curves in pieces, for programs without platt_jax."""

    def columns(self) -> dict[str, NDArray[Any]]:
        """Columns (K,) of a table."""
        return {"status": self.status}

    def named_columns(self) -> dict[str, NDArray[Any]]:
        """The columns, with the names of statuses, and whether each curve is monotone."""
        named = {"status": tables.texts(self.status, lambda code: Status(code).name)}
        return self.columns() | named | {"monotone": self.is_monotone}

    def only(self, which: Any) -> Self:
        """The curves of some problems, by their numbers or a mask."""
        arrays: dict[str, Any] = {name: x[which] for name, x in self.arrays().items()}
        return replace(self, **arrays)

    def joined(self, *others: Self) -> Self:
        """These curves and others of the same kind."""
        parts = [x.arrays() for x in (self, *others)]
        arrays: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        return replace(self, **arrays)

    def with_unknown(self) -> Self:
        """These curves and last one that is not known: its probabilities are NaN."""
        fit = self.only([0])
        unknown: dict[str, Any] = {
            name: np.full_like(x, np.nan) for name, x in fit.arrays().items() if x.dtype.kind == "f"
        }
        return self.joined(
            replace(fit, **unknown | {"status": np.full_like(fit.status, Status.EMPTY)})
        )

    @property
    def about(self) -> dict[str, Any]:
        """What a file says of them besides arrays."""
        return {"kind": self.kind}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of a file."""
        return {name: getattr(self, name) for name in array_fields(type(self))}


@dataclass(frozen=True, eq=False, repr=False)
class CurveBatch(ComparedByValue):
    """The curves of a batch of problems, from `platt_jax.fit` with another curve than the sigmoid.

    Attributes:
        batch: the batch shape (...).
        curves: the curves of the problems, in the order of a flat batch.
    """

    batch: tuple[int, ...]
    curves: FittedCurves

    @property
    def status(self) -> NDArray[Any]:
        """(...) int, how each fit ended: a `Status`."""
        return np.asarray(self.curves.status).reshape(self.batch)

    @property
    def converged(self) -> NDArray[np.bool_]:
        """(...) bool, whether each fit converged."""
        return np.asarray(self.status == Status.CONVERGED)

    def predict_proba(self, scores: Column) -> NDArray[Any]:
        """P(y=1 | score): (..., N) for scores (..., N), or for one (N,) for all problems.

        Raises:
            ValueError: scores are not numbers, or their shape does not match the problems.

        Example:
            >>> from platt_jax import fit
            >>> fitted = fit([[1.0, 2.0, 3.0, 4.0]], [[0, 1, 0, 1]], curve="isotonic")
            >>> fitted.predict_proba([0.0, 1.5, 2.5, 3.5])
            array([[0.  , 0.25, 0.5 , 0.75]])
        """
        shape, *rows = self._rows(scores)
        return self.curves.proba(*rows).reshape(shape)

    def band(self, scores: Column, level: float = 0.95) -> tuple[NDArray[Any], NDArray[Any]]:
        """A confidence band for P(y=1 | score) at each score, as `Fit.band`.

        Args:
            scores: (..., N) or (N,), as in `predict_proba`.
            level: the confidence level, between 0 and 1.

        Returns:
            Lower and upper probabilities, each (..., N).

        Raises:
            ValueError: the curves have no standard errors, as isotonic ones, bins and Venn-Abers
                predictors; the level is not between 0 and 1; or see `predict_proba`.

        Example:
            >>> from platt_jax import fit
            >>> fitted = fit([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1], curve="quadratic")
            >>> [x.round(2).tolist() for x in fitted.band([1.0, 4.0])]
            [[0.01, 0.03], [0.97, 0.99]]
        """
        critical = critical_value(level, False)
        shape, *rows = self._rows(scores)
        ends = band(self.curves.log_odds(*rows), self.curves.variance(*rows), critical)
        lower, upper = (x.reshape(shape) for x in ends)
        return lower, upper

    def raise_if_failed(self) -> Self:
        """Returns the curves if every fit converged.

        Raises:
            RuntimeError: a fit failed. The message names the first ones, and says what to do.
        """
        tables.raise_if_failed(self.status, problem_names(self.batch))
        return self

    def table(self) -> tables.Table:
        """One line per problem: its name, the numbers of its curve, and how its fit ended."""
        return tables.keyed("problem", problem_names(self.batch), self.curves.named_columns())

    def _rows(self, scores: Column) -> tuple[tuple[int, ...], NDArray[Any], Integers]:
        """The shape (..., N) of results, and the rows, flat: their scores and curves."""
        f = validation.floating(scores, "scores")
        if not f.ndim or f.shape[:-1] not in ((), self.batch):
            raise ValueError(
                f"scores: expected (..., N) for problems of shape {self.batch}, got {f.shape}"
            )
        rows = np.broadcast_to(f, (*self.batch, f.shape[-1]))
        return rows.shape, rows.ravel(), np.repeat(np.arange(len(self.curves)), f.shape[-1])

    def __repr__(self) -> str:
        counts = tables.status_counts(self.status)
        statuses = ", ".join(f"{n:,} {name}" for name, n in counts.items())
        curves = tables.counted(len(self.curves), f"{self.curves.label} curve")
        return f"{type(self).__name__}: {curves}: {statuses}"


def array_fields(kind: type[FittedCurves]) -> list[str]:
    """The names of the arrays of a kind of curves."""
    return [x.name for x in fields(kind) if x.name not in ("features", "parts")]
