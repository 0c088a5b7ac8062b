"""Metrics of many rows hold no arrays of terms as long as the rows."""

import tracemalloc

import numpy as np
import pytest

from platt_jax import metrics


def drawn(shape):
    random = np.random.default_rng(0)
    p = random.uniform(0.05, 0.95, shape)
    return random.random(shape) < p, p


# As many pieces as lines; lines in one piece each; several pieces of each line.
@pytest.mark.parametrize("shape", [(5, 1 << 16), (3000, 50), (2, 3, 150_000), (200_001,)])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_pieces_are_those_of_all_rows(shape, weighted):
    y, p = drawn(shape)
    w = np.random.default_rng(1).integers(0, 3, shape).astype(float) if weighted else None
    found = metrics.log_loss(y, p, weights=w), metrics.brier_score(y, p, weights=w)
    losses = -np.log(np.where(y, p, 1 - p)), (y - p) ** 2
    for got, loss in zip(found, losses, strict=True):
        np.testing.assert_allclose(got, np.average(loss, axis=-1, weights=w), rtol=1e-13)


# Bytes a row, of which most hold the checked rows, and the rows' order by segment.
CALLS = {
    "log_loss": (20, lambda y, p, s: lambda: metrics.log_loss(y, p)),
    "brier_score": (20, lambda y, p, s: lambda: metrics.brier_score(y, p)),
    "by_segment": (40, lambda y, p, s: lambda: metrics.by_segment(metrics.log_loss, y, p, s)),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_array_of_terms_is_as_long_as_the_rows(name):
    number = 1_000_000
    (y, p), segments = drawn(number), np.random.default_rng(2).integers(0, 2000, number)
    most, made = CALLS[name]
    call = made(y, p, segments)
    tracemalloc.start()
    try:
        call()
        assert tracemalloc.get_traced_memory()[1] / number <= most
    finally:
        tracemalloc.stop()
