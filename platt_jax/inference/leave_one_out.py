"""The prediction for each row by the fit of the other rows."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import itemgetter
from typing import Any, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Integers, Ints
from platt_jax.backend import accelerators
from platt_jax.backend.threads import ordered_map, run_programs
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.dense_rows import DeviceDenseRows
from platt_jax.execution.device_grouping import group_ids
from platt_jax.execution.fitted_rows import (
    fit_of_all,
    fitted_columns,
    flat_fit,
    require_fitted,
    require_fitted_counts,
    require_unshifted,
    rows_of_classes,
)
from platt_jax.execution.given import shared_prior
from platt_jax.execution.on_device import only_device
from platt_jax.execution.segment_rows import DeviceSegmentRows
from platt_jax.groups import order_by
from platt_jax.ids.factorize import factorize
from platt_jax.ids.indexing import get_indexer
from platt_jax.inference.expansion import Center, ExpansionSums, leave_each_out, sums
from platt_jax.inference.left_out_there import expanded_there, ordered_there
from platt_jax.inference.optimum import (
    FittedParameters,
    LossAtFit,
    matrices,
    parameters_of,
    require_optimum,
)
from platt_jax.inference.refits import refit
from platt_jax.inference.row_tiles import ProblemRows, RowTiles
from platt_jax.inference.sandwich import SandwichSums, platts_targets, sums_there
from platt_jax.model.prior import GaussianPrior
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.passes.columns import Columns
from platt_jax.population.device_segments import fetched
from platt_jax.results.averages import mean_probability
from platt_jax.results.fit import Fit, require_same_parameters
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.probabilities import expit, variance_of_logit
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_sigmoids

# Maximum error of the log-odds; a row whose error bound is larger gets a fit of the other rows.
_TOLERANCE = {"float64": 5e-7, "float32": 5e-4}
# Between these log-odds, rounding of a probability moves its log-odds by at most a tenth.
_TOLD = {"float64": (-30, 30), "float32": (-30, 15)}

Made = TypeVar("Made")


@takes_columns
def leave_one_out(
    calibrator: Fit | SegmentCalibrator | OneVsRestCalibrator,
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    weights: Column = None,
    offset: Column = None,
    prior: GaussianPrior | None = None,
    options: Options = Options(),
) -> NDArray[Any]:
    """P(y=1 | score) for every row, by the fit of all other rows of its problem.

    Metrics of these probabilities are not biased by the row having been fitted. The row is left out
    whole, with its full weight, and Platt's targets come from the remaining rows. Each log-odds is
    within 1e-6 (1e-3 in float32) of its value by a fit of the remaining rows, at the cost of a few
    passes: the optima are found from sums over the whole problem. Where the error bound is too
    large (for example, if one row alone determines the slope), the remaining rows are fitted.

    Args:
        calibrator: result of `fit`, `fit_segments` or `fit_one_vs_rest` for these rows. With
            pooling="partial" a row is left out of its segment's fit, whose prior is the population
            that was estimated with the row. The probability is the mean over the segment's
            posterior without the row, as in `predict_proba`, to first order in what the row says.
        scores: the scores that were fitted, in the shape given to that function; for classes also
            ClassRows. SegmentRows are refused: they do not keep the order of the rows.
        labels: the labels that were fitted.
        segments: (N,) segment ids that were fitted, for a SegmentCalibrator, or for a Fit (K,) of
            the segments in ascending order; else None.
        weights: the weights that were fitted, or None.
        offset: the offset that was fitted, or None. It is part of a row's probability.
        prior: the prior of the fit, or None.
        options: the options of the fit.

    Returns:
        Probabilities in the shape and dtype of the scores; for classes each class's own. A row of
        weight 0 gets the probability by the whole fit. NaN where a score, label or offset is not
        finite, where the whole fit is NaN, and where no other row is left; on a GPU also in
        segments that the population left out. A JAX array if the scores are on a GPU: rows stay
        there, but for those that are fitted without.

    Raises:
        ValueError: an argument is not as above; the calibrator has levels or a shift; or rows,
            prior and options are not those of the fit: numbers of labels differ, or the fit is over
            0.1 standard errors from their optimum.

    Example:
        >>> from platt_jax import fit
        >>> scores, labels = [5.0, -4.0, 1.0, 2.0, -1.0], [1, 0, 0, 1, 1]
        >>> leave_one_out(fit(scores, labels), scores, labels).round(3)
        array([0.746, 0.567, 0.731, 0.575, 0.364])
    """
    caller = Caller()
    options = validation.options(options)
    require_sigmoids(calibrator, "calibrator")
    if isinstance(calibrator, OneVsRestCalibrator):
        rows = rows_of_classes(calibrator, scores, labels, segments, weights, offset)
        prior = rows.in_key_order(prior)
        if rows.device is not None:
            require_same_parameters(calibrator.by_class.fit, options, "calibrator")
            return rows.as_table(_rows_there(calibrator.by_class, rows, prior, options, caller))
        proba = leave_one_out(
            calibrator.by_class, **rows.pairs()._asdict(), prior=prior, options=options
        )
        return rows.as_table(proba)
    validation.require_each(scores, labels=labels)
    on_device = accelerators.holds(scores)
    scores = accelerators.taken(scores) if on_device else validation.scores(scores)
    if isinstance(calibrator, Fit | SegmentCalibrator):
        fit = calibrator if isinstance(calibrator, Fit) else calibrator.fit
        require_same_parameters(fit, options, "calibrator")
    if on_device:
        require_fitted(calibrator, scores, None if isinstance(calibrator, Fit) else segments)
        columns = Columns(scores, labels, weights, offset)
        return _left_out_there(calibrator, columns, segments, prior, options, caller)
    if isinstance(calibrator, Fit) and segments is not None:
        validation.require_flat(scores, "scores")
        columns = fitted_columns(calibrator, scores, labels, None, weights, offset)
        return _segments_left_out(calibrator, columns, segments, False, prior, options, caller)
    columns = fitted_columns(calibrator, scores, labels, segments, weights, offset)
    if isinstance(calibrator, SegmentCalibrator):
        fit, prior, its_options = _as_fitted(calibrator, prior, options)
        indices = _places_among_fitted(calibrator, ids.read_rows(segments, len(scores)))
        one_curve = calibrator.pooling == "complete"
        proba = _segments_left_out(fit, columns, indices, one_curve, prior, its_options, caller)
        proba = _with_rows_alone(calibrator, columns, indices, proba, options, caller)
        return _averaged(calibrator, columns, indices, proba)
    return _columns_left_out(calibrator, columns, prior, options, caller)


def _left_out_there(
    calibrator: Fit | SegmentCalibrator,
    columns: Columns,
    segments: Column,
    prior: GaussianPrior | None,
    options: Options,
    caller: Caller,
) -> Any:
    """The rows of arrays on a device, as an array there."""
    scores, labels, weights, offset = columns
    if segments is None:
        dense = DeviceDenseRows(scores, labels, weights, offset)
        return _rows_there(calibrator, dense, prior, options, caller).reshape(scores.shape)
    validation.require_flat(scores, "scores")
    with jax.default_device(only_device(scores)):
        groups = group_ids(segments, len(scores))
    rows = DeviceSegmentRows(scores, labels, groups, weights, offset=offset, doubt=False)
    if isinstance(calibrator, SegmentCalibrator):
        _require_as_fitted(calibrator)
        _places_among_fitted(calibrator, rows.keys)
    proba = _rows_there(calibrator, rows, prior, options, caller, groups.in_given_order)
    if not isinstance(calibrator, SegmentCalibrator) or calibrator.predictive() is None:
        return proba
    segments, proba, *host_columns = jax.device_get((segments, proba, *columns))
    indices = get_indexer(calibrator.keys, ids.read_rows(segments, len(scores)), "segments")
    averaged = _averaged(fetched(calibrator), Columns(*host_columns), indices, proba)
    return accelerators.results(averaged, rows.dtype, rows.device)


def _rows_there(
    calibrator: Fit | SegmentCalibrator,
    rows: Any,
    prior: GaussianPrior | None,
    options: Options,
    caller: Caller,
    order: Callable[[jax.Array], jax.Array] | None = None,
) -> Any:
    """The rows (N,) of problems with the methods of `DeviceGroupedRows`.

    They have the order of the layout, or that in which a function puts them.
    """
    one_curve = False
    fit: Any = calibrator
    if isinstance(calibrator, SegmentCalibrator):
        fit, prior, options = _as_fitted(calibrator, prior, options)
        one_curve = calibrator.pooling == "complete"
        if (np.isnan(fit.A) & np.asarray(calibrator.fit.converged)).any():
            caller.warn(
                "segments: some were left out of the population, and their rows get NaN on a "
                "device; pass np.asarray(scores)"
            )
    fit = _checked(jax.device_get(fit), rows.batch, rows.dtype)
    if one_curve:
        rows, fit, prior, options = rows.as_one(), *_of_all(fit, prior, options)
    prior = _flat_prior(prior, rows.batch, rows.dtype)
    if not one_curve:
        fit, prior = jax.tree.map(itemgetter(rows.largest_first), (fit, prior))
    with jax.default_device(rows.device):
        center, tolerance = _center(fit, prior, options), _TOLERANCE[rows.dtype.name]
        _require_fitted_there(fit, rows, prior, options)
        proba, doubtful, start = expanded_there(rows, center, options, tolerance)
        refitted = refit(rows, doubtful, start, prior, options, caller)
        proba = ordered_there(proba, doubtful, refitted, order or itemgetter(slice(rows.length)))
    return accelerators.results(proba, rows.dtype, rows.device)


def _as_fitted(
    calibrator: SegmentCalibrator, prior: GaussianPrior | None, options: Options
) -> tuple[Fit, GaussianPrior | None, Options]:
    """The fits, their prior and their options; refuses those with a prior each.

    Segments that the population left out have no prior, and become NaN.
    """
    _require_as_fitted(calibrator)
    fit, population = calibrator.fit, calibrator.population
    if population is None or not population.estimated:
        return fit, prior, options
    alone = population.left_out(fit.flags)
    if alone.any():
        A, B = (np.where(alone, np.nan, x) for x in (fit.A, fit.B))
        fit = replace(fit, A=A, B=B)
    return fit, population.prior, replace(options, targets="none")


def _with_rows_alone(
    calibrator: SegmentCalibrator,
    columns: Columns,
    places: Integers,
    found: NDArray[Any],
    options: Options,
    caller: Caller,
) -> NDArray[Any]:
    """What was found, with the rows of segments that the population left out."""
    population = calibrator.population
    if population is None or not (alone := population.left_out(calibrator.fit.flags)).any():
        return found
    where = alone[places]
    fit, indices = jax.tree.map(itemgetter(alone), calibrator.fit), itemgetter(where)(places)
    alone_rows = jax.tree.map(itemgetter(where), columns), np.cumsum(alone)[indices] - 1
    found[where] = _segments_left_out(fit, *alone_rows, False, None, options, caller)
    return found


def _averaged(
    calibrator: SegmentCalibrator, columns: Columns, places: Integers, found: NDArray[Any]
) -> NDArray[Any]:
    """With a population, means over the posteriors of (A, B) without each row, as predictions are.

    Without the row the posterior's mean moves as far as its mode, which `found` is from, and its
    precision lacks the row's curvature (Sherman & Morrison 1950).
    """
    if (normal := calibrator.predictive()) is None:
        return found
    A, B, *covariance = normal[places].T
    f, offset = columns.scores.astype(float), 0.0 if columns.offset is None else columns.offset
    weights = 1.0 if columns.weights is None else columns.weights
    mode_A, mode_B = (np.asarray(x, float)[places] for x in (calibrator.fit.A, calibrator.fit.B))
    kind = np.finfo(found.dtype)
    without = np.clip(found, kind.tiny, 1 - kind.epsneg).astype(float)  # not 0 or 1
    (least, most), nothing = _TOLD[found.dtype.name], np.zeros_like(f)
    with np.errstate(invalid="ignore", over="ignore"):
        mode = offset - (mode_A * f + mode_B)
        moved = np.log(without) - np.log1p(-without) - mode
        p = expit(mode)
        variance = np.maximum(variance_of_logit(f, *covariance), 0)
        variance = variance / (1 - np.minimum(weights * p * (1 - p) * variance, 0.5))
        mean = offset - (A * f + B) + np.where((least < mode) & (mode < most), moved, 0)
    row_normals = np.column_stack([nothing, -mean, nothing, nothing, variance])
    averaged = mean_probability(nothing, row_normals).astype(found.dtype)
    return np.where(np.isfinite(found), averaged, np.nan).astype(found.dtype)


def _require_as_fitted(calibrator: SegmentCalibrator) -> None:
    if calibrator.levels is not None:
        raise ValueError(
            'calibrator: expected pooling="none", "complete" or "partial", got pooling='
            f"{calibrator.pooling!r}, whose segments have a prior each"
        )
    require_unshifted(calibrator)


def _places_among_fitted(calibrator: SegmentCalibrator, segments: Any) -> Integers:
    """The numbers of segments; refuses others than all that were fitted."""
    indices = get_indexer(calibrator.keys, segments, "segments")
    number = len(calibrator.keys)
    present = np.count_nonzero(np.bincount(indices[indices >= 0], minlength=number))
    if present < number or (indices < 0).any():
        suffix = " and of others" if (indices < 0).any() else ""
        raise ValueError(
            f"segments: expected the rows of the {number} fitted segments, got rows of {present} "
            f"of them{suffix}"
        )
    return indices


def _segments_left_out(
    fit: Fit,
    columns: Columns,
    segments: Column,
    one_curve: bool,
    prior: GaussianPrior | None,
    options: Options,
    caller: Caller,
) -> NDArray[Any]:
    """The rows of segments (N,), each with a fit, or all with the fit of all rows."""
    sizes, order = _grouped(segments, columns.scores)
    fit = _checked(fit, sizes.shape, columns.scores.dtype)
    columns = jax.tree.map(itemgetter(order), columns)
    if one_curve:
        sizes = np.array([len(order)])
        fit, prior, options = _of_all(fit, prior, options)
    prior = _flat_prior(prior, sizes.shape, columns.scores.dtype)
    proba = _rows_left_out(fit, ProblemRows(columns, sizes), prior, options, caller)
    result = np.empty_like(proba)
    result[order] = proba
    return result


def _columns_left_out(
    fit: Fit,
    columns: Columns,
    prior: GaussianPrior | None,
    options: Options,
    caller: Caller,
) -> NDArray[Any]:
    """The rows of problems (..., N)."""
    shape = columns.scores.shape
    columns = jax.tree.map(lambda x: np.broadcast_to(x, shape).reshape(-1), columns)
    rows = ProblemRows(columns, np.full(int(np.prod(shape[:-1])), shape[-1]))
    fit = _checked(fit, shape[:-1], columns.scores.dtype)
    prior = _flat_prior(prior, shape[:-1], columns.scores.dtype)
    return _rows_left_out(fit, rows, prior, options, caller).reshape(shape)


def _flat_prior(
    prior: GaussianPrior | None, batch: tuple[int, ...], dtype: np.dtype[Any]
) -> GaussianPrior | None:
    """The prior of each problem, (K, 2) and (K, 2, 2)."""
    prior = validation.prior(prior, batch, dtype)
    if prior is None:
        return None
    mean, precision = (np.asarray(x) for x in prior)
    return GaussianPrior(mean.reshape(-1, 2), precision.reshape(-1, 2, 2))


def _rows_left_out(
    fit: Fit,
    rows: ProblemRows,
    prior: GaussianPrior | None,
    options: Options,
    caller: Caller,
) -> NDArray[Any]:
    """The rows of problems (K,), one after the other."""
    proba, doubtful, start = run_programs(
        lambda: _expand(rows, fit, prior, options), x64=rows.scores.dtype == np.float64
    )
    proba[doubtful] = refit(rows, doubtful, start, prior, options, caller)
    return proba


def _grouped(segments: Column, scores: NDArray[Any]) -> tuple[Ints, Ints]:
    """The segments' sizes, and row positions sorted by segment."""
    codes = factorize(ids.read_rows(segments, len(scores)))
    numbers = codes.of(slice(None))
    counts = np.bincount(numbers, minlength=codes.numbers)
    sizes = counts[counts > 0]
    return sizes, order_by(numbers)


