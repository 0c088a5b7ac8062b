"""Integrals over a segment's (A, B) by adaptive Gauss-Hermite quadrature.

The nodes lie where the posterior does: at mean + factor z, for a fixed grid of z. So a few of them
are exact to many digits (Naylor & Smith 1982; Rabe-Hesketh, Skrondal & Pickles 2005).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax.execution.run import Task
from platt_jax.model import objective
from platt_jax.model.objective import Array
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.passes.protocol import AnyRows, Rows
from platt_jax.passes.reductions import sums

_PER_AXIS = 5


class Normals(NamedTuple):
    """A normal distribution of (A, B) for each segment, or one for all."""

    mean_A: Array
    mean_B: Array
    # The lower triangle of the factor F of the covariance F F'.
    factor_AA: Array
    factor_BA: Array
    factor_BB: Array

    @property
    def mean(self) -> NDArray[Any]:
        """(..., 2)."""
        return np.stack([self.mean_A, self.mean_B], -1)

    @property
    def covariance(self) -> NDArray[Any]:
        """(..., 2, 2)."""
        AB = self.factor_AA * self.factor_BA
        BB = self.factor_BA * self.factor_BA + self.factor_BB * self.factor_BB
        rows = [[self.factor_AA * self.factor_AA, AB], [AB, BB]]
        return np.stack([np.stack(row, -1) for row in rows], -2)


def normals(mean: NDArray[np.float64], covariance: NDArray[np.float64]) -> Normals:
    """The normal distributions with these means (..., 2) and covariances (..., 2, 2)."""
    factor = np.linalg.cholesky(covariance)
    return Normals(
        mean[..., 0], mean[..., 1], factor[..., 0, 0], factor[..., 1, 0], factor[..., 1, 1]
    )


class Nodes(NamedTuple):
    """Where to evaluate the loss of a segment; arrays that lead with the segments' shape."""

    posterior: Normals
    coordinates: Standardization  # of the scores, in which A and B are


