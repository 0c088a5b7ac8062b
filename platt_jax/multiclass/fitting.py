"""The fit of several classes by segment."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.backend.threads import ordered_map
from platt_jax.caller import Caller
from platt_jax.columns import Column, require_class_order, takes_columns
from platt_jax.ids.factorize import factorize
from platt_jax.ids.padding import PaddedRows, SegmentsBySize
from platt_jax.multiclass.likelihoods import CumulativeLikelihood, SoftmaxLikelihood
from platt_jax.multiclass.newton import in_own_units, minimize
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
from platt_jax.options import ClassPooling, Options, require_honoured
from platt_jax.results import tables
from platt_jax.results.multiclass import (
    Model,
    MulticlassCalibrator,
    MulticlassFits,
    TemperaturePopulation,
)
from platt_jax.status import Flag, Status

_DEFAULT = Options()
_ALL = "all"  # the id of the only segment if there are no segments


@takes_columns
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

    Each row has one class. Maximum likelihood uses the labels as they are. Only a temperature that
    has no best value, since the labels of all n rows have their row's largest logit, has Platt's
    targets: (n + 1) / (n + 2) for the label, the rest for the row's other classes. Its segment is
    flagged SEPARABLE; `pooling="partial"` knows better. All is computed in float64, on the host.

    Args:
        logits: (N, C) log-odds or logits, a column per class: for a classifier all logits of
            its last layer; for a choice among options one for each option. -inf means that a class
            is no option in its row: it has probability 0, and the row says nothing of it. So do
            large negative numbers, such as -1e9 (docs/howto/multiclass.md). For
            model="ordinal" (N,) scores, higher for higher classes; or (N, C), whose score is the
            expected number of the class, 0 ... C-1, by their softmax: -inf enters nothing else, and
            every class is an option in every row.
        labels: (N,) class ids; or (N, C) with a 1 for each row's class.
        segments: (N,) ids as in `fit_segments`; None for one segment, "all".
        model: P(class c) for logits f. "temperature": softmax(f_c / T), with 1 / T >= 0.
            "temperature_bias": softmax(f_c / T + bias_c). "vector": softmax(slope_c f_c + bias_c),
            with slopes of any sign. "ordinal", for classes in order, as of a Likert scale:
            P(class <= c) = expit(threshold_c - slope f), with increasing thresholds and slope >= 0.
        classes: (C,) class ids in the order of the columns, and for "ordinal" of the scale. None
            means the distinct labels, ascending, if there are C of them, or 0 ... C-1 if the labels
            are such integers and 0 is one. For "ordinal" it means the categories of an ordered
            categorical, in their order; labels of text need the argument.
        weights: (N,) counts of rows >= 0.
        pooling: "none" fits each segment separately. "complete" gives all the parameters of all
            rows. "partial", for model="temperature", takes log(1 / T) of the segments as a sample
            from a normal population, averaged over its mean and spread: the fewer rows a segment
            has, the closer its temperature is to the population's.
        penalty: precision, > 0, of a prior that keeps parameters finite where a class is missing in
            a segment; for "ordinal" the number of rows that are added to each class.
            docs/howto/multiclass.md says of which parameters. "temperature" needs none.
        options: `max_iter`, `tol`, `min_step` and `non_finite`; others are refused.

    Returns:
        A MulticlassCalibrator with the distinct ids, ascending, as keys. The status of a segment is
        MAX_ITERATIONS, too, where no parameter is best, but for "temperature": if no row's label
        has a smaller logit than another class, and for "vector" if none has a larger. With
        pooling="partial" all segments have the status of the population's search, or without a
        population that of the fit of all rows. It is NON_FINITE if a logit is NaN or inf, if a row
        has no option, or a label that is none, or if slopes are too large to be numbers; EMPTY
        without a row of positive weight. The parameters of both are NaN. See `flags` for segments
        whose logits are worse than none.

    Warns:
        RuntimeWarning: a segment is NON_FINITE; no parameter is best in a segment that is fitted
            alone; no population could be estimated; or logits look like probabilities.

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
    options = require_honoured(validation.options(options), "fit_multiclass")
    if pooling == "partial" and model != "temperature":
        raise ValueError(f'pooling: expected "none" or "complete" for {model=}, got "partial"')
    if pooling != "none" and segments is None:
        raise ValueError(f'pooling: expected "none" without segments, got {pooling!r}')
    if not (isinstance(penalty, int | float | np.number) and 0 < penalty < np.inf):
        raise ValueError(f"penalty: expected a number > 0, got {penalty!r}")
    f = read_logits(logits, model)
    names, codes = read_classes(labels, f, classes, model)
    require_class_order(logits, names, "logits")
    if (warning := validation.probabilities_for_logits(f)) is not None:
        caller.warn_once(warning)
    by_size = (
        None if segments is None else SegmentsBySize(factorize(ids.read_rows(segments, len(f))))
    )
    w = read_weights(weights, len(f))
    numbers = np.zeros(len(f), int) if by_size is None else by_size.numbers
    rows = read_multiclass(f, codes, w, model, len(names), numbers)
    if options.non_finite == "raise" and rows.bad.any():
        raise bad_rows_error(rows)
    good = rows.without_bad()
    if options.non_finite == "omit":
        rows = good
    overall = fit_rows(good, good.all, model, penalty, options)
    if by_size is None:
        keys, by_segment = np.array([_ALL]), fit_rows(rows, rows.all, model, penalty, options)
        _warn_of_bad_rows(by_segment.status, keys, caller)
        _warn_of_separable(by_segment.flags, keys, model, caller)
        fits = MulticlassFits.joined([by_segment, overall])
        return MulticlassCalibrator(keys, names, model, "none", fits, rows.farthest)
    population = None
    if pooling == "partial":
        by_segment, population = _pooled(rows, by_size, overall, caller)
    else:
        pieces = list(rows.pieces(by_size))
        parts = ordered_map(lambda x: fit_rows(rows, x[1], model, penalty, options), pieces)
        by_segment = MulticlassFits.joined(list(parts))
        by_segment = by_segment.only(np.argsort(np.concatenate([which for which, _ in pieces])))
        if pooling == "none":
            _warn_of_separable(by_segment.flags, by_size.keys, model, caller)
    if pooling == "complete":
        by_segment = replace(overall.only(np.zeros(len(by_size.keys), int)), rows=by_segment.rows)
    else:
        _warn_of_bad_rows(by_segment.status, by_size.keys, caller)
    fits = MulticlassFits.joined([by_segment, overall])
    return MulticlassCalibrator(
        by_size.keys, names, model, pooling, fits, rows.farthest, population
    )


def fit_rows(
    rows: MulticlassRows, some: PaddedRows, model: Model, penalty: float, options: Options
) -> MulticlassFits:
    """The fits (k,) of some segments."""
    padded = rows.padded(some)
    # In a power of 4 that suits the weights the search does not depend on their unit.
    exponent = np.frexp(padded.weights.max(axis=1))[1] // 2 * 2
    rescaled = padded._replace(weights=np.ldexp(padded.weights, -exponent[:, None]))
    strength = np.ldexp(float(penalty), -exponent)
    likelihood: Any
    if model == "ordinal":
        likelihood = CumulativeLikelihood(rescaled, rows.classes, strength)
    else:
        likelihood = SoftmaxLikelihood(rescaled, model, strength)
    has_best = ~likelihood.unbounded
    if model == "temperature":
        likelihood.take_platt_targets(padded.weights.sum(axis=1))
        has_best[:] = True
    optimum = minimize(likelihood, options)
    flat = np.diagonal(optimum.at.hessian, axis1=1, axis2=2) <= 0
    units, hessian = in_own_units(optimum.at.hessian)
    to_original = likelihood.original
    unknown = ((to_original != 0) & flat[:, None]).any(axis=2)
    with np.errstate(over="ignore", invalid="ignore"):  # a slope may be no number: NON_FINITE
        # Rows of one size, lest squares overflow.
        size = np.abs(to_original).max(axis=2)
        scaled = to_original / size[..., None] * units[:, None]
        covariance = scaled @ np.linalg.inv(hessian) @ np.swapaxes(scaled, 1, 2)
        variance = np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0)
        errors = np.ldexp(np.sqrt(variance) * size, -exponent[:, None] // 2)
        coefficients = (to_original @ optimum.theta[..., None])[..., 0]
    turned = optimum.held
    if model == "vector":
        turned = coefficients[:, : rows.classes].mean(axis=1) < 0
    status = np.where(has_best, optimum.status, Status.MAX_ITERATIONS)
    return _with_failures(
        padded,
        MulticlassFits(
            coefficients,
            np.where(unknown, np.nan, errors),
            status.astype(np.int32),
            _flags(turned, likelihood.unbounded),
            optimum.iterations,
            np.ldexp(optimum.at.loss, exponent),
            padded.weights.sum(axis=1),
        ),
    )


def _flags(turned: Bools, unbounded: Bools) -> NDArray[np.int32]:
    return (turned * Flag.REVERSED + unbounded * Flag.SEPARABLE).astype(np.int32)


def _with_failures(padded: Padded, fits: MulticlassFits) -> MulticlassFits:
    """The fits, with NaN where a segment is NON_FINITE or EMPTY."""
    finite = np.isfinite(fits.coefficients).all(axis=1)
    ends = np.where((padded.status == Status.CONVERGED) & ~finite, Status.NON_FINITE, padded.status)
    failed = ends != Status.CONVERGED
    columns: dict[str, Floats] = {
        name: np.where(failed.reshape(-1, *(1,) * (x.ndim - 1)), np.nan, x)
        for name in ("coefficients", "standard_errors", "nll")
        for x in [getattr(fits, name)]
    }
    status = np.where(failed, ends, fits.status).astype(np.int32)
    flags, iterations = (np.where(failed, 0, x) for x in (fits.flags, fits.iterations))
    return replace(fits, status=status, flags=flags, iterations=iterations, **columns)


def _pooled(
    rows: MulticlassRows, by_size: SegmentsBySize, one: MulticlassFits, caller: Caller
) -> tuple[MulticlassFits, TemperaturePopulation]:
    """The segments' fits by their posteriors, and the population."""

    def pad_piece(piece: tuple[Ints, PaddedRows]) -> tuple[Ints, Padded]:
        which, piece_rows = piece
        return which, rows.padded(piece_rows)

    padded = list(ordered_map(pad_piece, rows.pieces(by_size)))
    parts = [
        (which, SoftmaxLikelihood(x, "temperature", np.ones(len(which)))) for which, x in padded
    ]
    usable = one.status[0] == Status.CONVERGED and not one.flags[0] & Flag.SEPARABLE
    pooled = float(one.coefficients[0, 0]) if usable else np.nan
    posterior = pool_temperatures(parts, pooled)
    status = int(posterior.population.status)
    if status not in (Status.CONVERGED, Status.BOUNDARY):
        caller.warn(f"pooling: {Status(status).message}")
    b = posterior.inverse_temperature
    error = posterior.standard_error
    if status == Status.NOT_ESTIMATED:
        b, error = (np.full(len(b), x[0, 0]) for x in (one.coefficients, one.standard_errors))
    if status in (Status.NOT_ESTIMATED, Status.BOUNDARY):
        status = one.status[0]
    part_fits: list[MulticlassFits] = []
    for (which, x), (_, likelihood) in zip(padded, parts, strict=True):
        unit = 1 / likelihood.original[:, 0, 0]
        rises = likelihood.sums(likelihood.start).gradient[:, 0] > 0  # the loss, with 1 / T
        part_fits.append(
            _with_failures(
                x,
                MulticlassFits(
                    b[which, None],
                    error[which, None],
                    np.full(len(which), status, np.int32),
                    _flags(rises, likelihood.unbounded),
                    np.zeros(len(which), np.int32),
                    likelihood.losses((b[which] * unit)[:, None]),
                    x.weights.sum(axis=1),
                ),
            )
        )
    order = np.argsort(np.concatenate([which for which, _ in padded]))
    fits = MulticlassFits.joined(part_fits).only(order)
    population = posterior.population
    population.nodes[:-1][np.isnan(fits.coefficients[:, 0])] = np.nan
    return fits, population


def _warn_of_bad_rows(status: NDArray[Any], keys: NDArray[Any], caller: Caller) -> None:
    bad = np.flatnonzero(status == Status.NON_FINITE)
    if len(bad):
        caller.warn(
            f"NaN or infinite numbers, or labels that are no option, in {len(bad):,} of "
            f"{tables.counted(len(keys), 'segment')}, first in {tables.name(keys, bad[0])}: their "
            'parameters are NaN. Options(non_finite="omit") fits them without these rows'
        )


def _warn_of_separable(
    flags: NDArray[Any], keys: NDArray[Any], model: Model, caller: Caller
) -> None:
    flagged = np.flatnonzero(flags & Flag.SEPARABLE)
    if len(flagged):
        bounded, pooled = model == "temperature", ""
        if bounded and len(keys) > 1:
            pooled = ', or pooling="partial"'
        note = "Platt's targets bound it" if bounded else "probabilities there are nearly 0 or 1"
        caller.warn(
            f"no parameter is best in {len(flagged):,} of {tables.counted(len(keys), 'segment')}, "
            f"first in {tables.name(keys, flagged[0])}, whose logits predict every label: {note}. "
            f"Use more rows{pooled}"
        )
