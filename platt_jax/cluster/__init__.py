"""Fits where the rows are: in workers of Spark, Dask or Ray, or in processes of this machine."""

from platt_jax.cluster.fitting import fit_segments
from platt_jax.cluster.results import ClusterCalibrator

__all__ = ["ClusterCalibrator", "fit_segments"]
