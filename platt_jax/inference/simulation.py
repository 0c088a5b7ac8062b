"""P-values at any number of rows: by labels drawn where the hypothesis holds."""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from platt_jax.passes.replicated import mixed, random_words
from platt_jax.threads import ordered_map

# A p-value is settled by so many draws that are as extreme as the labels observed.
_EXTREME = 10
MOST_DRAWS = 256
_FIRST_DRAWS = 32
_SEED = 0

# Drawn labels that are worked on together: few enough to stay in a cache.
AT_ONCE = 1 << 17

Made = TypeVar("Made")


class LinearTest(Protocol):
    """A test of problems' labels by sums over their rows, such as `ScoreTests`, which see."""

    shares: NDArray[np.float64]
    observed: NDArray[np.float64]
    normal: NDArray[np.bool_]
    directions: NDArray[np.float64]
    bounds: NDArray[np.float64]

    def sums(
        self, some: NDArray[np.int64], rows: NDArray[np.int64], labels: NDArray[np.bool_], /
    ) -> NDArray[np.float64]:
        """The sums of other labels."""

    def extreme(self, some: NDArray[np.int64], sums: NDArray[np.float64], /) -> NDArray[np.bool_]:
        """Whether labels with these sums are at least as extreme as those observed."""


def sequential_pvalues(
    proba: NDArray[np.float64],
    sizes: NDArray[np.int64],
    ids: NDArray[np.uint64],
    which: NDArray[np.int64],
    test: LinearTest,
) -> NDArray[np.float64]:
    """P-values of problems by drawing labels until enough of the draws are extreme.

    With the draw in which that happens for the h-th time, l, the p-value is h / l, which is valid
    at any number of rows (Besag & Clifford 1991, "Sequential Monte Carlo p-values"); and most
    problems take few draws.

    Args:
        proba: (N,) P(y=1) of the rows, those of a problem end to end.
        sizes: (K,) how many each problem has.
        ids: (K,) uint64; a problem's draws depend on its own id and on nothing else.
        which: (J,) the numbers of those whose p-values are wanted.
        test: of the labels.

    Returns:
        (J,) in (0, 1]; NaN where it has happened fewer than h times in `MOST_DRAWS`.
    """
    starts = np.cumsum(sizes) - sizes
    threshold = thresholds(proba)
    found = np.zeros(len(sizes), np.int64)
    pvalues = np.full(len(sizes), np.nan)
    open_, drawn = which, 0
    while len(open_) and drawn < MOST_DRAWS:
        until = min(max(_FIRST_DRAWS, 2 * drawn), MOST_DRAWS)

        def draw(
            some: NDArray[np.int64], first: int = drawn, last: int = until
        ) -> NDArray[np.bool_]:
            owner, number = rows_of(sizes[some])
            rows = starts[some][owner] + number
            parts = []
            for draws in blocks(first, last, len(rows)):
                streams = random_words(_SEED, ids[some], draws[:, None])
                labels = words(streams, owner, number) < threshold[rows]
                parts.append(test.extreme(some, test.sums(some, rows, labels)))
            return np.concatenate(parts)

        for some, is_extreme in in_pieces(draw, open_, sizes):
            count = found[some] + np.cumsum(is_extreme, axis=0)
            found[some] = count[-1]
            enough = count[-1] >= _EXTREME
            at = drawn + 1 + np.argmax(count >= _EXTREME, axis=0)
            pvalues[some[enough]] = _EXTREME / at[enough]
        drawn, open_ = until, open_[np.isnan(pvalues[open_])]
    return pvalues[which]


def rows_of(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The problem of each row, and its number in the problem, of problems of these sizes."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner, np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]


def thresholds(proba: NDArray[np.float64]) -> NDArray[np.uint64]:
    """A random word is below this with the probability, which is below 1."""
    return np.ldexp(proba, 64).astype(np.uint64)


def words(
    streams: NDArray[np.uint64], owner: NDArray[np.int64], number: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """(R, n) random words for rows, given the streams (R, k) of their problems."""
    return mixed(streams[:, owner] + number.astype(np.uint64))


def blocks(first: int, last: int, rows: int) -> list[NDArray[np.int64]]:
    """The draws from the first to before the last, as many at a time as stay in a cache."""
    step = max(1, AT_ONCE // rows)
    return np.split(np.arange(first, last), range(step, last - first, step))


def in_pieces(
    work: Callable[[NDArray[np.int64]], Made],
    problems: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> Iterator[tuple[NDArray[np.int64], Made]]:
    """The results of some of the problems at a time, on all cores."""
    ends = np.cumsum(sizes[problems]) // (AT_ONCE // _FIRST_DRAWS)
    pieces = np.split(problems, np.flatnonzero(np.diff(ends)) + 1)
    return zip(pieces, ordered_map(work, pieces), strict=True)
