"""Updates of calibrators by new rows: the earlier posterior is the prior of the new fit."""

from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats
from platt_jax.backend import accelerators
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.caller import report_non_finite
from platt_jax.execution.fitted_rows import have_no_rows, rows_of_classes
from platt_jax.execution.given import problem_inputs
from platt_jax.execution.problems import Context
from platt_jax.execution.progress import SILENT, Listener, Stage
from platt_jax.execution.run import fit_problems
from platt_jax.execution.segment_rows import SegmentRows, segment_rows
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.model.objective import EarlierCounts
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options
from platt_jax.population.device_segments import fetched, segments_of, where_rows_are
from platt_jax.population.fitting import (
    inner_fits,
    report_few_rows,
    report_left_out,
    report_search,
    size_dependence,
    smoothing,
    with_pooled_curve,
)
from platt_jax.results import tables
from platt_jax.results.fit import Fit, one_parameter, require_same_parameters
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.population import Population
from platt_jax.results.probabilities import UPPER
from platt_jax.results.segment_calibrator import (
    SIZES,
    SegmentCalibrator,
    require_segment_calibrator,
    with_event,
    with_posterior_covariance,
)
from platt_jax.status import Flag, Status
from platt_jax.updating import earlier_fits, update_pooled
from platt_jax.updating.drift import Drift
from platt_jax.updating.earlier_fits import Walk
from platt_jax.updating.priors import at_places, prior_from

_NOT_LEARNT = (
    "their new rows are not learnt: segments fitted before keep their earlier fits, new ones are "
    'NaN. Options(non_finite="omit") learns all their other rows'
)

# New scores of the same unit spread no wider than so many times; if many, no narrower either.
_TIMES_AS_WIDE, _MANY = 6.0, 100
_ROUNDED = 1e-5

Calibrator = TypeVar("Calibrator", SegmentCalibrator, OneVsRestCalibrator)


