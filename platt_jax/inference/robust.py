"""Covariances that remain valid when the sigmoid is wrong, or rows depend on each other."""

from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Floats
from platt_jax.backend import accelerators
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.fitted_rows import (
    fit_of_all,
    fitted_columns,
    flat_fit,
    require_fitted_counts,
    require_unshifted,
    rows_of_classes,
)
from platt_jax.execution.given import shared_prior
from platt_jax.execution.predicted_rows import places
from platt_jax.execution.segment_rows import SegmentRows, row_arrays, segment_rows
from platt_jax.ids.factorize import factorize
from platt_jax.ids.indexing import get_indexer
from platt_jax.inference.optimum import FittedParameters, parameters_of, require_optimum
from platt_jax.inference.sandwich import (
    CountedRows,
    SandwichSums,
    sandwich,
    sandwich_sums,
    sums_there,
)
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options
from platt_jax.passes.columns import Columns
from platt_jax.population.device_segments import fetched
from platt_jax.results import tables
from platt_jax.results.fit import Fit, require_same_parameters
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.segment_calibrator import (
    ONLY,
    SegmentCalibrator,
    require_sigmoids,
    with_event,
)

Calibrator = TypeVar("Calibrator", Fit, SegmentCalibrator, OneVsRestCalibrator)

# Maximum number of rows of several problems processed together.
_ROWS_AT_ONCE = 1 << 20


@takes_columns
def robust_covariance(
    calibrator: Calibrator,
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    weights: Column = None,
    offset: Column = None,
    clusters: Column = None,
    prior: GaussianPrior | None = None,
    options: Options = Options(),
) -> Calibrator:
    """The calibrator with the sandwich covariance of each (A, B), which its errors and bands use.

    The inverse Hessian H^-1 is the covariance if (1) the sigmoid is the true curve and (2) rows are
    independent. The sandwich H^-1 M H^-1, with M the sum over rows of (t - p)^2 [f, 1]' [f, 1],
    does not need (1): (A, B) then estimate the sigmoid nearest to the truth (Huber 1967; White
    1982). With clusters it needs neither: M is the sum over clusters of s' s, where s is the sum of
    (t - p) [f, 1] over the cluster's rows (Liang & Zeger 1986), times G / (G - 1) for G clusters.
    With fewer than about a hundred rows or clusters, either sandwich is too small.

    Args:
        calibrator: result of `fit`, `fit_segments` or `fit_one_vs_rest`.
        scores: the scores that were fitted, in the shape given to that function; or, as there,
            SegmentRows or ClassRows, which replace the arrays.
        labels: the labels that were fitted.
        segments: the segments that were fitted, for a SegmentCalibrator; else None.
        weights: the weights that were fitted. They count independent rows: weight 2 is the row
            twice. For sampling weights, where each row is one observation, make every row a
            cluster.
        offset: the offset that was fitted.
        clusters: (N,) ids of rows that depend on each other, such as rows of one user; None if
            rows are independent. Different problems are treated as independent.
        prior: the prior of the fit. It is part of H, but not of M.
        options: the options of the fit.

    Returns:
        A calibrator of the same class with the sandwich as its covariance and fallback_covariance.
        NaN where the scores are constant, where a problem has a single cluster, and for the curve
        of unseen segments after `only`, which is of the rows of other segments, too.

    Raises:
        ValueError: an argument is not as above; rows, prior and options are not those of the fit,
            as for `leave_one_out`; the calibrator has a shift (`shift_prior` keeps the covariance:
            shift the result); or it has a population, whose posteriors no sandwich describes. For
            rows that depend on each other by day, pooling="nested" with the ids (segment, day) then
            gives bands that cover.

    Example:
        >>> from platt_jax import fit
        >>> scores, labels = [5.0, -4.0, 1.0, 2.0, -1.0], [1, 0, 0, 1, 1]
        >>> robust = robust_covariance(fit(scores, labels), scores, labels)
        >>> robust.standard_errors.round(2)
        array([0.07, 0.45])
        >>> lower, upper = robust.band(scores)
    """
    options = validation.options(options)
    if isinstance(calibrator, OneVsRestCalibrator):
        row_data = rows_of_classes(calibrator, scores, labels, segments, weights, offset)
        stays = row_data.device is not None and clusters is None
        by_class = robust_covariance(
            calibrator.by_class,
            **({"scores": row_data} if stays else row_data.pairs()._asdict()),
            clusters=row_data.repeat_rows(clusters),
            prior=row_data.in_key_order(prior),
            options=options,
        )
        return replace(calibrator, by_class=by_class)
    beside = dict(labels=labels, segments=segments, weights=weights, offset=offset)
    if isinstance(calibrator, SegmentCalibrator) and clusters is None:
        grouped = isinstance(scores, SegmentRows)
        if scores.device is not None if grouped else accelerators.holds(scores):
            require_sigmoids(calibrator, "calibrator")
            require_same_parameters(calibrator.fit, options, "calibrator")
            rows = segment_rows(scores, labels, segments, weights, offset=offset)
            return _segments_there(calibrator, rows, prior, options)
    if isinstance(calibrator, SegmentCalibrator) and isinstance(scores, SegmentRows):
        row_data = row_arrays(scores, **beside, clusters=clusters)
        scores, labels, segments, weights, offset = row_data
    validation.require_each(scores, labels=labels)
    scores = validation.scores(scores)
    columns = fitted_columns(calibrator, scores, labels, segments, weights, offset)
    fit = calibrator if isinstance(calibrator, Fit) else calibrator.fit
    require_same_parameters(fit, options, "calibrator")
    if isinstance(calibrator, SegmentCalibrator):
        return _segments_with_sandwich(calibrator, columns, segments, clusters, prior, options)
    return _columns_with_sandwich(calibrator, columns, clusters, prior, options)


