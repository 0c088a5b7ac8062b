"""Partial pooling for a future period, when differences between segments last only in part."""

import numbers
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.api import fit_segments
from platt_jax.arrays import Floats
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.progress import Listener
from platt_jax.execution.segment_rows import SegmentRows, laid_out, segment_rows
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.options import Options
from platt_jax.population.fitting import report_search
from platt_jax.population.gaussians import normals
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population
from platt_jax.results.probabilities import variance_of_logit
from platt_jax.results.segment_calibrator import (
    SIZES,
    SegmentCalibrator,
    require_segment_calibrator,
)
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.results.tables import counted
from platt_jax.status import Flag, Status
from platt_jax.updating import earlier_fits
from platt_jax.updating.drift_model import (
    LaterRows,
    deviations,
    lasting_share,
    next_population,
    uncertainty,
)
from platt_jax.updating.priors import at_places


@dataclass(frozen=True, eq=False, repr=False)
class Drift(ComparedByValue):
    """The lasting share of differences between segments, and a calibrator for a future period.

    Attributes:
        lasting: estimated share of the variance between segments that lasts from one period to the
            next. It is below 0 only by chance, and above 1 also where segments are far from
            normal, such as a few of one class each; the calibrator then uses 0 or 1.
        lasting_error: standard error of `lasting`; too small with fewer than about 20 segments.
        covariance: (2, 2) covariance of (A, B) between the segments of one period.
        shift: (2,) change of the population's mean between the periods.
        calibrator: a SegmentCalibrator of the segments of both periods, for the future period.
    """

    lasting: float
    lasting_error: float
    covariance: Floats
    shift: Floats
    calibrator: SegmentCalibrator

    def __repr__(self) -> str:
        lines = [
            f"Drift of {counted(len(self.calibrator), 'segment')} between two periods",
            f"lasting: {self.lasting:.2f} of the variance between segments "
            f"(standard error {self.lasting_error:.2g})",
            f"shift of the mean: A {self.shift[0]:+.4g}, B {self.shift[1]:+.4g}",
        ]
        return "\n  ".join(lines)


@takes_columns
def estimate_drift(
    calibrator: SegmentCalibrator,
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    weights: Column = None,
    offset: Column = None,
    ahead: float = 1.0,
    options: Options = Options(),
    progress: bool | Listener = False,
) -> Drift:
    """Estimate which share of the differences between segments lasts, and calibrate with it.

    Partial pooling assumes that differences between segments last. This function estimates from the
    next period's rows the share of the differences that lasts. The new calibrator multiplies each
    segment's deviation from the mean by that share, and adds the lost variance to its uncertainty.
    If everything lasts, it is partial pooling of both periods; if nothing does, it is one curve.
    The share's error is a sandwich over segments, or from the information if this is larger.
    `docs/explanation/pooling.md` has the model and its likelihood, and `docs/howto/drift.md` an
    example.

    Args:
        calibrator: fit of the earlier period's rows with pooling="partial".
        scores: (N,) scores of the next period's rows, as in `fit_segments`; or SegmentRows.
        labels: (N,) labels, as in `fit_segments`.
        segments: (N,) segment ids, as in `fit_segments`.
        weights: (N,) weights, as in `fit_segments`.
        offset: (N,) offset, as in `fit_segments`.
        ahead: distance of the future period from the later of the two, in units of the distance
            between these, from middle to middle. 1 if all three have the same length.
        options: as in `fit_segments`, for the next period's rows.
        progress: as in `fit_segments`.

    Returns:
        A Drift. Its calibrator has the segments of both periods, which differ by what lasts. (A, B)
        of its fits are their means in the future period, with their covariance. n_pos, n_neg and
        flags are of all rows; nll, iterations and passes are of the last period in which the
        segment was fitted. Its population is the future period's; mean_covariance includes the
        shift between periods. A search that did not converge, also one in either period, gives it
        the status MAX_ITERATIONS, with a RuntimeWarning.

    Raises:
        ValueError: the calibrator or the rows have no estimated population; the periods share no
            segment; `ahead` is not positive; or as in `fit_segments`.
        MemoryError: as in `fit_segments`.

    Example:
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> shops, scores = np.repeat(np.arange(500), 50), rng.normal(size=(2, 25000))
        >>> lasts, passes = rng.normal(size=500), rng.normal(size=(2, 500))
        >>> levels = 0.5 * (lasts + passes)[:, shops]
        >>> sold = rng.random(scores.shape) < 1 / (1 + np.exp(-scores - levels))
        >>> may = fit_segments(scores[0], sold[0], shops, pooling="partial")
        >>> drift = estimate_drift(may, scores[1], sold[1], shops)
        >>> print(drift)  # half of the variance lasts
        Drift of 500 segments between two periods
          lasting: 0.46 of the variance between segments (standard error 0.048)
          shift of the mean: A -0.007274, B -0.03733
        >>> drift.calibrator.predict_proba([0.5], [7]).shape
        (1,)
    """
    _require_population("calibrator", calibrator)
    value: Any = ahead  # to mypy, no float is a Real
    if not (isinstance(value, numbers.Real) and 0 < float(value) < np.inf):
        raise ValueError(f"ahead: expected a number above 0, got {ahead!r}")
    rows = segment_rows(scores, labels, segments, weights, offset=offset)
    next_one = fit_segments(rows, pooling="partial", options=options, progress=progress)
    _require_population("scores", next_one)
    if not (get_indexer(calibrator.keys, split_columns(next_one.keys)) >= 0).any():
        raise ValueError("segments: expected some of the calibrator's, got none")
    return drift_between(calibrator, next_one, rows, float(ahead))


