"""Calibration tests and errors of right probabilities.

``python -m benchmarks.inference.few_expected`` writes results/inference/few_expected.json: how
often Hosmer and Lemeshow's test rejects them, by its p-values and by chi-square's; and the mean
expected calibration error, beside what `ece_by_chance` says it is.
"""

import time

import numpy as np
from scipy.stats import chi2

import platt_jax as pj
from benchmarks import machine
from benchmarks.inference import command
from platt_jax import metrics

LEVELS = (0.001, 0.01, 0.05, 0.2)
# Logits are normal around these, with a standard deviation of 1: 0.1, 1, 5, 16 and 50 % positives.
CENTERS = (-7.4, -5.1, -3.4, -2.0, 0.0)
ROWS = (10, 50, 500, 5000)


def main() -> None:
    parser = command.options("few_expected")
    parser.add_argument("--problems", type=int, default=10_000, metavar="K")
    args = parser.parse_args()
    found: dict = {"machine": machine.describe(), "levels": LEVELS}
    found["results"] = command.printed(
        of_rows(center, rows, max(500, min(args.problems, 4_000_000 // rows)))
        for center in CENTERS
        for rows in ROWS
    )
    command.write(args.out, "few_expected", found)


def of_rows(center: float, rows: int, problems: int) -> dict:
    rng = np.random.default_rng(0)
    proba = 1 / (1 + np.exp(-rng.normal(center, size=(problems, rows))))
    labels = rng.random(proba.shape) < proba
    start = time.perf_counter()
    test = metrics.hosmer_lemeshow(labels, proba)
    seconds = time.perf_counter() - start
    error = metrics.expected_calibration_error(labels, proba)
    fit = pj.fit(np.log(proba / (1 - proba)), labels, options=pj.Options(targets="none"))
    both = fit.converged & labels.any(axis=1) & ~labels.all(axis=1)
    fitted = fit.predict_proba(np.log(proba / (1 - proba)))[both]
    of_fitted = metrics.hosmer_lemeshow(labels[both], fitted, in_sample=True).p_value
    return {
        "rate": float(labels.mean().round(5)),
        "rows": rows,
        "problems": problems,
        "rejected": rejected(test.p_value),
        "rejected by chi-square": rejected(chi2.sf(test.statistic, test.df)),
        "rejected of the rows fitted to": rejected(of_fitted),
        "milliseconds a problem": round(1000 * seconds / problems, 3),
        "ece": float(error.mean().round(5)),
        "ece by chance": float(metrics.ece_by_chance(labels, proba).mean().round(5)),
    }


def rejected(p_value) -> list[float]:
    return [round(float((p_value <= level).mean()), 4) for level in LEVELS]


if __name__ == "__main__":
    main()
