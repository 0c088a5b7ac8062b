"""Uncertainty of fits: intervals, tests and diagnostics, as functions of results."""

from platt_jax.hypothesis_tests.triage import triage
from platt_jax.inference.bootstrap import Bootstrap, bootstrap
from platt_jax.inference.leave_one_out import leave_one_out
from platt_jax.inference.robust import robust_covariance
from platt_jax.inference.spreads import profile_spreads
from platt_jax.updating.drift import Drift, estimate_drift
from platt_jax.updating.judge_pooling import judge_pooling
from platt_jax.updating.priors import prior_from
from platt_jax.updating.update import update

__all__ = [
    "Bootstrap",
    "Drift",
    "bootstrap",
    "estimate_drift",
    "judge_pooling",
    "leave_one_out",
    "prior_from",
    "profile_spreads",
    "robust_covariance",
    "triage",
    "update",
]
