"""How often intervals hold the score of a probability: ``python -m benchmarks.inference.inverse``.

Fieller's, and the delta method's, 1.96 standard errors to either side.
"""

import numpy as np

import platt_jax as pj
from benchmarks import machine
from benchmarks.inference import command

# Rows, slope and intercept of the log-odds; scores are standard normal.
CASES = ((50, 1, 0), (50, 2, -2), (100, 1, -3), (400, 1, -3), (1000, 1, -4.5))
FLAT = ((400, 0.15, 0), (100, 0.3, 0), (50, 0.45, 0))
PROBABILITIES = (0.1, 0.5, 0.9)


def main() -> None:
    parser = command.options("inverse")
    parser.add_argument("--problems", type=int, default=10_000, metavar="K")
    args = parser.parse_args()
    found: dict = {"machine": machine.describe(), "problems": args.problems}
    found["results"] = command.printed(
        coverage(*case, targets, args.problems)
        for case in CASES + FLAT
        for targets in ("none", "platt")
    )
    command.write(args.out, "inverse", found)


def coverage(rows: int, slope: float, intercept: float, targets: str, problems: int) -> dict:
    """Shares of the intervals of 95 % that hold the score, and of those that are unbounded."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(problems, rows))
    labels = rng.random(scores.shape) < 1 / (1 + np.exp(-slope * scores - intercept))
    fit = pj.fit(scores, labels, options=pj.Options(targets=targets))
    used = fit.converged
    proba = np.array(PROBABILITIES)
    truth = (np.log(proba / (1 - proba)) - intercept) / slope
    each = np.tile(proba, (problems, 1))
    lower, upper = fit.inverse_interval(each)
    off = np.abs(fit.sigmoid.inverse(each) - truth)
    fieller = (lower <= truth) & (truth <= upper)
    delta = off <= 1.96 * fit.inverse_standard_error(each)
    return {
        "rows": rows,
        "slope": slope,
        "intercept": intercept,
        "targets": targets,
        "slope / its error": float(np.median(-fit.A[used] / fit.standard_errors[used, 0])),
        "probabilities": PROBABILITIES,
        "fieller": fieller[used].mean(0).round(4).tolist(),
        "unbounded": float(np.isinf(lower[used, 0]).mean()),
        "delta": delta[used].mean(0).round(4).tolist(),
    }


if __name__ == "__main__":
    main()
