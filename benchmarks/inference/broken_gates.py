"""A monitor of gates that have broken: ``python -m benchmarks.inference.broken_gates``.

200 segments, 100 nights, some accepted rows with labels a night and segment. Gates promise that 95
% of accepted rows are right. A monitor watches this promise as docs/howto/decide.md shows: its
prediction is so high that the lower end of its margin is the promise.

- ``holding``: every gate is exactly at its promise, or above. In how many of 40 worlds is there an
  alarm on any night? By rows that are all alike, or of probabilities from .8 to 1; and for rows
  whose monitor has the calibrator's own predictions, which fails where these are too high.
- ``broken``: in 20 of the segments .85 or .9 are right, from the first or the 51st night on.
"""

from __future__ import annotations

import numpy as np

import platt_jax as pj
from benchmarks.inference.command import options, printed, run_parts

PROMISE, MARGIN = 0.95, 3.0
SEGMENTS, NIGHTS, FDR = 200, 100, 0.05


def promise() -> pj.Monitor:
    """A monitor of the promise that 95 % are right."""
    B = np.full(SEGMENTS, -(pj.logit(PROMISE) + MARGIN))
    flat = pj.SegmentCalibrator.from_table(np.arange(SEGMENTS), np.zeros(SEGMENTS), B)
    return pj.Monitor.start(flat, against="predictions", margin=MARGIN)


def predicted(p: float, margin: float) -> pj.Monitor:
    """A monitor of the prediction that this share of accepted rows is right."""
    B = np.full(SEGMENTS, -pj.logit(p))
    flat = pj.SegmentCalibrator.from_table(np.arange(SEGMENTS), np.zeros(SEGMENTS), B)
    return pj.Monitor.start(flat, against="predictions", margin=margin)


def night(rng, rows: float, precision, spread: bool):
    """Scores, whether accepted rows are right, and segments."""
    k = np.repeat(np.arange(SEGMENTS), rng.poisson(rows, SEGMENTS))
    p = precision[k]
    if spread:  # a quarter of the rows is right less often
        low = rng.random(len(k)) < 0.25
        p = np.where(low, p - 3 * (1 - p), 1.0)
    return np.zeros(len(k)), rng.random(len(k)) < p, k


def holding_cell(monitor, precision: float, rows: float, spread=False, worlds=40):
    told = {"alarm on some night": 0, "alarm ever": 0}
    for seed in range(worlds):
        rng, after, some = np.random.default_rng([seed, 11]), monitor, False
        for _ in range(NIGHTS):
            after = after.update(*night(rng, rows, np.full(SEGMENTS, precision), spread))
            some |= len(after.alarms(FDR)["rows"]) > 0
        told["alarm on some night"] += some
        told["alarm ever"] += len(after.alarms(FDR, ever=True)["rows"]) > 0
    return {"right": precision, "rows a night": rows, "worlds": worlds, **told}


def holding():
    made = printed(
        {"monitor": "promise", "rows differ": spread} | holding_cell(promise(), p, rows, spread)
        for p, rows, spread in (
            (0.95, 1, False),
            (0.95, 3, False),
            (0.95, 3, True),
            (0.98, 3, False),
        )
    )
    # The predictions are too high, and the promise holds.
    wrong = predicted(0.97, 0.1)
    return made + printed(
        {"monitor": "predictions of .97", "rows differ": False}
        | holding_cell(wrong, 0.95, rows, worlds=20)
        for rows in (3,)
    )


def broken_cell(precision: float, rows: float, since: int, before=PROMISE, worlds=20):
    """20 segments break at some night; the others are at the promise."""
    first, false = [], 0
    for seed in range(worlds):
        rng, after = np.random.default_rng([seed, 12]), promise()
        found = np.zeros(SEGMENTS, int)
        for number in range(1, NIGHTS + 1):
            right = np.full(SEGMENTS, PROMISE)
            right[:20] = precision if number >= since else before
            after = after.update(*night(rng, rows, right, False))
            alarms = after.alarms(FDR)["segment"]
            found[alarms[found[alarms] == 0]] = number
        first.extend(found[:20].tolist())
        false += int((found[20:] > 0).sum())
    nights = np.array(first)
    delay = nights[nights > 0] - since + 1
    return {
        "right": precision,
        "rows a night": rows,
        "since night": since,
        "broken": len(nights),
        "found": int((nights > 0).sum()),
        "median nights until found": float(np.median(delay)) if len(delay) else None,
        "false alarms": false,
    }


def broken():
    return printed(
        broken_cell(*cell)
        for cell in ((0.85, 1, 1), (0.85, 3, 1), (0.85, 3, 51), (0.9, 3, 1), (0.9, 10, 1))
    )


if __name__ == "__main__":
    run_parts(options("broken_gates"), "broken_gates", {"holding": holding, "broken": broken})
