"""The three fits: check what came, say whose rows are whose, run, report."""

from dataclasses import replace

import jax
import numpy as np

from platt_jax import validation
from platt_jax.execution.caller import Caller
from platt_jax.execution.classes import classes_and_membership
from platt_jax.execution.run import fit_problems
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options
from platt_jax.passes import packing
from platt_jax.results import tables
from platt_jax.results.calibrators import OneVsRestCalibrator, SegmentCalibrator
from platt_jax.results.fit import Fit, problem_names
from platt_jax.solver.solution import Given
from platt_jax.status import Status
from platt_jax.threads import run_concurrently

_DEFAULT = Options()


def fit(
    scores,
    labels,
    *,
    weights=None,
    prior: GaussianPrior | None = None,
    start: tuple | None = None,
    options: Options = _DEFAULT,
    progress: bool = False,
) -> Fit:
    """Fit one sigmoid to each problem of a batch.

    Args:
        scores: (..., N) numbers, higher meaning class 1; leading axes are independent problems.
            float64 is solved in float64, float32 in float32, whatever JAX's x64 flag says;
            integers and narrower floats are promoted.
        labels: bool, {0, 1} or {-1, +1}, broadcastable to scores.
        weights: counts of rows >= 0, broadcastable to scores: weight 2 is the row twice, weight 0
            is the row gone. They enter Platt's targets, so their scale matters.
        prior: a Gaussian prior on (A, B), with leading axes broadcastable to those of scores.
        start: (A, B) to begin the search at, each broadcastable to the leading axes of scores, such
            as those of an earlier fit of similar rows: it saves passes, and changes no answer by
            more than `Options.tol`. A bad one costs a pass. NaN means the usual start.
        options: how to fit.
        progress: show a progress bar (needs tqdm).

    Returns:
        A Fit of NumPy arrays with the batch shape (...).

    Warns:
        RuntimeWarning: every problem has one row only, as those of a column vector have; or labels
            are one-hot, as those of a multiclass classifier are; or a problem is NON_FINITE.

    Raises:
        ValueError: an argument is not as above; or, with Options(non_finite="raise"), a score,
            label or weight is not finite.
        MemoryError: the device's memory is too small even for small chunks of the rows, or for a
            single problem of more than half a million rows.

    Example:
        >>> one = fit([5.0, -4.0, 1.0], [1, 0, 0])
        >>> round(float(one.A), 6), round(float(one.B), 6)
        (-0.202614, 0.652367)
    """
    caller = Caller()
    scores = validation.scores(scores)
    labels, weights = validation.labels_and_weights(labels, weights, scores)
    batch = scores.shape[:-1]
    if (doubt := validation.doubtful_shape(scores, labels)) is not None:
        caller.warn(doubt)
    given = _given(prior, start, batch, scores.dtype)

    def take(problems, part, space):
        which = problems
        if len(batch) != 1:
            which = np.unravel_index(np.arange(problems.start, problems.stop), batch or (1,))
            which = which if batch else ()
        columns = scores, labels, weights
        mine = (None if x is None else x[..., part][which].reshape(-1) for x in columns)
        return packing.flat(mine, space)

    sizes = np.broadcast_to(scores.shape[-1], int(np.prod(batch)))
    flat = fit_problems(sizes, take, scores.dtype, given, options, progress, caller)
    result = jax.tree.map(lambda x: x.reshape(batch + x.shape[1:]), flat)
    _report_non_finite(flat, options, "problems", problem_names(batch), caller)
    return result


def fit_segments(
    scores,
    labels=None,
    segments=None,
    *,
    weights=None,
    prior: GaussianPrior | None = None,
    start: tuple | None = None,
    options: Options = _DEFAULT,
    progress: bool = False,
) -> SegmentCalibrator:
    """Fit one sigmoid to the rows of each segment, and one to all rows for unseen segments.

    Args:
        scores: (N,) as in `fit`; or SegmentRows, which stand for all four arrays.
        labels: (N,) as in `fit`.
        segments: (N,) ids: an array, list or pandas Series of integers, text, dates or anything
            hashable that a file can hold; or ids of several columns, as a list of tuples, an (N, M)
            array or a DataFrame. Equal ids are one segment; None, NaN and other missing ids are an
            error.
        weights: (N,) as in `fit`.
        prior: as in `fit`; with leading axis (K,) in the order of the distinct ids, ascending.
        start: as in `fit`, for the segments: numbers, or (K,) in the order of the distinct ids.
        options: how to fit.
        progress: show a progress bar (needs tqdm).

    Returns:
        A SegmentCalibrator with the distinct ids, ascending, as keys; ids of several columns are a
        structured array, with a field per column.

    Raises:
        ValueError: an argument is not as above, as in `fit`.
        MemoryError: as in `fit`.

    Example:
        >>> calibrator = fit_segments([2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"])
        >>> calibrator.predict_proba([0.5, 0.5], ["a", "unseen"]).shape
        (2,)
    """
    caller = Caller()
    rows = _segment_rows(scores, labels, segments, weights)
    keys, order = rows.keys, rows.largest_first
    # One bad row must not cost the unseen segments their calibration.
    omitting = replace(validation.options(options), non_finite="omit")
    shared = Given(_flat_prior(_shared_prior(prior), (1,), rows.dtype))
    given = _given(prior, start, keys.shape, rows.dtype)
    given = jax.tree.map(lambda leaf: leaf[order], given)

    def take_any(_, part, space):
        return rows.all(part, space.length)

    def fit_all():
        # Gaps between the segments are omitted, too.
        everything = np.array([rows.length])
        return fit_problems(
            everything, take_any, rows.dtype, shared, omitting, False, caller, loss=False
        )

    def fit_each():
        return fit_problems(
            rows.sizes, rows.take, rows.dtype, given, options, progress, caller, order=order
        )

    pooled, each = run_concurrently(fit_all, fit_each)
    _report_non_finite(each, options, "segments", keys, caller)

    pooled = jax.tree.map(lambda x: x[0, ...], pooled)
    return SegmentCalibrator(keys, each, pooled.sigmoid, pooled.covariance)


