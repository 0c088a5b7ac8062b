"""Scalers used only in comparisons with older papers."""
