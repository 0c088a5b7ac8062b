"""How well the spreads of levels are known, and posteriors averaged over them.

Few values say little about their spread. So each log standard deviation is moved up or down by its
standard error, and one that is held at the minimum up alone, in the combinations of an orthogonal
array (Plackett & Burman 1946). It gives the means of functions that are quadratic, and of cubic
ones because it has the negative of each combination.
"""

from typing import Any, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools
from platt_jax.population.gaussians import NormalMoments
from platt_jax.population.levels import (
    NO_SPREAD,
    Design,
    LevelPosteriors,
    Scoring,
    changed,
    derivatives,
)
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.population_prior import SCALE

_Array: TypeAlias = NDArray[Any]

# Maximum relative error of spreads that are treated as known.
_CERTAIN = 0.1
# Maximum standard error of a log standard deviation. Levels of two values say no more than that.
_MOST = 0.7
# Change of a parameter by which the information is computed.
_CHANGE = 1e-3
# Minimum curvature, relative to the curvature if levels are estimated independently.
_LEAST_CURVATURE = 1e-2
# Standard deviations over which the density of one at the minimum is averaged.
_SPREADS = np.concatenate([[0], np.geomspace(NO_SPREAD, 4 * SCALE, 60)])
_LENGTHS = (np.diff(_SPREADS, prepend=0) + np.diff(_SPREADS, append=_SPREADS[-1])) / 2


def with_joint_errors(
    design: Design, likelihoods: Likelihoods, center: _Array, steps: list[Scoring]
) -> list[Scoring]:
    """The last steps, with the covariance of the parameters of all levels at once.

    The information is minus the derivative of the gradient, by differences. It has what `scored`
    leaves out: values of levels that nearly coincide cannot be told apart, nor can their spreads.
    No direction counts as known better than `scored` says: rare positives make normal likelihoods
    look more certain than they are.
    """
    roots = [np.linalg.cholesky(step.covariance) for step in steps]
    free = np.concatenate([np.diag(step.spread) > 0 for step in steps])

    def gradient(change: _Array) -> _Array:
        moved = [changed(*pair) for pair in zip(roots, change.reshape(-1, 3), strict=True)]
        effects = design.effects(likelihoods, [root @ root.T for root in moved], center)
        levels = zip(effects, moved, strict=True)
        return np.concatenate([derivatives(*level)[0] for level in levels])[free]

    if not free.any():
        return steps
    directions = _CHANGE * np.eye(len(free))[free]
    rise = [gradient(-change) - gradient(change) for change in directions]
    information = np.stack(rise) / (2 * _CHANGE)
    errors = np.sqrt(np.concatenate([np.diag(step.spread) for step in steps])[free])
    values, vectors = np.linalg.eigh(errors[:, None] * (information + information.T) / 2 * errors)
    factor = errors[:, None] * vectors
    spread = np.zeros((len(free), len(free)))
    spread[np.ix_(free, free)] = (factor / np.clip(values, _LEAST_CURVATURE, 1)) @ factor.T
    blocks = [spread[i : i + 3, i : i + 3] for i in range(0, len(free), 3)]
    return [step._replace(spread=block) for step, block in zip(steps, blocks, strict=True)]


