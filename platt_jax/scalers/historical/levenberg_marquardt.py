"""Platt's own fit of the sigmoid, kept to show the effect of its shortcomings."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from numpy.typing import NDArray

from platt_jax.model import objective
from platt_jax.model.objective import Array, Derivatives
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.scalers.base import Fitted, Scaler, class_weights, fitted, require

_LOG_ZERO = -200.0  # "make sure log(0) returns -200"
_GIVE_UP = 1e6  # stabilizer at which an iteration accepts its trial
_CALM_ITERATIONS = 3  # number of iterations with hardly any change that stops the search


@fitted
class FittedLevenbergMarquardt(Fitted):
    """A sigmoid, with statistics of its search.

    Attributes:
        A: (...) minus the slope of the log-odds.
        B: (...) minus the log-odds at score 0.
        converged: (...) bool, whether one of Platt's two stopping tests ended the search.
        iterations: (...) int, number of steps, good or bad.
        overflows: (...) int, number of evaluations of exp(A f + B) that overflowed; there is one
            evaluation per row and trial.
        log_zeros: (...) int, number of evaluations of log(p) and log(1 - p), one per row and trial,
            where p had been rounded to 0 or 1.
        nll: (...) objective at (A, B), computed without overflow or rounding to log(0).
    """

    A: Array
    B: Array
    converged: Array
    iterations: Array
    overflows: Array
    log_zeros: Array
    nll: Array

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        return Sigmoid(self.A, self.B).predict_proba(f)


class _Evaluation(NamedTuple):
    """The results of Platt's code at a point."""

    derivatives: Derivatives
    loss: jax.Array
    overflows: jax.Array
    log_zeros: jax.Array


class _Search(NamedTuple):
    A: jax.Array
    B: jax.Array
    at: Derivatives  # at (A, B)
    loss: jax.Array  # loss at (A, B); infinite before the first step
    stabilizer: jax.Array  # lambda
    calm: jax.Array  # number of consecutive iterations with hardly any change
    iterations: jax.Array
    stopped: jax.Array  # bool, by a stopping test
    overflows: jax.Array
    log_zeros: jax.Array


