"""Whether rows given again are those of a fit: then their loss has its optimum at the fit."""

from typing import Any, NamedTuple

import numpy as np

from platt_jax import validation
from platt_jax.arrays import Bools, Floats
from platt_jax.model.objective import Array
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options
from platt_jax.results.fit import Fit

# A fit so many standard errors from the optimum is near it; so many units of rounding may add up.
_NEAR, _ROUNDINGS = 0.1, 30


class FittedParameters(NamedTuple):
    """K fits, in float64."""

    A: Floats  # (K,)
    B: Floats  # (K,)
    # (K, 2), whether A and B were fitted: Options(monotone=True) may hold A at 0, and with
    # Options(intercept=False) B is 0.
    free: Bools
    mean: Floats  # (K, 2) of the prior
    precision: Floats  # (K, 2, 2)


class LossAtFit(NamedTuple):
    """The loss of K problems at their fits, by (A', B') of scores (f - center) / scale."""

    center: Floats  # (K,)
    scale: Floats
    gradient: Floats  # (K, 2)
    hessian: Floats  # (K, 2, 2)
    size: Floats  # (K, 2) about the sum of the gradient's absolute terms, for its rounding

    def with_prior(self, problems: FittedParameters) -> "LossAtFit":
        """The same with the prior's part of the loss."""
        to_original = self.to_original()
        point, mean = np.stack([problems.A, problems.B], -1)[..., None], problems.mean[..., None]
        precision = problems.precision
        pull = to_original.mT @ (precision @ (point - mean))
        most = abs(to_original.mT) @ (abs(precision) @ (abs(point) + abs(mean)))
        return self._replace(
            gradient=self.gradient + pull[..., 0],
            hessian=self.hessian + to_original.mT @ precision @ to_original,
            size=self.size + most[..., 0],
        )

    def to_original(self) -> Floats:
        """(K, 2, 2), what maps (A', B') to (A, B)."""
        return matrices(1 / self.scale, 0, -self.center / self.scale, 1)

    def inverse(self, free: Bools) -> Floats:
        """(K, 2, 2) the inverse of the Hessian over what is free (K, 2); not finite if singular."""
        hessian = self.hessian
        h_AA, h_AB, h_BB = hessian[:, 0, 0], hessian[:, 0, 1], hessian[:, 1, 1]
        ratio = h_AB / h_BB
        pivot = h_AA - ratio * h_AB
        var_A = 1 / np.where(pivot > 0, pivot, np.nan)
        inverse = matrices(var_A, -ratio * var_A, -ratio * var_A, 1 / h_BB + ratio * ratio * var_A)
        # The direction in which (A', B') move with the only free parameter.
        free_A, free_B = free.T
        along = np.stack([self.scale * free_A, self.center * free_A + free_B], -1)[..., None]
        curvature = np.where(free_A | free_B, (along.mT @ hessian @ along)[:, 0, 0], 1)
        line_inverse = along * along.mT / curvature[:, None, None]
        return np.where((free_A & free_B)[:, None, None], inverse, line_inverse)


def matrices(a: Any, b: Any, c: Any, d: Any) -> Floats:
    """(K, 2, 2) matrices of these entries, (K,) or one for all."""
    return np.stack(np.broadcast_arrays(a, b, c, d), -1).reshape(-1, 2, 2)


def parameters_of(
    A: Array, B: Array, covariance: Array, prior: GaussianPrior | None, options: Options
) -> FittedParameters:
    """The fits, flat, with the prior that was given for them."""
    batch = np.shape(A)
    A, B, covariance = (
        validation.array(x, "calibrator").astype(np.float64) for x in (A, B, covariance)
    )
    if isinstance(prior, GaussianPrior):  # JAX arrays may lack float64
        prior = GaussianPrior(*(validation.array(leaf, "prior") for leaf in prior))
    prior = validation.prior(prior, batch, np.float64)
    mean, precision = (0.0, 0.0) if prior is None else prior
    mean, precision = np.broadcast_to(mean, (*batch, 2)), np.broadcast_to(precision, (*batch, 2, 2))
    held = (A == 0) & (covariance[..., 0, 0] == 0)
    free = np.stack([~held.ravel(), np.full(A.size, options.intercept)], -1)
    return FittedParameters(
        A.ravel(), B.ravel(), free, mean.reshape(-1, 2), precision.reshape(-1, 2, 2)
    )


def require_optimum(
    fit: Fit, problems: FittedParameters, rows: LossAtFit, options: Options
) -> None:
    """Refuses rows of which converged fits (K,) are not the optimum.

    Such are the rows of another fit with the same numbers of labels, rows without the weights, the
    offset, the options or the prior of the fit, and all rows after `shift_prior`. Fits that stopped
    by the size of the gradient may be anywhere near the optimum, and are not checked.
    """
    if options.stopping != "decrement":
        return
    with np.errstate(all="ignore"):  # fits that are NaN, and problems without rows
        loss = rows.with_prior(problems)
        inverse = loss.inverse(problems.free)
        distance, rounding = (
            np.sqrt(np.einsum("ki,kij,kj->k", x, part, x))
            for x, part in ((loss.gradient, inverse), (loss.size, abs(inverse)))
        )
        units = _ROUNDINGS * np.finfo(np.asarray(fit.A).dtype).eps * (1 + abs(problems.B))
        allowed = _NEAR + (options.tol or 0) + units * rounding
        too_far = np.asarray(fit.converged) & np.isfinite(distance) & (distance > allowed)
    if too_far.any():
        raise ValueError(
            "scores, labels: expected the rows of the fit, with its weights, offset, prior and "
            f"options, got others: their optimum is {distance[too_far][0]:.3g} standard errors away"
        )
