"""Calibrators and their rows, for all tests of figures."""

from dataclasses import replace

import jax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax.results.population import Population
from platt_jax.status import Status

plt.switch_backend("Agg")


@pytest.fixture(autouse=True)
def settings_stay():
    before = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == before


@pytest.fixture(scope="module")
def rows():
    """Scores, labels, segments: some of one class, separable, reversed, constant."""
    rng = np.random.default_rng(0)
    segments = np.repeat(np.arange(60), rng.integers(2, 90, 60))
    scores = rng.normal(-0.5, 1, len(segments))
    slope = np.where(segments < 5, -1.5, 1.5)
    labels = labels_of(rng, slope * scores).astype(int)
    labels[segments == 7] = 0
    scores[segments == 8] = 1
    labels[segments == 9] = scores[segments == 9] > -0.5
    labels[segments == 10] = scores[segments == 10] < -0.5
    return scores, labels, segments


@pytest.fixture(scope="module")
def calibrator(rows):
    return pj.fit_segments(*rows)


@pytest.fixture(scope="module")
def pooled(calibrator):
    """As by partial pooling: what figures read of it, and slopes of its own."""
    K = len(calibrator.keys)
    population = Population(
        mean=np.array([-1.2, 0.1]),
        covariance=np.eye(2),
        mean_covariance=np.eye(2),
        covariance_errors=np.eye(2),
        status=Status.CONVERGED,
        likelihood_precision=np.zeros((K, 2, 2)),
        likelihood_pull=np.zeros((K, 2)),
        posterior_mean=np.zeros((K, 2)),
        posterior_covariance=np.nan_to_num(calibrator.fit.covariance.astype(float)),
        predictive_mean=np.zeros(2),
        predictive_covariance=np.eye(2),
        shrinkage=np.linspace(0.9, 0.1, K),
    )
    fit = replace(calibrator.fit, A=calibrator.fit.A / 2 - 0.6)
    return replace(calibrator, fit=fit, pooling="partial", population=population)


@pytest.fixture(scope="module")
def million(calibrator):
    """A calibrator of a million segments that resemble these."""
    rng = np.random.default_rng(1)
    K = 1_000_000
    which = rng.integers(0, len(calibrator.keys), K)
    fit = jax.tree.map(lambda x: x[which], calibrator.fit)
    fit = replace(fit, A=fit.A + rng.normal(size=K) * 0.2, B=fit.B + rng.normal(size=K) * 0.2)
    return replace(calibrator, keys=np.arange(K), fit=fit)
