"""Rows that come in days: what goes wrong, and what helps.

``python -m benchmarks.inference.days`` writes results/inference/days.json, which
docs/howto/days.md quotes. Each day moves the log-odds of a segment's rows together by a normal
shock. Nothing else changes, unless a shift is named.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import expit

import platt_jax as pj
from benchmarks.inference import command
from benchmarks.inference.monitor import known

_ROWS, _NIGHTS = 50, 60


def centred(log_odds: np.ndarray, sd: float) -> np.ndarray:
    """The log-odds on a day without a shock, if the mean probability over days has these."""
    at, weight = np.polynomial.hermite_e.hermegauss(40)
    grid = np.linspace(-25, 25, 5001)
    mean = expit(grid[:, None] + sd * at) @ (weight / weight.sum())
    return np.interp(log_odds, np.log(mean) - np.log1p(-mean), grid)


def night(rng: Any, own: np.ndarray, sd: float, shift: Any = 0.0, rows: int = _ROWS) -> tuple:
    """Scores, labels and segments of a night."""
    owner = np.repeat(np.arange(len(own)), rows)
    scores = rng.normal(size=len(owner))
    shock = sd * rng.normal(size=len(own)) + shift
    log_odds = centred(1.5 * scores + own[owner], sd) + shock[owner]
    return scores, rng.random(len(owner)) < expit(log_odds), owner


def false_alarms() -> Iterator[dict[str, Any]]:
    """Segments of 300 with an alarm on any of 60 nights, where nothing changed."""
    for positives, level in (("36 %", -1.0), ("2 %", -5.0)):
        for sd in (0.0, 0.3, 0.6, 1.0):
            rng = np.random.default_rng(1)
            own = level + 0.7 * rng.normal(size=300)
            told = (0.0, 0.3, 0.6, 1.0)
            # One segment beside each monitor: an alarm at 5 % is of the segment alone.
            monitors = [
                pj.Monitor.start(known(own), against="predictions", night_sd=x) for x in told
            ]
            alone, together = np.zeros((2, len(told), len(own)), bool)
            for _ in range(_NIGHTS):
                rows = night(rng, own, sd)
                monitors = [monitor.update(*rows) for monitor in monitors]
                for i, monitor in enumerate(monitors):
                    table = monitor.table()
                    alone[i, table["segment"]] |= table["log_e_value"] >= np.log(20)
                    together[i, table["segment"]] |= table["q_value"] <= 0.05
            yield {
                "positives": positives,
                "sd": sd,
                "share with e >= 20 by night_sd": dict(zip(map(str, told), alone.mean(1))),
                "alarms of 300 by night_sd": dict(zip(map(str, told), together.sum(1).tolist())),
            }


def found() -> Iterator[dict[str, Any]]:
    """Segments of 300 of which 30 shift in the 20th night: alarms in the 60th, and nights until."""
    for positives, level in (("36 %", -1.0), ("2 %", -5.0)):
        for sd in (0.3, 0.6, 1.0):
            for shift in (0.5, 1.0, -1.0):
                rng = np.random.default_rng(2)
                own = level + 0.7 * rng.normal(size=300)
                moved = np.arange(300) < 30
                told = sorted({0.3, sd, 1.0})
                monitors = [
                    pj.Monitor.start(known(own), against="predictions", night_sd=x) for x in told
                ]
                first = np.zeros((len(told), 300), int)
                for number in range(1, 81):
                    rows = night(rng, own, sd, np.where(moved & (number >= 20), shift, 0))
                    monitors = [monitor.update(*rows) for monitor in monitors]
                    for i, monitor in enumerate(monitors):
                        new = monitor.alarms()["segment"]
                        first[i, new] = np.where(first[i, new] == 0, number, first[i, new])
                for i, x in enumerate(told):
                    true = moved & (first[i] >= 20)
                    table = monitors[i].table()
                    of = np.isin(table["segment"], np.flatnonzero(true))
                    away = (table["intercept"] - shift)[of] / table["se_intercept"][of]
                    yield {
                        "positives": positives,
                        "sd": sd,
                        "shift": shift,
                        "night_sd": x,
                        "found of 30": int(true.sum()),
                        "false alarms": int(((first[i] > 0) & ~true).sum()),
                        "median nights": float(np.median(first[i][true] - 19)) if true.any() else None,
                        "mean intercept": round(float(table["intercept"][of].mean()), 2)
                        if true.any()
                        else None,
                        "intervals hold": round(float((np.abs(away) <= 1.96).mean()), 2)
                        if true.any()
                        else None,
                    }


def main() -> None:
    warnings.simplefilter("ignore")
    parts = {x.__name__: lambda x=x: command.printed(x()) for x in (false_alarms, found)}
    command.run_parts(command.options("days"), "days", parts)


if __name__ == "__main__":
    main()
