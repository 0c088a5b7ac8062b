"""The estimate of the levels' spreads, and of all effects.

Expectation propagation (Minka 2001): each segment's likelihood is a normal density that gives the
right mean and covariance under what all other segments say about its (A, B). Such a density needs
the segment's loss at the nodes of a quadrature, one pass for all segments. Given these densities
everything is normal (`levels`); steps of Fisher scoring move the levels' spreads.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import Listener, Stage
from platt_jax.options import Options
from platt_jax.population import quadrature, recentring
from platt_jax.population.estimate import START_SPREAD, is_better_than_one_curve
from platt_jax.population.level_uncertainty import is_certain, over_spreads, with_joint_errors
from platt_jax.population.levels import Design, LevelPosteriors, NormalMoments, Scoring, scored
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import COARSE, Normals, fine, normals
from platt_jax.population.segments import Coordinates, Segments
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.population.symmetric import Symmetric
from platt_jax.results.fit import Fit
from platt_jax.status import Status

_MOST_COARSE = 20  # maximum number of passes with the coarse grid
_LEAST_FINE, _MOST_FINE = 2, 20  # numbers of passes with the fine grid
_MOST_ROUNDS = 40  # maximum number of rounds without passes
_STEPS = 2  # maximum number of steps of the spreads per pass
# Maximum change of a root of a covariance in the last pass with the coarse grid.
_TOLERANCE = 3e-3
# Maximum length of a converged search's last step, in standard errors; and where all passes were
# made, because errors of the quadrature move the spreads from one to the next.
_NEAR, _NEAR_AT_LAST = 0.05, 0.35
# Smallest share of a segment's posterior precision that is left to all other segments: a bound on
# errors of approximate covariances.
_LEAST_SHARE = 1e-3


class EstimatedLevels(NamedTuple):
    """The result, in standardized coordinates."""

    posteriors: LevelPosteriors  # averaged over the uncertainty of the spreads
    unseen: list[NDArray[np.float64]]  # (2, 2) for each level, of an unseen value's effect
    steps: list[Scoring]  # the last step of each level
    likelihoods: Likelihoods  # of the segments
    cavity: Normals  # the cavity: what all other segments say about each segment's (A, B)
    status: Status
    coordinates: Coordinates


def estimate_levels(
    segments: Segments,
    design: Design,
    pooled: Fit,
    options: Options,
    progress: bool | Listener = False,
) -> tuple[Fit, EstimatedLevels] | None:
    """The most probable (A, B) of each segment given all others, and the levels.

    None if the search did not converge and its levels say less of the rows than the curve of all
    rows: by what they say of each segment without its own rows.

    Args:
        segments: the segments.
        design: their values of the levels.
        pooled: the fit of all rows.
        options: how to fit.
        progress: see `fit_segments`.
    """
    options = replace(options, targets="none")
    coordinates = segments.coordinates(options)
    standardized = StandardizedSegments(segments, coordinates, options)
    steps = _first_steps(design)
    mean = coordinates.matrix @ np.array([pooled.A, pooled.B], float)
    cavity = normals(mean, START_SPREAD**2 * np.eye(2))
    first = standardized.modes(cavity, None, Stage.of(progress, "first fit", last=False))
    nodes = standardized.around(first, cavity)
    grid, passes, fine_passes = COARSE, 0, 0
    while True:
        passes += 1
        stage = Stage.of(progress, f"levels, pass {passes}", last=False)
        losses = standardized.losses(grid, nodes, stage)
        found = quadrature.posteriors(grid, losses, nodes, cavity, standardized.total)
        likelihoods = Likelihoods.of(found, cavity)
        posteriors, steps, moved = _scored(design, likelihoods, mean, steps)
        nodes, cavity = _around(posteriors, likelihoods)
        if grid is COARSE:
            if moved <= _TOLERANCE or passes >= _MOST_COARSE:
                grid = fine(float(len(segments.keys)))
            continue
        fine_passes += 1
        done = fine_passes >= _LEAST_FINE and _decrement(steps) <= _NEAR
        if done or fine_passes >= _MOST_FINE:
            break
    if _status(steps) == Status.MAX_ITERATIONS and not is_better_than_one_curve(
        standardized, mean, found.log_likelihood
    ):
        return None
    steps = with_joint_errors(design, likelihoods, mean, steps)
    posteriors, unseen = over_spreads(design, likelihoods, mean, steps)
    if not is_certain(steps):
        stage = Stage.of(progress, "levels, mean", last=False)
        posteriors = _recentred(standardized, design, likelihoods, mean, steps, posteriors, stage)
    fit = standardized.modes(cavity, nodes.mean, Stage.of(progress))
    _, cavity = _around(posteriors, likelihoods)
    status = _status(steps)
    return fit, EstimatedLevels(posteriors, unseen, steps, likelihoods, cavity, status, coordinates)


def _recentred(
    segments: StandardizedSegments,
    design: Design,
    likelihoods: Likelihoods,
    center: NDArray[np.float64],
    steps: list[Scoring],
    posteriors: LevelPosteriors,
    stage: Stage,
) -> LevelPosteriors:
    """The posteriors around the mean curve that the rows ask for; see `recentring`.

    The mean curve's own posterior stays: it is the estimate of the model's parameter.
    """
    covariances = [step.covariance for step in steps]

    def posteriors_around(center: NDArray[Any]) -> LevelPosteriors:
        return design.posteriors(likelihoods, covariances, center)

    # All means are linear in the center of the mean's prior; a change of its B by 1 moves them so.
    before = posteriors_around(center)
    moved = posteriors_around(center + np.array([0.0, 1.0]))
    by_center = moved.root.mean[0, 1] - before.root.mean[0, 1]
    response = (moved.segments.mean - before.segments.mean) / by_center
    own, total = posteriors.segments, 0.0
    for _ in range(recentring.STEPS):
        off = float(posteriors.root.mean[0, 1] + total - center[1])
        at = normals(own.mean + response * total, own.covariance)
        total += recentring.step_of_mean(segments, COARSE, at, off, response, stage)
    part = total / by_center

    def shifted(x: NormalMoments, before: NormalMoments, moved: NormalMoments) -> NormalMoments:
        return x._replace(mean=x.mean + part * (moved.mean - before.mean))

    is_moments = lambda x: isinstance(x, NormalMoments)  # noqa: E731
    made: LevelPosteriors = jax.tree.map(shifted, posteriors, before, moved, is_leaf=is_moments)
    return made._replace(root=posteriors.root)


def _first_steps(design: Design) -> list[Scoring]:
    levels = len(design.sizes)
    return [Scoring(START_SPREAD**2 / levels * np.eye(2))] * levels


def _scored(
    design: Design,
    likelihoods: Likelihoods,
    center: NDArray[np.float64],
    steps: list[Scoring],
) -> tuple[LevelPosteriors, list[Scoring], float]:
    """Steps of the spreads with these likelihoods; posteriors and steps at the end.

    Also returns the largest change of a root of a covariance.
    """
    before = [np.linalg.cholesky(step.covariance) for step in steps]
    for _ in range(_STEPS):
        posteriors = design.posteriors(likelihoods, [step.covariance for step in steps], center)
        steps = [scored(*each) for each in zip(posteriors.effects, steps, strict=True)]
        if _decrement(steps) <= _NEAR:
            break
    moved = max(
        float(np.abs(np.linalg.cholesky(step.covariance) - root).max())
        for step, root in zip(steps, before, strict=True)
    )
    return posteriors, steps, moved


def _around(posteriors: LevelPosteriors, likelihoods: Likelihoods) -> tuple[Normals, Normals]:
    """The segments' posteriors, and their cavities: what all others say of each."""
    mean, covariance = posteriors.segments
    spread = Symmetric.of(covariance)
    precision = spread.inverse()
    less = Symmetric(*(a - b for a, b in zip(precision, likelihoods.precision, strict=True)))
    least = Symmetric(*(_LEAST_SHARE * x for x in precision))
    rest = Symmetric(*(a - b for a, b in zip(less, least, strict=True))).positive_part()
    rest = Symmetric(*(a + b for a, b in zip(rest, least, strict=True)))
    pull = np.stack(precision.times(*mean.T), -1) - likelihoods.pull
    rest_covariance = rest.inverse()
    cavity = Normals(*rest_covariance.times(*pull.T), *rest_covariance.factor())
    return Normals(mean[:, 0], mean[:, 1], *spread.factor()), cavity


def _decrement(steps: list[Scoring]) -> float:
    """The longest step, in standard errors."""
    return max(step.decrement for step in steps)


def _status(steps: list[Scoring]) -> Status:
    if _decrement(steps) > _NEAR_AT_LAST:
        return Status.MAX_ITERATIONS
    if any(step.at_edge for step in steps):
        return Status.BOUNDARY
    return Status.CONVERGED
