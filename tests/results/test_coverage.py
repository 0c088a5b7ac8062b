"""Confidence bands hold the truth as often as they say: the simulation of benchmarks, small."""

import json
from pathlib import Path

import numpy as np
import pytest

import platt_jax as pj

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "benchmarks" / "results" / "inference" / "coverage.json"


@pytest.fixture
def coverage():
    from benchmarks.inference import coverage

    return coverage


def shares(found):
    return np.array([*found["pointwise"], found["all_scores"], found["whole_line"]])


def test_a_true_sigmoid(coverage):
    """Of 500 bands a share of 95 % is known to 1 %: this is three times that."""
    found = coverage.true_sigmoid(200, 0.5, "platt", 500)
    assert found["not_fitted"] == 0
    np.testing.assert_allclose(shares(found), 0.95, atol=0.03)


def test_a_wrong_curve_and_clusters_need_the_sandwich(coverage):
    curve = "steep, and 5 % of labels wrong"
    found = coverage.wrong_curve(curve, 1_000, 300)
    assert shares(found["inverse Hessian"])[0] < 0.9
    np.testing.assert_allclose(shares(found["sandwich"]), 0.95, atol=0.04)
    found = coverage.clustered(1_000, 300)
    assert shares(found["sandwich"])[-1] < 0.93
    np.testing.assert_allclose(shares(found["by cluster"]), 0.95, atol=0.04)


def test_the_best_sigmoid_of_a_sigmoid_is_itself(coverage):
    found = coverage.best_sigmoid(pj.Sigmoid(-1.5, 0.4).predict_proba(coverage._NODES))
    assert found.A == pytest.approx(-1.5, abs=1e-6) and found.B == pytest.approx(0.4, abs=1e-6)


def test_the_committed_figures(coverage):
    """What README and docstrings may say: within 93 % to 97 % from 200 balanced rows on."""
    found = json.loads(COMMITTED.read_text())
    assert found["problems"] == 2_000 and not found["machine"]["uncommitted_changes"]
    assert coverage.report(found) == COMMITTED.with_suffix(".md").read_text()
    for x in found["sigmoid"]:
        if x["rate"] == 0.5 and x["rows"] >= 200:
            np.testing.assert_allclose(shares(x), 0.95, atol=0.02)
