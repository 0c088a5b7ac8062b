"""Partial pooling for a period to come, where part of what tells segments apart does not last.

A segment's (A, B) in period t is m_t + x_t. The deviations x_t are Normal(0, S) between segments,
and those of two consecutive periods have the covariance c S: a share c of their variance lasts.
For two periods this is x_t = u + v_t with u ~ Normal(0, c S) for what lasts and
v_t ~ Normal(0, (1 - c) S) for what is of one period. Of later periods it says less: c^2 S remains
of the first one's in the third, as of an autoregression.
"""

import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.ids.factorize import get_indexer
from platt_jax.inference import memory
from platt_jax.inference.priors import at_places
from platt_jax.results.averages import mean_probability
from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.fit import ComparedByValue, Fit, Sigmoid
from platt_jax.results.population import Population
from platt_jax.results.probabilities import logit
from platt_jax.status import Flag

_Array = NDArray[np.float64]

# The mean of sigmoids is matched in so many steps; what is left falls by half with each, or faster,
# for any variance of the log-odds up to 20.
_STEPS = 50


@dataclass(frozen=True, eq=False, repr=False)
class Drift(ComparedByValue):
    """What lasted from one period to the next, and the calibrator for one to come.

    Attributes:
        lasting: the share of the variance between segments that lasts from a period to the next, as
            estimated: outside [0, 1] by chance only, and the calibrator takes it as 0 or 1 there.
        lasting_error: its standard error; with fewer than some 20 segments it is too small.
        covariance: (2, 2), of (A, B) between the segments of one period.
        shift: (2,), by how much the population's mean has moved between the periods.
        calibrator: a SegmentCalibrator of the segments of both, for the period to come.
    """

    lasting: float
    lasting_error: float
    covariance: _Array
    shift: _Array
    calibrator: SegmentCalibrator

    @property
    def lasting_covariance(self) -> _Array:
        """(2, 2), of the part of (A, B) that lasts from one period to the next."""
        return _share(self.lasting) * self.covariance

    @property
    def passing_covariance(self) -> _Array:
        """(2, 2), of the part of (A, B) that is of one period only."""
        return (1 - _share(self.lasting)) * self.covariance

    def __repr__(self) -> str:
        lines = [
            f"Drift of {len(self.calibrator):,} segments between two periods",
            f"lasting: {self.lasting:.2f} of the variance between segments "
            f"(standard error {self.lasting_error:.2g})",
            f"shift of the mean: A {self.shift[0]:+.4g}, B {self.shift[1]:+.4g}",
        ]
        return "\n  ".join(lines)


def estimate_drift(
    first: SegmentCalibrator, second: SegmentCalibrator, *, ahead: float = 1.0
) -> Drift:
    """How much of what tells segments apart lasts, and a calibrator for the period to come.

    Partial pooling takes differences between segments for lasting ones. Where they are not, it can
    be worse than one curve for all. Here two fits, of consecutive periods, say what share of the
    differences lasts; the new calibrator keeps that share of each segment's deviation, and adds to
    its uncertainty what is gone. If all lasts, it is partial pooling of both periods; if nothing
    does, it is one curve.

    The share is the slope of the second period's (A, B) on those of the first, as predicted by
    partial pooling, by weighted least squares: the weights are what the second period's rows tell.
    Its standard error is a sandwich over segments. What a period's rows tell of a segment is its
    posterior without the population, as a normal distribution. What does not last gives way to the
    curve of all rows of its period, of both by their rows. How far the means of the periods lie
    apart is part of the uncertainty of the next one's.

    Args:
        first: of the earlier period's rows, fitted with pooling="partial".
        second: likewise, of the later period's.
        ahead: how far ahead the period to come is, in units of the distance between the two: from
            the middle of the second to the middle of it. 1 if all three have one length.

    Returns:
        A Drift. Its calibrator has the segments of both. (A, B) of its fits are their means in the
        period to come, with their covariance; n_pos, n_neg and flags are of all rows, and nll,
        iterations and passes of the last period in which the segment was fitted. `population` has
        the mean, and the covariance of one period; its mean_covariance includes the shift between
        periods.

    Raises:
        ValueError: a calibrator without an estimated population, two of other kinds of segments or
            of none in common, or an `ahead` that is not positive.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> shops, scores = np.repeat(np.arange(200), 50), rng.normal(size=(2, 10000))
        >>> lasts, passes = rng.normal(size=200), rng.normal(size=(2, 200))
        >>> levels = 0.7 * (lasts + passes)[:, shops]
        >>> sold = rng.random(scores.shape) < 1 / (1 + np.exp(-scores - levels))
        >>> may, june = (
        ...     fit_segments(f, y, shops, pooling="partial") for f, y in zip(scores, sold)
        ... )
        >>> drift = estimate_drift(may, june)
        >>> print(drift)  # half of the variance lasts
        Drift of 200 segments between two periods
          lasting: 0.47 of the variance between segments (standard error 0.073)
          shift of the mean: A -0.01542, B +0.1021
        >>> drift.calibrator.predict_proba([0.5], [7]).shape
        (1,)
    """
    for name, calibrator in (("first", first), ("second", second)):
        _require_population(name, calibrator)
    if not (isinstance(ahead, numbers.Real) and 0 < ahead < np.inf):
        raise ValueError(f"ahead: expected a number above 0, got {ahead!r}")
    keys, fit = _together(first, second)
    both = first, second
    earlier, later = (_Period.of(calibrator, keys) for calibrator in both)
    lasting, error = _slope(earlier.deviation, later)
    rows = np.array([np.sum(x.fit.n_pos + x.fit.n_neg) for x in both], float)
    weight = rows / rows.sum()
    population = _ahead(both, (earlier, later), weight, _share(lasting), float(ahead))
    pooled = np.array([[x.fallback.A, x.fallback.B] for x in both], float)
    calibrator = SegmentCalibrator(
        keys,
        _at_means(fit, population),
        Sigmoid(*(weight @ pooled).astype(fit.A.dtype)),
        _covariance(weight, pooled, [x.fallback_covariance for x in both]),
        population,
    )
    means = [_population(x).mean for x in both]
    return Drift(lasting, error, population.covariance, means[1] - means[0], calibrator)


