"""Monte Carlo p-values, by labels drawn under the hypothesis."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats, Ints, Words
from platt_jax.backend.threads import ordered_map
from platt_jax.groups import Groups
from platt_jax.hypothesis_tests.score_tests import ScoreTests
from platt_jax.passes.replicated import mixed, random_words

# Number of extreme draws that settles a p-value.
_EXTREME = 10
_MOST_DRAWS = 256
_FIRST_DRAWS = 32
SEED = 0

# Maximum number of labels drawn together, to stay in a cache.
AT_ONCE = 1 << 17
_ROWS = AT_ONCE // _FIRST_DRAWS


def canonical_order(proba: Floats, labels: Bools, groups: Groups) -> Ints:
    """(N,) row numbers sorted by problem, probability and label.

    Draws use a row's number in its problem, so this makes them independent of the given order. Rows
    of equal probability are exchangeable. Arguments are as in `ScoreTests`.
    """

    def order(some: slice) -> Ints:
        part_groups, first = Groups(groups.sizes[some]), groups.starts[some.start]
        rows = slice(first, first + part_groups.rows)
        return first + part_groups.order(proba[rows], labels[rows])

    return np.concatenate(list(ordered_map(order, groups.slices(AT_ONCE))))


def sequential_p_values(
    tests: ScoreTests, ids: Words, which: Ints, most: int = _MOST_DRAWS
) -> Floats:
    """P-values of problems (J,), by drawing labels until enough of the draws are extreme.

    If the h-th extreme draw is draw number l, the p-value is h / l. It is valid at any number of
    rows (Besag & Clifford 1991, "Sequential Monte Carlo p-values"), and most problems need few
    draws. It is NaN with fewer than h extreme draws among `most`. A problem's draws depend only on
    its own id, a uint64.
    """
    sizes, threshold = tests.groups.sizes, thresholds(tests.proba)

    def extreme(some: Ints, rows: Ints, draws: Ints) -> Bools:
        streams = random_words(SEED, ids[some], draws[:, None])
        labels = row_words(streams, sizes[some]) < threshold[rows]
        return tests.extreme(some, rows, labels)

    def draw(open_: Ints, first: int, last: int) -> Bools:
        def chunk_draws(some: Ints) -> Bools:
            rows = tests.groups.rows_of(some)
            step = max(1, AT_ONCE // len(rows))
            pieces = np.split(np.arange(first, last), range(step, last - first, step))
            return np.concatenate([extreme(some, rows, draws) for draws in pieces])

        problems = which[open_]
        pieces = [problems[piece] for piece in Groups(sizes[problems]).slices(_ROWS)]
        return np.concatenate(list(ordered_map(chunk_draws, pieces)), axis=1)

    return settled_p_values(len(which), draw, most)


def settled_p_values(
    number: int, draw: Callable[[Ints, int, int], Bools], most: int = _MOST_DRAWS
) -> Floats:
    """`sequential_p_values` of J problems, by a function that draws labels.

    It takes numbers of problems (j,), and of the first draw and the one behind the last, and
    returns which of these draws are extreme, (R, j).
    """
    extremes, p_values = np.zeros(number, np.int64), np.full(number, np.nan)
    open_, drawn = np.arange(number), 0
    while len(open_) and drawn < most:
        until = min(max(_FIRST_DRAWS, 2 * drawn), most)
        count = extremes[open_] + np.cumsum(draw(open_, drawn, until), axis=0)
        extremes[open_] = count[-1]
        enough = count[-1] >= _EXTREME
        draw_number = drawn + 1 + np.argmax(count >= _EXTREME, axis=0)
        p_values[open_[enough]] = _EXTREME / draw_number[enough]
        drawn, open_ = until, open_[~enough]
    return p_values


def thresholds(proba: Floats) -> NDArray[np.uint32]:
    """Thresholds: a random word is below one with the given probability (< 1), within 2^-32."""
    return np.ldexp(proba, 32).astype(np.uint32)


def row_words(streams: Words, sizes: Ints) -> NDArray[np.uint32]:
    """(R, n) random words for the n rows of k problems, from the problems' streams (R, k)."""
    if len(sizes) == 1:
        pair = np.arange((sizes[0] + 1) // 2, dtype=np.uint64)
        return mixed(streams + pair).view(np.uint32)[:, : sizes[0]]
    pairs, rows = Groups((sizes + 1) // 2), Groups(sizes)
    words = mixed(pairs.by_row(streams) + pairs.place.astype(np.uint64)).view(np.uint32)
    if rows.rows == words.shape[1]:
        return words
    return np.take(words, rows.by_row(2 * pairs.starts) + rows.place, axis=1)
