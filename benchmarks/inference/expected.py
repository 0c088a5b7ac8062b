"""Coverage of the intervals of `metrics.expected`: ``python -m benchmarks.inference.expected``.

Probabilities are drawn from a beta distribution for each of a number of problems, and the labels of
each problem by these probabilities, many times. A case's coverage is the share of all draws whose
metric lies in its problem's interval; the worst problem's is given, too, and the share of metrics
above the interval. For comparison, normal intervals of the same means and variances. Labels of few
rows or rare positives give few distinct values, so that no interval can hold 95 % exactly.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks import machine
from platt_jax import metrics

_RESULTS = Path(__file__).parents[1] / "results" / "inference" / "expected.json"
_ROWS = (1, 3, 10, 100, 1_000, 10_000)
_RATES = (0.001, 0.005, 0.02, 0.1, 0.5)
# Spread of the probabilities: the two parameters of the beta distribution sum to this.
_SPREADS = (2, 20)
_AT_ONCE = 1 << 20  # labels drawn at once
_MANY = 400_000_000  # labels drawn in a case, within the limits of draws per problem
_LEAST_DRAWS, _MOST_DRAWS = 4_000, 20_000
_CRITICAL = 1.96


def main() -> None:
    rng = np.random.default_rng(0)
    results = []
    for spread in _SPREADS:
        for rows in _ROWS:
            for rate in _RATES:
                case = {"rows": rows, "base rate": rate, "spread": spread}
                results.append({**case, **measured(rng, rows, rate, spread)})
                print(results[-1], flush=True)
    told = {"machine": machine.describe(), "results": results}
    _RESULTS.write_text(json.dumps(told, indent=1) + "\n")


def measured(rng, rows: int, rate: float, spread: float) -> dict[str, dict[str, float]]:
    """Coverage of one case's intervals, by metric."""
    problems = 200 if rows <= 100 else 20
    draws = max(_LEAST_DRAWS, min(_MOST_DRAWS, _MANY // (rows * problems)))
    proba = rng.beta(rate * spread, (1 - rate) * spread, (problems, rows)).clip(1e-9, 1 - 1e-9)
    found = metrics.expected(proba)
    seen: dict[str, list[tuple[float, ...]]] = {name: [] for name in found._fields}
    for k, p in enumerate(proba):
        for name, values in of_draws(rng, p, draws).items():
            part = type(found.rate)(*(x[k] for x in getattr(found, name)))
            reach = _CRITICAL * part.standard_deviation
            off = values - part.value
            held = np.mean((part.lower <= values) & (values <= part.upper))
            above, above_normal = np.mean(values > part.upper), np.mean(off > reach)
            seen[name].append((held, above, np.mean(np.abs(off) <= reach), above_normal))
    results = {}
    for name, each in seen.items():
        shares = ("held", "above", "held by a normal interval", "above a normal interval")
        means = np.round(np.mean(each, axis=0), 4).tolist()
        worst = round(float(np.min(each, axis=0)[0]), 4)
        results[name] = dict(zip(shares, means, strict=True)) | {"held in the worst problem": worst}
    return results


def of_draws(rng, p: np.ndarray, draws: int) -> dict[str, np.ndarray]:
    """The metrics of labels drawn many times."""
    likely, rarer = p > 0.5, np.minimum(p, 1 - p)
    # What each row costs with its more probable label, and how much more with the other.
    costs = np.stack([-np.log1p(-rarer), rarer**2])
    more = np.stack([np.log1p(-rarer) - np.log(rarer), 1 - 2 * rarer], axis=-1)
    parts = []
    each = max(1, _AT_ONCE // len(p))
    for first in range(0, draws, each):
        labels = rng.random((min(each, draws - first), len(p))) < p
        scores = (costs.sum(axis=-1) + (labels != likely).astype(float) @ more) / len(p)
        count = labels.sum(axis=-1)
        parts.append((*scores.T, count / len(p), count))
    columns = (np.concatenate(x) for x in zip(*parts, strict=True))
    return dict(zip(metrics.Expected._fields, columns, strict=True))


if __name__ == "__main__":
    main()
