"""Fits of segments whose rows do not fit in memory.

For example::

    from platt_jax import streaming

    calibrator = streaming.fit_segments(
        "rows.parquet", score="score", label="clicked", segment="country", cache="rows-by-country"
    )

Rows are grouped by segment once, on disk, in the directory named as cache. They are then read in
chunks and fitted as by `platt_jax.fit_segments` in memory, with bitwise equal results. `store_rows`
does the first part alone. Its StoredRows can be fitted repeatedly, and are accepted in place of
SegmentRows.
"""

from platt_jax.streaming.cache import store_rows
from platt_jax.streaming.fitting import fit_segments
from platt_jax.streaming.stored_rows import StoredRows

__all__ = ["StoredRows", "fit_segments", "store_rows"]
