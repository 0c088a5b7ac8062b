"""The estimate of the levels' spreads, and of all effects.

Expectation propagation (Minka 2001): each segment's likelihood is a normal density that gives the
right mean and covariance under what all other segments say about its (A, B). Such a density needs
the segment's loss at the nodes of a quadrature, one pass for all segments. Given these densities
everything is normal (`levels`); steps of Fisher scoring move the levels' spreads.

Few values say little about their spread: posteriors are averaged over it (`level_uncertainty`).
"""

from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import Listener, Stage
from platt_jax.options import Options
from platt_jax.population import places, quadrature, recentring
from platt_jax.population.estimate import START_SPREAD, is_better_than_one_curve
from platt_jax.population.gaussians import NormalMoments, Normals, normals
from platt_jax.population.level_uncertainty import (
    moved_covariance,
    over_spreads,
    spread_moves,
    with_joint_errors,
)
from platt_jax.population.levels import Design, LevelPosteriors, Scoring, scored
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import COARSE, Grid, fine
from platt_jax.population.segments import Coordinates, Segments
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.population.symmetric import Symmetric
from platt_jax.results.fit import Fit
from platt_jax.status import Status

_Array: TypeAlias = NDArray[Any]

_MOST_COARSE = 20  # maximum number of passes with the coarse grid
_LEAST_FINE, _MOST_FINE = 2, 20  # numbers of passes with the fine grid
# Passes with the fine grid after which likelihoods move half as far: spreads that overshoot in
# turns come to rest (damping, as Minka and Lafferty 2002 do).
_UNDAMPED = 8
_STEPS = 2  # maximum number of steps of the spreads per pass
_MOST_WIDENINGS = 3  # maximum number of passes under wider spreads
# Standard deviation up to which likelihoods made under the smallest spread hold.
_MODERATE = 0.3
# Maximum change of a root of a covariance in the last pass with the coarse grid.
_TOLERANCE = 3e-3
# Maximum length of a converged search's last step, in standard errors; and where all passes were
# made, because errors of the quadrature move the spreads from one to the next.
_NEAR, _NEAR_AT_LAST = 0.05, 0.35
# A log-likelihood that falls by so many times its size says that the cavities have run away: in
# ordinary worlds it falls by at most a quarter. Updates add a constant: one for each segment more.
_RUN_AWAY = 100
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
    left_out: NDArray[np.bool_] | None  # see `StandardizedSegments`


class _Recentred(NamedTuple):
    posteriors: LevelPosteriors
    missing: float  # number of positives, see `recentring.Shift`


def estimate_levels(
    segments: Segments,
    design: Design,
    pooled: Fit,
    options: Options,
    progress: bool | Listener = False,
) -> tuple[Fit, EstimatedLevels] | None:
    """The most probable (A, B) of each segment given all others, and the levels.

    None if its cavities ran away, if no mean curve gives about the number of positives seen, or if
    it did not converge and its levels say less of the rows than the curve of all rows: by what they
    say of each segment without its own rows.
    """
    options = replace(options, targets="none").with_tol(segments.dtype)
    coordinates = segments.coordinates(options)
    standardized = StandardizedSegments(segments, coordinates, options)
    steps = _first_steps(design)
    mean = coordinates.matrix @ np.array([pooled.A, pooled.B], float)
    start = normals(mean, START_SPREAD**2 * np.eye(2))
    first = standardized.modes(start, None, Stage.of(progress, "first fit", last=False))
    standardized = standardized.without_far_scores(first)
    nodes = standardized.around(first, start)
    if standardized.left_out is not None:
        mean = standardized.curve_of_others(nodes, start)
    cavity = Normals(*(np.full_like(nodes.mean_A, x) for x in start))
    grid, passes, fine_passes, least = COARSE, 0, 0, -np.inf
    likelihoods: Likelihoods | None = None
    while True:
        passes += 1
        stage = Stage.of(progress, f"levels, pass {passes}", last=False)
        new_likelihoods, log_likelihood = _likelihoods(standardized, grid, nodes, cavity, stage)
        if likelihoods is None or fine_passes < _UNDAMPED:
            likelihoods = new_likelihoods
        else:
            likelihoods = likelihoods.plus(new_likelihoods).times(0.5)
        if passes == 1:
            least = log_likelihood - _RUN_AWAY * (abs(log_likelihood) + len(segments.keys))
        if not log_likelihood > least:
            return None
        posteriors, steps, moved = _scored(design, likelihoods, mean, steps)
        nodes, cavity = _around(posteriors, likelihoods)
        if grid is COARSE:
            if moved <= _TOLERANCE or passes >= _MOST_COARSE:
                grid = fine(float(len(segments.keys)))
            continue
        fine_passes += 1
        settled = fine_passes >= _LEAST_FINE and _decrement(steps) <= _NEAR
        if settled or fine_passes >= _MOST_FINE:
            break
    if _status(steps) == Status.MAX_ITERATIONS and not is_better_than_one_curve(
        standardized, mean, log_likelihood
    ):
        return None
    steps = with_joint_errors(design, likelihoods, mean, steps)
    design.settled = True
    likelihoods, moves = _widened(standardized, design, likelihoods, mean, steps, progress)
    posteriors, unseen = over_spreads(design, likelihoods, mean, steps, moves)
    if any(x.any() for x in moves):
        stage = Stage.of(progress, "levels, mean", last=False)
        recentred = _recentred(standardized, design, likelihoods, mean, unseen, posteriors, stage)
        # More than a standard deviation of the number of the rarer class, with one row added.
        if abs(recentred.missing) > np.sqrt(min(pooled.n_pos, pooled.n_neg) + 1):
            return None
        posteriors = recentred.posteriors
    fit = standardized.modes(cavity, nodes.mean, Stage.of(progress))
    _, cavity = _around(posteriors, likelihoods)
    status = _status(steps) if design.settled else Status.MAX_ITERATIONS
    more = status, coordinates, standardized.left_out
    return fit, EstimatedLevels(posteriors, unseen, steps, likelihoods, cavity, *more)


