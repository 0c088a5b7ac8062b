"""Calibrators of segments or classes with other curves than sigmoids."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.curves.base import Curve
from platt_jax.curves.log_odds import LogOddsCurve
from platt_jax.execution.caller import ARE_NAN, Caller
from platt_jax.execution.class_rows import ClassRows
from platt_jax.execution.dense_rows import DenseRows
from platt_jax.execution.problems import Context
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options
from platt_jax.results.features import LinearFeatures
from platt_jax.results.fit import Fit
from platt_jax.results.fitted_curves import CurveBatch, FittedCurves
from platt_jax.results.log_odds_curves import LogOddsCurves
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.status import Status


def require_alone(curve: Any, pooling: str, **others: Any) -> None:
    """Refuses what fits sigmoids only beside another curve.

    Raises:
        ValueError: pooling is neither "none" nor "complete", or another argument is not None.
    """
    if pooling not in ("none", "complete"):
        raise ValueError(
            f'pooling: expected "none" or "complete" beside curve={curve!r}, got {pooling!r}'
        )
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"{name}: expected None beside curve={curve!r}")


def require_no_offset(curve: Curve, has_offset: bool) -> None:
    """Refuses an offset beside curves that are no log-odds."""
    if has_offset and not isinstance(curve, LogOddsCurve):
        raise ValueError(f"offset: expected None beside curve={curve!r}, which has no log-odds")


def temperature_options(options: Options) -> Options:
    """The options by which the core fits a temperature: A alone, of labels as they are."""
    return replace(validation.options(options), intercept=False, targets="none")


# Precision of A around -1 for a shift: so high that one step leads to A = -1 exactly, and low
# enough for float32.
_PINNED = 1e12
SHIFT_PRIOR = GaussianPrior(np.array([-1.0, 0.0]), np.diag([_PINNED, 0.0]))


def shift_options(options: Options) -> Options:
    """The options by which the core fits a shift: by Newton's own direction.

    The third derivative of the rows' loss is lost in rounding beside that prior.
    """
    return replace(validation.options(options), direction="newton")


def shifted(sigmoids: SegmentCalibrator) -> SegmentCalibrator:
    """The calibrator that was fitted with `SHIFT_PRIOR`, with A of exactly -1."""
    fallback, covariance = sigmoids.fallback, sigmoids.fallback_covariance
    return replace(
        sigmoids,
        fit=shifted_fit(sigmoids.fit),
        fallback=Sigmoid(*_pinned(fallback.A, fallback.B, covariance)),
        fallback_covariance=np.where(_ONLY_B, covariance, 0),
    )


_ONLY_B = np.array([[False, False], [False, True]])


def shifted_fit(fit: Fit) -> Fit:
    """The fits (...) that were made with `SHIFT_PRIOR`, with A of exactly -1."""
    A, B = _pinned(fit.A, fit.B, fit.covariance)
    return replace(
        fit,
        A=A,
        B=B,
        gradient=np.where(_ONLY_B[1], fit.gradient, 0),
        hessian=np.where(_ONLY_B, fit.hessian, 0),
        covariance=np.where(_ONLY_B, fit.covariance, 0),
    )


def _pinned(A: Any, B: Any, covariance: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """(A, B) with A = -1: B moves as the objective's least value does."""
    A, B, covariance = map(np.asarray, (A, B, covariance))
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = covariance[..., 0, 1] / covariance[..., 0, 0]
        moved = (B - np.nan_to_num(slope) * (A + 1)).astype(B.dtype)
    return np.where(np.isnan(A), A, -np.ones_like(A)), moved


def batch_curves(rows: DenseRows, curve: Curve, options: Options, caller: Caller) -> CurveBatch:
    """The curves of the problems of a batch."""
    curves = curve.fit(rows.problems, Context(validation.options(options), caller))
    bad = np.flatnonzero(curves.status == Status.NON_FINITE)
    if len(bad):
        if options.non_finite == "raise":
            raise ValueError(f"scores, labels, weights: not finite in {len(bad):,} problems")
        caller.warn(f"rows that are not finite in {len(bad):,} problems: {ARE_NAN}")
    return CurveBatch(rows.batch, curves)


def with_curves(
    calibrator: SegmentCalibrator,
    rows: SegmentRows,
    curve: Curve,
    options: Options,
    caller: Caller,
) -> SegmentCalibrator:
    """The calibrator of these rows, predicting by curves of a kind."""
    context = Context(validation.options(options), caller)
    if isinstance(rows, ClassRows) and calibrator.pooling == "none":
        # No class is unseen: the first class's curve stands for such, without a fit.
        curves = curve.fit(rows.problems, context)
        return replace(calibrator, curves=curves.only(np.append(np.arange(len(curves)), 0)))
    curves = curve.fit_rows(rows, context)
    if calibrator.pooling == "complete":
        curves = curves.only(np.full(len(curves), len(curves) - 1))
    return replace(calibrator, curves=curves)


def as_curves(calibrator: SegmentCalibrator) -> FittedCurves:
    """The curves of the segments, and last the curve of unseen ones; sigmoids too."""
    if calibrator.curves is not None:
        return calibrator.curves
    fit, fallback = calibrator.fit, calibrator.fallback
    with_fallback = [np.append(x, y) for x, y in ((fit.A, fallback.A), (fit.B, fallback.B))]
    A, B = (np.asarray(x, fit.A.dtype) for x in with_fallback)
    covariance = np.concatenate([fit.covariance, calibrator.fallback_covariance[None]])
    status = np.append(fit.status, Status.CONVERGED if np.isfinite(fallback.A) else Status.EMPTY)
    unknown = np.full_like(A, np.nan)
    return LogOddsCurves(
        status=status,
        low=unknown,
        high=unknown,
        features=LinearFeatures(),
        center=np.zeros_like(A),
        scale=np.ones_like(A),
        coefficients=np.stack([-B, -A], -1),
        # Signs cancel; B comes first.
        covariance=covariance[:, ::-1, ::-1].astype(A.dtype),
        flags=np.append(fit.flags, 0),
        iterations=np.append(fit.iterations, 0),
        nll=np.append(fit.nll, np.nan),
    )
