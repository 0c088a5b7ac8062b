"""Rows to fit: scores, labels and segments."""

import numpy as np
import pytest
from scipy.special import expit

# For tests that fit a few rows by segment, each on their own.
few_rows = pytest.mark.filterwarnings("ignore:.*few rows by segment")


def problem(rng, rows, shift=1.0, scale=1.0, base_rate=0.4):
    """Scores and labels of one overlapping two-class problem."""
    labels = (rng.random(rows) < base_rate).astype(np.int8)
    return (rng.normal(size=rows) + shift * labels) * scale, labels


def batch(rng, problems, rows, dtype=np.float64):
    """Scores and labels (problems, rows) of problems that are not equally hard."""
    parts = [problem(rng, rows, shift=rng.uniform(0, 3)) for _ in range(problems)]
    scores, labels = (np.stack(x) for x in zip(*parts, strict=True))
    return scores.astype(dtype), labels


def ragged(rng, sizes, dtype=np.float64, shift=1.0):
    """Scores, labels and segments of one problem of each size, end to end."""
    parts = [problem(rng, rows, shift=shift) for rows in sizes]
    scores, labels = (np.concatenate(x) for x in zip(*parts, strict=True))
    return scores.astype(dtype), labels, np.repeat(np.arange(len(sizes)), sizes)


def labels_of(rng, logit):
    """Labels that are true with the probability of each logit."""
    return rng.random(np.shape(logit)) < expit(logit)


def curves(rng, number, mean=(-1.5, 0.5), spread=(0.7, 0.5)):
    """A and B of segments from a population without correlation."""
    return tuple(m + s * rng.normal(size=number) for m, s in zip(mean, spread, strict=True))


def rows_of(rng, segments, A=-1.5, B=0.0):
    """Scores, labels by the curve of each segment, and the segments; A and B may be one for all."""
    rng = np.random.default_rng(rng)
    scores = rng.normal(size=np.shape(segments))
    A, B = (x[segments] if np.ndim(x) else x for x in (A, B))
    return scores, labels_of(rng, -(A * scores + B)), segments


def population_rows(rng, number, rows, mean=(-1.5, 0.5), spread=(0.7, 0.5)):
    """Scores, labels and segments of as many rows each, or of these; their curves are drawn."""
    rng = np.random.default_rng(rng)
    A, B = curves(rng, number, mean, spread)
    return rows_of(rng, np.repeat(np.arange(number), rows), A, B)


# Together as small a problem as each: no programs of larger ones are compiled.
CURVED_SIZES = (1, 2, 3, 7, 40, 60, 140)


def curved(seed=0, sizes=CURVED_SIZES, dtype=float):
    """Rows of segments of these sizes, with ties, in random order; and weights."""
    rng = np.random.default_rng(seed)
    segments = np.repeat(np.arange(len(sizes)), sizes)
    scores = rng.normal(size=len(segments)).round(1)
    chances = 1 / (1 + np.exp(0.5 - 1.2 * scores - 0.3 * scores**2))
    labels = (rng.random(len(scores)) < chances).astype(int)
    order = rng.permutation(len(scores))
    weights = rng.integers(1, 4, len(scores)).astype(dtype)
    return scores[order].astype(dtype), labels[order], segments[order], weights
