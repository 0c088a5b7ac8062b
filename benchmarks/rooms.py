"""Times of every public function over rows beside a fit's: ``python -m benchmarks.rooms``.

All are called in one process, on float64 scores. Each time is the least of some calls after the
first, by the clock and of all processors. A call that would take too long, by its time for a tenth
of the rows, is left out. `--quick` tries small sizes.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.row_calls import CALLS, FLAT_CALLS, Drawn

_RESULTS = Path(__file__).parent / "results" / "rooms.json"
_MEMORY = _RESULTS.with_name("memory.json")
_PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "scaling.md"
_HEAD = "| times `fit_segments` of the same rows"
_SHOWN = (
    "100,000 rows, 1,000 segments",
    "1,000,000 rows, 1,000 segments",
    "10,000,000 rows, 10 segments",
    "10,000,000 rows, 100,000 segments",
)
_ROWS, _SEGMENTS = (100_000, 1_000_000, 10_000_000), (10, 1_000, 100_000)
_QUICK_ROWS, _QUICK_SEGMENTS = (1_000, 10_000), (10,)
_ALL = CALLS | FLAT_CALLS
_LONGEST = 12.0  # seconds
_REPEATED = 0.3  # a call is repeated for so many seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rooms", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it all run?")
    parser.add_argument("--only", nargs="+", choices=_ALL, metavar="CALL")
    parser.add_argument("--out", type=Path, default=_RESULTS)
    parser.add_argument("--page", action="store_true", help="only write the documentation's table")
    args = parser.parse_args()
    if args.page:
        _write_page()
        return
    about = machine.describe()
    few = (_QUICK_ROWS, _QUICK_SEGMENTS) if args.quick else (_ROWS, _SEGMENTS)
    repeated, longest = (0, math.inf) if args.quick else (_REPEATED, _LONGEST)
    results: dict[str, dict[str, Any]] = {}
    began = time.perf_counter()
    warnings.simplefilter("ignore")  # of what these rows are, such as segments of one row
    for segments in few[1]:
        for rows in few[0]:
            drawn = Drawn(rows, segments)
            for name in args.only or (CALLS if segments > few[1][0] else CALLS | FLAT_CALLS):
                of = results.setdefault(name, {})
                tenth = of.get(_size(rows // 10, segments), {"seconds": 0.0})
                too_long = tenth is None or 10 * tenth["seconds"] > longest
                of[_size(rows, segments)] = (
                    None if too_long else _timed(_ALL[name], drawn, repeated)
                )
            took = time.perf_counter() - began
            print(f"{_size(rows, segments)}: {took:.0f} s so far", flush=True)
    found = {"machine": about, "seconds of the run": round(took), "results": results}
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _size(rows: int, segments: int) -> str:
    return f"{rows:,} rows, {segments:,} segments"


def _timed(call: Any, drawn: Drawn, repeated: float) -> dict[str, float]:
    """The least times of calls after the first, which makes what is needed and compiles."""
    call(drawn)
    began, found = time.perf_counter(), []
    while not found or time.perf_counter() - began < repeated:
        gc.collect()
        wall, processors = time.perf_counter(), time.process_time()
        call(drawn)
        found.append((time.perf_counter() - wall, time.process_time() - processors))
    least = (float(f"{min(x):.3g}") for x in zip(*found, strict=True))
    return dict(zip(("seconds", "processor seconds"), least, strict=True))


def table() -> list[str]:
    """Lines of Markdown: times as multiples of the first call's, and memory, as they are stored."""
    results = json.loads(_RESULTS.read_text(encoding="utf-8"))["results"]
    memory = json.loads(_MEMORY.read_text(encoding="utf-8"))
    bytes_per_row = memory["results"][-1]["bytes per row"]
    (first, reference), *others = results.items()
    lines = [f"{_HEAD} | {' | '.join(_SHOWN)} | memory, times the rows |"]
    lines += ["|---" * (2 + len(_SHOWN)) + "|"]
    seconds = [f"{reference[size]['seconds']:.2g} s" for size in _SHOWN]
    cells = {first: seconds}
    for name, of in others:
        cells[name] = [_multiple(of.get(size), reference[size]) for size in _SHOWN]
    for name, each in cells.items():
        taken = bytes_per_row[name]
        each.append("" if taken is None else f"{taken / memory['bytes of a row']:.1f}")
        function, comma, option = name.partition(", ")
        lines.append(f"| `{function}`{comma and f', `{option}`'} | {' | '.join(each)} |")
    return lines


def _multiple(of: dict[str, float] | None, reference: dict[str, float]) -> str:
    if of is None:
        return ""
    times = of["seconds"] / reference["seconds"]
    return f"{times:.2g}" if times < 99.5 else f"{times:.0f}"


def _write_page() -> None:
    """Replaces the table of the page."""
    text = _PAGE.read_text(encoding="utf-8")
    start = text.index(_HEAD)
    text = text[:start] + "\n".join(table()) + text[text.index("\n\n", start) :]
    _PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
