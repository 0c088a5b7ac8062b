"""Curves fitted by logistic regression on a few features: temperature and beta calibration."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.model.objective import Array
from platt_jax.results.probabilities import expit, log_expit
from platt_jax.scalers.base import (
    Fitted,
    Scaler,
    along_rows,
    checked,
    class_weights,
    fitted,
    flat_logit,
    require,
    told_apart,
    unit_frame,
)

_ARMIJO = 1e-4  # the sufficient-decrease constant
_MOST_PASSES = 200
_SHORTEST_STEP = 1e-10
_ROWS_OF_A_BLOCK = 1024

# Which of a, b and c are free on the boundaries of a, b >= 0; the others are 0.
_SIDES = ((0, 1, 1), (1, 0, 1), (0, 0, 1))


@fitted
class FittedTemperature(Fitted):
    """P(y=1 | f) = 1 / (1 + exp(-f / T)).

    Attributes:
        inverse_temperature: (...) 1 / T >= 0; with 0 every probability is 1/2.
        converged: (...) bool, False where there is no optimum, because the sign of the logit
            separates the classes.
    """

    inverse_temperature: Array
    converged: Array

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        return expit(along_rows(self.inverse_temperature) * f)


@dataclass(frozen=True)
class Temperature(Scaler[FittedTemperature]):
    """1 / (1 + exp(-f / T)) with T > 0 by maximum likelihood, for scores f that are logits.

    Guo, Pleiss, Sun & Weinberger (2017, "On calibration of modern neural networks", section 4.2),
    for two classes. The labels are used without Platt's targets. If higher scores go with class 0,
    the best T is infinite. If every row's sign matches its class there is no best T; the search
    stops where rounding hides further improvement, at a very small T.

    One class: no exception, the signs of the logits decide. Constant scores: no exception, the
    level of the logits decides; if all are 0, T is infinite.

    Example:
        >>> fitted = Temperature().fit([2.0, -2.0, 2.0, -2.0], [1, 0, 1, 1])
        >>> float(fitted.inverse_temperature.round(6)), bool(fitted.converged)
        (0.549306, True)
    """

    def _fit_one(self, f: jax.Array, y: jax.Array, w: jax.Array) -> FittedTemperature:
        largest = jnp.max(jnp.abs(f))
        unit = f / jnp.where(largest > 0, largest, 1)
        side = jnp.where(y, unit, -unit)
        best = fit_logistic(unit[:, None], y, w, jnp.ones(1, f.dtype))
        # The loss is convex in 1 / T, so its derivative at 0 decides whether 1 / T > 0 is better.
        useful = jnp.sum(w * side) > 0
        slope = best.parameters[0] / jnp.where(largest > 0, largest, 1)
        return FittedTemperature(
            inverse_temperature=jnp.where(useful, slope, 0),
            converged=jnp.where(useful, best.converged & (jnp.min(side) < 0), True),
        )


@fitted
class FittedBetaCalibration(Fitted):
    """The log-odds a log(q) - b log(1 - q) + c.

    Attributes:
        a: (...) >= 0.
        b: (...) >= 0.
        c: (...) log-odds at q where the other terms are 0.
        inputs: meaning of the scores, as in `BetaCalibration`.
    """

    a: Array
    b: Array
    c: Array
    inputs: str = field(metadata={"static": True})

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        log_q, log_rest = _logarithms(f, self.inputs)
        logit = along_rows(self.a) * log_q - along_rows(self.b) * log_rest + along_rows(self.c)
        return expit(logit)


@dataclass(frozen=True)
class BetaCalibration(Scaler[FittedBetaCalibration]):
    """P(y=1 | q) = 1 / (1 + exp(-c) (1 - q)^b / q^a) with a, b >= 0, by maximum likelihood.

    Kull, Silva Filho & Flach (2017, "Beta calibration", AISTATS, section 4): the log-odds are
    a log(q) - b log(1 - q) + c, and the labels are used without Platt's targets. The authors' code
    fits without the bounds and, where a or b is negative, again without that feature. This class
    finds the bounded optimum itself, which is the same unless both are negative. With
    inputs="scores" q is 1 / (1 + exp(-f)), whose logarithms are exact for every f. Where the
    features separate the classes there is no optimum; the search stops where rounding hides
    further improvement, at a very steep curve.

    One class or constant scores: flat.

    Attributes:
        inputs: "scores" (logits), or "probabilities" in [0, 1], where 0 and 1 are moved inwards by
            the dtype's rounding unit.

    Raises:
        ValueError: in `fit`, a probability is outside [0, 1].

    Example:
        >>> q, labels = [0.1, 0.4, 0.35, 0.8, 0.7, 0.9], [0, 1, 0, 0, 1, 1]
        >>> BetaCalibration("probabilities").fit(q, labels).predict_proba([0.2, 0.8]).round(4)
        array([0.1712, 0.7225])
    """

    inputs: Literal["scores", "probabilities"] = "scores"

    def __post_init__(self) -> None:
        known = self.inputs in ("scores", "probabilities")
        require(self, "inputs", known, '"scores" or "probabilities"')

    def fit(
        self, scores: Column, labels: Column, *, weights: Column = None
    ) -> FittedBetaCalibration:
        """Fit as in `Scaler.fit`; with inputs="probabilities" the scores must be in [0, 1]."""
        if self.inputs == "probabilities":
            q = checked(scores, labels, weights).rows.scores
            validation.require_probabilities(q, "scores")
        return super().fit(scores, labels, weights=weights)

    def _fit_one(self, f: jax.Array, y: jax.Array, w: jax.Array) -> FittedBetaCalibration:
        log_q, log_rest = _logarithms(f, self.inputs)
        # Features scaled to size 1; the intercept allows them to be centred.
        units = [unit_frame(log_q), unit_frame(-log_rest)]
        centered = [
            (x - center) * scale
            for x, (center, scale) in zip((log_q, -log_rest), units, strict=True)
        ]
        features = jnp.stack([*centered, jnp.ones_like(f)], axis=1)
        found = fit_logistic(features, y, w, jnp.ones(3, f.dtype))
        inside = (found.parameters[:2] >= 0).all()
        # The loss is convex: if the optimum is outside, the bounded one is on the boundary.
        sides = jax.vmap(lambda free: fit_logistic(features, y, w, free, needed=~inside))(
            jnp.asarray(_SIDES, f.dtype)
        )
        allowed = (sides.parameters[:, :2] >= 0).all(axis=1)
        at_side = sides.parameters[jnp.argmin(jnp.where(allowed, sides.loss, jnp.inf))]
        best = jnp.where(inside, found.parameters, at_side)
        (center_a, scale_a), (center_b, scale_b) = units
        a, b = best[0] * scale_a, best[1] * scale_b

        n_pos, n_neg = (jnp.sum(x) for x in class_weights(y, w))
        usable = told_apart(f, n_pos, n_neg)
        return FittedBetaCalibration(
            a=jnp.where(usable, a, 0),
            b=jnp.where(usable, b, 0),
            c=jnp.where(usable, best[2] - a * center_a - b * center_b, flat_logit(n_pos, n_neg)),
            inputs=self.inputs,
        )


def _logarithms(f: Any, inputs: str) -> tuple[Any, Any]:
    """log(q) and log(1 - q)."""
    if inputs == "scores":
        return log_expit(f), log_expit(-f)
    xp = jnp if isinstance(f, jax.Array) else np
    eps = xp.finfo(f.dtype).eps
    q = xp.clip(f, eps, 1 - eps)
    return xp.log(q), xp.log1p(-q)


class Optimum(NamedTuple):
    """The end of a search."""

    parameters: jax.Array  # (P,)
    loss: jax.Array
    converged: jax.Array  # bool


class _LineSearchState(NamedTuple):
    parameters: jax.Array
    loss: jax.Array
    direction: jax.Array
    slope: jax.Array  # derivative of the loss along the direction
    length: jax.Array  # fraction of the direction to try next
    passes: jax.Array


def fit_logistic(
    features: jax.Array,
    y: jax.Array,
    w: jax.Array,
    free: jax.Array,
    needed: jax.Array | bool = True,
) -> Optimum:
    """The minimum of sum w log(1 + exp(-s x'theta)), s = +1 or -1 for the two classes.

    Each iteration makes one evaluation, with backtracking as part of the state, as in
    `platt_jax.solver.newton`: under vmap, backtracking in one problem costs the others nothing. The
    search stops on the Newton decrement, the distance to the optimum in standard errors. If the
    features separate the classes, the parameters are unbounded, and the search stops where rounding
    hides further improvement.

    Args:
        features: (N, P) features, each of magnitude about 1.
        y: (N,) bool labels.
        w: (N,) weights >= 0.
        free: (P,) 1 for parameters to fit, 0 for parameters held at 0.
        needed: bool; False makes no pass, and returns 0 with an infinite loss.
    """
    *columns, w, side = _in_blocks(*features.T, w, jnp.where(y, 1, -1).astype(features.dtype))
    features = jnp.stack(columns)
    # With tiny weights the stopping test would hold at once. Scaling by a power of two loses no
    # digits.
    w = w * jnp.exp2(-jnp.minimum(jnp.floor(jnp.log2(w.max())), 0))
    eps = jnp.finfo(features.dtype).eps
    tol = 1e-8 if features.dtype == jnp.float64 else 1e-4

    def evaluate(parameters: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        margin = side * jnp.tensordot(parameters, features, 1)
        wrong = jax.nn.sigmoid(-margin)  # the probability of the other class
        curvature = w * wrong * jax.nn.sigmoid(margin)
        hessian = jnp.einsum("pbr,qbr->bpq", features, curvature[None] * features).sum(0)
        hessian = jnp.outer(free, free) * hessian + jnp.diag(1 - free)
        gradient = free * jnp.einsum("pbr,br->bp", features, -w * wrong * side).sum(0)
        return jnp.sum(jnp.sum(w * jax.nn.softplus(-margin), 0)), gradient, hessian

    def step(state: _LineSearchState) -> _LineSearchState:
        trial = state.parameters + state.length * state.direction
        loss, gradient, hessian = evaluate(trial)
        # Near the optimum, the change of the loss is dominated by rounding.
        allowed = _ARMIJO * state.length * state.slope + 4 * eps * state.loss
        direction = -_solve(hessian, gradient, eps)
        moved = _LineSearchState(
            parameters=trial,
            loss=loss,
            direction=direction,
            slope=gradient @ direction,
            length=jnp.ones_like(loss),
            passes=state.passes,
        )
        stayed = state._replace(length=state.length / 2)
        new: _LineSearchState = jax.tree.map(
            partial(jnp.where, loss <= state.loss + allowed), moved, stayed
        )
        return new._replace(passes=state.passes + 1)

    def decrement(state: _LineSearchState) -> jax.Array:
        return jnp.sqrt(jnp.maximum(-state.slope, 0))

    def unfinished(state: _LineSearchState) -> jax.Array:
        within = (state.passes < _MOST_PASSES) & (state.length > _SHORTEST_STEP)
        return needed & ((state.passes == 0) | (within & (decrement(state) > tol)))

    zero, unknown = jnp.zeros_like(free), jnp.asarray(jnp.inf, features.dtype)
    start = _LineSearchState(
        zero, unknown, zero, jnp.zeros_like(unknown), jnp.ones_like(unknown), jnp.int32(0)
    )
    end = jax.lax.while_loop(unfinished, step, start)
    return Optimum(end.parameters, end.loss, decrement(end) <= tol)


def _in_blocks(*columns: jax.Array) -> list[jax.Array]:
    """Rows (N,) as blocks (N / R, R), padded with zeros, which add nothing.

    Sums by block have less rounding error than one sum of all rows. In float32 a sum of a million
    rows would lose small terms, and its rounding error would exceed the gain of a step.
    """
    rows = len(columns[0])
    block = min(rows, _ROWS_OF_A_BLOCK)
    return [jnp.pad(x, (0, -rows % block)).reshape(-1, block) for x in columns]


def _solve(hessian: jax.Array, gradient: jax.Array, eps: np.floating[Any]) -> jax.Array:
    """H^-1 g by an explicit L D L' factorization.

    For a few parameters this compiles faster than a general solver. A pivot that rounding could
    make 0 or negative is set to a few units of rounding, as in `platt_jax.solver.newton`, so that
    the direction descends.
    """
    rows = range(len(gradient))
    left = [[hessian[i, j] for j in rows] for i in rows]
    right = [gradient[i] for i in rows]
    for k in rows:
        floor = 4 * eps * hessian[k, k] + jnp.finfo(gradient.dtype).tiny
        left[k][k] = jnp.maximum(left[k][k], floor)
        for i in rows[k + 1 :]:
            ratio = left[i][k] / left[k][k]
            left[i] = [left[i][j] - ratio * left[k][j] for j in rows]
            right[i] = right[i] - ratio * right[k]
    solution = list(right)
    for i in reversed(rows):
        known = sum((left[i][j] * solution[j] for j in rows[i + 1 :]), start=0.0)
        solution[i] = (right[i] - known) / left[i][i]
    return jnp.stack(solution)
