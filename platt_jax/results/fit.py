"""What a fit gives back: parameters, statuses and predictions.

`Sigmoid` and `Fit` are pytrees; their arrays are NumPy's from the host functions and JAX's from
`solve`. Predictions take and return the kind of array they are given.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.model.objective import Array
from platt_jax.results import tables
from platt_jax.results.inversion import inverse_interval, inverse_standard_error
from platt_jax.results.probabilities import (
    band,
    critical_value,
    expit,
    log_expit,
    variance_of_logit,
)
from platt_jax.results.tables import Table
from platt_jax.status import Status


class ComparedByValue:
    """Results are equal if they are of one class and hold equal arrays; NaN equals NaN."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(
            _equal(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)  # type: ignore[arg-type]  # of a dataclass
        )


def _equal(one: object, other: object) -> bool:
    if isinstance(one, ComparedByValue):
        return one == other
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


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

    def logit(self, scores: Column) -> Any:
        """The log-odds -(A f + B) of class 1; scores (..., N) for parameters (...)."""
        scores, A, B = self._by_row(scores, "scores", self.A, self.B)
        try:
            return -(A * scores + B)
        except (TypeError, ValueError) as error:  # JAX's and NumPy's for shapes that do not match
            raise self._shape_error("scores", scores) from error

    def _by_row(self, rows: Column, name: str, *parameters: Any) -> tuple[Any, ...]:
        """Rows (..., N) and parameters (...) as arrays of one kind that broadcast together."""
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

    def predict_proba(self, scores: Column) -> Any:
        """P(y=1 | score), in [0, 1]; scores (..., N) for parameters (...)."""
        return expit(self.logit(scores))

    def log_proba(self, scores: Column) -> Any:
        """Log P(y=1 | score), finite where the probability itself rounds to 0 or 1.

        log P(y=0 | score) is `Sigmoid(-A, -B).log_proba(score)`. Scores (..., N) for parameters
        (...).
        """
        return log_expit(self.logit(scores))

    def inverse(self, proba: Column) -> Any:
        """The score at which P(y=1) is this: the threshold of a decision.

        Args:
            proba: (..., N) in [0, 1] for parameters (...); booleans are 0 and 1.

        Returns:
            (..., N). NaN where A is 0, and all scores have one probability; infinite for 0 and 1.

        Raises:
            ValueError: not in [0, 1] (which traced numbers are not checked for), or the shapes do
                not match.

        Example:
            >>> float(Sigmoid(A=-2.0, B=1.0).inverse(0.5))
            0.5
        """
        proba, A, B = self._by_row(proba, "proba", self.A, self.B)
        xp = jnp if isinstance(proba, jax.Array) else np
        if not isinstance(proba, jax.core.Tracer):
            known = np.asarray(proba)
            if (outside := (known < 0) | (known > 1)).any():
                raise ValueError(f"proba: expected numbers in [0, 1], got {known[outside].flat[0]}")
        if proba.dtype == bool:
            proba = proba.astype(A.dtype)
        with np.errstate(divide="ignore"):
            logit = xp.log(proba) - xp.log1p(-proba)
        try:
            return xp.where(A == 0, xp.nan, -(logit + B) / xp.where(A == 0, 1, A))
        except (TypeError, ValueError) as error:
            raise self._shape_error("proba", proba) from error

    def shift_prior(self, from_rate: Column, to_rate: Column) -> "Sigmoid":
        """The sigmoid for rows among which positives are more or less frequent than when fitted.

        After undersampling of negatives, say; or for another population, where the scores given the
        class are distributed as before. The log-odds change by the difference of those of the two
        rates (Elkan 2001, "The Foundations of Cost-Sensitive Learning", theorem 2; Saerens,
        Latinne & Decaestecker 2002, equation 2.4).

        Args:
            from_rate: (...) in (0, 1), the share of positives among the rows fitted.
            to_rate: (...) in (0, 1), the share where the sigmoid is to be used.

        Raises:
            ValueError: a rate that is not between 0 and 1, or the shapes do not match.

        Example:
            >>> fitted = Sigmoid(A=-2.0, B=1.0)
            >>> round(float(fitted.shift_prior(0.5, 0.01).predict_proba(0.5)), 6)
            0.01
        """
        shift = _log_odds(from_rate, "from_rate") - _log_odds(to_rate, "to_rate")
        xp = jnp if isinstance(self.B, jax.Array) else np
        B = xp.asarray(self.B)
        if np.broadcast_shapes(shift.shape, B.shape) != B.shape:
            raise ValueError(
                "from_rate, to_rate: expected shapes that broadcast to the parameters' "
                f"{B.shape}, got {np.shape(from_rate)} and {np.shape(to_rate)}"
            )
        return Sigmoid(self.A, B + xp.asarray(shift, B.dtype))

    @property
    def slope(self) -> Any:
        """-A, the change of the log-odds per unit of score."""
        return -self.A

    @property
    def intercept(self) -> Any:
        """-B, the log-odds at score 0."""
        return -self.B


