"""The demo on real data: one sigmoid per aircraft and one per route, evaluated on other days.

``platt-jax demo`` prints it. The curves are fitted on the even days of half a year of flights and
evaluated on the odd days, so every accuracy figure is for flights that were not fitted.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from platt_jax import Flag, SegmentCalibrator, Status, fit_segments, metrics, triage
from platt_jax.data import Flights, load_flights
from platt_jax.hypothesis_tests.verdict import verdict
from platt_jax.results.population import Population
from platt_jax.results.probabilities import expit
from platt_jax.results.tables import flag_counts, status_counts

Array = NDArray[np.floating]

_FDR = 0.05


def run(write: Callable[[str], object] = print) -> None:
    """Fit, predict and report, writing each part as soon as it is known."""
    flights = load_flights()
    write(_introduction(flights))
    calibrations = []
    for kind in ("aircraft", "route"):
        write(f"  Fitting one curve per {kind}, each on its own and partially pooled ...")
        calibrations.append(calibrate(flights, kind))
    write("  Comparing predictions with the flights of the odd days ...\n")
    write(_verdicts(calibrations, flights))
    write(_fits(calibrations))
    write(_trust(calibrations))
    judged = [judge(calibration, flights) for calibration in calibrations]
    write(_accuracy(calibrations, judged, flights))
    write(_worth_a_look([segment for segments in judged for segment in segments]))


def _introduction(flights: Flights) -> str:
    even = fitted_on(flights)
    about = (
        f"{len(even):,} flights out of New York, July to December 2013, each with the score of a "
        "boosted-tree model trained on January to June. Curves P(late) = 1 / (1 + exp(A score + "
        f"B)) are fitted on the {even.sum():,} flights of even days and judged on the "
        f"{(~even).sum():,} flights of odd days."
    )
    return f"Will this flight arrive more than 15 minutes late?\n\n{_paragraph(about)}\n"


def _verdicts(calibrations: list[Calibration], flights: Flights) -> str:
    """Which routes and aircraft are predicted wrongly on the odd days."""
    odd = ~fitted_on(flights)
    lines = ["The verdict on the odd days"]
    for c, plural in zip(reversed(calibrations), ("routes", "aircraft"), strict=True):
        rows = flights.score[odd], flights.outcome[odd], c.segments[odd]
        table = triage(c.partial, *rows, against="predictions", fdr=_FDR)
        lines.append(_paragraph(verdict(table, _FDR, nouns=(c.kind, plural))))
    lines.append(
        _paragraph("Positives are late flights; predictions are by partially pooled curves.")
    )
    return "\n".join(lines) + "\n"


def _fits(calibrations: list[Calibration]) -> str:
    lines = [f"{'Fits':<22}{'curves':>10}{'flights each':>18}{'first call':>16}{'again':>12}"]
    for c in calibrations:
        sizes = f"{c.sizes.min():,.0f} to {c.sizes.max():,.0f}"
        times = f"{c.first_seconds:>14.2f} s{c.again_seconds:>10.3f} s"
        lines.append(f"  one per {c.kind:<12}{len(c.sizes):>10,}{sizes:>18}{times}")
    lines.append("  A first call compiles. Each call groups the flights and fits all curves.\n")
    return "\n".join(lines)


def _trust(calibrations: list[Calibration]) -> str:
    fits = [c.calibrator.fit for c in calibrations]
    statuses = [status_counts(fit.status) for fit in fits]
    flags = [flag_counts(fit.flags) for fit in fits]

    def row(label: str, counts: list[int]) -> str:
        return f"  {label:<20}" + "".join(f"{count:>10,}" for count in counts)

    lines = [f"{'Which to trust':<22}" + "".join(f"{c.kind:>10}" for c in calibrations)]
    for status in Status:
        if any(status.name in counts for counts in statuses):
            lines.append(row(status.name, [counts.get(status.name, 0) for counts in statuses]))
    lines.append(row("  no flag", [int(np.sum(fit.flags == 0)) for fit in fits]))
    for flag in Flag:
        lines.append(row(f"  {flag.name}", [counts.get(str(flag.name), 0) for counts in flags]))
        lines.append(_paragraph(flag.message, indent=6))
    return "\n".join(lines) + "\n"


def _accuracy(
    calibrations: list[Calibration], judged: list[list[JudgedCurve]], flights: Flights
) -> str:
    odd = ~fitted_on(flights)
    outcome = flights.outcome[odd]
    pooled = calibrations[0].pooled
    pooled_loss = losses(outcome, pooled[odd])

    def row(label: str, probability: Array) -> str:
        loss = losses(outcome, probability[odd])
        brier = metrics.brier_score(outcome, probability[odd])
        excess = loss - pooled_loss
        # Flights of a day share its weather: days are independent, flights are not.
        by_day = np.bincount(flights.day[odd], excess - excess.mean())
        error = np.sqrt(np.sum(by_day**2)) / len(excess)
        against = f"{excess.mean():>+12.5f} ± {error:.5f}" if error else ""
        return f"  {label:<44}{loss.mean():>10.5f}{brier:>10.5f}{against}"

    lines = [
        f"{'How good on the odd days':<46}{'log loss':>10}{'Brier':>10}   log loss - pooled",
        row("before: the score taken as log-odds", expit(flights.score)),
        row("pooled: one curve for all flights", pooled),
    ]
    for c in calibrations:
        trusted = np.where(c.unflagged, c.own, pooled)
        lines.append(row(f"one curve per {c.kind}", c.own))
        lines.append(row("  flagged ones replaced by the pooled curve", trusted))
        lines.append(row(f"one curve per {c.kind}, partially pooled", c.partly))
    lines.append("  ± one standard error, taking days as independent.")
    lines += [_lesson(c, segments) for c, segments in zip(calibrations, judged, strict=True)]
    return "\n".join(lines) + "\n"


def _lesson(calibration: Calibration, judged: list[JudgedCurve]) -> str:
    verdict = "better" if sum(segment.gain for segment in judged) > 0 else "worse"
    worst = judged[0]
    population = cast(Population, calibration.partial.population)
    spread = np.sqrt(population.covariance[1, 1])
    return _paragraph(
        f"One curve per {calibration.kind} is {verdict} than one for all. Half of them had "
        f"{np.median(calibration.sizes):.0f} flights or fewer to be fitted on. The worst, "
        f"{worst.name}, had {worst.size:,.0f} (flags: {worst.flags}) and cost "
        f"{-worst.gain:.1f} in log loss over {worst.flights:,} flights. Partial pooling treats the "
        "curves as a sample from a population, whose log-odds at a score of 0 vary by "
        f"{spread:.2f} between them, and gives each as much of its own as its flights can tell."
    )


def _paragraph(text: str, indent: int = 2) -> str:
    return textwrap.indent(textwrap.fill(text, 98 - indent, break_on_hyphens=False), " " * indent)


def _worth_a_look(judged: list[JudgedCurve]) -> str:
    # If the pooled curve is right, exp(gain) has mean 1; this is Markov's inequality.
    luck = np.log(len(judged) / 0.05)
    lines = [
        "Five segments most worth a look: those whose own curve beats the pooled one by most",
        f"{'even days':>26}{'odd days':>13}",
        f"{'flights':>26}{'flights':>13}{'late':>9}{'pooled':>10}{'own':>8}{'gain':>8}  flags",
    ]
    for s in sorted(judged, key=lambda segment: -segment.gain)[:5]:
        lines.append(
            f"  {s.name:<16}{s.size:>8,.0f}{s.flights:>13,}{s.late:>9.1%}{s.pooled:>10.1%}"
            f"{s.own:>8.1%}{s.gain:>8.1f}  {s.flags}"
        )
    lines.append(
        _paragraph(
            "late: how many were. pooled, own: how many the pooled and their own curve expected. "
            "gain: log loss saved by their own curve, summed over their flights. Luck lifts the "
            f"best of the {len(judged):,} curves with flights on odd days above {luck:.1f} less "
            "than one time in 20, if flights were independent; a storm that delays many at once "
            "makes it likelier."
        )
    )
    return "\n".join(lines)


@dataclass(frozen=True)
class Calibration:
    """The curves of one kind of segment, their fitting times, and their predictions."""

    kind: str  # "aircraft" or "route"
    segments: NDArray[np.str_]  # per flight
    calibrator: SegmentCalibrator
    partial: SegmentCalibrator  # with pooling="partial"
    first_seconds: float  # time of the first call: grouping, compilation, fits
    again_seconds: float  # time of a second call: grouping, fits
    own: Array  # per flight: probability by its segment's curve (the pooled one without a curve)
    pooled: Array  # per flight: probability by the one curve of all flights
    partly: Array  # per flight: probability by `partial`

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
    partial = fit_segments(*rows, pooling="partial")
    own, partly = (c.predict_proba(flights.score, segments) for c in (calibrator, partial))
    pooled = calibrator.fallback.predict_proba(flights.score)
    first, again = seconds
    return Calibration(kind, segments, calibrator, partial, first, again, own, pooled, partly)


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
    judged = [
        JudgedCurve(
            name=f"{c.kind} {keys[k]}",
            size=float(c.sizes[k]),
            flags=Flag(int(fit.flags[k])).name or "none",
            flights=int(count),
            late=late / count,
            pooled=pooled / count,
            own=own / count,
            gain=saved,
        )
        for k, count, late, pooled, own, saved in zip(
            np.searchsorted(keys, names), counts, *sums, strict=True
        )
    ]
    return sorted(judged, key=lambda segment: segment.gain)
