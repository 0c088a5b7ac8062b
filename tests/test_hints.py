"""What fits say once where scores look like probabilities."""

import warnings

import numpy as np
import pytest

import platt_jax as pj
from platt_jax.execution.caller import Caller

HINT = r"scores: all lie in \[0, 1\]. If they are probabilities p, fit and predict by their logits"


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch):
    monkeypatch.setattr(Caller, "_told_once", set())


@pytest.fixture
def rows(rng):
    proba = rng.random(600)
    return proba, rng.random(600) < proba, np.arange(600) % 3


def calls(f, y, s):
    columns = np.stack([f, f, f], 1)
    return {
        "fit": lambda: pj.fit(f, y),
        "fit of a batch": lambda: pj.fit(f.reshape(2, -1), y.reshape(2, -1)),
        "fit_segments": lambda: pj.fit_segments(f, y, s),
        "SegmentRows": lambda: pj.SegmentRows(f, y, s),
        "fit_one_vs_rest": lambda: pj.fit_one_vs_rest(columns, s),
    }


@pytest.mark.parametrize("name", calls(np.zeros(1), None, None))
def test_probabilities_for_scores_get_a_hint_once(rows, name):
    call = calls(*rows)[name]
    with pytest.warns(RuntimeWarning, match=HINT) as record:
        made = call()
    assert len(record) == 1 and record[0].filename == __file__
    again = call()  # in silence
    assert name == "SegmentRows" or again == made


def test_other_scores_get_none(rows):
    proba, labels, segments = rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scores in (
            np.log(proba / (1 - proba)),
            proba * 2,
            np.where(np.arange(600) == 599, 1.5, proba),
            np.where(np.arange(600) == 599, -1e-9, proba),
            (proba > 0.5).astype(float),
        ):
            for call in calls(scores, labels, segments).values():
                call()
        pj.fit(proba[:99], labels[:99])