def _segments_with_sandwich(
    calibrator: SegmentCalibrator,
    columns: Columns,
    segments: Column,
    clusters: Column,
    prior: GaussianPrior | None,
    options: Options,
) -> SegmentCalibrator:
    _require_as_fitted(calibrator)
    length = len(columns.scores)
    indices = get_indexer(calibrator.keys, ids.read_rows(segments, length))
    if (indices < 0).any():
        raise ValueError(
            f"segments: expected those that were fitted, got another at row {np.argmin(indices)}"
        )
    rows = _rows(indices, columns, _codes(clusters, length))
    fit = calibrator.fit
    problems = parameters_of(fit.A, fit.B, fit.covariance, prior, options)
    sums = sandwich_sums(problems, rows, options.targets == "platt")
    pooled = _pooled_problem(calibrator, prior, options)
    all_rows = rows._replace(problem=np.zeros_like(rows.problem))
    sums_of_all = sandwich_sums(pooled, all_rows, options.targets == "platt")
    return _segments_by_sums(calibrator, (problems, sums), (pooled, sums_of_all), options)


def _segments_there(
    calibrator: SegmentCalibrator, rows: Any, prior: GaussianPrior | None, options: Options
) -> SegmentCalibrator:
    """The same of rows on a device."""
    _require_as_fitted(calibrator)
    host_calibrator, smooth = fetched(calibrator), float(options.targets == "platt")
    fit, indices = host_calibrator.fit, places(rows, host_calibrator)
    if (indices < 0).any():
        name = tables.name(rows.keys[rows.largest_first], int(np.argmin(indices)))
        raise ValueError(f"segments: expected those that were fitted, got {name}")
    problems = parameters_of(fit.A, fit.B, fit.covariance, prior, options)
    pooled = _pooled_problem(host_calibrator, prior, options)
    with jax.default_device(rows.device):
        sums = rows.map(sums_there, *_numbers(problems, indices, smooth))
        sums_of_all = rows.as_one().map(sums_there, *_numbers(pooled, np.zeros(1, int), smooth))
    by_key = np.zeros((len(SandwichSums._fields), len(fit.A)))
    by_key[:, indices] = sums.T
    by_segment, of_all = (problems, SandwichSums(*by_key)), (pooled, SandwichSums(*sums_of_all.T))
    result = _segments_by_sums(host_calibrator, by_segment, of_all, options)
    covariances = result.fit.covariance, result.fallback_covariance
    if accelerators.holds(calibrator.fit.A):
        covariances = accelerators.results(covariances, rows.dtype, rows.device)
    fit = replace(calibrator.fit, covariance=covariances[0])
    result = replace(calibrator, fit=fit, fallback_covariance=covariances[1])
    return with_event(result, "robust_covariance")


def _numbers(
    problems: FittedParameters, place: NDArray[Any], smooth: float
) -> tuple[Floats, Floats, Floats]:
    return problems.A[place], problems.B[place], np.full(len(place), smooth)


def _require_as_fitted(calibrator: SegmentCalibrator) -> None:
    require_unshifted(calibrator)
    if calibrator.pooling not in ("none", "complete"):
        raise ValueError(
            "calibrator: expected one without a population, whose bands are by posteriors, "
            f"got pooling={calibrator.pooling!r}; for clusters such as days, fit the ids "
            '(segment, day) with pooling="nested"'
        )


