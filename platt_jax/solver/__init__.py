"""Newton's method: the decision, the loop, its derivative, and the fit from rows to result."""
