"""Calibrators that go on learning: last night's posterior is tonight's prior."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.api import report_non_finite
from platt_jax.columns import Column
from platt_jax.execution.caller import Caller
from platt_jax.execution.given import given_to
from platt_jax.execution.progress import SILENT, Listener, Stage, stage
from platt_jax.execution.run import fit_problems
from platt_jax.execution.segment_rows import SegmentRows, segment_rows
from platt_jax.ids.factorize import ascending, get_indexer
from platt_jax.inference.priors import prior_from
from platt_jax.model.objective import Array
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options
from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.fit import Fit, Sigmoid
from platt_jax.results.population import Population

_DEFAULT = Options()


def update(
    calibrator: SegmentCalibrator,
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    weights: Column = None,
    forgetting: float = 1.0,
    options: Options = _DEFAULT,
    progress: bool | Listener = False,
) -> SegmentCalibrator:
    """The calibrator with what new rows add to it; no earlier row is needed.

    The prior of each segment is `prior_from(calibrator, ...)`: a normal distribution with the
    earlier fit as its mean and its Hessian as the precision, which is all that is kept of earlier
    rows (a Laplace memory). Platt's targets smooth the labels by as much as in a fit of all rows.

    With a population, as of pooling="partial", labels are used as they are. Its mean moves with its
    segments, by generalized least squares; its covariance stays as it was estimated. New segments
    start from it.

    After 21 weekly updates on flights, parameters are within 0.4 standard errors of those of a fit
    of all rows (median of carriers, routes or aircraft; `benchmarks/inference/online.py`).

    Args:
        calibrator: as `fit_segments` or `update` returns it.
        scores: (N,) as in `fit_segments`, of new rows only; or SegmentRows.
        labels: (N,) likewise.
        segments: (N,) likewise.
        weights: (N,) likewise.
        forgetting: in (0, 1], what the weights of all earlier rows are multiplied by, also in
            segments without new ones: with 0.9, rows of n updates ago count 0.9^n.
        options: how to fit.
        progress: as in `fit_segments`.

    Returns:
        A SegmentCalibrator with the segments of both. `n_pos` and `n_neg` count earlier rows as
        often as they are remembered; `nll` is that of the new rows, and 0 where there are none.

    Raises:
        ValueError: an argument is not as above, or as in `fit_segments`.
        MemoryError: as `fit_segments`.

    Example:
        >>> from platt_jax import fit_segments
        >>> last_night = fit_segments([2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"])
        >>> tonight = update(last_night, [1.5, -1.0, 0.5], [1, 0, 0], ["b", "b", "c"])
        >>> tonight.keys.tolist(), tonight.fit.n_pos.tolist()
        (['a', 'b', 'c'], [1.0, 2.0, 0.0])
    """
    if not isinstance(calibrator, SegmentCalibrator):
        raise ValueError(
            f"calibrator: expected a SegmentCalibrator, got {type(calibrator).__name__}"
        )
    caller, told = Caller(), stage(progress)
    rows = segment_rows(scores, labels, segments, weights)
    options = validation.options(options)
    population = calibrator.population
    if population is not None and population.estimated:
        options = replace(options, targets="none")
    remembered = _remembered(calibrator, forgetting)
    place = get_indexer(calibrator.keys, rows.keys, "segments")
    known = (place >= 0) & np.append(remembered.converged, False)[place]
    counts = remembered.n_pos, remembered.n_neg
    n_pos, n_neg = (np.where(known, np.append(n, n.dtype.type(0))[place], 0) for n in counts)
    prior = prior_from(calibrator, rows.keys, forgetting=forgetting)
    new = _fit(rows, prior, (n_pos, n_neg), options, told, caller)
    report_non_finite(new, options, "segments", rows.keys, caller)
    new = replace(new, n_pos=new.n_pos + n_pos, n_neg=new.n_neg + n_neg)
    keys, each = _joined(calibrator.keys, remembered, rows.keys, new, place)
    if population is not None:
        each, population = _moved(each, population)
    fallback, covariance = _updated_fallback(calibrator, rows, forgetting, options, caller)
    return SegmentCalibrator(keys, each, fallback, covariance, population)


def _fit(
    rows: SegmentRows,
    prior: GaussianPrior,
    counts: tuple[NDArray[Any], NDArray[Any]],
    options: Options,
    told: Stage,
    caller: Caller,
) -> Fit:
    """The fit of every segment's rows with these priors, which stand for so many more rows."""
    given = given_to(rows.keys.shape, rows.dtype, prior)
    if options.targets == "platt":
        remembered: Any = tuple(n.astype(rows.dtype) for n in counts)
        given = given._replace(remembered=remembered)
    return fit_problems(
        rows.sizes,
        rows.take,
        rows.dtype,
        jax.tree.map(lambda leaf: leaf[rows.largest_first], given),
        options,
        told,
        caller,
        order=rows.largest_first,
        reread=rows.reread,
    )


def _remembered(calibrator: SegmentCalibrator, forgetting: float) -> Fit:
    """The fits as they are without new rows."""
    old = jax.tree.map(np.asarray, calibrator.fit)
    prior = prior_from(calibrator, forgetting=forgetting)
    covariance = old.covariance / forgetting
    if calibrator.population is not None and calibrator.population.estimated:
        covariance = np.linalg.inv(prior.precision)
    nothing = np.zeros_like(old.iterations)
    forgotten = replace(
        old,
        A=prior.mean[:, 0],
        B=prior.mean[:, 1],
        hessian=prior.precision,
        covariance=covariance,
        gradient=np.zeros_like(old.gradient),
        nll=np.zeros_like(old.nll),
        iterations=nothing,
        passes=nothing,
        n_pos=forgetting * old.n_pos,
        n_neg=forgetting * old.n_neg,
    )
    return _where(np.asarray(old.converged), forgotten, old)


def _joined(
    old_keys: NDArray[Any], old: Fit, new_keys: NDArray[Any], new: Fit, place: NDArray[Any]
) -> tuple[NDArray[Any], Fit]:
    """The segments of both, ascending, and their fits: the new one where there is one.

    Args:
        old_keys: (K,) segments.
        old: their fits.
        new_keys: (J,) segments.
        new: their fits.
        place: (J,) where these are among the old ones; -1 for those that are not.
    """
    seen = place >= 0
    keys, order = ascending(np.concatenate([old_keys, new_keys[~seen]]))

    def join(of_old: NDArray[Any], of_new: NDArray[Any]) -> NDArray[Any]:
        joined = np.concatenate([of_old, of_new[~seen].astype(of_old.dtype)])
        joined[place[seen]] = of_new[seen]
        ordered = np.empty_like(joined)
        ordered[order] = joined
        return ordered

    return keys, jax.tree.map(join, old, new)


def _moved(fit: Fit, population: Population) -> tuple[Fit, Population]:
    """The population with the mean that its segments have by now, and their fits under it.

    With P the precision and m the mean of what a segment's rows say of its (A, B), m is normal
    around the population's mean with covariance P^-1 + S, where S is the population's covariance.
    """
    if not population.estimated:
        return fit, Population.not_estimated(len(fit.A))
    S, usable = population.covariance, np.asarray(fit.converged)
    theta = np.stack([fit.A, fit.B], -1).astype(float)
    of_population = np.linalg.inv(S)
    own = np.where(usable[:, None, None], fit.hessian - of_population, 0)
    weight = np.linalg.solve(np.eye(2) + own @ S, own)
    information = np.where(
        usable[:, None], _times(fit.hessian, theta) - of_population @ population.mean, 0
    )
    pull = np.linalg.solve(np.eye(2) + own @ S, information[..., None])[..., 0]
    mean_covariance = np.linalg.inv(weight.sum(0))
    mean = mean_covariance @ pull.sum(0)
    moved = np.linalg.solve(of_population + own, of_population @ (mean - population.mean))
    theta = theta + moved
    fit = replace(fit, A=theta[:, 0].astype(fit.A.dtype), B=theta[:, 1].astype(fit.B.dtype))
    covariance = np.where(usable[:, None, None], fit.covariance, S)
    left = np.trace(np.linalg.solve(S, covariance), axis1=1, axis2=2) / 2
    return fit, replace(
        population,
        mean=mean,
        mean_covariance=mean_covariance,
        posterior_mean=theta,
        posterior_covariance=covariance,
        shrinkage=np.clip(left, 0, 1),
    )


def _updated_fallback(
    calibrator: SegmentCalibrator,
    rows: SegmentRows,
    forgetting: float,
    options: Options,
    caller: Caller,
) -> tuple[Sigmoid, NDArray[Any]]:
    """The pooled fit and its covariance, which old files lack: then it stays as it is."""
    sigmoid, covariance = calibrator.fallback, calibrator.fallback_covariance
    if not np.isfinite(covariance).all():
        return sigmoid, covariance
    precision = forgetting * np.linalg.pinv(covariance.astype(float), hermitian=True)
    prior = GaussianPrior(np.array([sigmoid.A, sigmoid.B], float), precision)
    given = given_to((1,), rows.dtype, prior)
    pooled = fit_problems(
        np.array([rows.length]),
        lambda _, part, space: rows.all(part, space),
        rows.dtype,
        given,
        replace(options, targets="none", non_finite="omit"),
        SILENT,
        caller,
        loss=False,
        reread=rows.reread,
    )
    if not pooled.converged[0]:
        return sigmoid, covariance / forgetting
    pooled = jax.tree.map(lambda x: x[0, ...], pooled)
    return pooled.sigmoid, np.asarray(pooled.covariance)


def _times(matrices: Array, vectors: NDArray[np.float64]) -> Array:
    return (matrices @ vectors[..., None])[..., 0]


def _where(condition: NDArray[np.bool_], one: Fit, other: Fit) -> Fit:
    """The fits of one where the condition holds, else those of the other."""

    def choose(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        return np.where(condition.reshape(-1, *(1,) * (np.ndim(x) - 1)), x, y).astype(y.dtype)

    chosen: Fit = jax.tree.map(choose, one, other)
    return chosen
