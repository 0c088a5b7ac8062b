"""Effects of nested levels: a tree, with the mean curve at its root and segments as leaves.

Messages go up the tree, and posteriors down (Pearl 1988, "Probabilistic Reasoning in Intelligent
Systems", chapter 7). This is exact and takes a time proportional to the number of values.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.population.levels import (
    LevelPosteriors,
    NormalMoments,
    summed,
    times,
)
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.population_prior import MEAN_PRECISION
from platt_jax.population.symmetric import Symmetric

_Array: TypeAlias = NDArray[Any]


class _Node(NamedTuple):
    """What the way up leaves for the way down, for the values of a level."""

    left: _Array  # (V, 2, 2), covariance of (A, B) if the parent's is known
    pull: _Array  # (V, 2), precision times mean of the likelihood of (A, B)
    prior: _Array  # (2, 2), precision of the effects


class Nested:
    """See `levels.Design`.

    Args:
        parents: for each level the place (V,) of each value's parent in the level before; zeros for
            the first level. The values of the last level are the segments.
    """

    def __init__(self, parents: list[NDArray[Any]]) -> None:
        self._parents = parents
        self.sizes = [len(x) for x in parents]

    def posteriors(
        self, likelihoods: Likelihoods, covariances: list[_Array], center: _Array
    ) -> LevelPosteriors:
        """See `levels.Design`."""
        nodes, precision, pull = self._up(likelihoods, covariances)
        root = np.linalg.inv(precision + MEAN_PRECISION * np.eye(2))
        mean_curve = at = NormalMoments(times(root, pull + MEAN_PRECISION * center), root)
        effects, curves = [], []
        for node, parents in zip(nodes, self._parents, strict=True):
            own, at = _below(node, NormalMoments(at.mean[parents], at.covariance[parents]))
            effects.append(own)
            curves.append(at)
        return LevelPosteriors(mean_curve, effects, at, mean_curve, curves)

    def _up(
        self, likelihoods: Likelihoods, covariances: list[_Array]
    ) -> tuple[list[_Node], _Array, _Array]:
        """The nodes of all levels; precision and pull of the likelihood of the mean curve."""
        precision, pull = likelihoods.precision.matrices, likelihoods.pull
        nodes = []
        for level in reversed(range(len(self.sizes))):
            prior = np.linalg.inv(covariances[level])
            left = Symmetric.of(precision).plus(prior).inverse().matrices
            nodes.append(_Node(left, pull, prior))
            # The likelihood of the parent's (A, B): this value's, with the effect integrated out.
            share = left @ prior
            number = self.sizes[level - 1] if level else 1
            parents = self._parents[level]
            upward = precision @ share
            precision = summed(parents, (upward + upward.swapaxes(1, 2)) / 2, number)
            pull = summed(parents, times(share.swapaxes(1, 2), pull), number)
        return nodes[::-1], precision, pull


def _below(node: _Node, parent: NormalMoments) -> tuple[NormalMoments, NormalMoments]:
    """The posteriors of the values' effects and of their (A, B), from those of their parents."""
    parent_response = node.left @ node.prior
    mean = times(node.left, node.pull + parent.mean @ node.prior)
    less = parent_response - np.eye(2)

    def spread(by: _Array) -> _Array:
        made: _Array = node.left + by @ parent.covariance @ by.swapaxes(1, 2)
        return made

    return NormalMoments(mean - parent.mean, spread(less)), NormalMoments(
        mean, spread(parent_response)
    )
