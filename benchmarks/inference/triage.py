"""False discoveries where the truth is known: ``python -m benchmarks.inference.triage``.

10,000 segments of which 5 % are off: log-odds shifted by 1 to either side, and their slope 0.4 or
1.8 times what is predicted. `triage` is compared
with decisions by chi-square p-values alone.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from scipy.special import expit
from scipy.stats import false_discovery_control

import platt_jax as pj
from benchmarks import machine
from benchmarks.inference import command

LEVELS = (0.05, 0.2)
SIZES = ((5, 6), (10, 11), (20, 21), (50, 51), (200, 201), (5, 501))
_SEGMENTS = 10_000
_SHARE_OFF = 0.05


def main() -> None:
    parser = command.options("triage")
    parser.add_argument("--repeats", type=int, default=10, metavar="R")
    args = parser.parse_args()
    found: dict = {"machine": machine.describe(), "repeats": args.repeats}
    found["results"] = command.printed(of_sizes(sizes, args.repeats) for sizes in SIZES)
    command.write(args.out, "triage", found)


def of_sizes(sizes: tuple[int, int], repeats: int) -> dict:
    """Shares of the discoveries that are false, and of the segments off that are discovered."""
    each: dict = {(kind, level): [] for kind in ("triage", "chi-square") for level in LEVELS}
    seconds = []
    for seed in range(repeats):
        calibrator, rows, off = simulated(seed, sizes)
        start = time.perf_counter()
        made = pj.triage(calibrator, *rows, against="predictions")
        seconds.append(time.perf_counter() - start)
        is_off = off[made["segment"]]
        q_values = {
            "triage": made["q_value"],
            "chi-square": false_discovery_control(made["cox_p_value"]),
        }
        for (kind, level), outcomes in each.items():
            found = q_values[kind] <= level
            false = (found & ~is_off).sum() / max(1, found.sum())
            outcomes.append((false, (found & is_off).sum() / is_off.sum()))
    line: dict = {"rows": f"{sizes[0]} to {sizes[1] - 1}", "seconds": round(min(seconds), 2)}
    for (kind, level), outcomes in each.items():
        false, power = np.mean(outcomes, axis=0)
        line[f"{kind}, level {level:g}"] = {
            "false discovery rate": round(float(false), 4),
            "its standard error": round(float(np.std(outcomes, axis=0)[0] / repeats**0.5), 4),
            "discovered": round(float(power), 4),
        }
    return line


def simulated(seed: int, sizes: tuple[int, int]):
    """A calibrator that is right of most segments, rows, and which it is not right of."""
    rng = np.random.default_rng(seed)
    segments = np.repeat(np.arange(_SEGMENTS), rng.integers(*sizes, size=_SEGMENTS))
    A, B = rng.normal(-1.5, 0.4, _SEGMENTS), rng.normal(0.5, 1, _SEGMENTS)
    off = rng.random(_SEGMENTS) < _SHARE_OFF
    shift = np.where(off, rng.choice([-1.0, 1.0], _SEGMENTS), 0)
    slope = np.where(off, rng.choice([0.4, 1.8], _SEGMENTS), 1)
    scores = rng.normal(size=len(segments))
    logit = -(A[segments] * scores + B[segments])
    labels = rng.random(len(segments)) < expit(shift[segments] + slope[segments] * logit)
    anything = pj.fit_segments(scores, labels, segments)
    calibrator = replace(anything, fit=replace(anything.fit, A=A, B=B))
    return calibrator, (scores, labels, segments), off


if __name__ == "__main__":
    main()
