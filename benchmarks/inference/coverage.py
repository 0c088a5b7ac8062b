"""How often confidence bands hold the truth: ``python -m benchmarks.inference.coverage``.

Problems are drawn from a known curve and fitted, and the bands compared with it. Three simulations:
the truth is a sigmoid (rows and base rates vary); the truth is another curve, or rows come in
clusters, and the band is to hold the best sigmoid, that of infinitely many rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import expit
from scipy.stats import chi2, norm

import platt_jax as pj
from benchmarks import machine
from platt_jax.inference import robust_covariance

LEVEL = 0.95
SLOPE = 2.0
ROWS = (50, 200, 1_000, 5_000)
RATES = (0.5, 0.01)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the scores: where the pointwise band is looked at
_CLUSTER = 5
_GRID = 101  # of scores, over the range of a problem's: where the simultaneous band is looked at
_ROWS_AT_ONCE = 1_000_000

# The distribution of scores for integrals: standard normal, by Gauss and Hermite.
_NODES, _MASS = np.polynomial.hermite_e.hermegauss(200)
_MASS = _MASS / _MASS.sum()

# P(y=1) of a standard normal score by curves that are no sigmoids.
WRONG_CURVES: dict[str, Callable] = {
    "flat beyond half a standard deviation": lambda f: expit(4 * np.clip(f, -0.5, 0.5)),
    "steep, and 5 % of labels wrong": lambda f: 0.05 + 0.9 * expit(12 * f),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.inference.coverage", description=__doc__
    )
    results = Path(__file__).parents[1] / "results" / "inference"
    parser.add_argument("--problems", type=int, default=2_000, metavar="K")
    parser.add_argument("--out", type=Path, default=results)
    args = parser.parse_args(argv)
    # Before the run: the checkout may have moved on by its end.
    found: dict[str, Any] = {"machine": machine.describe(), "problems": args.problems}
    found["sigmoid"] = [
        true_sigmoid(rows, rate, targets, args.problems)
        for targets in ("platt", "none")
        for rate in RATES
        for rows in ROWS
    ]
    found["wrong_curve"] = [
        wrong_curve(name, rows, args.problems) for name in WRONG_CURVES for rows in ROWS[1:]
    ]
    found["clusters"] = [clustered(rows, args.problems) for rows in ROWS[1:]]
    text = report(found)
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "coverage.json").write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")
    (args.out / "coverage.md").write_text(text)


def true_sigmoid(rows: int, rate: float, targets: str, problems: int) -> dict[str, Any]:
    """Shares of bands that hold the truth, a sigmoid."""
    truth = pj.Sigmoid(-SLOPE, -_intercept(rate))
    options = pj.Options(targets=targets)

    def draw(rng, number):
        scores = rng.normal(size=(number, rows))
        return scores, rng.random(scores.shape) < truth.predict_proba(scores)

    def fit(scores, labels):
        return {"inverse Hessian": pj.fit(scores, labels, options=options)}

    covered = _coverage(draw, fit, truth, rows, problems)["inverse Hessian"]
    return {"targets": targets, "rate": rate, "rows": rows, **covered}


def wrong_curve(name: str, rows: int, problems: int) -> dict[str, Any]:
    """Shares of bands that hold the best sigmoid, by either covariance."""
    curve = WRONG_CURVES[name]

    def draw(rng, number):
        scores = rng.normal(size=(number, rows))
        return scores, rng.random(scores.shape) < curve(scores)

    def fit(scores, labels):
        plain = pj.fit(scores, labels)
        return {"inverse Hessian": plain, "sandwich": robust_covariance(plain, scores, labels)}

    covered = _coverage(draw, fit, best_sigmoid(curve(_NODES)), rows, problems)
    return {"curve": name, "rows": rows, **covered}


def clustered(rows: int, problems: int) -> dict[str, Any]:
    """Shares of bands that hold the best sigmoid of rows whose clusters share what is not seen.

    Half of a score's variance is its cluster's, and so is a standard normal part of the log-odds.
    """
    clusters = np.arange(rows) // _CLUSTER

    def of_clusters(rng, number):
        return rng.normal(size=(number, rows // _CLUSTER)).repeat(_CLUSTER, axis=1)

    def draw(rng, number):
        scores = (of_clusters(rng, number) + rng.normal(size=(number, rows))) / np.sqrt(2)
        logits = SLOPE * scores + of_clusters(rng, number)
        return scores, rng.random(scores.shape) < expit(logits)

    def fit(scores, labels):
        plain = pj.fit(scores, labels)
        robust = robust_covariance(plain, scores, labels)
        by_cluster = robust_covariance(plain, scores, labels, clusters=clusters)
        return {"inverse Hessian": plain, "sandwich": robust, "by cluster": by_cluster}

    marginal = expit(SLOPE * _NODES[:, None] + _NODES) @ _MASS
    return {"rows": rows, **_coverage(draw, fit, best_sigmoid(marginal), rows, problems)}


def best_sigmoid(proba: np.ndarray) -> pj.Sigmoid:
    """The sigmoid of the least expected loss, where these are the probabilities at the nodes."""

    def loss(point):
        z = point[0] * _NODES + point[1]
        return _MASS @ (np.logaddexp(0, -z) + proba * z)

    return pj.Sigmoid(*minimize(loss, [-1.0, 0.0], options={"gtol": 1e-10}).x)


def report(found: dict[str, Any]) -> str:
    """Tables of the shares, in percent."""
    about = found["machine"]
    changed = " and uncommitted changes" if about["uncommitted_changes"] else ""
    points = [f"{quantile:g}" for quantile in QUANTILES]
    head = ["pointwise at quantile " + points[0], *points[1:], "all scores", "whole line"]
    sections = [
        "# Coverage of confidence bands\n",
        f"Shares of {found['problems']:,} problems, in percent, whose {LEVEL:.0%} band holds the "
        "truth: the pointwise band at quantiles of the standard normal scores; the simultaneous "
        "one at all scores between a problem's lowest and highest, and on the whole line. Without "
        "Platt's targets separable problems have no fit, and are left out.\n",
        f"## The truth is a sigmoid of slope {SLOPE:g}\n",
        _table(
            ["targets", "positives", "rows", *head, "not fitted"],
            [
                [
                    *(x["targets"], f"{x['rate']:.0%}", f"{x['rows']:,}"),
                    *(*_shares(x), f"{100 * x['not_fitted']:.1f}"),
                ]
                for x in found["sigmoid"]
            ],
        ),
        "## The truth is another curve, the band's that of the best sigmoid\n",
        _table(
            ["curve", "rows", "covariance", *head],
            [
                [x["curve"], f"{x['rows']:,}", kind, *_shares(x[kind])]
                for x in found["wrong_curve"]
                for kind in ("inverse Hessian", "sandwich")
            ],
        ),
        f"## Rows in clusters of {_CLUSTER}\n",
        _table(
            ["rows", "covariance", *head],
            [
                [f"{x['rows']:,}", kind, *_shares(x[kind])]
                for x in found["clusters"]
                for kind in ("inverse Hessian", "sandwich", "by cluster")
            ],
        ),
        f"`python -m benchmarks.inference.coverage`, at commit {about['commit']}{changed}.\n",
    ]
    return "\n".join(sections)


def _coverage(draw, fit, truth: pj.Sigmoid, rows: int, problems: int) -> dict[str, Any]:
    """By the name of each fit the shares of its bands that hold the truth.

    Args:
        draw: gives scores and labels (K, N) of K problems.
        fit: makes fits of them, by name.
        truth: what the bands should hold.
        rows: N.
        problems: how many in all.
    """
    rng, step = np.random.default_rng(rows), max(1, _ROWS_AT_ONCE // rows)
    held: dict[str, list] = {}
    for start in range(0, problems, step):
        scores, labels = draw(rng, min(step, problems - start))
        for name, one in fit(scores, labels).items():
            held.setdefault(name, []).append(_holds(one, scores, truth))
    return {name: _means(np.concatenate(parts)) for name, parts in held.items()}


def _holds(fit: pj.Fit, scores, truth: pj.Sigmoid) -> np.ndarray:
    """(K, 8): whether it is fitted; whether the band holds at each quantile, on range and line."""
    points = np.broadcast_to(norm.ppf(QUANTILES), (len(scores), len(QUANTILES)))
    grid = np.linspace(scores.min(axis=1), scores.max(axis=1), _GRID, axis=1)

    def inside(at, **options):
        lower, upper = fit.band(at, LEVEL, **options)
        p = truth.predict_proba(at)
        return (lower <= p) & (p <= upper)

    fitted = fit.converged & np.isfinite(fit.A) & np.isfinite(fit.covariance).all(axis=(1, 2))
    off = np.stack([fit.A - truth.A, fit.B - truth.B], -1)
    precision = np.linalg.inv(np.where(fitted[:, None, None], fit.covariance, np.eye(2)))
    distance = np.einsum("ki,kij,kj->k", off, precision, off)
    in_range = inside(grid, simultaneous=True).all(axis=1)
    on_line = distance <= chi2.ppf(LEVEL, 2)
    return np.column_stack([fitted, inside(points), in_range, on_line])


def _means(held: np.ndarray) -> dict[str, Any]:
    fitted = held[:, 0]
    *pointwise, in_range, on_line = held[fitted, 1:].mean(axis=0).tolist()
    return {
        "not_fitted": 1 - float(fitted.mean()),
        "pointwise": pointwise,
        "all_scores": in_range,
        "whole_line": on_line,
    }


def _intercept(rate: float) -> float:
    """The log-odds at score 0 that make this the share of positives."""
    return brentq(lambda b: _MASS @ expit(SLOPE * _NODES + b) - rate, -50, 50)


def _shares(x: dict[str, Any]) -> list[str]:
    return [f"{100 * share:.1f}" for share in (*x["pointwise"], x["all_scores"], x["whole_line"])]


def _table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


if __name__ == "__main__":
    main()
