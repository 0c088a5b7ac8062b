"""Fits of rows that stay in their engine: DuckDB, Parquet, Spark or any SQL database.

Every pass over the rows is one plain query without user-defined functions. It joins the rows with
the parameters of the segments still being fitted, computes the terms of the sums, and groups them
by segment. Engines first add up within partitions, so only a few numbers per segment are moved, and
no segment is too large. The search is as in `platt_jax.fit_segments`. Results agree within
rounding, but not bitwise, because an engine adds up in its own order.

`pip install 'platt-jax[sql]'`; `import platt_jax` does not import this package.
"""

from platt_jax.extras import install_hint as _install_hint

with _install_hint("platt_jax.sql needs pyarrow and sqlglot", "platt-jax[sql]"):
    import pyarrow as _pyarrow  # noqa: F401 - checks that it is installed
    import sqlglot as _sqlglot  # noqa: F401

from platt_jax.sql.monitoring import monitor_sums
from platt_jax.sql.prediction import predict
from platt_jax.sql.relation_rows import rows

__all__ = ["monitor_sums", "predict", "rows"]
