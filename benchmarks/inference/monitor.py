"""Alarms of `Monitor` in simulated worlds: ``python -m benchmarks.inference.monitor``.

Nothing changed: how often is there any alarm? Some segments changed: which share of the alarms is
false, how many changes are found, and how late, beside other methods? ADWIN needs river.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from scipy.stats import chi2

import platt_jax as pj
from benchmarks import machine

_RESULTS = Path(__file__).parents[1] / "results" / "inference" / "monitor.json"
_FDR = 0.05


class World(NamedTuple):
    """Segments with curves 1.5 f + their own log-odds, some of which change at some night."""

    segments: int = 1_000
    rows: int = 20  # on average per night and segment, Poisson distributed
    nights: int = 52
    log_odds: float = 0.0  # mean; the standard deviation between segments is 0.7
    changed: float = 0.0  # share of the segments
    shift: float = 1.0  # their log-odds, from the 20th night on
    slope: float = 1.0  # by which theirs are multiplied
    correlated: bool = False  # whether the k-th rows of all segments share their random number
    some_nights: bool = False  # whether half of the nights have no rows, and segments appear late

    def begin(self, rng) -> tuple[np.ndarray, np.ndarray]:
        """Each segment's log-odds at score 0, and whether it will change."""
        own = self.log_odds + 0.7 * rng.normal(size=self.segments)
        return own, rng.random(self.segments) < self.changed

    def drawn(self, rng, own, off, night: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores, labels and segments of a night."""
        number = rng.poisson(self.rows, self.segments)
        if self.some_nights:
            first = np.arange(self.segments) % self.nights
            number = number * (rng.random(self.segments) < 0.5) * (night > first)
        owner = np.repeat(np.arange(self.segments), number)
        scores = rng.normal(size=len(owner))
        now = off[owner] & (night >= 20)
        log_odds = np.where(now, self.slope, 1) * 1.5 * scores + own[owner] + now * self.shift
        drawn = rng.random(len(owner))
        if self.correlated:
            place = np.arange(len(owner)) - (np.cumsum(number) - number)[owner]
            drawn = rng.random(number.max(initial=1))[place]
        return scores, drawn < expit(log_odds), owner


def known(own) -> Any:
    """A calibrator whose curves are right."""
    scores, labels = np.tile([2.0, -1.0, 0.5], len(own)), np.tile([1, 0, 1], len(own))
    fitted = pj.fit_segments(scores, labels, np.repeat(np.arange(len(own)), 3))
    curves = replace(fitted.fit, A=np.full(len(own), -1.5), B=-own)
    return replace(fitted, fit=curves)


def nights(world: World, rng, monitors: list[pj.Monitor], own, off) -> Iterator[list[Any]]:
    """The rows of each night and the monitors after it."""
    for night in range(1, world.nights + 1):
        rows = world.drawn(rng, own, off, night)
        if len(rows[0]):
            monitors = [monitor.update(*rows) for monitor in monitors]
        yield [rows, *monitors]


def nothing_changed() -> list[dict[str, Any]]:
    """The share of worlds with an alarm on any night; each alarm is false."""
    results = []
    for name, world in {
        "20 rows a night": World(200),
        "1 to 3 rows a night": World(200, rows=2, nights=200),
        "0.5 % positive": World(200, rows=50, log_odds=-5.8),
        "correlated segments": World(200, correlated=True),
        "nights without rows, new segments": World(200, rows=5, some_nights=True),
    }.items():
        rng, worlds = np.random.default_rng(1), 200
        alarms = {"on some night": 0, "ever": 0}
        for _ in range(worlds):
            own, off = world.begin(rng)
            monitor = pj.Monitor.start(known(own), against="predictions", margin=0.0)
            some = False
            for _, after in nights(world, rng, [monitor], own, off):
                some |= len(after.alarms(_FDR)["rows"]) > 0
            alarms["on some night"] += some
            alarms["ever"] += len(after.alarms(_FDR, ever=True)["rows"]) > 0
        results.append({"world": name, **{k: v / worlds for k, v in alarms.items()}})
        print(results[-1], flush=True)
    return results


def some_changed() -> list[dict[str, Any]]:
    """The false discovery rate at data-dependent nights, in small worlds."""
    results = []
    for name, world in {
        "5 % changed": World(200, changed=0.05),
        "correlated segments": World(200, changed=0.05, correlated=True),
        "1 % positive": World(200, rows=50, log_odds=-5, changed=0.05, shift=1.5),
    }.items():
        rng, worlds = np.random.default_rng(2), 200
        shares: dict[str, list[float]] = {"first alarm": [], "most alarms": [], "ever": []}
        for _ in range(worlds):
            own, off = world.begin(rng)
            monitor = pj.Monitor.start(known(own), against="predictions", margin=0.0)
            first = most = None
            for night, (_, after) in enumerate(nights(world, rng, [monitor], own, off), 1):
                found = after.alarms(_FDR)["segment"]
                # Before the change all segments are as predicted.
                wrong = (~off[found] | (night < 20)).mean() if len(found) else 0.0
                first = wrong if first is None and len(found) else first
                most = max(most or (0, 0.0), (len(found), wrong))
            ever = after.alarms(_FDR, ever=True)["segment"]
            shares["first alarm"].append(first or 0.0)
            shares["most alarms"].append(most[1])
            shares["ever"].append((~off[ever]).mean() if len(ever) else 0.0)
        rates = {at: round(float(np.mean(x)), 4) for at, x in shares.items()}
        results.append({"world": name, "false discovery rate at": rates})
        print(results[-1], flush=True)
    return results


class Found(NamedTuple):
    """What a method reported in a world, by segment: the night of its first alarm, or 0."""

    first: np.ndarray

    def told(self, off: np.ndarray) -> dict[str, Any]:
        found = self.first > 0
        true = found & off & (self.first >= 20)
        delay = self.first[true] - 19
        return {
            "changed": int(off.sum()),
            "found": int(true.sum()),
            "false alarms": int((found & ~true).sum()),
            "median nights until found": float(np.median(delay)) if len(delay) else None,
        }


def beside_others() -> list[dict[str, Any]]:
    """One large world per change: every method looks every night."""
    results = []
    for name, world in {
        "shift 1": World(4_000, changed=0.03),
        "shift 0.5": World(4_000, changed=0.03, shift=0.5),
        "slope halved": World(4_000, changed=0.03, shift=0, slope=0.5),
        "2 % positive, shift 1": World(4_000, rows=100, log_odds=-4.5, changed=0.03),
    }.items():
        rng = np.random.default_rng(3)
        own, off = world.begin(rng)
        calibrator = known(own)
        monitors = [
            pj.Monitor.start(calibrator, against="predictions", margin=margin)
            for margin in (0.0, 0.1)
        ]
        methods: dict[str, np.ndarray] = {}
        others = _Others(calibrator, world.segments)
        for night, (rows, *after) in enumerate(nights(world, rng, monitors, own, off), 1):
            alarms = {
                "Monitor, margin 0": after[0].alarms(_FDR)["segment"],
                "Monitor": after[1].alarms(_FDR)["segment"],
                "Monitor, ever": after[1].alarms(_FDR, ever=True)["segment"],
                **others.alarms(rows),
            }
            for method, found in alarms.items():
                first = methods.setdefault(method, np.zeros(world.segments, int))
                first[found] = np.where(first[found] == 0, night, first[found])
        results += [
            {"world": name, "method": method, **Found(first).told(off)}
            for method, first in methods.items()
        ]
        for line in results[-len(methods) :]:
            print(line, flush=True)
    return results


class _Others:
    """Other methods for the same rows."""

    def __init__(self, calibrator, segments: int) -> None:
        self.calibrator, self.segments = calibrator, segments
        # Page's CUSUM of the log likelihood ratio of a shift by 1, up and down. A false alarm in
        # 52 nights has at most probability 1 / threshold per start: here 0.05 / segments in all.
        self.cusum = np.zeros((2, segments))
        self.threshold = np.log(2 * 52 * segments / _FDR)
        self.adwin = _adwins(segments)

    def alarms(self, rows) -> dict[str, np.ndarray]:
        scores, labels, owner = rows
        proba = self.calibrator.predict_proba(scores, owner)
        found = {}
        table = pj.triage(self.calibrator, *rows, against="predictions", fdr=_FDR)
        found["triage every night"] = table["segment"][table["flagged"]]
        # The chi-square test of the sum of the labels, by Benjamini and Hochberg.
        off = np.bincount(owner, labels - proba, self.segments)
        variance = np.bincount(owner, proba * (1 - proba), self.segments)
        with np.errstate(invalid="ignore", divide="ignore"):
            p = np.nan_to_num(chi2.sf(off**2 / variance, 1), nan=1)
        order = np.argsort(p)
        below = np.flatnonzero(p[order] <= _FDR * np.arange(1, len(p) + 1) / len(p))
        found["chi-square every night"] = order[: below[-1] + 1 if len(below) else 0]
        for side, sign in enumerate((1, -1)):
            ratio = sign * labels - np.log1p(proba * np.expm1(sign))
            self.cusum[side] = np.maximum(self.cusum[side], 0)
            self.cusum[side] += np.bincount(owner, ratio, self.segments)
        found["CUSUM for a shift of 1"] = np.flatnonzero(self.cusum.max(0) > self.threshold)
        if self.adwin:
            residual = (labels - proba).tolist()
            drifted = set()
            for k, x in zip(owner.tolist(), residual, strict=True):
                self.adwin[k].update(x)
                if self.adwin[k].drift_detected:
                    drifted.add(k)
            found["ADWIN of the residuals"] = np.array(sorted(drifted), int)
        return found


def _adwins(segments: int) -> list[Any]:
    try:
        from river.drift import ADWIN
    except ImportError:
        return []
    return [ADWIN(delta=_FDR / segments) for _ in range(segments)]


def against_the_fit() -> list[dict[str, Any]]:
    """Fitted curves instead of known ones."""
    results = []
    for pooling in ("none", "partial"):
        for fitted, log_odds, rows in (
            *((10, 0.0, 3), (10, 0.0, 50), (50, 0.0, 50), (500, 0.0, 20), (5_000, 0.0, 20)),
            *((50, -4.0, 50), (500, -4.0, 50), (5_000, -4.0, 50)),
        ):
            rng = np.random.default_rng(4)
            world = World(1_000, rows, 60, log_odds, changed=0.05, shift=1.5)
            own, off = world.begin(rng)
            ids = np.repeat(np.arange(world.segments), fitted)
            scores = rng.normal(size=len(ids))
            labels = rng.random(len(ids)) < expit(1.5 * scores + own[ids])
            calibrator = pj.fit_segments(scores, labels, ids, pooling=pooling)
            monitors = [
                pj.Monitor.start(calibrator, against=against) for against in ("fit", "predictions")
            ]
            first = np.zeros((2, world.segments), int)
            for night, (_, *after) in enumerate(nights(world, rng, monitors, own, off), 1):
                for mine, monitor in zip(first, after, strict=True):
                    found = monitor.alarms(_FDR)["segment"]
                    mine[found] = np.where(mine[found] == 0, night, mine[found])
            about = {"pooling": pooling, "rows fitted": fitted, "log-odds": log_odds, "rows": rows}
            for against, mine in zip(("fit", "predictions"), first, strict=True):
                results.append({**about, "against": against, **Found(mine).told(off)})
                print(results[-1], flush=True)
    return results


def late_labels() -> list[dict[str, Any]]:
    """Nothing changed, but labels come late: by 1 to 10 nights on average, by segment."""
    world, rng = World(1_000, rows=50, log_odds=-2), np.random.default_rng(5)
    own, off = world.begin(rng)
    delay = np.geomspace(1, 10, world.segments)
    results = []
    for age in (1, 3, 7):
        start = pj.Monitor.start(known(own), against="predictions")
        judged = {"share by segment": start, "one share for all": start, "share ignored": start}
        share = 1 - np.exp(-age / delay)
        for night in range(1, 31):
            scores, labels, owner = world.drawn(rng, own, off, night)
            labels &= rng.exponential(delay[owner]) < age
            for way, reported in zip(judged, (share[owner], share.mean(), None), strict=True):
                judged[way] = judged[way].update(scores, labels, owner, reported=reported)
        about = {way: len(x.alarms(_FDR)["rows"]) for way, x in judged.items()}
        results.append({"nights waited": age, "segments": world.segments, "alarms": about})
        print(results[-1], flush=True)
    return results


def sizes_of_changes() -> list[dict[str, Any]]:
    """Nights and shifts as told, of the segments with an alarm at the end."""
    results = []
    for rows, log_odds, shift in ((20, 0.0, 1.0), (20, 0.0, -2.0), (100, -4.5, 1.0)):
        world = World(2_000, rows, 40, log_odds, changed=0.3, shift=shift)
        rng = np.random.default_rng(6)
        own, off = world.begin(rng)
        start = pj.Monitor.start(known(own), against="predictions")
        *_, (_, after) = nights(world, rng, [start], own, off)
        told = after.alarms(_FDR)
        true = off[told["segment"]]
        away = (told["intercept"] - shift)[true] / told["se_intercept"][true]
        late = told["since"][true] - 20
        results.append(
            {
                "rows": rows,
                "log-odds": log_odds,
                "shift": shift,
                "alarms": int(true.sum()),
                "95 % interval holds the shift": round(float((np.abs(away) <= 1.96).mean()), 3),
                "mean shift": round(float(told["intercept"][true].mean()), 3),
                "median night minus the true one": float(np.median(late)),
                "within 3 nights": round(float((np.abs(late) <= 3).mean()), 3),
            }
        )
        print(results[-1], flush=True)
    return results


def main() -> None:
    warnings.simplefilter("ignore")
    results = {
        part.__name__: part()
        for part in (
            beside_others,
            against_the_fit,
            late_labels,
            sizes_of_changes,
            some_changed,
            nothing_changed,
        )
    }
    told = {"machine": machine.describe(), **results}
    _RESULTS.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
