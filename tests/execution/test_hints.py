"""What fits say once where scores look like probabilities."""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

import platt_jax as pj
from platt_jax import streaming
from platt_jax.caller import Caller

HINT = (
    r"scores: all lie in \[0, 1\]. If they are probabilities p, fit and predict by their log-odds"
)


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch):
    monkeypatch.setattr(Caller, "_warned_once", set())


@pytest.fixture
def rows(rng):
    proba = rng.random(600)
    return proba, rng.random(600) < proba, np.arange(600) % 3


def streamed(batches):
    with tempfile.TemporaryDirectory() as folder:
        return pj.fit_segments(streaming.rows(batches, Path(folder) / "rows", key="made up"))


def calls(f, y, s):
    columns = np.stack([f, f, f], 1)
    batches = [(f[i::7], y[i::7], s[i::7]) for i in range(7)]
    return {
        "fit": lambda: pj.fit(f, y),
        "fit of a batch": lambda: pj.fit(f.reshape(2, -1), y.reshape(2, -1)),
        "fit_segments": lambda: pj.fit_segments(f, y, s),
        "SegmentRows": lambda: pj.SegmentRows(f, y, s),
        "fit_one_vs_rest": lambda: pj.fit_one_vs_rest(columns, s),
        "streaming": lambda: streamed(batches),
    }


@pytest.mark.parametrize("name", calls(*np.zeros((3, 7))))
def test_probabilities_for_scores_get_a_hint_once(rows, name):
    call = calls(*rows)[name]
    with pytest.warns(RuntimeWarning, match=HINT) as record:
        made = call()
    assert len(record) == 1 and record[0].filename == __file__
    again = call()  # in silence
    assert name == "SegmentRows" or again == made


@pytest.mark.parametrize("name", calls(*np.zeros((3, 7))))
@pytest.mark.parametrize(
    ("start", "times"),
    [
        ([np.nan], 1),
        ([np.inf, -np.inf], 1),
        ([np.nan] * 120, 1),
        ([np.nan] * 120 + [1.5], 0),
        ([-np.inf, np.nan, -1e-9], 0),
        ([np.nan] * 580, 0),
    ],
    ids=["NaN", "infinite", "the first few", "one above", "one below", "too few left"],
)
def test_the_finite_scores_decide(rows, name, start, times):
    proba, labels, segments = rows
    proba[: len(start)] = start
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        calls(proba, labels, segments)[name]()
    assert sum(str(warning.message).startswith("scores: all lie") for warning in record) == times


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
