"""The calibration step beside CalibratedClassifierCV's: ``python -m benchmarks.sklearn_doors``.

Both classes calibrate the same scores of a classifier that is frozen, and whose decision function
only hands them over, so that what is timed is the calibration and what each class does around it.
They take turns, and their probabilities are compared before any time is told.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import clock, machine
from platt_jax.sklearn import PlattCalibratedClassifier

AGREEMENT = 1e-5
SETS: dict[str, Callable[[], Any]] = {
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "100 classes": lambda: make_classification(
        10_000, 50, n_informative=30, n_classes=100, n_clusters_per_class=1, random_state=0
    ),
}


class ScoresAsFeatures(ClassifierMixin, BaseEstimator):
    """A classifier whose features are its decision function's values."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X[:, 0] if X.shape[1] == 1 else X

    def predict(self, X):
        raise NotImplementedError  # scikit-learn asks for it, and does not call it


def scores_and_labels(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The decision values of a linear classifier for the half of the rows it has not seen."""
    X, y = SETS[name]()
    X, X_scored, y, y_scored = train_test_split(X, y, test_size=0.5, random_state=0)
    linear = make_pipeline(StandardScaler(), SGDClassifier(random_state=0)).fit(X, y)
    return linear.decision_function(X_scored).reshape(len(y_scored), -1), y_scored


def measure(name: str, method: str, ensemble: bool, repeats: int) -> dict[str, Any]:
    scores, labels = scores_and_labels(name)
    base = FrozenEstimator(ScoresAsFeatures().fit(scores, labels))
    arguments = dict(method=method, ensemble=ensemble)
    ours = PlattCalibratedClassifier(base, **arguments)
    theirs = CalibratedClassifierCV(base, **arguments)
    found = ours.fit(scores, labels).predict_proba(scores)
    difference = np.abs(found - theirs.fit(scores, labels).predict_proba(scores)).max()
    if not difference < AGREEMENT:
        raise RuntimeError(f"{name}, {method}: probabilities differ by {difference}")
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(repeats):
        for who, model in (("ours", ours), ("theirs", theirs)):
            sample = clock.sample(lambda model=model: model.fit(scores, labels), calls=3, tries=2)
            seconds[who].append(sample.seconds)
    return {
        "set": name,
        "method": method,
        "ensemble": ensemble,
        "rows": len(labels),
        "classes": len(base.classes_),
        "largest_difference": float(difference),
        "seconds": median(seconds["ours"]),
        "scikit_learn_seconds": median(seconds["theirs"]),
        "times_faster": median(seconds["theirs"]) / median(seconds["ours"]),
        "times_faster_best": min(seconds["theirs"]) / min(seconds["ours"]),
        "seconds_all": seconds["ours"],
        "scikit_learn_seconds_all": seconds["theirs"],
    }


def main(arguments: Sequence[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results" / "sklearn_doors.json"
    )
    given = parser.parse_args(arguments)
    report: dict[str, Any] = {"machine": machine.describe(), "results": []}
    for name in given.only:
        for method in ("sigmoid", "temperature"):
            for ensemble in (False, True):
                found = measure(name, method, ensemble, given.repeats)
                report["results"].append(found)
                short = {k: v for k, v in found.items() if not k.endswith("_all")}
                print(json.dumps(short), flush=True)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
