"""Rows of segments that do not fit in memory.

For example::

    from platt_jax import fit_segments, streaming

    rows = streaming.rows(
        "rows.parquet", "rows-by-country", score="score", label="clicked", segment="country"
    )
    calibrator = fit_segments(rows)

Rows are grouped by segment once, on disk, in the directory named as cache. They are then read in
chunks and fitted as rows in memory, with bitwise equal results. StoredRows can be fitted
repeatedly, and are accepted in place of SegmentRows.
"""

from platt_jax.streaming.cache import rows
from platt_jax.streaming.stored_rows import StoredRows

__all__ = ["StoredRows", "rows"]
