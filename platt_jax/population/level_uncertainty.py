"""How uncertain the spreads of levels are, and the posteriors of effects averaged over that.

Few values say little about their spread. So the posteriors are averaged over spreads: each log
standard deviation is moved up or down by its standard error, in the combinations of an orthogonal
array (Plackett & Burman 1946). It gives the means of functions that are quadratic, and of cubic
ones because it has the negative of each combination.
"""

from typing import Any, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.population.levels import (
    Design,
    LevelPosteriors,
    NormalMoments,
    Scoring,
    changed,
    derivatives,
)
from platt_jax.population.likelihoods import Likelihoods

_Array: TypeAlias = NDArray[Any]

# Maximum relative error of spreads that are treated as known.
_CERTAIN = 0.1
# Maximum standard error of a log standard deviation. Levels of two values say no more than that.
_MOST = 0.7
# Change of a parameter by which the information is computed.
_CHANGE = 1e-3
# Minimum curvature, relative to that of levels which are estimated independently of each other.
_LEAST_CURVATURE = 1e-2


def with_joint_errors(
    design: Design, likelihoods: Likelihoods, center: _Array, steps: list[Scoring]
) -> list[Scoring]:
    """The last steps, with the covariance of the parameters of all levels at once.

    The information is minus the derivative of the gradient, by differences. It has what `scored`
    leaves out: values of levels that nearly coincide cannot be told apart, nor can their spreads.
    No direction counts as known better than `scored` says: rare positives make normal likelihoods
    look more certain than they are.

    Args:
        design: the values of the segments.
        likelihoods: (K,) the likelihoods of the segments.
        center: (2,), mean of the prior of the mean curve.
        steps: the last step of each level.
    """
    roots = [np.linalg.cholesky(step.covariance) for step in steps]
    free = np.concatenate([np.diag(step.spread) > 0 for step in steps])

    def gradient(change: _Array) -> _Array:
        moved = [changed(*each) for each in zip(roots, change.reshape(-1, 3), strict=True)]
        effects = design.effects(likelihoods, [root @ root.T for root in moved], center)
        each = zip(effects, moved, strict=True)
        return np.concatenate([derivatives(*level)[0] for level in each])[free]

    if not free.any():
        return steps
    at = gradient(np.zeros(len(free)))
    directions = _CHANGE * np.eye(len(free))[free]
    information = np.stack([at - gradient(change) for change in directions]) / _CHANGE
    errors = np.sqrt(np.concatenate([np.diag(step.spread) for step in steps])[free])
    values, vectors = np.linalg.eigh(errors[:, None] * (information + information.T) / 2 * errors)
    factor = errors[:, None] * vectors
    spread = np.zeros((len(free), len(free)))
    spread[np.ix_(free, free)] = (factor / np.clip(values, _LEAST_CURVATURE, 1)) @ factor.T
    blocks = [spread[i : i + 3, i : i + 3] for i in range(0, len(free), 3)]
    return [step._replace(spread=block) for step, block in zip(steps, blocks, strict=True)]


def over_spreads(
    design: Design, likelihoods: Likelihoods, center: _Array, steps: list[Scoring]
) -> tuple[LevelPosteriors, list[_Array]]:
    """The posteriors, averaged over the spreads.

    Also returns the covariance (2, 2) of an unseen value's effect for each level.

    Args:
        design: the values of the segments.
        likelihoods: (K,) the likelihoods of the segments.
        center: (2,), mean of the prior of the mean curve.
        steps: the last step of each level.
    """
    errors = _uncertain_errors(steps)
    found, unseen = [], []
    signs = _signs(errors)
    # Combinations with equal spreads of the largest level follow each other: `Crossed` uses that.
    signs = signs[np.lexsort(signs[:, np.argmax(design.sizes)].T)]
    for moved in signs * errors:
        covariances = [_moved(*each) for each in zip(steps, moved, strict=True)]
        found.append(design.posteriors(likelihoods, covariances, center))
        unseen.append(covariances)

    def mixed(*each: NormalMoments) -> NormalMoments:
        means = np.stack([moments.mean for moments in each])
        off = means - means.mean(0)
        between = np.einsum("g...a,g...b->...ab", off, off) / len(each)
        return NormalMoments(means.mean(0), np.mean([x.covariance for x in each], 0) + between)

    is_moments = lambda x: isinstance(x, NormalMoments)  # noqa: E731
    averaged: LevelPosteriors = jax.tree.map(mixed, *found, is_leaf=is_moments)
    return averaged, [np.mean(each, 0) for each in zip(*unseen, strict=True)]


def _signs(errors: _Array) -> _Array:
    """(G, L, 2) of +1 and -1: for uncertain spreads the columns of Hadamard matrices H and -H."""
    uncertain = errors > 0
    matrix = np.ones((1, 1))
    while len(matrix) < uncertain.sum():
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    both = np.concatenate([matrix, -matrix]) if uncertain.any() else matrix
    signs = np.ones((len(both), *errors.shape))
    signs[:, uncertain] = both[:, : uncertain.sum()]
    return signs


def is_certain(steps: list[Scoring]) -> bool:
    """Whether all spreads are treated as known."""
    return not _uncertain_errors(steps).any()


def _uncertain_errors(steps: list[Scoring]) -> _Array:
    """(L, 2), the standard errors by which log standard deviations are moved; 0 where certain."""
    errors = np.array([_errors(step) for step in steps])
    uncertain: _Array = np.where(errors > _CERTAIN, np.minimum(errors, _MOST), 0)
    return uncertain


def _errors(step: Scoring) -> _Array:
    """(2,), standard errors of the log standard deviations of the effects on A and on B."""
    root = np.linalg.cholesky(step.covariance)
    by_A, (g, h) = np.array([1.0, 0, 0]), root[1]
    by_B = np.array([g * g, g * h, h * h]) / (g * g + h * h)
    return np.sqrt([max(float(by @ step.spread @ by), 0.0) for by in (by_A, by_B)])


def _moved(step: Scoring, moved: _Array) -> _Array:
    """The covariance with its log standard deviations moved, and the same correlation."""
    covariance: _Array = step.covariance * np.exp(moved[:, None] + moved)
    return covariance
