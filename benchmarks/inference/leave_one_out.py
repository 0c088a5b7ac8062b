"""How exact leave-one-out is, and what it costs: ``python -m benchmarks.inference.leave_one_out``.

Errors are those of the log-odds against fits of all other rows, one for each row; those of a single
Newton step from the fit of all rows, with the targets of the others, are beside them. Times are
those of whole calls, `fit` and `leave_one_out` in turns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import platt_jax as pj
from benchmarks import machine

# In the package the name is the function's.
MODULE: Any = import_module("platt_jax.inference.leave_one_out")
SIZES = (50, 200, 1_000, 5_000)
_ROWS = 1_000_000  # of all problems together, that are timed
_CHECKED = 20_000  # rows whose fits of all others are looked at
_AT_ONCE = 4_000_000


def draw(rng: np.random.Generator, problems: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels of problems whose slopes and base rates vary."""
    slope, level = rng.uniform(0.5, 3, (problems, 1)), rng.normal(0, 1, (problems, 1))
    scores = rng.normal(size=(problems, rows))
    return scores, rng.random(scores.shape) < 1 / (1 + np.exp(level - slope * scores))


def by_refits(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The log-odds of each row of one problem, by as many fits."""
    n = len(scores)
    rest = np.arange(n - 1)
    found = []
    for some in np.array_split(np.arange(n), -(-n * n // _AT_ONCE)):
        others = rest + (rest >= some[:, None])
        sigmoid = pj.fit(scores[others], labels[others]).sigmoid
        found.append(sigmoid.logit(scores[some, None])[:, 0])
    return np.concatenate(found)


def by_one_step(fit: pj.Fit, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Likewise, by one Newton step each from the fit of all rows."""
    x = np.stack([scores, np.ones_like(scores)], -1)
    p = fit.predict_proba(scores)
    v = p * (1 - p)
    n_pos = fit.n_pos - labels
    n_neg = fit.n_neg - ~labels
    high, low = (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2)
    of_pos, of_neg = x[labels].sum(0), x[~labels].sum(0)
    gradient = high[:, None] * of_pos + low[:, None] * of_neg - p @ x
    gradient -= (np.where(labels, high, low) - p)[:, None] * x
    hessian = fit.hessian - v[:, None, None] * x[:, :, None] * x[:, None, :]
    step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
    return -(fit.A * scores + fit.B) + np.sum(step * x, -1)


def measure(rng: np.random.Generator, rows: int, repeats: int) -> dict[str, Any]:
    problems = _ROWS // rows
    scores, labels = draw(rng, problems, rows)
    refitted: list[int] = []
    refit = MODULE._refit

    def counting(of_rows, which, *rest):
        refitted.append(len(which))
        return refit(of_rows, which, *rest)

    fit_seconds, seconds = [], []
    MODULE._refit = counting
    try:
        for _ in range(repeats + 1):
            start = time.perf_counter()
            fit = pj.fit(scores, labels)
            between = time.perf_counter()
            found = pj.inference.leave_one_out(fit, scores, labels)
            seconds.append(time.perf_counter() - between)
            fit_seconds.append(between - start)
    finally:
        MODULE._refit = refit
    errors, of_one_step = [], []
    for k in range(min(problems, max(2, _CHECKED // rows))):
        expected = by_refits(scores[k], labels[k])
        one = pj.fit(scores[k], labels[k])
        errors.append(np.abs(np.log(found[k]) - np.log1p(-found[k]) - expected))
        of_one_step.append(np.abs(by_one_step(one, scores[k], labels[k]) - expected))
    # The first of each compiles.
    fit_seconds, seconds = fit_seconds[1:], seconds[1:]
    return {
        "rows": rows,
        "problems": problems,
        "checked_rows": int(sum(map(len, errors))),
        "worst_logit_error": float(np.max(np.concatenate(errors))),
        "median_logit_error": float(np.median(np.concatenate(errors))),
        "worst_logit_error_of_one_step": float(np.max(np.concatenate(of_one_step))),
        "median_logit_error_of_one_step": float(np.median(np.concatenate(of_one_step))),
        "share_refitted": refitted[-1] / scores.size,
        "fit_seconds": median(fit_seconds),
        "seconds": median(seconds),
        "ratio": median(a / b for a, b in zip(seconds, fit_seconds, strict=True)),
        "fit_seconds_all": fit_seconds,
        "seconds_all": seconds,
    }


def main(arguments: Sequence[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(__file__).parents[1] / "results" / "inference" / "leave_one_out.json",
    )
    given = parser.parse_args(arguments)
    report = {"machine": machine.describe(), "seed": given.seed, "results": []}
    for number, rows in enumerate(SIZES):
        found = measure(np.random.default_rng((given.seed, number)), rows, given.repeats)
        report["results"].append(found)
        print(json.dumps({k: v for k, v in found.items() if not k.endswith("_all")}), flush=True)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
