"""How sure fits are: intervals, bands and tests, as functions over results."""

from platt_jax.inference.priors import prior_from
from platt_jax.inference.replication import Bootstrap, bootstrap
from platt_jax.inference.robust import robust_covariance

__all__ = ["Bootstrap", "bootstrap", "prior_from", "robust_covariance"]
