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
from platt_jax.population.symmetric import Symmetric
from platt_jax.results.population import Population

_LEAST_SEGMENTS = 20
# At smaller p-values, and from this change of log-odds per standard deviation of x on.
_P_VALUE, _EFFECT = 1e-3, 0.1
# Sizes that vary less are alike, and information that is nearly singular says nothing.
_ALIKE, _SINGULAR = 1e-6, 1e-9


def depends_on_size(
    population: Population,
    rows: Any,
    total: Callable[[Floats], Floats],
    caller: Caller | None = None,
) -> bool:
    """Whether curves depend on the numbers of rows (K,) of their segments; a caller is warned."""
    found = _tested(population, np.asarray(rows, float), total)
    if found is None or not (found[0] < _P_VALUE and found[1] >= _EFFECT):
        return False
    if caller is not None:
        p_value, effect = found
        caller.warn(
            f"pooling: curves depend on how many rows their segments have (p = {p_value:.1g}; "
            f"log-odds change by {effect:.2g} with a standard deviation of log rows). Where rows "
            'are few, predictions are off and bands too narrow. Use pooling="nested" with ids '
            "(size class, segment): see docs/howto/few_rows.md"
        )
    return True


def _tested(
    population: Population, rows: NDArray[Any], total: Callable[[Floats], Floats]
) -> tuple[float, float] | None:
    """The p-value, and the root mean square of gamma's effect on log-odds by one spread of x."""
    used = (rows > 0) & population.likelihood_precision.any((1, 2))
    x = np.log(np.where(used, rows, 1))
    # A segment's (A, B) is off the mean by a normal variable of covariance P^-1 + S. With its
    # inverse W, the score of its mean is W (P^-1 pull - mean), which is 0 where P is.
    precision = Symmetric.of(np.where(used[:, None, None], population.likelihood_precision, 0))
    spread, mean = Symmetric.of(population.covariance), population.mean
    shrunk = spread.product(precision).plus_identity().inverse()
    weight = precision.symmetric_product(shrunk)
    pull = np.where(used[:, None], population.likelihood_pull, 0).T
    score = shrunk.transposed_times(
        *(a - b for a, b in zip(pull, precision.times(*mean), strict=True))
    )
    numbers = used, used * x, used * x * x
    of_weight = (x**power * entry for power in range(3) for entry in weight)
    each = *numbers, *score, *(x * s for s in score), *of_weight, *precision
    sums = total(np.sum(each, 1, dtype=float))
    (number, sum_x, squares), sums = sums[:3], sums[3:]
    if number < _LEAST_SEGMENTS:
        return None
    if (variance := squares / number - (sum_x / number) ** 2) < _ALIKE:
        return None
    score_of_mean, score_of_slope = sums[:2], sums[2:4]
    by_mean, by_both, by_slope, metric = (
        Symmetric(*sums[i : i + 3]).matrices for i in (4, 7, 10, 13)
    )
    adjust = by_both @ np.linalg.inv(by_mean)
    adjusted, information = score_of_slope - adjust @ score_of_mean, by_slope - adjust @ by_both
    if not np.linalg.det(information) > _SINGULAR * np.prod(np.diag(information)):
        return None
    gamma = np.linalg.solve(information, adjusted)
    effect = np.sqrt(variance * (gamma @ metric @ gamma) / metric[1, 1])
    return float(np.exp(-adjusted @ gamma / 2)), float(effect)
