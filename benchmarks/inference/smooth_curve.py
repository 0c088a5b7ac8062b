"""Coverage of the bands of `metrics.smooth_curve`: ``python -m benchmarks.inference.smooth_curve``.

Log-odds of predictions are drawn from a normal distribution, and labels by a truth that is the
predictions' own, a line in their log-odds, or that with a wave. A case's coverage is the share of
the curve's points, over all draws, whose truth the 95 % band holds. Draws with few rows of a class,
or classes that do not overlap, have no band; they are counted apart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from platt_jax import logit, metrics
from platt_jax.results.probabilities import expit

_RESULTS = Path(__file__).parents[1] / "results" / "inference" / "smooth_curve.json"
_ROWS = (30, 100, 300, 1_000, 10_000)
_RATES = (0.005, 0.02, 0.1, 0.5)
_DRAWS = 400
_TRUTHS = {
    "calibrated": lambda off: off,
    "line": lambda off: 0.6 * off + 0.2,
    "wave": lambda off: off + 0.5 * np.sin(1.5 * off),
}


def main() -> None:
    rng, results = np.random.default_rng(0), []
    for truth in _TRUTHS:
        for rate in _RATES:
            for rows in _ROWS:
                case = {"truth": truth, "base rate": rate, "rows": rows}
                results.append(case | measured(rng, truth, rate, rows))
                print(results[-1], flush=True)
    told = {"machine": machine.describe(), "results": results}
    _RESULTS.write_text(json.dumps(told, indent=1) + "\n")


def measured(rng: np.random.Generator, truth: str, rate: float, rows: int) -> dict[str, Any]:
    """Coverage in one case, its error over draws, and the share of draws without a band."""
    center, of_truth, held = float(logit(rate)), _TRUTHS[truth], []
    for _ in range(_DRAWS):
        off = rng.normal(size=rows)
        labels = rng.random(rows) < expit(center + of_truth(off))
        curve = metrics.smooth_curve(labels, center + off, from_logits=True)
        true = expit(center + of_truth(logit(curve.prob_pred) - center))
        if np.isfinite(curve.lower).all():
            held.append(np.mean((curve.lower <= true) & (true <= curve.upper)))
    known = len(held) > _DRAWS / 10
    return {
        "coverage": round(float(np.mean(held)), 4) if known else None,
        "error": round(float(np.std(held) / np.sqrt(len(held))), 4) if known else None,
        "without a band": 1 - len(held) / _DRAWS,
    }


if __name__ == "__main__":
    main()
