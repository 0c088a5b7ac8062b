"""The most probable population, and the distributions of its segments."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import Listener, Stage
from platt_jax.options import Options
from platt_jax.population import places, recentring
from platt_jax.population.gaussians import NormalMoments, Normals, normals
from platt_jax.population.integral import plausible_populations
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import COARSE, Total, fine
from platt_jax.population.regression import Design, Distributions, Regression, searched
from platt_jax.population.search import Estimate, Position, covariance_errors, estimated
from platt_jax.population.segments import Coordinates, Segments
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.population.symmetric import Square, Symmetric
from platt_jax.results.covariates import GivenCovariates
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population
from platt_jax.solver.solution import ProblemInputs
from platt_jax.status import Flag, Status

# Standard deviations of the population at the start.
START_SPREAD = 0.5
# Minimum information of all rows about each direction of (A, B), to estimate the population anew.
_LITTLE = 1e-3
# Maximum number of passes under wider populations. Each may double the widest spread.
_MOST_WIDENINGS = 3


def estimable(pooled: Fit) -> bool:
    """Whether the fit of all rows is one that segments can differ from."""
    return bool(pooled.status == Status.CONVERGED and _varies(pooled))


def _varies(pooled: Fit) -> bool:
    """Whether all rows have finite scores and labels of several values."""
    flagged = pooled.flags & (Flag.ONE_CLASS | Flag.CONSTANT_SCORES)
    return bool(np.isfinite(pooled.A) and not flagged)


def estimate_population(
    segments: Segments,
    pooled: Fit,
    options: Options,
    progress: bool | Listener = False,
    near: Population | None = None,
    covariates: GivenCovariates | None = None,
) -> tuple[Fit | None, Population]:
    """The fit of each segment with the population as prior, and the population.

    The search starts from the population `near`, if it is given and has converged. With covariates
    the population's mean follows them: those of a table, or the numbers of rows. The fit is None
    if there is no population to estimate, or if the search did not converge and
    its population says less of the rows than the curve of all rows, `pooled`. Labels are
    the targets. Segments that are left out, see `StandardizedSegments.without_far_scores`, are
    fitted alone, with `options.targets`: they have flat likelihoods and Flag.OUTLIER.
    """
    number = segments.total(np.array([len(segments.keys)], float))[0]
    if number < 2 or not _varies(pooled):
        return None, Population.not_estimated(len(segments.keys))
    user_options, options = options, replace(options, targets="none").with_tol(segments.dtype)
    coordinates = segments.coordinates(options)
    standardized = StandardizedSegments(segments, coordinates, options)
    matrix = coordinates.matrix
    mean = matrix @ np.array([pooled.A, pooled.B], float)
    start = normals(mean, START_SPREAD**2 * np.eye(2))
    if near is not None and near.status == Status.CONVERGED:
        start = normals(matrix @ near.mean, matrix @ near.covariance @ matrix.T)
    stage = Stage.of(progress, "first fit", last=False)
    fit = standardized.modes(start, None, stage)
    standardized = standardized.without_far_scores(fit)
    around = standardized.around(fit, start)
    if standardized.left_out is not None:
        mean = standardized.curve_of_others(around, start)
        alone = segments.fit(ProblemInputs(), user_options, stage)
    elif not estimable(pooled):
        return None, Population.not_estimated(len(segments.keys))
    nodes, regression = places.placed(around), None
    if covariates is None:
        mode = estimated(standardized, mean, start, nodes, progress)
    else:
        design = Design.of(covariates, segments.keys, fit, standardized.left_out, segments.total)
        standardized, mode, regression = searched(
            standardized, design, mean, start, nodes, progress
        )
    if mode.status == Status.MAX_ITERATIONS and not is_better_than_one_curve(
        standardized, mean, mode.at.log_likelihood
    ):
        return None, Population.not_estimated(len(segments.keys), mode.status)
    likelihoods = mode.at.likelihoods
    means = _means(likelihoods, mode.population, len(segments.keys))
    moments = _integrated(standardized, mode, likelihoods, means, mean, regression, progress)
    if regression is not None:
        moments, regression = regression.averaged(moments, segments.total)
        standardized = standardized._replace(effects=regression.effects)
    fit = standardized.modes(mode.population, means, Stage.of(progress))
    population = _result(mode, moments, coordinates, len(segments.keys), regression, segments.total)
    if standardized.left_out is None:
        return fit, population
    return with_left_out(fit, population, alone, standardized.left_out)


def with_left_out(
    fit: Fit, population: Population, alone: Fit, out: NDArray[np.bool_]
) -> tuple[Fit, Population]:
    """Segments that are left out have their fit alone, without pooling, and a flag."""
    alone = replace(alone, flags=alone.flags | Flag.OUTLIER)
    fit = jax.tree.map(
        lambda x, y: np.where(out.reshape(-1, *[1] * (x.ndim - 1)), x, y), alone, fit
    )
    mean = np.stack([fit.A, fit.B], -1).astype(float)
    vectors, matrices = out[:, None], out[:, None, None]
    return fit, replace(
        population,
        likelihood_precision=np.where(matrices, 0, population.likelihood_precision),
        likelihood_pull=np.where(vectors, 0, population.likelihood_pull),
        posterior_mean=np.where(vectors, mean, population.posterior_mean),
        posterior_covariance=np.where(
            matrices, fit.covariance.astype(float), population.posterior_covariance
        ),
        shrinkage=np.where(out, 0.0, population.shrinkage),
    )


def is_better_than_one_curve(
    segments: StandardizedSegments, curve: NDArray[np.float64], log_likelihood: float
) -> bool:
    """Whether a log-likelihood of all rows is larger than one curve's (2,)."""
    nodes = Normals(*(np.full(len(segments.segments.keys), x) for x in (*curve, 0.0, 0.0, 0.0)))
    losses = segments._replace(effects=0.0).losses(COARSE, nodes)[:, 0]
    return log_likelihood > -float(segments.total(np.array([losses.sum(dtype=float)]))[0])