def _checked(fit: Fit, batch: tuple[int, ...], dtype: np.dtype[Any]) -> Fit:
    if np.shape(fit.A) != batch:
        raise ValueError(f"calibrator: expected problems of shape {batch}, got {np.shape(fit.A)}")
    if fit.A.dtype != dtype:
        raise ValueError(f"calibrator: expected one of {dtype} scores, got {fit.A.dtype}")
    return flat_fit(fit)


def _of_all(
    fit: Fit, prior: GaussianPrior | None, options: Options
) -> tuple[Fit, GaussianPrior | None, Options]:
    """The fit that all segments share, as one problem, and how it was made."""
    return fit_of_all(fit), shared_prior(prior), replace(options, non_finite="omit")


def _expand(
    rows: ProblemRows, fit: Fit, prior: GaussianPrior | None, options: Options
) -> tuple[NDArray[Any], Ints, tuple[NDArray[Any], NDArray[Any]]]:
    """Probabilities of all rows by expansion; positions and (A, B) of rows to be refitted."""
    proba = np.empty_like(rows.scores)
    tolerance = _TOLERANCE[proba.dtype.name]
    center = _center(fit, prior, options)
    parameters = parameters_of(fit.A, fit.B, fit.covariance, prior, options)

    def run(problems: Ints) -> list[tuple[NDArray[Any], ...]]:
        pieces = list(rows.tiles(problems))
        piece_sums = [_sums(rows, tiles, center) for tiles in pieces]
        total: ExpansionSums = jax.tree.map(lambda *parts: reduce(np.add, parts), *piece_sums)
        finite = np.isfinite(fit.A[problems])  # NaN fits have no optimum to compare
        entries = _entries(problems[finite], (fit, parameters, center.coordinates))
        _require_fitted(*entries, _entries(finite, total), options)
        doubtful: list[tuple[NDArray[Any], ...]] = []
        for tiles in pieces:
            tile_sums = _entries(np.searchsorted(problems, tiles.problem), total)
            out = leave_each_out(*_at(rows, tiles, center), tile_sums, options, tolerance)
            out = jax.tree.map(np.asarray, out)
            is_row = tiles.there
            proba[tiles.where[is_row]] = out.probability[is_row]
            index = np.nonzero(out.doubtful)
            doubtful.append((tiles.where[index], out.A[index], out.B[index]))
        return doubtful

    doubtful_parts = [part for parts in ordered_map(run, rows.calls()) for part in parts]
    positions, A, B = (np.concatenate(x) for x in zip(*doubtful_parts, strict=True))
    return proba, positions, (A, B)


