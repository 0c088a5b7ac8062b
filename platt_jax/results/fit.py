"""The result of a fit: parameters, statuses and uncertainty.

`Fit` is a pytree. Its arrays are NumPy's from the host functions and JAX's from `solve`.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.backend import accelerators
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.model.objective import Array
from platt_jax.options import Options
from platt_jax.results import descriptions, tables
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.probabilities import (
    UPPER,
    band,
    critical_value,
    inverse_interval,
    inverse_standard_error,
    nearer_scores,
    variance_of_logit,
)
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.results.tables import Table
from platt_jax.status import Status


class Inspectable:
    """Methods that every result of a fit has."""

    _shared_rows: ClassVar[bool] = False  # whether all problems have the same rows

    @property
    def _curve(self) -> str:
        """The noun for its curves."""
        return "sigmoid"

    def _inspected(self) -> tuple["Fit", str, NDArray[Any]]:
        """The fit, the noun for its problems, and their names."""
        raise NotImplementedError

    def raise_if_failed(self) -> Self:
        """Returns the result if every fit converged.

        Raises:
            RuntimeError: a fit failed. The message names the first ones, and says what to do.
        """
        fit, _, names = self._inspected()
        tables.raise_if_failed(fit.status, names)
        return self

    def table(self) -> Table:
        """One line per fit: its name, parameters, standard errors, status, flags and counts.

        With a population the standard errors come from the segments' posteriors, which know the
        population no better than all rows tell.
        """
        return descriptions.fit_table(*self._inspected())

    def __repr__(self) -> str:
        fit, *_ = self._inspected()
        return descriptions.describe(type(self).__name__, self._curve, fit, self._shared_rows)

    def _repr_html_(self) -> str:
        fit, *_ = self._inspected()
        about = type(self).__name__, self._curve, fit, self._shared_rows
        return descriptions.describe_html(*about, self.table())


def inspected(fits: Any, *, any_curve: bool = False) -> tuple["Fit", str, NDArray[Any]]:
    """The fit of the argument `fits`, the noun for its problems, and their names.

    A classifier with a single calibrator stands for that.
    """
    calibrators: list[Any] = getattr(fits, "calibrators_", [])
    if len(calibrators) == 1:
        fits = calibrators[0]
    curves = getattr(getattr(fits, "by_class", fits), "curves", None)
    if curves is not None and not any_curve:
        raise ValueError(f"fits: expected sigmoids, got a calibrator with {curves.label} curves")
    if isinstance(fits, Inspectable):
        return fits._inspected()
    raise ValueError(
        "fits: expected a SegmentCalibrator, a OneVsRestCalibrator or a Fit, got a "
        + named_with_part(fits)
    )


def warn_if_unlike(scores: Any, proba: Any, fitted: validation.FittedScores) -> None:
    """Warns if many scores are probabilities and the fitted ones were not, or the reverse."""
    if len(proba) >= validation.FEW:
        is_read = isinstance(scores, np.ndarray) and scores.dtype.kind == "f"
        f = scores if is_read else validation.numbers(scores, "scores")
        if f.shape == proba.shape and (warning := fitted.unlike(f, proba)) is not None:
            Caller().warn_once(warning)


# Attributes of results and classifiers that are calibrators.
_PARTS = {
    "by_class": "its by_class, whose segments are the classes",
    "calibrators_": "one of its calibrators_",
    "calibrator_": "its calibrator_",
    "batch": "the calibrator of `fit_segments`, whose segments are the problems",
}


def named_with_part(value: object) -> str:
    """The type of an argument that is refused, and which part of it would be accepted."""
    parts = (f": pass {text}" for name, text in _PARTS.items() if hasattr(value, name))
    return type(value).__name__ + next(parts, "")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False, eq=False)
class Fit(ComparedByValue, Inspectable):
    """The fits of a batch of problems. Every array has the batch shape (...) as leading axes.

    Attributes:
        A: (...), minus the slope of the log-odds, per unit of score.
        B: (...), minus the log-odds at score 0.
        status: (...) int, how each fit ended: a `Status`.
        flags: (...) int, notable properties of each problem: `Flag` values combined by bitwise or.
        iterations: (...) int, number of Newton steps.
        passes: (...) int, number of evaluations of the derivatives: one at the start, and one for
            each step tried. So passes - iterations - 1 steps were rejected (one fewer if
            monotone=True starts again at A = 0).
        nll: (...), the objective at the solution, in nats: the negative log-likelihood with Platt's
            targets, summed over (weighted) rows, plus the penalty of the prior if there is one.
        gradient: (..., 2), gradient of the objective by (A, B), 0 up to rounding if converged.
        hessian: (..., 2, 2), Hessian of the objective, the observed information. Gradient and
            Hessian come from the last pass. A converged fit takes one more step, of at most
            `Options.tol` standard errors; the gradient is updated for it to first order.
        covariance: (..., 2, 2), inverse of the Hessian, the approximate covariance of (A, B); NaN
            if constant scores leave it undefined, or scores are so large that its entry for A is
            below the numbers of the dtype. In a `SegmentCalibrator` with a population it is
            the posterior's.
        n_pos: (...), weighted count of the finite rows with y = 1.
        n_neg: (...), weighted count of the finite rows with y = 0.

    A, B and everything computed from them are NaN if the status is NON_FINITE or EMPTY. With
    Options(intercept=False) the objective is a function of A alone; B and its entries in gradient,
    hessian and covariance are 0.
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
        """(...) bool, whether each fit found its optimum."""
        return self.status == Status.CONVERGED

    @property
    def standard_errors(self) -> Any:
        """(..., 2), standard errors of A and B, the square roots of the covariance's diagonal."""
        variances = self.covariance[..., (0, 1), (0, 1)]
        return (jnp if isinstance(variances, jax.Array) else np).sqrt(variances)

    @property
    def sigmoid(self) -> Sigmoid:
        """The fitted sigmoids."""
        return Sigmoid(self.A, self.B)

    def predict_proba(self, scores: Column, *, offset: Column | None = None) -> Any:
        """P(y=1 | score) by the fitted sigmoids, as `Sigmoid.predict_proba`."""
        if offset is None and not accelerators.holds(scores):
            scores = validation.plain(scores)
        proba = self.sigmoid.predict_proba(scores, offset=offset)
        if isinstance(proba, np.ndarray) and np.ndim(self.A) == 0 and proba.ndim == 1:
            warn_if_unlike(scores, proba, self._fitted_scores)
        return proba

    @cached_property
    def _fitted_scores(self) -> validation.FittedScores:
        return validation.FittedScores.of(self.covariance, (self.n_pos, self.n_neg))

    def shift_prior(self, from_rate: Column, to_rate: Column) -> "Fit":
        """The fits for rows with another rate of positives, as `Sigmoid.shift_prior`.

        B changes, and all else stays: the covariance, because the change is taken as known; and the
        objective, its derivatives, counts and flags, which describe the fitted rows.

        Args:
            from_rate: (...) in (0, 1), the share of positives among the fitted rows.
            to_rate: (...) in (0, 1), the share of positives where the fits will be used.

        Raises:
            ValueError: a rate is not between 0 and 1, or the shapes do not match.

        Example:
            >>> from platt_jax import fit
            >>> fitted = fit([5.0, -4.0, 1.0, 2.0], [1, 0, 0, 1])
            >>> shifted = fitted.shift_prior(from_rate=0.5, to_rate=0.01)
            >>> fitted.predict_proba([1.0]).round(4), shifted.predict_proba([1.0]).round(4)
            (array([0.4944]), array([0.0098]))
        """
        return replace(self, B=self.sigmoid.shift_prior(from_rate, to_rate).B)

    @takes_columns
    def band(
        self,
        scores: Column,
        level: float = 0.95,
        simultaneous: bool = False,
        *,
        offset: Column | None = None,
    ) -> tuple[Any, Any]:
        """A confidence band for P(y=1 | score).

        The log-odds of a fit are approximately normal around the true ones, with variance
        [f, 1] C [f, 1]' for the covariance C of (A, B). The band maps their interval, the estimate
        plus or minus `critical_value` standard errors, to probabilities.

        In simulations, a 95 % band contains the truth in 93 % to 97 % of problems if each class has
        50 rows or more. With fewer rows, Platt's targets pull the fit towards 1/2 by more than its
        standard error. A pointwise band then contains the truth in about 90 % or more with 10 rows
        in a class. With 2 rows it does so in 75 % at the median score, and in 60 % at low scores.

        Args:
            scores: (..., N) for problems (...), as for `predict_proba`.
            level: the confidence level, between 0 and 1.
            simultaneous: whether the level holds at all scores at once (Scheffe 1959), which gives
                a wider band, instead of at each score.
            offset: log-odds added to the curve's log-odds, as for `predict_proba`; they are taken
                as known.

        Returns:
            Lower and upper probabilities, each with the shape of `predict_proba`. NaN where the
            covariance is NaN: for constant scores, which leave the slope undetermined, and for
            failed fits. At infinite scores both ends are limits.

        Raises:
            ValueError: the level is not between 0 and 1, or the shapes do not match.

        Example:
            >>> from platt_jax import fit
            >>> fitted = fit([5.0, -4.0, 1.0, 2.0], [1, 0, 0, 1])
            >>> lower, upper = fitted.band([0.0, 3.0])
            >>> lower.round(2), upper.round(2)
            (array([0.07, 0.12]), array([0.88, 0.95]))
        """
        critical = critical_value(level, simultaneous)
        rows, *entries = self._covariance_by_row(scores, "scores")
        try:
            rows = nearer_scores(rows, entries[0])
        except (TypeError, ValueError) as error:
            raise self.sigmoid._shape_error("scores", rows) from error
        logit = self.sigmoid.logit(rows, offset=offset)
        return band(logit, variance_of_logit(rows, *entries), critical)

    def inverse_standard_error(self, proba: Column) -> Any:
        """The standard error of ``sigmoid.inverse``, the score at which P(y=1) equals `proba`.

        By the delta method, sqrt([f, 1] C [f, 1]') / abs(A) at that score f, with the covariance C
        of (A, B), as `dose.p` of R's package MASS (Venables & Ripley 2002, section 7.2).

        Args:
            proba: (..., N) in [0, 1] for problems (...).

        Returns:
            (..., N). NaN where A is 0 or the covariance is NaN; infinite for 0 and 1.

        Raises:
            ValueError: see `Sigmoid.inverse`.

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
        """A confidence interval for the score at which P(y=1) equals `proba` (Fieller 1954).

        It contains the scores f at which A f + B is less than `critical_value` standard errors from
        its value at that probability. If the slope is not significant at the level, these scores
        are not a bounded interval; the result is then -inf to inf. The delta method's interval,
        ``sigmoid.inverse`` +- 1.96 `inverse_standard_error`, is always bounded, and too short if
        the slope is uncertain: `docs/explanation/numbers.md` has how often both hold.

        Args:
            proba: (..., N) in [0, 1] for problems (...).
            level: the confidence level, between 0 and 1.

        Returns:
            Lower and upper scores, each (..., N). NaN where A is 0 or the covariance is NaN. For 0
            and 1 both are the same infinite score if the slope is significant.

        Raises:
            ValueError: the level is not between 0 and 1; or see `Sigmoid.inverse`.

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
        """The scores of probabilities, and for each row A and the entries of the covariance."""
        scores = self.sigmoid.inverse(proba)
        A = self.sigmoid._by_row(scores, "proba", self.A)[1]
        return A, *self._covariance_by_row(scores, "proba")

    def _covariance_by_row(self, rows: Column, name: str) -> tuple[Any, ...]:
        """Rows (..., N), and the covariance's entries AA, AB and BB, broadcastable to them."""
        entries = (self.covariance[..., i, j] for i, j in UPPER)
        return self.sigmoid._by_row(rows, name, *entries)

    def _inspected(self) -> tuple["Fit", str, NDArray[Any]]:
        return self, "problem", problem_names(np.shape(self.status))


