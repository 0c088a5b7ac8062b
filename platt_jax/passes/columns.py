"""The columns of rows."""

from typing import Any, NamedTuple

import numpy as np


class Columns(NamedTuple):
    """Rows end to end: arrays of one length, NumPy's on the host or JAX's where traced."""

    scores: Any
    labels: Any  # above 0 for class 1
    weights: Any = None  # None for rows of weight 1
    offset: Any = None  # log-odds of class 1 that are added to the curve; None for 0

    def weighted_scores(self) -> Any:
        """(N, 2), the scores and the weights of NumPy's rows, in float64.

        A row whose offset is not finite is no row.
        """
        weights = np.ones(len(self.scores)) if self.weights is None else self.weights
        if self.offset is not None:
            weights = np.where(np.isfinite(self.offset), weights, 0)
        return np.stack([self.scores, weights], -1, dtype=np.float64)
