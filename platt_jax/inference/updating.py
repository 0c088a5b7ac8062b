"""Calibrators that go on learning: last night's posterior is tonight's prior."""

from dataclasses import replace

import jax
import numpy as np

from platt_jax import api
from platt_jax.execution.segment_rows import segment_rows
from platt_jax.ids.factorize import ascending, get_indexer
from platt_jax.inference.priors import prior_from
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options
from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.fit import Fit, Sigmoid
from platt_jax.results.population import Population
from platt_jax.status import Status

_DEFAULT = Options()


def update(
    calibrator: SegmentCalibrator,
    scores,
    labels=None,
    segments=None,
    *,
    weights=None,
    forgetting: float = 1.0,
    options: Options = _DEFAULT,
    progress: bool = False,
) -> SegmentCalibrator:
    """The calibrator with what new rows add to it; no earlier row is needed.

    The prior of each segment is `prior_from(calibrator, ...)`: a normal distribution with the
    earlier fit as its mean and its Hessian as the precision. To keep no more of earlier rows than
    that (a Laplace memory) costs little: in `benchmarks/inference/online.py` its log-odds differ
    from those of a fit of all rows by a fraction of their standard error.

    New labels are used as they are, without Platt's targets, which the prior makes up for. New
    segments start from the population if the calibrator has one, as of pooling="partial"; if not,
    they are fitted as in `fit_segments`. The population itself stays as it was estimated.

    Args:
        calibrator: as `fit_segments` or `update` returns it.
        scores: (N,) as in `fit_segments`, of new rows only; or SegmentRows.
        labels: (N,) likewise.
        segments: (N,) likewise.
        weights: (N,) likewise.
        forgetting: in (0, 1], what the weights of all earlier rows are multiplied by, also in
            segments without new ones: with 0.9, rows of n updates ago count 0.9^n.
        options: how to fit.
        progress: show a progress bar (needs tqdm).

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
    rows = segment_rows(scores, labels, segments, weights)
    prior = prior_from(calibrator, rows.keys, forgetting=forgetting)
    without_prior = (prior.precision == 0).all((1, 2))
    tonight = api.fit_segments(
        rows,
        prior=prior,
        options=replace(options, targets="none"),
        progress=progress,
    ).fit
    if without_prior.any():
        alone = api.fit_segments(rows, options=options).fit
        tonight = _where(without_prior, alone, tonight)
    keys, each = _joined(calibrator, rows.keys, _remembered(calibrator, forgetting), tonight)
    fallback, covariance = _updated_fallback(calibrator, rows, forgetting, options)
    population = _of_these(calibrator.population, each)
    return SegmentCalibrator(keys, each, fallback, covariance, population)


def _remembered(calibrator, forgetting) -> Fit:
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


def _joined(calibrator, new_keys, remembered: Fit, tonight: Fit) -> tuple[np.ndarray, Fit]:
    """The segments of both, ascending, and their fits: tonight's where there is one."""
    place = get_indexer(calibrator.keys, new_keys, "segments")
    seen = place >= 0
    known = np.zeros(len(new_keys), bool)
    known[seen] = remembered.converged[place[seen]]
    counts = {
        name: getattr(tonight, name) + np.where(known, getattr(remembered, name)[place], 0)
        for name in ("n_pos", "n_neg")
    }
    tonight = replace(tonight, **counts)
    names = np.concatenate([calibrator.keys, new_keys[~seen]])
    keys, order = ascending(names)

    def join(old, new):
        joined = np.concatenate([old, new[~seen].astype(old.dtype)])
        joined[place[seen]] = new[seen]
        ordered = np.empty_like(joined)
        ordered[order] = joined
        return ordered

    return keys, jax.tree.map(join, remembered, tonight)


def _updated_fallback(calibrator, rows, forgetting, options) -> tuple[Sigmoid, np.ndarray]:
    """The pooled fit and its covariance, which is not known of files of old."""
    sigmoid, covariance = calibrator.fallback, calibrator.fallback_covariance
    if not np.isfinite(covariance).all():
        return sigmoid, covariance
    precision = forgetting * np.linalg.pinv(covariance.astype(float), hermitian=True)
    prior = GaussianPrior(np.array([sigmoid.A, sigmoid.B], float), precision)
    scores, labels, weights = rows.all(slice(0, None), rows.length)
    finite = np.isfinite(scores)
    options = replace(options, targets="none", non_finite="omit")
    weights = None if weights is None else weights[finite]
    if not finite.any():
        return sigmoid, covariance / forgetting
    made = api.fit(
        scores[finite], labels[finite] > 0, weights=weights, prior=prior, options=options
    )
    if made.status != Status.CONVERGED:
        return sigmoid, covariance / forgetting
    return made.sigmoid, np.asarray(made.covariance)


def _of_these(population: Population | None, fit: Fit) -> Population | None:
    """The population with the posteriors of these segments."""
    if population is None or not population.estimated:
        return population and Population.not_estimated(len(fit.A))
    left = np.trace(np.linalg.solve(population.covariance, fit.covariance), axis1=1, axis2=2) / 2
    return replace(
        population,
        posterior_mean=np.stack([fit.A, fit.B], -1),
        posterior_covariance=np.asarray(fit.covariance),
        shrinkage=np.where(np.isnan(left), 1, np.clip(left, 0, 1)),
    )


def _where(condition: np.ndarray, one: Fit, other: Fit) -> Fit:
    """The fits of one where the condition holds, else those of the other."""

    def choose(x, y):
        return np.where(condition.reshape(-1, *(1,) * (np.ndim(x) - 1)), x, y).astype(y.dtype)

    return jax.tree.map(choose, one, other)
