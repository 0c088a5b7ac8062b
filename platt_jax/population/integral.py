"""What is known of the segments if their population is not known exactly.

The population's covariance is a sample's from its posterior, given a prior under which each standard
deviation is half-normal and the correlation uniform; the mean is integrated over exactly, with a
flat prior. Few segments say little of how they vary: a single estimate of it is nearly always too
small or too large, and often 0.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax import xla
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import Normals, padding

# Of the standard deviations in log-odds over the usual range of scores, a priori (half-normal;
# Gelman 2006, "Prior distributions for variance parameters in hierarchical models").
_PRIOR_SPREAD = 1.5

# The covariances drawn: the fewer, the more segments say how large it is.
_MOST_DRAWS, _LEAST_DRAWS = 256, 32
_AT_ONCE = 1 << 20

# Standard deviations that are looked at first; and in how many rounds draws come nearer to the
# posterior, by its moments in the round before.
_FIRST = np.geomspace(0.01, 10, 24)
_ROUNDS = 3


class Known(NamedTuple):
    """Means and covariances of (A, B), with the uncertainty of the population in them."""

    mean: NDArray[np.float64]  # (K, 2), of the segments
    covariance: NDArray[np.float64]  # (K, 2, 2)
    new_mean: NDArray[np.float64]  # (2,), of a segment without rows
    new_covariance: NDArray[np.float64]  # (2, 2)


class _Spreads(NamedTuple):
    """Covariances, by standard deviations and the correlation's inverse hyperbolic tangent."""

    of_A: NDArray[np.float64]
    of_B: NDArray[np.float64]
    angle: NDArray[np.float64]

    @property
    def covariance(self) -> NDArray[np.float64]:
        """(G, 2, 2)."""
        AB = np.tanh(self.angle) * self.of_A * self.of_B
        return _matrices(self.of_A**2, AB, self.of_B**2)

    @property
    def log_prior(self) -> NDArray[np.float64]:
        """(G,), up to a constant."""
        square = (self.of_A**2 + self.of_B**2) / _PRIOR_SPREAD**2
        return -square / 2 - 2 * np.log(np.cosh(self.angle))


class _Under(NamedTuple):
    """What populations of given covariances (G,) come to."""

    log_likelihood: NDArray[np.float64]  # (G,), the mean integrated out
    mean: NDArray[np.float64]  # (G, 2), of the population
    mean_covariance: NDArray[np.float64]  # (G, 2, 2)


def over_populations(likelihoods: Likelihoods, population: Normals, certain: bool) -> Known:
    """What is known of the segments, and of one without rows.

    Args:
        likelihoods: of the segments, in the coordinates in which the population is N(0, I).
        population: the estimate of it, in coordinates in which scores are about as wide as N(0, 1).
        certain: whether its covariance is as good as known: then only its mean varies.

    Returns:
        In the population's coordinates.
    """
    root = np.array([[population.factor_AA, 0], [population.factor_BA, population.factor_BB]])
    to_unit = np.linalg.inv(root)
    with jax.enable_x64(True):
        at = jax.tree.map(lambda x: np.pad(x, padding(len(x))), likelihoods)
        if certain:
            covariance, weights = np.eye(2)[None], np.ones(1)
            under = _under(at, covariance)
        else:
            covariance, under, weights = _drawn(at, root @ root.T, to_unit)
        mean, square = _mixture(at, covariance, under, weights)
    K = len(likelihoods.pull_A)
    own = np.asarray(mean).T[:K]
    spread = _matrices(*np.asarray(square)[:, :K]) - own[:, :, None] * own[:, None, :]
    new = weights @ under.mean
    off = under.mean - new
    of_new = np.tensordot(weights, covariance + under.mean_covariance, 1) + (weights * off.T) @ off
    return Known(
        population.mean + own @ root.T,
        root @ spread @ root.T,
        population.mean + root @ new,
        root @ of_new @ root.T,
    )


