"""Compiles every entry for an H200 without one: ``python -m benchmarks.gpu.compiled``.

It needs JAX's CUDA plugin and no GPU: ``pip install jax jax-cuda12-plugin jax-cuda12-pjrt
nvidia-cuda-nvcc-cu12``. With --check it compares the programs with those on record and with the
rules below, and fails where one is broken; otherwise it writes the record.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np

from benchmarks import machine
from benchmarks.gpu import entries, programs, target
from platt_jax.passes import shapes

RECORD = Path(__file__).parents[1] / "results" / "gpu-compiled.json"

# Operations that would leave the device, or move rows between devices.
_FORBIDDEN = {"sort", "custom-call", "infeed", "outfeed", "send", "recv", "all-gather"}
_FORBIDDEN |= {"all-to-all", "collective-permute"}

# A kernel is of the rows' size if it moves at least this many bytes a row.
_OF_ROWS = 1.0
# XLA launches up to so many kernels one by one, and more as one command buffer.
_LAUNCHED_ALONE = 4
# By how much more than recorded a program may read and write, or use as temporary memory.
_TOLERANCE = 1.05


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.compiled")
    parser.add_argument("--check", action="store_true", help="compare with the record")
    parser.add_argument("--only", nargs="+", help="names of entries")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"])
    parser.add_argument("--half", action="store_true", help="each entry in one of the dtypes")
    args = parser.parse_args()
    found, broken, about = {}, [], machine.describe()
    recorded = json.loads(RECORD.read_text())["programs"] if RECORD.exists() else {}
    for dtype in args.dtypes:
        with jax.enable_x64(dtype == "float64"), target.chosen():
            every = entries.entries(np.dtype(dtype))
            every |= entries.by_kernels(np.dtype(dtype))
            every |= entries.of_meshes(np.dtype(dtype), target.mesh((2, 2)))
            for number, (name, entry) in enumerate(every.items()):
                if args.only and name not in args.only:
                    continue
                if args.half and number % 2 != (dtype == "float64"):
                    continue
                label = f"{name}, {dtype}"
                program = programs.compiled(target.lowered(entry))
                found[label] = described(program, entry)
                broken += [f"{label}: {rule}" for rule in broken_rules(program, entry)]
                if args.check:
                    broken += [f"{label}: {x}" for x in worse(found[label], recorded.get(label))]
                print(f"{label}: {json.dumps(found[label])}", flush=True)
    if args.check or broken:
        sys.exit("\n".join(broken) or None)
    record = {"machine": about, "compiled for": "NVIDIA H200", "programs": recorded | found}
    record["with a CPU's sizes"] = with_cpu_sizes()
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


def with_cpu_sizes() -> dict[str, Any]:
    """Some programs in float32 as they were without sizes of its own for a GPU."""
    sizes = shapes.CPU._replace(tile_shapes=shapes.TILE_SHAPES)
    jax.clear_caches()  # of programs traced with a GPU's sizes
    found = {}
    with jax.enable_x64(False), mock.patch.object(shapes, "sizes", lambda: sizes):
        every = entries.entries(np.dtype("float32"))
        for name in ("solve 10,000 x 1,000", "fit_segments, about 1,000 rows each"):
            program = programs.compiled(target.lowered(every[name]))
            found[f"{name}, float32"] = described(program, every[name])
    return found


def described(program: programs.Program, entry: entries.Entry) -> dict[str, Any]:
    """What is recorded of a program; bytes per row include those of padding."""
    per_device = entry.rows // entry.devices
    outside, loops = program.kernels(program.entry), program.loops(program.entry)
    if entry.parts > 1:
        for body in set(loops) - set(_searches(program, entry)):
            outside += entry.parts * program.kernels(body)
    about = {
        "rows": per_device,
        "kernels": len(outside),
        "bytes per row": _bytes_per_row(outside, per_device),
        "temporary bytes per row": round(program.temporary_bytes / per_device, 1),
        "launches": len(program.thunks),
        "spills registers": int(program.spills),
    }
    if entry.searches:
        (loop,) = _searches(program, entry)
        inside = program.kernels(loop)
        # A loop within the loop reads some rows at a time, as all programs do with a CPU's sizes.
        batches = -(-per_device // shapes.CPU.tiles_at_once) if entry.parts == 1 else entry.parts
        for body in program.loops(loop):
            inside += batches * program.kernels(body)
        large = [x for x in inside if x.bytes * entry.parts >= _OF_ROWS * per_device]
        about["pass"] = {
            "kernels": len(inside),
            "kernels of the rows' size": len(large) // entry.parts,
            "bytes per row": _bytes_per_row(inside, per_device),
        }
    return about


def _searches(program: programs.Program, entry: entries.Entry) -> list[str]:
    """The bodies of the loops that are searches, and not passes over parts of the rows."""
    loops = program.loops(program.entry)
    return loops if entry.parts == 1 else [body for body in loops if program.loops(body)]


def _bytes_per_row(kernels: list[programs.Kernel], rows: int) -> float:
    return round(sum(x.bytes for x in kernels) / rows, 1)


def broken_rules(program: programs.Program, entry: entries.Entry) -> list[str]:
    """The rules that a program breaks."""
    forbidden = _FORBIDDEN - ({"custom-call"} if entry.static.get("compiler") else set())
    # CUB's sort is a call; without a GPU XLA does not know how much memory it needs.
    forbidden -= {"sort", "custom-call"} if entry.sorts else set()
    broken = [f"has the operation {x}" for x in sorted(forbidden & program.operations())]
    loops = _searches(program, entry)
    if entry.searches and len(loops) != 1:
        broken.append(f"has {len(loops)} loops besides each other; expected the search alone")
    if entry.parts == 1 and any(program.loops(body) for body in loops):
        broken.append("has a loop within a loop")
    # A search whose devices exchange sums returns to the host.
    few = not entry.searches and len(program.kernels(program.entry)) <= _LAUNCHED_ALONE
    if entry.devices == 1 and len(program.thunks) > 1 and not few:
        broken.append(f"is launched as {program.thunks}; expected one command buffer")
    return broken


def worse(now: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    """The figures that are larger than those on record."""
    if before is None:
        return ["is not on record"]
    found = []
    for name, figure in now.items():
        if isinstance(figure, dict):
            found += [f"in a pass, {x}" for x in worse(figure, before[name])]
        elif figure > before[name] * (_TOLERANCE if "bytes" in name else 1):
            found.append(f"{name}: {figure}, recorded {before[name]}")
    return found


if __name__ == "__main__":
    main()
