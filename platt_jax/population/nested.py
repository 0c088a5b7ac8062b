"""Effects of nested levels: a tree, with the mean curve at its root and segments as leaves.

Messages go up the tree, and posteriors down (Pearl 1988, "Probabilistic Reasoning in Intelligent
Systems", chapter 7). This is exact and takes a time proportional to the number of values.
"""

from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.population.gaussians import NormalMoments
from platt_jax.population.levels import Design, LevelPosteriors
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.population_prior import MEAN_PRECISION
from platt_jax.population.symmetric import Square, Symmetric

_Array: TypeAlias = NDArray[Any]


class _Node(NamedTuple):
    """What the way up leaves for the way down, for the V values of a level."""

    left: Symmetric  # covariance of (A, B) if the parent's is known
    share: Square  # left @ prior, with the precision of the effects
    pull_A: _Array  # (V,), precision times mean of the likelihood of (A, B)
    pull_B: _Array


class Nested(Design):
    """See `levels.Design`.

    The parents are for each level the place (V,) of each value's parent in the level before; zeros
    for the first level. The values of the last level are the segments.
    """

    def __init__(self, parents: list[NDArray[Any]]) -> None:
        self._parents = parents
        self.sizes = [len(x) for x in parents]
        self.settled = True

    def posteriors(
        self, likelihoods: Likelihoods, covariances: list[_Array], center: _Array
    ) -> LevelPosteriors:
        """See `levels.Design`."""
        nodes, precision, pull = self._up(likelihoods, covariances)
        root = np.linalg.inv(precision + MEAN_PRECISION * np.eye(2))
        mean_curve = NormalMoments((root @ (pull + MEAN_PRECISION * center))[None], root[None])
        mean, above = mean_curve.mean, Symmetric.of(mean_curve.covariance)
        effects, curves = [], []
        for node, parents in zip(nodes, self._parents, strict=True):
            parent_A, parent_B = mean[parents].T
            parent = Symmetric(*(x[parents] for x in above))
            A, B = node.left.times(node.pull_A, node.pull_B)
            share_A, share_B = node.share.times(parent_A, parent_B)
            mean = np.stack([A + share_A, B + share_B], -1)
            error = node.left.plus(node.share.plus_identity(-1).congruent(parent))
            above = node.left.plus(node.share.congruent(parent))
            effects.append(NormalMoments(mean - np.stack([parent_A, parent_B], -1), error.matrices))
            curves.append(NormalMoments(mean, above.matrices))
        return LevelPosteriors(mean_curve, effects, curves[-1], mean_curve, curves)

    def _up(
        self, likelihoods: Likelihoods, covariances: list[_Array]
    ) -> tuple[list[_Node], _Array, _Array]:
        """The nodes of all levels; precision and pull of the likelihood of the mean curve."""
        precision, pull_A, pull_B = likelihoods
        nodes = []
        for level in reversed(range(len(self.sizes))):
            prior = np.linalg.inv(covariances[level])
            left = precision.plus(prior).inverse()
            share = left.product(Symmetric.of(prior))
            nodes.append(_Node(left, share, pull_A, pull_B))
            # The likelihood of the parent's (A, B): this value's, with the effect integrated out.
            upward = precision.symmetric_product(share), *share.transposed_times(pull_A, pull_B)
            number = self.sizes[level - 1] if level else 1
            total = partial(np.bincount, self._parents[level], minlength=number)
            precision, pull_A, pull_B = jax.tree.map(total, upward)
        return nodes[::-1], precision.matrices[0], np.array([pull_A[0], pull_B[0]])
