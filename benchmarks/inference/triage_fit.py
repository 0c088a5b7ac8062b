"""False discoveries after few rows: ``python -m benchmarks.inference.triage_fit``.

Segments of one population are fitted, then judged by new rows: none has changed, or 5 % are shifted
by 1 or 2 in log-odds, to either side. They are judged against the fit and against the predictions.
"""

from __future__ import annotations

import time
import warnings
from typing import NamedTuple

import numpy as np
from scipy.special import expit

import platt_jax as pj
from benchmarks import machine
from benchmarks.inference import command

LEVELS = (0.05, 0.2)
SHIFTS = (0.0, 1.0, 2.0)
AGAINST = ("fit", "predictions")
_SHARE_CHANGED = 0.05
_ROWS = 100_000  # judged in a repetition


class Cell(NamedTuple):
    """Rows of each segment, and a population: mean and spread of the slope, and the intercept."""

    fitted: int
    judged: int
    pooling: str
    unseen: bool = False
    segments: int = 0  # 0 for as many as there are rows for
    population: tuple[float, float, float, float] = (1.5, 0.4, 0.5, 1.0)


_RARE = (1.0, 0.3, -5.0, 1.0)  # 1 % positives
_STEEP = (6.0, 1.0, 0.0, 1.0)
CELLS = (
    Cell(10, 100, "none"),
    Cell(10, 100, "partial"),
    Cell(30, 300, "none"),
    Cell(30, 300, "partial"),
    Cell(10, 100, "partial", unseen=True),
    Cell(100, 100, "partial", unseen=True),
    Cell(10, 100, "complete", population=(1.5, 0, 0.5, 0)),
    Cell(1, 100, "none"),
    Cell(3, 100, "none"),
    Cell(5, 100, "none"),
    Cell(1, 100, "partial"),
    Cell(3, 100, "partial"),
    Cell(10, 100, "none", population=_RARE),
    Cell(100, 1000, "none", population=_RARE),
    Cell(1000, 1000, "none", population=_RARE),
    Cell(3, 300, "partial", population=_RARE),
    Cell(10, 100, "partial", population=_RARE),
    Cell(100, 1000, "partial", population=_RARE),
    Cell(10, 100, "none", population=_STEEP),
    Cell(30, 300, "none", population=_STEEP),
    Cell(200, 200, "none"),
    Cell(200, 200, "partial"),
    Cell(5000, 200, "none"),
    Cell(5000, 200, "partial"),
    Cell(10, 100, "none", segments=5),
    Cell(10, 100, "partial", segments=5),
    Cell(50, 200, "partial", segments=5),
    Cell(50, 200, "partial", True, segments=5),
)


def main() -> None:
    parser = command.options("triage_fit")
    parser.add_argument("--repeats", type=int, default=4, metavar="R")
    args = parser.parse_args()
    # Segments that are not tested are counted here.
    warnings.simplefilter("ignore", RuntimeWarning)
    found: dict = {"machine": machine.describe(), "repeats": args.repeats}
    found["results"] = command.printed(
        of_cell(cell, shift, args.repeats * (20 if cell.segments else 1))
        for cell in CELLS
        for shift in SHIFTS
    )
    command.write(args.out, "triage_fit", found)


def of_cell(cell: Cell, shift: float, repeats: int) -> dict:
    """Where nothing has changed, the false discovery rate is how often anything is flagged."""
    outcomes: dict = {against: [] for against in AGAINST}
    for seed in range(repeats):
        calibrator, rows, changed = simulated(seed, cell, shift)
        # The predictions' errors are large, and known by a repetition.
        for against in AGAINST if cell.segments or not seed else AGAINST[:1]:
            start = time.perf_counter()
            made = pj.triage(calibrator, *rows, against=against)
            seconds = time.perf_counter() - start
            has_changed = changed[made["segment"] % len(changed)]
            of_one = [seconds, np.isnan(made["p_value"]).mean()]
            for level in LEVELS:
                found = made["q_value"] <= level
                of_one += [
                    (found & ~has_changed).sum() / max(1, found.sum()),
                    (found & ~has_changed).sum() / (~has_changed).sum(),
                    (found & has_changed).sum() / max(1, has_changed.sum()),
                ]
            outcomes[against].append(of_one)
    line: dict = {**cell._asdict(), "segments": len(changed), "shift": shift, "repeats": repeats}
    for against, of_each in outcomes.items():
        mean = np.mean(of_each, axis=0).round(4).tolist()
        error = (np.std(of_each, axis=0) / len(of_each) ** 0.5).round(4).tolist()
        line[against] = {"seconds": round(min(x[0] for x in of_each), 2), "not tested": mean[1]}
        for i, level in enumerate(LEVELS):
            line[against][f"level {level:g}"] = {
                "false discovery rate": mean[2 + 3 * i],
                "its standard error": error[2 + 3 * i],
                "share of unchanged flagged": mean[3 + 3 * i],
                "discovered": mean[4 + 3 * i],
            }
    return line


def simulated(seed: int, cell: Cell, shift: float):
    """A calibrator, rows to judge, and which segments have changed."""
    rng = np.random.default_rng(seed)
    K = cell.segments or min(2_000, _ROWS // max(cell.judged, cell.fitted // 8))
    curves = _population(rng, K, cell)
    calibrator = pj.fit_segments(*_rows(rng, curves, cell.fitted, 0), pooling=cell.pooling)
    if cell.unseen:
        curves = _population(rng, K, cell)
    changed = (rng.random(K) < _SHARE_CHANGED) & (shift > 0)
    moved = np.where(changed, shift * rng.choice([-1.0, 1.0], K), 0)
    scores, labels, segments = _rows(rng, curves, cell.judged, moved)
    return calibrator, (scores, labels, segments + K * cell.unseen), changed


def _population(rng, K, cell):
    a, sd_a, b, sd_b = cell.population
    return a + sd_a * rng.normal(size=K), b + sd_b * rng.normal(size=K)


def _rows(rng, curves, n, moved):
    slope, intercept = curves
    segments, scores = np.repeat(np.arange(len(slope)), n), rng.normal(size=len(slope) * n)
    logit = slope[segments] * scores + (intercept + moved)[segments]
    return scores, rng.random(len(scores)) < expit(logit), segments


if __name__ == "__main__":
    main()