def _grid(per_axis: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes (J, 2) and log weights (J,) of integrals over the standard normal distribution."""
    node, weight = np.polynomial.hermite_e.hermegauss(per_axis)
    z = np.stack(np.meshgrid(node, node, indexing="ij"), -1).reshape(-1, 2)
    return z, np.log(np.outer(weight, weight).ravel() / (2 * np.pi))


Z, _LOG_WEIGHT = _grid(_PER_AXIS)


def _node_losses(rows: Rows, nodes: Nodes, options: Options) -> jax.Array:
    """The loss at each node; results lead with the problems' shape, then come the nodes."""
    at, (targets, rows) = nodes.posterior, _prepared(rows, nodes, options)

    def loss(z: jax.Array) -> jax.Array:
        A: Any = at.mean_A + at.factor_AA * z[0]
        B: Any = at.mean_B + at.factor_BA * z[0] + at.factor_BB * z[1]
        return rows.loss((A, B), targets)

    return jnp.moveaxis(lax.map(loss, jnp.asarray(Z, at.mean_A.dtype)), 0, -1)


def _node_losses_on_host(rows: Rows, nodes: Nodes, options: Options) -> NDArray[Any]:
    at, (targets, rows) = nodes.posterior, _prepared(rows, nodes, options)
    losses = []
    for z in Z.astype(at.mean_A.dtype):
        A = at.mean_A + at.factor_AA * z[0]
        B = at.mean_B + at.factor_BA * z[0] + at.factor_BB * z[1]
        losses.append(rows.loss((A, B), targets))
    return np.stack(losses, -1)


def _prepared(rows: AnyRows, nodes: Nodes, options: Options) -> tuple[objective.Targets, AnyRows]:
    one = jnp.ones_like(nodes.posterior.mean_A)
    rows = rows.mask_nonfinite(options).standardized(nodes.coordinates)
    return objective.plain_targets(one, one), rows


NODE_LOSSES = Task(_node_losses, _node_losses_on_host)


class Posteriors(NamedTuple):
    """What the segments say of themselves and of their population N(0, I), in its coordinates u."""

    log_likelihood: Array  # [K] of the population, by a segment's rows
    # By the mean (u1, u2) and the factor [[exp(a), 0], [b, exp(c)]] of the population.
    gradient: Array  # [5]
    information: Array  # [5, 5], minus the Hessian
    score_products: Array  # [5, 5], the sum over the segments of s s', s their gradients
    mean: Array  # [K, 2]
    covariance: Array  # [K, 2, 2]


def posteriors(losses: NDArray[Any], nodes: Normals, population: Normals) -> Posteriors:
    """The posteriors of the segments, and what they make of their population.

    With f the log density of a segment's parameters, the gradient of its log likelihood is E f',
    the Hessian E f'' + Cov f', for the posterior's E and Cov (Louis 1982). No derivative passes
    through the nodes.

    Args:
        losses: (K, J) of the segments at their nodes.
        nodes: of the segments, (K,).
        population: one distribution.
    """
    with jax.enable_x64(True):
        made: Posteriors = jax.tree.map(
            np.asarray, _posteriors(losses, _relative(nodes, population))
        )
    return made


def _relative(nodes: Normals, population: Normals) -> Normals:
    """The nodes in coordinates in which the population is N(0, I)."""
    P = population
    AA, BB = nodes.factor_AA / P.factor_AA, nodes.factor_BB / P.factor_BB
    mean_A = (nodes.mean_A - P.mean_A) / P.factor_AA
    return Normals(
        mean_A,
        (nodes.mean_B - P.mean_B - P.factor_BA * mean_A) / P.factor_BB,
        AA,
        (nodes.factor_BA - P.factor_BA * AA) / P.factor_BB,
        BB,
    )


@jax.jit
def _posteriors(losses: jax.Array, at: Normals) -> Posteriors:
    z = jnp.asarray(Z)[:, :, None]
    factor = at.factor_AA * at.factor_BB
    at = jax.tree.map(lambda x: x[None], at)
    u1 = at.mean_A + at.factor_AA * z[:, 0]
    u2 = at.mean_B + at.factor_BA * z[:, 0] + at.factor_BB * z[:, 1]
    log_ratio = (z[:, 0] ** 2 + z[:, 1] ** 2 - u1 * u1 - u2 * u2) / 2
    log_f = log_ratio - losses.T.astype(u1.dtype) + jnp.asarray(_LOG_WEIGHT)[:, None]
    most = jnp.max(log_f, 0, keepdims=True)
    f = jnp.exp(log_f - most)
    total = jnp.sum(f, 0, keepdims=True)
    p = f / total
    log_likelihood = (most + jnp.log(total))[0] + jnp.log(factor)

    scores = (u1, u2, u1 * u1 - 1, u1 * u2, u2 * u2 - 1)
    pairs = [(i, j) for i in range(5) for j in range(i + 1)]
    # All of them in one loop.
    expected = sums(0, *[p * s for s in scores], *[p * scores[i] * scores[j] for i, j in pairs])
    mean, second = expected[:5], expected[5:]
    products = _symmetric([jnp.sum(mean[i] * mean[j]) for i, j in pairs])
    gradient = jnp.stack([jnp.sum(x) for x in mean])
    K = losses.shape[0]
    e1, e2, e11, e12, e22 = gradient + K * jnp.array([0.0, 0, 1, 0, 1])
    zero = jnp.zeros_like(e1)
    curvature = _symmetric(
        [
            *[zero - K],
            *[zero, zero - K],
            *[-2 * e1, zero, -2 * e11],
            *[-e2, -e1, -e12, -e11],
            *[zero, -2 * e2, zero, -2 * e12, -2 * e22],
        ]
    )
    m1, m2, m11, m12, m22 = mean
    c12 = m12 - m1 * m2
    covariance = [[m11 + 1 - m1 * m1, c12], [c12, m22 + 1 - m2 * m2]]
    return Posteriors(
        log_likelihood,
        gradient,
        products - _symmetric([jnp.sum(x) for x in second]) - curvature,
        products,
        jnp.stack([m1, m2], -1),
        jnp.stack([jnp.stack(row, -1) for row in covariance], -2),
    )


def _symmetric(lower: list[jax.Array]) -> jax.Array:
    """The 5 by 5 matrix whose lower triangle is this, row by row."""
    place = [[max(i, j) * (max(i, j) + 1) // 2 + min(i, j) for j in range(5)] for i in range(5)]
    return jnp.stack(lower)[np.array(place)]
