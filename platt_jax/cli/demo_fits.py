"""The fits of the demo and their performance on other days."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from platt_jax import Flag, SegmentCalibrator, fit_segments, metrics, triage
from platt_jax.data import Flights
from platt_jax.hypothesis_tests.verdict import verdict
from platt_jax.results.population import Population

Array = NDArray[np.floating]

_FDR = 0.05


@dataclass(frozen=True)
class Calibration:
    """The curves of one kind of segment, their fitting times, and their predictions."""

    kind: str  # "aircraft" or "route"
    segments: NDArray[np.str_]  # per flight
    calibrator: SegmentCalibrator
    first_seconds: float  # time of the first call: grouping, compilation, fits
    again_seconds: float  # time of a second call: grouping, fits
    own: Array  # per flight: probability by its segment's curve (the pooled one without a curve)
    pooled: Array  # per flight: probability by the one curve of all flights
    partly: Array  # per flight: probability by its segment's curve with pooling="partial"
    population: Population

    @property
    def sizes(self) -> Array:
        """Number of flights that each curve was fitted on."""
        return np.asarray(self.calibrator.fit.n_pos + self.calibrator.fit.n_neg)

    @property
    def unflagged(self) -> NDArray[np.bool_]:
        """Per flight: whether its segment has a curve without flags."""
        trusted = self.calibrator.keys[self.calibrator.fit.flags == 0]
        return np.isin(self.segments, trusted)


@dataclass(frozen=True)
class JudgedCurve:
    """One segment's curve, evaluated on the odd days."""

    name: str  # such as "route JFK-LAX"
    size: float  # number of flights fitted on
    flags: str  # names of its flags, or "none"
    flights: int  # number of flights on odd days, which the following fields describe
    late: float  # share of late flights
    pooled: float  # mean probability by the pooled curve
    own: float  # mean probability by the segment's own curve
    gain: float  # log loss by the pooled curve minus that by the own curve, summed


def fitted_on(flights: Flights) -> NDArray[np.bool_]:
    """Whether each flight is of an even day, on which the curves are fitted."""
    return flights.day % 2 == 0


def calibrate(flights: Flights, kind: str) -> Calibration:
    """One curve per aircraft or per route, fitted on the even days."""
    segments = getattr(flights, kind)
    even = fitted_on(flights)
    rows = flights.score[even], flights.outcome[even], segments[even]
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        calibrator = fit_segments(*rows)
        seconds.append(time.perf_counter() - start)
    own = calibrator.predict_proba(flights.score, segments)
    pooled = calibrator.fallback.predict_proba(flights.score)
    partly = fit_segments(*rows, pooling="partial")
    return Calibration(
        kind,
        segments,
        calibrator,
        seconds[0],
        seconds[1],
        own,
        pooled,
        partly.predict_proba(flights.score, segments),
        cast(Population, partly.population),
    )


def losses(outcome: NDArray[np.int8], probability: Array) -> Array:
    """The log loss of each flight, in float64 for sums over thousands of them."""
    return metrics.log_loss(outcome[:, None], probability[:, None]).astype(np.float64)


def judge(calibration: Calibration, flights: Flights) -> list[JudgedCurve]:
    """Every segment with a curve and flights on odd days, the smallest gain first."""
    c = calibration
    fit, keys = c.calibrator.fit, c.calibrator.keys
    odd = np.flatnonzero(~fitted_on(flights) & np.isin(c.segments, keys))
    outcome = flights.outcome[odd]
    gain = losses(outcome, c.pooled[odd]) - losses(outcome, c.own[odd])
    names, groups, counts = np.unique(c.segments[odd], return_inverse=True, return_counts=True)
    sums = [np.bincount(groups, column) for column in (outcome, c.pooled[odd], c.own[odd], gain)]
    curve = {key: index for index, key in enumerate(keys.tolist())}
    judged = []
    for name, count, late, pooled, own, saved in zip(names.tolist(), counts, *sums, strict=True):
        k = curve[name]
        judged.append(
            JudgedCurve(
                name=f"{c.kind} {name}",
                size=float(c.sizes[k]),
                flags=Flag(int(fit.flags[k])).name or "none",
                flights=int(count),
                late=late / count,
                pooled=pooled / count,
                own=own / count,
                gain=saved,
            )
        )
    return sorted(judged, key=lambda segment: segment.gain)


def judged_predictions(flights: Flights, kind: str, kinds: str) -> str:
    """Which segments' predictions, partially pooled, do not fit the odd days, in a sentence."""
    segments = getattr(flights, kind)
    even = fitted_on(flights)
    rows = flights.score, flights.outcome, segments
    calibrator = fit_segments(*(column[even] for column in rows), pooling="partial")
    table = triage(calibrator, *(column[~even] for column in rows), against="predictions", fdr=_FDR)
    return verdict(table, _FDR, nouns=(kind, kinds))
