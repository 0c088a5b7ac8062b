"""The fitting functions `fit`, `fit_segments` and `fit_one_vs_rest`: check, run, report."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args, overload

import numpy as np
from jax.sharding import Mesh

from platt_jax import ids, validation
from platt_jax.backend import accelerators
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.caller import report_non_finite
from platt_jax.execution.class_rows import class_rows
from platt_jax.execution.dense_rows import DenseRows
from platt_jax.execution.devices import checked
from platt_jax.execution.given import problem_inputs
from platt_jax.execution.on_device import DeviceRows
from platt_jax.execution.problems import Context
from platt_jax.execution.progress import Listener, Stage
from platt_jax.execution.segment_rows import SegmentRows, segment_rows
from platt_jax.execution.sent_rows import sent_rows
from platt_jax.execution.shares import ShareRows, are_shares, share_rows
from platt_jax.ids.vocabulary import distinct
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import ClassPooling, Options, OtherName, Pooling, SigmoidName
from platt_jax.population.device_segments import segments_of, where_rows_are
from platt_jax.population.fitting import (
    fit_by_segment,
    fit_events,
    inner_fits,
    report_few_rows,
    smoothing,
)
from platt_jax.population.segments import FitArguments, SegmentSource
from platt_jax.results.covariates import read_covariates
from platt_jax.results.fit import Fit, problem_names
from platt_jax.results.fitted_curves import CurveBatch
from platt_jax.results.one_vs_rest import OneVsRestCalibrator, unpooled
from platt_jax.results.segment_calibrator import SegmentCalibrator

if TYPE_CHECKING:
    from platt_jax.curves import Curve

_DEFAULT = Options()


@overload
def fit(
    scores: Column,
    labels: Column,
    *,
    weights: Column | None = None,
    offset: Column | None = None,
    pos_label: Any = None,
    prior: GaussianPrior | None = None,
    start: tuple[Column, Column] | None = None,
    curve: SigmoidName = "sigmoid",
    trials: Column | None = None,
    soft: bool = False,
    mesh: Mesh | None = None,
    options: Options = _DEFAULT,
    progress: bool | Listener = False,
) -> Fit: ...


@overload
def fit(
    scores: Column,
    labels: Column,
    *,
    weights: Column | None = None,
    offset: Column | None = None,
    pos_label: Any = None,
    curve: "OtherName | Curve",
    options: Options = _DEFAULT,
    progress: bool | Listener = False,
) -> CurveBatch: ...


@takes_columns
def fit(
    scores: Column,
    labels: Column,
    *,
    weights: Column | None = None,
    offset: Column | None = None,
    pos_label: Any = None,
    prior: GaussianPrior | None = None,
    start: tuple[Column, Column] | None = None,
    curve: "str | Curve" = "sigmoid",
    trials: Column | None = None,
    soft: bool = False,
    mesh: Mesh | None = None,
    options: Options = _DEFAULT,
    progress: bool | Listener = False,
) -> Fit | CurveBatch:
    """Fit one curve, by default a sigmoid, to each problem of a batch.

    Args:
        scores: (..., N) numbers; higher scores mean class 1. Leading axes are independent problems.
            float64 is solved in float64 and float32 in float32, regardless of JAX's x64 flag.
            Integers and narrower floats are promoted.
        labels: bool, {0, 1} or {-1, +1}, broadcastable to scores.
        weights: row counts >= 0, broadcastable to scores: weight 2 counts a row twice, weight 0
            omits it. Weights enter Platt's targets, so their scale matters.
        offset: log-odds of class 1 that are known for each row, broadcastable to scores; they are
            added to the curve's: P(y=1) = 1 / (1 + exp(A f + B - offset)). So (A, B) describe what
            the offset leaves to explain. Flags and the class counts of Platt's targets are those
            of the rows, with or without offsets.
        pos_label: the label of class 1, if labels are two values of any other kind, such as the
            texts "yes" and "no".
        prior: a Gaussian prior on (A, B), with leading axes broadcastable to the scores'.
        start: the start (A, B) of the search, each broadcastable to the leading axes of scores, for
            example from an earlier fit of similar rows. It saves passes, and changes no result by
            more than `Options.tol`. A bad start costs one pass. NaN means the usual start.
        curve: the kind of curve, as in `fit_segments`, without prior, start and mesh.
        trials: numbers of trials above 0, broadcastable to scores; the labels are then how many of
            them were positive: grouped binomials. Trials of a row may depend on each other, such as
            several votes on one item. So the variance is taken to be a multiple of the binomial's:
            Pearson's statistic over its degrees of freedom (McCullagh & Nelder 1989, section 4.5),
            by which all counts are divided, Platt's targets included. Only for curve="sigmoid".
        soft: whether labels are any numbers in [0, 1], such as mean votes. Each row counts once,
            times the same correction, which may be below 1, but not below 1 / 1,000.
        mesh: a `jax.sharding.Mesh` of devices of this process; None for JAX's default device. Its
            axes are named "problems", "rows" or both. Along "problems" each device fits its own
            problems; along "rows" each device sums over its share of each problem's rows. A problem
            of more than half a million rows is shared by all devices in any case.
        options: how to fit.
        progress: whether to show a progress bar (needs tqdm); or a function that is called with a
            `ProgressReport` after each chunk of the work.

    Returns:
        A Fit of NumPy arrays with the batch shape (...); a `CurveBatch` of other curves than
        sigmoids, shifts and temperatures. If the scores are an array of JAX, CuPy or
        torch on a GPU, the rows are fitted there and not copied to the host, and the Fit has JAX
        arrays, unless it is of float64 while JAX's 64-bit types are off.

    Warns:
        RuntimeWarning: every problem has only one row, as for a column vector; labels are one-hot,
            as for a multiclass classifier; a problem is NON_FINITE; or, once per process, there are
            100 scores or more and all finite ones lie in [0, 1], as probabilities do.

    Raises:
        ValueError: an argument is not as described; all scores are nearer to 0 than 3.7e-301
            (float32: 2e-31); or, with Options(non_finite="raise"), a score, label, weight or offset
            is not finite.
        MemoryError: the device's memory is too small even for small chunks of the rows, or for a
            single problem of more than half a million rows.

    Example:
        >>> one = fit([5.0, -4.0, 1.0], [1, 0, 0])
        >>> round(float(one.A), 6), round(float(one.B), 6)
        (-0.202614, 0.652367)
    """
    if are_shares(trials, soft):
        shares = share_rows(scores, labels, trials, soft, weights, offset, pos_label, curve)
        more: dict[str, Any] = dict(prior=prior, mesh=mesh, options=options, progress=progress)
        first = fit(**shares.columns(), start=start, **more)
        A, B = (np.asarray(x, float)[..., None] for x in (first.A, first.B))
        phi = shares.dispersion(-(A * shares.scores + B), 1 + options.intercept)
        return fit(**shares.columns(phi), start=(first.A, first.B), **more)
    caller, stage = Caller(), Stage.of(progress)
    row_class: Any = DeviceRows if accelerators.holds(scores) else DenseRows
    rows = row_class(scores, labels, weights, pos_label, offset)
    if (warning := rows.doubtful_shape) is not None:
        caller.warn(warning)
    if (warning := rows.doubtful_scores) is not None:
        caller.warn_once(warning)
    if curve != "sigmoid":
        from platt_jax.curves import fitting

        alone: dict[str, Any] = dict(prior=prior, start=start, mesh=mesh)
        kind, options = fitting.read(curve, "none", options, **alone)
        if curve != "temperature" and not isinstance(rows, DenseRows):
            chosen = kind or curve
            raise ValueError(f"scores: expected an array on the host beside curve={chosen!r}")
        if kind is not None:
            fitting.require_no_offset(kind, offset is not None)
            return fitting.batch_curves(rows, kind, options, caller)
    inputs = problem_inputs(rows.batch, rows.dtype, prior, start)
    result: Fit = rows.fit(inputs, Context(options, caller, stage, mesh=checked(mesh)))
    report_non_finite(result, options, "problem", problem_names(rows.batch), caller)
    return result


@takes_columns
def fit_segments(
    scores: Column,
    labels: Column | None = None,
    segments: Column | None = None,
    *,
    weights: Column | None = None,
    offset: Column | None = None,
    pos_label: Any = None,
    prior: GaussianPrior | None = None,
    start: tuple[Column, Column] | None = None,
    pooling: Pooling = "none",
    covariates: Column | None = None,
    curve: "str | Curve" = "sigmoid",
    trials: Column | None = None,
    soft: bool = False,
    mesh: Mesh | None = None,
    options: Options = _DEFAULT,
    progress: bool | Listener = False,
) -> SegmentCalibrator:
    """Fit one curve to the rows of each segment, and one to all rows for unseen segments.

    Args:
        scores: (N,) scores as in `fit`; or SegmentRows, or rows elsewhere, from `sql.rows`,
            `streaming.rows` or `distributed.rows`, which replace the arrays.
        labels: (N,) labels as in `fit`.
        segments: (N,) ids: an array, list or column of integers, text, categories, dates or any
            hashable objects that a file can store; or ids of several columns, as a list of tuples,
            an (N, M) array or a DataFrame. Rows with equal ids form a segment. None, NaN and other
            missing ids are an error.
        weights: (N,) weights as in `fit`.
        offset: (N,) offset as in `fit`. With pooling="partial" it is the offset of the likelihoods,
            so the population describes the curves without it.
        pos_label: the label of class 1, as in `fit`.
        prior: a prior as in `fit`; or one per segment, with leading axis (K,) in the order of the
            distinct ids, ascending, with pooling="none" only.
        start: a start as in `fit`, for the segments: numbers, or arrays (K,) in the same order.
        pooling: "partial" is for few rows by segment, the usual case. It treats the segments as a
            sample from a population, (A, B) ~ Normal(mean, covariance), estimated from all of them.
            The fewer rows a segment has, the closer its curve is to the population's. Unseen
            segments get the population's probability. Labels are used as they are, without Platt's
            targets, since the population is the prior. "none" fits each segment separately, which
            takes hundreds of rows in each, and tens of each class. "complete" gives every segment
            the curve of all rows. "nested" and "crossed" are for ids of several columns. With
            "crossed", (A, B) is the sum of a mean curve and an effect of each column's value. With
            "nested" the effects belong to the prefixes: (country,), (country, city), and so on.
            Each level's effects are normal, with a covariance that is estimated. Unseen segments
            get what is known of their values.
        covariates: with pooling="partial", what is known of the segments besides their rows, where
            curves may follow it: the mean of (A, B) is linear in it. A DataFrame or a mapping with
            a line for each segment: its id in a column "segment" or in the index, else columns of
            numbers and of categories; or (K, P) numbers in the order of the distinct ids. "rows" is
            the logarithm of a segment's number of rows. `population.coefficients` has the result.
            A code for a missing number, such as -9999, leaves little of its column's coefficient:
            a column of categories has room for what is not known.
        curve: the kind of curve. "sigmoid" is Platt scaling. Two kinds are for scores that are
            log-odds, and are sigmoids too: "shift" fits B alone with A = -1, and "temperature" A
            alone with B = 0, to labels without Platt's targets. Others are "quadratic", "beta" (for
            log-odds) and "spline", whose log-odds have more parameters, and "isotonic", "bins" and
            "venn_abers"; or an object of `platt_jax.curves` with its options. They are fitted
            beside the sigmoids, and take pooling "none" or "complete", no prior, start or mesh.
            Isotonic curves, bins and Venn-Abers predictors take no offset.
        trials: (N,) numbers of trials as in `fit`, for arrays in memory. The correction of counts
            is one number for all segments.
        soft: whether labels are any numbers in [0, 1], as in `fit`, for arrays in memory.
        mesh: devices as in `fit`.
        options: how to fit.
        progress: whether to show a progress bar (needs tqdm); or a function that is called with a
            `ProgressReport` after each chunk of the work.

    Returns:
        A SegmentCalibrator with the distinct ids, ascending, as keys. Ids of several columns are a
        structured array with a field per column. If the scores are on a GPU, ids are integers
        there, or any ids on the host; rows stay there, and the fits have JAX arrays as in `fit`.

    Warns:
        RuntimeWarning: as `fit`; or with pooling="none" 20 segments or more have so few rows that
            Platt's targets add up to over a tenth more positives, or negatives, than there are; or
            with pooling="partial" curves depend on the number of rows, see docs/howto/few_rows.md.

    Raises:
        ValueError: an argument is not as described; or see `fit`.
        MemoryError: see `fit`.

    Example:
        >>> calibrator = fit_segments([2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"])
        >>> calibrator.predict_proba([0.5, 0.5], ["a", "unseen"]).shape
        (2,)
    """
    table = read_covariates(covariates, pooling)
    if are_shares(trials, soft):
        shares = share_rows(scores, labels, trials, soft, weights, offset, pos_label, curve)
        kept: dict[str, Any] = dict(prior=prior, start=start, mesh=mesh, options=options)
        return _segments_of_shares(shares, segments, pooling, covariates, progress=progress, **kept)
    caller = Caller()
    columns: dict[str, Any] = dict(
        labels=labels, segments=segments, weights=weights, offset=offset, pos_label=pos_label
    )
    if curve != "sigmoid":
        return _other_segments(
            scores, columns, curve, prior, start, pooling, mesh, options, progress, caller
        )
    more = prior, start, pooling, options, progress, caller, table
    # The check of a protocol takes longer than all others.
    if not isinstance(scores, np.ndarray) and isinstance(scores, SegmentSource):
        validation.require_none_beside(scores, **columns)
        arguments = FitArguments(prior, start, pooling, mesh, options, progress, table)
        with scores.open_segments(arguments, caller) as by_segment:
            return fit_by_segment(by_segment, *more)
    if not isinstance(scores, SegmentRows):
        validation.require_each(scores, labels=labels, segments=segments)
    if mesh is None and pos_label is None:
        device_rows = sent_rows(scores, labels, segments, weights, offset)
        if device_rows is not None:
            return fit_by_segment(segments_of(device_rows, caller), *more)
    if not (isinstance(scores, SegmentRows) or accelerators.holds(scores)):
        scores = validation.scores_to_fit(scores)
    rows = segment_rows(scores, **columns)
    segments_to_fit = segments_of(rows, caller, checked(mesh))
    return where_rows_are(rows, lambda: fit_by_segment(segments_to_fit, *more))


@takes_columns
def fit_one_vs_rest(
    scores: Column,
    labels: Column | None = None,
    *,
    classes: Column | None = None,
    weights: Column | None = None,
    offset: Column | None = None,
    pos_label: Any = None,
    prior: GaussianPrior | None = None,
    start: tuple[Column, Column] | None = None,
    pooling: ClassPooling = "none",
    curve: "str | Curve" = "sigmoid",
    mesh: Mesh | None = None,
    options: Options = _DEFAULT,
    progress: bool | Listener = False,
) -> OneVsRestCalibrator:
    """Fit one curve per class of a classifier: each class against all others.

    Args:
        scores: (N, C) numbers, a column per class; or ClassRows, which replace the arrays.
        labels: (N,) class ids, of which each row has one; or (N, C) of bool, {0, 1} or {-1, +1} for
            multilabel, where a row may be of several classes or of none. The probabilities of a
            row are divided by their sum for class ids only; see `predict_proba`.
        classes: (C,) the class ids in the order of the columns. None means the distinct labels,
            ascending, if there are C of them; or 0 ... C-1 for multilabel, and if the labels are
            such integers and 0 is one.
        weights: (N,) weights as in `fit`.
        offset: (N, C) offset as in `fit`, a column per class: known log-odds of each class against
            all others.
        pos_label: the label of a class that is right, if the labels (N, C) are two values of any
            other kind, such as the texts "yes" and "no".
        prior: a prior as in `fit`; or one per class, with leading axis (C,).
        start: a start as in `fit`: numbers, or arrays (C,).
        pooling: "none", "partial" or "complete", as in `fit_segments`: with "partial" the classes
            are a sample from a population, so that rare classes get a useful curve.
        curve: the kind of curve, as in `fit_segments`.
        mesh: devices as in `fit`.
        options: how to fit.
        progress: whether to show a progress bar (needs tqdm); or a function that is called with a
            `ProgressReport` after each chunk of the work.

    Returns:
        A OneVsRestCalibrator, which stores the kind of labels. If the scores are on a GPU, rows
        stay there, and the fits have JAX arrays as in `fit`; labels (N,) are integers there, or any
        class ids on the host.

    Warns:
        RuntimeWarning: as `fit`; or as `fit_segments`, of few rows for labels (N, C).

    Raises:
        ValueError: an argument is not as described; a label is not among classes; or see `fit`.
        MemoryError: see `fit`.

    Example:
        >>> import numpy as np
        >>> scores = np.array([[2.0, -1.0], [-1.0, 1.0], [1.0, 0.5]])
        >>> fit_one_vs_rest(scores, ["cat", "dog", "cat"]).predict_proba(scores).shape
        (3, 2)
    """
    caller, stage = Caller(), Stage.of(progress)
    if accelerators.holds(scores) and curve not in get_args(SigmoidName):
        scores = validation.scores_to_fit(scores)
    rows = class_rows(scores, labels, classes, weights, offset=offset, pos_label=pos_label)
    validation.require_one_of(pooling, get_args(ClassPooling), "pooling")
    if curve != "sigmoid":
        from platt_jax.curves import fitting

        alone: dict[str, Any] = dict(prior=prior, start=start, mesh=mesh)
        kind, options = fitting.read(curve, pooling, options, **alone)
        if kind is not None:
            _require_in_memory(rows, kind)
            fitting.require_no_offset(kind, rows.has_offset)
            with inner_fits(not fitting.smoothed(kind)):
                sigmoids = fit_one_vs_rest(
                    rows, pooling=pooling, options=options, progress=progress
                )
            by_class = fitting.with_curves(sigmoids.by_class, rows, kind, options, caller)
            return replace(sigmoids, by_class=by_class)
    prior, start = rows.in_key_order(prior), rows.in_key_order(start)
    segments = segments_of(rows, caller, checked(mesh))

    def fit_classes() -> SegmentCalibrator:
        if pooling != "none":
            return fit_by_segment(segments, prior, start, pooling, options, progress, caller)
        # No class is unseen, so no pass for the curve of all.
        inputs = problem_inputs(rows.keys.shape, rows.dtype, prior, start)
        fits = segments.fit(inputs, options, stage)
        report_non_finite(fits, options, "class", rows.keys, caller)
        if rows.multilabel:  # else rows are divided by their sums
            report_few_rows(smoothing(fits), options, caller, "classes")
        return unpooled(rows.keys, fits, options, fit_events(prior, rows.has_offset))

    return OneVsRestCalibrator(rows.classes, where_rows_are(rows, fit_classes), rows.multilabel)


def _other_segments(
    scores: Column,
    columns: dict[str, Any],
    curve: "str | Curve",
    prior: GaussianPrior | None,
    start: tuple[Column, Column] | None,
    pooling: Pooling,
    mesh: Mesh | None,
    options: Options,
    progress: bool | Listener,
    caller: Caller,
) -> SegmentCalibrator:
    """`fit_segments` for another curve than the sigmoid with two parameters."""
    from platt_jax.curves import fitting

    alone: dict[str, Any] = dict(prior=prior, start=start, mesh=mesh)
    kind, options = fitting.read(curve, pooling, options, **alone)
    more: dict[str, Any] = dict(pooling=pooling, options=options, progress=progress)
    if kind is None:
        return fit_segments(scores, **columns, **alone, **more)
    _require_in_memory(scores, kind)
    rows = segment_rows(
        scores if isinstance(scores, SegmentRows) else validation.scores_to_fit(scores), **columns
    )
    fitting.require_no_offset(kind, rows.has_offset)
    with inner_fits(not fitting.smoothed(kind)):
        sigmoids = fit_segments(rows, **more)
    return fitting.with_curves(sigmoids, rows, kind, options, caller)


def _require_in_memory(scores: Any, curve: "Curve") -> None:
    """Refuses rows that a curve other than a sigmoid is not fitted to."""
    on_device = isinstance(scores, SegmentRows) and scores.device is not None
    if on_device or isinstance(scores, SegmentSource) or accelerators.holds(scores):
        raise ValueError(
            f"scores: expected arrays in memory beside curve={curve!r}, got {type(scores).__name__}"
        )


def _segments_of_shares(
    shares: ShareRows, segments: Column, pooling: Pooling, covariates: Column, **more: Any
) -> SegmentCalibrator:
    """`fit_segments` for shares: twice, the second time with counts corrected for dispersion."""
    validation.require_each(shares.scores, segments=segments)
    validation.require_flat(shares.scores, "scores")
    owner, keys = distinct(ids.read_rows(segments, len(shares.scores)))
    twice = shares.twice(keys[owner])
    one_curve = pooling == "complete"
    with inner_fits():
        first = fit_segments(
            **shares.columns(), segments=twice, pooling="complete" if one_curve else "none", **more
        )
    A, B = (np.asarray(x, float)[owner] for x in (first.fit.A, first.fit.B))
    parameters = (1 if one_curve else len(keys)) * (1 + more["options"].intercept)
    phi = shares.dispersion(-(A * shares.scores + B), parameters)
    more |= {"pooling": pooling, "covariates": covariates}
    return fit_segments(**shares.columns(phi), segments=twice, **more)
