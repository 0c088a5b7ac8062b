"""Platt's tables and figures: what `platt1999` writes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binomtest, rankdata, wilcoxon

import platt_jax as pj
from benchmarks.papers import report

_SIGNIFICANT = 0.05
_BIN = 0.1  # the width of the figures' bins
_FEWEST = 5  # rows in a bin whose share of class 1 is drawn


class Task(NamedTuple):
    """One line of his table: held-out rows of all its problems, end to end."""

    name: str
    n_train: str
    labels: np.ndarray  # (n,) bool
    scores: np.ndarray  # (n,) of the SVM
    sigmoid: np.ndarray  # (n,) log-odds by the fitted sigmoid
    likelihood: np.ndarray | None  # (n,) log-odds by regularised likelihood
    thresholds: np.ndarray  # the scores at which the sigmoids say 1/2
    costs: str = "-"  # C of regularised likelihood, for each problem
    drawn: tuple[np.ndarray, np.ndarray, pj.Sigmoid] | None = None  # a sigmoid, and what it saw


class Measured(NamedTuple):
    """What is reported of a task; by method or by pair of methods, those that there are."""

    name: str
    n_train: str
    n_test: int
    errors: dict[str, int]
    log_scores: dict[str, float]
    mcnemar: dict[str, float]  # p of a pair's errors
    wilcoxon: float | None  # p of the log scores of sigmoid and likelihood
    preferred: str | None  # of the two, by the ranks
    threshold: float  # the median of those of the sigmoids
    sigmoids: int
    costs: str


def measure(task: Task) -> Measured:
    """Errors, log scores and tests."""
    by = {"sigmoid": task.sigmoid, "likelihood": task.likelihood}
    by = {name: logits for name, logits in by.items() if logits is not None}
    wrong = {name: (x > 0) != task.labels for name, x in {"raw": task.scores, **by}.items()}
    p, preferred = (None, None) if task.likelihood is None else _rank_test(task)
    return Measured(
        name=task.name,
        n_train=task.n_train,
        n_test=len(task.labels),
        errors={name: rows.sum() for name, rows in wrong.items()},
        log_scores={name: _log_losses(logits, task.labels).sum() for name, logits in by.items()},
        mcnemar={f"{a}, {b}": _mcnemar(wrong[a], wrong[b]) for a, b in combinations(wrong, 2)},
        wilcoxon=p,
        preferred=preferred,
        threshold=np.median(task.thresholds),
        sigmoids=len(task.thresholds),
        costs=task.costs,
    )


def render(results: list[dict]) -> str:
    """The report."""
    tasks = [Measured(**one) for one in results]
    text = "# Platt (1999), the experiments\n\n" + _table(tasks) + _NOTES
    return text + "\n## What the paper says of it\n\n" + _claims(tasks)


def _log_losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, np.where(labels, -logits, logits))


def _mcnemar(a: np.ndarray, b: np.ndarray) -> float:
    """The exact test that two classifiers err equally often, from which rows they get wrong."""
    only_a, only_b = int(np.sum(a & ~b)), int(np.sum(b & ~a))
    return binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0


def _rank_test(task: Task) -> tuple[float, str]:
    """Wilcoxon's signed rank test of the log losses: p, and which method the ranks prefer."""
    difference = _log_losses(task.sigmoid, task.labels) - _log_losses(task.likelihood, task.labels)
    ranks = rankdata(np.abs(difference))
    preferred = "likelihood" if np.sum(np.sign(difference) * ranks) > 0 else "sigmoid"
    return wilcoxon(difference).pvalue, preferred


def _small(p: float) -> str:
    return f"{p:.2g}" if p > 1e-99 else "< 1e-99"


def ratio(task: Measured) -> float:
    """Of the log scores, sigmoid to likelihood."""
    return task.log_scores["sigmoid"] / task.log_scores["likelihood"]


def _table(tasks: list[Measured]) -> str:
    figures, tests = [], []
    for task in tasks:
        figures.append(
            (
                task.name,
                task.n_train,
                f"{task.n_test:,}",
                *(task.errors.get(m, "-") for m in _METHODS),
                *(_cell(task.log_scores, m, "{:,.0f}".format) for m in _METHODS[1:]),
            )
        )
        p = [_cell(task.mcnemar, f"{a}, {b}", _small) for a, b in combinations(_METHODS, 2)]
        ranks = "-" if task.wilcoxon is None else f"{_small(task.wilcoxon)}, {task.preferred}"
        tests.append((task.name, *p, ranks, task.costs))
    return (
        report.table(
            (
                "task",
                "training rows",
                "test rows",
                "errors: raw SVM",
                "SVM + sigmoid",
                "regularised likelihood",
                "-log score: SVM + sigmoid",
                "regularised likelihood",
            ),
            figures,
        )
        + "\nP-values: McNemar's exact test of the errors, Wilcoxon's of the log scores.\n\n"
        + report.table(
            (
                "task",
                "raw, sigmoid",
                "raw, likelihood",
                "sigmoid, likelihood",
                "log scores, and whom the ranks prefer",
                "C of likelihood",
            ),
            tests,
        )
    )


