"""Fits of rows that stay where they are: in DuckDB, Parquet, Spark or any SQL database.

Every pass over the rows is one plain query, without user-defined functions: the rows joined with
the parameters of the segments that are still being fitted, the terms of the sums, GROUP BY segment.
The engine adds up within its partitions first, so that a few numbers per segment are all that
moves, and no segment is too large. The search is that of `platt_jax.fit_segments`, and the results
agree to rounding; not to the bit, since an engine adds up in an order of its own.

`pip install 'platt-jax[sql]'`; not imported by `import platt_jax`.
"""

try:
    import pyarrow as _pyarrow  # noqa: F401 - is it there?
    import sqlglot as _sqlglot  # noqa: F401
except ImportError as error:
    raise ImportError(
        "platt_jax.sql needs pyarrow and sqlglot: pip install 'platt-jax[sql]'"
    ) from error

from platt_jax.sql.fitting import fit_segments
from platt_jax.sql.prediction import predict

__all__ = ["fit_segments", "predict"]
