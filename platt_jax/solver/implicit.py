"""Derivatives of a search without unrolling its iterations.

The optimum is the root of the gradient as a function of the rows, the targets and the prior. By
the implicit function theorem, g(theta, x) = 0 gives dtheta = -H^-1 (dg/dx) dx.
"""

from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp

from platt_jax.model import prior as priors
from platt_jax.model.objective import Derivatives, Point, Targets, with_B_held
from platt_jax.model.prior import CenteredPrior
from platt_jax.options import Options
from platt_jax.passes.protocol import Rows
from platt_jax.solver import direction, search
from platt_jax.solver.search import Problem, Solution
from platt_jax.status import Status

# The inputs that an optimum can be differentiated by. Their tangents have the same structure.
_Inputs: TypeAlias = tuple[Rows, Targets, CenteredPrior | None]


def optimum(
    rows: Rows, targets: Targets, prior: CenteredPrior | None, problem: Problem, options: Options
) -> Solution:
    """`search.optimum`, differentiable by the rows' scores and weights, targets and prior."""
    solution: Solution = _optimum(options, (rows, targets, prior), problem)
    return solution._replace(
        status=solution.status.astype(jnp.int32),
        pinned=solution.pinned > 0,
        iterations=solution.iterations.astype(jnp.int32),
        passes=solution.passes.astype(jnp.int32),
    )


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _optimum(options: Options, inputs: _Inputs, problem: Problem) -> Solution:
    """The optimum with integers as floats: JAX rejects tangents of integers under shard_map."""
    rows, targets, prior = inputs
    solution = search.optimum(rows, targets, prior, problem, options)
    return jax.tree.map(lambda x: x.astype(solution.A.dtype), solution)


@_optimum.defjvp
def _optimum_jvp(
    options: Options, primals: tuple[_Inputs, Problem], tangents: tuple[_Inputs, Problem]
) -> tuple[Solution, Solution]:
    (inputs, problem), (inputs_dot, _) = primals, tangents
    solution: Solution = _optimum(options, inputs, problem)
    A, B = solution.A, solution.B

    # With checkpoints a reverse pass computes the rows' terms again, in one loop. Otherwise it
    # would store a dozen numbers per row and read them again, which takes five times as long.
    @jax.checkpoint
    def gradient(inputs: _Inputs) -> Point:
        derivatives = _derivatives(inputs, problem, (A, B), options)
        return derivatives.g_A, derivatives.g_B

    _, (g_A, g_B) = jax.jvp(gradient, (inputs,), (inputs_dot,))
    converged = solution.status == Status.CONVERGED
    hessian = _derivatives(inputs, problem, (A, B), options)
    # The identity replaces the Hessian if there is no optimum: derivatives may not divide by 0.
    zeros, ones = jnp.zeros_like(A), jnp.ones_like(A)
    identity = Derivatives(g_A=zeros, g_B=zeros, h_AA=ones, h_AB=zeros, h_BB=ones)
    hessian = jax.tree.map(partial(jnp.where, converged), hessian, identity)
    # Constant scores leave A undetermined, unless B is held and they are not 0, or a prior tells of
    # A. A is then 0 by convention, as on the boundary.
    _, _, prior = inputs
    low, high = problem.constants.low, problem.constants.high
    constant = low == high if options.intercept else (low == 0) & (high == 0)
    if prior is not None:
        product = hessian.h_AA * hessian.h_BB
        rounding = 64 * jnp.finfo(A.dtype).eps * product
        constant &= product - hessian.h_AB * hessian.h_AB <= rounding
    pinned = (solution.pinned > 0) | constant
    A_dot, B_dot = direction.newton(hessian._replace(g_A=g_A, g_B=g_B), 0.0, pinned)
    A_dot, B_dot = jnp.where(converged, A_dot, 0), jnp.where(converged, B_dot, 0)

    @jax.checkpoint
    def at_solution(inputs: _Inputs, A: jax.Array, B: jax.Array) -> tuple[jax.Array, Derivatives]:
        rows, targets, prior = inputs
        loss = rows.loss((A, B), targets)
        loss += priors.penalty_at(prior, problem.standardization, (A, B))
        return loss, _derivatives(inputs, problem, (A, B), options)

    _, dots = jax.jvp(at_solution, (inputs, A, B), (inputs_dot, A_dot, B_dot))
    loss_dot, derivatives_dot = jax.tree.map(lambda dot: jnp.where(converged, dot, 0), dots)
    return solution, Solution(
        A=A_dot,
        B=B_dot,
        loss=loss_dot,
        derivatives=derivatives_dot,
        status=zeros,
        pinned=zeros,
        iterations=zeros,
        passes=zeros,
    )


def _derivatives(inputs: _Inputs, problem: Problem, point: Point, options: Options) -> Derivatives:
    rows, targets, prior = inputs
    sums = rows.derivatives(point, targets, options)
    derivatives = priors.add_derivatives(sums, prior, problem.standardization, point)
    return derivatives if options.intercept else with_B_held(derivatives)