def _require_fitted(
    fit: Fit,
    parameters: FittedParameters,
    coordinates: Standardization,
    total: ExpansionSums,
    options: Options,
) -> None:
    """Refuses other rows than those of the fits, by their sums."""
    total = jax.tree.map(lambda x: np.asarray(x, float), total)
    (n_pos, pos), (n_neg, neg) = total.pos.T, total.neg.T
    require_fitted_counts(fit, (n_pos, n_neg))
    with np.errstate(all="ignore"):
        high, low = platts_targets(n_pos, n_neg, options.targets == "platt")
        by_z, by_zz = total.derivatives[:, 0], total.derivatives[:, 1]
        gradient = high * pos + low * neg + by_z[:, 1], high * n_pos + low * n_neg + by_z[:, 0]
        size = abs(pos) + abs(neg) + abs(by_z[:, 1]), n_pos + n_neg
        hessian = matrices(by_zz[:, 2], by_zz[:, 1], by_zz[:, 1], by_zz[:, 0])
        loss = LossAtFit(
            np.asarray(coordinates.center, float),
            1 / np.asarray(coordinates.scale, float),
            np.stack(gradient, -1),
            hessian,
            np.stack(size, -1),
        )
    require_optimum(fit, parameters, loss, options)


def _require_fitted_there(
    fit: Fit, rows: Any, prior: GaussianPrior | None, options: Options
) -> None:
    """The same of rows on a device."""
    parameters = parameters_of(fit.A, fit.B, fit.covariance, prior, options)
    smooth = np.full(len(fit.A), float(options.targets == "platt"))
    sums = SandwichSums(*rows.map(sums_there, parameters.A, parameters.B, smooth).T)
    finite = np.isfinite(fit.A)
    fit, parameters, sums = jax.tree.map(itemgetter(finite), (fit, parameters, sums))
    require_fitted_counts(fit, (sums.n_pos, sums.n_neg))
    require_optimum(fit, parameters, sums.loss(), options)


