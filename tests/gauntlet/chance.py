"""By how much a right library may miss by chance.

Each statement of chance fails for a right library with a probability of LEAST or less; a cell makes
fewer than ten of them, so that fewer than 1 cell in 100,000 is broken by chance.
"""

import numpy as np
from scipy.special import expit, logit, xlogy
from scipy.stats import binom

LEAST = 1e-6
SIGMAS = 4.9  # of a normal variable, both sides: 1e-6
NEVER = 1e-6  # a level at which not one p-value or false alarm is expected in a million worlds


def too_few(held: int, number: int, share: float) -> bool:
    """Whether fewer hold than by chance, if each does with this probability or more."""
    return binom.cdf(held, number, share) < LEAST


def too_many(found: int, number: int, share: float) -> bool:
    """Whether more are found than by chance, if each is with this probability or less."""
    return binom.sf(found - 1, number, share) < LEAST


def most_alarms(segments: int, fdr: float) -> int:
    """How many alarms Benjamini and Hochberg's procedure gives by chance where nothing changed.

    It gives j if j p-values are below j fdr / segments. Alarms of e-values are fewer.
    """
    j = np.arange(1, segments + 1)
    each = binom.sf(j - 1, segments, np.minimum(j * fdr / segments, 1))
    rest = each[::-1].cumsum()[::-1]  # j alarms or more
    return int((rest >= LEAST).sum())


def excess(log_odds: np.ndarray, proba: np.ndarray) -> np.ndarray:
    """(N,) by how much predictions cost more log loss than the truth, in expectation."""
    p, q = expit(log_odds), np.clip(np.asarray(proba, float), 1e-15, 1 - 1e-15)
    return xlogy(p, p) + xlogy(1 - p, expit(-log_odds)) - p * np.log(q) - (1 - p) * np.log1p(-q)


def worse(mine, other, log_odds, segments, fitted_rows) -> str | None:
    """How far one prediction is worse than another, if by more than chance.

    The loss is expected under the truth, so that fresh labels add no chance. What is left is the
    draw of the segments, by its standard error with segments as clusters, and that of the fitted
    rows. Parameters that were fitted in vain cost a chi-square of them over twice the rows: 22 over
    the rows is more than 1e-6 allows of 8 of these, and of a single curve's 2.
    """
    each = excess(log_odds, mine) - excess(log_odds, other)
    owner = np.unique(segments, return_inverse=True)[1]
    mean = each.mean()
    error = np.sqrt((np.bincount(owner, each - mean) ** 2).sum()) / len(each)
    if mean > SIGMAS * error + 22 / max(fitted_rows, 1):
        return f"{mean:+.4f} nats a row, error {error:.4f}"
    return None


def half_width(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """(N,) of a band, in log-odds; inf where it ends so near 0 or 1 that rounding hides it."""
    low, high = (np.asarray(x, float) for x in (lower, upper))
    shown = (low > 1e-290) & (high < 1 - 1e-9)
    low, high = (np.where(shown, x, 0.5) for x in (low, high))
    return np.where(shown, logit(high) - logit(low), np.inf) / 2
