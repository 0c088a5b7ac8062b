"""The multicalibration error beside that of the package mcgrad, and its bias and coverage.

``python -m benchmarks.inference.multicalibration`` writes
results/inference/multicalibration.json. The part "against mcgrad" needs mcgrad 0.1.5 and pandas;
``--only`` computes the others without.
"""

import time
from importlib.metadata import version

import numpy as np

from benchmarks.inference import command
from platt_jax import metrics

COLUMNS = ["country", "device", "hour"]


def main() -> None:
    parts = {"against mcgrad": against_mcgrad, "by chance": by_chance, "coverage": coverage}
    parser = command.options("multicalibration")
    parser.add_argument("--sets", type=int, default=400, metavar="S")
    command.run_parts(parser, "multicalibration", parts, "sets")


def against_mcgrad(sets: int) -> dict:
    """Largest relative differences over random data, with and without weights."""
    import pandas as pd
    from mcgrad.metrics import MulticalibrationError

    rng = np.random.default_rng(0)
    off = dict.fromkeys(["kuiper", "sigma", "pvalue", "mce", "mce_sigma", "mce_relative"], 0.0)
    seconds = {"mcgrad": 0.0, "platt_jax": 0.0}
    for trial in range(20):
        n = int(rng.integers(500, 5000))
        frame = pd.DataFrame({name: rng.integers(0, 3, n).astype(str) for name in COLUMNS})
        proba = 1 / (1 + np.exp(-rng.normal(-3 * rng.random(), size=n)))
        labels = (rng.random(n) < proba ** (1 + (frame["country"] == "1") * rng.random())) * 1
        weights = rng.uniform(0.1, 4, n) if trial % 2 else np.ones(n)
        frame = frame.assign(label=labels, score=proba, weight=weights)
        start = time.perf_counter()
        theirs = MulticalibrationError(
            frame,
            "label",
            "score",
            "weight" if trial % 2 else None,
            COLUMNS,
            max_depth=3,
            max_n_segments=None,
            precision_dtype="float64",
        )
        sigmas = theirs.segments_ecce_sigma
        seconds["mcgrad"] += time.perf_counter() - start
        masks = theirs._segments[0].reshape(-1, n)[1 : theirs.total_number_segments]
        ordered = frame.iloc[theirs.df["index"]]
        start = time.perf_counter()
        ours = metrics.multicalibration_error(
            ordered["label"], ordered["score"], masks, weights=ordered["weight"], min_rows=1
        )
        seconds["platt_jax"] += time.perf_counter() - start
        # Their weights multiply residuals; ours count rows.
        w, p = ordered["weight"].to_numpy(), ordered["score"].to_numpy()
        all_masks = np.concatenate([np.ones((1, n), bool), masks])
        factor = np.sqrt((all_masks @ (w * p * (1 - p))) / (all_masks @ (w**2 * p * (1 - p))))
        sigma = ours.groups["sigma"] * factor
        sd = ours.groups["kuiper"][0] / sigma[0]
        rate = np.average(ordered["label"], weights=w)
        their_p = theirs.segments_ecce_pvalue
        pairs = {
            "kuiper": (ours.groups["kuiper"], theirs.segments_ecce),
            "sigma": (sigma, sigmas),
            "mce": (sigma.max() * sd, theirs.mce),
            "mce_sigma": (sigma.max(), theirs.mce_sigma),
            "mce_relative": (100 * sigma.max() * sd / min(rate, 1 - rate), theirs.mce_relative),
        }
        if not trial % 2:
            # 1 - (distribution function) has no digits left below rounding.
            off["pvalue"] = max(
                off["pvalue"], float(np.abs(ours.groups["p_value"] - their_p).max())
            )
            pairs["mce"] = (float(ours.value), theirs.mce)
            pairs["mce_sigma"] = (float(ours.sigma), theirs.mce_sigma)
        for name, (mine, other) in pairs.items():
            off[name] = max(off[name], float(np.max(np.abs(mine / other - 1))))
    assert all(x < 1e-9 for x in off.values()), off
    return {
        "mcgrad": version("mcgrad"),
        "largest difference": off,
        "pvalue": "an absolute difference, without weights; others are relative",
        "seconds (platt_jax with 200 draws)": {k: round(x, 2) for k, x in seconds.items()},
    }


def drawn(rng, rows: int, groups: int, shift: float) -> tuple:
    """Labels of one set, and what it takes to judge them: probabilities, frequencies, groups."""
    logits = rng.normal(-1.0, size=rows)
    city = rng.integers(0, groups, rows)
    week = rng.integers(0, 10, rows)
    truth = 1 / (1 + np.exp(-logits - shift * np.sin(city)))
    proba = 1 / (1 + np.exp(-logits))
    return rng.random(rows) < truth, proba, truth, np.stack([city, week], axis=1)


def by_chance(sets: int) -> list[dict]:
    """Calibrated probabilities: the statistic, its mean as computed, and rejections."""
    return command.printed(
        _by_chance(rows, groups, sets) for rows in (1000, 10_000) for groups in (3, 30, 300)
    )


def _by_chance(rows: int, groups: int, sets: int) -> dict:
    rng = np.random.default_rng(0)
    found = []
    for i in range(sets):
        labels, proba, _, fields = drawn(rng, rows, groups, 0.0)
        error = metrics.multicalibration_error(labels, proba, segments=fields, seed=i, min_rows=1)
        smallest = error.groups["p_value"].min()
        found.append((error.sigma, error.by_chance, error.p_value <= 0.05, smallest <= 0.05))
    sigma, chance, rejected, alone = np.array(found, float).T
    return {
        "rows": rows,
        "groups": groups + 11,
        "sigma": round(sigma.mean(), 4),
        "by chance": round(chance.mean(), 4),
        "excess": round((sigma - chance).mean(), 4),
        "standard error of the excess": round((sigma - chance).std() / np.sqrt(sets), 4),
        "rejected at .05": round(rejected.mean(), 4),
        "rejected at .05 by the smallest p-value of a group": round(alone.mean(), 4),
    }


def coverage(sets: int) -> list[dict]:
    """How often the interval has sigma of the true frequencies in it."""
    return command.printed(
        _coverage(groups, shift, sets) for groups in (3, 30) for shift in (0.0, 0.2, 0.5)
    )


def _coverage(groups: int, shift: float, sets: int) -> dict:
    rng = np.random.default_rng(1)
    covered, lengths = [], []
    for i in range(sets):
        labels, proba, truth, fields = drawn(rng, 3000, groups, shift)
        error = metrics.multicalibration_error(labels, proba, segments=fields, seed=i)
        aim = largest_sigma(truth, proba, fields)
        covered.append(error.lower <= aim <= error.upper)
        lengths.append(error.upper - error.lower)
    return {
        "groups": groups + 11,
        "shift": shift,
        "covered": round(float(np.mean(covered)), 4),
        "mean length": round(float(np.mean(lengths)), 3),
    }


def largest_sigma(truth, proba, fields) -> float:
    """The largest scaled statistic with frequencies in place of labels."""
    found = []
    order = np.argsort(proba)
    for column in [np.zeros((len(proba), 1), int), *fields.T[:, :, None]]:
        for value in np.unique(column):
            mine = order[column[order, 0] == value]
            walk = np.cumsum(np.append(0, truth[mine] - proba[mine]))
            found.append(np.ptp(walk) / np.sqrt((proba[mine] * (1 - proba[mine])).sum()))
    return max(found)


if __name__ == "__main__":
    main()
