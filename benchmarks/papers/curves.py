"""Which calibration curve: ``python -m benchmarks.papers.curves --data DIR``.

Classifiers are trained on part of each data set. Each curve is fitted to their scores of some
left-out rows, 30 to 100,000, and judged by log loss and Brier score on other rows. The experiments
of a number of rows are one batch. Differences are from the sigmoid.

Rules that choose a curve by 5-fold cross-validation of the calibration rows are judged beside:

- "auto": the first curve whose loss is within a standard error of the least (`choose_curve`).
- "auto, two ways": the least loss, or the sigmoid within a standard error of it
  (`PlattCalibratedClassifier`).
- "least loss": without a standard error.
- "stacked": the mixture of all that has the least loss (Wolpert 1992, "Stacked generalization").

"Venn-Abers" behind a rule: instead of isotonic curves it may choose these.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TypeAlias

import numpy as np

import platt_jax as pj
from benchmarks import machine
from benchmarks.papers.curve_sets import Scored, binary
from platt_jax import curves

_RESULTS = Path(__file__).parents[1] / "results" / "papers" / "curves.json"
_SIZES = (30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
_SEEDS, _FOLDS, _STEPS = 5, 5, 100
_CURVES = {
    **{x: x for x in ("sigmoid", "temperature", "quadratic", "beta", "spline", "isotonic")},
    "isotonic, centred": curves.Isotonic(centered=True),
    "bins": "bins",
    "Venn-Abers": "venn_abers",
}
_CANDIDATES = "sigmoid", "quadratic", "beta", "spline", "isotonic"
_BOUNDED = *_CANDIDATES[:4], "Venn-Abers"
_RULES = (
    "auto",
    "auto, two ways",
    "least loss",
    "stacked",
    "auto, Venn-Abers",
    "stacked, Venn-Abers",
)

# By metric and curve or rule: a number for each experiment.
Losses: TypeAlias = dict[tuple[str, str], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="the directory of the data sets")
    parser.add_argument("--seeds", type=int, default=_SEEDS)
    arguments = parser.parse_args()
    about = machine.describe()
    found: dict[int, list[Losses]] = {size: [] for size in _SIZES}
    sources: dict[int, list[str]] = {size: [] for size in _SIZES}
    for seed in range(arguments.seeds):
        scored = list(binary(Path(arguments.data), seed))
        for size in _SIZES:
            if mine := [x for x in scored if len(x.labels) >= size]:
                found[size].append(losses(mine, size))
                sources[size] += [x.source for x in mine]
        told = {
            "machine": about,
            "seeds": seed + 1,
            "problems": sorted({x.set for x in scored}),
            "sets": sorted({x.source for x in scored}),
            "classifiers": sorted({x.classifier for x in scored}),
            "experiments": sum(map(len, sources.values())),
            "by rows": {
                str(size): summary(sources[size], parts) for size, parts in found.items() if parts
            },
        }
        # After each seed, so that a run that is stopped has told what it found.
        _RESULTS.write_text(json.dumps(told, indent=1) + "\n")
        print(f"seed {seed}: {told['experiments']} experiments", flush=True)


def losses(scored: list[Scored], size: int) -> Losses:
    """By metric and curve or rule: the loss of each experiment on other rows."""
    f, y = (np.stack([getattr(x, name)[:size] for x in scored]) for name in ("scores", "labels"))
    test = np.array([len(x.test_labels) for x in scored])
    judged = np.arange(test.max()) < test[:, None]
    test_f, test_y = np.zeros(judged.shape), np.zeros(judged.shape, bool)
    test_f[judged] = np.concatenate([x.test_scores for x in scored])
    test_y[judged] = np.concatenate([x.test_labels for x in scored])

    def predicted(name: str, f, y, at) -> np.ndarray:
        return pj.fit(f, y, curve=_CURVES[name]).predict_proba(at)

    p = {name: predicted(name, f, y, test_f) for name in _CURVES}
    folds = _folds(f, y)
    left_out = {name: _flat(predicted(name, *folds[:3])) for name in (*_CANDIDATES, "Venn-Abers")}
    for kinds, suffix in ((_CANDIDATES, ""), (_BOUNDED, ", Venn-Abers")):
        weights = rules(np.stack([left_out[name] for name in kinds]), _flat(folds[3]))
        for rule, w in weights.items():
            if rule + suffix in _RULES:
                each = zip(kinds, w, strict=True)
                p[rule + suffix] = sum(share[:, None] * p[kind] for kind, share in each)
    made = {}
    for name, x in p.items():
        for metric, loss in (("log loss", log_loss(x, test_y)), ("Brier", (x - test_y) ** 2)):
            made[metric, name] = np.where(judged, loss, 0).sum(1) / test
    return made


def _flat(x: np.ndarray) -> np.ndarray:
    """(folds, K, rows) as (K, folds * rows)."""
    return np.concatenate(list(x), -1)


def _folds(f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Scores and labels (folds, K, rows) of the other folds' rows, and then of the fold's.

    Rows of each experiment and label are dealt to the folds at random.
    """
    order = np.lexsort((np.random.default_rng(0).random(y.shape), y), axis=1)
    dealt = [np.take_along_axis(x, order, 1).reshape(len(f), -1, _FOLDS) for x in (f, y)]
    others = [
        np.stack([np.delete(x, part, 2).reshape(len(f), -1) for part in range(_FOLDS)])
        for x in dealt
    ]
    return (*others, *(np.moveaxis(x, 2, 0) for x in dealt))


