"""Logistic regression on a few features: Newton's method with backtracking, traceable."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_ARMIJO = 1e-4  # the sufficient-decrease constant
_MOST_PASSES = 200
_SHORTEST_STEP = 1e-10
_ROWS_OF_A_BLOCK = 1024


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
        free: (P,) 1 for parameters to fit, 0 for those held at 0.
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