@dataclass(frozen=True)
class LevenbergMarquardt(Scaler[FittedLevenbergMarquardt]):
    """The sigmoid by the pseudo code of Platt (1999, appendix), a Levenberg-Marquardt search.

    Each iteration solves (H + lambda I) d = -g. It divides lambda by 10 if the loss falls, else
    multiplies it by 10 until it does, as Lin, Lin & Weng (2007, section 2.1) describe. They show
    that it may fail, and compare it with their own (section 4). The arithmetic is Platt's:
    p = 1 / (1 + exp(A f + B)), which may overflow; 1 - p, which may cancel; -200 for log(0). So
    this fit is not affine invariant. Two things differ. The printed loss uses the target of the
    last row for all rows (Lin et al., section 3.1); loss="corrected" fixes that, loss="platt" keeps
    it. And lambda does not underflow to 0, where the printed code would never end.

    One class: flat, the starting point of the search. Constant scores: the right probability for
    that score, though A is not 0.

    Attributes:
        loss: "corrected" or "platt".
        tol: threshold for both entries of the gradient, below which the search stops; Lin et al.
            used 1e-5. The other stopping test, three iterations of hardly any change, always
            applies.
        max_iter: maximum number of iterations (>= 1).

    Example:
        >>> fitted = LevenbergMarquardt().fit([5.0, -4.0, 1.0], [1, 0, 0])
        >>> float(fitted.A.round(4)), float(fitted.B.round(4)), int(fitted.overflows)
        (-0.2026, 0.6524, 0)
    """

    loss: Literal["corrected", "platt"] = "corrected"
    tol: float = 1e-9
    max_iter: int = 100

    def __post_init__(self) -> None:
        require(self, "loss", self.loss in ("corrected", "platt"), '"corrected" or "platt"')
        require(self, "tol", self.tol > 0, "a number > 0")
        counts = isinstance(self.max_iter, int) and self.max_iter >= 1
        require(self, "max_iter", counts, "an integer >= 1")

    def _fit_one(self, f: jax.Array, y: jax.Array, w: jax.Array) -> FittedLevenbergMarquardt:
        n_pos, n_neg = (jnp.sum(x) for x in class_weights(y, w))
        targets = objective.platt_targets(n_pos, n_neg)
        t = jnp.where(y, targets.positive, targets.negative)
        t_of_loss = t
        if self.loss == "platt":
            last = len(f) - 1 - jnp.argmax(jnp.flip(w > 0))
            t_of_loss = jnp.broadcast_to(t[last], t.shape)
        evaluate = partial(_evaluate, f=f, t=t, t_of_loss=t_of_loss, w=w)

        A, B = jnp.zeros_like(n_pos), jnp.log((n_neg + 1) / (n_pos + 1))
        at = evaluate(A, B).derivatives
        zero = jnp.int32(0)
        start = _Search(
            A=A,
            B=B,
            at=at,
            loss=jnp.full_like(A, jnp.inf),
            stabilizer=jnp.full_like(A, 1e-3),
            calm=zero,
            iterations=zero,
            stopped=self._tiny(at),
            overflows=zero,
            log_zeros=zero,
        )
        end = jax.lax.while_loop(
            lambda search: ~search.stopped & (search.iterations < self.max_iter),
            lambda search: self._step(search, evaluate),
            start,
        )
        linear, odds = objective.loss((end.A, end.B), objective.Row(f, y), targets)
        return FittedLevenbergMarquardt(
            A=end.A,
            B=end.B,
            converged=end.stopped,
            iterations=end.iterations,
            overflows=end.overflows,
            log_zeros=end.log_zeros,
            nll=jnp.sum(w * (linear + jnp.log1p(odds))),
        )

    def _step(
        self, search: _Search, evaluate: Callable[[jax.Array, jax.Array], _Evaluation]
    ) -> _Search:
        """One trial, which either ends the iteration or raises the stabilizer for the next one."""
        stabilizer = _make_regular(search.at, search.stabilizer)
        g_A, g_B, h_AA, h_AB, h_BB = search.at
        h_AA, h_BB = h_AA + stabilizer, h_BB + stabilizer
        det = h_AA * h_BB - h_AB * h_AB
        A = search.A - (h_BB * g_A - h_AB * g_B) / det
        B = search.B - (h_AA * g_B - h_AB * g_A) / det
        trial = evaluate(A, B)

        better = trial.loss < search.loss * (1 + 1e-7)
        tiny = jnp.finfo(A.dtype).tiny
        stabilizer = jnp.where(better, jnp.maximum(0.1 * stabilizer, tiny), 10 * stabilizer)
        change, scale = trial.loss - search.loss, (trial.loss + search.loss + 1) / 2
        hardly = (change > -1e-3 * scale) & (change < 1e-7 * scale)
        calm = jnp.where(hardly, search.calm + 1, 0)
        moved = search._replace(
            A=A,
            B=B,
            at=trial.derivatives,
            loss=trial.loss,
            calm=calm,
            iterations=search.iterations + 1,
            stopped=(calm == _CALM_ITERATIONS) | self._tiny(trial.derivatives),
        )
        ends = better | (stabilizer >= _GIVE_UP)
        new: _Search = jax.tree.map(partial(jnp.where, ends), moved, search)
        return new._replace(
            stabilizer=stabilizer,
            overflows=search.overflows + trial.overflows,
            log_zeros=search.log_zeros + trial.log_zeros,
        )

    def _tiny(self, at: Derivatives) -> jax.Array:
        return (jnp.abs(at.g_A) < self.tol) & (jnp.abs(at.g_B) < self.tol)


def _make_regular(at: Derivatives, stabilizer: jax.Array) -> jax.Array:
    """The stabilizer, multiplied by 10 until the determinant is not 0."""

    def singular(stabilizer: jax.Array) -> jax.Array:
        return (at.h_AA + stabilizer) * (at.h_BB + stabilizer) - at.h_AB * at.h_AB == 0

    return jax.lax.while_loop(singular, lambda stabilizer: 10 * stabilizer, stabilizer)


def _evaluate(
    A: jax.Array, B: jax.Array, f: jax.Array, t: jax.Array, t_of_loss: jax.Array, w: jax.Array
) -> _Evaluation:
    odds = jnp.exp(A * f + B)
    p = 1 / (1 + odds)
    slope, curvature = w * (t - p), w * (p * (1 - p))
    loss = -jnp.sum(w * (t_of_loss * _log(p) + (1 - t_of_loss) * _log(1 - p)))
    derivatives = (f * slope, slope, f * f * curvature, f * curvature, curvature)

    def count(rows: jax.Array) -> jax.Array:
        return jnp.sum(rows & (w > 0), dtype=jnp.int32)

    return _Evaluation(
        derivatives=Derivatives(*(jnp.sum(x) for x in derivatives)),
        loss=loss,
        overflows=count(jnp.isinf(odds)),
        log_zeros=count((p == 0) | (p == 1)),
    )


def _log(p: jax.Array) -> jax.Array:
    return jnp.where(p == 0, _LOG_ZERO, jnp.log(jnp.where(p == 0, 1, p)))
