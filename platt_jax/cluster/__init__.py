"""Fits where the rows are: in workers of Spark, Dask or Ray, or in processes of this machine."""

from platt_jax.extras import install_hint as _install_hint

with _install_hint("platt_jax.cluster needs pyarrow and narwhals", "platt-jax[tables]"):
    import narwhals as _narwhals  # noqa: F401 - checks that it is installed
    import pyarrow as _pyarrow  # noqa: F401

from platt_jax.cluster.fitting import fit_segments
from platt_jax.cluster.results import ClusterCalibrator

__all__ = ["ClusterCalibrator", "fit_segments"]
