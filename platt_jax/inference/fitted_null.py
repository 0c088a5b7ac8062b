"""P-values where curves are not known exactly: curves are drawn, then labels by these.

The hypothesis is that (A, B) of a problem is a draw of what is known of it, and each label is 1
with the probability by that curve. The statistic is a function of the labels alone, so the p-value
is valid at any number of rows as far as the distribution of (A, B) is right (Box 1980, "Sampling
and Bayes' inference in scientific modelling and robustness", the predictive check). No probability
is averaged given the labels tested, as a posterior predictive p-value would be, which is too large.
"""

import numpy as np
from numpy.typing import NDArray

from platt_jax.inference.score_tests import ScoreTest, ScoreTests
from platt_jax.inference.simulation import row_words, sequential_pvalues
from platt_jax.inference.tilted_curves import bernoulli, drawn, tilted_pvalue
from platt_jax.inference.uncertain import Distribution
from platt_jax.passes.replicated import random_words
from platt_jax.threads import ordered_map

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

# P-values up to the first are by weighted draws. Where the chi-square distribution's is up to the
# second, that is likely, and no other draws come before.
_SMALL, _TINY = 0.05, 1e-3
_LABELS, _CURVES = 2, 3  # seeds
_TOGETHER = 16  # problems


def fitted_pvalues(
    tests: ScoreTests, sizes: NDArray[np.int64], ids: Words, curves: Distribution
) -> Floats:
    """P-values of K problems, small ones to a standard error of a tenth of them.

    Args:
        tests: of them, with the spread of the curves.
        sizes: (K,) of rows.
        ids: (K,) uint64; a problem's draws depend on its own id and on nothing else.
        curves: (K, 2), of the log-odds at the curves' ends.

    Returns:
        (K,) in (0, 1].
    """

    def extreme(
        some: NDArray[np.int64], rows: NDArray[np.int64], draws: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        log_odds = curves.of(some).draws(random_words(_CURVES, ids[some], draws[:, None]))
        streams = random_words(_LABELS, ids[some], draws[:, None])
        if tests.normal[some[0]]:
            made = [
                _extreme(tests.one(k), log_odds[:, i], streams[:, i]) for i, k in enumerate(some)
            ]
            return np.stack(made, 1)
        owner = np.repeat(np.arange(len(some)), sizes[some])
        first, second = tests.basis[:, rows]
        logit = log_odds[:, owner, 0] * first + log_odds[:, owner, 1] * second
        return tests.extreme(some, rows, bernoulli(logit, row_words(streams, sizes[some])))

    pvalue = np.minimum(2 * tests.least_pvalue, 1)
    for normal in (True, False):
        which = np.flatnonzero((tests.normal == normal) & (pvalue > _TINY))
        pvalue[which] = sequential_pvalues(sizes, which, extreme)
    small = np.flatnonzero(~(pvalue > _SMALL))
    pieces = np.split(small, range(_TOGETHER, len(small), _TOGETHER))

    def work(some: NDArray[np.int64]) -> list[float]:
        return [tilted_pvalue(tests.one(k), curves.of(k), ids[k : k + 1]) for k in some]

    pvalue[small] = [x for made in ordered_map(work, pieces) for x in made]
    return pvalue


def _extreme(test: ScoreTest, log_odds: Floats, streams: Words) -> NDArray[np.bool_]:
    """(R,), given log-odds at the ends (R, 2) and random words (R,)."""
    return test.extreme(test.sums(drawn(test, log_odds @ test.basis, streams)))
