"""Normal approximations of each segment's likelihood of (A, B)."""

from typing import Any, NamedTuple, Self

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import SILENT, Stage
from platt_jax.population.gaussians import NormalMoments, Normals
from platt_jax.population.places import fetched, namespace, program
from platt_jax.population.quadrature import Grid, Posteriors, Total
from platt_jax.population.segments import Coordinates
from platt_jax.population.symmetric import Square, Symmetric

_ROUNDING = 64 * np.finfo(float).eps
# Of a posterior that lies between two nodes, in units of the population's variance. The next nodes
# are closer.
_LEAST_VARIANCE = 1e-4


class Likelihoods(NamedTuple):
    """The segments' likelihoods of (A, B), as normal densities whose precision may be singular."""

    precision: Symmetric  # (K,)
    # The precision times the mean.
    pull_A: NDArray[np.float64]  # (K,)
    pull_B: NDArray[np.float64]  # (K,)

    @classmethod
    def of(cls, posteriors: Posteriors, population: Normals) -> "Likelihoods":
        """The likelihoods that give these posteriors under the population, up to second moments.

        The marginal likelihood of the population then has the same derivatives as by quadrature
        (expectation propagation, Minka 2001). Posteriors are in coordinates in which the
        population, one or one for each segment, is N(0, I).
        """
        return _from_moments(posteriors.segments, population)

    @classmethod
    def of_normals(cls, posteriors: Normals, population: Normals) -> "Likelihoods":
        """The likelihoods that give these posteriors (K,) under one population."""
        inverse = np.linalg.inv(population.factor)
        moments = NormalMoments(posteriors.mean - population.mean, posteriors.covariance)
        return _from_moments(moments.transformed(inverse), population)

    @classmethod
    def from_arrays(cls, precision: NDArray[Any], pull: NDArray[Any]) -> Self:
        """From the precisions (K, 2, 2), and the precisions times the means (K, 2)."""
        return cls(Symmetric.of(precision.astype(float)), *pull.astype(float).T)

    def plus(self, addend: "Likelihoods") -> "Likelihoods":
        """The likelihoods of the rows of both."""
        total: Likelihoods = jax.tree.map(np.add, self, addend)
        return total

    def times(self, weight: Any) -> "Likelihoods":
        """The likelihoods of the rows with a weight, one for all or (K,)."""
        weighted: Likelihoods = jax.tree.map(lambda x: weight * x, self)
        return weighted

    def in_coordinates_of(self, population: Normals) -> "Likelihoods":
        """Maps from coordinates in which the population is N(0, I) to the population's own."""
        AA, BA, BB = population.factor_AA, population.factor_BA, population.factor_BB
        base = self._by_inverse(1 / AA, 0 * AA, -BA / (AA * BB), 1 / BB)
        prior_pull = base.precision.times(population.mean_A, population.mean_B)
        return base._replace(pull_A=base.pull_A + prior_pull[0], pull_B=base.pull_B + prior_pull[1])

    def transformed(self, matrix: NDArray[Any]) -> "Likelihoods":
        """The likelihoods of `matrix @ (A, B)`, with a matrix (2, 2)."""
        return self._by_inverse(*Square.of(matrix).inverse())

    @program
    def _by_inverse(self, a: Any, b: Any, c: Any, d: Any) -> "Likelihoods":
        """The likelihoods of other parameters, which [[a, b], [c, d]] maps to these (A, B).

        Elementwise, so that no segment's bits depend on another.
        """
        P = self.precision
        first, second = P.times(a, c), P.times(b, d)
        precision = Symmetric(
            a * first[0] + c * first[1],
            a * second[0] + c * second[1],
            b * second[0] + d * second[1],
        )
        return Likelihoods(
            precision, a * self.pull_A + c * self.pull_B, b * self.pull_A + d * self.pull_B
        )

    @property
    def pull(self) -> NDArray[np.float64]:
        """(K, 2), the precision times the mean."""
        pull: NDArray[np.float64] = namespace(self.pull_A).stack([self.pull_A, self.pull_B], -1)
        return pull

    def coordinates(self, total: Total) -> Coordinates:
        """Coordinates by the mean and the variance of the scores, weighted by information.

        The original coordinates if the rows do not inform on both slopes and intercepts.
        """
        AA, AB, BB = total(fetched(_sums(self.precision)))
        if not AA * BB - AB * AB > _ROUNDING * AA * BB:
            return Coordinates(center=0.0, scale=1.0)
        return Coordinates(center=AB / BB, scale=BB / np.sqrt(AA * BB - AB * AB))

    def under(self, population: Normals) -> Normals:
        """The posteriors under a population."""
        precision = np.linalg.inv(population.covariance)
        return _with_prior(self, precision, precision @ population.mean)

    def total(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Segments`. The sums here are over all segments."""
        return sums

    def losses(self, grid: Grid, nodes: Normals, stage: Stage = SILENT) -> NDArray[np.float64]:
        """The negative log-likelihood (K, J) at the segments' nodes, up to a constant for each."""
        P, (z_A, z_B) = self.precision, grid.z.T
        A, B, AA, BA, BB = nodes
        at_A, at_B = P.times(A / 2, B / 2)
        slope_A, slope_B = 2 * at_A - self.pull_A, 2 * at_B - self.pull_B
        P_A, P_B = P.times(AA, BA)
        # A quadratic of z: its coefficients by segment, and its terms by node.
        coefficients = [
            A * (at_A - self.pull_A) + B * (at_B - self.pull_B),
            AA * slope_A + BA * slope_B,
            BB * slope_B,
            (AA * P_A + BA * P_B) / 2,
            BB * P_B,
            BB * P.BB * BB / 2,
        ]
        terms = [np.ones_like(z_A), z_A, z_B, z_A * z_A, z_A * z_B, z_B * z_B]
        losses: NDArray[np.float64] = np.stack(coefficients, -1) @ np.stack(terms)
        return losses


@program
def _from_moments(posteriors: NormalMoments, population: Normals) -> Likelihoods:
    """`Likelihoods.of` posteriors with these moments."""
    precision = _resolved(Symmetric.of(posteriors.covariance)).inverse()
    information = precision.plus(-np.eye(2)).positive_part()
    unit = Likelihoods(information, *precision.times(posteriors.mean[:, 0], posteriors.mean[:, 1]))
    return unit.in_coordinates_of(population)


def _resolved(covariance: Symmetric) -> Symmetric:
    """The covariances, with the least variances where nodes were too far apart to show a width."""
    xp = namespace(covariance.AA)
    lost = ~(covariance.determinant > 0)
    AA, BB = (xp.maximum(x, _LEAST_VARIANCE) for x in (covariance.AA, covariance.BB))
    least = Symmetric(AA, xp.zeros_like(AA), BB)
    return Symmetric(*(xp.where(lost, x, y) for x, y in zip(least, covariance, strict=True)))


@program
def _with_prior(likelihoods: Likelihoods, precision: Any, pull: Any) -> Normals:
    """The posteriors under a normal prior with this precision (2, 2) and pull (2,)."""
    covariance = likelihoods.precision.plus(precision).inverse()
    mean = covariance.times(likelihoods.pull_A + pull[0], likelihoods.pull_B + pull[1])
    return Normals(*mean, *covariance.factor())


@program
def _sums(precision: Symmetric) -> Any:
    return namespace(precision.AA).stack([x.sum() for x in precision])
