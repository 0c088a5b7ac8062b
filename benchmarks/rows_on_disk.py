"""Rows for the benchmarks of what is larger than memory.

float32 scores, int8 labels and int32 ids of segments, whose sizes are drawn from a log-normal
distribution.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

_PIECE = 1 << 22
COLUMNS = {"scores": np.float32, "labels": np.int8, "segments": np.int32}


def make(folder: Path, rows: int, segments: int, parquet: bool) -> None:
    """A file of each column, and with `parquet` one of all."""
    random = np.random.default_rng(1)
    share = np.cumsum(random.lognormal(0, 1.5, segments))
    slope = random.normal(1.5, 0.5, segments).astype(np.float32)
    arrays = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, (rows,))
        for name, dtype in COLUMNS.items()
    }
    for first in range(0, rows, _PIECE):
        number = min(_PIECE, rows - first)
        s = np.searchsorted(share, share[-1] * random.random(number)).astype(np.int32)
        f = random.standard_normal(number, np.float32)
        y = random.random(number, np.float32) < 1 / (1 + np.exp(1 - slope[s] * f))
        for array, values in zip(arrays.values(), (f, y, s), strict=True):
            array[first : first + number] = values
    if parquet:
        import pyarrow as pa
        from pyarrow import parquet as pq

        schema = pa.schema([(name, pa.from_numpy_dtype(x)) for name, x in COLUMNS.items()])
        with pq.ParquetWriter(folder / "rows.parquet", schema) as writer:
            for first in range(0, rows, _PIECE):
                part = {name: x[first : first + _PIECE] for name, x in arrays.items()}
                writer.write_table(pa.table(part, schema), row_group_size=1 << 20)


def resident() -> float:
    """The most that this process had so far, in GiB; `ru_maxrss` begins with that of its parent."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return round(int(status["VmHWM"].split()[0]) / 2**20, 2)
