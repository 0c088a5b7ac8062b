"""Segments of alike and of skewed sizes: ``python -m benchmarks.skewed --rows 10000000``.

Whole calls of `fit_segments` in memory, grouping included, on the same scores and labels. Ids are
drawn uniformly, as those that `cost_model` is fitted to, or in proportion to log-normal sizes, as
those of `rows_on_disk`. In one process both kinds take turns, after a call of each. The first call
of that size is measured in processes of its own, which fit fewer rows before, so that it compiles
nothing. Beside them is what the cost model's constants predict. Where others use the machine, the
seconds grow, and the processors' seconds and the ratio hardly do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

import platt_jax as pj
from benchmarks import machine
from platt_jax import SegmentRows

_RESULTS = Path(__file__).parent / "results"
_KINDS = ("uniform", "log-normal")
_SIGMA = 1.5
_FEW = 1 << 21
_PROCESSES = 3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.skewed")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000, 50_000_000])
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=_RESULTS)
    parser.add_argument("--first", choices=_KINDS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.first:
        print(_first(args.rows[0], args.segments, args.first))
        return
    found = {"machine": machine.describe(), "results": []}
    for rows in args.rows:
        of_rows = measure(rows, args.segments, args.repeats)
        found["results"].append({"rows": rows, "segments": args.segments, **of_rows})
        print(found["results"][-1], flush=True)
    (args.out / "skewed.json").write_text(json.dumps(found, indent=1) + "\n")


def measure(rows: int, segments: int, repeats: int) -> dict:
    """Medians of seconds, for each kind of ids."""
    f, y, *ids = _columns(rows, segments, _KINDS)
    kinds = dict(zip(_KINDS, ids, strict=True))
    measured = ("whole call", "processors of the whole call", "grouping", "fit")
    times = {kind: {name: [] for name in measured} for kind in kinds}
    for s in kinds.values():
        pj.fit_segments(f, y, s)
    for _ in range(repeats):
        for kind, s in kinds.items():
            of = times[kind]
            before = time.process_time()
            of["whole call"].append(_seconds(pj.fit_segments, f, y, s)[0])
            of["processors of the whole call"].append(time.process_time() - before)
            seconds, grouped = _seconds(SegmentRows, f, y, s)
            of["grouping"].append(seconds)
            of["fit"].append(_seconds(pj.fit_segments, grouped)[0])
            del grouped
    seconds = {kind: {x: round(median(y), 3) for x, y in of.items()} for kind, of in times.items()}
    for kind in kinds:
        command = [sys.executable, "-m", "benchmarks.skewed", "--first", kind]
        command += ["--rows", str(rows), "--segments", str(segments)]
        firsts = [float(subprocess.check_output(command)) for _ in range(_PROCESSES)]
        seconds[kind]["first call"] = round(median(firsts), 3)
    pairs = zip(*(times[kind]["whole call"] for kind in kinds), strict=True)
    constants = json.loads((_RESULTS / "cost_model.json").read_text())["constants"].values()
    predicted = np.dot(list(constants), [1, rows, segments])
    return {
        "seconds": seconds,
        "log-normal over uniform, whole calls": round(median(b / a for a, b in pairs), 2),
        "predicted": round(float(predicted), 3),
        "rows of the largest segment": {
            kind: int(np.bincount(s).max()) for kind, s in kinds.items()
        },
    }


def _first(rows, segments, kind):
    f, y, s = _columns(rows, segments, [kind])
    pj.fit_segments(*(x[:_FEW] for x in (f, y, s)))
    return _seconds(pj.fit_segments, f, y, s)[0]


def _columns(rows, segments, kinds):
    """Scores, labels, and ids of each kind."""
    random = np.random.default_rng(1)
    f = random.standard_normal(rows, np.float32)
    y = (random.random(rows, np.float32) < 1 / (1 + np.exp(-f))).astype(np.int8)
    share = np.cumsum(random.lognormal(0, _SIGMA, segments))
    drawn = {
        "uniform": lambda: random.integers(0, segments, rows, np.int32),
        "log-normal": lambda: np.searchsorted(share, share[-1] * random.random(rows)),
    }
    return f, y, *(drawn[kind]().astype(np.int32) for kind in kinds)


def _seconds(call, *arguments):
    began = time.perf_counter()
    made = call(*arguments)
    return time.perf_counter() - began, made


if __name__ == "__main__":
    main()