@takes_columns
def update(
    calibrator: Calibrator,
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    weights: Column = None,
    offset: Column = None,
    forgetting: float = 1.0,
    drift: Column | Drift = 0.0,
    night: object = None,
    options: Options = Options(),
    progress: bool | Listener = False,
) -> Calibrator:
    """Update a calibrator with new rows, without the earlier ones.

    The prior of each segment is `prior_from(calibrator, ...)`: a normal distribution with the
    earlier fit as its mean and the Hessian as its precision. Nothing else is kept of earlier rows
    (Laplace's approximation). Platt's targets use the counts of all rows, earlier and new. Where
    all earlier rows of a segment are of one class, the earlier fit is moved to the new targets.

    A segment never loses its fit. If its new rows have no weight, or their fit fails, it keeps its
    earlier fit, as does a segment without new rows. One NaN among a segment's new rows therefore
    discards all of them; with Options(non_finite="omit") only the bad row is discarded.

    With a population (pooling="partial") or levels, labels are used without smoothing. The earlier
    rows of each segment are kept as a normal likelihood of its (A, B). The population and the
    levels are estimated anew, as in `fit_segments`, from these likelihoods and the new rows. New
    segments start from the population. A segment that the population left out, since its scores lay
    far out, keeps its fit, but new rows of it are learnt as of a new segment.
    `docs/howto/new_data.md` has how far all this is from a fit of all rows.

    Curves that change over time leave earlier rows less to say. `forgetting` discounts these rows,
    and takes curves to be constant otherwise: bands are then too narrow where curves move, and
    the spread of pooled segments is found too small where few rows come at a time. `drift` says how
    far (A, B) move from one update to the next, and is part of the bands (Kalman 1960).

    Args:
        calibrator: result of `fit_segments`, `fit_one_vs_rest` or `update`.
        scores: (N,) scores of new rows only, as in `fit_segments`; or SegmentRows. For classes
            (N, C), as in `fit_one_vs_rest`; no class can be new.
        labels: (N,) labels, as in `fit_segments`, or as in `fit_one_vs_rest`.
        segments: (N,) segment ids, as in `fit_segments`; None for classes.
        weights: (N,) weights, as in `fit_segments`.
        offset: offset, as in `fit_segments`, or as in `fit_one_vs_rest`. Earlier fits are of the
            curves without offsets, so rows with and without may follow each other.
        forgetting: factor in (0, 1] for the weights of all earlier rows, also in segments without
            new rows: with 0.9, rows of n updates ago count 0.9^n.
        drift: how far each segment's (A, B) move between the earlier rows and the new ones,
            independently of other segments: the standard deviation of the move of B, or the
            covariance (2, 2) of the move of (A, B). For a calibrator with pooling="partial" also
            the result of `estimate_drift`, if an update is one of its periods later.
        night: a name of the new rows, such as a date or a number. It is kept with the calibrator,
            also in files, as text in `nights`; rows of a name that it has are refused.
        options: as in `fit_segments`. The intercept is as for the calibrator, and so are targets
            that are the labels.
        progress: as in `fit_segments`.

    Returns:
        A calibrator of the same class with the earlier and the new segments; without rows, the
        calibrator as it was. `n_pos` and `n_neg` include earlier rows, discounted by `forgetting`.
        `nll` is of the new rows alone, and 0 without any. Rows on a GPU stay there, as in
        `fit_segments`.

        Flags describe all rows, as far as these are remembered. ONE_CLASS is set by the counts,
        REVERSED by the new A. SEPARABLE is set if earlier and new rows are each separable,
        CONSTANT_SCORES if both have the same single score. OUTLIER is kept; new rows alone set it
        only if they weigh at least as much as the earlier ones, or halve the variance of A.

    Warns:
        RuntimeWarning: the new rows of a segment were not used, because they are not finite or
            their fit failed; the new scores spread over 6 times as wide as the earlier ones, or as
            narrow, as if in another unit; the search for the population did not converge; or as in
            `fit_segments`.

    Raises:
        ValueError: an argument is not as above, or as in `fit_segments`; the calibrator has rows of
            this night, sandwiches by `robust_covariance`, or covariates that are not known of a new
            segment; `shift_prior` has moved temperatures, or one curve for all segments by a rate
            for each; or no dtype holds the earlier and the new ids exactly.
        MemoryError: as in `fit_segments`.

    Example:
        >>> from platt_jax import fit_segments
        >>> last_night = fit_segments([2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"])
        >>> tonight = update(last_night, [1.5, -1.0, 0.5], [1, 0, 0], ["b", "b", "c"])
        >>> tonight.keys.tolist(), tonight.fit.n_pos.tolist()
        (['a', 'b', 'c'], [1.0, 2.0, 0.0])
    """
    if isinstance(calibrator, OneVsRestCalibrator):
        arguments: tuple[Any, ...] = [], [], []
        if not have_no_rows(scores, labels):
            arguments = (rows_of_classes(calibrator, scores, labels, segments, weights, offset),)
        with inner_fits(not calibrator.multilabel):
            by_class = update(
                calibrator.by_class,
                *arguments,
                forgetting=forgetting,
                drift=drift,
                night=night,
                options=options,
                progress=progress,
            )
        return replace(calibrator, by_class=by_class)
    require_segment_calibrator(calibrator, "calibrator")
    if not 0 < forgetting <= 1:
        raise ValueError(f"forgetting: expected a number in (0, 1], got {forgetting!r}")
    walk = _walk(drift, calibrator)
    nights = _with_night(calibrator.nights, night)
    options = validation.options(options)
    _require_options(calibrator, options)
    if "robust_covariance" in calibrator.events:
        raise ValueError(
            "calibrator: expected the covariances of its fits, got one after robust_covariance, "
            "whose sandwiches new rows cannot update; update the calibrator before"
        )
    _require_shift_can_stay(calibrator, options)
    if _are_empty(scores, labels, segments):
        return replace(calibrator, nights=nights)
    caller = Caller()
    rows = segment_rows(scores, labels, segments, weights, offset=offset)
    _require_covariates(calibrator, rows.keys, walk)
    host_calibrator = fetched(calibrator)
    updated = where_rows_are(
        rows, lambda: _updated(host_calibrator, rows, forgetting, walk, options, progress, caller)
    )
    updated = replace(updated, nights=nights)
    if rows.has_offset:
        updated = with_event(updated, "offset")
    if walk.noise.any():
        updated = with_event(updated, "drift")
    return updated if updated.shift is None else with_event(updated, "shifted rows")


