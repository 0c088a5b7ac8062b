"""platt_jax beside its peers: ``python -m benchmarks`` (NOTES.md says what is what)."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import clock, machine
from benchmarks.measure import Figures, measure
from benchmarks.peers import contenders
from benchmarks.workloads import Workload, catalogue

_DTYPES = {"float64": np.float64, "float32": np.float32}


def main() -> None:
    names = list(catalogue(quick=True))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small workloads: does it all run?")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, default=names)
    parser.add_argument("--dtypes", nargs="+", choices=list(_DTYPES), help="quick: float64")
    contender_names = [c.name for c in contenders()]
    parser.add_argument(
        "--skip", nargs="+", metavar="CONTENDER", choices=contender_names, default=[]
    )
    parser.add_argument("--repeats", type=int, help="7 to 35, or 2 with --quick")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()

    dtypes = args.dtypes or (["float64"] if args.quick else list(_DTYPES))
    about = machine.describe()
    print(f"{about['cpu']}, {about['cores']} cores, device {about['device']}, {about['date']}")
    chosen = [c for c in contenders() if c.name not in args.skip]
    results = []
    for name in args.only:
        for dtype in dtypes:
            at = catalogue(args.quick)[name](_DTYPES[dtype])
            repeats = args.repeats or (2 if args.quick else _turns(at))
            figures = measure(at, chosen, repeats, tries=1 if args.quick else clock.TRIES)
            print(table(at, figures, about["device_copy_gb_per_s"]), flush=True)
            results.append(
                {
                    "workload": name,
                    "dtype": dtype,
                    "problems": at.problems,
                    "rows": at.rows,
                    "packed_bytes": at.rows * at.row_bytes,
                    "figures": [asdict(f) for f in figures],
                }
            )
            del at
    quick = "-quick" if args.quick else ""
    path = args.out / f"{machine.slug(about['device'])}-{about['date']}{quick}.json"
    args.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": about, "results": results}, indent=1) + "\n")
    print(f"\nwritten: {path}")


def _turns(at: Workload) -> int:
    """More where calls are short: a burst of other processes' work lasts several turns."""
    return min(35, max(7, 35_000_000 // at.rows))


def table(at: Workload, figures: list[Figures], copy_gb_per_s: float) -> str:
    """The contenders of one workload in one dtype."""
    lines = [
        f"\n{at.name} {at.scores.dtype}: {at.problems:,} problems, {at.rows:,} rows",
        f"  {'':<22}{'seconds':>10}{'ns/row':>10}{'x faster than':>15}{'x the time':>12}  ",
        f"  {'':<22}{'(median)':>10}{'':>10}{'Appendix 3':>15}{'of limit':>12}",
    ]
    for f in figures:
        lines.append(
            f"  {f.contender:<22}{f.seconds:>10.4f}{f.ns_per_row:>10.2f}"
            f"{_ratio(f.appendix3_ratio):>15}{_ratio(f.limit_ratio):>12}{_remarks(at, f)}"
        )
    solve = next((f for f in figures if f.contender == "platt_jax solve"), None)
    if solve and solve.passes:
        floor = at.rows * at.row_bytes * solve.passes / (copy_gb_per_s * 1e9)
        lines.append(
            f"  {solve.contender}: {solve.passes:.2f} passes; to read the rows as often, at "
            f"the {copy_gb_per_s:.0f} GB/s of a copy, would take {floor:.4f} s"
        )
    return "\n".join(lines)


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3g}"


def _remarks(at: Workload, f: Figures) -> str:
    remarks = []
    if f.fitted < at.problems:
        remarks.append(f"scaled up from {f.fitted:,} problems")
    if f.short > f.excused:
        remarks.append(f"{f.short:,} short of the best loss, by {f.excess_loss:.0e} at worst")
    if f.failed:
        remarks.append(f"{f.failed:,} line searches failed, {f.excused:,} short of the best loss")
    if (stolen := median(f.stolen_all)) > clock.LITTLE:
        remarks.append(f"disturbed: the host took {stolen:.0%} of a processor")
    return "  " + "; ".join(remarks) if remarks else ""


if __name__ == "__main__":
    main()
