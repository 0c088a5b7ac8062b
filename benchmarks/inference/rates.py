"""Coverage of `estimate_rates`' intervals: ``python -m benchmarks.inference.rates``.

Each case has 1,000 segments, whose scores are normal with distance 1.5 between the classes. For
comparison, intervals that take the curve and its rate as known: those of the likelihood alone.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import platt_jax as pj
from benchmarks import machine

_RESULTS = Path(__file__).parents[1] / "results" / "inference" / "rates.json"
_SEGMENTS = 1_000
# Rows fitted, their share of positives, fresh rows, their share of positives.
_CASES = (
    *((5_000, 0.5, 500, 0.2), (500, 0.5, 500, 0.2), (500, 0.5, 5_000, 0.2)),
    *((1_000, 0.1, 500, 0.2), (1_000, 0.05, 1_000, 0.02), (200, 0.3, 200, 0.6)),
    *((50, 0.3, 200, 0.6), (5_000, 0.01, 2_000, 0.02), (1_000, 0.01, 1_000, 0.005)),
    # Few rows, rare positives, and rates that have not changed.
    *((1_000, 0.1, 500, 0.1), (500, 0.3, 3, 0.3), (10, 0.3, 10, 0.3), (20, 0.3, 200, 0.3)),
    *((200, 0.01, 200, 0.01), (5_000, 0.001, 1_000, 0.001), (5_000, 0.001, 1_000, 0.01)),
)
_CRITICAL = 3.841  # 95 % quantile of the chi-squared distribution with one degree of freedom


def main() -> None:
    rng = np.random.default_rng(0)
    results = []
    for case in _CASES:
        found = measured(rng, *case)
        names = ("rows fitted", "positive", "fresh rows", "fresh positive")
        results.append({**dict(zip(names, case, strict=True)), **found})
        print(results[-1], flush=True)
    told = {"machine": machine.describe(), "results": results}
    _RESULTS.write_text(json.dumps(told, indent=1) + "\n")


def drawn(rng, rows: int, rate: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and segments."""
    labels = rng.random((_SEGMENTS, rows)) < rate
    scores = rng.normal(size=labels.shape) + 1.5 * labels
    return scores.ravel(), labels.ravel(), np.repeat(np.arange(_SEGMENTS), rows)


def measured(rng, rows: int, base: float, fresh: int, rate: float) -> dict[str, float]:
    """Coverage and bias of one case."""
    calibrator = pj.fit_segments(*drawn(rng, rows, base))
    scores, _, segments = drawn(rng, fresh, rate)
    found = pj.inference.estimate_rates(calibrator, scores, segments)
    proba = calibrator.predict_proba(scores, segments)
    at = found["from_rate"][segments]
    positive, negative = proba / at, (1 - proba) / (1 - at)

    def log_likelihood(rates):
        each = np.log(rates[segments] * positive + (1 - rates[segments]) * negative)
        return np.bincount(segments, each)

    best = log_likelihood(found["rate"])
    off = 2 * (best - log_likelihood(np.full(_SEGMENTS, rate)))
    held = (found["lower"] <= rate) & (rate <= found["upper"])
    spread = found["rate"].std()
    return {
        "held": round(float(held.mean()), 3),
        "held if the fit were known": round(float((off <= _CRITICAL).mean()), 3),
        "bias in standard deviations": round(float((found["rate"].mean() - rate) / spread), 2),
        "median standard error over deviation": round(
            float(np.median(found["se_rate"]) / spread), 2
        ),
    }


if __name__ == "__main__":
    main()
