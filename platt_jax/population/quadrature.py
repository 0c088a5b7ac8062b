"""Integrals over a segment's (A, B) by adaptive Gauss-Hermite quadrature.

The nodes lie where the posterior does: at mean + factor z, for a fixed grid of z. Then a few nodes
give many digits (Naylor & Smith 1982; Rabe-Hesketh, Skrondal & Pickles 2005).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax.backend.threads import ordered_map
from platt_jax.execution.problems import Task
from platt_jax.model import objective
from platt_jax.model.objective import Array, Point
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.passes.columns import Columns
from platt_jax.passes.kernels import KernelRows, by_problem
from platt_jax.passes.protocol import AnyRows, Rows
from platt_jax.passes.shapes import RowRanges
from platt_jax.population.gaussians import NormalMoments, Normals
from platt_jax.population.places import fetched, inner, is_there, namespace, program
from platt_jax.population.symmetric import Symmetric

# Numbers per array: few, so that it stays in a cache, but enough to outweigh what a block costs.
_AT_ONCE = 1 << 17


# Maps sums over the segments of this process to sums over all segments.
Total: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Nodes(NamedTuple):
    """The points at which to evaluate each segment's loss; arrays with leading axis (K,)."""

    posterior: Normals
    coordinates: Standardization  # the coordinates of A and B


class Grid(NamedTuple):
    """Nodes of integrals over the standard normal distribution: all pairs of an axis's nodes."""

    axis: NDArray[np.float64]  # (n,)
    log_weight: NDArray[np.float64]  # (n,)
    z: NDArray[np.float64]  # (J, 2), the nodes
    losses: Task  # computes the losses of segments at their nodes


def _grid(per_axis: int) -> Grid:
    axis, weight = np.polynomial.hermite_e.hermegauss(per_axis)
    z, log_weight = _pairs(axis), np.log(weight / np.sqrt(2 * np.pi))
    functions = _losses, _losses_on_host, _losses_by_kernel
    return Grid(axis, log_weight, z, Task(*(partial(function, z) for function in functions)))


def _pairs(axis: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)


def _losses(z: NDArray[np.float64], rows: Rows, nodes: Nodes, options: Options) -> jax.Array:
    """The loss at each node, with the nodes as last axis after the problems' axes."""
    at, (targets, rows) = nodes.posterior, _prepared(rows, nodes, options)

    def loss(z: jax.Array) -> jax.Array:
        A: Any = at.mean_A + at.factor_AA * z[0]
        B: Any = at.mean_B + at.factor_BA * z[0] + at.factor_BB * z[1]
        return rows.loss((A, B), targets)

    return jnp.moveaxis(lax.map(loss, jnp.asarray(z, at.mean_A.dtype)), 0, -1)


def _losses_on_host(
    z: NDArray[np.float64], rows: Rows, nodes: Nodes, options: Options
) -> NDArray[Any]:
    at, (targets, rows) = nodes.posterior, _prepared(rows, nodes, options)
    losses = []
    for z_A, z_B in z.astype(at.mean_A.dtype):
        A = at.mean_A + at.factor_AA * z_A
        B = at.mean_B + at.factor_BA * z_A + at.factor_BB * z_B
        losses.append(rows.loss((A, B), targets))
    return np.stack(losses, -1)


def _losses_by_kernel(
    z: NDArray[np.float64],
    columns: Columns,
    where: RowRanges,
    nodes: Nodes,
    options: Options,
    compiler: str,
) -> jax.Array:
    """`_losses` by a kernel with a program for each problem and node."""

    def at_nodes(x: Any) -> jax.Array:
        return jnp.repeat(jnp.ravel(x)[:, None], len(z), axis=1)

    def loss(rows: KernelRows, numbers: tuple[Point, Standardization]) -> jax.Array:
        (A, B), coordinates = numbers
        rows = rows.mask_nonfinite(options).standardized(coordinates)
        return rows.loss((A, B), objective.plain_targets(jnp.ones_like(A), jnp.ones_like(A)))

    at, coordinates, ranges = jax.tree.map(at_nodes, (*nodes, where))
    z_A, z_B = jnp.asarray(z, at.mean_A.dtype).T[:, None]
    point = at.mean_A + at.factor_AA * z_A, at.mean_B + at.factor_BA * z_A + at.factor_BB * z_B
    losses: jax.Array = by_problem(loss, columns, ranges, (point, coordinates), compiler)
    return losses.reshape(*where.size.shape, len(z))


def _prepared(rows: AnyRows, nodes: Nodes, options: Options) -> tuple[objective.Targets, AnyRows]:
    ones = jnp.ones_like(nodes.posterior.mean_A)
    rows = rows.mask_nonfinite(options).standardized(nodes.coordinates)
    return objective.plain_targets(ones, ones), rows


