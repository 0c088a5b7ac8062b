"""What inference promises, and what it costs: ``python -m benchmarks.inference.NAME``."""
