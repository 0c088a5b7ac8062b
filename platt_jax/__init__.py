"""Platt scaling for classifiers by the thousand: one compiled program fits them all."""

from platt_jax.api import fit, fit_one_vs_rest, fit_segments
from platt_jax.environment import show_config, use_compilation_cache
from platt_jax.execution.progress import ProgressReport
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.inference import (
    Bootstrap,
    Drift,
    bootstrap,
    estimate_drift,
    judge_pooling,
    leave_one_out,
    profile_spreads,
    triage,
    update,
)
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options
from platt_jax.results.calibrators import OneVsRestCalibrator, SegmentCalibrator
from platt_jax.results.files import load, save
from platt_jax.results.fit import Fit, Sigmoid
from platt_jax.results.probabilities import logit
from platt_jax.solver.solution import solve
from platt_jax.status import Flag, Status

__version__ = "0.1.0"

__all__ = [
    "Bootstrap",
    "Drift",
    "Fit",
    "Flag",
    "GaussianPrior",
    "OneVsRestCalibrator",
    "Options",
    "ProgressReport",
    "SegmentCalibrator",
    "SegmentRows",
    "Sigmoid",
    "Status",
    "bootstrap",
    "estimate_drift",
    "fit",
    "fit_one_vs_rest",
    "fit_segments",
    "judge_pooling",
    "leave_one_out",
    "load",
    "logit",
    "profile_spreads",
    "save",
    "show_config",
    "solve",
    "triage",
    "update",
    "use_compilation_cache",
]
