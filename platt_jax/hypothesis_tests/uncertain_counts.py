"""Tails of numbers of positives where the curve is uncertain: an integral over its two ends.

The quantile of the tail given the curve is smooth in the curve's log-odds. So it is computed at few
nodes and interpolated between them; density and tail are then added up on a fine grid. The nodes
are first spread over all curves that matter for p-values of 1e-15, then over curves with nearly
all of the sum.
"""

from typing import NamedTuple

import numpy as np

from platt_jax.arrays import Floats, Ints
from platt_jax.hypothesis_tests.count_tails import quantiles
from platt_jax.hypothesis_tests.curve_distributions import Distribution

# How much less than at the mode the log density is at the farthest curves, and the number of nodes
# of each search, at each end. The first tells tails of at least _LARGE, the others tails of 1e-12.
_FIRST, _LARGE = (8.0, 6), 0.02
_DEEPEST, _NODES = 40.0, (7, 7)
_NEGLIGIBLE = 12.0  # minus the log of a share of a sum that does not matter
_POINTS = 17, 33  # of the fine grid, for the first search and the others


class CountTests(NamedTuple):
    """T tests, each of a number of labels."""

    basis: Floats  # (2, T, n), the rows' log-odds by those at the curve's ends
    offset: Floats  # (T, n)
    counts: Floats  # (T, n) number of rows; 0 beyond the last
    least: Floats  # (T,) number of labels
    shock_variance: Floats | None  # (T,) of a shift that a test's rows have in common

    def quantiles(self, first: Floats, second: Floats) -> Floats:
        """(T, G, G) quantiles of the tails, given log-odds at the ends (T, G)."""
        one, other = self.basis[:, :, None]
        second_part = second[..., None] * other + self.offset[:, None]
        log_odds = (first[..., None] * one)[:, :, None] + second_part[:, None]
        shock = None if self.shock_variance is None else self.shock_variance[:, None, None]
        return quantiles(log_odds, self.counts[:, None, None], self.least[:, None, None], shock)

    def of(self, some: Ints) -> "CountTests":
        """Some of the tests."""
        shock = None if self.shock_variance is None else self.shock_variance[some]
        rows = self.basis[:, some], self.offset[some], self.counts[some]
        return CountTests(*rows, self.least[some], shock)


def log_tails(tests: CountTests, curves: Distribution) -> Floats:
    """(T,) logarithms of the tails' probabilities, given distributions (T, 2) of the ends."""
    found = _searched(tests, curves, _FIRST[0], _FIRST[1:], _POINTS[0])
    small = np.flatnonzero(found < np.log(_LARGE))
    if len(small):
        curves = type(curves)(*(x[small] for x in curves))
        found[small] = _searched(tests.of(small), curves, _DEEPEST, _NODES, _POINTS[1])
    return np.minimum(found, 0)


def _searched(
    tests: CountTests, curves: Distribution, depth: float, nodes: tuple[int, ...], points: int
) -> Floats:
    """The log tails, by nodes among the curves up to this depth below the mode."""
    from scipy.special import log_ndtr

    center, scale = curves.center(), curves.scale()
    span = np.stack([np.arcsinh((x - center) / scale) for x in curves.bounds(depth)], -1)

    def grid(span: Floats, number: int) -> tuple[Floats, Floats]:
        """(T, 2, number) log-odds, and log densities times the distances of the points."""
        share = np.linspace(0, 1, number)
        x = span[..., :1] + (span[..., 1:] - span[..., :1]) * share
        at = center[..., None] + scale[..., None] * np.sinh(x)
        step = (span[..., 1] - span[..., 0]) / (number - 1) * scale
        return at, curves.log_density(at) + np.log(np.cosh(x) * step[..., None])

    every = _log_sum(grid(span, 4 * points)[1]).sum(-1)
    for number in nodes:
        at, _ = grid(span, number)
        to_fine = _interpolation(number, points)
        z = to_fine @ tests.quantiles(at[:, 0], at[:, 1]) @ to_fine.T
        _, log_weight = grid(span, points)
        inside = log_ndtr(-z) + log_weight[:, 0, :, None] + log_weight[:, 1, None, :]
        most = inside.max((1, 2))
        density = np.exp(inside - most[:, None, None])
        by_end = np.stack([density.sum(2), density.sum(1)], 1)
        span = _narrowed_spans(span, by_end)
    return np.log(by_end[:, 0].sum(-1)) + most - every


def _log_sum(x: Floats) -> Floats:
    """log(sum(exp(x))) over the last axis."""
    most = x.max(-1)
    return most + np.log(np.exp(x - most[..., None]).sum(-1))


def _narrowed_spans(span: Floats, by_end: Floats) -> Floats:
    """The parts of the spans (T, 2, 2) that have nearly all of the sums, by points (T, 2, F)."""
    matters = by_end > by_end.max(-1, keepdims=True) * np.exp(-_NEGLIGIBLE)
    last = by_end.shape[-1] - 1
    first = np.maximum(np.argmax(matters, -1) - 1, 0)
    final = np.minimum(last - np.argmax(matters[..., ::-1], -1) + 1, last)
    place = np.stack([first, final], -1) / last
    return span[..., :1] + (span[..., 1:] - span[..., :1]) * place


def _interpolation(nodes: int, points: int) -> Floats:
    """(points, nodes) cubic interpolation from equidistant nodes to points of the same span."""
    place = np.linspace(0, nodes - 1, points)
    first = np.clip(np.floor(place) - 1, 0, nodes - 4).astype(int)
    matrix = np.zeros((points, nodes))
    for j in range(4):
        others = [k for k in range(4) if k != j]
        share = np.prod([(place - first - k) / (j - k) for k in others], axis=0)
        matrix[np.arange(points), first + j] = share
    return matrix