def over_spreads(
    design: Design,
    likelihoods: Likelihoods,
    center: _Array,
    steps: list[Scoring],
    moves: tuple[_Array, _Array],
) -> tuple[LevelPosteriors, list[_Array]]:
    """The posteriors, averaged over the spreads, which are moved down and up; see `spread_moves`.

    Also returns the covariance (2, 2) of an unseen value's effect for each level.
    """
    down, up = moves
    posteriors, unseen = [], []
    signs = _signs((down != 0) | (up != 0))
    # Combinations with equal spreads of the largest level follow each other: `Crossed` uses that.
    signs = signs[np.lexsort(signs[:, np.argmax(design.sizes)].T)]
    for moved in np.where(signs > 0, up, down):
        covariances = [moved_covariance(*pair) for pair in zip(steps, moved, strict=True)]
        posteriors.append(design.posteriors(likelihoods, covariances, center))
        unseen.append(covariances)

    def mixed(*each: NormalMoments) -> NormalMoments:
        means = np.stack([moments.mean for moments in each])
        off = means - means.mean(0)
        between = np.einsum("g...a,g...b->...ab", off, off) / len(each)
        return NormalMoments(means.mean(0), np.mean([x.covariance for x in each], 0) + between)

    is_moments = lambda x: isinstance(x, NormalMoments)  # noqa: E731
    averaged: LevelPosteriors = jax.tree.map(mixed, *posteriors, is_leaf=is_moments)
    return averaged, [np.mean(matrices, 0) for matrices in zip(*unseen, strict=True)]


def _signs(uncertain: Bools) -> _Array:
    """(G, L, 2) of +1 and -1: for uncertain spreads the columns of Hadamard matrices H and -H."""
    matrix = np.ones((1, 1))
    while len(matrix) < uncertain.sum():
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    columns = np.concatenate([matrix, -matrix]) if uncertain.any() else matrix
    signs = np.ones((len(columns), *uncertain.shape))
    signs[:, uncertain] = columns[:, : uncertain.sum()]
    return signs


def spread_moves(steps: list[Scoring], effects: list[NormalMoments]) -> tuple[_Array, _Array]:
    """How far log standard deviations are moved down and up, (L, 2) each; 0 where certain.

    By a standard error; from the minimum up only, to a variance of twice its expectation.
    """
    errors = np.array([_errors(step) for step in steps])
    errors = np.where(errors > _CERTAIN, np.minimum(errors, _MOST), 0)
    at_minimum = np.array([np.diag(step.spread)[[0, 2]] == 0 for step in steps])
    wide = [spreads_at_edge(x, step.covariance) for x, step in zip(effects, steps, strict=True)]
    deviations = np.sqrt([np.diag(step.covariance) for step in steps])
    rise = np.log(np.sqrt(2) * np.array(wide) / deviations)
    return -errors, np.where(at_minimum, np.maximum(rise, 0), errors)


def spreads_at_edge(effects: NormalMoments, covariance: _Array) -> _Array:
    """(2,), how wide the effects on A and on B may be where their spreads are the smallest ones.

    The root mean square of a standard deviation under its posterior density, where a value's effect
    alone has the likelihood that gives its posterior here.
    """
    variance = np.diag(covariance)
    posterior = np.diagonal(effects.covariance, axis1=1, axis2=2)
    precision, pull = np.maximum(1 / posterior - 1 / variance, 0), effects.mean / posterior
    v = _SPREADS[:, None, None] ** 2
    terms = pull**2 * v / (1 + precision * v) - np.log1p(precision * v)
    log_density = terms.sum(1) / 2 - v[:, 0] / (2 * SCALE**2)
    density = np.exp(log_density - log_density.max(0)) * _LENGTHS[:, None]
    mean_square: _Array = (density * v[:, 0]).sum(0) / density.sum(0)
    return np.sqrt(mean_square)


def _errors(step: Scoring) -> _Array:
    """(2,), standard errors of the log standard deviations of the effects on A and on B."""
    root = np.linalg.cholesky(step.covariance)
    by_A, (g, h) = np.array([1.0, 0, 0]), root[1]
    by_B = np.array([g * g, g * h, h * h]) / (g * g + h * h)
    return np.sqrt([max(float(vector @ step.spread @ vector), 0.0) for vector in (by_A, by_B)])


def moved_covariance(step: Scoring, moved: _Array) -> _Array:
    """The covariance with its log standard deviations moved, and the same correlation."""
    covariance: _Array = step.covariance * np.exp(moved[:, None] + moved)
    return covariance
