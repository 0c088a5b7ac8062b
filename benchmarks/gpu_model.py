"""Times on an H200, predicted from compiled programs: ``python -m benchmarks.gpu_model``.

A program takes the larger of two times, that of its bytes at the rate of a copy and that of its
exponentials, and the starts of its kernels. The bytes and kernels are those of
results/gpu-compiled.json (``python -m benchmarks.gpu.compiled``). Nothing here is measured on a
GPU; ``python -m benchmarks.gpu_first_run`` measures the same programs on one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.gpu.compiled import RECORD

# An H200's copy, bytes read and written per second.
COPY = 4.3e12
# Seconds to start a kernel that follows another in a stream. In a command buffer it is less.
START = 3e-6
# Rows per second of a pass that is bound by its exponentials and divisions.
ROWS = {"float32": 2e12, "float64": 0.4e12}
# Passes of a fit from the usual start, on data of two overlapping classes.
PASSES = 3.6
# Bytes of a row that a pass cannot do without: a score and a label.
FLOOR = {"float32": 5, "float64": 9}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_model")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    about = machine.describe()
    programs = json.loads(RECORD.read_text())["programs"]
    found = {name: predicted(name, program) for name, program in programs.items()}
    for name, line in found.items():
        print(f"{name}: {json.dumps(line)}")
    record = {"machine": about, "predicted, not measured": found}
    (args.out / "gpu-model.json").write_text(json.dumps(record, indent=1) + "\n")


def predicted(name: str, program: dict[str, Any]) -> dict[str, Any]:
    """The predicted milliseconds of a program, by its parts."""
    dtype = name.rpartition(", ")[2]
    # A kernel that searches reads rows once, and computes with them in every pass.
    times = PASSES if "searched by a kernel" in name else 1
    outside = _seconds(program["bytes per row"], program["kernels"], program["rows"], dtype, times)
    passes = 0.0
    if of_pass := program.get("pass"):
        passes = PASSES * _seconds(
            of_pass["bytes per row"], of_pass["kernels"], program["rows"], dtype
        )
    floor = (PASSES if passes else 1) * program["rows"] * FLOOR[dtype] / COPY
    return {
        "milliseconds": _ms(outside + passes),
        "of which in passes": _ms(passes),
        "floor": _ms(floor),
        "rows per second": float(f"{program['rows'] / (outside + passes):.2g}"),
    }


def _seconds(bytes_per_row: float, kernels: int, rows: int, dtype: str, times: float = 1) -> float:
    """The seconds of kernels that compute with each row some times."""
    return max(rows * bytes_per_row / COPY, times * rows / ROWS[dtype]) + kernels * START


def _ms(seconds: float) -> float:
    return float(f"{1e3 * seconds:.3g}")


if __name__ == "__main__":
    main()