def _drawn(
    likelihoods: Likelihoods, covariance: NDArray[np.float64], to_unit: NDArray[np.float64]
) -> tuple[NDArray[np.float64], _Under, NDArray[np.float64]]:
    """Covariances in unit coordinates, what follows from each, and its weight.

    By importance sampling: each of three numbers is drawn independently of the others, from
    Student's t distributions with 4 degrees of freedom.
    """

    def evaluated(spreads: _Spreads) -> tuple[NDArray[np.float64], _Under]:
        unit = to_unit @ spreads.covariance @ to_unit.T
        return unit, _under(likelihoods, unit)

    deviations = np.sqrt(np.diag(covariance))
    angle = np.arctanh(np.clip(covariance[0, 1] / deviations.prod(), -0.9, 0.9))
    center, scale = np.array([*deviations, angle]), np.ones(3)
    first = np.broadcast_to(center, (2, len(_FIRST), 3)).copy()
    first[0, :, 0] = first[1, :, 1] = _FIRST
    spreads = _Spreads(*first.reshape(-1, 3).T)
    _, under = evaluated(spreads)
    logs = (under.log_likelihood + spreads.log_prior).reshape(2, -1) + np.log(_FIRST)
    for i in range(2):
        weights = _normalized(logs[i])
        center[i] = weights @ _FIRST
        scale[i] = max(np.sqrt(weights @ (_FIRST - center[i]) ** 2), center[i] / 8)
    draws = int(np.clip(_AT_ONCE // len(likelihoods.pull_A), _LEAST_DRAWS, _MOST_DRAWS))
    t = _students_t(_even_points(draws))
    for _ in range(_ROUNDS):
        point = center + scale * t
        point[:, :2] = np.abs(point[:, :2])
        away = _log_density((point - center) / scale)
        mirrored = _log_density((point[:, :2] + center[:2]) / scale[:2])
        away[:, :2] = np.logaddexp(away[:, :2], mirrored)
        spreads = _Spreads(*point.T)
        unit, under = evaluated(spreads)
        weights = _normalized(under.log_likelihood + spreads.log_prior - away.sum(axis=1))
        center = weights @ point
        scale = np.sqrt(weights @ (point - center) ** 2) + 1e-3
    return unit, under, weights


def _normalized(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(logs - logs.max())
    normalized: NDArray[np.float64] = weights / weights.sum()
    return normalized


def _even_points(number: int) -> NDArray[np.float64]:
    """(number, 3) points that fill the unit cube evenly: the additive recurrence whose steps are
    powers of 1 / g, with g^4 = g + 1 (Roberts 2018).
    """
    g = 1.2207440846057596
    points: NDArray[np.float64] = (0.5 + np.arange(1, number + 1)[:, None] * g ** -np.arange(1, 4)) % 1
    return points


def _students_t(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles of Student's t distribution with 4 degrees of freedom (Shaw 2006)."""
    alpha = 4 * probability * (1 - probability)
    root = np.sqrt(alpha)
    q = np.cos(np.arccos(root) / 3) / root
    quantile: NDArray[np.float64] = np.sign(probability - 0.5) * 2 * np.sqrt(np.maximum(q - 1, 0))
    return quantile


def _log_density(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of that distribution, up to a constant."""
    return -2.5 * np.log1p(t * t / 4)


def _matrices(
    AA: NDArray[np.float64], AB: NDArray[np.float64], BB: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.stack([np.stack([AA, AB], -1), np.stack([AB, BB], -1)], -2)


def _under(likelihoods: Likelihoods, covariance: NDArray[np.float64]) -> _Under:
    logs, mean, precision = (np.asarray(x) for x in _marginal(likelihoods, covariance))
    return _Under(logs, mean, np.linalg.inv(precision))


@partial(xla.jit, wide=True)
def _marginal(
    likelihoods: Likelihoods, covariance: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of covariances S (G, 2, 2): log likelihoods (G,), the mean's (G, 2) and its precision.

    With P the precision and h the pull of a segment, and V = (P^-1 + S)^-1, its rows tell of the
    mean with precision V and pull r = (1 + P S)^-1 h.
    """

    def of_one(S: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        V, (r_A, r_B), log_determinant = _marginalized(likelihoods, S)
        h_A, h_B = likelihoods.pull_A, likelihoods.pull_B
        s_A, s_B = S[0, 0] * r_A + S[0, 1] * r_B, S[0, 1] * r_A + S[1, 1] * r_B
        AA, AB, BB, A, B, own = (
            jnp.sum(x) for x in (*V, r_A, r_B, h_A * s_A + h_B * s_B - log_determinant)
        )
        precision = jnp.stack([jnp.stack([AA, AB]), jnp.stack([AB, BB])])
        determinant = AA * BB - AB * AB
        mean = jnp.stack([BB * A - AB * B, AA * B - AB * A]) / determinant
        gain = mean[0] * A + mean[1] * B
        return (own + gain - jnp.log(determinant)) / 2, mean, precision

    return lax.map(of_one, covariance)


@partial(xla.jit, wide=True)
def _mixture(
    likelihoods: Likelihoods, covariance: jax.Array, under: _Under, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Of each segment the mean (2, K), and the second moments AA, AB and BB, (3, K)."""

    def add(
        moments: tuple[jax.Array, jax.Array], one: tuple[jax.Array, ...]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        S, mean, mean_covariance, weight = one
        V, (r_A, r_B), _ = _marginalized(likelihoods, S)
        v_A, v_B = r_A - V[0] * mean[0] - V[1] * mean[1], r_B - V[1] * mean[0] - V[2] * mean[1]
        m_A = mean[0] + S[0, 0] * v_A + S[0, 1] * v_B
        m_B = mean[1] + S[0, 1] * v_A + S[1, 1] * v_B
        # 1 - S V, by which the mean counts.
        J_AA, J_AB = 1 - S[0, 0] * V[0] - S[0, 1] * V[1], -S[0, 0] * V[1] - S[0, 1] * V[2]
        J_BA, J_BB = -S[0, 1] * V[0] - S[1, 1] * V[1], 1 - S[0, 1] * V[1] - S[1, 1] * V[2]
        # The covariance given the mean is (1 - S V) S.
        C_AA = J_AA * S[0, 0] + J_AB * S[0, 1]
        C_AB = J_AA * S[0, 1] + J_AB * S[1, 1]
        C_BB = J_BA * S[0, 1] + J_BB * S[1, 1]
        M_AA, M_AB, M_BB = mean_covariance[0, 0], mean_covariance[0, 1], mean_covariance[1, 1]
        C_AA += J_AA * (J_AA * M_AA + 2 * J_AB * M_AB) + J_AB * J_AB * M_BB
        C_AB += J_AA * (J_BA * M_AA + J_BB * M_AB) + J_AB * (J_BA * M_AB + J_BB * M_BB)
        C_BB += J_BA * (J_BA * M_AA + 2 * J_BB * M_AB) + J_BB * J_BB * M_BB
        first = jnp.stack([m_A, m_B])
        second = jnp.stack([C_AA + m_A * m_A, C_AB + m_A * m_B, C_BB + m_B * m_B])
        return (moments[0] + weight * first, moments[1] + weight * second), None

    K = len(likelihoods.pull_A)
    start = jnp.zeros((2, K), weights.dtype), jnp.zeros((3, K), weights.dtype)
    each = covariance, under.mean, under.mean_covariance, weights
    (first, second), _ = lax.scan(add, start, each)
    return first, second


def _marginalized(
    likelihoods: Likelihoods, S: jax.Array
) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...], jax.Array]:
    """V and r of `_marginal` by their entries, and log |1 + P S|."""
    (P_AA, P_AB, P_BB), h_A, h_B = likelihoods
    T_AA, T_AB = 1 + P_AA * S[0, 0] + P_AB * S[0, 1], P_AA * S[0, 1] + P_AB * S[1, 1]
    T_BA, T_BB = P_AB * S[0, 0] + P_BB * S[0, 1], 1 + P_AB * S[0, 1] + P_BB * S[1, 1]
    determinant = T_AA * T_BB - T_AB * T_BA
    V = T_BB * P_AA - T_AB * P_AB, T_BB * P_AB - T_AB * P_BB, T_AA * P_BB - T_BA * P_AB
    r = T_BB * h_A - T_AB * h_B, T_AA * h_B - T_BA * h_A
    return (
        tuple(x / determinant for x in V),
        tuple(x / determinant for x in r),
        jnp.log(determinant),
    )