def drift_between(
    first: SegmentCalibrator, second: SegmentCalibrator, rows: SegmentRows, ahead: float
) -> Drift:
    """`estimate_drift` for two calibrators with populations, given the rows of the second."""
    pair = first, second
    keys, fit = _together(*pair)
    periods = [deviations(x, keys) for x in pair]
    lasting, error, converged = lasting_share(_rows(first, rows), _population(second).mean)
    weight = np.array([np.sum(x.fit.n_pos + x.fit.n_neg) for x in pair], float)
    weight /= weight.sum()
    population = next_population(pair, periods, weight, _share(lasting), ahead)
    if not converged or np.isnan(population.mean).any():
        population = replace(population, status=Status.MAX_ITERATIONS)
    report_search(population, Caller())
    pooled = np.array([[x.fallback.A, x.fallback.B] for x in pair], float)
    calibrator = SegmentCalibrator(
        keys,
        _at_means(fit, population),
        Sigmoid(*(weight @ pooled).astype(fit.A.dtype)),
        uncertainty(weight, pooled, [x.fallback_covariance for x in pair]),
        "partial",
        population,
        nights=tuple(dict.fromkeys((*first.nights, *second.nights))),
        events=tuple(dict.fromkeys(x for source in pair for x in source.events if x != SIZES)),
        options=second.options,
    )
    shift = _population(second).mean - _population(first).mean
    return Drift(lasting, error, population.covariance, shift, calibrator)


def _rows(first: SegmentCalibrator, rows: SegmentRows) -> LaterRows:
    """Finite rows of the later period, with the earlier period's estimate of their log-odds."""
    keys, groups, (f, y, weights, offset) = laid_out(rows)
    owner = groups.owner
    count = np.ones(len(f)) if weights is None else weights.astype(float)
    offset = np.zeros(len(f)) if offset is None else offset.astype(float)
    used = np.isfinite(f) & np.isfinite(count) & (count > 0) & np.isfinite(offset)
    f, positive, count, owner = f[used].astype(float), y[used] > 0, count[used], owner[used]
    population = _population(first)
    indices = get_indexer(first.keys, split_columns(keys))
    usable = np.asarray(first.fit.converged)
    memory = Likelihoods.from_arrays(population.likelihood_precision, population.likelihood_pull)
    posterior = memory.under(normals(population.mean, population.covariance))
    deviation = np.where(usable[:, None], posterior.mean - population.mean, 0)
    explained = np.where(usable[:, None, None], population.covariance - posterior.covariance, 0)
    A, B = at_places(deviation, indices)[owner].T
    spread, explained = (
        variance_of_logit(f, *(covariance[..., i, j] for i, j in ((0, 0), (0, 1), (1, 1))))
        for covariance in (population.covariance, at_places(explained, indices)[owner])
    )
    moved = -(A * f + B)
    return LaterRows(f, positive, count, owner, moved, spread, explained, offset[used])


def _share(lasting: float) -> float:
    return float(np.clip(lasting, 0, 1))


def _population(calibrator: SegmentCalibrator) -> Any:
    """The population of a calibrator, typed as Any: callers have checked that it exists."""
    return calibrator.population


def _together(first: SegmentCalibrator, second: SegmentCalibrator) -> tuple[NDArray[Any], Fit]:
    """The segments of both, with their last converged fits, and counts and flags of all rows."""
    indices = get_indexer(first.keys, split_columns(second.keys))
    old, new = (jax.tree.map(np.asarray, x.fit) for x in (first, second))
    earlier = jax.tree.map(lambda x: at_places(x, indices), old)
    has_earlier = (indices >= 0) & earlier.converged
    keep = has_earlier & ~new.converged
    new = earlier_fits.with_earlier(new, earlier, has_earlier, second.population)
    return earlier_fits.joined(first.keys, old, second.keys, new, indices, keep)


def _at_means(fit: Fit, population: Population) -> Fit:
    """The fits with (A, B) of the converged ones at their posterior means."""
    posterior_fit = replace(
        fit,
        A=population.posterior_mean[:, 0],
        B=population.posterior_mean[:, 1],
        hessian=np.linalg.inv(population.posterior_covariance),
        covariance=population.posterior_covariance,
        gradient=np.zeros_like(fit.gradient),
    )
    moved = earlier_fits.chosen(np.asarray(fit.converged), posterior_fit, fit)
    return replace(moved, flags=earlier_fits.raised(moved.flags, Flag.REVERSED, moved.A > 0))


def _require_population(name: str, calibrator: SegmentCalibrator) -> None:
    require_segment_calibrator(calibrator, name)
    population = calibrator.population
    if population is None:
        raise ValueError(f'{name}: expected a calibrator with pooling="partial", got one without')
    if calibrator.by_level is not None:
        raise ValueError(f'{name}: expected pooling="partial", got pooling={calibrator.pooling!r}')
    if not population.estimated:
        raise ValueError(
            f"{name}: expected segments of which a population can be estimated, got NOT_ESTIMATED: "
            "fewer than two, one class only, or scores that are all the same"
        )
    if population.covariates is not None:
        raise ValueError(f"{name}: expected a calibrator without covariates, got one with some")
    if population.left_out(calibrator.fit.flags).any():
        raise ValueError(
            f"{name}: expected segments of the population, got some that it left out, since their "
            "scores lie far out: drop them by calibrator.only(calibrator.shrinkage > 0)"
        )
    if not np.isfinite(calibrator.fallback_covariance).all():
        raise ValueError(f"{name}: expected a calibrator with a finite fallback_covariance")
