"""How fits end, what is notable about them, and what to do about either."""

from enum import IntEnum, IntFlag
from typing import Any

import numpy as np


class Status(IntEnum):
    """How a fit or the estimate of a population ended. `message` says what to do about it.

    Only a population ends with one of the last two, of which BOUNDARY is a success.
    """

    CONVERGED = 0
    MAX_ITERATIONS = 1
    LINE_SEARCH_FAILED = 2
    NON_FINITE = 3
    EMPTY = 4
    BOUNDARY = 5
    NOT_ESTIMATED = 6

    @property
    def message(self) -> str:
        """What happened, and what to do."""
        return _OF_STATUS[self]


class Flag(IntFlag):
    """Notable properties of a problem, independent of its status."""

    # `solver/flags.py` says when each is raised. The members are plain numbers: with a `__new__`
    # that takes a message too, ~flag is wrong in Python 3.11.0 to 3.11.3.

    #: all labels are the same
    ONE_CLASS = 1
    #: all scores are the same: A = 0 if there is no prior and B is fitted
    CONSTANT_SCORES = 2
    #: a threshold splits the classes (0 if B is held): only Platt's targets or a prior bound the
    #: slope
    SEPARABLE = 4
    #: A > 0: higher scores mean class 0
    REVERSED = 8
    #: one of 20 or more rows has four fifths of the scores' variance, or many at one end are far
    #: from all others, as with a code for missing values; or the segment is left out of its
    #: population, for scores over 100 times as far out as all others
    OUTLIER = 16

    @classmethod
    def _missing_(cls, value: object) -> Any:
        # A Fit holds NumPy integers, which IntFlag does not accept.
        return super()._missing_(int(value) if isinstance(value, np.integer) else value)

    @property
    def message(self) -> str:
        """What the flag means, and what to do; of several flags, each one's message."""
        return " ".join(_OF_FLAG[flag] for flag in type(self) if flag in self)


_OF_STATUS = {
    Status.CONVERGED: "The optimum was found.",
    Status.MAX_ITERATIONS: "Stopped before the optimum: raise Options(max_iter=...), or look at "
    "the flags: separable scores without Platt's targets have no finite optimum. A population "
    "needs more rows, or fewer segments.",
    Status.LINE_SEARCH_FAILED: "No step reduced the loss further before the tolerance was met: "
    "rounding limits this fit. Fit float64 scores, or look for scores or weights that differ by "
    "many orders of magnitude.",
    Status.NON_FINITE: "A score, label or weight is NaN or infinite; A and B are NaN. Clean the "
    'input, or drop such rows with Options(non_finite="omit").',
    Status.EMPTY: "No row with a positive weight; A and B are NaN. Use a fit of all rows.",
    Status.BOUNDARY: "The segments differ by no more than chance in at least one direction of "
    "(A, B): there the covariance is nearly 0, and all segments have nearly the population's "
    "value.",
    Status.NOT_ESTIMATED: "There is no population to estimate: fewer than two segments, one class "
    "only, scores that are all the same, or a pooled fit that failed. All segments have the curve "
    "of all rows.",
}

_OF_FLAG = {
    Flag.ONE_CLASS: "All labels are the same, so that without pooling or a prior the sigmoid is "
    "flat. Pool this problem with others, if it is not pooled.",
    Flag.CONSTANT_SCORES: "All scores are the same and carry no information; without a prior A is "
    "0 if B is fitted.",
    Flag.SEPARABLE: "A threshold splits the classes, so only Platt's targets or a prior bound the "
    "slope. Trust the ranking, not extreme probabilities.",
    Flag.REVERSED: "Higher scores mean class 0, A > 0, or logits of several classes are worse than "
    "none. Check the sign of the scores and the coding of the labels, or use "
    "Options(monotone=True).",
    Flag.OUTLIER: "One score, or one value of many such as a code for missing scores, lies so far "
    "off that it may decide the slope alone and leave it flat for all others. Check these rows, "
    "drop them, or clip the scores.",
}
