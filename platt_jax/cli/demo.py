"""The demo on real data: one sigmoid per aircraft and one per route, evaluated on other days.

``platt-jax demo`` prints it. The curves are fitted on the even days of half a year of flights and
evaluated on the odd days, so every accuracy figure is for flights that were not fitted.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import numpy as np

from platt_jax import Flag, Status, metrics
from platt_jax.cli.demo_fits import (
    Array,
    Calibration,
    JudgedCurve,
    calibrate,
    fitted_on,
    judge,
    judged_predictions,
    losses,
)
from platt_jax.data import Flights, load_flights
from platt_jax.results.probabilities import expit
from platt_jax.results.tables import flag_counts, status_counts


def run(write: Callable[[str], object] = print) -> None:
    """Fit, predict and report, writing each part as soon as it is known."""
    flights = load_flights()
    write(_introduction(flights))
    calibrations = []
    for kind in ("aircraft", "route"):
        write(f"  Fitting one curve per {kind}, each on its own and partially pooled ...")
        calibrations.append(calibrate(flights, kind))
    write("  Comparing predictions with the flights of the odd days ...\n")
    write(_verdicts(flights))
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


def _verdicts(flights: Flights) -> str:
    """Which routes and aircraft are predicted wrongly."""
    lines = ["The verdict on the odd days"]
    for kind, kinds in (("route", "routes"), ("aircraft", "aircraft")):
        lines.append(_paragraph(judged_predictions(flights, kind, kinds)))
    lines.append(
        _paragraph("Positives are late flights; predictions are those of partially pooled curves.")
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
    spread = np.sqrt(calibration.population.covariance[1, 1])
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
