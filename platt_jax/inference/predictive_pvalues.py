"""P-values under uncertain curves: a curve is drawn, then labels given the curve.

The hypothesis is that (A, B) of a problem is drawn from its distribution, and each label is 1 with
the probability given by that curve. The statistic is a function of the labels alone, so the p-value
is valid at any number of rows as far as the distribution of (A, B) is right (the predictive check
of Box 1980, "Sampling and Bayes' inference in scientific modelling and robustness"). A posterior
predictive p-value, which averages given the labels tested, would be too large.
"""

import numpy as np

from platt_jax.arrays import Bools, Floats, Ints, Words
from platt_jax.inference.curve_distributions import Distribution
from platt_jax.inference.score_tests import ScoreTest, ScoreTests
from platt_jax.inference.simulation import MOST_DRAWS, row_words, sequential_pvalues
from platt_jax.inference.tilted_curves import bernoulli, drawn, tilted_pvalue
from platt_jax.passes.replicated import random_words
from platt_jax.threads import ordered_map

# Maximum number of plain draws where the first MOST_DRAWS have an extreme one. Smaller p-values use
# weighted draws, which may miss extremes far from where most of them are.
_MORE_DRAWS = 2048
# Error probability of the lower bound on a p-value by plain draws.
_RARELY = 0.05
_LABELS, _CURVES = 2, 3  # seeds
_TOGETHER = 16  # problems


def predictive_pvalues(tests: ScoreTests, sizes: Ints, ids: Words, curves: Distribution) -> Floats:
    """P-values of K problems, small ones with a relative standard error of 10 %.

    Args:
        tests: score tests of the problems, with the spread of the curves.
        sizes: (K,) number of rows of each problem.
        ids: (K,) uint64; a problem's draws depend only on its own id.
        curves: (K, 2) distribution of the log-odds at the curves' ends.

    Returns:
        (K,) in (0, 1].
    """
    from scipy.special import gammaincinv

    def extreme(some: Ints, rows: Ints, draws: Ints) -> Bools:
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
        logit += tests.offset[rows]
        return tests.extreme(some, rows, bernoulli(logit, row_words(streams, sizes[some])))

    pvalue, found = np.full(len(sizes), np.nan), np.zeros(len(sizes), np.int64)
    drawn = np.full(len(sizes), MOST_DRAWS)
    for most in (MOST_DRAWS, _MORE_DRAWS):
        for normal in (True, False):
            open_ = np.isnan(pvalue) & ((found > 0) | (most == MOST_DRAWS))
            which = np.flatnonzero(open_ & (tests.normal == normal))
            pvalue[which], found[which] = sequential_pvalues(sizes, which, extreme, most)
            drawn[which] = most
    small = np.flatnonzero(np.isnan(pvalue))
    pieces = np.split(small, range(_TOGETHER, len(small), _TOGETHER))

    def work(some: Ints) -> list[float]:
        return [tilted_pvalue(tests.one(k), curves.of(k), ids[k : k + 1]) for k in some]

    tilted = [x for made in ordered_map(work, pieces) for x in made]
    # Weighted draws may miss a region that plain draws have reached.
    seen = gammaincinv(np.maximum(found[small], 1), _RARELY) / drawn[small]
    pvalue[small] = np.maximum(tilted, np.where(found[small] > 0, seen, 0))
    return pvalue


def _extreme(test: ScoreTest, log_odds: Floats, streams: Words) -> Bools:
    """(R,) whether draws are extreme, given log-odds at the ends (R, 2) and random words (R,)."""
    return test.extreme(test.sums(drawn(test, test.logit(log_odds), streams)))