def _updated(
    calibrator: SegmentCalibrator,
    rows: SegmentRows,
    forgetting: float,
    walk: Walk,
    options: Options,
    progress: bool | Listener,
    caller: Caller,
) -> SegmentCalibrator:
    """The calibrator after new rows, with the nights before; arrays are NumPy's."""
    stage = Stage.of(progress)
    population = calibrator.population
    has_population = population is not None and population.estimated
    if options.targets == "platt" and forgetting < 1 and not has_population:
        fit = earlier_fits.with_targets_of_kept_rows(calibrator.fit, forgetting)
        calibrator = replace(calibrator, fit=fit)
    remembered = earlier_fits.remembered(calibrator, forgetting, walk)
    indices = get_indexer(calibrator.keys, split_columns(rows.keys), "segments")
    earlier: Fit = jax.tree.map(lambda x: at_places(x, indices), remembered)
    has_earlier = (indices >= 0) & earlier.converged
    pooled = _updated_fallback(calibrator, rows, forgetting, walk, options, caller)
    fitted = None
    if population is not None and population.estimated:
        memory = remembered, update_pooled.remembered(population, forgetting, walk)
        fitted = update_pooled.updated(calibrator, memory, rows, pooled, options, progress, caller)
        alone = at_places(update_pooled.left_out(calibrator), indices)
        has_earlier &= ~alone
        _report_forgotten(rows.keys, alone, caller)
        new = fitted.new_fits
    else:
        n_pos, n_neg = (np.where(has_earlier, n, 0) for n in (earlier.n_pos, earlier.n_neg))
        prior = prior_from(calibrator, rows.keys, forgetting=forgetting)
        moved = walk.moved_precision(np.asarray(prior.precision))
        usable = _representable(moved, rows.dtype)
        prior = GaussianPrior(
            np.where(usable[:, None], prior.mean, 0), np.where(usable[:, None, None], moved, 0)
        )
        counts: Any = [x.astype(rows.dtype) for x in (n_pos, n_neg)]
        new = _fit(rows, prior, EarlierCounts(*counts), options, stage, caller)
        failed = new.converged & ~usable
        new = replace(new, status=np.where(failed, int(Status.LINE_SEARCH_FAILED), new.status))
    keep = (indices >= 0) & ~new.converged & (has_earlier | np.isnan(new.A))
    report_non_finite(new, options, "segment", rows.keys, caller, _NOT_LEARNT)
    _report_failed(new, keep, rows.keys, caller)
    if fitted is not None:
        report_search(fitted.population, caller)
        out = fitted.population.left_out(fitted.fit.flags)
        report_left_out(rows.keys, out[fitted.at], caller)
    levels = None
    if fitted is not None:
        keys, population, levels = fitted.keys, fitted.population, fitted.levels
        positions = fitted.at[~keep]
        row_fits = jax.tree.map(lambda x: x[fitted.at], fitted.fit)
        row_fits = replace(row_fits, n_pos=new.n_pos, n_neg=new.n_neg)
        row_fits = earlier_fits.with_earlier(row_fits, earlier, has_earlier, population)
        fit = earlier_fits.placed(fitted.fit, positions, jax.tree.map(lambda x: x[~keep], row_fits))
    else:
        new = earlier_fits.with_earlier(new, earlier, has_earlier, None)
        keys, fit = earlier_fits.joined(calibrator.keys, remembered, rows.keys, new, indices, keep)
        if calibrator.pooling == "none":
            report_few_rows(smoothing(fit), options, caller)
        elif calibrator.pooling == "complete":
            fit = with_pooled_curve(fit, pooled)
            has_outlier = (calibrator.fit.flags & Flag.OUTLIER).any()
            fit = replace(fit, flags=fit.flags | np.where(has_outlier, Flag.OUTLIER, 0))
        if population is not None:
            population = Population.not_estimated(len(keys), population.status)
    fit = replace(fit, flags=earlier_fits.raised(fit.flags, Flag.REVERSED, fit.A > 0))
    events = [x for x in calibrator.events if x != SIZES]
    if calibrator.pooling == "partial" and population is not None and population.estimated:
        events += size_dependence(population, fit, np.asarray, caller)
    covariance = np.asarray(pooled.covariance)
    return replace(
        calibrator,
        keys=keys,
        fit=with_posterior_covariance(fit, population),
        fallback=pooled.sigmoid,
        fallback_covariance=covariance,
        population=population,
        by_level=levels,
        shift=_shift(calibrator, keys),
        events=tuple(events),
    )


def _shift(calibrator: SegmentCalibrator, keys: NDArray[Any]) -> NDArray[Any] | None:
    """The shift of the updated segments; of new ones none, unless all have one curve."""
    if calibrator.shift is None:
        return None
    indices = get_indexer(calibrator.keys, split_columns(keys))
    of_new = calibrator.shift[-1] if calibrator.pooling == "complete" else 0.0
    shift = np.where(indices >= 0, calibrator.shift[indices], of_new)
    return np.append(shift, calibrator.shift[-1])


def _require_shift_can_stay(calibrator: SegmentCalibrator, options: Options) -> None:
    """Refuses shifts that the curves after an update cannot have: with B = 0, or one for all."""
    shift, pooled = calibrator.shift, calibrator.pooling == "complete"
    if shift is not None and (not options.intercept or (pooled and (shift[:-1] != shift[0]).any())):
        raise ValueError(
            "calibrator: expected curves whose intercepts may differ, got others after "
            "shift_prior; update the calibrator before the shift, with the difference of log-odds "
            "as the offset of the new rows, and shift the result"
        )


