"""Calibrators of segments or classes with other curves than sigmoids."""

from dataclasses import replace
from typing import Any

import numpy as np

from platt_jax import validation
from platt_jax.caller import Caller
from platt_jax.curves import Curve, VennAbers, read_curve
from platt_jax.curves.log_odds import LogOddsCurve
from platt_jax.execution.caller import ARE_NAN
from platt_jax.execution.class_rows import ClassRows
from platt_jax.execution.dense_rows import DenseRows
from platt_jax.execution.problems import Context
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.options import Options, ShiftOptions, require_honoured
from platt_jax.results.features import LinearFeatures
from platt_jax.results.fitted_curves import CurveBatch, FittedCurves
from platt_jax.results.log_odds_curves import LogOddsCurves
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.tables import counted
from platt_jax.status import Status


def read(
    curve: str | Curve, pooling: str, options: Options, **others: Any
) -> tuple[Curve | None, Options]:
    """The curve, None for a temperature or a shift, which the core fits, and the options for it.

    Raises:
        ValueError: it is no curve; or see `_require_alone`, but for a temperature.
    """
    options = validation.options(options)
    if curve == "temperature":  # A alone, of labels as they are
        return None, replace(options, intercept=False, targets="none")
    kind = None if curve == "shift" else read_curve(curve)
    _require_alone(kind or curve, pooling, options, **others)
    return kind, options if kind else ShiftOptions(**vars(options))


def _require_alone(curve: Any, pooling: str, options: Options, **others: Any) -> None:
    """Refuses what fits sigmoids only beside another curve.

    Raises:
        ValueError: pooling is neither "none" nor "complete", the curve does not honour an option,
            or another argument is not None.
    """
    require_honoured(options, getattr(curve, "name", curve))
    if pooling not in ("none", "complete"):
        raise ValueError(
            f'pooling: expected "none" or "complete" beside curve={curve!r}, got {pooling!r}'
        )
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"{name}: expected None beside curve={curve!r}")


def smoothed(curve: Curve) -> bool:
    """Whether few rows have too many predicted positives: by Platt's targets, or by both labels."""
    return isinstance(curve, LogOddsCurve | VennAbers)


def require_no_offset(curve: Curve, has_offset: bool) -> None:
    """Refuses an offset beside curves that are no log-odds."""
    if has_offset and not isinstance(curve, LogOddsCurve):
        raise ValueError(f"offset: expected None beside curve={curve!r}, which has no log-odds")


def batch_curves(rows: DenseRows, curve: Curve, options: Options, caller: Caller) -> CurveBatch:
    """The curves of the problems of a batch."""
    curves = curve.fit(rows.problems, Context(validation.options(options), caller))
    bad = np.flatnonzero(curves.status == Status.NON_FINITE)
    if len(bad):
        if options.non_finite == "raise":
            raise ValueError(
                f"scores, labels, weights: not finite in {counted(len(bad), 'problem')}"
            )
        caller.warn(f"rows that are not finite in {counted(len(bad), 'problem')}: {ARE_NAN}")
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
        # No class is unseen.
        return replace(calibrator, curves=curve.fit(rows.problems, context).with_unknown())
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
