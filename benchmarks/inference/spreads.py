"""Intervals of spreads and tests of no spread: ``python -m benchmarks.inference.spreads``.

How often tests reject where there is no spread, and where there is; how often intervals hold the
truth; and what is estimated where brute force is the judge: rare positives, three rows a segment.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

import platt_jax as pj
from benchmarks.inference import command
from benchmarks.inference.populations import World, most_probable_by_brute_force, rows
from platt_jax.inference.spreads import compare

_SEGMENTS = (2, 3, 5, 20, 200)
_ROWS = (3, 10, 50)
_CENTERS = {"1 %": -5.1, "10 %": -2.7, "50 %": 0.0}  # log-odds at score 0; the slope is 1
_LEVELS = (0.05, 0.01)
_NO, _OF_A, _OF_B, _BOTH = (0.0, 0.0), (0.4, 0.0), (0.0, 0.7), (0.4, 0.7)


def main() -> None:
    parser = command.options("spreads")
    parser.add_argument("--worlds", type=int, default=200, metavar="W")
    command.run_parts(parser, "spreads", _PARTS, "worlds")


# --- tests ----------------------------------------------------------------------------------------


def size(worlds: int) -> list[dict[str, Any]]:
    """How often tests of A, of B and of both reject where no segment differs from another."""
    cells = [(number, each, rate) for number in _SEGMENTS for each in _ROWS for rate in _CENTERS]
    return [_rejected(*cell, _NO, worlds if cell[0] < 200 else worlds // 2) for cell in cells]


def size_closely(worlds: int) -> list[dict[str, Any]]:
    """As `size`, in more simulations, of cells where that is more than 0.06."""
    cells = [(5, 3, "50 %"), (20, 3, "50 %"), (200, 10, "50 %"), (200, 10, "1 %")]
    return [_rejected(*cell, _NO, 3 * worlds) for cell in cells]


def size_beside_the_other(worlds: int) -> list[dict[str, Any]]:
    """Where segments differ by the other parameter: of the test of A under the first, of B then."""
    cells = [(3, 50), (5, 10), (20, 10), (20, 50), (200, 3), (200, 10)]
    return [
        _rejected(*cell, rate, spread, worlds)
        for cell in cells
        for rate in ("1 %", "50 %")
        for spread in (_OF_B, _OF_A)
    ]


def power(worlds: int) -> list[dict[str, Any]]:
    """How often they reject where spreads are 0.4 and 0.7."""
    cells = [(3, 50), (5, 50), (20, 10), (20, 50), (200, 3), (200, 10), (200, 50)]
    return [_rejected(*x, rate, _BOTH, worlds // 2) for x in cells for rate in ("1 %", "50 %")]


def _rejected(
    number: int, each: int, rate: str, spread: tuple[float, float], worlds: int
) -> dict[str, Any]:
    world = World(1, spread[0], _CENTERS[rate], spread[1])
    p_values = np.ones((worlds, 3))
    estimated = 0
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        data = rows(rng, world.parameters(rng, number), each)
        compared = compare(pj.SegmentRows(*data))
        if compared is not None:
            p_values[seed] = compared.p_values
            estimated += 1
    return _said(
        {
            **_cell(number, each, rate, spread),
            "worlds": worlds,
            "with a population": estimated,
            "rejected at 0.05, of these": _rounded((p_values <= 0.05).sum(0) / max(estimated, 1)),
            "at 0.01": _rounded((p_values <= 0.01).sum(0) / max(estimated, 1)),
        }
    )


# --- intervals ------------------------------------------------------------------------------------


def coverage(worlds: int) -> list[dict[str, Any]]:
    """Shares of 95 % intervals that hold the spreads of A and of B."""
    cells = [(3, 50), (5, 50), (20, 50), (200, 10), (200, 50)]
    usual = [(*x, "50 %", spread) for x in cells for spread in (_NO, _BOTH)]
    rare = [(200, 10, "1 %", (0.3, 1.0)), (20, 50, "1 %", _BOTH)]
    return [_covered(*cell, worlds) for cell in usual + rare]


def _covered(
    number: int, each: int, rate: str, spread: tuple[float, float], worlds: int
) -> dict[str, Any]:
    world, found = World(1, spread[0], _CENTERS[rate], spread[1]), []
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        data = rows(rng, world.parameters(rng, number), each)
        table = pj.inference.profile_spreads(*data)
        lower, upper = (table[name][:2] for name in ("lower", "upper"))
        if np.isnan(lower[0]):
            continue
        population = pj.fit_segments(*data, pooling="partial").population
        variance, error = (
            np.diag(x) for x in (population.covariance, population.covariance_errors)
        )
        near = np.abs(variance - np.square(spread)) <= 1.96 * error
        within = (lower <= spread) & (spread <= upper)
        found.append([within, spread < lower, lower == 0, np.isinf(upper), near])
    within, below, none, unbounded, near = np.mean(found, axis=0)
    return _said(
        {
            **_cell(number, each, rate, spread),
            "worlds": len(found),
            "hold it": _rounded(within),
            "lie above it": _rounded(below),
            "begin at 0": _rounded(none),
            "have no end": _rounded(unbounded),
            "variances within 1.96 standard errors": _rounded(near),
        }
    )


# --- rare positives -------------------------------------------------------------------------------


def rare(_: int) -> list[dict[str, Any]]:
    """The spread of B estimated of 3,000 segments of 3 rows and about 1 % positives; it is 1."""
    world, lines = World(1, 0.3, -5, 1), []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        data = rows(rng, world.parameters(rng, 3_000), 3)
        calibrator = pj.fit_segments(*data, pooling="partial")
        population = calibrator.population
        best, gained = most_probable_by_brute_force(data, 3_000, calibrator)
        table = pj.inference.profile_spreads(*data)
        lines.append(
            _said(
                {
                    "seed": seed,
                    "positives": int(data[1].sum()),
                    "status": population.status.name,
                    "spread of B": _rounded(population.covariance[1, 1] ** 0.5),
                    "by brute force": _rounded(best[1]),
                    "log density it gains": _rounded(gained),
                    "interval": _rounded([table["lower"][1], table["upper"][1]]),
                    "p_value": _rounded(table["p_value"][1]),
                }
            )
        )
    return lines


def _cell(number: int, each: int, rate: str, spread: tuple[float, float]) -> dict[str, Any]:
    return {"segments": number, "rows": each, "positives": rate, "spreads": spread}


def _said(line: dict[str, Any]) -> dict[str, Any]:
    print(json.dumps(line), flush=True)
    return line


def _rounded(x: Any) -> Any:
    return np.round(np.asarray(x, float), 4).tolist()


_PARTS: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "size": size,
    "size, closely": size_closely,
    "size beside the other's spread": size_beside_the_other,
    "power": power,
    "coverage": coverage,
    "rare": rare,
}

if __name__ == "__main__":
    main()
