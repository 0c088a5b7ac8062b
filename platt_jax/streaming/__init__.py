"""Segments whose rows are more than memory holds.

For example::

    from platt_jax import streaming

    calibrator = streaming.fit_segments(
        "rows.parquet", score="score", label="clicked", segment="country", cache="rows-by-country"
    )

The rows are brought together by segment once, on disk, in the directory named as cache. From there
chunk after chunk is read and fitted as `platt_jax.fit_segments` does it in memory, with the same
results to the bit. `store_rows` does the first part alone; its StoredRows may be fitted often, and
go wherever SegmentRows do.
"""

from platt_jax.streaming.cache import store_rows
from platt_jax.streaming.fitting import fit_segments
from platt_jax.streaming.stored_rows import StoredRows

__all__ = ["StoredRows", "fit_segments", "store_rows"]
