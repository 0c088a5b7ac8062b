"""Which calibration of several classes: ``python -m benchmarks.papers.class_curves --data DIR``.

As `benchmarks.papers.curves`, for sets of several classes. Each method is fitted to the logits of
some left-out rows, and judged by log loss and Brier score on other rows. Differences are from
sigmoids, one for each class against the others, normalised.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import platt_jax as pj
from benchmarks import machine
from benchmarks.papers.curve_sets import Scored, several
from platt_jax import metrics
from platt_jax.sklearn.coupling import couple

_RESULTS = Path(__file__).parents[1] / "results" / "papers" / "class_curves.json"
_SIZES = (100, 300, 1_000, 3_000)
_METHODS = "sigmoids", "coupling", "temperature", "temperature_bias", "vector"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="the directory of the data sets")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    about = machine.describe()
    lines = []
    for seed in range(arguments.seeds):
        for x in several(Path(arguments.data), seed):
            lines += [judged(x, size) for size in _SIZES if len(x.labels) >= size]
        told = {
            "machine": about,
            "seeds": seed + 1,
            "sets": sorted({x["set"] for x in lines}),
            "experiments": len(lines),
            "by rows": {str(size): summary(lines, size) for size in _SIZES},
        }
        _RESULTS.write_text(json.dumps(told, indent=1) + "\n")
        print(f"seed {seed}: {len(lines)} experiments", flush=True)


def judged(x: Scored, size: int) -> dict:
    """The log loss and Brier score of each method on other rows."""
    line: dict = {"set": x.source, "rows": size}
    classes = np.arange(x.scores.shape[1])
    for method in _METHODS:
        p = probabilities(x, size, method, classes)
        for name, metric in (
            ("log loss", metrics.multiclass_log_loss),
            ("Brier", metrics.multiclass_brier_score),
        ):
            line[name, method] = float(metric(x.test_labels, p, classes=classes).value)
    return line


def probabilities(x: Scored, size: int, method: str, classes: np.ndarray) -> np.ndarray:
    """Of the rows to judge, by a method fitted to the first rows."""
    f, y, at = x.scores[:size], x.labels[:size], x.test_scores
    if method == "sigmoids":
        if x.classifier != "linear SVM":  # log-probabilities
            f, at = (pj.logit(np.minimum(np.exp(z), 0.995)) for z in (f, at))
        made = pj.fit_one_vs_rest(f, y, classes=classes)
        return made.predict_proba(at)
    if method == "coupling":
        i, j = np.triu_indices(len(classes), 1)
        either = (y == i[:, None]) | (y == j[:, None])
        pairs = pj.fit((f[:, i] - f[:, j]).T, y == i[:, None], weights=either.astype(float))
        p = pairs.sigmoid.predict_proba((at[:, i] - at[:, j]).T).T
        return couple(np.nan_to_num(p, nan=0.5))  # a pair without rows
    return pj.fit_multiclass(f, y, model=method, classes=classes).predict_proba(at)


def summary(lines: list[dict], rows: int) -> dict:
    """By method: mean differences from sigmoids, over data sets."""
    mine = [x for x in lines if x["rows"] == rows]
    groups = np.unique([x["set"] for x in mine], return_inverse=True)[1]
    told: dict = {"experiments": len(mine), "sets": int(groups.max()) + 1}
    for method in _METHODS[1:]:
        told[method] = {}
        for name in ("log loss", "Brier"):
            apart = np.array([x[name, method] - x[name, "sigmoids"] for x in mine])
            each = np.bincount(groups, apart) / np.bincount(groups)
            error = each.std(ddof=1) / np.sqrt(len(each))
            told[method] |= {
                f"{name}, difference": round(float(each.mean()), 5),
                f"{name}, standard error": round(float(error), 5),
                f"{name}, better": round(float((apart < 0).mean()), 3),
            }
    return told


if __name__ == "__main__":
    main()