def _log_odds(rate: Column, name: str) -> NDArray[np.float64]:
    rate = validation.numbers(rate, name).astype(np.float64)
    if not (inside := (rate > 0) & (rate < 1)).all():
        raise ValueError(f"{name}: expected numbers between 0 and 1, got {rate[~inside].flat[0]}")
    log_odds: NDArray[np.float64] = np.log(rate) - np.log1p(-rate)
    return log_odds


class Inspectable:
    """What every result of a fit can tell of itself."""

    _shared_rows: ClassVar[bool] = False  # whether all problems are of the same rows

    def _inspected(self) -> tuple["Fit", str, NDArray[Any]]:
        """The fit, what its problems are called, and their names."""
        raise NotImplementedError

    def raise_if_failed(self) -> Self:
        """Returns the result if every fit converged.

        Raises:
            RuntimeError: names the first that did not, and says what to do.
        """
        fit, _, names = self._inspected()
        tables.raise_if_failed(fit, names)
        return self

    def table(self) -> Table:
        """One line per fit: its name, parameters, standard errors, status, flags and counts."""
        return tables.table(*self._inspected())

    def __repr__(self) -> str:
        fit, *_ = self._inspected()
        return tables.describe(type(self).__name__, fit, self._shared_rows)

    def _repr_html_(self) -> str:
        fit, *_ = self._inspected()
        return tables.describe_html(type(self).__name__, fit, self._shared_rows, self.table)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False, eq=False)
