"""Scalers that only the papers' comparisons need."""
