"""Sums over rows: the only code that touches rows, and the parts it is made of."""
