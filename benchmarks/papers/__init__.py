"""The papers' experiments: ``python -m benchmarks.papers.NAME`` (PAPERS.md says what came out)."""
