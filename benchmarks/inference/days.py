"""Rows that come in days: what goes wrong, and what helps.

``python -m benchmarks.inference.days`` writes results/inference/days.json, which
docs/howto/days.md quotes. Each day moves the log-odds of a segment's rows together by a normal
shock. Nothing else changes, unless a shift is named.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit

import platt_jax as pj
from benchmarks.inference import command
from benchmarks.inference.monitor import known
from platt_jax.inference import robust_covariance

_LEVELS = {"36 %": -1.0, "2 %": -5.0}  # share of positives, and log-odds at score 0


def centred(log_odds: np.ndarray, sd: float) -> np.ndarray:
    """The log-odds on a day without a shock, if the mean probability over days has these."""
    at, weight = np.polynomial.hermite_e.hermegauss(40)
    grid = np.linspace(-25, 25, 5001)
    mean = expit(grid[:, None] + sd * at) @ (weight / weight.sum())
    return np.interp(log_odds, np.log(mean) - np.log1p(-mean), grid)


def night(rng: Any, own: np.ndarray, sd: float, shift: Any = 0.0, rows: int = 50) -> tuple:
    """Scores, labels and segments of a night."""
    owner = np.repeat(np.arange(len(own)), rows)
    scores = rng.normal(size=len(owner))
    shock = sd * rng.normal(size=len(own)) + shift
    log_odds = centred(1.5 * scores + own[owner], sd) + shock[owner]
    return scores, rng.random(len(owner)) < expit(log_odds), owner


def monitors_of(own: np.ndarray, night_sds: list[float]) -> list[pj.Monitor]:
    """Monitors of right curves, with each of these `night_sd`."""
    calibrator = known(own)
    return [pj.Monitor.start(calibrator, against="predictions", night_sd=x) for x in night_sds]


def false_alarms() -> Iterator[dict[str, Any]]:
    """Nothing changed: segments that were reported on any of 60 nights."""
    night_sds = [0.0, 0.3, 0.6, 1.0]
    for positives, level in _LEVELS.items():
        for sd in night_sds:
            rng = np.random.default_rng(1)
            own = level + 0.7 * rng.normal(size=300)
            monitors = monitors_of(own, night_sds)
            # For each monitor: by the e-value of the segment alone, and among all.
            alone, among = np.zeros((2, len(night_sds), 300), bool)
            for _ in range(60):
                rows = night(rng, own, sd)
                monitors = [monitor.update(*rows) for monitor in monitors]
                for i, monitor in enumerate(monitors):
                    table = monitor.table()
                    alone[i, table["segment"]] |= table["log_e_value"] >= np.log(20)
                    among[i, table["segment"]] |= table["q_value"] <= 0.05
            for i, night_sd in enumerate(night_sds):
                yield {
                    "positives": positives,
                    "sd": sd,
                    "night_sd": night_sd,
                    "segments": 300,
                    "e-value of 20 or more": int(alone[i].sum()),
                    "alarms": int(among[i].sum()),
                }


def found() -> Iterator[dict[str, Any]]:
    """30 of 300 segments shift in the 20th of 80 nights: how many are found, and how late."""
    for positives, level in _LEVELS.items():
        for sd in (0.3, 0.6, 1.0):
            for shift in (0.5, 1.0, -1.0):
                night_sds = sorted({0.3, sd, 1.0})
                found = shifted(np.random.default_rng(2), level, sd, shift, night_sds)
                for night_sd, line in zip(night_sds, found, strict=True):
                    about = {"positives": positives, "sd": sd, "shift": shift, "night_sd": night_sd}
                    yield about | line


def shifted(
    rng: Any, level: float, sd: float, shift: float, night_sds: list[float]
) -> Iterator[dict[str, Any]]:
    """What each monitor finds in one world."""
    own = level + 0.7 * rng.normal(size=300)
    moved = np.arange(300) < 30
    monitors = monitors_of(own, night_sds)
    first = np.zeros((len(monitors), 300), int)
    for number in range(1, 81):
        rows = night(rng, own, sd, np.where(moved & (number >= 20), shift, 0))
        monitors = [monitor.update(*rows) for monitor in monitors]
        for i, monitor in enumerate(monitors):
            new = monitor.alarms()["segment"]
            first[i, new] = np.where(first[i, new] == 0, number, first[i, new])
    for monitor, begun in zip(monitors, first, strict=True):
        true = moved & (begun >= 20)
        table = monitor.table()
        of = np.isin(table["segment"], np.flatnonzero(true))
        away = np.abs(table["intercept"] - shift)[of] / table["se_intercept"][of]
        line: dict[str, Any] = {
            "changed": 30,
            "found": int(true.sum()),
            "false alarms": int(((begun > 0) & ~true).sum()),
        }
        if true.any():
            line["median nights until found"] = float(np.median(begun[true] - 19))
            line["mean intercept"] = round(float(table["intercept"][of].mean()), 2)
            line["95 % interval holds the shift"] = round(float((away <= 1.96).mean()), 2)
        yield line


def days(rng: Any, own: np.ndarray, sd: float, number: int, rows: int) -> tuple:
    """Scores, labels, segments and days, numbered over all segments."""
    drawn = [night(rng, own, sd, rows=rows) for _ in range(number)]
    day = [i + number * owner for i, (_, _, owner) in enumerate(drawn)]
    return (*(np.concatenate(x) for x in zip(*drawn, strict=True)), np.concatenate(day))


def bands() -> Iterator[dict[str, Any]]:
    """95 % bands at score 0.5 of 100 segments with 10 days of 30 rows."""
    for sd in (0.3, 0.6, 1.0):
        rng, held = np.random.default_rng(3), {}
        for _ in range(3):
            own = -0.5 + 0.7 * rng.normal(size=100)
            scores, labels, owner, day = days(rng, own, sd, 10, 30)
            at, segments = np.full(100, 0.5), np.arange(100)
            mean = 1.5 * 0.5 + own
            tomorrow = centred(mean, sd) + sd * rng.normal(size=100)
            plain = pj.fit_segments(scores, labels, owner)
            robust = robust_covariance(plain, scores, labels, segments=owner, clusters=day)
            nested = pj.fit_segments(scores, labels, np.stack([owner, day], 1), pooling="nested")
            new_day = np.stack([segments, np.full(100, -1)], 1)
            for name, band, truth in (
                ("the segment's mean: unpooled", plain.band(at, segments), mean),
                ("the segment's mean: robust", robust.band(at, segments), mean),
                ("a new day: unpooled", plain.band(at, segments), tomorrow),
                ("a new day: nested", nested.band(at, new_day), tomorrow),
            ):
                inside = (band[0] <= expit(truth)) & (expit(truth) <= band[1])
                held.setdefault(name, []).append(inside.mean())
        yield {"sd": sd} | {name: round(float(np.mean(x)), 3) for name, x in held.items()}


def flagged() -> Iterator[dict[str, Any]]:
    """Segments of 500 that `triage` flags on 300 fresh rows each, where nothing changed."""
    for sd in (0.3, 0.6, 1.0):
        rng = np.random.default_rng(4)
        own = -0.5 + 0.7 * rng.normal(size=500)
        scores, labels, owner, day = days(rng, own, sd, 10, 30)
        plain = pj.fit_segments(scores, labels, owner, pooling="partial")
        nested = pj.fit_segments(scores, labels, np.stack([owner, day], 1), pooling="nested")
        one, two = (night(rng, own, sd, rows=300) for _ in range(2))
        lasting = pj.inference.estimate_drift(
            pj.fit_segments(*one, pooling="partial"), *two
        ).calibrator
        f, y, s = night(rng, own, sd, rows=300)
        *several, its_day = days(rng, own, sd, 10, 30)
        new_day = np.stack([s, np.full(len(s), -1)], 1)
        yield {
            "sd": sd,
            "ten days of 30 rows": int(pj.triage(plain, *several)["flagged"].sum()),
            "one day of 300 rows": int(pj.triage(plain, f, y, s)["flagged"].sum()),
            "ten days: clusters": int(
                pj.triage(plain, *several, clusters=its_day)["flagged"].sum()
            ),
            "one day: clusters, cluster_sd": int(
                pj.triage(plain, f, y, s, clusters=s, cluster_sd=sd)["flagged"].sum()
            ),
            "one day: estimate_drift": int(pj.triage(lasting, f, y, s)["flagged"].sum()),
            "one day: nested": int(pj.triage(nested, f, y, new_day)["flagged"].sum()),
        }


def main() -> None:
    warnings.simplefilter("ignore")
    parts = {x.__name__: partial(printed, x) for x in (false_alarms, found, bands, flagged)}
    command.run_parts(command.options("days"), "days", parts)


def printed(part: Callable[[], Iterator[dict]]) -> list[dict]:
    return command.printed(part())


if __name__ == "__main__":
    main()
