"""Updates of calibrators by new rows: the earlier posterior is the prior of the new fit."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools
from platt_jax.columns import Column
from platt_jax.execution.caller import Caller
from platt_jax.execution.given import given_to
from platt_jax.execution.non_finite import report_non_finite
from platt_jax.execution.problems import Context
from platt_jax.execution.progress import Listener, Stage
from platt_jax.execution.run import fit_problems
from platt_jax.execution.segment_rows import SegmentRows, segment_rows
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.inference import earlier_fits, update_pooled
from platt_jax.inference.priors import at_places, prior_from
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.results import tables
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.status import Flag, Status

_NOT_LEARNT = (
    "their new rows are not learnt: segments fitted before keep their earlier fits, new ones are "
    'NaN. Options(non_finite="omit") learns all other rows of theirs'
)


def update(
    calibrator: SegmentCalibrator,
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    weights: Column = None,
    offset: Column = None,
    forgetting: float = 1.0,
    options: Options = Options(),
    progress: bool | Listener = False,
) -> SegmentCalibrator:
    """Update a calibrator with new rows, without the earlier ones.

    The prior of each segment is `prior_from(calibrator, ...)`: a normal distribution with the
    earlier fit as its mean and the Hessian as its precision. Nothing else is kept of earlier rows
    (Laplace's approximation). Platt's targets use the counts of all rows, earlier and new.

    A segment never loses its fit. If its new rows have no weight, or their fit fails, it keeps its
    earlier fit, as does a segment without new rows. One NaN among a segment's new rows therefore
    discards all of them; with Options(non_finite="omit") only the bad row is discarded.

    Without a population, standard errors are up to 8 % too small after 20 updates by 10 rows,
    because the Hessian of earlier rows is not recomputed at the new (A, B).

    With a population (pooling="partial"), labels are used without smoothing. Each segment's rows
    are kept as a normal likelihood of its (A, B), and each update estimates the population and its
    covariance anew from all of these. New segments start from the population. After 12 updates by
    10 rows its mean and variances differ from those of a fit of all rows by 0.15 standard errors on
    average if a third of the labels are positive, and by 0.8 if 2 % are
    (`benchmarks/inference/populations.py`).

    After 21 weekly updates on flights, parameters are within 0.4 standard errors of those of a fit
    of all rows (median of carriers, routes or aircraft; `benchmarks/inference/online.py`).

    Args:
        calibrator: result of `fit_segments` or `update`.
        scores: (N,) scores of new rows only, as in `fit_segments`; or SegmentRows.
        labels: (N,) labels, as in `fit_segments`.
        segments: (N,) segment ids, as in `fit_segments`.
        weights: (N,) weights, as in `fit_segments`.
        offset: (N,) offset, as in `fit_segments`. Earlier fits are of the curves without offsets,
            so rows with and without may follow each other.
        forgetting: factor in (0, 1] for the weights of all earlier rows, also in segments without
            new rows: with 0.9, rows of n updates ago count 0.9^n.
        options: as in `fit_segments`.
        progress: as in `fit_segments`.

    Returns:
        A SegmentCalibrator with the earlier and the new segments. `n_pos` and `n_neg` include
        earlier rows, discounted by `forgetting`. `nll` is that of the new rows, and 0 without any.

        Flags describe all rows, as far as these are remembered. ONE_CLASS is set by the counts,
        REVERSED by the new A. SEPARABLE is set if earlier and new rows are each separable,
        CONSTANT_SCORES if both have the same single score. OUTLIER is kept; new rows alone set it
        only if they weigh at least as much as the earlier ones.

    Warns:
        RuntimeWarning: the new rows of a segment were not used, because they are not finite or
            their fit failed; or as in `fit_segments`.

    Raises:
        ValueError: an argument is not as above, or as in `fit_segments`; or no dtype holds the
            earlier and the new ids exactly.
        MemoryError: as in `fit_segments`.

    Example:
        >>> from platt_jax import fit_segments
        >>> last_night = fit_segments([2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"])
        >>> tonight = update(last_night, [1.5, -1.0, 0.5], [1, 0, 0], ["b", "b", "c"])
        >>> tonight.keys.tolist(), tonight.fit.n_pos.tolist()
        (['a', 'b', 'c'], [1.0, 2.0, 0.0])
    """
    require_segment_calibrator(calibrator, "calibrator")
    if not 0 < forgetting <= 1:
        raise ValueError(f"forgetting: expected a number in (0, 1], got {forgetting!r}")
    caller, stage = Caller(), Stage.of(progress)
    rows = segment_rows(scores, labels, segments, weights, offset=offset)
    options = validation.options(options)
    population = calibrator.population
    if population is not None and not population.estimated:
        population = None
    remembered = earlier_fits.remembered(calibrator, forgetting)
    place = get_indexer(calibrator.keys, split_columns(rows.keys), "segments")
    earlier: Fit = jax.tree.map(lambda x: at_places(x, place), remembered)
    known = (place >= 0) & earlier.converged
    levels = None
    of_old: Likelihoods | None = None
    of_new: Likelihoods | None = None
    if population is not None:
        of_old = update_pooled.remembered(population, forgetting)
        without = replace(options, targets="none")
        new, of_new = update_pooled.learnt(calibrator, of_old, place, rows, without, stage, caller)
    else:
        n_pos, n_neg = (np.where(known, n, 0) for n in (earlier.n_pos, earlier.n_neg))
        prior = prior_from(calibrator, rows.keys, forgetting=forgetting)
        new = _fit(rows, prior, (n_pos, n_neg), options, stage, caller)
    kept = (place >= 0) & ~new.converged & (known | np.isnan(new.A))
    report_non_finite(new, options, "segments", rows.keys, caller, _NOT_LEARNT)
    _report_failed(new, kept, rows.keys, caller)
    new = earlier_fits.with_earlier(new, earlier, known, population)
    keys, (each, likelihoods) = earlier_fits.joined(
        calibrator.keys, (remembered, of_old), rows.keys, (new, of_new), place, kept
    )
    if population is not None and likelihoods is not None:
        each, population, levels = update_pooled.renewed(each, calibrator, keys, likelihoods)
    elif calibrator.population is not None:
        population = Population.not_estimated(len(keys))
    each = replace(each, flags=earlier_fits.raised(each.flags, Flag.REVERSED, each.A > 0))
    fallback, covariance = _updated_fallback(calibrator, rows, forgetting, options, caller)
    made = SegmentCalibrator(keys, each, fallback, covariance, population, levels)
    if calibrator.shift is None:
        return made
    # New segments are fitted at the rate of their rows.
    place = get_indexer(calibrator.keys, split_columns(keys))
    shift = np.where(place >= 0, calibrator.shift[place], 0.0)
    return replace(made, shift=np.append(shift, calibrator.shift[-1]))


def _fit(
    rows: SegmentRows,
    prior: GaussianPrior,
    counts: tuple[NDArray[Any], NDArray[Any]],
    options: Options,
    stage: Stage,
    caller: Caller,
) -> Fit:
    """The fit of every segment's rows, with priors that stand for `counts` of earlier rows."""
    given = given_to(rows.keys.shape, rows.dtype, prior)
    if options.targets == "platt":
        remembered: Any = tuple(n.astype(rows.dtype) for n in counts)
        given = given._replace(remembered=remembered)
    return fit_problems(rows.problems, given, Context(options, caller, stage))


def _report_failed(new: Fit, kept: Bools, keys: NDArray[Any], caller: Caller) -> None:
    """Warns of segments whose new rows are finite but were not used."""
    failures = (Status.MAX_ITERATIONS, Status.LINE_SEARCH_FAILED)
    failed = np.flatnonzero(kept & np.isin(new.status, failures))
    if len(failed):
        first, status = tables.name(keys, failed[0]), Status(int(new.status[failed[0]]))
        caller.warn(
            f"the fits of the new rows of {len(failed):,} of {len(keys):,} segments failed, first "
            f"in {first} ({status.name}): they keep their earlier fits"
        )


def _updated_fallback(
    calibrator: SegmentCalibrator,
    rows: SegmentRows,
    forgetting: float,
    options: Options,
    caller: Caller,
) -> tuple[Sigmoid, NDArray[Any]]:
    """The updated pooled fit and covariance; unchanged if the covariance is not known."""
    sigmoid, covariance = calibrator.fallback, calibrator.fallback_covariance
    if not np.isfinite(covariance).all():
        return sigmoid, covariance
    # In units of the standard errors: a pseudoinverse would take one of A and B as undetermined.
    units = np.sqrt(np.diag(covariance).astype(float))
    units = np.outer(*[np.where(units > 0, units, 1)] * 2)
    precision = forgetting * np.linalg.pinv(covariance / units, hermitian=True) / units
    prior = GaussianPrior(np.array([sigmoid.A, sigmoid.B], float), precision)
    given = given_to((1,), rows.dtype, prior)
    options = replace(options, targets="none", non_finite="omit")
    one = fit_problems(rows.pooled, given, Context(options, caller), loss=False)
    if not one.converged[0]:
        return sigmoid, covariance / forgetting
    one = jax.tree.map(lambda x: x[0, ...], one)
    return one.sigmoid, np.asarray(one.covariance)
