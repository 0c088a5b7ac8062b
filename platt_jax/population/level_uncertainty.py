"""Posteriors of effects if the spreads of their levels are uncertain.

Few values say little about their spread. So the posteriors are averaged over spreads: each log
standard deviation is moved up or down by its standard error, in the combinations of an orthogonal
array (Plackett & Burman 1946), which gives the means of functions that are quadratic.
"""

from typing import Any, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.population.levels import Design, LevelPosteriors, Moments, Scoring
from platt_jax.population.likelihoods import Likelihoods

_Array: TypeAlias = NDArray[Any]

# Maximum relative error of spreads that are treated as known.
_CERTAIN = 0.1
# Maximum standard error of a log standard deviation. Levels of two values say no more than that.
_MOST = 0.7


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
    errors = np.array([np.sqrt(np.maximum(np.diag(step.spread)[[0, 2]], 0)) for step in steps])
    errors = np.where(errors > _CERTAIN, np.minimum(errors, _MOST), 0)
    found, unseen = [], []
    for moved in _signs(errors) * errors:
        covariances = [_changed(*each) for each in zip(steps, moved, strict=True)]
        found.append(design.posteriors(likelihoods, covariances, center))
        unseen.append(covariances)

    def mixed(*each: Moments) -> Moments:
        means = np.stack([moments.mean for moments in each])
        off = means - means.mean(0)
        between = np.einsum("g...a,g...b->...ab", off, off) / len(each)
        return Moments(means.mean(0), np.mean([x.covariance for x in each], 0) + between)

    is_moments = lambda x: isinstance(x, Moments)  # noqa: E731
    averaged: LevelPosteriors = jax.tree.map(mixed, *found, is_leaf=is_moments)
    return averaged, [np.mean(each, 0) for each in zip(*unseen, strict=True)]


def _signs(errors: _Array) -> _Array:
    """(G, L, 2) of +1 and -1: for uncertain spreads the columns of a Hadamard matrix."""
    uncertain = errors > 0
    matrix = np.ones((1, 1))
    while len(matrix) <= uncertain.sum():
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    signs = np.ones((len(matrix), *errors.shape))
    signs[:, uncertain] = matrix[:, 1 : uncertain.sum() + 1]
    return signs


def _changed(step: Scoring, moved: _Array) -> _Array:
    """The covariance with its log standard deviations moved."""
    root = np.linalg.cholesky(step.covariance) * np.exp(moved)
    covariance: _Array = root @ root.T
    return covariance