def fit_one_vs_rest(
    scores,
    labels,
    *,
    classes=None,
    weights=None,
    prior: GaussianPrior | None = None,
    options: Options = _DEFAULT,
    progress: bool = False,
) -> OneVsRestCalibrator:
    """Fit one sigmoid per class of a classifier: that class against all others.

    Args:
        scores: (N, C) numbers, a column per class.
        labels: (N,) class ids; or (N, C) of bool, {0, 1} or {-1, +1} for multilabel.
        classes: (C,) the class ids in the order of the columns. None means the distinct labels,
            ascending, or 0 ... C-1 for multilabel.
        weights: (N,) as in `fit`.
        prior: as in `fit`, with leading axis (C,) or none.
        options: how to fit.
        progress: show a progress bar (needs tqdm).

    Returns:
        A OneVsRestCalibrator.

    Raises:
        ValueError: an argument is not as above, as in `fit`; or a label is not among classes.
        MemoryError: as in `fit`.

    Example:
        >>> import numpy as np
        >>> scores = np.array([[2.0, -1.0], [-1.0, 1.0], [1.0, 0.5]])
        >>> fit_one_vs_rest(scores, ["cat", "dog", "cat"]).predict_proba(scores).shape
        (3, 2)
    """
    caller = Caller()
    scores = validation.scores(scores)
    if scores.ndim != 2:
        raise ValueError(
            f"scores: expected (N, C), a column per class, got shape {scores.shape}; "
            "for one binary score see fit"
        )
    columns = scores.T
    weights = validation.weights(weights, scores.dtype)
    if weights is not None:
        if weights.shape not in ((), scores.shape[:1]):
            raise ValueError(
                f"weights: expected one per row, {scores.shape[:1]}, got shape {weights.shape}"
            )
        weights = np.broadcast_to(weights, columns.shape)
    given = _given(prior, None, columns.shape[:1], scores.dtype)
    classes, is_class = classes_and_membership(classes, labels, scores.shape)

    def take(problems, part, space):
        w = None if weights is None else weights[problems, part].reshape(-1)
        mine = columns[problems, part].reshape(-1), is_class(problems, part).reshape(-1), w
        return packing.flat(mine, space)

    sizes = np.broadcast_to(columns.shape[1], len(columns))
    each = fit_problems(sizes, take, scores.dtype, given, options, progress, caller)
    _report_non_finite(each, options, "classes", classes, caller)
    return OneVsRestCalibrator(classes, each)


def _segment_rows(scores, labels, segments, weights) -> SegmentRows:
    if not isinstance(scores, SegmentRows):
        return SegmentRows(scores, labels, segments, weights)
    for name, values in (("labels", labels), ("segments", segments), ("weights", weights)):
        if values is not None:
            raise ValueError(f"{name}: expected none beside SegmentRows, which hold them")
    return scores


def _given(prior, start, batch, dtype) -> Given:
    """What the user gave for each problem, with one leading axis."""
    start = validation.start(start, batch, dtype)
    if start is not None:
        start = start[0].reshape(-1), start[1].reshape(-1)
    return Given(_flat_prior(prior, batch, dtype), start)


def _flat_prior(prior, batch, dtype):
    if isinstance(prior, GaussianPrior):  # JAX's arrays may lack float64
        prior = GaussianPrior(*(validation.array(leaf, "prior") for leaf in prior))
    prior = validation.prior(prior, batch, dtype)
    if prior is None:
        return None
    mean, precision = (np.asarray(leaf) for leaf in prior)
    return GaussianPrior(mean.reshape(-1, 2), precision.reshape(-1, 2, 2))


def _shared_prior(prior):
    """The prior if it is one for all problems, which then holds for the pooled fit too."""
    if not isinstance(prior, GaussianPrior):
        return None
    return prior if np.ndim(prior.mean) == 1 and np.ndim(prior.precision) == 2 else None


def _report_non_finite(result, options, kind, names, caller):
    bad = np.flatnonzero(result.status == Status.NON_FINITE)
    if not len(bad):
        return
    what = (
        f"NaN, infinite or overflowing numbers in {len(bad):,} of {len(names):,} {kind}, "
        f"first in {tables.name(names, bad[0])}"
    )
    if options.non_finite == "raise":
        raise ValueError(f"scores, labels, weights: expected finite values, found {what}")
    caller.warn(
        f'{what}: their A and B are NaN. Options(non_finite="omit") fits them without these rows'
    )
