"""Whether segments of many rows have other curves than those of few: a score test.

A segment's likelihood is taken as normal around its (A, B), with precision P, and (A, B) as
Normal(mean + x gamma, S), with x the logarithm of its number of rows. The score of gamma at 0 (Rao
1948), adjusted for the mean, is chi-square with 2 degrees of freedom if sizes tell nothing.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.caller import Caller
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.symmetric import Symmetric
from platt_jax.results.population import Population

_LEAST_SEGMENTS = 20
# A dependence is told from these on: the p-value, and log-odds per standard deviation of x.
_P_VALUE, _EFFECT = 1e-3, 0.1
# Log sizes of less variance are alike, and information that is nearly singular says nothing.
_ALIKE, _SINGULAR = 1e-6, 1e-9


def depends_on_size(
    population: Population,
    rows: Any,
    total: Callable[[Floats], Floats],
    caller: Caller | None = None,
) -> bool:
    """Whether curves depend on the numbers of rows (K,) of their segments; a caller is warned."""
    with np.errstate(all="ignore"):  # scores of any size
        test = _tested(population, np.asarray(rows, float), total)
    if test is None or not (test[0] < _P_VALUE and test[1] >= _EFFECT):
        return False
    if caller is not None:
        numbers = " (p = {:.1g}; by {:.2g} for a standard deviation of log rows)"
        report_dependence(caller, numbers.format(*test))
    return True


def report_dependence(caller: Caller, numbers: str = "") -> None:
    """Warns of curves that depend on the numbers of rows of their segments."""
    caller.warn(
        f"pooling: log-odds depend on how many rows their segments have{numbers}. Where rows are "
        'few, predictions are off and bands too narrow: covariates="rows" models that, see '
        "docs/howto/few_rows.md"
    )


def _tested(
    population: Population, rows: NDArray[Any], total: Callable[[Floats], Floats]
) -> tuple[float, float] | None:
    """The p-value, and the root mean square of gamma's effect by one standard deviation of x."""
    used = (rows > 0) & population.likelihood_precision.any((1, 2))
    x = np.log(np.where(used, rows, 1))
    # In coordinates in which S is 1, (A, B) of a segment is off the mean by a normal variable of
    # covariance P^-1 + 1. With its inverse W, the score of the mean is W (P^-1 pull - mean).
    AA, BA, BB = Symmetric.of(population.covariance).factor()
    if not BB > 0:  # by rounding, of scores very far from 0
        return None
    root = np.array([[AA, 0], [BA, BB]])
    data = Likelihoods.from_arrays(
        np.where(used[:, None, None], population.likelihood_precision, 0),
        np.where(used[:, None], population.likelihood_pull, 0),
    )
    information_of_B = data.precision.BB
    data, mean = data.transformed(np.linalg.inv(root)), np.linalg.solve(root, population.means.T)
    within = data.precision.plus(np.eye(2)).inverse()
    weight = within.scaled(-1).plus(np.eye(2))
    predicted = data.precision.times(*mean)
    score = within.times(data.pull_A - predicted[0], data.pull_B - predicted[1])
    numbers = used, used * x, used * x * x, information_of_B
    of_weight = (x**power * entry for power in range(3) for entry in weight)
    terms = *numbers, *score, *(x * s for s in score), *of_weight, *data.precision
    sums = total(np.sum(terms, 1, dtype=float))
    (number, sum_x, squares, total_of_B), sums = sums[:4], sums[4:]
    if number < _LEAST_SEGMENTS:
        return None
    if (variance := squares / number - (sum_x / number) ** 2) < _ALIKE:
        return None
    score_of_mean, score_of_slope = sums[:2], sums[2:4]
    by_mean, by_both, by_slope, metric = (
        Symmetric(*sums[i : i + 3]).matrices for i in (4, 7, 10, 13)
    )
    if _is_singular(by_mean):
        return None
    adjust = by_both @ np.linalg.inv(by_mean)
    adjusted, information = score_of_slope - adjust @ score_of_mean, by_slope - adjust @ by_both
    if _is_singular(information):
        return None
    gamma = np.linalg.solve(information, adjusted)
    effect = np.sqrt(variance * (gamma @ metric @ gamma) / total_of_B)
    return float(np.exp(-adjusted @ gamma / 2)), float(effect)


def _is_singular(matrix: Floats) -> bool:
    """Whether an information matrix (2, 2) nearly lacks a direction, or is not finite."""
    return not np.linalg.det(matrix) > _SINGULAR * np.prod(np.diag(matrix)) > 0
