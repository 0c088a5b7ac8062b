"""Times of curves beside other packages: ``python -m benchmarks.curve_speed [--out FILE]``.

Two million rows in 10,000 segments of any size: `fit_segments` with each curve, and the package
that has the curve in a loop over a sample of the segments, scaled to all of them. Each time is the
least of some repeats; the seconds of all processors are told too, as other processes disturb those
of the clock.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import platt_jax as pj
from benchmarks import machine

_RESULTS = Path(__file__).parent / "results" / "curve_speed.json"
_SEGMENTS, _ROWS, _SAMPLE = 10_000, 2_000_000, 200
_CURVES = "sigmoid", "quadratic", "beta", "isotonic", "venn_abers"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=_SEGMENTS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=_RESULTS)
    arguments = parser.parse_args()
    about = machine.describe()
    number = arguments.segments
    f, y, segments = made_up(number, _ROWS * number // _SEGMENTS)
    ours = {name: (9e9, 9e9) for name in _CURVES}
    for _ in range(arguments.repeats + 1):  # the first compiles
        for name in _CURVES:
            took = seconds(lambda name=name: pj.fit_segments(f, y, segments, curve=name))
            ours[name] = tuple(map(min, ours[name], took))
    few = np.random.default_rng(1).permutation(number)[:_SAMPLE]
    rows = [(f[mine], y[mine]) for mine in (np.flatnonzero(segments == k) for k in few)]
    # Judged by rows, which differ between segments, and not by segments.
    scale = len(f) / sum(len(x) for x, _ in rows)
    told = {
        "machine": about,
        "rows": len(f),
        "segments": number,
        "segments in a loop": len(rows),
        "seconds": {name: round(wall, 3) for name, (wall, _) in ours.items()},
        "processor seconds": {name: round(cpu, 3) for name, (_, cpu) in ours.items()},
        "loops, processor seconds": {},
        "loop over ours": {},
    }
    for (curve, package), fit in peers().items():
        cpu = min(seconds(lambda fit=fit: loop(fit, rows))[1] for _ in range(2)) * scale
        told["loops, processor seconds"][f"{curve}: {package}"] = round(cpu, 2)
        told["loop over ours"][f"{curve}: {package}"] = round(cpu / ours[curve][1], 1)
    arguments.out.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told, indent=1))


def made_up(number: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels of bent curves, and segments, in random order."""
    rng = np.random.default_rng(0)
    sizes = 20 + rng.multinomial(rows - 20 * number, rng.dirichlet(np.full(number, 1.5)))
    segments = rng.permutation(np.repeat(np.arange(number), sizes))
    f = rng.normal(size=rows)
    return f, rng.random(rows) < 1 / (1 + np.exp(0.5 - 1.2 * f - 0.3 * f * f)), segments


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """By the clock, and of all processors."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def loop(fit: Callable, rows: list[tuple[np.ndarray, np.ndarray]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for f, y in rows:
            if y.any() and not y.all():  # as they need
                fit(f, y)


def peers() -> dict[tuple[str, str], Callable]:
    """By curve and package: a fit of one segment. Venn-Abers predictors also predict its rows."""
    found: dict[tuple[str, str], Callable] = {
        ("quadratic", "scikit-learn"): lambda f, y: LogisticRegression(C=np.inf).fit(
            np.stack([f, f * f], 1), y
        ),
        ("isotonic", "scikit-learn"): lambda f, y: IsotonicRegression(out_of_bounds="clip").fit(
            f, y
        ),
    }
    try:
        from betacal import BetaCalibration

        found["beta", "betacal"] = lambda f, y: BetaCalibration().fit(1 / (1 + np.exp(-f)), y)
    except ImportError:
        pass
    try:
        from venn_abers import VennAbers
    except ImportError:
        return found

    def venn_abers(f: np.ndarray, y: np.ndarray) -> None:
        p = 1 / (1 + np.exp(-f))
        both = np.stack([1 - p, p], 1)
        made = VennAbers()
        made.fit(both, y.astype(int))
        made.predict_proba(both)

    found["venn_abers", "venn-abers"] = venn_abers
    return found


if __name__ == "__main__":
    main()