COARSE, _FINE, _FINE_OF_MANY = _grid(5), _grid(13), _grid(9)
EXACT = _grid(3)  # exact for normal likelihoods, at their posteriors
MANY = 10_000  # smallest number of segments that are called many


def fine(segments: float) -> Grid:
    """The grid for skewed posteriors, as from few rows or rare positives.

    Many segments get 9 nodes per axis: of 20,000 segments of 3 to 100 rows, these moved the
    population by 0.08 standard errors at most (by 0.14 with slopes of 2 +- 2 and 5 rows each).
    """
    return _FINE_OF_MANY if segments >= MANY else _FINE


# The middle nodes of the coarse grid, with weights that are exact for polynomials up to degree 3.
# The error of this rough grid shows whether the coarse grid is fine enough.
_MIDDLE = np.abs(COARSE.axis) < 2
_SIDE = 1 / (2 * COARSE.axis[_MIDDLE].max() ** 2)
_ROUGH_WEIGHT = np.where(COARSE.axis[_MIDDLE] == 0, 1 - 2 * _SIDE, _SIDE)
_ROUGH_AXIS = COARSE.axis[_MIDDLE]
ROUGH = COARSE._replace(axis=_ROUGH_AXIS, log_weight=np.log(_ROUGH_WEIGHT), z=_pairs(_ROUGH_AXIS))


@program
def rough(losses: NDArray[Any]) -> NDArray[Any]:
    """The losses at the nodes of `ROUGH`, from the losses at the nodes of `COARSE`."""
    return losses[:, np.flatnonzero(np.outer(_MIDDLE, _MIDDLE))]


class Posteriors(NamedTuple):
    """Posteriors of the segments under a population N(0, I), in its coordinates u."""

    number: float  # number of all segments
    log_likelihood: float  # of the population
    # Derivatives by the mean (u1, u2) and the factor [[exp(a), 0], [b, exp(c)]] of the population.
    gradient: Array  # [5]
    information: Array  # [5, 5], minus the Hessian
    score_products: Array  # [5, 5], the sum over the segments of s s', s their gradients
    segments: NormalMoments  # [K]


def posteriors(
    grid: Grid, losses: NDArray[Any], nodes: Normals, population: Normals, total: Total
) -> Posteriors:
    """The posteriors of the segments, and the derivatives of the population's likelihood.

    With f the log density of a segment's parameters, the gradient of its log-likelihood is E f',
    and the Hessian is E f'' + Cov f', with E and Cov of the posterior (Louis 1982). No derivative
    passes through the nodes. Losses (K, J) on a device are NaN for segments added. The population
    is one, or one for each segment; `total` is as in `Segments`.
    """
    axis = grid.axis, grid.log_weight
    parts = by_blocks(_moments, axis, (losses, _relative(nodes, population)), len(grid.z))
    # In one exchange as one array.
    flat = total(sum(fetched(part.sums) for part in parts))
    sums = _FisherScoreSums(flat[0], flat[1], flat[2:7], *flat[7:].reshape(2, 5, 5))
    return Posteriors(
        float(sums.segments),
        float(sums.log_likelihood),
        sums.gradient,
        sums.products - sums.second - _curvature(sums.gradient, float(sums.segments)),
        sums.products,
        joined([part.segments for part in parts]),
    )


# The scores u1, u2, u1^2 - 1, u1 u2 and u2^2 - 1: exponents of a monomial, and a constant.
_SCORES = (((1, 0), 0), ((0, 1), 0), ((2, 0), 1), ((1, 1), 0), ((0, 2), 1))
_HIGHEST = 4  # degree of their products
_MONOMIALS = [(a, b) for a in range(_HIGHEST + 1) for b in range(_HIGHEST + 1 - a)]
_CONSTANTS = np.array([constant for _, constant in _SCORES], float)
# The places among the monomials, of each score's and of products of two.
_OWN = np.array([_MONOMIALS.index(of) for of, _ in _SCORES])
_PRODUCTS = np.array(
    [[_MONOMIALS.index((a + c, b + d)) for (c, d), _ in _SCORES] for (a, b), _ in _SCORES]
)


class _FisherScoreSums(NamedTuple):
    """Sums over segments of the scores s and their products, under the posteriors."""

    segments: float  # number of segments
    log_likelihood: float
    gradient: NDArray[np.float64]  # (5,), the sum of E s
    products: NDArray[np.float64]  # (5, 5), the sum of E s E s'
    second: NDArray[np.float64]  # (5, 5), the sum of E s s'


class _FisherScoreMoments(NamedTuple):
    """Moments of the scores s of some segments, under their posteriors."""

    sums: NDArray[np.float64]  # (57,), `_FisherScoreSums` end to end
    segments: NormalMoments  # (K,), as in `Posteriors`


