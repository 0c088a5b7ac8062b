"""The population that segments are a sample of."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.model.prior import GaussianPrior
from platt_jax.results.averages import mean_probability
from platt_jax.results.covariates import Covariates
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.tables import Table, counted
from platt_jax.status import Flag, Status

# Fields of a Population: whether their leading axis is the segments', and their other axes.
SHAPES = {
    "mean": (False, (2,)),
    "covariance": (False, (2, 2)),
    "mean_covariance": (False, (2, 2)),
    "covariance_errors": (False, (2, 2)),
    "status": (False, ()),
    "likelihood_precision": (True, (2, 2)),
    "likelihood_pull": (True, (2,)),
    "posterior_mean": (True, (2,)),
    "posterior_covariance": (True, (2, 2)),
    "predictive_mean": (False, (2,)),
    "predictive_covariance": (False, (2, 2)),
    "shrinkage": (True, ()),
}

PARAMETERS = 2  # of a segment

# Maximum median shrinkage at which pooling hardly changes any curve.
_LITTLE = 0.05


@dataclass(frozen=True, eq=False, repr=False)
class Population(ComparedByValue):
    """The distribution of a random segment's (A, B): Normal(mean, covariance).

    Without an estimate the shrinkage is 1 and all other fields are NaN: the status is
    NOT_ESTIMATED, or MAX_ITERATIONS if the search ended at a population that says less of the rows
    than the curve of all rows does.

    A segment whose scores lie far out is left out: it is fitted alone, its likelihood is 0, and its
    posterior is that of its fit.

    Attributes:
        mean: (2,), mean of (A, B).
        covariance: (2, 2), covariance of (A, B) between segments.
        mean_covariance: (2, 2), covariance of the estimated mean.
        covariance_errors: (2, 2), standard errors of the covariance. At a BOUNDARY they hold for a
            fixed direction in which the covariance is nearly 0.
        status: a `Status`: CONVERGED, BOUNDARY, MAX_ITERATIONS or NOT_ESTIMATED.
        likelihood_precision: (K, 2, 2), precision of each segment's likelihood of (A, B), as a
            normal distribution; 0 without rows, and for segments left out.
        likelihood_pull: (K, 2), the precision times the mean of each segment's likelihood.
        posterior_mean: (K, 2), posterior mean of each segment's (A, B), given all rows. It includes
            the uncertainty of the population.
        posterior_covariance: (K, 2, 2), posterior covariance of each segment's (A, B), as well.
        predictive_mean: (2,), mean of (A, B) of an unseen segment.
        predictive_covariance: (2, 2), covariance of (A, B) of an unseen segment: the spread between
            segments, its uncertainty, and the error of the mean.
        shrinkage: (K,), from 0 (the segment's own rows alone) to 1 (the population alone): the
            posterior variance divided by the population's, averaged over both directions.
        covariates: what the mean of (A, B) follows, else None. With covariates `mean` is that of
            segments with average ones, `covariance` is what these leave to explain, and
            `predictive_covariance` includes the covariates' spread: nothing is known of an unseen
            segment.
        elsewhere: (3,) the `shares` of segments that `SegmentCalibrator.only` left out, else None.
    """

    mean: NDArray[Any]
    covariance: NDArray[Any]
    mean_covariance: NDArray[Any]
    covariance_errors: NDArray[Any]
    status: Status
    likelihood_precision: NDArray[Any]
    likelihood_pull: NDArray[Any]
    posterior_mean: NDArray[Any]
    posterior_covariance: NDArray[Any]
    predictive_mean: NDArray[Any]
    predictive_covariance: NDArray[Any]
    shrinkage: NDArray[Any]
    covariates: Covariates | None = None
    elsewhere: NDArray[Any] | None = None

    @classmethod
    def not_estimated(cls, segments: int, status: Status = Status.NOT_ESTIMATED) -> "Population":
        """The population of K segments without an estimate."""
        unknown: dict[str, Any] = {
            name: np.full((segments,) * per_segment + axes, np.nan)
            for name, (per_segment, axes) in SHAPES.items()
        }
        defaults = {"status": status, "shrinkage": np.ones(segments)}
        return cls(**unknown | defaults)

    def left_out(self, flags: Any) -> NDArray[np.bool_]:
        """Which segments (K,) with these flags the estimate left out: they are fitted alone."""
        outliers = (np.asarray(flags) & Flag.OUTLIER) != 0
        return self.estimated & outliers & ~self.likelihood_precision.any((1, 2))

    def only(self, where: NDArray[np.bool_], rows: Any) -> "Population":
        """The same population with the fields of some of the segments, which have (K,) rows."""
        dropped = self._fields_of(~where)
        if self.estimated and not where.all():
            dropped = replace(dropped, elsewhere=dropped.shares(np.asarray(rows)[~where]))
        return replace(self._fields_of(where), elsewhere=dropped.elsewhere)

    def _fields_of(self, where: NDArray[np.bool_]) -> "Population":
        names = [name for name, (per_segment, _) in SHAPES.items() if per_segment]
        arrays: dict[str, Any] = {name: getattr(self, name)[where] for name in names}
        return replace(self, **arrays, covariates=self.covariates and self.covariates.only(where))

    def shares(self, rows: Any) -> NDArray[np.float64]:
        """(3,) sums over segments, which have (K,) rows, and those that `elsewhere` counts.

        Of their shares of the precision of the population's mean, of the squares of these, and of
        the squares times the part of a segment's rows that its own parameters use.
        """
        # Coordinates in which the log-odds at two scores are independent, with variances of 1.
        covariance = self.average_covariance
        center = -covariance[0, 1] / covariance[0, 0]
        at_center = max(covariance[1, 1] + covariance[0, 1] * center, np.finfo(float).tiny)
        half_width = np.sqrt(at_center / covariance[0, 0])
        T = np.array([[center + half_width, 1], [center - half_width, 1]]) / np.sqrt(2 * at_center)
        inverse = np.linalg.inv(T)
        S, M = (T @ x @ T.T for x in (self.covariance, self.mean_covariance))
        precision = inverse.T @ self.likelihood_precision @ inverse
        weight = np.linalg.solve(np.eye(2) + precision @ S, precision)  # (S + D)^-1
        share = np.einsum("kij,ji->k", weight, M) / PARAMETERS
        row_share = PARAMETERS / np.maximum(np.asarray(rows, float), PARAMETERS)
        sums = np.array([share.sum(), (share**2).sum(), (share**2 * row_share).sum()])
        return sums if self.elsewhere is None else sums + self.elsewhere

    def moved(self, change: NDArray[Any], unseen_change: float) -> "Population":
        """The population of segments whose B has changed by (K,) numbers, or one.

        B of the population's mean and of unseen segments changes by `unseen_change`.
        """
        changes = np.zeros_like(self.posterior_mean)
        changes[:, 1] = change
        pull = (self.likelihood_precision @ changes[..., None])[..., 0]
        mean_change = np.array([0.0, unseen_change])
        return replace(
            self,
            mean=self.mean + mean_change,
            likelihood_pull=self.likelihood_pull + pull,
            posterior_mean=self.posterior_mean + changes,
            predictive_mean=self.predictive_mean + mean_change,
        )

    @property
    def estimated(self) -> bool:
        """Whether there is an estimate."""
        return bool(np.isfinite(self.mean).all())

    @property
    def prior(self) -> GaussianPrior:
        """The population as a prior of a segment's (A, B); use it with Options(targets="none").

        With covariates it has a mean for each segment.
        """
        mean = self.mean if self.covariates is None else self.means
        return GaussianPrior(mean, np.linalg.inv(self.covariance))

    @property
    def means(self) -> NDArray[Any]:
        """(K, 2), the mean of (A, B) of each segment, by its covariates."""
        effects = 0.0 if self.covariates is None else self.covariates.effects()
        return np.broadcast_to(self.mean + effects, self.posterior_mean.shape)

    @property
    def average_covariance(self) -> NDArray[Any]:
        """(2, 2), covariance of (A, B) of an unseen segment with average covariates."""
        spread = 0.0 if self.covariates is None else self.covariates.spread
        return self.predictive_covariance - spread

    @property
    def coefficients(self) -> Table | None:
        """How curves follow the covariates, see `Covariates.table`; None without covariates."""
        return None if self.covariates is None else self.covariates.table()

    @property
    def mean_errors(self) -> NDArray[Any]:
        """(2,), standard errors of the mean of (A, B)."""
        return np.sqrt(np.diag(self.mean_covariance))

    def __repr__(self) -> str:
        if not self.estimated:
            return f"Population: {self.status.name}. {self.status.message}"
        lines_A, lines_B = (
            f"mean {mean:.4g} (standard error {error:.2g}), standard deviation {variance**0.5:.4g}"
            for mean, error, variance in zip(
                self.mean, self.mean_errors, np.diag(self.covariance), strict=True
            )
        )
        number = len(self.shrinkage)
        lines = [
            f"Population of {counted(number, 'segment')}, {self.status.name}",
            f"A: {lines_A}",
            f"B: {lines_B}",
        ]
        if self.covariates is not None:
            lines.append(f"covariates: {', '.join(self.covariates.names)}; see `coefficients`")
        if number:
            median = np.median(self.shrinkage)
            lines.append(f"shrinkage: median {median:.2f}; {_gain(median)}")
        return "\n  ".join(lines)

    def predict_proba(self, scores: Column) -> NDArray[np.float64]:
        """P(y=1 | score) of an unseen segment: the mean probability over the population.

        Args:
            scores: (...) numbers.

        Returns:
            (...) in [0, 1], in float64.
        """
        scores = validation.numbers(scores, "scores").astype(np.float64)
        normal = np.append(self.predictive_mean, self.predictive_covariance.ravel()[[0, 1, 3]])
        each_normal = np.broadcast_to(normal, (scores.size, 5))
        return mean_probability(scores.ravel(), each_normal).reshape(scores.shape)


def _gain(shrinkage: float) -> str:
    """What pooling gains, in words."""
    if shrinkage < _LITTLE:
        return "most segments have enough rows of their own, and gain nothing by pooling"
    if shrinkage > 1 - _LITTLE:
        return "most segments have too few rows to say much by themselves"
    return "most segments gain by pooling"
