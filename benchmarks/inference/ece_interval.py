"""Coverage of `metrics.ece_interval`: ``python -m benchmarks.inference.ece_interval``.

Log-odds of predictions are drawn from a normal distribution, and labels by a truth: the prediction,
its odds halved, doubled or times ten, twice its log-odds' deviation, or 1/2. A case's coverage is
the share of draws whose true error the interval holds.
"""

from itertools import product
from typing import Any

import numpy as np

from benchmarks.inference import command
from platt_jax import logit, metrics
from platt_jax.results.probabilities import expit

_ROWS = (1, 2, 3, 5, 10, 30, 100, 1_000, 10_000)
_RATES = (0.001, 0.01, 0.05, 0.3)
_DRAWS, _MOST_ROWS = 2_000, 4_000_000  # of a case; the rows of all its draws
# Log-odds of the truth, from the center of the predictions and their deviation from it.
_TRUTHS = {
    "calibrated": lambda center, off: center + off,
    "half": lambda center, off: center + off + np.log(1 / 2),
    "double": lambda center, off: center + off + np.log(2),
    "tenfold": lambda center, off: center + off + np.log(10),
    "steep": lambda center, off: center + 2 * off,
    "coin": lambda center, off: 0 * off,
}


def main() -> None:
    parser = command.options("ece_interval")
    parts = {f"{level}": _part(level) for level in (0.8, 0.95)}
    command.run_parts(parser, "ece_interval", parts)


def _part(level: float) -> Any:
    def run() -> list[dict]:
        rng = np.random.default_rng(0)
        cases = product(_TRUTHS, ("uniform", "quantile"), _RATES, _ROWS)
        return [measured(rng, level, *case) for case in cases]

    return run


def measured(
    rng: np.random.Generator, level: float, truth: str, strategy: str, rate: float, rows: int
) -> dict[str, Any]:
    """Coverage in one case, the share of true errors below the interval, and its mean width."""
    center = float(logit(rate))
    off = rng.normal(size=(min(_DRAWS, _MOST_ROWS // rows), rows))
    predicted, true = expit(center + off), expit(_TRUTHS[truth](center, off))
    labels = rng.random(true.shape) < true
    found = metrics.ece_interval(labels, predicted, strategy=strategy, level=level)
    error = _true_error(true, predicted, strategy)
    return {
        "truth": truth,
        "strategy": strategy,
        "base rate": rate,
        "rows": rows,
        "coverage": float(np.mean((found.lower <= error) & (error <= found.upper))),
        "below": float(np.mean(error < found.lower)),
        "width": round(float(np.mean(found.upper - found.lower)), 6),
        "true error": round(float(np.mean(error)), 6),
    }


def _true_error(true: np.ndarray, predicted: np.ndarray, strategy: str) -> np.ndarray:
    """The error with fractional labels: each row counts as a positive and a negative one."""
    curve = metrics.reliability_curve(
        np.repeat([[1, 0]], true.shape[1], axis=1),
        np.concatenate([predicted, predicted], axis=1),
        weights=np.concatenate([true, 1 - true], axis=1),
        strategy=strategy,
    )
    off = curve.rows * np.abs(curve.prob_true - curve.prob_pred)
    return np.nansum(off, axis=1) / true.shape[1]


if __name__ == "__main__":
    main()
