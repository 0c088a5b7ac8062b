"""Problems that take longer than the rest: they go on alone, and nobody can tell by the answers."""

import numpy as np
import pytest

from platt_jax import run
from platt_jax.fit import fit
from platt_jax.status import Status

pytestmark = pytest.mark.slow

FIELDS = ("A", "B", "status", "iterations", "passes", "nll", "gradient", "hessian")


def crowd(rng, rows, hard):
    """Enough problems of so many rows for stragglers to be packed, some of them hard."""
    problems = 520_000 // rows
    labels = rng.random((problems, rows)) < 0.4
    scores = rng.normal(size=labels.shape) + labels
    which = rng.permutation(problems)[:hard]
    # Scores over many orders of magnitude, which a threshold separates.
    size = np.exp(4 * rng.normal(size=(hard, rows)))
    scores[which] = np.where(labels[which], size, -size)
    return scores.astype(np.float32), labels, which


@pytest.mark.parametrize(("rows", "weighted"), [(90, False), (700, True), (20_000, False)])
def test_stragglers_get_the_bits_they_would_get_in_the_crowd(rows, weighted, rng, monkeypatch):
    scores, labels, hard = crowd(rng, rows, hard=3)
    weights = rng.uniform(0.5, 2, rows).astype(np.float32) if weighted else None
    monkeypatch.setattr(run, "_ROWS_FOR_A_SECOND_LOOP", 0)
    apart = fit(scores, labels, weights=weights)
    assert apart.passes[hard].min() > np.median(apart.passes) + 1
    assert np.all(apart.status == Status.CONVERGED)

    monkeypatch.setattr(run, "_ROWS_FOR_A_SECOND_LOOP", scores.size)
    together = fit(scores, labels, weights=weights)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(apart, name), getattr(together, name), err_msg=name)
