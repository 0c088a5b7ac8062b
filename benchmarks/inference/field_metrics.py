"""Field-level errors: the bias of the plug-in, and what corrects it.

``python -m benchmarks.inference.field_metrics`` writes results/inference/field_metrics.json, for
sets of rows whose groups have 3, 10, 50 or 500 rows each. "calibrated": the mean of the errors as
the papers define them, of their means by chance, of the excess and of the unbiased squared error,
which should both be 0, and how often the intervals have 0 in them. "miscalibrated": each group's
log-odds are off by a normal number of standard deviation 0.5; the intervals of the excess are
judged by its mean over the sets, those of the squared error by the truth.
"""

import numpy as np

from benchmarks.inference import command
from platt_jax import metrics

# Logits are normal around these, with a standard deviation of 1: 50 % and 1 % positives.
CENTERS = {"50 %": 0.0, "1 %": -5.1}
ROWS = (3, 10, 50, 500)
GROUPS = (10, 200)
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
ERRORS = {
    "calibration error": metrics.field_calibration_error,
    "relative error": metrics.field_relative_error,
}


def main() -> None:
    parser = command.options("field_metrics")
    parser.add_argument("--rows", type=int, default=4_000_000, metavar="N", help="rows of a line")
    parts = {
        "calibrated": lambda rows: lines(rows, 0.0),
        "miscalibrated": lambda rows: lines(rows, 0.5),
    }
    command.run_parts(parser, "field_metrics", parts, "rows")


def lines(rows_in_all: int, shift: float) -> list[dict]:
    return command.printed(
        of_sets(rate, rows, groups, shift, min(max(rows_in_all // (rows * groups), 300), 2000))
        for rate in CENTERS
        for rows in ROWS
        for groups in GROUPS
    )


def of_sets(rate: str, rows: int, groups: int, shift: float, sets: int) -> dict:
    rng = np.random.default_rng(0)
    center = CENTERS[rate]
    # The same numbers, evenly spread, for any number of groups.
    effects = shift * normal_quantiles(groups)
    segments = np.repeat(np.arange(groups), rows)
    found = []
    for _ in range(sets):
        logits = rng.normal(center, size=len(segments))
        labels = rng.random(len(segments)) < expit(logits + effects[segments])
        proba = expit(logits)
        squared = metrics.field_squared_error(labels, proba, segments)
        found.append([metric(labels, proba, segments) for metric in ERRORS.values()] + [squared])
    about = {"rate": rate, "rows of a group": rows, "groups": groups, "sets": sets}
    off = true_errors(center, effects)
    for i, name in enumerate(ERRORS):
        about[name] = of_error([each[i] for each in found], calibrated=shift == 0)
    about["calibration error"]["true"] = rounded(np.abs(off).mean())
    about["squared error"] = of_squared([each[-1] for each in found], (off**2).mean())
    return about


def of_error(found: list, calibrated: bool) -> dict:
    value, chance, excess, lower, upper = (
        np.array([getattr(each, name) for each in found])
        for name in ("value", "by_chance", "excess", "lower", "upper")
    )
    aim = 0.0 if calibrated else excess.mean()
    return {
        "value": rounded(value.mean()),
        "by chance": rounded(chance.mean()),
        "excess": rounded(excess.mean()),
        "its standard error": rounded(excess.std() / np.sqrt(len(found))),
        "covered": round(float(np.mean((lower <= aim) & (aim <= upper))), 4),
    }


def of_squared(found: list, truth: float) -> dict:
    value, lower, upper = (
        np.array([getattr(each, name) for each in found]) for name in ("value", "lower", "upper")
    )
    return {
        "true": rounded(truth),
        "value": rounded(value.mean()),
        "its standard error": rounded(value.std() / np.sqrt(len(found))),
        "covered": round(float(np.mean((lower <= truth) & (truth <= upper))), 4),
    }


def true_errors(center: float, effects) -> np.ndarray:
    """Each group's mean of frequency - probability, by quadrature."""
    logits = center + _NODES
    off = expit(logits + effects[:, None]) - expit(logits)
    return off @ _WEIGHTS / _WEIGHTS.sum()


def normal_quantiles(n: int) -> np.ndarray:
    from scipy.stats import norm

    return norm.ppf((np.arange(n) + 0.5) / n)


def expit(x):
    return 1 / (1 + np.exp(-x))


def rounded(x) -> float:
    return float(f"{x:.4g}")


if __name__ == "__main__":
    main()
