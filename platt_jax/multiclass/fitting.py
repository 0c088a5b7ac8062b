"""The fit of several classes by segment."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Floats, Ints
from platt_jax.backend.threads import ordered_map
from platt_jax.columns import Column
from platt_jax.execution.caller import Caller
from platt_jax.ids.factorize import factorize
from platt_jax.ids.padding import PaddedRows, SegmentsBySize
from platt_jax.multiclass.likelihoods import CumulativeLikelihood, SoftmaxLikelihood
from platt_jax.multiclass.newton import least_curvature, minimize
from platt_jax.multiclass.pooling import pool_temperatures
from platt_jax.multiclass.rows import (
    MulticlassRows,
    Padded,
    bad_rows_error,
    read_classes,
    read_logits,
    read_multiclass,
    read_weights,
)
from platt_jax.options import ClassPooling, Options
from platt_jax.results import tables
from platt_jax.results.multiclass import (
    Model,
    MulticlassCalibrator,
    MulticlassFits,
    TemperaturePopulation,
)
from platt_jax.status import Status

_DEFAULT = Options()
_ALL = "all"  # the id of the only segment if there are no segments


def fit_multiclass(
    logits: Column,
    labels: Column,
    segments: Column | None = None,
    *,
    model: Model = "temperature",
    classes: Column | None = None,
    weights: Column | None = None,
    pooling: ClassPooling = "none",
    penalty: float = 0.1,
    options: Options = _DEFAULT,
) -> MulticlassCalibrator:
    """Fit the probabilities of several classes for each segment, and for all rows together.

    Each row has one class. Maximum likelihood uses the labels as they are, without Platt's targets.
    All is computed in float64, on the host.

    Args:
        logits: (N, C) log-odds or logits, a column per class: for a classifier all logits of
            its last layer; for a choice among options one for each option. -inf means that a class
            is no option in its row: it has probability 0, and the row says nothing of it. For
            model="ordinal" (N,) scores, higher for higher classes; or (N, C), whose score is the
            expected number of the class, 0 ... C-1, by their softmax.
        labels: (N,) class ids.
        segments: (N,) ids as in `fit_segments`; None for one segment, "all".
        model: P(class c) for logits f. "temperature": softmax(f_c / T), with 1 / T >= 0.
            "temperature_bias": softmax(f_c / T + bias_c). "vector": softmax(slope_c f_c + bias_c),
            with slopes of any sign. "ordinal", for classes in order, as of a Likert scale:
            P(class <= c) = expit(threshold_c - slope f), with increasing thresholds and slope >= 0.
        classes: (C,) class ids in the order of the columns, and for "ordinal" of the scale. None
            means 0 ... C-1 if the labels are such integers, else the distinct labels, ascending.
        weights: (N,) counts of rows >= 0.
        pooling: "none" fits each segment separately. "complete" gives all the parameters of all
            rows. "partial", for model="temperature", takes log(1 / T) of the segments as a sample
            from a normal population, whose mean and spread are estimated from all of them: the
            fewer rows a segment has, the closer its temperature is to the population's.
        penalty: what keeps parameters finite where a class is missing in a segment, > 0. Of
            "temperature_bias" and "vector" the biases have a normal prior with mean 0 and this
            precision; the biases of "vector" are those at the mean logit of the segment. Of
            "vector", so have the slopes' deviations from their mean, for logits whose root mean
            squared distance to the largest of the row is 1. Of "ordinal", each class gets this
            many more rows, at the segment's mean score. "temperature" needs none.
        options: `max_iter`, `tol`, `min_step` and `non_finite` of it are used.

    Returns:
        A MulticlassCalibrator with the distinct ids, ascending, as keys. The status of a segment is
        MAX_ITERATIONS, too, if no row's label has a smaller logit than another class: then there is
        no best temperature, and 1 / T is so large that rounding hides further improvement. So it is
        for "vector" if no row's label has a larger logit than another class. It is NON_FINITE if a
        logit is NaN or inf, if a row has no option, or a label that is none; EMPTY
        without a row of positive weight. The parameters of both are NaN.

    Warns:
        RuntimeWarning: a segment is NON_FINITE, or no population could be estimated.

    Raises:
        ValueError: an argument is not as described; or, with Options(non_finite="raise"), a row
            makes its segment NON_FINITE.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> logits = 2 * rng.normal(size=(4000, 3))
        >>> labels = (logits / 2 + rng.gumbel(size=(4000, 3))).argmax(axis=1)
        >>> fit_multiclass(logits, labels, np.repeat(["a", "b"], 2000)).temperature.round(1)
        array([2., 2.])
    """
    caller = Caller()
    validation.require_one_of(model, get_args(Model), "model")
    validation.require_one_of(pooling, get_args(ClassPooling), "pooling")
    options = validation.options(options)
    if pooling == "partial" and model != "temperature":
        raise ValueError(f'pooling: expected "none" or "complete" for {model=}, got "partial"')
    if pooling != "none" and segments is None:
        raise ValueError(f'pooling: expected "none" without segments, got {pooling!r}')
    if not (isinstance(penalty, int | float | np.number) and 0 < penalty < np.inf):
        raise ValueError(f"penalty: expected a number > 0, got {penalty!r}")
    f = read_logits(logits, model)
    names, codes = read_classes(labels, len(f), f.shape[1] if f.ndim == 2 else None, classes)
    rows = read_multiclass(f, codes, read_weights(weights, len(f)), model, len(names))
    if options.non_finite == "raise" and rows.bad.any():
        raise bad_rows_error(rows)
    good = rows.without_bad()
    if options.non_finite == "omit":
        rows = good
    one = fit_rows(good, good.all, model, penalty, options)
    if segments is None:
        keys, each = np.array([_ALL]), fit_rows(rows, rows.all, model, penalty, options)
        return MulticlassCalibrator(keys, names, model, "none", MulticlassFits.joined([each, one]))
    by_size = SegmentsBySize(factorize(ids.read_rows(segments, len(f))))
    population = None
    if pooling == "partial":
        each, population = _pooled(rows, by_size, one, caller)
    else:
        pieces = list(rows.pieces(by_size))
        parts = ordered_map(lambda x: fit_rows(rows, x[1], model, penalty, options), pieces)
        each = MulticlassFits.joined(list(parts))
        each = each.only(np.argsort(np.concatenate([which for which, _ in pieces])))
    if pooling == "complete":
        each = replace(one.only(np.zeros(len(by_size.keys), int)), rows=each.rows)
    else:
        _warn_of_bad_rows(each.status, by_size.keys, caller)
    fits = MulticlassFits.joined([each, one])
    return MulticlassCalibrator(by_size.keys, names, model, pooling, fits, population)


def fit_rows(
    rows: MulticlassRows, some: PaddedRows, model: Model, penalty: float, options: Options
) -> MulticlassFits:
    """The fits (k,) of some segments."""
    padded = rows.padded(some)
    likelihood: Any
    if model == "ordinal":
        likelihood = CumulativeLikelihood(padded, rows.classes, penalty)
    else:
        likelihood = SoftmaxLikelihood(padded, model, penalty)
    found = minimize(likelihood, options)
    hessian = found.at.hessian
    each = np.arange(hessian.shape[1])
    unknown = hessian[:, each, each] <= 0
    hessian[:, each, each] += least_curvature(hessian)[:, None]
    to_given = likelihood.original
    # Rows of one size, lest squares overflow.
    size = np.abs(to_given).max(axis=2)
    scaled = to_given / size[..., None]
    covariance = scaled @ np.linalg.inv(hessian) @ np.swapaxes(scaled, 1, 2)
    variance = np.where(unknown, np.nan, np.maximum(covariance[:, each, each], 0))
    coefficients = (to_given @ found.theta[..., None])[..., 0]
    status = np.where(likelihood.unbounded, Status.MAX_ITERATIONS, found.status)
    return _with_failures(
        padded,
        MulticlassFits(
            coefficients,
            np.sqrt(variance) * size,
            status.astype(np.int32),
            found.iterations,
            found.at.loss,
            padded.weights.sum(axis=1),
        ),
    )


def _with_failures(padded: Padded, fits: MulticlassFits) -> MulticlassFits:
    """The fits, with NaN where a segment is NON_FINITE or EMPTY."""
    failed = padded.status != Status.CONVERGED
    columns: dict[str, Floats] = {
        name: np.where(failed.reshape(-1, *(1,) * (x.ndim - 1)), np.nan, x)
        for name in ("coefficients", "standard_errors", "nll")
        for x in [getattr(fits, name)]
    }
    status = np.where(failed, padded.status, fits.status)
    return replace(fits, status=status, iterations=np.where(failed, 0, fits.iterations), **columns)


def _pooled(
    rows: MulticlassRows, by_size: SegmentsBySize, one: MulticlassFits, caller: Caller
) -> tuple[MulticlassFits, TemperaturePopulation]:
    """The segments' fits by their posteriors, and the population."""

    def prepared(piece: tuple[Ints, PaddedRows]) -> tuple[Ints, Padded]:
        which, some = piece
        return which, rows.padded(some)

    padded = list(ordered_map(prepared, rows.pieces(by_size)))
    parts = [(which, SoftmaxLikelihood(x, "temperature", 1.0)) for which, x in padded]
    pooled = float(one.coefficients[0, 0]) if one.status[0] == Status.CONVERGED else np.nan
    found = pool_temperatures(parts, pooled)
    status = int(found.population.status)
    if status not in (Status.CONVERGED, Status.BOUNDARY):
        caller.warn(f"pooling: {Status(status).message}")
    b = found.inverse_temperature
    error = found.standard_error
    if status in (Status.NOT_ESTIMATED, Status.BOUNDARY):
        b, error = (np.full(len(b), x[0, 0]) for x in (one.coefficients, one.standard_errors))
    made: list[MulticlassFits] = []
    for (which, x), (_, likelihood) in zip(padded, parts, strict=True):
        unit = 1 / likelihood.original[:, 0, 0]
        made.append(
            _with_failures(
                x,
                MulticlassFits(
                    b[which, None],
                    error[which, None],
                    np.full(len(which), Status.CONVERGED, np.int32),
                    np.zeros(len(which), np.int32),
                    likelihood.losses((b[which] * unit)[:, None]),
                    x.weights.sum(axis=1),
                ),
            )
        )
    order = np.argsort(np.concatenate([which for which, _ in padded]))
    fits = MulticlassFits.joined(made).only(order)
    population = found.population
    population.nodes[:-1][np.isnan(fits.coefficients[:, 0])] = np.nan
    return fits, population


def _warn_of_bad_rows(status: NDArray[Any], keys: NDArray[Any], caller: Caller) -> None:
    bad = np.flatnonzero(status == Status.NON_FINITE)
    if len(bad):
        caller.warn(
            f"NaN or infinite numbers, or labels that are no option, in {len(bad):,} of "
            f"{len(keys):,} segments, first in {tables.name(keys, bad[0])}: their parameters are "
            'NaN. Options(non_finite="omit") fits them without these rows'
        )