class Fit(ComparedByValue, Inspectable):
    """The fits of a batch of problems; every array leads with the batch shape (...).

    Attributes:
        A: (...), minus the slope of the log-odds, per unit of score.
        B: (...), minus the log-odds at score 0.
        status: (...) int, how each fit ended: a `Status`.
        flags: (...) int, what is noteworthy about each: values of `Flag`, or-ed together.
        iterations: (...) int, Newton steps taken.
        passes: (...) int, evaluations of the derivatives: one at the start, and one for each step
            tried, so that passes - iterations - 1 were backtracks (less one more where
            monotone=True starts again at A = 0).
        nll: (...), the objective at the answer in nats: the negative log-likelihood of Platt's
            targets, summed over (weighted) rows, plus the prior's penalty if there is one.
        gradient: (..., 2), the objective's gradient by (A, B), 0 up to rounding where converged.
        hessian: (..., 2, 2), its Hessian, the observed information. Both are taken from the last
            pass, from which the answer of a converged fit is one more step of at most
            `Options.tol` standard errors: the gradient is carried along it to first order.
        covariance: (..., 2, 2), the Hessian's inverse, the approximate covariance of (A, B); NaN
            where constant scores leave it undefined.
        n_pos: (...), weighted count of the finite rows with y = 1.
        n_neg: (...), weighted count of the finite rows with y = 0.

    A, B and what is computed at them are NaN where the status is NON_FINITE or EMPTY. With
    Options(intercept=False) the objective is a function of A alone: B, and what belongs to B in
    gradient, hessian and covariance, are 0.
    """

    A: Array
    B: Array
    status: Array
    flags: Array
    iterations: Array
    passes: Array
    nll: Array
    gradient: Array
    hessian: Array
    covariance: Array
    n_pos: Array
    n_neg: Array

    @property
    def converged(self) -> Any:
        """(...) bool, whether the optimum was found."""
        return self.status == Status.CONVERGED

    @property
    def standard_errors(self) -> Any:
        """(..., 2), of A and B, the square roots of the covariance's diagonal."""
        variances = self.covariance[..., (0, 1), (0, 1)]
        return (jnp if isinstance(variances, jax.Array) else np).sqrt(variances)

    @property
    def sigmoid(self) -> Sigmoid:
        """The fitted sigmoids."""
        return Sigmoid(self.A, self.B)

    def predict_proba(self, scores: Column) -> Any:
        """P(y=1 | score) by the fitted sigmoids, as `Sigmoid.predict_proba`."""
        return self.sigmoid.predict_proba(scores)

    def band(
        self, scores: Column, level: float = 0.95, simultaneous: bool = False
    ) -> tuple[Any, Any]:
        """A confidence band for P(y=1 | score).

        The log-odds of a fit are normal around the true ones, with variance [f, 1] C [f, 1]' for
        the covariance C of (A, B). Their interval, `critical_value` standard errors to either side,
        is mapped to probabilities.

        In simulations a band of 95 % holds the truth in 93 % to 97 % of problems, where each class
        has 50 rows or more. With fewer rows, Platt's targets pull the fit towards 1/2 by more than
        its standard error: a pointwise band holds it in about 90 % or more with 10 rows of a class,
        but with 2 in 75 % at the median score and in 60 % at low ones.

        Args:
            scores: (..., N) for problems (...), as for `predict_proba`.
            level: how often the band is to hold the true probabilities, between 0 and 1.
            simultaneous: whether at all scores at once (Scheffe 1959; wider), not at each of them.

        Returns:
            Lower and upper probabilities, each of the shape of `predict_proba`. NaN where the
            covariance is: constant scores, which leave the slope undetermined, and failed fits. For
            infinite scores an end of the band, or both, are NaN.

        Raises:
            ValueError: a level that is not between 0 and 1, or the shapes do not match.

        Example:
            >>> from platt_jax import fit
            >>> fitted = fit([5.0, -4.0, 1.0, 2.0], [1, 0, 0, 1])
            >>> lower, upper = fitted.band([0.0, 3.0])
            >>> lower.round(2), upper.round(2)
            (array([0.07, 0.12]), array([0.88, 0.95]))
        """
        critical = critical_value(level, simultaneous)
        logit = self.sigmoid.logit(scores)
        variance = variance_of_logit(*self._covariance_by_row(scores, "scores"))
        return band(logit, variance, critical)

    def inverse_standard_error(self, proba: Column) -> Any:
        """The standard error of the score at which P(y=1) is this, of ``sigmoid.inverse``.

        By the delta method, sqrt([f, 1] C [f, 1]') / abs(A) at that score f, with the covariance C
        of (A, B); as `dose.p` of R's package MASS (Venables & Ripley 2002, section 7.2).

        Args:
            proba: (..., N) in [0, 1] for problems (...).

        Returns:
            (..., N). NaN where A is 0, and where the covariance is NaN; infinite for 0 and 1.

        Raises:
            ValueError: as `Sigmoid.inverse`.

        Example:
            >>> import numpy as np
            >>> from platt_jax import fit
            >>> rng = np.random.default_rng(0)
            >>> scores = rng.normal(size=500)
            >>> fitted = fit(scores, rng.random(500) < 1 / (1 + np.exp(1 - scores)))
            >>> float(fitted.sigmoid.inverse(0.5).round(2))
            0.85
            >>> float(fitted.inverse_standard_error(0.5).round(2))
            0.1
        """
        return inverse_standard_error(*self._at_inverse(proba))

    def inverse_interval(self, proba: Column, level: float = 0.95) -> tuple[Any, Any]:
        """A confidence interval for the score at which P(y=1) is this (Fieller 1954).

        It holds the scores f for which A f + B is less than `critical_value` standard errors from
        what it is at that probability. Where the slope is not significant at the level, these are
        no interval but everything, or all outside one: the interval is then from -inf to inf. That
        of the delta method, ``sigmoid.inverse`` +- 1.96 `inverse_standard_error`, is always
        bounded, and too short where the slope is uncertain.

        In simulations intervals of 95 % hold the score in 94 % to 99 % of problems of 50 to 1000
        rows; those of the delta method in 84 % to 89 % where the slope is some 1.5 standard errors
        from 0, and in 87 % to 99 % elsewhere.

        Args:
            proba: (..., N) in [0, 1] for problems (...).
            level: how often the interval is to hold the score, between 0 and 1.

        Returns:
            Lower and upper scores, each (..., N). NaN where A is 0, and where the covariance is
            NaN. For 0 and 1 both are the infinite score where the slope is significant.

        Raises:
            ValueError: a level that is not between 0 and 1, or as `Sigmoid.inverse`.

        Example:
            >>> import numpy as np
            >>> from platt_jax import fit
            >>> rng = np.random.default_rng(0)
            >>> scores = rng.normal(size=500)
            >>> fitted = fit(scores, rng.random(500) < 1 / (1 + np.exp(1 - scores)))
            >>> lower, upper = fitted.inverse_interval(0.5)
            >>> bool(lower < fitted.sigmoid.inverse(0.5) < upper)
            True
        """
        return inverse_interval(critical_value(level, False), *self._at_inverse(proba))

    def _at_inverse(self, proba: Column) -> tuple[Any, ...]:
        """The scores of probabilities, and by row A and the entries of the covariance."""
        scores = self.sigmoid.inverse(proba)
        A = self.sigmoid._by_row(scores, "proba", self.A)[1]
        return A, *self._covariance_by_row(scores, "proba")

    def _covariance_by_row(self, rows: Column, name: str) -> tuple[Any, ...]:
        """Rows (..., N), and the covariance's entries AA, AB and BB that broadcast to them."""
        entries = (self.covariance[..., i, j] for i, j in ((0, 0), (0, 1), (1, 1)))
        return self.sigmoid._by_row(rows, name, *entries)

    def _inspected(self) -> tuple["Fit", str, NDArray[Any]]:
        return self, "problem", problem_names(np.shape(self.status))


def problem_names(batch: tuple[int, ...]) -> NDArray[Any]:
    """The indices of a batch of problems: 0, 1, ...; or (0, 0), (0, 1), ... with more axes."""
    if len(batch) <= 1:
        return np.arange(math.prod(batch))
    names = np.empty(math.prod(batch), object)
    names[:] = list(np.ndindex(batch))
    return names
