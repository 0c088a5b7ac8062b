"""Newton's method on the sums: the decision, the loop, its derivative, the fit."""
