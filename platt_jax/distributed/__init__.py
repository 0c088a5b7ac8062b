"""Rows in several processes, on one host or many, by `jax.distributed`; or at several sites.

Each process calls `jax.distributed.initialize`, and then `platt_jax.fit_segments(rows(...))` with
its own rows. Rows stay in their process. Segment ids are exchanged once, and then a few sums per
segment in every pass. With `site_rows` nothing but sums of many rows leaves a site, by
`jax.distributed` or by files. `import platt_jax` does not import this package.
"""

from platt_jax.distributed.folder import Folder
from platt_jax.distributed.process_rows import rows
from platt_jax.distributed.site_rows import site_rows

__all__ = ["Folder", "rows", "site_rows"]
