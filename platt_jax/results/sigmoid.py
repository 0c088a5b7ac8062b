"""The sigmoid of given parameters: predictions, thresholds, and other rates of positives.

A Sigmoid is a pytree; its arrays are NumPy's from the host functions and JAX's from `solve`.
Predictions take and return the kind of array they are given.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.backend import accelerators
from platt_jax.columns import Column, require_one_order
from platt_jax.model.objective import Array
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.probabilities import expit, log_expit, log_odds, with_offset


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Sigmoid(ComparedByValue):
    """P(y=1 | f) = 1 / (1 + exp(A f + B)), for one problem or a batch of them.

    Attributes:
        A: (...), minus the slope of the log-odds; negative for a useful score.
        B: (...), minus the log-odds at score 0.

    Example:
        >>> float(Sigmoid(A=-2.0, B=1.0).predict_proba(0.5))
        0.5
    """

    A: Array
    B: Array

    def logit(self, scores: Column, *, offset: Column | None = None) -> Any:
        """The log-odds -(A f + B) of class 1; scores (..., N) for parameters (...).

        `offset` is added to them: log-odds that broadcast to scores, as in `fit`.
        """
        with accelerators.precision_of(scores):
            return self._logit(scores, offset)

    def _logit(self, scores: Column, offset: Column | None) -> Any:
        if offset is not None:
            require_one_order(scores=scores, offset=offset)
        scores, A, B = self._by_row(scores, "scores", self.A, self.B)
        try:
            logit = log_odds(A, scores, B)
        except (TypeError, ValueError) as error:  # raised by JAX and NumPy if shapes do not match
            raise self._shape_error("scores", scores) from error
        return with_offset(logit, offset)

    def _by_row(self, rows: Column, name: str, *parameters: Any) -> tuple[Any, ...]:
        """Rows (..., N) and parameters (...) as arrays of one kind that broadcast together."""
        rows = accelerators.taken(rows)
        xp = jnp if isinstance(rows, jax.Array) or isinstance(self.A, jax.Array) else np
        rows = jnp.asarray(validation.plain(rows)) if xp is jnp else validation.numbers(rows, name)
        arrays = [xp.asarray(x) for x in parameters]
        if np.ndim(self.A) and rows.ndim:
            arrays = [x[..., None] for x in arrays]
        return rows, *arrays

    def _shape_error(self, name: str, rows: Array) -> ValueError:
        return ValueError(
            f"{name}: expected (..., N) for parameters of shapes {np.shape(self.A)} and "
            f"{np.shape(self.B)}, got {rows.shape}"
        )

    def predict_proba(self, scores: Column, *, offset: Column | None = None) -> Any:
        """P(y=1 | score), in [0, 1]; scores (..., N) for parameters (...), offset as in `logit`.

        Example:
            >>> Sigmoid(A=-2.0, B=1.0).predict_proba(0.5, offset=[0.0, 2.0]).round(3)
            array([0.5  , 0.881])
        """
        with accelerators.precision_of(scores):
            return expit(self._logit(scores, offset))

    def log_proba(self, scores: Column, *, offset: Column | None = None) -> Any:
        """Log P(y=1 | score), finite even where the probability rounds to 0 or 1.

        log P(y=0 | score) is `Sigmoid(-A, -B).log_proba(score)`. Scores have shape (..., N) for
        parameters (...), and offset as in `logit`.
        """
        with accelerators.precision_of(scores):
            return log_expit(self._logit(scores, offset))

    def inverse(self, proba: Column) -> Any:
        """The score at which P(y=1) equals `proba`: the threshold of a decision.

        Args:
            proba: (..., N) in [0, 1] for parameters (...); booleans are 0 and 1.

        Returns:
            (..., N). NaN where A is 0, since all scores then have the same probability. Infinite
            for 0 and 1.

        Raises:
            ValueError: a number is not in [0, 1] (traced numbers are not checked), or the shapes
                do not match.

        Example:
            >>> float(Sigmoid(A=-2.0, B=1.0).inverse(0.5))
            0.5
        """
        proba, A, B = self._by_row(proba, "proba", self.A, self.B)
        xp = jnp if isinstance(proba, jax.Array) else np
        if not isinstance(proba, jax.core.Tracer):
            validation.require_probabilities(np.asarray(proba), "proba")
        if proba.dtype == bool:
            proba = proba.astype(A.dtype)
        with np.errstate(divide="ignore"):
            logit = xp.log(proba) - xp.log1p(-proba)
        try:
            return xp.where(A == 0, xp.nan, -(logit + B) / xp.where(A == 0, 1, A))
        except (TypeError, ValueError) as error:
            raise self._shape_error("proba", proba) from error

    def shift_prior(self, from_rate: Column, to_rate: Column) -> "Sigmoid":
        """The sigmoid for rows with another rate of positives than the fitted rows.

        Use it after undersampling of negatives, or for another population in which the scores of
        each class have the same distribution. The log-odds change by the difference of the
        log-odds of the two rates (Elkan 2001, "The Foundations of Cost-Sensitive Learning",
        theorem 2; Saerens, Latinne & Decaestecker 2002, equation 2.4).

        Args:
            from_rate: (...) in (0, 1), the share of positives among the fitted rows.
            to_rate: (...) in (0, 1), the share of positives where the sigmoid will be used.

        Raises:
            ValueError: a rate is not between 0 and 1, or the shapes do not match.

        Example:
            >>> fitted = Sigmoid(A=-2.0, B=1.0)
            >>> round(float(fitted.shift_prior(0.5, 0.01).predict_proba(0.5)), 6)
            0.01
        """
        return self._moved(change_of_B(from_rate, to_rate, np.shape(self.B)))

    def _moved(self, change: Column) -> "Sigmoid":
        """The sigmoid with a change (...) added to B."""
        xp = jnp if isinstance(self.B, jax.Array) else np
        B = xp.asarray(self.B)
        return Sigmoid(self.A, B + xp.asarray(change, B.dtype))

    @property
    def slope(self) -> Any:
        """-A, the change of the log-odds per unit of score."""
        return -self.A

    @property
    def intercept(self) -> Any:
        """-B, the log-odds at score 0."""
        return -self.B


def change_of_B(from_rate: Column, to_rate: Column, batch: tuple[int, ...]) -> NDArray[np.float64]:
    """What another rate of positives adds to B, for problems (...): the difference of log-odds."""
    old, new = _log_odds(from_rate, "from_rate"), _log_odds(to_rate, "to_rate")
    try:
        fitting = np.broadcast_shapes(old.shape, new.shape, batch) == batch
    except ValueError:
        fitting = False
    if not fitting:
        raise ValueError(
            f"from_rate, to_rate: expected shapes that broadcast to the parameters' {batch}, got "
            f"{old.shape} and {new.shape}"
        )
    return old - new


def _log_odds(rate: Column, name: str) -> NDArray[np.float64]:
    rate = validation.numbers(rate, name).astype(np.float64)
    if not (valid := (rate > 0) & (rate < 1)).all():
        raise ValueError(f"{name}: expected numbers between 0 and 1, got {rate[~valid].flat[0]}")
    return np.log(rate) - np.log1p(-rate)