def blocks(segments: int, numbers: int) -> list[slice]:
    """Slices of segments to process together; with `numbers` per segment they fit the cache.

    There is at least one, possibly empty: a process may have no segments.
    """
    length = max(1, _AT_ONCE // numbers)
    return [slice(first, first + length) for first in range(0, max(segments, 1), length)]


def by_blocks(work: Callable[..., Any], shared: Any, arrays: Any, numbers: int) -> list[Any]:
    """The results of `work(shared, some)`, a `places.program`, for blocks of segments, in order.

    `some` has a part of the arrays (K, ...), and all of them on a device; a segment takes so many
    numbers.
    """
    if is_there(arrays):
        return [work(shared, arrays)]
    parts = blocks(len(jax.tree.leaves(arrays)[0]), numbers)
    return list(
        ordered_map(lambda part: work(shared, jax.tree.map(lambda x: x[part], arrays)), parts)
    )


def joined(parts: list[Any]) -> Any:
    """Pytrees of arrays from the results of `by_blocks`, end to end."""
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *x: np.concatenate(x), *parts)


@program
def _relative(nodes: Normals, population: Normals) -> Normals:
    """The nodes in coordinates where the population is N(0, I)."""
    P = population
    AA, BB = nodes.factor_AA / P.factor_AA, nodes.factor_BB / P.factor_BB
    mean_A = (nodes.mean_A - P.mean_A) / P.factor_AA
    return Normals(
        mean_A,
        (nodes.mean_B - P.mean_B - P.factor_BA * mean_A) / P.factor_BB,
        AA,
        (nodes.factor_BA - P.factor_BA * AA) / P.factor_BB,
        BB,
    )


@program
def _moments(shared: tuple[Array, Array], some: tuple[Any, Normals]) -> _FisherScoreMoments:
    """The moments by quadrature. The nodes are relative to the population.

    Sums over all nodes are taken axis by axis: first of the powers of u2, then of the powers of u1.

    Args:
        shared: axis and log weights of the grid.
        some: losses and nodes of some segments.
    """
    valid: Any
    (axis, log_weight), (losses, at) = shared, some
    xp, number, valid = namespace(losses), len(losses), 1.0
    if xp is jnp:
        valid = ~jnp.isnan(losses[:, 0])
        number, losses = valid.sum(), jnp.where(valid[:, None], losses, 0)
    z: Any = axis[:, None]
    n = len(axis)
    u1 = at.mean_A + at.factor_AA * z  # (n, K)
    u2 = (at.mean_B + at.factor_BA * z)[:, None] + at.factor_BB * z  # (n, n, K)
    axis_terms = z * z / 2 + log_weight[:, None]
    # In place where NumPy computes: another array of this size costs more than the arithmetic.
    terms: Any = u2 * u2
    terms *= -0.5
    terms += axis_terms
    terms += (axis_terms - u1 * u1 / 2)[:, None]
    terms -= losses.T.reshape(n, n, -1)
    highest = terms.max((0, 1))
    terms -= highest
    terms = jnp.exp(terms) if xp is jnp else np.exp(terms, out=terms)
    by_u2 = [terms.sum(1)]
    for _ in range(_HIGHEST):
        terms *= u2
        by_u2.append(terms.sum(1))
    total = by_u2[0].sum(0)
    powers = [valid / total]
    for _ in range(_HIGHEST):
        powers.append(powers[-1] * u1)
    expected = [(powers[a] * by_u2[b]).sum(0) for a, b in _MONOMIALS]
    summed = xp.stack([x.sum() for x in expected])
    gradient = summed[_OWN] - _CONSTANTS * number
    second = summed[_PRODUCTS] - np.multiply.outer(_CONSTANTS, np.ones(5)) * summed[_OWN]
    second -= gradient[:, None] * _CONSTANTS
    mean = xp.stack(
        [expected[i] - valid * constant for i, constant in zip(_OWN, _CONSTANTS, strict=True)]
    )
    log_likelihood = (valid * (highest + xp.log(total) + xp.log(at.factor_AA * at.factor_BB))).sum()
    m1, m2, m11, m12, m22 = mean
    covariance = Symmetric(m11 + 1 - m1 * m1, m12 - m1 * m2, m22 + 1 - m2 * m2)
    sums = [xp.stack([number, log_likelihood]), gradient, inner(mean, mean).ravel(), second.ravel()]
    return _FisherScoreMoments(xp.concatenate(sums), NormalMoments(mean[:2].T, covariance.matrices))


def _curvature(gradient: NDArray[np.float64], segments: float) -> NDArray[np.float64]:
    """(5, 5), the sum of E f'' over the segments, from the sum of E f'."""
    K = segments
    e1, e2, e11, e12, e22 = gradient + K * np.array([0, 0, 1, 0, 1])
    return -np.array(
        [
            [K, 0, 2 * e1, e2, 0],
            [0, K, 0, e1, 2 * e2],
            [2 * e1, 0, 2 * e11, e12, 0],
            [e2, e1, e12, e11, 2 * e12],
            [0, 2 * e2, 0, 2 * e12, 2 * e22],
        ]
    )
