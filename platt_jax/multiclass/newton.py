"""Newton's method with backtracking for many small convex problems at once, in NumPy."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.options import Options
from platt_jax.status import Status

_RUNNING = -1
_ARMIJO = 1e-4  # the sufficient-decrease constant
_ROUNDING = 64 * np.finfo(np.float64).eps  # of a loss, relative to its largest term
# Added to the diagonal, relative to its entries: directions that the rows do not determine stay.
_RIDGE = 1e-13


class LossSums(NamedTuple):
    """The losses of k problems with P parameters, and their derivatives."""

    loss: Floats  # (k,)
    gradient: Floats  # (k, P)
    hessian: Floats  # (k, P, P)
    size: Floats  # (k,) of the largest term of the loss, of which rounding is a fraction


class Likelihood(Protocol):
    """The negative log-likelihoods of k problems, plus their penalties."""

    start: Floats  # (k, P)
    bounded: Bools  # (P,) whether a parameter is >= 0

    def sums(self, theta: Floats) -> LossSums:
        """The losses at parameters (k, P)."""


class MulticlassOptimum(NamedTuple):
    """Where the searches of k problems ended."""

    theta: Floats  # (k, P)
    at: LossSums
    status: NDArray[np.int32]  # (k,)
    iterations: NDArray[np.int32]  # (k,)
    held: Bools  # (k,) whether a parameter is held at its bound


def minimize(likelihood: Likelihood, options: Options) -> MulticlassOptimum:
    """The minima, by projected Newton steps (Bertsekas 1982, "Projected Newton methods").

    A problem stops when the Newton decrement, its distance to the optimum in standard errors, is at
    most `options.tol`. Its last step is taken without another evaluation, as in `solver.newton`.
    Backtracking is state: in each evaluation a problem makes a new step, or tries half of its last
    one again.
    """
    tol = options.with_tol(np.float64).tol
    theta, bounded = likelihood.start, likelihood.bounded
    sums = likelihood.sums(theta)
    status = np.full(len(theta), _RUNNING, np.int32)
    iterations, length = np.zeros(len(theta), np.int32), np.ones(len(theta))
    while True:
        at_bound: Bools = bounded & (theta <= 0) & (sums.gradient > 0)
        step = _newton_step(sums, at_bound)
        downhill = -(sums.gradient * step).sum(axis=1)
        near = np.sqrt(np.maximum(downhill, 0)) <= tol
        running = status == _RUNNING
        status[running & (iterations >= options.max_iter)] = Status.MAX_ITERATIONS
        status[running & (length < options.min_step)] = Status.LINE_SEARCH_FAILED
        status[running & near] = Status.CONVERGED
        running = status == _RUNNING
        if not running.any():
            last = np.where((status == Status.CONVERGED)[:, None], step, 0)
            theta = np.where(bounded, np.maximum(theta + last, 0), theta + last)
            return MulticlassOptimum(theta, sums, status, iterations, np.any(at_bound, axis=1))
        trial = theta + length[:, None] * step
        trial[:, bounded] = np.maximum(trial[:, bounded], 0)
        trial_sums = likelihood.sums(trial)
        descent = (sums.gradient * (trial - theta)).sum(axis=1)
        # Near the optimum the change of the loss is rounding.
        allowed = sums.loss + _ARMIJO * descent + _ROUNDING * sums.size
        accepted = running & (trial_sums.loss <= allowed)
        length = np.where(accepted, 1, np.where(running, length / 2, length))
        iterations += accepted
        theta = np.where(accepted[:, None], trial, theta)
        sums = LossSums(
            np.where(accepted, trial_sums.loss, sums.loss),
            np.where(accepted[:, None], trial_sums.gradient, sums.gradient),
            np.where(accepted[:, None, None], trial_sums.hessian, sums.hessian),
            np.where(accepted, trial_sums.size, sums.size),
        )


def _newton_step(at: LossSums, held: Bools) -> Floats:
    """-H^-1 g (k, P), with parameters that are held at their bounds."""
    free = ~held
    hessian = np.where(free[:, :, None] & free[:, None, :], at.hessian, 0)
    scale, scaled = in_own_units(hessian)
    gradient = np.where(free, at.gradient, 0) * scale
    step: Floats = -scale * np.linalg.solve(scaled, gradient[..., None])[..., 0]
    return step


def in_own_units(hessian: Floats) -> tuple[Floats, Floats]:
    """Units (k, P) of parameters, and Hessians (k, P, P) in them, which are invertible."""
    diagonal = np.diagonal(hessian, axis1=1, axis2=2)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))
    scaled = hessian * scale[:, :, None] * scale[:, None, :]
    index = np.arange(hessian.shape[1])
    scaled[:, index, index] += np.where(diagonal > 0, _RIDGE, 1)
    return scale, scaled
