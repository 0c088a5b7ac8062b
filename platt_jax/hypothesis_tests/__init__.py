"""Tests of segments on fresh rows: `triage` and its p-values."""
