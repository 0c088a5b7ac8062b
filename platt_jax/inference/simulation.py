"""P-values at any number of rows: by labels drawn where the hypothesis holds."""

from collections.abc import Callable, Iterator
from typing import TypeVar

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


def canonical_order(
    proba: NDArray[np.float64], labels: NDArray[np.bool_], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(N,) the rows of each problem by probability and label, whatever order they came in.

    Draws are of rows by their number in the problem. Rows of one probability are exchangeable.
    Arguments as in `sequential_pvalues`.
    """
    starts = np.cumsum(sizes) - sizes

    def rows(some: NDArray[np.int64]) -> NDArray[np.int64]:
        owner = np.repeat(some, sizes[some])
        first = starts[some[0]]
        piece = slice(first, first + len(owner))
        order: NDArray[np.int64] = first + np.lexsort((labels[piece], proba[piece], owner))
        return order

    pieces = _in_pieces(rows, np.arange(len(sizes)), sizes)
    return np.concatenate([order for _, order in pieces])


def sequential_pvalues(
    sizes: NDArray[np.int64],
    which: NDArray[np.int64],
    extreme: Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]],
    most: int = MOST_DRAWS,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """P-values of problems by drawing labels until enough of the draws are extreme.

    With the draw in which that happens for the h-th time, l, the p-value is h / l, which is valid
    at any number of rows (Besag & Clifford 1991, "Sequential Monte Carlo p-values"); and most
    problems take few draws.

    Args:
        sizes: (K,) how many rows each problem has, those of a problem end to end.
        which: (J,) the numbers of those whose p-values are wanted.
        extreme: given the numbers of some problems, their rows and the numbers of draws (R,), which
            of the draws are at least as extreme as the labels observed, (R, problems).
        most: how many draws at most.

    Returns:
        (J,) in (0, 1]; NaN where it has happened fewer than h times in the most draws. And (J,) how
        often it has happened.
    """
    starts = np.cumsum(sizes) - sizes
    found = np.zeros(len(sizes), np.int64)
    pvalues = np.full(len(sizes), np.nan)
    open_, drawn = which, 0
    while len(open_) and drawn < most:
        until = min(max(_FIRST_DRAWS, 2 * drawn), most)

        def draw(
            some: NDArray[np.int64], first: int = drawn, last: int = until
        ) -> NDArray[np.bool_]:
            owner, number = _rows_of(sizes[some])
            rows = starts[some][owner] + number
            step = max(1, AT_ONCE // len(rows))
            pieces = np.split(np.arange(first, last), range(step, last - first, step))
            return np.concatenate([extreme(some, rows, draws) for draws in pieces])

        for some, is_extreme in _in_pieces(draw, open_, sizes):
            count = found[some] + np.cumsum(is_extreme, axis=0)
            found[some] = count[-1]
            enough = count[-1] >= _EXTREME
            at = drawn + 1 + np.argmax(count >= _EXTREME, axis=0)
            pvalues[some[enough]] = _EXTREME / at[enough]
        drawn, open_ = until, open_[np.isnan(pvalues[open_])]
    return pvalues[which], found[which]


def drawn_by(
    proba: NDArray[np.float64],
    sizes: NDArray[np.int64],
    ids: NDArray[np.uint64],
    extreme: Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]], NDArray[np.bool_]],
) -> Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]:
    """The argument `extreme` of `sequential_pvalues` where labels are 1 with these probabilities.

    Args:
        proba: (N,) P(y=1) of the rows.
        sizes: (K,) likewise.
        ids: (K,) uint64; a problem's draws depend on its own id and on nothing else.
        extreme: the same, of labels (R, rows) in place of numbers of draws.
    """
    threshold = thresholds(proba)

    def of_draws(
        some: NDArray[np.int64], rows: NDArray[np.int64], draws: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        streams = random_words(_SEED, ids[some], draws[:, None])
        return extreme(some, rows, row_words(streams, sizes[some]) < threshold[rows])

    return of_draws


def _rows_of(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The problem of each row, and its number in the problem, of problems of these sizes."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner, np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]


def thresholds(proba: NDArray[np.float64]) -> NDArray[np.uint32]:
    """A random word is below this with the probability, all but 2^-32, which is below 1."""
    return np.ldexp(proba, 32).astype(np.uint32)


def row_words(streams: NDArray[np.uint64], sizes: NDArray[np.int64]) -> NDArray[np.uint32]:
    """(R, n) random words for the n rows of k problems, given streams (R, k) of these."""
    pairs = (sizes + 1) // 2
    owner, number = _rows_of(pairs)
    of_pairs = np.take(streams, owner, axis=1) + number.astype(np.uint64)
    words = mixed(of_pairs).view(np.uint32)
    owner, number = _rows_of(sizes)
    if len(owner) == words.shape[1]:
        return words
    return np.take(words, 2 * (np.cumsum(pairs) - pairs)[owner] + number, axis=1)


def _in_pieces(
    work: Callable[[NDArray[np.int64]], Made],
    problems: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> Iterator[tuple[NDArray[np.int64], Made]]:
    """The results of some of the problems at a time, on all cores."""
    ends = np.cumsum(sizes[problems]) // (AT_ONCE // _FIRST_DRAWS)
    pieces = np.split(problems, np.flatnonzero(np.diff(ends)) + 1)
    return zip(pieces, ordered_map(work, pieces), strict=True)
