"""Simulations of what `platt_jax.inference` promises: ``python -m benchmarks.inference.NAME``."""
