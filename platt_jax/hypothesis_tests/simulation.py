"""Monte Carlo p-values, by labels drawn under the hypothesis."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats, Ints, Words
from platt_jax.backend.threads import ordered_map
from platt_jax.passes.replicated import mixed, random_words

# Number of extreme draws that settles a p-value.
_EXTREME = 10
_MOST_DRAWS = 256
_FIRST_DRAWS = 32
_SEED = 0

# Maximum number of labels drawn together, to stay in a cache.
AT_ONCE = 1 << 17

Made = TypeVar("Made")


def canonical_order(proba: Floats, labels: Bools, sizes: Ints) -> Ints:
    """(N,) row numbers sorted by problem, probability and label.

    Draws use a row's number in its problem, so this makes them independent of the given order. Rows
    of equal probability are exchangeable. Arguments are as in `ScoreTests`.
    """
    starts = np.cumsum(sizes) - sizes

    def rows(some: Ints) -> Ints:
        owner = np.repeat(some, sizes[some])
        first = starts[some[0]]
        piece = slice(first, first + len(owner))
        return first + np.lexsort((labels[piece], proba[piece], owner))

    pieces = _in_pieces(rows, np.arange(len(sizes)), sizes)
    return np.concatenate([order for _, order in pieces])


def sequential_p_values(
    sizes: Ints, which: Ints, extreme: Callable[[Ints, Ints, Ints], Bools], most: int = _MOST_DRAWS
) -> Floats:
    """P-values of problems, by drawing labels until enough of the draws are extreme.

    If the h-th extreme draw is draw number l, the p-value is h / l. It is valid at any number of
    rows (Besag & Clifford 1991, "Sequential Monte Carlo p-values"), and most problems need few
    draws.

    Args:
        sizes: (K,) number of rows of each problem; rows are concatenated by problem.
        which: (J,) numbers of the problems to test.
        extreme: function of the numbers of some problems, their rows and the numbers of draws (R,),
            which returns whether each draw is at least as extreme as the observed labels,
            (R, problems).
        most: maximum number of draws.

    Returns:
        (J,) p-values in (0, 1]; NaN with fewer than h extreme draws among `most`.
    """
    starts = np.cumsum(sizes) - sizes
    found = np.zeros(len(sizes), np.int64)
    p_values = np.full(len(sizes), np.nan)
    open_, drawn = which, 0
    while len(open_) and drawn < most:
        until = min(max(_FIRST_DRAWS, 2 * drawn), most)

        def draw(some: Ints, first: int = drawn, last: int = until) -> Bools:
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
            p_values[some[enough]] = _EXTREME / at[enough]
        drawn, open_ = until, open_[np.isnan(p_values[open_])]
    return p_values[which]


def drawn_by(
    proba: Floats, sizes: Ints, ids: Words, extreme: Callable[[Ints, Ints, Bools], Bools]
) -> Callable[[Ints, Ints, Ints], Bools]:
    """The argument `extreme` of `sequential_p_values` for labels with these probabilities.

    Args:
        proba: (N,) P(y=1) of the rows.
        sizes: (K,) number of rows of each problem.
        ids: (K,) uint64; a problem's draws depend only on its own id.
        extreme: the same function for labels (R, rows) in place of the numbers of draws.
    """
    threshold = thresholds(proba)

    def labels_of_draws(some: Ints, rows: Ints, draws: Ints) -> Bools:
        streams = random_words(_SEED, ids[some], draws[:, None])
        return extreme(some, rows, row_words(streams, sizes[some]) < threshold[rows])

    return labels_of_draws


def _rows_of(sizes: Ints) -> tuple[Ints, Ints]:
    """The problem of each row, and the row's number in it, for problems of these sizes."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner, np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]


def thresholds(proba: Floats) -> NDArray[np.uint32]:
    """Thresholds: a random word is below one with the given probability (< 1), within 2^-32."""
    return np.ldexp(proba, 32).astype(np.uint32)


def row_words(streams: Words, sizes: Ints) -> NDArray[np.uint32]:
    """(R, n) random words for the n rows of k problems, from the problems' streams (R, k)."""
    pairs = (sizes + 1) // 2
    owner, number = _rows_of(pairs)
    pair_streams = np.take(streams, owner, axis=1) + number.astype(np.uint64)
    words = mixed(pair_streams).view(np.uint32)
    owner, number = _rows_of(sizes)
    if len(owner) == words.shape[1]:
        return words
    return np.take(words, 2 * (np.cumsum(pairs) - pairs)[owner] + number, axis=1)


def _in_pieces(
    work: Callable[[Ints], Made], problems: Ints, sizes: Ints
) -> Iterator[tuple[Ints, Made]]:
    """The results of `work` on groups of the problems, on all cores."""
    ends = np.cumsum(sizes[problems]) // (AT_ONCE // _FIRST_DRAWS)
    pieces = np.split(problems, np.flatnonzero(np.diff(ends)) + 1)
    return zip(pieces, ordered_map(work, pieces), strict=True)
