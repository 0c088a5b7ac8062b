"""Milliseconds of each compiled program by its bytes and kernels, beside what a card measured.

``python -m benchmarks.gpu.predicted [results/gpu-<device>-<date>.json]`` prints a table. The model
is the sum of two times: all bytes of the kernels at the rate of a copy, and a launch per kernel.
What a card takes longer is arithmetic, latency, or returns to the host. Caches are not in it: a
program whose rows stay in the second-level cache may be faster.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.gpu.compiled import RECORD

# Bytes per second of a copy, read and written: as measured on each card.
_COPY = {"H100": 2.78e12, "H200": 4.3e12}
_SECONDS_OF_LAUNCH = 3e-6  # of a kernel within a command buffer, as measured on an H200
_PASSES = 3  # evaluations until the slowest of many problems has stopped
# Loops that are no search: their rounds.
_NODES = {"posteriors of partial pooling": 25, "32 draws of triage": 32}


def main() -> None:
    programs = json.loads(RECORD.read_text())["programs"]
    measured = json.loads(Path(sys.argv[1]).read_text())["programs"] if sys.argv[1:] else {}
    print("| program | " + " | ".join(f"{card}, ms" for card in _COPY) + " | measured, ms |")
    print("|---|" + "---|" * (len(_COPY) + 1))
    for name, program in programs.items():
        rounds = _NODES.get(name.rpartition(", ")[0], _PASSES)
        times = [f"{1e3 * predicted(program, rounds, card):.3g}" for card in _COPY]
        print(f"| {name} | {' | '.join(times)} | {measured.get(name, '')} |")


def predicted(program: dict[str, Any], rounds: int, card: str) -> float:
    """Seconds of a program of the record on this card, with so many rounds of its loop."""
    seconds = _seconds(program, program["rows"], card)
    if "pass" in program:
        seconds += rounds * _seconds(program["pass"], program["rows"], card)
    return seconds


def _seconds(part: dict[str, Any], rows: int, card: str) -> float:
    return part["bytes per row"] * rows / _COPY[card] + part["kernels"] * _SECONDS_OF_LAUNCH


if __name__ == "__main__":
    main()
