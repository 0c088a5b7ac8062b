"""The columns of rows."""

from typing import Any, NamedTuple

import numpy as np


class Columns(NamedTuple):
    """Rows end to end: arrays of one length, NumPy's on the host or JAX's where traced."""

    scores: Any
    labels: Any  # above 0 for class 1
    weights: Any = None  # None for rows of weight 1
    offset: Any = None  # log-odds of class 1 that are added to the curve; None for 0

    def counted_scores(self) -> Any:
        """The scores of NumPy's rows, NaN for rows of weight 0."""
        if self.weights is None:
            return self.scores
        return np.where(self.weights == 0, np.asarray(np.nan, self.scores.dtype), self.scores)
