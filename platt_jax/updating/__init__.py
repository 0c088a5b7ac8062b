"""Calibrators as time goes on: updates by new rows, drift between periods, and what to pool."""
