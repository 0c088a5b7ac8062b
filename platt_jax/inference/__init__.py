"""Uncertainty of fits, estimates and comparisons that follow from them, as functions of results."""

from platt_jax.inference.bootstrap import Bootstrap, bootstrap
from platt_jax.inference.choose_curve import CurveChoice, choose_curve
from platt_jax.inference.leave_one_out import leave_one_out
from platt_jax.inference.mean_differences import compare_means
from platt_jax.inference.means import estimate_means
from platt_jax.inference.rates import estimate_rates
from platt_jax.inference.robust import robust_covariance
from platt_jax.inference.spreads import profile_spreads
from platt_jax.updating.drift import Drift, estimate_drift
from platt_jax.updating.judge_pooling import judge_pooling
from platt_jax.updating.priors import prior_from

__all__ = [
    "Bootstrap",
    "CurveChoice",
    "Drift",
    "bootstrap",
    "choose_curve",
    "compare_means",
    "estimate_drift",
    "estimate_means",
    "estimate_rates",
    "judge_pooling",
    "leave_one_out",
    "prior_from",
    "profile_spreads",
    "robust_covariance",
]