def _integrated(
    segments: StandardizedSegments,
    found: Estimate,
    likelihoods: Likelihoods,
    start: NDArray[np.float64],
    center: NDArray[np.float64],
    regression: Regression | None,
    progress: bool | Listener,
) -> Distributions:
    """The distributions of the segments, and the likelihoods that they are made from.

    Normal likelihoods hold near the population under which a pass made them. If the estimate is
    uncertain, others are plausible, up to much wider ones. So a pass is made under the widest, but
    spreads grow little by little: far from a narrow population its normal likelihoods promise far
    too much to segments with rare positives. The start (K, 2) are the means of the posteriors under
    the estimate, the center (2,) is the mean of the prior of the population's mean.
    """
    integrated = partial(
        plausible_populations,
        center=center[None] if regression is None else regression.centers(center),
        certain=found.certain,
        total=segments.total,
        covariates=None if regression is None else regression.design.standardized,
    )
    population = found.population
    populations = integrated(likelihoods, population)
    limit = population.covariance + START_SPREAD**2 * np.eye(2)
    stage = Stage.of(progress, "population, uncertainty", last=False)
    for _ in range(0 if found.certain else _MOST_WIDENINGS):
        covariance, within = _at_most(populations.new.covariance, limit)
        wide = normals(population.mean, covariance)
        nodes = places.placed(segments.around(segments.modes(wide, start), wide))
        grid = fine(found.at.posteriors.number)
        likelihoods = Position.of(segments, grid, wide, nodes, stage).likelihoods
        populations = integrated(likelihoods, population)
        if within:
            break
        limit = 4 * limit
    coefficients = None if regression is None else populations.coefficients
    moments = Distributions(likelihoods, populations.segments(), populations.new, coefficients)
    return moments if found.certain else _recentred(segments, moments, center, stage)


def _recentred(
    segments: StandardizedSegments, known: Distributions, center: NDArray[np.float64], stage: Stage
) -> Distributions:
    """The distributions around the mean that the rows ask for; see `recentring`."""
    posterior, new = known.segments, known.new
    response = recentring.response_of(known.likelihoods.precision, new.covariance)
    off = float(new.mean[1] - center[1])
    shift = recentring.shift_of_mean(segments, COARSE, normals(*posterior), response, off, stage).by
    posterior = posterior._replace(mean=recentring.shifted(posterior.mean, response, shift))
    new = new._replace(mean=new.mean + np.array([0, shift]))
    return known._replace(segments=posterior, new=new)


