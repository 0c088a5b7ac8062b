"""Uncertainty of fits: intervals, tests and diagnostics, as functions of results."""

from platt_jax.inference.bootstrap import Bootstrap, bootstrap
from platt_jax.inference.drift import Drift, estimate_drift
from platt_jax.inference.judge_pooling import judge_pooling
from platt_jax.inference.leave_one_out import leave_one_out
from platt_jax.inference.priors import prior_from
from platt_jax.inference.robust import robust_covariance
from platt_jax.inference.triage import triage
from platt_jax.inference.update import update

__all__ = [
    "Bootstrap",
    "Drift",
    "bootstrap",
    "estimate_drift",
    "judge_pooling",
    "leave_one_out",
    "prior_from",
    "robust_covariance",
    "triage",
    "update",
]
