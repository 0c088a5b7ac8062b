"""The sums over rows: everything that touches rows, and what it is made of."""
