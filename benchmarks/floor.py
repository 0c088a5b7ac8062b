"""Where the time of a compiled solve goes: ``python -m benchmarks.floor``.

A fit is what is done once for all rows (score ranges, moments, the loss) and passes. A fit that
stops after its first pass tells the one from the other.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import clock, machine
from benchmarks.packed import Packed
from benchmarks.workloads import catalogue
from platt_jax import Options

_NAMES = ("1000x1000", "10000x1000", "20000x100", "100x100000", "ragged", "tiny")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small workloads: does it all run?")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=_NAMES, default=_NAMES)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()

    about = machine.describe()
    results = []
    print(f"{'ns per row':<24}{'solve':>8}{'passes':>8}{'first':>8}{'further':>9}")
    for dtype in (np.float64, np.float32):
        print(np.dtype(dtype).name)
        for name in args.only:
            found = parts(name, dtype, args.repeats, args.quick)
            results.append({"workload": name, "dtype": np.dtype(dtype).name, **found})
            print(
                f"  {name:<22}{found['solve']:>8.2f}{found['passes']:>8.2f}{found['first']:>8.2f}"
                f"{found['per_further_pass']:>9.2f}",
                flush=True,
            )
    quick = "-quick" if args.quick else ""
    path = args.out / f"floor-{machine.slug(about['device'])}-{about['date']}{quick}.json"
    path.write_text(json.dumps({"machine": about, "ns_per_row": results}, indent=1) + "\n")
    print(f"written: {path}")


def parts(name: str, dtype: type, repeats: int, quick: bool) -> dict[str, Any]:
    """Nanoseconds per row of a solve, of one that ends with its first pass, of a further pass."""
    at = catalogue(quick)[name](dtype)
    whole, first = Packed(at), Packed(at, Options(tol=1e30))
    passes = float(np.repeat(whole.in_order(whole.solve())["passes"], np.diff(at.offsets)).mean())
    first.solve()
    seconds: dict[Packed, list[float]] = {whole: [], first: []}
    for _ in range(repeats):
        for packed, times in seconds.items():
            times.append(clock.sample(packed.solve, tries=1 if quick else clock.TRIES).seconds)
    solve, once = (1e9 * median(times) / at.rows for times in seconds.values())
    return {
        "solve": solve,
        "passes": passes,
        "first": once,
        "per_further_pass": (solve - once) / (passes - 1),
    }


if __name__ == "__main__":
    main()
