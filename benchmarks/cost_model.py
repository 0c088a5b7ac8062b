"""A fit's seconds predicted: ``python -m benchmarks.cost_model``.

Whole calls of `fit_segments` in memory take a + b N + c K seconds, N rows and K segments. The three
constants are fitted to small sizes; then larger ones are predicted, and measured. What segments
take beside their rows in `platt_jax.distributed` is measured on a million of two rows.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median

import numpy as np

import platt_jax as pj
from benchmarks import machine
from platt_jax import distributed

# Beyond the caches, as the larger ones are.
_SMALL = [(n, k) for n in (4_000_000, 8_000_000, 16_000_000) for k in (1_000, 30_000, 100_000)]
_LARGE = [(30_000_000, 1_000_000), (100_000_000, 100_000), (300_000_000, 100_000)]
_MANY = 1_000_000
_REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_model", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    found = {"machine": machine.describe()}
    small = [(n, k, seconds(n, k)) for n, k in _SMALL]
    n, k, measured = np.array(small).T
    terms = np.column_stack([np.ones(len(n)), n, k])
    # Relative errors count alike.
    constants = np.linalg.lstsq(terms / measured[:, None], np.ones(len(n)), rcond=None)[0]
    names = "seconds of a call", "seconds of a row", "seconds of a segment"
    found["constants"] = dict(zip(names, constants.tolist(), strict=True))
    found["fitted to"] = [_line(*x, constants) for x in small]
    found["predicted"] = [_line(n, k, seconds(n, k), constants) for n, k in _LARGE]
    of_process = seconds(2 * _MANY, _MANY, lambda *x: pj.fit_segments(distributed.rows(*x)))
    found[f"one process, {_MANY:,} segments of two rows, seconds"] = round(of_process, 4)
    for line in (found["constants"], *found["fitted to"], *found["predicted"], of_process):
        print(line)
    (args.out / "cost_model.json").write_text(json.dumps(found, indent=1) + "\n")


def _line(rows, segments, measured, constants):
    predicted = float(constants @ [1, rows, segments])
    return {
        "rows": rows,
        "segments": segments,
        "predicted": round(predicted, 4),
        "measured": round(measured, 4),
        "measured over predicted": round(measured / predicted, 2),
    }


def seconds(rows: int, segments: int, fit_segments=pj.fit_segments) -> float:
    """The median of a few calls on float32 scores, int32 ids in no order, grouping included."""
    random = np.random.default_rng(1)
    s = random.integers(0, segments, rows, np.int32)
    f = random.standard_normal(rows, np.float32)
    y = (random.random(rows, np.float32) < 1 / (1 + np.exp(-f))).astype(np.int8)
    fit_segments(f, y, s)
    found = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        fit_segments(f, y, s)
        found.append(time.perf_counter() - began)
    return median(found)


if __name__ == "__main__":
    main()
