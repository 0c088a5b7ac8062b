"""Which calibration curve: ``python -m benchmarks.papers.curves --data DIR``.

Classifiers are trained on part of each data set. Each curve is fitted to their scores of some
left-out rows, 30 to 3,000, and judged by log loss and Brier score on other rows. All experiments of
a curve are segments of one call of `fit_segments`. Differences are from the sigmoid.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from scipy.sparse import issparse
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import platt_jax as pj
from benchmarks import machine
from benchmarks.papers.sets import features
from platt_jax import curves

_RESULTS = Path(__file__).parents[1] / "results" / "papers" / "curves.json"
_SIZES = (30, 100, 300, 1_000, 3_000)
_SEEDS = 5
_MOST_TRAINED, _MOST_JUDGED = 2_000, 4_000
_MOST_SPARSE = 12_000
_CURVES = {
    **{x: x for x in ("sigmoid", "temperature", "quadratic", "beta", "spline", "isotonic")},
    "isotonic, centred": curves.Isotonic(centered=True),
    "bins": "bins",
    "Venn-Abers": "venn_abers",
}
# Name of the file, and which classes count as positive.
_FILES = {
    "diabetes": (1,),
    "ionosphere": (1,),
    "liver": (1,),
    "sonar": (1,),
    "promoters": (1,),
    "mushroom": (1,),
    "a9a": (1,),
    "w8a": (1,),
    "shuttle": (1,),
    "letter": tuple(range(1, 14)),
    "optdigits": (1, 3, 5, 7, 9),
    "covtype_sample": (2,),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="the directory of the data sets")
    parser.add_argument("--seeds", type=int, default=_SEEDS)
    arguments = parser.parse_args()
    experiments = [
        x
        for name, (X, y) in sets(Path(arguments.data)).items()
        for seed in range(arguments.seeds)
        for x in experiments_of(name, X, y, seed)
    ]
    lines = judged(experiments)
    by_size = {str(size): summary(lines, size) for size in _SIZES}
    told = {
        "machine": machine.describe(),
        "sets": sorted({x["set"] for x in experiments}),
        "classifiers": sorted({x["classifier"] for x in experiments}),
        "experiments": len(experiments),
        "by rows": by_size,
    }
    _RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    for size, found in by_size.items():
        print(size, json.dumps(found, indent=1), flush=True)


def sets(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Features and binary labels, by name."""
    found = {}
    for name, positive in _FILES.items():
        if (folder / f"{name}.npz").exists():
            X, y = features(folder, name)
            if issparse(X):
                some = np.random.default_rng(0).permutation(len(y))[:_MOST_SPARSE]
                X, y = X[some].toarray(), y[some]
            found[name] = X, np.isin(y, positive)
    for name, load, positive in (
        ("breast_cancer", load_breast_cancer, (1,)),
        ("digits", load_digits, (5, 6, 7, 8, 9)),
        ("wine", load_wine, (1,)),
    ):
        X, y = load(return_X_y=True)
        found[name] = X, np.isin(y, positive)
    return found


def experiments_of(name: str, X: np.ndarray, y: np.ndarray, seed: int) -> list[dict]:
    """Scores of left-out rows by each classifier: some to calibrate, others to judge."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    trained = min(len(y) // 3, _MOST_TRAINED)
    judged_rows = min(len(y) // 3, _MOST_JUDGED)
    train, test, rest = np.split(order, [trained, trained + judged_rows])
    if len(np.unique(y[train])) < 2:
        return []
    made = []
    classifiers = {
        "naive Bayes": GaussianNB(),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "linear SVM": make_pipeline(StandardScaler(), LinearSVC()),
        "random forest": RandomForestClassifier(100, random_state=seed),
        "boosted trees": HistGradientBoostingClassifier(random_state=seed),
    }
    for kind, classifier in classifiers.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier.fit(X[train], y[train])
            scores = scores_of(classifier, X[np.concatenate([rest, test])])
        for size in _SIZES:
            if size <= len(rest):
                made.append(
                    {
                        "set": name,
                        "classifier": kind,
                        "rows": size,
                        "scores": scores[:size],
                        "labels": y[rest[:size]],
                        "test": (scores[len(rest) :], y[test]),
                    }
                )
    return made


def scores_of(classifier, X: np.ndarray) -> np.ndarray:
    """Log-odds, or the decision function of a classifier without probabilities."""
    if hasattr(classifier, "predict_proba"):
        # In forests and trees all votes may agree: half a vote of 100.
        return pj.logit(np.clip(classifier.predict_proba(X)[:, 1], 0.005, 0.995))
    return classifier.decision_function(X)


def judged(experiments: list[dict]) -> list[dict]:
    """For each experiment the loss and the Brier score of each curve on other rows."""
    numbers = np.arange(len(experiments))
    segments = np.repeat(numbers, [x["rows"] for x in experiments])
    scores, labels = (
        np.concatenate([x[name] for x in experiments]) for name in ("scores", "labels")
    )
    test_segments = np.repeat(numbers, [len(x["test"][1]) for x in experiments])
    test_scores, test_labels = (np.concatenate([x["test"][i] for x in experiments]) for i in (0, 1))
    lines = [{name: x[name] for name in ("set", "classifier", "rows")} for x in experiments]
    for name, curve in _CURVES.items():
        made = pj.fit_segments(scores, labels, segments, curve=curve)
        p = made.predict_proba(test_scores, test_segments)
        clipped = np.clip(p, 1e-12, 1 - 1e-12)
        loss = -np.where(test_labels, np.log(clipped), np.log1p(-clipped))
        for metric, x in (("log loss", loss), ("Brier", (p - test_labels) ** 2)):
            means = np.bincount(test_segments, x) / np.bincount(test_segments)
            for line, mean in zip(lines, means, strict=True):
                line[metric, name] = mean
    return lines


def summary(lines: list[dict], rows: int) -> dict[str, dict[str, float]]:
    """By curve: mean differences from the sigmoid, and how often it is better."""
    mine = [x for x in lines if x["rows"] == rows]
    groups = np.unique([x["set"] for x in mine], return_inverse=True)[1]
    found: dict[str, dict[str, float]] = {"experiments": len(mine), "sets": int(groups.max()) + 1}
    for name in _CURVES:
        one: dict[str, float] = {}
        for metric in ("log loss", "Brier"):
            apart = np.array([x[metric, name] - x[metric, "sigmoid"] for x in mine])
            each = np.bincount(groups, apart) / np.bincount(groups)  # by data set
            one[f"{metric}, difference"] = round(float(each.mean()), 5)
            one[f"{metric}, standard error"] = round(float(each.std() / np.sqrt(len(each))), 5)
            one[f"{metric}, better"] = round(float((apart < 0).mean()), 3)
        found[name] = one
    return found


if __name__ == "__main__":
    main()