def _likelihoods(
    segments: StandardizedSegments, grid: Grid, nodes: Normals, cavity: Normals, stage: Stage
) -> tuple[Likelihoods, float]:
    """Each segment's likelihood given its cavity, by a pass over the rows; their log-likelihood.

    Losses at nodes stay where they are computed; the likelihoods are on the host.
    """
    number = len(nodes.mean_A)
    nodes, cavity = places.placed((nodes, cavity))
    losses = segments.losses(grid, nodes, stage)
    posteriors = quadrature.posteriors(grid, losses, nodes, cavity, segments.total)
    likelihoods = places.fetched(Likelihoods.of(posteriors, cavity))
    return jax.tree.map(lambda x: x[:number], likelihoods), posteriors.log_likelihood


def _widened(
    segments: StandardizedSegments,
    design: Design,
    likelihoods: Likelihoods,
    center: NDArray[np.float64],
    steps: list[Scoring],
    progress: bool | Listener,
) -> tuple[Likelihoods, tuple[_Array, _Array]]:
    """The likelihoods under the widest plausible spreads, and `spread_moves` by them.

    As in `estimate`: where a spread is held at the minimum, normal likelihoods made there promise
    too much to segments with rare positives, and spreads grow little by little.
    """
    narrow = [step.covariance for step in steps]
    deviations = np.sqrt([np.diag(x) for x in narrow])
    limit, grid = START_SPREAD, fine(float(len(segments.segments.keys)))
    stage = Stage.of(progress, "levels, uncertainty", last=False)
    moves = spread_moves(steps, design.effects(likelihoods, narrow, center))
    made_at = np.log(_MODERATE / deviations)
    for _ in range(_MOST_WIDENINGS):
        down, up = moves
        rise = np.where(down < 0, 0, np.maximum(up - np.log(2) / 2, 0))
        if (rise <= np.maximum(made_at, 0)).all():
            break
        made_at = np.minimum(rise, np.log(limit / deviations))
        covariances = [
            moved_covariance(*x) for x in zip(steps, np.maximum(made_at, 0), strict=True)
        ]
        posteriors = design.posteriors(likelihoods, covariances, center)
        likelihoods, _ = _likelihoods(segments, grid, *_around(posteriors, likelihoods), stage)
        moves = spread_moves(steps, design.effects(likelihoods, narrow, center))
        limit *= 2
    return likelihoods, moves


def _recentred(
    segments: StandardizedSegments,
    design: Design,
    likelihoods: Likelihoods,
    center: NDArray[np.float64],
    covariances: list[_Array],
    posteriors: LevelPosteriors,
    stage: Stage,
) -> _Recentred:
    """The posteriors around the mean curve that the rows ask for; see `recentring`.

    The mean curve's own posterior stays: it is the estimate of the model's parameter.
    """

    def posteriors_around(center: NDArray[Any]) -> LevelPosteriors:
        return design.posteriors(likelihoods, covariances, center)

    # All means are linear in the center of the mean's prior; a change of its B by 1 moves them so.
    before = posteriors_around(center)
    moved = posteriors_around(center + np.array([0.0, 1.0]))
    by_center = moved.root.mean[0, 1] - before.root.mean[0, 1]
    response = (moved.segments.mean - before.segments.mean) / by_center
    nodes, along = places.placed((normals(*posteriors.segments), response))
    off = float(posteriors.root.mean[0, 1] - center[1])
    shift = recentring.shift_of_mean(segments, COARSE, nodes, along, off, stage)
    part = shift.by / by_center

    def shifted(x: NormalMoments, before: NormalMoments, moved: NormalMoments) -> NormalMoments:
        return x._replace(mean=x.mean + part * (moved.mean - before.mean))

    is_moments = lambda x: isinstance(x, NormalMoments)  # noqa: E731
    result: LevelPosteriors = jax.tree.map(shifted, posteriors, before, moved, is_leaf=is_moments)
    return _Recentred(result._replace(root=posteriors.root), shift.missing)


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
        steps = [scored(*pair) for pair in zip(posteriors.effects, steps, strict=True)]
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
    less = precision.scaled(1 - _LEAST_SHARE).plus(likelihoods.precision.scaled(-1))
    cavity_precision = less.positive_part().plus(precision.scaled(_LEAST_SHARE))
    pull = np.stack(precision.times(*mean.T), -1) - likelihoods.pull
    cavity_spread = cavity_precision.inverse()
    cavity = Normals(*cavity_spread.times(*pull.T), *cavity_spread.factor())
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