def _ahead(
    both: tuple[SegmentCalibrator, SegmentCalibrator],
    periods: "tuple[_Period, _Period]",
    weight: _Array,
    share: float,
    ahead: float,
) -> Population:
    """The population so far ahead, and its segments there.

    Args:
        both: calibrators.
        periods: what each says of the K segments.
        weight: (2,), of each in what they say together.
        share: what lasts from one period to the next.
        ahead: in such steps.
    """
    populations = [_population(x) for x in both]
    means = np.stack([x.mean for x in populations])
    covariance = np.einsum("t,tij->ij", weight, [x.covariance for x in populations])
    number = len(periods[0].deviation)
    deviation, left = np.zeros((number, 2)), np.broadcast_to(covariance, (number, 2, 2))
    for period in periods:
        deviation, left = share * deviation, covariance - share**2 * (covariance - left)
        deviation, left = period.learnt(deviation, left)
    kept = share**ahead
    left = covariance - kept**2 * (covariance - left)
    pooled = np.stack([_pooled_mean(x, covariance) for x in both])
    mean = weight @ (kept * means + (1 - kept) * pooled)
    uncertain = _covariance(weight, means, [x.mean_covariance for x in populations])
    errors = np.stack([x.covariance_errors for x in populations])
    of_population = np.trace(np.linalg.solve(covariance, left), axis1=1, axis2=2) / 2
    return Population(
        mean=mean,
        covariance=covariance,
        mean_covariance=uncertain,
        covariance_errors=np.sqrt(np.einsum("t,tij->ij", weight**2, errors**2)),
        status=max(x.status for x in populations),
        posterior_mean=mean + kept * deviation,
        posterior_covariance=left + uncertain,
        shrinkage=np.clip(of_population, 0, 1),
    )


def _population(calibrator: SegmentCalibrator) -> Population:
    """Of a calibrator that has one."""
    population: Any = calibrator.population
    return population


def _share(lasting: float) -> float:
    return float(np.clip(lasting, 0, 1))


class _Period(NamedTuple):
    """What a period says of K segments' deviations from its population's mean.

    The likelihood of a deviation x is exp(information' x - x' precision x / 2) times a constant;
    both are 0 of segments without rows, or with a failed fit.
    """

    deviation: _Array  # (K, 2), the mean of the posterior
    information: _Array  # (K, 2)
    precision: _Array  # (K, 2, 2)

    @classmethod
    def of(cls, calibrator: SegmentCalibrator, keys: NDArray[Any]) -> "_Period":
        """Given a calibrator with a population, of its segments among the keys."""
        population = _population(calibrator)
        usable = np.asarray(calibrator.fit.converged)
        place = get_indexer(calibrator.keys[usable], keys)
        root = np.linalg.cholesky(population.covariance)
        back = np.linalg.inv(root)
        deviation = (population.posterior_mean[usable] - population.mean) @ back.T
        precision = np.linalg.inv(back @ population.posterior_covariance[usable] @ back.T)
        values, vectors = np.linalg.eigh(precision - np.eye(2))
        own = vectors * np.maximum(values, 0)[:, None] @ np.swapaxes(vectors, 1, 2)
        information = deviation + _times(own, deviation)
        in_units = deviation @ root.T, information @ back, back.T @ own @ back
        return cls(*(at_places(x, place) for x in in_units))

    def learnt(self, mean: _Array, covariance: _Array) -> tuple[_Array, _Array]:
        """A normal distribution of the deviations with what this period adds to it."""
        unlearnt = np.linalg.inv(np.eye(2) + covariance @ self.precision)
        covariance = unlearnt @ covariance
        return _times(unlearnt, mean) + _times(covariance, self.information), covariance