def _require_covariates(calibrator: SegmentCalibrator, keys: NDArray[Any], walk: Walk) -> None:
    """With covariates, refuses segments for which they are not known, and a drift."""
    covariates = None if calibrator.population is None else calibrator.population.covariates
    if covariates is None:
        return
    if walk.noise.any():
        raise ValueError("drift: expected 0 for a calibrator with covariates")
    new = keys[get_indexer(calibrator.keys, split_columns(keys)) < 0]
    if len(new) and not covariates.are_rows:
        raise ValueError(
            f"segments: expected segments whose covariates are known, got {len(new):,} others, "
            f"first {tables.name(new, 0)}; add them by calibrator.with_segments"
        )


def _require_options(calibrator: SegmentCalibrator, options: Options) -> None:
    """Refuses options by which new rows would be fitted to other curves than the earlier ones."""
    require_same_parameters(calibrator.fit, options, "calibrator")
    validation.pooling(calibrator.pooling, None, None, options)
    if not options.intercept and one_parameter(calibrator.fit) != "temperature":
        raise ValueError("options: expected intercept=True beside sigmoids, got False")
    plain = calibrator.population is None and calibrator.options.targets == "none"
    if plain and options.targets == "platt":
        raise ValueError(
            'options: expected targets="none", as the calibrator was fitted, got '
            f'"{options.targets}"; pass options=calibrator.options'
        )


def _walk(drift: Column | Drift, calibrator: SegmentCalibrator) -> Walk:
    """How far the segments move, by the argument `drift`."""
    if isinstance(drift, Drift):
        if calibrator.pooling != "partial":
            raise ValueError(
                "drift: expected a number or a covariance for a calibrator with "
                f"pooling={calibrator.pooling!r}, got a Drift"
            )
        share = float(np.clip(drift.lasting, 0, 1))
        return Walk((1 - share**2) * drift.covariance, share)
    values = validation.numbers(drift, "drift").astype(float)
    sd = float(values) if values.shape == () else -1.0
    noise = np.diag([0.0, sd * sd]) if sd >= 0 else values
    if noise.shape != (2, 2) or not _is_covariance(noise):
        raise ValueError(
            "drift: expected a standard deviation of at least 0, a covariance (2, 2) or a Drift, "
            f"got {drift!r}"
        )
    if noise[1, 1] and one_parameter(calibrator.fit) == "temperature":
        raise ValueError(
            "drift: expected a covariance [[variance, 0], [0, 0]] of the move of (A, B) for "
            f"temperatures, which have no B, got {drift!r}"
        )
    return Walk(noise)


def _is_covariance(matrix: Floats) -> bool:
    if not np.isfinite(matrix).all() or (matrix != matrix.T).any():
        return False
    (a, b), (_, c) = matrix
    return bool(a >= 0 and c >= 0 and b * b <= a * c)


def _representable(matrix: NDArray[Any], dtype: Any) -> Bools:
    """Whether covariances or precisions (..., 2, 2) are such in this dtype.

    Of scores from 1e19 on, entries overflow float32 or are rounded to 0.
    """
    with np.errstate(over="ignore"):
        a, b, c = (matrix[..., i, j].astype(dtype).astype(float) for i, j in UPPER)
    most = np.sqrt(a) * np.sqrt(c) * (1 + 5e-7)  # as `validation.prior` allows
    return np.asarray(np.isfinite(a + b + c) & (np.abs(b) <= most))


def _with_night(nights: tuple[str, ...], night: object) -> tuple[str, ...]:
    """The nights with another one; refuses a night that is not new."""
    if night is None:
        return nights
    name = str(night)
    if not name or name in nights:
        expected = "a name" if not name else "a night that the calibrator does not have"
        raise ValueError(f"night: expected {expected}, got {name!r}")
    return (*nights, name)


def _are_empty(scores: Column, labels: Column, segments: Column) -> bool:
    """Whether these are columns without rows, as an engine's partition may have."""
    if isinstance(scores, SegmentRows) or labels is None or segments is None:
        return False
    flat = (x if accelerators.holds(x) else validation.array(x, "scores") for x in (scores, labels))
    return all(x.shape == (0,) for x in flat) and ids.length(ids.read(segments)) == 0


