"""The estimate of the levels' spreads, and of all effects.

Expectation propagation (Minka 2001): each segment's likelihood is a normal density that gives the
right mean and covariance under what all other segments say about its (A, B). Such a density needs
the segment's loss at the nodes of a quadrature, one pass for all segments. Given these densities
everything is normal (`levels`); steps of Fisher scoring move the levels' spreads.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import Listener, Stage
from platt_jax.options import Options
from platt_jax.population import quadrature
from platt_jax.population.estimate import START_SPREAD
from platt_jax.population.level_uncertainty import over_spreads
from platt_jax.population.levels import Design, LevelPosteriors, Scoring, scored
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import COARSE, Grid, Normals, fine, normals
from platt_jax.population.segments import Coordinates, Segments
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.population.symmetric import Symmetric
from platt_jax.results.fit import Fit
from platt_jax.results.population import PopulationStatus

_MOST_PASSES = 40  # maximum number of passes with the coarse grid
_FINE_PASSES = 2  # number of passes with the fine grid, once the coarse one has converged
_STEPS = 2  # maximum number of steps of the spreads per pass
# Maximum change of a root of a covariance in the last pass with the coarse grid.
_TOLERANCE = 3e-3
# Maximum length of a converged search's last step, in standard errors.
_NEAR = 0.05
# Smallest share of a segment's posterior precision that is left to all other segments: a bound on
# errors of approximate covariances.
_LEAST_SHARE = 1e-3


class EstimatedLevels(NamedTuple):
    """The result, in standardized coordinates."""

    posteriors: LevelPosteriors  # averaged over the uncertainty of the spreads
    unseen: list[NDArray[np.float64]]  # (2, 2) for each level, of an unseen value's effect
    steps: list[Scoring]  # the last step of each level
    likelihoods: Likelihoods  # of the segments
    others: Normals  # what all other segments say about each segment's (A, B)
    status: PopulationStatus
    coordinates: Coordinates


def estimate_levels(
    segments: Segments,
    design: Design,
    pooled: Fit,
    options: Options,
    progress: bool | Listener = False,
) -> tuple[Fit, EstimatedLevels]:
    """The most probable (A, B) of each segment given all others, and the levels.

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
    others = normals(mean, START_SPREAD**2 * np.eye(2))
    first = standardized.modes(others, None, Stage.of(progress, "first fit", last=False))
    nodes = standardized.around(first, others)
    grid, passes, left = COARSE, 0, _FINE_PASSES
    while True:
        passes += 1
        stage = Stage.of(progress, f"levels, pass {passes}", last=False)
        likelihoods = _likelihoods(standardized, grid, nodes, others, stage)
        posteriors, steps, moved = _scored(design, likelihoods, steps)
        nodes, others = _around(posteriors, likelihoods)
        if grid is not COARSE:
            left -= 1
        elif moved <= _TOLERANCE or passes >= _MOST_PASSES:
            grid = fine(float(len(segments.keys)))
        if not left:
            break
    fit = standardized.modes(others, nodes.mean, Stage.of(progress))
    return fit, _estimated(design, likelihoods, steps, coordinates)


def _first_steps(design: Design) -> list[Scoring]:
    levels = len(design.sizes)
    return [Scoring(START_SPREAD**2 / levels * np.eye(2))] * levels


def _estimated(
    design: Design, likelihoods: Likelihoods, steps: list[Scoring], coordinates: Coordinates
) -> EstimatedLevels:
    posteriors, unseen = over_spreads(design, likelihoods, steps)
    _, others = _around(posteriors, likelihoods)
    status = _status(steps)
    return EstimatedLevels(posteriors, unseen, steps, likelihoods, others, status, coordinates)


def _likelihoods(
    standardized: StandardizedSegments, grid: Grid, nodes: Normals, others: Normals, stage: Stage
) -> Likelihoods:
    """The likelihoods of the segments, by one pass over their rows."""
    losses = standardized.losses(grid, nodes, stage)
    made = quadrature.posteriors(grid, losses, nodes, others, standardized.total)
    return Likelihoods.of(made, others)


def _scored(
    design: Design, likelihoods: Likelihoods, steps: list[Scoring]
) -> tuple[LevelPosteriors, list[Scoring], float]:
    """Steps of the spreads with these likelihoods; posteriors and steps at the end.

    Also returns the largest change of a root of a covariance.
    """
    before = [np.linalg.cholesky(step.covariance) for step in steps]
    for _ in range(_STEPS):
        posteriors = design.posteriors(likelihoods, [step.covariance for step in steps])
        steps = [scored(*each) for each in zip(posteriors.effects, steps, strict=True)]
        if max(step.decrement for step in steps) <= _NEAR:
            break
    moved = max(
        float(np.abs(np.linalg.cholesky(step.covariance) - root).max())
        for step, root in zip(steps, before, strict=True)
    )
    return posteriors, steps, moved


def _around(posteriors: LevelPosteriors, likelihoods: Likelihoods) -> tuple[Normals, Normals]:
    """The segments' posteriors, and what all other segments say of each."""
    mean, covariance = posteriors.segments
    spread = Symmetric.of(covariance)
    precision = spread.inverse()
    less = Symmetric(*(a - b for a, b in zip(precision, likelihoods.precision, strict=True)))
    least = Symmetric(*(_LEAST_SHARE * x for x in precision))
    rest = Symmetric(*(a - b for a, b in zip(less, least, strict=True))).positive_part()
    rest = Symmetric(*(a + b for a, b in zip(rest, least, strict=True)))
    pull = np.stack(precision.times(*mean.T), -1) - likelihoods.pull
    of_rest = rest.inverse()
    others = Normals(*of_rest.times(*pull.T), *of_rest.factor())
    return Normals(mean[:, 0], mean[:, 1], *spread.factor()), others


def _status(steps: list[Scoring]) -> PopulationStatus:
    if max(step.decrement for step in steps) > _NEAR:
        return PopulationStatus.MAX_ITERATIONS
    if any(step.at_edge for step in steps):
        return PopulationStatus.BOUNDARY
    return PopulationStatus.CONVERGED
