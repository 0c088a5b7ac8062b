"""What is known of the segments if their population is not known exactly.

Few segments say little of how they vary: a single estimate of it is too small or too large, and
often 0. So all is averaged over populations, each by how likely it is. A priori each standard
deviation is half-normal, the correlation uniform, and the mean flat; the mean is integrated out
exactly, and covariances are sampled.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax import xla
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import Normals, padding

# Of the standard deviations in log-odds over a standard deviation of the scores (half-normal;
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
        log_prior: NDArray[np.float64] = -square / 2 - 2 * np.log(np.cosh(self.angle))
        return log_prior


class _Under(NamedTuple):
    """What populations of given covariances (G,) come to."""

    log_likelihood: NDArray[np.float64]  # (G,), the mean integrated out
    mean: NDArray[np.float64]  # (G, 2), of the population
    mean_covariance: NDArray[np.float64]  # (G, 2, 2)


def over_populations(likelihoods: Likelihoods, population: Normals, certain: bool) -> Known:
    """What is known of the segments, and of one without rows.

    Args:
        likelihoods: of the segments.
        population: the estimate of it.
        certain: whether its covariance is as good as known: then only its mean varies.
    """
    # In units of the scores as these tell of the segments, which are the same wherever rows lie.
    to = likelihoods.coordinates.matrix
    back, estimate = np.linalg.inv(to), to @ population.covariance @ to.T
    with jax.enable_x64(True):
        at = jax.tree.map(lambda x: np.pad(x, padding(len(x))), likelihoods.transformed(to))
        if certain:
            covariance, weights = estimate[None], np.ones(1)
            under = _under(at, covariance)
        else:
            covariance, under, weights = _drawn(at, estimate)
        mean, square = (np.asarray(x) for x in _mixture(at, covariance, under, weights))
    K = len(likelihoods.pull_A)
    own = mean.T[:K]
    spread = _matrices(*square[:, :K]) - own[:, :, None] * own[:, None, :]
    new = weights @ under.mean
    off = under.mean - new
    of_new = np.tensordot(weights, covariance + under.mean_covariance, 1) + (weights * off.T) @ off
    return Known(own @ back.T, back @ spread @ back.T, back @ new, back @ of_new @ back.T)


def _drawn(
    likelihoods: Likelihoods, covariance: NDArray[np.float64]
) -> tuple[NDArray[np.float64], _Under, NDArray[np.float64]]:
    """Covariances, what follows from each, and its weight.

    By importance sampling: each of three numbers is drawn independently of the others, from
    Student's t distributions with 4 degrees of freedom.
    """
    deviations = np.sqrt(np.diag(covariance))
    angle = np.arctanh(np.clip(covariance[0, 1] / deviations.prod(), -0.9, 0.9))
    center, scale = np.array([*deviations, angle]), np.ones(3)
    first = np.broadcast_to(center, (2, len(_FIRST), 3)).copy()
    first[0, :, 0] = first[1, :, 1] = _FIRST
    spreads = _Spreads(*first.reshape(-1, 3).T)
    under = _under(likelihoods, spreads.covariance)
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
        under = _under(likelihoods, spreads.covariance)
        weights = _normalized(under.log_likelihood + spreads.log_prior - away.sum(axis=1))
        center = weights @ point
        scale = np.sqrt(weights @ (point - center) ** 2) + 1e-3
    return spreads.covariance, under, weights


def _normalized(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(logs - logs.max())
    normalized: NDArray[np.float64] = weights / weights.sum()
    return normalized


def _even_points(number: int) -> NDArray[np.float64]:
    """(number, 3) points that fill the unit cube evenly.

    They advance by powers of 1 / g, with g^4 = g + 1 (Roberts 2018).
    """
    g = 1.2207440846057596
    steps = np.arange(1, number + 1)[:, None] * g ** -np.arange(1.0, 4.0)
    points: NDArray[np.float64] = (0.5 + steps) % 1
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
def _marginal(likelihoods: Likelihoods, covariance: jax.Array) -> Any:
    """Of covariances S (G, 2, 2): log likelihoods (G,), the mean's (G, 2) and its precision.

    With P the precision and h the pull of a segment, and V = (P^-1 + S)^-1, its rows tell of the
    mean with precision V and pull r = (1 + P S)^-1 h.
    """

    def of_one(S: jax.Array) -> tuple[jax.Array, ...]:
        V, (r_A, r_B), log_determinant = _marginalized(likelihoods, S)
        h_A: Any = likelihoods.pull_A
        h_B: Any = likelihoods.pull_B
        s_A, s_B = S[0, 0] * r_A + S[0, 1] * r_B, S[0, 1] * r_A + S[1, 1] * r_B
        of_each = *V, r_A, r_B, h_A * s_A + h_B * s_B - log_determinant
        AA, AB, BB, A, B, own = (jnp.sum(x) for x in of_each)
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

    def add(moments: Any, one: Any) -> tuple[Any, None]:
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
    likelihoods: Any, S: jax.Array
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
