"""What bounds the compiled solve: ``python -m benchmarks.floor``.

A fit is what is done once for all rows (gather, look, moments, standardise, the loss) and passes. A
fit that stops after its first pass tells the one from the other. Beside them, the least that XLA
takes for the five sums of a pass: no labels, padding, care for rounding or sums by problem.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import machine
from benchmarks.packed import Packed
from benchmarks.workloads import catalogue
from platt_jax import Options
from platt_jax.reductions import sum_together
from platt_jax.threads import in_order
from platt_jax.tiles import COMPILER_OPTIONS, DEPTH

# Rows that stay in the second-level cache, 16 lanes to a problem; and how often they are swept.
_SHAPE, _SWEEPS = (1024, DEPTH, 16), 20
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
    print(f"{'ns per row':<24}{'solve':>8}{'passes':>8}{'first':>8}{'further':>9}{'least':>8}")
    for dtype in (np.float64, np.float32):
        least = partial(least_of_a_pass, dtype)
        exponential = least(_exp_alone)
        print(f"{np.dtype(dtype).name}: exp alone {exponential:.2f}")
        for name in args.only:
            found = parts(name, dtype, args.repeats, args.quick)
            found |= {"least_of_a_pass": least(_five_sums), "exponential_alone": exponential}
            results.append({"workload": name, "dtype": np.dtype(dtype).name, **found})
            print(
                f"  {name:<22}{found['solve']:>8.2f}{found['passes']:>8.2f}{found['first']:>8.2f}"
                f"{found['per_further_pass']:>9.2f}{found['least_of_a_pass']:>8.2f}",
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
            start = time.perf_counter()
            packed.solve()
            times.append(time.perf_counter() - start)
    solve, once = (1e9 * median(times) / at.rows for times in seconds.values())
    return {
        "solve": solve,
        "passes": passes,
        "first": once,
        "per_further_pass": (solve - once) / (passes - 1),
    }


def least_of_a_pass(dtype: type, sums: Callable) -> float:
    """Nanoseconds per row of these sums of f and A, all cores at work as in a fit."""
    with jax.enable_x64(dtype == np.float64):
        rng = np.random.default_rng(0)
        f = jnp.asarray(rng.normal(size=_SHAPE), dtype)

        @partial(jax.jit, compiler_options=COMPILER_OPTIONS)
        def sweep(f, A):
            # What each sweep finds goes into the next, or XLA would make one of them all.
            return jax.lax.fori_loop(0, _SWEEPS, lambda _, A: A + 1e-30 * sums(f, A)[:, None], A)

        work = [jnp.full((_SHAPE[0], 1, _SHAPE[2]), 0.1 * i, dtype) for i in range(12)]

        def all_of_them():
            list(in_order(lambda A: jax.block_until_ready(sweep(f, A)), work))

        all_of_them()
        seconds = []
        for _ in range(9):
            start = time.perf_counter()
            all_of_them()
            seconds.append(time.perf_counter() - start)
    return 1e9 * median(seconds) / (f.size * _SWEEPS * len(work))


def _five_sums(f, A):
    p = 1 / (1 + jnp.exp(A * f))
    h = p * (1 - p)
    return sum(sum_together(1, f * p, p, f * (f * h), f * h, h))


def _exp_alone(f, A):
    return sum(sum_together(1, jnp.exp(A * f), f))


if __name__ == "__main__":
    main()
