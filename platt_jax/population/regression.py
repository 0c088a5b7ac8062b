"""The population's mean as a function of covariates: the most probable coefficients.

(A, B) of a segment with covariates z is Normal(mean + z' gamma, S). The search of a population
takes the effects z' gamma as known, and this regression takes the segments' normal likelihoods and
S as known (generalized least squares); the two alternate. Coefficients have the prior of the mean:
normal, with a standard deviation of `population_prior.SCALE` for one standard deviation of z, or
for more where z has outliers.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.execution.progress import Listener
from platt_jax.population import places
from platt_jax.population.gaussians import NormalMoments, Normals, normals
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.population_prior import MEAN_PRECISION
from platt_jax.population.quadrature import Total
from platt_jax.population.search import Estimate, estimated
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.results.covariates import (
    LOG_ROWS,
    CovariateColumn,
    Covariates,
    GivenCovariates,
    errors_of_effects,
)
from platt_jax.results.fit import Fit
from platt_jax.status import Status

_MOST_ROUNDS = 30
_ALIKE = 64 * np.finfo(float).eps  # the standard deviation of equal numbers, relative to these
_EIGHTH_MOMENT = 105  # of a standard normal variable
_NEAR = 0.05  # length of a step that is not worth taking, in standard errors


class Design(NamedTuple):
    """The covariates of K segments in units of their standard deviations, or larger ones.

    Segments without rows, and those that are left out of the population, say nothing of these, nor
    of the spread of the covariates.
    """

    columns: tuple[CovariateColumn, ...]
    values: NDArray[np.float64]  # (K, P), as given
    center: NDArray[np.float64]  # (P,)
    scale: NDArray[np.float64]  # (P,)
    used: NDArray[np.bool_]  # (K,), whether a segment says something of the population

    @classmethod
    def of(
        cls,
        given: GivenCovariates,
        keys: NDArray[Any],
        fit: Fit,
        left_out: NDArray[np.bool_] | None,
        total: Total,
    ) -> "Design":
        """The lines of these segments, or the logarithms of their numbers of rows."""
        rows = np.asarray(fit.n_pos + fit.n_neg, float)
        has_rows = rows > 0
        used = has_rows if left_out is None else has_rows & ~left_out
        if isinstance(given, str):
            columns: tuple[CovariateColumn, ...] = (LOG_ROWS,)
            values = np.log(np.where(has_rows, rows, 1))[:, None]
        else:
            columns, values = given.of(keys, total)
        x = values[used]
        number, *sums = total(np.append(used.sum(), x.sum(0)))
        center = np.array(sums) / max(number, 1)
        scale = np.sqrt(total(((x - center) ** 2).sum(0)) / max(number, 1))
        if isinstance(given, str):
            values = np.where(has_rows[:, None], values, center)
        differ = scale > _ALIKE * np.abs(center)  # the mean of equal numbers is off by rounding
        scale = np.where(differ, scale, 1)
        # A segment far from all others, or the only one of a category, has no free coefficient.
        moment = total((((x - center) / scale) ** 8).sum(0)) / max(number, 1)
        scale = scale * np.maximum(1, (moment / _EIGHTH_MOMENT) ** 0.125)
        return cls(columns, values, center, scale, used)

    @property
    def standardized(self) -> NDArray[np.float64]:
        """(K, P)."""
        return (self.values - self.center) / self.scale


class Distributions(NamedTuple):
    """The distributions of (A, B), including the uncertainty of the population."""

    likelihoods: Likelihoods  # (K,), from which they are made
    segments: NormalMoments  # (K,)
    new: NormalMoments  # of a segment without rows; with covariates, of their mean
    coefficients: NormalMoments | None  # (2 + 2 P,), of the mean and of the covariates


class Regression(NamedTuple):
    """Coefficients (P, 2) in the coordinates of a population.

    The covariance (2 + 2 P, 2 + 2 P) is that of the mean and the coefficients, in one row.
    """

    design: Design
    coefficients: NDArray[np.float64]
    covariance: NDArray[np.float64]

    @property
    def effects(self) -> NDArray[np.float64]:
        """(K, 2), what the covariates add to the mean of each segment."""
        effects: NDArray[np.float64] = self.design.standardized @ self.coefficients
        return effects

    def centers(self, center: NDArray[np.float64]) -> NDArray[np.float64]:
        """(1 + P, 2), the means of the priors of the mean, and of what coefficients differ by."""
        return np.vstack([center, -self.coefficients])

    def averaged(self, known: Distributions, total: Total) -> tuple[Distributions, "Regression"]:
        """The distributions of (A, B) with the effects, and the mean coefficients.

        An unseen segment may have any covariates: its variance includes the spread of the effects.
        """
        likelihoods, segments = jax.tree.map(
            lambda x: x[: len(self.design.values)],
            places.fetched((known.likelihoods, known.segments)),
        )
        posterior: Any = known.coefficients
        segments = segments._replace(mean=segments.mean + self.effects)
        after = self._replace(
            coefficients=self.coefficients + posterior.mean[2:].reshape(-1, 2),
            covariance=posterior.covariance,
        )
        new = known.new._replace(covariance=known.new.covariance + after.spread(total))
        return Distributions(displaced(likelihoods, self.effects), segments, new, posterior), after

    def spread(self, total: Total) -> NDArray[np.float64]:
        """(2, 2), by how much covariates widen the distribution of an unseen segment."""
        z = self.design.standardized[self.design.used]
        effects = z @ self.coefficients
        products = effects[:, :, None] * effects[:, None] + errors_of_effects(z, self.covariance)
        sums = total(np.append(products.sum(0).ravel(), len(products)))
        spread: NDArray[np.float64] = sums[:4].reshape(2, 2) / max(sums[4], 1)
        return spread

    def original(self, back: Floats, total: Total) -> Covariates:
        """In the coordinates of the original scores, to which `back` maps (A, B)."""
        design = self.design
        matrix = np.kron(np.diag(np.append(1.0, 1 / design.scale)), back)
        return Covariates(
            columns=design.columns,
            values=design.values,
            center=design.center,
            coefficients=(matrix[2:, 2:] @ self.coefficients.ravel()).reshape(-1, 2),
            covariance=matrix @ self.covariance @ matrix.T,
            spread=back @ self.spread(total) @ back.T,
        )


class _Step(NamedTuple):
    """A step of the mean and of the coefficients, (1 + P, 2), and its length in standard errors."""

    by: NDArray[np.float64]
    decrement: float
    covariance: NDArray[np.float64]  # (2 + 2 P, 2 + 2 P), of the estimates


def searched(
    segments: StandardizedSegments,
    design: Design,
    center: NDArray[np.float64],
    start: Normals,
    nodes: Normals,
    progress: bool | Listener,
) -> tuple[StandardizedSegments, Estimate, Regression]:
    """The most probable population and coefficients; arguments as of `search.estimated`.

    The segments that are returned have (A, B) less the effects of their covariates.
    """
    number, z = len(segments.segments.keys), design.standardized
    coefficients = np.zeros((len(design.center), 2))
    # The search begins where it does without covariates: with some that say nothing it is the same.
    population, begin = start, start
    likelihoods = Likelihoods.of_normals(_first(number, nodes), start)
    mode: Any = None
    for rounds in range(_MOST_ROUNDS + 1):
        step = _step(z, likelihoods, population, center, coefficients, segments.total)
        if mode is not None:
            if step.decrement <= _NEAR or rounds == _MOST_ROUNDS:
                break
            # From a spread near 0 the way up is long.
            near = mode.status == Status.CONVERGED
            covariance = population.covariance if near else start.covariance
            begin = normals(population.mean + step.by[0], covariance)
        coefficients = coefficients + step.by[1:]
        segments = segments._replace(effects=z @ coefficients)
        likelihoods = displaced(likelihoods, -(z @ step.by[1:]))
        mode = estimated(segments, center, begin, places.placed(likelihoods.under(begin)), progress)
        likelihoods, population = _first(number, mode.at.likelihoods), mode.population
    if step.decrement > _NEAR:
        mode = mode._replace(status=Status.MAX_ITERATIONS)
    return segments, mode, Regression(design, coefficients, step.covariance)


def _first(number: int, tree: Any) -> Any:
    """On the host, without the segments that are added on a device."""
    return jax.tree.map(lambda x: x[:number], places.fetched(tree))


def displaced(own: Likelihoods, by: NDArray[np.float64]) -> Likelihoods:
    """The likelihoods (K,) of (A, B) plus (K, 2)."""
    pull_A, pull_B = own.precision.times(*by.T)
    return own._replace(pull_A=own.pull_A + pull_A, pull_B=own.pull_B + pull_B)


def _step(
    z: NDArray[np.float64],
    own: Likelihoods,
    population: Normals,
    center: NDArray[np.float64],
    coefficients: NDArray[np.float64],
    total: Total,
) -> _Step:
    """Newton's step where likelihoods are normal, in coordinates in which S is the unit matrix.

    There a segment's (A, B) by its rows are off the mean by a variable of covariance P^-1 + 1,
    whose inverse is W = 1 - (1 + P)^-1.
    """
    root = population.factor
    unit = own.transformed(np.linalg.inv(root))
    within = np.linalg.inv(unit.precision.matrices + np.eye(2))
    mean = np.linalg.solve(root, population.mean)
    off = unit.pull - unit.precision.matrices @ mean
    score, weight = np.einsum("kij,kj->ki", within, off), np.eye(2) - within
    design = np.column_stack([np.ones(len(z)), z])
    terms = (
        np.einsum("kp,ki->pi", design, score),
        np.einsum("kp,kq,kij->piqj", design, design, weight, optimize=True),
    )
    size = 2 * design.shape[1]
    sums = total(np.concatenate([x.ravel() for x in terms]))
    parameters = np.vstack([population.mean - center, coefficients])
    gradient = sums[:size] - MEAN_PRECISION * (parameters @ root).ravel()
    prior = MEAN_PRECISION * np.kron(np.eye(len(parameters)), root.T @ root)
    covariance = np.linalg.inv(sums[size:].reshape(size, size) + prior)
    step, back = covariance @ gradient, np.kron(np.eye(len(parameters)), root)
    return _Step(
        (step.reshape(-1, 2) @ root.T),
        float(np.sqrt(max(gradient @ step, 0))),
        back @ covariance @ back.T,
    )
