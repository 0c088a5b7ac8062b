"""Exact p-values at any number of rows: by labels drawn where the hypothesis holds."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from platt_jax.passes.replicated import mixed, random_words
from platt_jax.threads import ordered_map

# A p-value is settled by so many draws that are as extreme as the labels observed.
_EXTREME = 10
MOST_DRAWS = 10_000
_FIRST_DRAWS = 32
_SEED = 0

# Drawn labels that are worked on together: few enough to stay in a cache.
_AT_ONCE = 1 << 17


def sequential_pvalues(
    proba: NDArray[np.float64],
    sizes: NDArray[np.int64],
    ids: NDArray[np.uint64],
    which: NDArray[np.int64],
    extreme: Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]], NDArray[np.bool_]],
) -> NDArray[np.float64]:
    """P-values of problems by drawing labels until enough of the draws are extreme.

    With the draw in which that happens for the h-th time, l, the p-value is h / l; and if it has
    happened only g times in all L draws, (g + 1) / (L + 1). Either is valid at any number of rows
    (Besag & Clifford 1991, "Sequential Monte Carlo p-values"), and most problems take few draws.

    Args:
        proba: (N,) P(y=1) of the rows, those of a problem end to end.
        sizes: (K,) how many each problem has.
        ids: (K,) uint64; a problem's draws depend on its own id and on nothing else.
        which: (J,) the numbers of those whose p-values are wanted.
        extreme: given the numbers of some problems, their rows and drawn labels (R, rows), which of
            the draws are at least as extreme as the labels observed, (R, problems).

    Returns:
        (J,) in (0, 1].
    """
    starts = np.cumsum(sizes) - sizes
    threshold = np.ldexp(proba, 64).astype(np.uint64)
    found = np.zeros(len(sizes), np.int64)
    pvalues = np.full(len(sizes), np.nan)
    open_, drawn = which, 0
    while len(open_) and drawn < MOST_DRAWS:
        until = min(max(_FIRST_DRAWS, 2 * drawn), MOST_DRAWS)

        def draw(
            some: NDArray[np.int64], first: int = drawn, last: int = until
        ) -> NDArray[np.bool_]:
            owner, number = _rows_of(sizes[some])
            rows = starts[some][owner] + number
            step = max(1, _AT_ONCE // len(rows))
            return np.concatenate(
                [
                    extreme(some, rows, _labels(draws, ids[some], owner, number, threshold[rows]))
                    for draws in np.split(np.arange(first, last), range(step, last - first, step))
                ]
            )

        for some, is_extreme in _in_pieces(draw, open_, sizes):
            count = found[some] + np.cumsum(is_extreme, axis=0)
            found[some] = count[-1]
            enough = count[-1] >= _EXTREME
            at = drawn + 1 + np.argmax(count >= _EXTREME, axis=0)
            pvalues[some[enough]] = _EXTREME / at[enough]
        drawn, open_ = until, open_[np.isnan(pvalues[open_])]
    pvalues[open_] = (found[open_] + 1) / (MOST_DRAWS + 1)
    return pvalues[which]


def _rows_of(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The problem of each row, and its number in the problem, of problems of these sizes."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner, np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]


def _labels(
    draws: NDArray[np.int64],
    ids: NDArray[np.uint64],
    owner: NDArray[np.int64],
    number: NDArray[np.int64],
    threshold: NDArray[np.uint64],
) -> NDArray[np.bool_]:
    """(R, rows) bool, the labels of rows in these draws."""
    streams = random_words(_SEED, ids, draws[:, None])
    return mixed(streams[:, owner] + number.astype(np.uint64)) < threshold


def _in_pieces(
    work: Callable[[NDArray[np.int64]], NDArray[np.bool_]],
    problems: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """The results of some of the problems at a time, on all cores."""
    ends = np.cumsum(sizes[problems]) // (_AT_ONCE // _FIRST_DRAWS)
    pieces = np.split(problems, np.flatnonzero(np.diff(ends)) + 1)
    return zip(pieces, ordered_map(work, pieces), strict=True)
