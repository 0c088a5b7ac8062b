"""Scores of left-out rows, for the comparison of curves: data sets and classifiers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import issparse
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import platt_jax as pj
from benchmarks.papers.sets import features, read

_MOST_TRAINED, _MOST_JUDGED = 2_000, 8_000
_MOST_ROWS = 42_000
_MOST_FLIGHTS = 112_000
# Problems of two classes: the data set, and the classes that count as positive.
BINARY = {
    "diabetes": ("diabetes", (1,)),
    "ionosphere": ("ionosphere", (1,)),
    "liver": ("liver", (1,)),
    "sonar": ("sonar", (1,)),
    "promoters": ("promoters", (1,)),
    "mushroom": ("mushroom", (1,)),
    "a9a": ("a9a", (1,)),
    "w8a": ("w8a", (1,)),
    "shuttle": ("shuttle", (1,)),
    "letter, A to M": ("letter", tuple(range(1, 14))),
    "letter, vowels": ("letter", (1, 5, 9, 15, 21)),
    "optdigits, odd": ("optdigits", (1, 3, 5, 7, 9)),
    "optdigits, 8": ("optdigits", (8,)),
    "covertype, lodgepole": ("covtype_sample", (2,)),
    "covertype, high": ("covtype_sample", (1, 7)),
    "breast cancer": ("breast cancer", (1,)),
    "digits, 5 to 9": ("digits", (5, 6, 7, 8, 9)),
    "wine": ("wine", (1,)),
    "iris": ("iris", (1,)),
    "disease progression": ("disease progression", (1,)),
    "flights": ("nycflights", (1,)),
}
# Sets of several classes, and of Reuters the topics of which scores are in the file.
CLASSES = "optdigits", "digits", "letter", "covtype_sample", "wine", "iris"
_TOPICS = "earn", "money-fx"


@dataclass(frozen=True)
class Scored:
    """Scores of a classifier for left-out rows: some to calibrate, others to judge."""

    set: str
    source: str
    classifier: str
    scores: np.ndarray
    labels: np.ndarray
    test_scores: np.ndarray
    test_labels: np.ndarray


def classifiers(seed: int) -> dict[str, object]:
    return {
        "naive Bayes": GaussianNB(),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "linear SVM": make_pipeline(StandardScaler(), LinearSVC()),
        "random forest": RandomForestClassifier(100, random_state=seed),
        "boosted trees": HistGradientBoostingClassifier(random_state=seed),
        "neural network": make_pipeline(
            StandardScaler(), MLPClassifier((32,), max_iter=100, random_state=seed)
        ),
    }


def binary(folder: Path, seed: int, problems: Iterable[str] = tuple(BINARY)) -> Iterator[Scored]:
    """The scores of all classifiers in problems of two classes, and of Reuters' topics."""
    for name in problems:
        source, positive = BINARY[name]
        X, y = _features(folder, source)
        yield from _scored(name, source, X, np.isin(y, positive), seed, _log_odds)
    reuters = read(folder, "reuters_modapte")
    if reuters is None:
        return
    for topic in _TOPICS:
        column = reuters["topic_names"].tolist().index(topic)
        scores, labels = (reuters[x][:, column] for x in ("svm_scores", "topics"))
        test = reuters["is_test"]
        some = np.random.default_rng(seed).permutation(np.flatnonzero(~test))
        yield Scored(
            f"reuters, {topic}",
            "reuters",
            "linear SVM",
            scores[some].astype(float),
            labels[some] == 1,
            scores[test].astype(float),
            labels[test] == 1,
        )


def several(folder: Path, seed: int) -> Iterator[Scored]:
    """The logits of all classifiers in all sets of several classes."""
    for name in CLASSES:
        X, y = _features(folder, name)
        yield from _scored(name, name, X, np.unique(y, return_inverse=True)[1], seed, _logits)


def _features(folder: Path, source: str) -> tuple[np.ndarray, np.ndarray]:
    if source == "nycflights":
        return _flights(folder)
    if source == "disease progression":
        X, y = datasets.load_diabetes(return_X_y=True)
        return X, y > np.median(y)
    if source in ("breast cancer", "digits", "wine", "iris"):
        load: Callable = getattr(datasets, f"load_{source.replace(' ', '_')}")
        return load(return_X_y=True)
    X, y = features(folder, source)
    some = np.random.default_rng(0).permutation(len(y))[:_MOST_ROWS]
    return (X[some].toarray() if issparse(X) else X[some]), y[some]


def _flights(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    found = read(folder, "nycflights")
    if found is None:
        raise FileNotFoundError(f"{folder}/nycflights.npz")
    some = np.random.default_rng(0).permutation(len(found["y"]))[:_MOST_FLIGHTS]
    names = np.stack([found[f"seg_{x}"][some] for x in ("carrier", "origin")], 1)
    times = np.stack([found[x][some].astype(float) for x in ("hour", "doy")], 1)
    return np.hstack([OneHotEncoder(sparse_output=False).fit_transform(names), times]), found["y"][
        some
    ]


def _scored(
    name: str, source: str, X: np.ndarray, y: np.ndarray, seed: int, score: Callable
) -> Iterator[Scored]:
    order = np.random.default_rng(seed).permutation(len(y))
    trained, tested = (min(len(y) // 3, most) for most in (_MOST_TRAINED, _MOST_JUDGED))
    train, test, rest = np.split(order, [trained, trained + tested])
    if len(np.unique(y[train])) < len(np.unique(y)):
        return
    for kind, classifier in classifiers(seed).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier.fit(X[train], y[train])
            scores = score(classifier, X[np.concatenate([rest, test])])
        calibration, others = np.split(scores, [len(rest)])
        yield Scored(name, source, kind, calibration, y[rest], others, y[test])


def _log_odds(classifier, X: np.ndarray) -> np.ndarray:
    """Log-odds, or the decision function of a classifier without probabilities."""
    if hasattr(classifier, "predict_proba"):
        # In forests and trees all votes may agree: half a vote of 100.
        return pj.logit(np.clip(classifier.predict_proba(X)[:, 1], 0.005, 0.995))
    return classifier.decision_function(X)


def _logits(classifier, X: np.ndarray) -> np.ndarray:
    if hasattr(classifier, "predict_proba"):
        return np.log(np.clip(classifier.predict_proba(X), 0.005, 1))
    return classifier.decision_function(X)