def one_parameter(fit: Fit) -> str | None:
    """The kind of curve of fits of one parameter, "shift" or "temperature"; None for others."""
    fit = jax.device_get(fit)
    finite = np.isfinite(fit.A) & np.isfinite(fit.B)
    (A, B), (error_A, error_B) = (
        (x[finite] for x in pair)
        for pair in ((fit.A, fit.B), np.moveaxis(fit.standard_errors, -1, 0))
    )
    if (A == -1).all() and (error_A == 0).any():
        return "shift"
    # `shift_prior` moves B of temperatures, but not its error, and a curve with A = 0 or of one
    # cluster may have no error at all.
    fixed = (error_B == 0) & ((B == 0) | (error_A > 0))
    return "temperature" if fixed.any() and not (error_B > 0).any() else None


def require_same_parameters(fit: Fit, options: Options, name: str) -> None:
    """Refuses fits of one parameter where rows would be fitted by these options with two."""
    kind = one_parameter(fit)
    if kind == "shift":
        raise ValueError(f"{name}: expected curves whose slopes are fitted, got shifts")
    if kind == "temperature" and options.intercept:
        raise ValueError(
            f"{name}: expected sigmoids, got temperatures; "
            'pass options=Options(intercept=False, targets="none") beside them'
        )


def problem_names(batch: tuple[int, ...]) -> NDArray[Any]:
    """The indices of a batch of problems: 0, 1, ...; with several axes (0, 0), (0, 1), ..."""
    if len(batch) <= 1:
        return np.arange(math.prod(batch))
    names = np.empty(math.prod(batch), object)
    names[:] = list(np.ndindex(batch))
    return names
