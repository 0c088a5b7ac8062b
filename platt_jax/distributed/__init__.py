"""Fits of rows in several processes, on one host or many, by `jax.distributed`.

Each process calls `jax.distributed.initialize` and then `fit_segments` with its own rows. Rows stay
in their process. Segment ids are exchanged once, and then a few sums per segment in every pass.
`import platt_jax` does not import this package.
"""

from platt_jax.distributed.fitting import fit_segments

__all__ = ["fit_segments"]
