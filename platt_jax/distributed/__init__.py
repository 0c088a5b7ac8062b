"""Rows in several processes, on one host or many, by `jax.distributed`.

Each process calls `jax.distributed.initialize`, and then `platt_jax.fit_segments(rows(...))` with
its own rows. Rows stay in their process. Segment ids are exchanged once, and then a few sums per
segment in every pass. `import platt_jax` does not import this package.
"""

from platt_jax.distributed.process_rows import rows

__all__ = ["rows"]