def _pooled_problem(
    calibrator: SegmentCalibrator, prior: GaussianPrior | None, options: Options
) -> FittedParameters:
    fallback, covariance = calibrator.fallback, calibrator.fallback_covariance
    return parameters_of(fallback.A, fallback.B, covariance, shared_prior(prior), options)


def _segments_by_sums(
    calibrator: SegmentCalibrator,
    each: tuple[FittedParameters, SandwichSums],
    pooled: tuple[FittedParameters, SandwichSums],
    options: Options,
) -> SegmentCalibrator:
    """The calibrator with sandwiches, given the sums of its segments, and of all rows."""
    fit = calibrator.fit
    require_fitted_counts(fit, (each[1].n_pos, each[1].n_neg))
    pooled_covariance = _cast(sandwich(*pooled)[0], calibrator.fallback.A.dtype)
    if calibrator.pooling == "complete":
        require_optimum(fit_of_all(fit), pooled[0], pooled[1].loss(), options)
        robust = np.broadcast_to(pooled_covariance, fit.covariance.shape)
    else:
        require_optimum(fit, each[0], each[1].loss(), options)
        robust = sandwich(*each)
        if ONLY in calibrator.events:  # the fallback is of the rows of other segments, too
            pooled_covariance = np.full_like(pooled_covariance, np.nan)
    result = replace(calibrator, fit=_with(fit, robust), fallback_covariance=pooled_covariance)
    return with_event(result, "robust_covariance")


def _columns_with_sandwich(
    fit: Fit,
    columns: Columns,
    clusters: Column,
    prior: GaussianPrior | None,
    options: Options,
) -> Fit:
    """The fit of problems (..., N), with the sandwich covariance."""
    scores = columns.scores
    batch, length = scores.shape[:-1], scores.shape[-1]
    if batch != np.shape(fit.A):
        raise ValueError(
            f"scores: expected shape {(*np.shape(fit.A), 'N')} as fitted, got {scores.shape}"
        )
    codes = _codes(clusters, length)
    columns, codes = jax.tree.map(
        lambda x: np.broadcast_to(x, scores.shape).reshape(-1, length), (columns, codes)
    )
    problems = parameters_of(fit.A, fit.B, fit.covariance, prior, options)
    parts, step = [np.empty((0, 2, 2))], max(1, _ROWS_AT_ONCE // length)
    for start in range(0, len(problems.A), step):
        block = slice(start, start + step)
        block_problems, block_fit = jax.tree.map(itemgetter(block), (problems, flat_fit(fit)))
        flat = jax.tree.map(lambda x, block=block: x[block].ravel(), (columns, codes))
        rows = _rows(np.repeat(np.arange(len(block_problems.A)), length), *flat)
        sums = sandwich_sums(block_problems, rows, options.targets == "platt")
        require_fitted_counts(block_fit, (sums.n_pos, sums.n_neg))
        require_optimum(block_fit, block_problems, sums.loss(), options)
        parts.append(sandwich(block_problems, sums))
    return _with(fit, np.concatenate(parts))


def _with(fit: Fit, covariance: Floats) -> Fit:
    xp = jnp if isinstance(fit.covariance, jax.Array) else np
    covariance = covariance.reshape(fit.covariance.shape)
    return replace(fit, covariance=xp.asarray(_cast(covariance, fit.covariance.dtype)))


def _cast(covariance: Floats, dtype: Any) -> NDArray[Any]:
    """The covariance, infinite where it overflows, as of scores below 1e-19 in float32."""
    with np.errstate(over="ignore"):
        return covariance.astype(dtype)


def _codes(clusters: Column, rows: int) -> NDArray[Any] | None:
    if clusters is None:
        return None
    return factorize(ids.read_rows(clusters, rows, "clusters")).of(slice(None))


def _rows(problem: NDArray[Any], columns: Columns, codes: NDArray[Any] | None) -> CountedRows:
    """The rows that the fit used: weight above 0, and everything finite."""
    scores, labels, weights, offset = columns
    w = np.ones(len(scores)) if weights is None else weights.astype(np.float64)
    counts = (w > 0) & np.isfinite(w) & np.isfinite(scores) & (labels != validation.BAD_LABEL)
    if offset is not None:
        counts &= np.isfinite(offset)
        offset = offset[counts].astype(np.float64)
    problem, f, y, w = (x[counts] for x in (problem, scores, labels, w))
    cluster = None if codes is None else codes[counts]
    return CountedRows(problem, f.astype(np.float64), y == 1, w, cluster, offset)