def log_loss(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return -np.where(y, np.log(p), np.log1p(-p))


def rules(p: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """By rule: (C, K) the weight of each candidate.

    Args:
        p: (C, K, size) probabilities of left-out rows, by candidate.
        y: (K, size) their labels.
    """
    loss = log_loss(p, y)
    best = loss.mean(2).argmin(0)
    apart = loss - np.take_along_axis(loss, best[None, :, None], 0)
    near = apart.mean(2) <= apart.std(2) / np.sqrt(y.shape[1])
    chosen = {
        "auto": near.argmax(0),
        "auto, two ways": np.where(near[0], 0, best),
        "least loss": best,
    }
    made = {name: np.eye(len(p))[:, place] for name, place in chosen.items()}
    # The mixture's weights, by expectation and maximization.
    right = np.clip(np.where(y, p, 1 - p), 1e-12, None)
    w = np.full((len(p), len(y)), 1 / len(p))
    for _ in range(_STEPS):
        share = w[:, :, None] * right
        w = (share / share.sum(0)).mean(2)
    return made | {"stacked": w}


def summary(sources: list[str], parts: list[Losses]) -> dict[str, int | dict[str, float]]:
    """By curve and rule: mean differences from the sigmoid, and how often it is better."""
    found = {key: np.concatenate([x[key] for x in parts]) for key in parts[0]}
    groups = np.unique(sources, return_inverse=True)[1]
    told: dict = {"experiments": len(sources), "sets": int(groups.max()) + 1}
    for name in (*_CURVES, *_RULES):
        one: dict[str, float] = {}
        for metric in ("log loss", "Brier"):
            told_of = _difference(found[metric, name] - found[metric, "sigmoid"], groups)
            one |= {f"{metric}, {what}": x for what, x in told_of.items()}
        told[name] = one
    apart = found["log loss", "stacked"] - found["log loss", "auto"]
    told["stacked, from auto"] = _difference(apart, groups)
    return told


def _difference(apart: np.ndarray, groups: np.ndarray) -> dict[str, float]:
    """The mean over data sets, its standard error, and the share of experiments below 0."""
    each = np.bincount(groups, apart) / np.bincount(groups)
    error = each.std(ddof=1) / np.sqrt(len(each)) if len(each) > 1 else 0.0
    return {
        "difference": round(float(each.mean()), 5),
        "standard error": round(float(error), 5),
        "better": round(float((apart < 0).mean()), 3),
    }


if __name__ == "__main__":
    main()
