"""The mean intercept that the rows ask for.

Where the mean is integrated out, the derivative of the log posterior density by the mean has the
expectation 0 (Fisher's identity): the expected positives are those seen, up to what the mean's
prior adds. Normal likelihoods of segments with rare positives miss that, by up to a third of the
positives where the population is uncertain. So the mean intercept is moved by Newton steps until
the identity holds. The mean slope stays: a row with an extreme score would decide on it.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import Stage
from platt_jax.population.gaussians import Normals
from platt_jax.population.places import fetched, namespace, product, program
from platt_jax.population.population_prior import MEAN_PRECISION, SCALE
from platt_jax.population.quadrature import Grid
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.population.symmetric import Square, Symmetric

# Beyond this distance from its center the prior of the mean pulls with the same force everywhere:
# where spreads are wide, the mean curve may be much steeper than the curve of all rows.
_FAR = 2 * SCALE
# Newton steps of the mean's B: the largest number, and the length of the last one. Most worlds take
# two; with sure scores the expected positives fall only by a factor of e or so a step.
_MOST_STEPS, _NEAR = 12, 1e-2
_WORTH = 0.9  # what is missing after a step, relative to before, if the step is worth taking
# Largest rise of the expected loss by steps, but for one nat, as a share of the least before: steps
# that mend the number of positives lower the loss, or raise it by a thousandth. In updates losses
# add a constant of any sign.
_MOST_RISE = 0.02


class Shift(NamedTuple):
    """A move of the population's mean of B."""

    by: float
    missing: float  # positives seen beyond those expected after the move, with the prior's share


def shift_of_mean(
    segments: StandardizedSegments,
    grid: Grid,
    posteriors: Normals,
    response: NDArray[Any],
    off: float,
    stage: Stage,
) -> Shift:
    """How far the population's mean of B moves; it is `off` from the mean of its prior.

    `response` (K, 2) are the derivatives of the posterior means by the population's mean of B.
    """
    best, shift, limit, terms = Shift(0.0, np.inf), 0.0, np.inf, node_terms(grid)
    for _ in range(_MOST_STEPS):
        nodes = _shifted(posteriors, response, shift)
        losses = segments.losses(grid, nodes, stage)
        sums = fetched(_loss_slope_and_bend(terms, losses, nodes, response))
        loss, slope, bend = segments.total(sums)
        limit = min(limit, loss + _MOST_RISE * abs(loss) + 1)
        missing = slope + MEAN_PRECISION * np.clip(off + shift, -_FAR, _FAR)
        # Where a higher mean raises the curves of some segments and lowers those of others, no mean
        # may give the number seen, or one far away that is wrong for all.
        if abs(missing) > _WORTH * abs(best.missing) or loss > limit:
            break
        best, bend = Shift(shift, float(missing)), bend + MEAN_PRECISION
        if bend <= 0:
            break
        step = float(missing / bend)
        shift -= step
        if abs(step) <= _NEAR:
            return Shift(shift, 0.0)
    return best


def node_terms(grid: Grid) -> NDArray[np.float64]:
    """(J, 6), 1, z and the upper triangle of z z' - 1 at each node, times its weight."""
    z_A, z_B = grid.z.T
    terms = np.stack([z_A**0, z_A, z_B, z_A * z_A - 1, z_A * z_B, z_B * z_B - 1], -1)
    weighted: NDArray[np.float64] = terms * np.exp(np.add.outer(*2 * [grid.log_weight])).reshape(
        -1, 1
    )
    return weighted


def expected_derivatives(
    terms: Any, losses: Any, at: Normals
) -> tuple[Any, tuple[Any, Any], Symmetric]:
    """The expectations, gradients and Hessians (K,) of losses under normal distributions.

    From the losses (K, J) at the nodes alone: under a normal distribution of mean m and covariance
    C, the expected gradient of g is the expectation of C^-1 (x - m) g(x) (Stein 1981).
    """
    mean, h_A, h_B, *square = product(terms, losses.T)
    factor: Any = at[2:]
    AA, BA, BB = factor
    inverse = Square(1 / AA, 0 * AA, -BA / (AA * BB), 1 / BB)  # of the factor
    transposed = inverse._replace(AB=inverse.BA, BA=inverse.AB)
    return mean, transposed.times(h_A, h_B), transposed.congruent(Symmetric(*square))


@program
def _loss_slope_and_bend(terms: Any, losses: Any, at: Normals, response: Any) -> Any:
    """(3,), sums of the expected losses and of their derivatives by the population's mean of B."""
    xp = namespace(losses)
    if xp is jnp:
        losses = jnp.nan_to_num(losses)  # of segments added
    mean, gradient, hessian = expected_derivatives(terms, losses, at)
    along = hessian.AB * response[:, 0] + hessian.BB * response[:, 1]
    return xp.stack([mean.sum(), gradient[1].sum(), along.sum()])


@program
def _shifted(posteriors: Normals, response: Any, shift: Any) -> Normals:
    """The posteriors after a shift of the population's mean of B."""
    A, B = posteriors.mean_A, posteriors.mean_B
    return posteriors._replace(mean_A=A + response[:, 0] * shift, mean_B=B + response[:, 1] * shift)


@program
def shifted(mean: Any, response: Any, shift: Any) -> Any:
    """The posterior means (K, 2) after a shift of the population's mean of B."""
    return mean + response * shift


@program
def response_of(precision: Symmetric, covariance: Any) -> Any:
    """(K, 2), the derivatives of the posterior means by the population's mean of B."""
    inverse = Symmetric.of(covariance).product(precision).plus_identity().inverse()
    return namespace(precision.AA).stack([inverse.AB, inverse.BB], -1)