def _slope(earlier: _Array, later: _Period) -> tuple[float, float]:
    """The slope of the later deviations on the earlier ones, and its standard error."""
    weight = later.precision
    total = np.linalg.pinv(weight.sum(0), hermitian=True)
    x = earlier - total @ _times(weight, earlier).sum(0)
    residual = later.information - weight @ (total @ later.information.sum(0))
    along = _times(weight, x)
    square, product = np.sum(x * along), np.sum(x * residual, axis=1)
    if not square > 0:
        return 0.0, np.inf
    slope = product.sum() / square
    off: _Array = product - slope * np.sum(x * along, axis=1)
    return float(slope), float(np.sqrt(np.sum(off**2)) / square)


def _pooled_mean(calibrator: SegmentCalibrator, covariance: _Array) -> _Array:
    """(2,), of the normal (A, B) of this covariance whose mean sigmoid is that of all rows.

    At two scores, one standard deviation to each side of the mean, by the weights that the rows
    have in the pooled fit.
    """
    information = np.linalg.inv(np.asarray(calibrator.fallback_covariance, float))
    center = information[0, 1] / information[1, 1]
    spread = np.sqrt(information[0, 0] / information[1, 1] - center**2)
    design = np.array([[center - spread, 1], [center + spread, 1]])
    sigmoid = calibrator.fallback
    target = -(design @ np.array([sigmoid.A, sigmoid.B], float))
    variance = np.einsum("ij,jk,ik->i", design, covariance, design)
    none, at = np.zeros(2), target
    for _ in range(_STEPS):
        mean = mean_probability(none, np.column_stack([none, -at, none, none, variance]))
        at = at + target - logit(mean)
    solved: _Array = -np.linalg.solve(design, at)
    return solved


def _covariance(weight: _Array, means: _Array, covariances: Sequence[Any]) -> _Array:
    """(2, 2), of a mean of both periods by these weights: its error, and how far they lie apart."""
    apart = means[1] - means[0]
    error = np.einsum("t,tij->ij", weight**2, np.asarray(covariances, float))
    total: _Array = error + weight.prod() * np.outer(apart, apart)
    return total


def _together(first: SegmentCalibrator, second: SegmentCalibrator) -> tuple[NDArray[Any], Fit]:
    """The segments of both, and of each the last fit that converged, counts and flags of all."""
    place = get_indexer(first.keys, second.keys, "second")
    if not (place >= 0).any():
        raise ValueError("first, second: expected segments in common, got none")
    old, new = (jax.tree.map(np.asarray, x.fit) for x in (first, second))
    earlier = jax.tree.map(lambda x: at_places(x, place), old)
    known = (place >= 0) & earlier.converged
    kept = known & ~new.converged
    new = memory.with_earlier(new, earlier, known, second.population)
    return memory.joined(first.keys, old, second.keys, new, place, kept)


def _at_means(fit: Fit, population: Population) -> Fit:
    """Converged fits with (A, B) at the means of their posteriors."""
    of_posterior = replace(
        fit,
        A=population.posterior_mean[:, 0],
        B=population.posterior_mean[:, 1],
        hessian=np.linalg.inv(population.posterior_covariance),
        covariance=population.posterior_covariance,
        gradient=np.zeros_like(fit.gradient),
    )
    moved = memory.chosen(np.asarray(fit.converged), of_posterior, fit)
    return replace(moved, flags=memory.raised(moved.flags, Flag.REVERSED, moved.A > 0))


def _times(matrices: _Array, vectors: _Array) -> _Array:
    product: _Array = (matrices @ vectors[..., None])[..., 0]
    return product


def _require_population(name: str, calibrator: object) -> None:
    if not isinstance(calibrator, SegmentCalibrator):
        raise ValueError(f"{name}: expected a SegmentCalibrator, got {type(calibrator).__name__}")
    population = calibrator.population
    if population is None:
        raise ValueError(f'{name}: expected one with pooling="partial", got one without')
    if not population.estimated:
        raise ValueError(f"{name}: expected an estimated population, got NOT_ESTIMATED")
    if not np.isfinite(calibrator.fallback_covariance).all():
        raise ValueError(f"{name}: expected a finite fallback_covariance, got NaN")