_METHODS = ("raw", "sigmoid", "likelihood")
_NOTES = """
Log scores are sums over the test rows, in nats. Reuters: a sigmoid for each topic that has held-out
scores, errors and scores summed over all of them. Tasks with 3 x training rows have no test file:
the sigmoid (and the likelihood) of two folds is judged on the third, in turn; the SVM scores are
themselves held-out scores of those three folds. Regularised likelihood is logistic regression with
an L2 penalty on the columns (linear) or on those of the quadratic kernel's feature space, C from
0.1 to 100 by the log score of a third of the training rows.
"""


def _cell(figures: dict[str, float], key: str, text: Callable[[float], str]) -> str:
    return text(figures[key]) if key in figures else "-"


def _claims(tasks: list[Measured]) -> str:
    lines = []
    for task in tasks:
        if task.name in ("Reuters linear", "Adult quadratic"):
            raw, sigmoid = task.errors["raw"], task.errors["sigmoid"]
            better = sigmoid < raw and task.mcnemar["raw, sigmoid"] < _SIGNIFICANT
            lines.append(
                f"- {task.name}: the sigmoid's threshold errs significantly less than zero: "
                f"**{report.verdict(better)}** ({raw} and {sigmoid} errors; the "
                f"sigmoid says 1/2 at a score of {task.threshold:.3f}"
                f"{' (median)' if task.sigmoids > 1 else ''})."
            )
    both = [task for task in tasks if "likelihood" in task.errors]
    lines.append(
        "- The sigmoid's probabilities are of a quality roughly comparable to regularised "
        "likelihood's. The ratio of the log scores, sigmoid to likelihood: "
        + ", ".join(f"{t.name} {ratio(t):.3f}" for t in both)
        + "."
    )
    fewer = {
        m: [t.name for t in both if t.errors[m] < t.errors[other]]
        for m, other in (("sigmoid", "likelihood"), ("likelihood", "sigmoid"))
    }
    lines.append(
        f"- Neither is completely dominant: **{report.verdict(all(fewer.values()))}** in errors "
        f"(SVM + sigmoid has fewer on {', '.join(fewer['sigmoid']) or 'none'}; likelihood on "
        f"{', '.join(fewer['likelihood']) or 'none'})."
    )
    for task in both:
        if task.name == "Web quadratic":
            preferred, p = task.preferred, task.wilcoxon
            split = ratio(task) < 1 and preferred == "likelihood" and p < _SIGNIFICANT
            lines.append(
                f"- {task.name}: the sum of the log scores is better for SVM + sigmoid, the rank "
                f"test prefers regularised likelihood: **{report.verdict(split)}** (ratio of the "
                f"log scores {ratio(task):.3f}; the ranks prefer the {preferred}, p {_small(p)})."
            )
    return "\n".join(lines) + "\n"


def draw(task: Task) -> plt.Figure:
    """His figures 1 and 2: densities by class, and the sigmoid over the posterior of each bin."""
    scores, labels, sigmoid = task.drawn
    low, high = np.quantile(scores, [0.001, 0.999])
    edges = np.arange(np.floor(low / _BIN), np.ceil(high / _BIN) + 1) * _BIN
    centers = (edges[:-1] + edges[1:]) / 2
    positive, negative = (np.histogram(scores[y], edges)[0] for y in (labels, ~labels))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for counts, style, color, name in (
        (negative, "-", report.COLORS[0], "p(f | y = -1)"),
        (positive, "--", report.COLORS[1], "p(f | y = 1)"),
    ):
        left.plot(centers, counts / counts.sum() / _BIN, style, color=color, label=name)
    left.set(xlabel="score f", ylabel="density", title=f"{task.name}: densities by class")
    enough = positive + negative >= _FEWEST
    share = positive[enough] / (positive + negative)[enough]
    right.plot(
        centers[enough], share, "+", color=report.COLORS[1], label="share of class 1, by bin"
    )
    right.plot(centers, sigmoid.predict_proba(centers), color=report.COLORS[0], label="sigmoid")
    right.set(xlabel="score f", ylabel="P(y = 1 | f)", title=f"{task.name}: posterior")
    for axes in (left, right):
        for margin in (-1, 1):
            axes.axvline(margin, color="0.6", linewidth=0.8, linestyle=":")
        axes.legend(frameon=False)
        report.bare(axes)
    return figure
