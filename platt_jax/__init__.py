"""Platt scaling for thousands of classifiers, fitted by one compiled program."""

from platt_jax.api import fit, fit_one_vs_rest, fit_segments
from platt_jax.decisions.certify import certify
from platt_jax.decisions.gate import gate
from platt_jax.environment import show_config, use_compilation_cache
from platt_jax.execution.class_rows import ClassRows
from platt_jax.execution.progress import ProgressReport
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.execution.solve import solve
from platt_jax.hypothesis_tests.triage import triage
from platt_jax.inference.bootstrap import Bootstrap, bootstrap
from platt_jax.inference.choose_curve import CurveChoice, choose_curve
from platt_jax.inference.leave_one_out import leave_one_out
from platt_jax.inference.mean_differences import compare_means
from platt_jax.inference.means import estimate_means
from platt_jax.inference.rates import estimate_rates
from platt_jax.inference.spreads import profile_spreads
from platt_jax.metrics.centres import summarize_centres
from platt_jax.model.prior import GaussianPrior
from platt_jax.monitoring.monitor import Monitor
from platt_jax.multiclass.fitting import fit_multiclass
from platt_jax.options import Options
from platt_jax.results.files import load, save
from platt_jax.results.fit import Fit
from platt_jax.results.multiclass import MulticlassCalibrator
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.probabilities import logit
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.status import Flag, Status
from platt_jax.updating.drift import Drift, estimate_drift
from platt_jax.updating.judge_pooling import judge_pooling
from platt_jax.updating.update import update
from platt_jax.version import __version__ as __version__

__all__ = [
    "Bootstrap",
    "ClassRows",
    "CurveChoice",
    "Drift",
    "Fit",
    "Flag",
    "GaussianPrior",
    "Monitor",
    "MulticlassCalibrator",
    "OneVsRestCalibrator",
    "Options",
    "ProgressReport",
    "SegmentCalibrator",
    "SegmentRows",
    "Sigmoid",
    "Status",
    "bootstrap",
    "certify",
    "choose_curve",
    "compare_means",
    "estimate_drift",
    "estimate_means",
    "estimate_rates",
    "fit",
    "fit_multiclass",
    "fit_one_vs_rest",
    "fit_segments",
    "gate",
    "judge_pooling",
    "leave_one_out",
    "load",
    "logit",
    "profile_spreads",
    "save",
    "show_config",
    "solve",
    "summarize_centres",
    "triage",
    "update",
    "use_compilation_cache",
]
