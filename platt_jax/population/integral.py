"""Distributions of the segments when their population is uncertain.

A few segments say little about their spread: a single estimate of it is too small or too large, and
often 0. So results are averaged over populations, weighted by their posterior probability under
the prior of `population_prior`. The mean is integrated out exactly; covariances are sampled.

With P covariates z of the segments the mean is x' gamma, with x = (1, z) and Q = 1 + P coefficients
gamma for A and for B each, which are integrated out in its place.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.population.gaussians import NormalMoments, Normals
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.places import (
    fetched,
    inner,
    is_there,
    namespace,
    product,
    program,
    sent,
)
from platt_jax.population.population_prior import MEAN_PRECISION, SCALE
from platt_jax.population.quadrature import Total, by_blocks, joined
from platt_jax.population.symmetric import Square, Symmetric

# Maximum and minimum number of sampled covariances, each with a correlation of either sign. More
# segments need fewer: they say more.
_MOST_DRAWS, _LEAST_DRAWS = 256, 64
# Draws times segments.
_AT_ONCE = 1 << 18
# Terms of sums over segments that are one product; as many as there are without covariates.
_TERMS = 12

# Standard deviations and angles that are evaluated first, one after the other, and their gaps.
_FIRST = np.array([*[np.geomspace(0.01, 10, 24)] * 2, np.linspace(-3, 3, 24)])
_FIRST_GAPS = np.gradient(_FIRST, axis=1)
# Rounds of sampling, each with a part of the draws, one over these numbers. Each adapts to the
# posterior's moments in the round before.
_ROUNDS = 4, 2, 1
# Each point is drawn with either sign of the correlation: scores with the other sign, and labels
# changed, have the same spreads.
_OTHER_SIGN = 1, 1, -1


class _Spreads(NamedTuple):
    """Covariances as standard deviations and the inverse hyperbolic tangent of the correlation."""

    sd_A: NDArray[np.float64]
    sd_B: NDArray[np.float64]
    angle: NDArray[np.float64]

    @property
    def covariance(self) -> NDArray[np.float64]:
        """The covariances, (G, 2, 2)."""
        AB = np.tanh(self.angle) * self.sd_A * self.sd_B
        return Symmetric(self.sd_A**2, AB, self.sd_B**2).matrices

    @property
    def log_prior(self) -> NDArray[np.float64]:
        """The log prior density, (G,), up to a constant."""
        square = (self.sd_A**2 + self.sd_B**2) / SCALE**2
        # Both 1 - r^2 and the derivative of r by the angle are 1 / cosh^2.
        log_prior: NDArray[np.float64] = -square / 2 - 4 * np.log(np.cosh(self.angle))
        return log_prior


class _PopulationGrid(NamedTuple):
    """Likelihood and mean of populations with given covariances (G,)."""

    log_likelihood: NDArray[np.float64]  # (G,), with the mean integrated out
    mean: NDArray[np.float64]  # (G, Q, 2), the coefficients; without covariates the mean alone
    mean_covariance: NDArray[np.float64]  # (G, 2 Q, 2 Q), their covariance


class PlausiblePopulations(NamedTuple):
    """Populations, weighted by their posterior probability, with the segments' likelihoods."""

    likelihoods: Likelihoods
    covariance: NDArray[np.float64]  # (G, 2, 2)
    under: _PopulationGrid
    weights: NDArray[np.float64]  # (G,)
    back: NDArray[Any]  # (2, 2), the matrix that maps to the original (A, B)
    z: Any  # (K, P), the covariates of the segments

    @property
    def new(self) -> NormalMoments:
        """(A, B) of a segment without rows whose covariates are 0."""
        mean = self.weights @ self.under.mean[:, 0]
        off = self.under.mean[:, 0] - mean
        of_mean = self.under.mean_covariance[:, :2, :2]
        within = np.tensordot(self.weights, self.covariance + of_mean, 1)
        spread = within + (self.weights * off.T) @ off
        return NormalMoments(mean, spread).transformed(self.back)

    @property
    def coefficients(self) -> NormalMoments:
        """The coefficients, (2 Q,) and their covariance (2 Q, 2 Q)."""
        means = self.under.mean.reshape(len(self.weights), -1)
        mean = self.weights @ means
        off = means - mean
        covariance = np.tensordot(self.weights, self.under.mean_covariance, 1)
        covariance = covariance + (self.weights * off.T) @ off
        return NormalMoments(mean, covariance).transformed(
            np.kron(np.eye(len(mean) // 2), self.back)
        )

    def segments(self) -> NormalMoments:
        """(A, B) of all segments (K,)."""
        shared = self.covariance, self.under.mean, self.under.mean_covariance, self.weights
        evidence, Q = _Evidence(self.likelihoods, self.z), self.under.mean.shape[1]
        blocks = by_blocks(_moments, shared, evidence, len(self.weights) * Q)
        mean, square = joined(blocks)
        return _centred(mean, square, self.back)


def plausible_populations(
    likelihoods: Likelihoods,
    population: Normals,
    center: NDArray[np.float64],
    certain: bool,
    total: Total,
    covariates: NDArray[np.float64] | None = None,
) -> PlausiblePopulations:
    """The populations from which the segments may come.

    If the covariance is `certain`, only the mean varies. The center (Q, 2) is the mean of the prior
    of the population's mean, and of the coefficients of the covariates (K, P); `total` is as in
    `Segments`.
    """
    # In units of the scores weighted by information, which do not depend on where the rows are.
    to = likelihoods.coordinates(total).matrix
    back, estimate = np.linalg.inv(to), to @ population.covariance @ to.T
    z: Any = covariates
    if covariates is None:
        z = np.empty((len(likelihoods.pull_A), 0))
    elif is_there(likelihoods):
        z = sent(covariates, 0)
    rows, center = _Evidence(likelihoods.transformed(to), z), center @ to.T
    if certain:
        covariance, weights = estimate[None], np.ones(1)
        under = _under(rows, covariance, center, total)
    else:
        covariance, under, weights = _drawn(rows, estimate, center, total)
    return PlausiblePopulations(rows.likelihoods, covariance, under, weights, back, z)


class _Evidence(NamedTuple):
    """What the rows of segments (K,) say of them, and their covariates (K, P)."""

    likelihoods: Likelihoods
    z: Any


def _drawn(
    rows: _Evidence,
    covariance: NDArray[np.float64],
    center: NDArray[np.float64],
    total: Total,
) -> tuple[NDArray[np.float64], _PopulationGrid, NDArray[np.float64]]:
    """Covariances, likelihoods and means under each, and their weights.

    By importance sampling: the three numbers of a covariance are drawn independently, from
    Student's t distributions with 4 degrees of freedom.
    """
    number = int(total(np.array([len(rows.likelihoods.pull_A)], float))[0])
    deviations = np.sqrt(np.diag(covariance))
    angle = np.arctanh(np.clip(covariance[0, 1] / deviations.prod(), -0.9, 0.9))
    middle, scale = np.array([*deviations, angle]), np.empty(3)
    lines = np.tile(middle, (3, len(_FIRST[0]), 1))
    lines[range(3), :, range(3)] = _FIRST
    spreads = _Spreads(*lines.reshape(-1, 3).T)
    under = _under(rows, spreads.covariance, center, total)
    logs = (under.log_likelihood + spreads.log_prior).reshape(3, -1) + np.log(_FIRST_GAPS)
    for i in range(3):
        weights = _normalized(logs[i])
        middle[i] = weights @ _FIRST[i]
        scale[i] = max(
            np.sqrt(weights @ (_FIRST[i] - middle[i]) ** 2), weights @ _FIRST_GAPS[i] / 2
        )
    t = _students_t(_even_points(_draws(number)))
    for share in _ROUNDS:
        draws = t[: len(t) // share]
        point = middle + scale * np.concatenate([draws, draws * _OTHER_SIGN])
        point[:, :2] = np.abs(point[:, :2])
        log_proposal = _log_density((point - middle) / scale)
        mirrored = _log_density((point[:, :2] + middle[:2]) / scale[:2])
        log_proposal[:, :2] = np.logaddexp(log_proposal[:, :2], mirrored)
        spreads = _Spreads(*point.T)
        under = _under(rows, spreads.covariance, center, total)
        weights = _normalized(under.log_likelihood + spreads.log_prior - log_proposal.sum(axis=1))
        middle = weights @ point
        scale = np.sqrt(weights @ (point - middle) ** 2) + 1e-3
    return spreads.covariance, under, weights


def _draws(segments: int) -> int:
    """The number of covariances to draw, each with either sign of the correlation.

    It is the same for slightly more or fewer segments, such as those that `places.sent` adds.
    """
    step = 1 << max((segments - 1).bit_length() - 4, 0)
    about = -(-segments // step) * step
    return int(np.clip(_AT_ONCE // about, _LEAST_DRAWS, _MOST_DRAWS))


def _normalized(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(logs - logs.max())
    normalized: NDArray[np.float64] = weights / weights.sum()
    return normalized


def _even_points(number: int) -> NDArray[np.float64]:
    """(number, 3) points that fill the unit cube evenly.

    Steps are powers of 1 / g, with g^4 = g + 1 (Roberts 2018).
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
    """The log density of that t distribution, up to a constant."""
    return -2.5 * np.log1p(t * t / 4)


def _under(
    rows: _Evidence,
    covariance: NDArray[np.float64],
    center: NDArray[np.float64],
    total: Total,
) -> _PopulationGrid:
    """Likelihood and mean of populations with covariances S (G, 2, 2).

    A segment with precision P and pull h informs on the mean with precision V = (P^-1 + S)^-1 and
    pull r = (1 + P S)^-1 h. For 2 by 2 matrices, with P* the adjugate and
    D = |1 + P S| = 1 + tr(P S) + |P| |S|: V = (P + |P| S*) / D, r = (h + S* P* h) / D and
    h' S r = (h' S h + |S| h' P* h) / D. So every sum over segments has terms divided by D. It
    informs on the coefficients of its covariates x with precisions x_p x_q V and pulls x_p r.
    """
    S, Q = Symmetric.of(covariance), len(center)
    pairs, T = [(p, q) for p in range(Q) for q in range(p, Q)], S.adjugate
    blocks = by_blocks(_sums, S, rows, 8 * len(covariance))
    sums = total(sum(map(fetched, blocks)))
    precision = np.empty((len(covariance), Q, 2, Q, 2))
    for (p, q), (AA, AB, BB, determinant) in zip(pairs, _quadruples(sums), strict=False):
        block = Symmetric(
            AA + determinant * T.AA, AB + determinant * T.AB, BB + determinant * T.BB
        ).plus(MEAN_PRECISION * np.eye(2) * (p == q))
        precision[:, p, :, q] = precision[:, q, :, p] = block.matrices
    pull = np.empty((len(covariance), Q, 2))
    for p, (h_A, h_B, q_A, q_B) in enumerate(_quadruples(sums[4 * len(pairs) : -5])):
        r_A, r_B = T.times(q_A, q_B)
        pull[:, p] = np.stack([h_A + r_A, h_B + r_B], -1) + MEAN_PRECISION * center[p]
    h_AA, h_AB, h_BB, hq, log_D = sums[-5:]
    inverse, log_determinant = _inverted(precision.reshape(-1, 2 * Q, 2 * Q))
    vector = pull.reshape(-1, 1, 2 * Q)
    mean = (inverse * vector).sum(-1)
    gain = (mean * vector[:, 0]).sum(-1)
    gain += S.AA * h_AA + 2 * S.AB * h_AB + S.BB * h_BB + S.determinant * hq
    log_likelihood = (gain - log_D - log_determinant) / 2
    return _PopulationGrid(log_likelihood, mean.reshape(-1, Q, 2), inverse)


def _quadruples(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n // 4, 4, G), the first sums (n, G) by four."""
    return sums[: len(sums) // 4 * 4].reshape(-1, 4, sums.shape[1])


def _inverted(matrices: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The inverses of precisions (G, 2 Q, 2 Q), and the logarithms of their determinants."""
    if matrices.shape[-1] == 2:
        only = Symmetric.of(matrices)
        return only.inverse().matrices, np.log(only.determinant)
    return np.linalg.inv(matrices), np.linalg.slogdet(matrices)[1]


@program
def _sums(S: Symmetric, rows: _Evidence) -> NDArray[np.float64]:
    """The sums of `_under` over some segments, (n, G)."""
    (P, h_A, h_B), x = rows.likelihoods, [1.0, *rows.z.T]
    xp = namespace(h_A)
    S_terms = xp.stack([xp.ones_like(S.AA), S.AA, 2 * S.AB, S.BB, S.determinant])
    P_terms = xp.stack([xp.ones_like(h_A), *P, P.determinant])
    D = product(S_terms, P_terms)
    q_A, q_B = P.adjugate.times(h_A, h_B)
    squares = h_A * h_A, h_A * h_B, h_B * h_B, h_A * q_A + h_B * q_B
    products = (x[p] * x[q] for p in range(len(x)) for q in range(p, len(x)))
    precisions = (factor * term for factor in products for term in P_terms[1:])
    pulls = (covariate * term for covariate in x for term in (h_A, h_B, q_A, q_B))
    terms, over_D = xp.stack([*precisions, *pulls, *squares]), 1 / D
    # Small products: OpenBLAS would take several threads for larger ones, which wait for each other
    # where `by_blocks` has several of its own.
    parts = [inner(terms[i : i + _TERMS], over_D) for i in range(0, len(terms), _TERMS)]
    sums: NDArray[np.float64] = xp.concatenate([*parts, xp.log(D).sum(1)[None]])
    return sums


@program
def _moments(
    shared: tuple[NDArray[Any], ...], rows: _Evidence
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The mean (k, 2) and the second moments (k, 2, 2) of some segments.

    Given S and the population's mean, the posterior has mean J (mean + S h) and covariance J S,
    with J = (1 + S P)^-1 = (1 + P* S*) / D.
    """
    covariance, coefficients, uncertainty, weights = shared
    ((P, h_A, h_B), z), S = rows, Symmetric.of(covariance[:, None])
    number, xp = coefficients.shape[1], namespace(h_A)
    x = xp.concatenate([xp.ones_like(h_A)[None], z.T])
    pairs = (x[:, None] * x).reshape(number * number, len(h_A))

    def by_segment(values: Any, terms: Any) -> Any:
        """(G, k), sums over (G, n) values times (n, k) terms; (G, 1) without covariates."""
        return values if number == 1 else product(values.reshape(len(values), -1).T, terms)

    mean_A, mean_B = (by_segment(coefficients[:, :, i], x) for i in (0, 1))
    M = Symmetric(
        *(
            by_segment(uncertainty[:, i::2, j::2].reshape(len(weights), -1), pairs)
            for i, j in ((0, 0), (0, 1), (1, 1))
        )
    )
    T, Q = S.adjugate, P.adjugate
    trace = P.AA * S.AA + 2 * P.AB * S.AB + P.BB * S.BB
    over_D = 1 / (1 + trace + P.determinant * S.determinant)
    J = Q.product(T).plus_identity().scaled(over_D)
    s_A, s_B = S.times(h_A, h_B)
    A, B = J.times(mean_A + s_A, mean_B + s_B)
    # J S, and the covariance M of the population's mean, multiplied by J on both sides.
    spread = S.scaled(over_D).plus(Q.scaled(S.determinant * over_D)).plus(J.congruent(M))
    square = spread.plus(Symmetric(A * A, A * B, B * B))
    A, B, *squares = (product(weights[:, None], x)[0] for x in (A, B, *square))
    return xp.stack([A, B], -1), Symmetric(*squares).matrices


@program
def _centred(mean: Any, square: Any, back: Any) -> NormalMoments:
    """The distributions of `back @ (A, B)`, from means and second moments."""
    A, B = mean[:, 0], mean[:, 1]
    spread = Symmetric.of(square).plus(Symmetric(A * A, A * B, B * B).scaled(-1))
    to = Square.of(back)
    return NormalMoments(namespace(mean).stack(to.times(A, B), -1), to.congruent(spread).matrices)
