"""Platt (1999): ``python -m benchmarks.papers.platt1999 --data DIR``.

Raw SVM, SVM with a sigmoid, and regularised likelihood with the same kernel: errors and log scores
on Reuters, Adult and Web; and his two figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.svm import SVC

import platt_jax as pj
from benchmarks.papers import report, sets
from benchmarks.papers.kernel_machines import (
    held_out_scores,
    quadratic_features,
    regularized_likelihood,
    thirds,
)
from benchmarks.papers.platt_report import Task, draw, measure, render

_SETS = {"adult": "a9a", "web": "w8a"}
_TRAINING_ROWS = {"adult": 32_561, "web": 49_749}
# Our choice: the paper set C by a held-out set, and the kernel's scale to the average of x.x.
_SVM_COSTS = {"adult_linear": 0.05, "adult_quad": 0.5, "web_linear": 1.0, "web_quad": 1.0}
_SCALES = {"adult": 14, "web": 12}
_LIKELIHOOD_COSTS = (0.1, 1.0, 10.0, 100.0)


def main(argv: Sequence[str] | None = None) -> None:
    args = report.arguments("platt1999", __doc__, argv)
    tasks = [_reuters(args.data, args.quick)]
    for name in ("adult", "web"):
        if not (args.quick and name == "web"):
            tasks += _kernel_tasks(args.data, name, args.quick)
    tasks = [task for task in tasks if task is not None]
    drawn = next(task for task in tasks if task.name == "Adult linear")
    report.write(args, "platt1999", [measure(task) for task in tasks], render, draw(drawn))


def _reuters(folder: Path | None, quick: bool) -> Task | None:
    """A sigmoid per topic, in one call; None without the file, for OpenML has no such set."""
    found = sets.read(folder, "reuters_modapte")
    if found is None:
        return None
    topics, scores, is_test = found["topics"], found["svm_scores"], found["is_test"]
    # Topics with fewer than three documents to train by have no held-out scores.
    usable = np.isfinite(scores).all(axis=0)
    if quick:
        usable &= np.cumsum(usable) <= 10
    scores, labels = scores[:, usable].T.astype(np.float64), topics[:, usable].T == 1
    sigmoid = pj.fit(scores[:, ~is_test], labels[:, ~is_test]).raise_if_failed().sigmoid
    return Task(
        name="Reuters linear",
        n_train=f"{len(scores)} x {np.sum(~is_test):,}",
        labels=labels[:, is_test].ravel(),
        scores=scores[:, is_test].ravel(),
        sigmoid=sigmoid.logit(scores[:, is_test]).ravel(),
        likelihood=None,
        thresholds=-sigmoid.B / sigmoid.A,
    )


def _kernel_tasks(folder: Path | None, name: str, quick: bool) -> list[Task]:
    """Linear and quadratic kernel on one set."""
    X, labels = sets.features(folder, _SETS[name])
    given = sets.read(folder, "platt1999_scores")
    found = given or report.kept(
        f"platt1999-{name}", (X.data, X.indices, labels, "1"), lambda: _svm_scores(X, labels, name)
    )
    fold = found[f"{name}_fold"]
    if quick:
        few = np.random.default_rng(0).permutation(len(labels))[:3_000]
        X, labels, fold = X[few], labels[few], fold[few]
        found = {
            f"{name}_{kernel}": found[f"{name}_{kernel}"][few] for kernel in ("linear", "quad")
        }
    linear, quad = (found[f"{name}_{kernel}"].astype(np.float64) for kernel in ("linear", "quad"))
    title = name.capitalize()
    return [
        _kernel_task(f"{title} linear", linear, fold, X, labels),
        _kernel_task(
            f"{title} quadratic", quad, fold, quadratic_features(X, _SCALES[name]), labels
        ),
    ]


def _kernel_task(name, scores, fold, X, labels) -> Task:
    """Test rows are those of fold -1; without any, each of the three folds in its turn."""
    has_test = np.any(fold == -1)
    held_out = np.stack([fold == k for k in ((-1,) if has_test else (0, 1, 2))])
    fit = pj.fit(np.broadcast_to(scores, held_out.shape), labels, weights=1.0 * ~held_out)
    sigmoid = fit.raise_if_failed().sigmoid
    by_problem = sigmoid.logit(np.broadcast_to(scores, held_out.shape))
    by_likelihood, costs = np.empty(len(labels)), []
    for rows in held_out:
        model = regularized_likelihood(X[~rows], labels[~rows], _LIKELIHOOD_COSTS)
        by_likelihood[rows] = model.decision_function(X[rows])
        costs.append(f"{model.C:g}")
    tested = held_out.any(axis=0)
    first = ~held_out[0]
    return Task(
        name=name,
        n_train=f"{first.sum():,}" if has_test else f"3 x {first.sum():,}",
        labels=labels[tested] == 1,
        scores=scores[tested],
        sigmoid=np.where(held_out, by_problem, 0).sum(axis=0)[tested],
        likelihood=by_likelihood[tested],
        thresholds=-sigmoid.B / sigmoid.A,
        costs=", ".join(costs),
        drawn=(scores[first], labels[first] == 1, pj.Sigmoid(sigmoid.A[0], sigmoid.B[0])),
    )


def _svm_scores(X, labels: np.ndarray, name: str) -> dict[str, np.ndarray]:
    """Scores of training rows by 3-fold cross-validation, of test rows by the SVM of all those."""
    train = np.arange(len(labels)) < _TRAINING_ROWS[name]
    fold = np.full(len(labels), -1, np.int8)
    for k, (_, rows) in enumerate(thirds().split(np.zeros(train.sum()), labels[train])):
        fold[rows] = k
    out = {f"{name}_fold": fold}
    for kernel, more in {
        "linear": {"kernel": "linear"},
        "quad": {"kernel": "poly", "degree": 2, "gamma": 1 / _SCALES[name], "coef0": 1},
    }.items():
        svm = SVC(C=_SVM_COSTS[f"{name}_{kernel}"], cache_size=1_000, **more)
        scores = np.empty(len(labels))
        scores[train] = held_out_scores(svm, X[train], labels[train], thirds())
        if not train.all():
            scores[~train] = svm.fit(X[train], labels[train]).decision_function(X[~train])
        out[f"{name}_{kernel}"] = scores
    return out


if __name__ == "__main__":
    main()
