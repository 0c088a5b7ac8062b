"""Make the demo's data file from the full flight scores.

    python benchmarks/make_demo_data.py SOURCE_NPZ OUT

SOURCE_NPZ holds all 327,346 scored flights of 2013 (platt_jax/data/README.md says how they were
scored); OUT gets the half-year that the model was not trained on. Every column repeats a few
distinct values many times, so each is stored as a table and codes into it: exact, and small. The
same NumPy and zlib make the same file, byte for byte.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def named(codes: NDArray[np.integer], names: NDArray[np.str_]) -> NDArray[np.str_]:
    """Names for codes into a newline-joined list of names."""
    return np.array(str(names).split("\n"))[codes]


def half_year(source: Path) -> dict[str, NDArray[np.generic]]:
    """The demo's columns, one value per flight, for the flights not used to train the model."""
    with np.load(source) as flights:
        kept = ~flights["is_fit"]
        return {
            "score": flights["score_hgb"][kept],
            "outcome": flights["y"][kept],
            "aircraft": named(flights["seg_tailnum"][kept], flights["names_tailnum"]),
            "route": named(flights["seg_route"][kept], flights["names_route"]),
            "day": flights["doy"][kept],
            "carrier": named(flights["seg_carrier"][kept], flights["names_carrier"]),
        }


def encode(columns: dict[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    """Each column as ``<name>_values``, sorted and distinct, and ``<name>_codes`` into it."""
    arrays: dict[str, NDArray[np.generic]] = {}
    for name, column in columns.items():
        values, codes = np.unique(column, return_inverse=True)
        arrays[f"{name}_values"] = values
        arrays[f"{name}_codes"] = codes.astype(np.min_scalar_type(len(values) - 1))
    return arrays


def main() -> None:
    """Write OUT, then read it back and compare bit for bit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, metavar="SOURCE_NPZ")
    parser.add_argument("out", type=Path, metavar="OUT")
    paths = parser.parse_args()
    columns = half_year(paths.source)
    np.savez_compressed(paths.out, allow_pickle=False, **encode(columns))
    with np.load(paths.out) as written:
        for name, column in columns.items():
            decoded = written[f"{name}_values"][written[f"{name}_codes"]]
            assert decoded.dtype == column.dtype and decoded.tobytes() == column.tobytes(), name
    print(f"{paths.out}: {len(columns['score']):,} flights, {paths.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
