"""Peak memory of every public function over rows: ``python -m benchmarks.memory``.

Each is called in a process of its own, twice: the first call makes what it needs and compiles. What
the second takes at its peak, beyond the process with the rows and with what the call is given, is
told in bytes a row; its result is included. The more threads get a core at the same time, the more
buffers are in use at once: other work on the machine makes the peak lower, and no two processes
have the same. So for the smaller size the most of three processes is told, one at a time; for the
larger one a process each, two at a time. `--quick` tries small sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import fresh, machine
from benchmarks.row_calls import CALLS, FLAT_CALLS, ROW_BYTES, Drawn

_RESULTS = Path(__file__).parent / "results" / "memory.json"
# Rows, segments, processes for each call, of them at the same time.
_SIZES = ((1_000_000, 10_000, 3, 1), (10_000_000, 100_000, 1, 2))
_QUICK_SIZES = ((10_000, 10, 1, 2),)
_LONGEST = 60.0  # seconds of a process


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    names = [*CALLS, *FLAT_CALLS]
    parser.add_argument("--quick", action="store_true", help="small sizes: does it all run?")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="CALL")
    parser.add_argument("--out", type=Path, default=_RESULTS)
    parser.add_argument("--here", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print(json.dumps(bytes_per_row(args.only[0], *args.here)))
        return
    found = {"machine": machine.describe(), "bytes of a row": ROW_BYTES, "results": []}
    for rows, segments, processes, at_once in _QUICK_SIZES if args.quick else _SIZES:
        each = [of_each(args.only, rows, segments, at_once) for _ in range(processes)]
        of = {name: _most([one[name] for one in each]) for name in args.only}
        found["results"].append({"rows": rows, "segments": segments, "bytes per row": of})
        print(json.dumps(found["results"][-1], indent=1), flush=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def of_each(
    names: Iterable[str], rows: int, segments: int, at_once: int = 2, longest: float = _LONGEST
) -> dict[str, float | None]:
    """Bytes per row of each call, by `at_once` processes at the same time; None after `longest`."""
    names = list(names)
    with ThreadPoolExecutor(at_once) as pool:
        each = pool.map(lambda name: _in_a_new_process(name, rows, segments, longest), names)
        return dict(zip(names, each, strict=True))


def _most(each: Sequence[float | None]) -> float | None:
    """None if a process took too long."""
    found = [x for x in each if x is not None]
    return max(found) if len(found) == len(each) else None


def bytes_per_row(name: str, rows: int, segments: int) -> float:
    """At the peak of a call in this process."""
    drawn, call = Drawn(rows, segments), (CALLS | FLAT_CALLS)[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what these rows are
        return round(fresh.extra_bytes(lambda: call(drawn)) / rows, 1)


def _in_a_new_process(name: str, rows: int, segments: int, longest: float) -> float | None:
    """The same in a new process; None if that takes too long."""
    command = [sys.executable, "-m", "benchmarks.memory", "--only", name]
    command += ["--here", str(rows), str(segments)]
    env = os.environ | fresh.ONE_HEAP
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=env, timeout=longest
        )
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
