"""Bands of curves fitted to votes: ``python -m benchmarks.inference.shares``.

Five raters vote on each item, and their votes have a correlation from 0 (independent) to 1 (all
agree): the probability of an item is a beta variable around its curve. Populations have 100
segments, with normal slopes (mean 1.2, standard deviation 0.3) and intercepts (mean -0.5 or -3,
standard deviation 0.5). Curves are fitted to the counts (`trials`), to the shares (`soft`) and to
five rows for each item (`rows`). How many of the points of the curves at scores of -1.5, 0 and 1.5
are held by bands of 95 %?
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.special import expit

import platt_jax as pj
from benchmarks.inference.command import options, printed, run_parts

RATERS, SEGMENTS = 5, 100
_AT = np.array([-1.5, 0.0, 1.5])
CORRELATIONS = 0.0, 0.3, 0.7, 1.0


def votes(rng, p, correlation):
    """(N,) how many of the raters vote for items of these probabilities."""
    if correlation in (0, 1):
        agree = rng.random(len(p)) < p
        return RATERS * agree if correlation else rng.binomial(RATERS, p)
    precision = (1 - correlation) / correlation
    return rng.binomial(RATERS, rng.beta(p * precision, (1 - p) * precision))


def fitted(how, scores, k, segments, pooling):
    if how == "trials":
        return pj.fit_segments(scores, k, segments, trials=RATERS, pooling=pooling)
    if how == "soft":
        return pj.fit_segments(scores, k / RATERS, segments, soft=True, pooling=pooling)
    labels = np.arange(RATERS) < k[:, None]
    scores, segments = (np.repeat(x, RATERS) for x in (scores, segments))
    return pj.fit_segments(scores, labels.ravel(), segments, pooling=pooling)


def cell(how, pooling, correlation, items, base=-0.5, populations=6) -> dict[str, float]:
    rng, held = np.random.default_rng(0), []
    for _ in range(populations):
        slope, intercept = rng.normal(1.2, 0.3, SEGMENTS), rng.normal(base, 0.5, SEGMENTS)
        segments = np.repeat(np.arange(SEGMENTS), items)
        scores = rng.normal(size=len(segments))
        p = expit(slope[segments] * scores + intercept[segments])
        made = fitted(how, scores, votes(rng, p, correlation), segments, pooling)
        lower, upper = made.band(np.tile(_AT, SEGMENTS), np.repeat(np.arange(SEGMENTS), 3))
        truth = expit(slope[:, None] * _AT + intercept[:, None]).ravel()
        held.append((lower <= truth) & (truth <= upper))
    about = {"fit": how, "pooling": pooling, "correlation": correlation, "items": items}
    return about | {"mean intercept": base, "held": round(float(np.mean(held)), 4)}


def bands():
    return printed(
        cell(how, pooling, correlation, 100)
        for how, pooling, correlation in product(
            ("trials", "soft", "rows"), ("none", "partial"), CORRELATIONS
        )
    )


def few():
    """Twenty items; and 9 % positives, in as many populations as tell .93 from .94."""
    return printed(
        cell(how, "partial", correlation, items, base, populations=30)
        for how, correlation, (items, base) in product(
            ("trials", "soft"), CORRELATIONS, ((20, -0.5), (100, -3.0))
        )
    )


if __name__ == "__main__":
    run_parts(options("shares"), "shares", {"bands": bands, "few": few})
