"""The mathematics of one problem, elementwise: no rows, no iterations."""