def _fit(
    rows: SegmentRows,
    prior: GaussianPrior,
    before: EarlierCounts,
    options: Options,
    stage: Stage,
    caller: Caller,
) -> Fit:
    """The fit of every segment's rows, with priors that stand for the earlier rows."""
    inputs = problem_inputs(rows.keys.shape, rows.dtype, prior)
    if options.targets == "platt":
        inputs = inputs._replace(remembered=before)
    return fit_problems(rows.problems, inputs, Context(options, caller, stage))


def _report_failed(new: Fit, kept: Bools, keys: NDArray[Any], caller: Caller) -> None:
    """Warns of segments whose new rows are finite but were not used."""
    failures = (Status.MAX_ITERATIONS, Status.LINE_SEARCH_FAILED)
    failed = np.flatnonzero(kept & np.isin(new.status, failures))
    if len(failed):
        first, status = tables.name(keys, failed[0]), Status(int(new.status[failed[0]]))
        caller.warn(
            f"the fits of the new rows of {len(failed):,} of "
            f"{tables.counted(len(keys), 'segment')} failed, first "
            f"in {first} ({status.name}): they keep their earlier fits"
        )


def _report_forgotten(keys: NDArray[Any], alone: Bools, caller: Caller) -> None:
    """Warns of segments (K,) with new rows whose earlier rows the population left out."""
    if len(out := np.flatnonzero(alone)):
        caller.warn(
            f"the earlier rows of {len(out):,} of {tables.counted(len(keys), 'segment')}, first in "
            f"{tables.name(keys, out[0])}, are forgotten: their scores lay so far out that these "
            "segments were fitted alone"
        )


def _updated_fallback(
    calibrator: SegmentCalibrator,
    rows: SegmentRows,
    forgetting: float,
    walk: Walk,
    options: Options,
    caller: Caller,
) -> Fit:
    """The updated fit of all rows; its (A, B) are unchanged if their covariance is not known.

    After no rows at all it is the fit of the new rows.
    """
    sigmoid, covariance = calibrator.fallback, calibrator.fallback_covariance
    if np.isnan(sigmoid.A):
        inputs = problem_inputs((1,), rows.dtype, None)
        return segments_of(rows, caller).pooled(inputs, options, SILENT)
    prior = None
    if usable := _representable(covariance, rows.dtype).all():
        # The mean of independent moves.
        moved = walk.noise / max(len(calibrator.keys), 1)
        # In standard errors: a pseudoinverse would take one of A and B as undetermined.
        units = np.sqrt(np.diag(covariance).astype(float))
        units = np.outer(*[np.where(units > 0, units, 1)] * 2)
        hessian = np.linalg.pinv(covariance / units, hermitian=True) / units
        precision = walk._replace(noise=moved).moved_precision(forgetting * hessian)
        prior = GaussianPrior(np.array([sigmoid.A, sigmoid.B], float), precision)
        covariance = (covariance / forgetting + moved).astype(covariance.dtype)
    inputs = problem_inputs((1,), rows.dtype, prior)
    options = replace(options, targets="none")
    fit = segments_of(rows, caller).pooled(inputs, options, SILENT)
    # After a walk, what is left of the earlier intercepts says nothing of the earlier scores.
    if prior is not None and fit.converged and not walk.noise.any():
        _report_spread(hessian, np.asarray(fit.hessian) - precision, fit.n_pos + fit.n_neg, caller)
    if not (usable and fit.converged):
        fit = replace(fit, A=sigmoid.A, B=sigmoid.B, covariance=covariance)
    # Else status and flags of the new rows alone say nothing of all rows.
    outweighs = 2 * fit.covariance[0, 0] <= covariance[0, 0]
    flags = np.where(outweighs, fit.flags & Flag.OUTLIER, 0).astype(fit.flags.dtype)
    return replace(fit, status=np.full_like(fit.status, Status.CONVERGED), flags=flags)


def _report_spread(earlier: Floats, new: Floats, rows: Any, caller: Caller) -> None:
    """Warns of new scores in another unit, given the precisions of (A, B) by all rows of either."""
    ratio = np.sqrt(_score_variance(new) / _score_variance(earlier))
    if ratio > _TIMES_AS_WIDE or (ratio < 1 / _TIMES_AS_WIDE and rows >= _MANY):
        caller.warn(
            f"scores: by their weight in the fits, the new ones spread {ratio:.2g} times as wide "
            "as the earlier ones. Are they in the same unit, without codes for missing values?"
        )


def _score_variance(precision: Floats) -> float:
    """The variance of the scores of rows with this precision (2, 2); NaN where it is rounded."""
    with np.errstate(all="ignore"):
        (square, middle), _ = np.asarray(precision, float) / precision[1, 1]
        variance = square - middle**2
        return float(variance) if variance > _ROUNDED * square else np.nan