def _means(likelihoods: Likelihoods, population: Normals, segments: int) -> NDArray[np.float64]:
    """(K, 2), the means of the posteriors under a population, on the host."""
    posteriors: Normals = places.fetched(likelihoods.under(population))
    return posteriors.mean[:segments]


def _at_most(
    covariance: NDArray[np.float64], limit: NDArray[np.float64]
) -> tuple[NDArray[np.float64], bool]:
    """The covariance (2, 2), with no larger variance than `limit` in any direction.

    Also returns whether it had none before.
    """
    root = np.linalg.cholesky(limit)
    values, vectors = _ratios(covariance, root)
    factor = root @ vectors
    return (factor * np.minimum(values, 1)) @ factor.T, bool(values[-1] <= 1)


def _ratios(covariance: NDArray[Any], root: NDArray[Any]) -> tuple[Any, Any]:
    """Variances of a covariance (2, 2) relative to F F', ascending, and their directions."""
    inverse = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(inverse @ covariance @ inverse.T)
    return values, vectors


def identifies_population(likelihoods: Likelihoods) -> bool:
    """Whether likelihoods of segments, in standardized coordinates, say enough of a population."""
    total = likelihoods.precision.matrices.sum(0)
    informed = np.count_nonzero(likelihoods.precision.BB)
    return bool(informed >= 2 and np.linalg.eigvalsh(total)[0] >= _LITTLE)


def _result(
    found: Estimate,
    known: Distributions,
    coordinates: Coordinates,
    segments: int,
    regression: Regression | None,
    total: Total,
) -> Population:
    """The population in the coordinates of the original scores."""
    back: Any = np.linalg.inv(coordinates.matrix)
    root, spread = back @ found.population.factor, found.spread
    narrow = np.linalg.inv(found.population.covariance)
    likelihoods, posteriors, new, _ = known
    covariates = None if regression is None else regression.original(back, total)
    by_segment = places.fetched(_by_segment(likelihoods, posteriors, back, narrow))
    new = new.transformed(back)
    return Population(
        mean=back @ found.population.mean,
        covariance=root @ root.T,
        mean_covariance=root @ spread[:2, :2] @ root.T,
        covariance_errors=covariance_errors(root, spread[2:, 2:]),
        status=found.status,
        predictive_mean=new.mean,
        predictive_covariance=new.covariance,
        covariates=covariates,
        **{name: x[:segments] for name, x in by_segment.items()},
    )


@places.program
def _by_segment(
    likelihoods: Likelihoods, posteriors: NormalMoments, back: Any, narrow: Any
) -> dict[str, Any]:
    """The fields of `Population` with a leading axis of segments, given their posteriors (K,).

    `back` maps to the original coordinates, `narrow` is the precision of the population.
    """
    mean, covariance = posteriors
    xp = places.namespace(mean)
    original, turn = likelihoods.transformed(back), Square.of(back)
    prior, conditional = Symmetric.of(narrow), likelihoods.precision.plus(narrow).inverse()
    trace = prior.AA * conditional.AA + 2 * prior.AB * conditional.AB + prior.BB * conditional.BB
    return {
        "likelihood_precision": original.precision.matrices,
        "likelihood_pull": original.pull,
        "posterior_mean": xp.stack(turn.times(mean[:, 0], mean[:, 1]), -1),
        "posterior_covariance": turn.congruent(Symmetric.of(covariance)).matrices,
        "shrinkage": xp.clip(trace / 2, 0, 1),
    }


def unchanged_population(population: Population, likelihoods: Likelihoods) -> Population:
    """The same population, with segments of these likelihoods, which say almost nothing of it."""
    prior = normals(population.predictive_mean, population.predictive_covariance)
    posterior = likelihoods.under(prior)
    return replace(
        population,
        likelihood_precision=likelihoods.precision.matrices,
        likelihood_pull=likelihoods.pull,
        posterior_mean=posterior.mean,
        posterior_covariance=posterior.covariance,
        shrinkage=np.ones(len(likelihoods.pull_A)),
    )
