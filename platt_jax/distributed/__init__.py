"""Fits of rows that lie in several processes, on one host or many, by `jax.distributed`.

Each process calls `jax.distributed.initialize` and then `fit_segments` with its own rows. Rows stay
where they are; the distinct segments travel once, and after that a few sums per segment in every
pass. Not imported by `import platt_jax`.
"""

from platt_jax.distributed.fitting import fit_segments

__all__ = ["fit_segments"]
