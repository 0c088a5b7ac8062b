"""How cost grows, and what else is promised of it: ``python -m benchmarks.scaling``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import platt_jax as pj
from benchmarks import clock, fresh, machine, workloads

_DTYPES = {"float64": np.float64, "float32": np.float32}
_COLORS = {"float64": "#1f4e79", "float32": "#d1701f"}
_ROWS_PER_PROBLEM = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it all run?")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    most = 1_000_000 if args.quick else 30_000_000
    total = 100_000 if args.quick else 5_000_000

    about = machine.describe()
    results: dict[str, Any] = {"machine": about}
    parts: dict[str, Callable[[], Any]] = {
        "import_seconds": fresh.import_seconds,
        "compile_seconds": first_calls,
        "peak_memory": lambda: peak_memory(args.quick),
        "rows": lambda: growth_in_rows(most, args.repeats),
        "segments": lambda: growth_in_segments(total, args.repeats),
        "stragglers": lambda: stragglers(1_000 if args.quick else 10_000, 2 * args.repeats),
        "predict": lambda: predict(total if args.quick else 10_000_000, args.repeats),
    }
    for name, part in parts.items():
        results[name] = part()
        print(f"{name}: {json.dumps(results[name], indent=1)}", flush=True)

    quick = "-quick" if args.quick else ""
    name = f"scaling-{machine.slug(about['device'])}-{about['date']}{quick}"
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    draw(results, args.out / f"{name}.png")
    print(f"written: {args.out / name}.json and .png")


def first_calls() -> dict[str, dict[str, float]]:
    """Seconds of the first and second call of a process, dense and ragged."""
    return {
        f"{kind} {dtype}": fresh.compile_seconds(dtype, kind == "ragged")
        for kind in ("dense", "ragged")
        for dtype in _DTYPES
    }


def peak_memory(quick: bool) -> dict[str, dict[str, float]]:
    """Memory beyond the caller's arrays, against the packed rows."""
    many = [(1, 10_000_000), (100, 100_000), (10_000, 1_000), (500_000, 12), (50_000, 1_000)]
    shapes = [(100, 1_000)] if quick else many
    return {
        f"{kind} {problems}x{rows} {dtype}": fresh.peak_memory(
            problems, rows, dtype, kind == "ragged"
        )
        for problems, rows in shapes
        for kind in ("dense", "ragged")
        for dtype in _DTYPES
    }