def _center(fit: Fit, prior: GaussianPrior | None, options: Options) -> Center:
    """The points of expansion. The coordinates need no precision."""
    with np.errstate(all="ignore"):
        h_AA, h_AB, h_BB = (fit.hessian[:, i, j] for i, j in ((0, 0), (0, 1), (1, 1)))
        middle = h_AB / h_BB if options.intercept else np.zeros_like(h_AA)
        spread = fit.covariance[:, 0, 0]  # about the inverse of the weighted sum of squared scores
        pinned = spread == 0
        # A sandwich of one cluster is NaN.
        spread = np.where(spread > 0, spread, 1 / (h_AA - h_AB * middle))
        held: Any = pinned | ~((spread > 0) & (spread < np.inf))
        weight = h_BB if options.intercept else (fit.n_pos + fit.n_neg) / 5
        scale = np.sqrt(spread * weight)
    middle, scale = (np.where(np.isfinite(x), x, 0) for x in (middle, scale))
    kind = fit.A.dtype
    # mypy: JAX accepts NumPy arrays as its own.
    coordinates: Any = middle.astype(kind), scale.astype(kind)
    A: Any = fit.A
    B: Any = fit.B
    return Center(A, B, Standardization(*coordinates), held, prior)


def _at(rows: ProblemRows, tiles: RowTiles, center: Center) -> tuple[tuple[Columns, Any], Center]:
    """The rows of the tiles, and the points of expansion of their problems."""
    where = np.minimum(tiles.where, len(rows.scores) - 1)
    return (rows.at(where), tiles.size), _entries(tiles.problem, center)


def _entries(problems: Ints, arrays: Made) -> Made:
    """The entries of the arrays for these problems."""
    return jax.tree.map(lambda x: x[problems], arrays)


def _sums(rows: ProblemRows, tiles: RowTiles, center: Center) -> ExpansionSums:
    used = np.count_nonzero(tiles.size)  # unused ones would change the order of a sum
    firsts = np.flatnonzero(np.diff(tiles.problem[:used], prepend=-1))

    def sum_by_problem(tile_sums: jax.Array) -> NDArray[Any]:
        used_sums = np.asarray(tile_sums)[:used]
        return np.add.reduceat(used_sums, firsts, dtype=np.float64).astype(used_sums.dtype)

    return jax.tree.map(sum_by_problem, sums(*_at(rows, tiles, center)))