def growth_in_rows(most: int, repeats: int) -> dict[str, list[dict[str, float]]]:
    """A whole call of `fit` on ever more problems of 1,000 rows."""
    counts = [n for n in (10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**7, 3 * 10**7) if n <= most]
    out: dict[str, list[dict[str, float]]] = {name: [] for name in _DTYPES}
    for name, dtype in _DTYPES.items():
        for rows in counts:
            at = workloads.even("", rows // _ROWS_PER_PROBLEM, _ROWS_PER_PROBLEM, dtype)
            out[name].append({"rows": rows, **_per_row(_fit_dense(at), rows, repeats)})
    return out


def growth_in_segments(rows: int, repeats: int) -> dict[str, list[dict[str, float]]]:
    """A whole call of `fit_segments` on as many rows in ever more segments of one size."""
    out: dict[str, list[dict[str, float]]] = {name: [] for name in _DTYPES}
    for name, dtype in _DTYPES.items():
        for segments in (n for n in (10, 100, 1_000, 10_000, 100_000, 1_000_000) if n <= rows // 5):
            at = workloads.ragged("", np.full(segments, rows // segments), dtype)
            assert at.ungrouped is not None
            found = _per_row(lambda rows=at.ungrouped: pj.fit_segments(*rows), rows, repeats)
            out[name].append({"segments": segments, **found})
    return out


def stragglers(problems: int, repeats: int) -> dict[str, float]:
    """Easy problems, and the same with one hard problem among them, in turns."""
    rng = np.random.default_rng(12)
    labels = (rng.random((problems, _ROWS_PER_PROBLEM)) < 0.4).astype(np.int8)
    easy = rng.normal(size=labels.shape) + 1.5 * labels
    hard = easy.copy()
    # Nothing but outliers: scores over ten orders of magnitude, which a threshold separates.
    middle = problems // 2
    side = np.where(labels[middle] == 1, 1.0, -1.0)
    hard[middle] = side * np.exp(5 * rng.normal(size=_ROWS_PER_PROBLEM))
    calls = [lambda: pj.fit(easy, labels), lambda: pj.fit(hard, labels)]
    fits = [call() for call in calls]
    alone, with_hard = _in_turns(calls, repeats)
    return {
        "easy_seconds": alone.seconds,
        "with_hard_seconds": with_hard.seconds,
        "ratio": with_hard.seconds / alone.seconds,
        "stolen": max(alone.stolen, with_hard.stolen),
        "mean_passes": float(np.mean(fits[0].passes)),
        "most_passes_easy": int(np.max(fits[0].passes)),
        "passes_of_hard": int(fits[1].passes[middle]),
    }


def predict(rows: int, repeats: int, segments: int = 4_000) -> dict[str, dict[str, float]]:
    """predict_proba over segments, against NumPy's gather and SciPy's expit, in turns."""
    out = {}
    for name, dtype in _DTYPES.items():
        at = workloads.ragged("", np.full(segments, rows // segments), dtype)
        assert at.ungrouped is not None
        scores, labels, ids = at.ungrouped
        calibrator = pj.fit_segments(scores, labels, ids)
        A, B = calibrator.fit.A, calibrator.fit.B
        calls = [
            lambda: calibrator.predict_proba(scores, ids),  # noqa: B023
            lambda: expit(-(A[ids] * scores + B[ids])),  # noqa: B023
        ]
        ours, numpy = _in_turns(calls, repeats)
        out[name] = {
            "rows_per_second": len(scores) / ours.seconds,
            "numpy_rows_per_second": len(scores) / numpy.seconds,
            "ratio_to_numpy": ours.seconds / numpy.seconds,
            "stolen": max(ours.stolen, numpy.stolen),
        }
    return out


def draw(results: dict[str, Any], path: Path) -> None:
    """Time per row against rows and against segments."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    first = results["segments"]["float64"][0]
    rows = round(1e9 * first["seconds"] / first["ns_per_row"])
    panels = (
        (left, "rows", f"fit: problems of {_ROWS_PER_PROBLEM:,} rows"),
        (right, "segments", f"fit_segments: {rows:,} rows in all"),
    )
    for axes, what, title in panels:
        for dtype, color in _COLORS.items():
            points = results[what][dtype]
            x, y = [p[what] for p in points], [p["ns_per_row"] for p in points]
            axes.plot(x, y, "o-", color=color, label=dtype)
            low = min(y)
            axes.fill_between(
                x,
                low,
                1.5 * low,
                color=color,
                alpha=0.12,
                linewidth=0,
                label=f"{dtype}: 1 to 1.5 times its least",
            )
        axes.set(xscale="log", xlabel=what, ylabel="nanoseconds per row", title=title)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    about = results["machine"]
    figure.suptitle(f"Whole calls, NumPy in to results out. {about['cpu']}, {about['cores']} cores")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _fit_dense(at: workloads.Workload) -> Callable[[], object]:
    scores, labels = at.dense(at.scores), at.dense(at.labels)
    return lambda: pj.fit(scores, labels)


def _per_row(call: Callable[[], object], rows: int, repeats: int) -> dict[str, float]:
    (found,) = _in_turns([call], repeats)
    return {**found._asdict(), "ns_per_row": 1e9 * found.seconds / rows}


def _in_turns(calls: list[Callable[[], object]], repeats: int) -> list[clock.Sample]:
    """The medians of each; the first call does not count."""
    for call in calls:
        call()
    numbers = [clock.calls_per_sample(call) for call in calls]
    turns = [list(map(clock.sample, calls, numbers)) for _ in range(repeats)]
    return [
        clock.Sample(*map(median, zip(*of_call, strict=True)))
        for of_call in zip(*turns, strict=True)
    ]


if __name__ == "__main__":
    main()
