"""The parts of the page that are text and tables, as HTML."""

from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from platt_jax.plots.explorer import JudgedSegments
from platt_jax.report.charts import shown
from platt_jax.report.measures import Measure
from platt_jax.report.rows import Judgement, ReportRows
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.tables import flag_counts, status_counts
from platt_jax.status import Flag, Status

# False discovery rate of the segments called off.
FDR = 0.05


def resource(name: str) -> str:
    """The text of a file of this package."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def summary(
    calibrator: SegmentCalibrator, predicted: ReportRows, judged: JudgedSegments, changed: Judgement
) -> str:
    """The numbers of segments that are off, and that have changed, and eight other numbers."""
    table = judged.table
    seen = judged.place >= 0
    flagged = np.count_nonzero(table["flagged"])
    tested = np.count_nonzero(np.isfinite(table["p_value"]))
    usable = predicted.rows.usable
    positive = f"{100 * predicted.rows.labels[usable].mean():.3g} %" if usable.any() else "none"
    terms: dict[str, Any] = {
        f"segments off, q ≤ {FDR:g}": f"{flagged:,} of {tested:,}",
        f"changed since the fit, q ≤ {FDR:g}": f"{changed.flagged:,} of {changed.tested:,}",
        "of the rows positive": positive,
        "rows of this report": f"{len(usable):,}",
        "rows left out": f"{np.count_nonzero(~usable):,}",
        "segments fitted": f"{len(calibrator.keys):,}",
        "with a flag": f"{np.count_nonzero(calibrator.fit.flags):,}",
        "pooling": calibrator.pooling,
        "segments without rows": f"{len(calibrator.keys) - np.count_nonzero(seen):,}",
        "segments not fitted": f"{np.count_nonzero(~seen):,}",
    }
    return "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in terms.items())


def outcome(calibrator: SegmentCalibrator) -> str:
    """Table rows of the statuses and flags that occur, with their numbers and meanings."""
    statuses, flags = calibrator.fit.status, calibrator.fit.flags
    said = [(name, n, Status[name].message) for name, n in status_counts(statuses).items()]
    population = calibrator.population
    if population is not None and population.status != Status.CONVERGED:
        said.append((f"population: {population.status.name}", 1, population.status.message))
    said += [(name, n, Flag[name].message) for name, n in flag_counts(flags).items()]
    return "".join(
        f'<tr><th scope="row">{name}</th><td class="n">{n:,}</td><td>{escape(message)}</td></tr>'
        for name, n, message in said
    )


def levels(calibrator: SegmentCalibrator) -> str:
    """The section with a line per level; empty without levels."""
    table = calibrator.levels
    if table is None:
        return ""
    lines = "".join(
        f'<tr><th scope="row"><bdi>{escape(str(name))}</bdi></th>'
        f'<td class="n">{values:,}</td><td class="n">{rows:,.4g}</td>'
        f'<td class="n">{_with_error(slope, slope_error)}</td>'
        f'<td class="n">{_with_error(intercept, intercept_error)}</td>'
        f'<td class="n">{100 * share:.0f} %</td></tr>'
        for name, values, rows, slope, slope_error, intercept, intercept_error, share in zip(
            *table.values(), strict=True
        )
    )
    return resource("levels.html").replace("{{lines}}", lines)


def _with_error(spread: float, error: float) -> str:
    return f"{spread:.3g} ± {error:.2g}" if np.isfinite(error) else f"{spread:.3g}"


def measured(compared: dict[str, dict[str, Measure]]) -> str:
    """A table of metrics for each comparison of `ReportRows.measured`."""
    return "".join(_table(name, metrics) for name, metrics in compared.items())


def _table(other: str, metrics: dict[str, Measure]) -> str:
    lines = "".join(
        f'<tr><th scope="row">{name}</th><td class="n">{each.before:.4f}</td>'
        f'<td class="n">{each.after:.4f}</td><td class="n">{_difference(each)}</td></tr>'
        for name, each in metrics.items()
    )
    return (
        '<table class="measured"><thead><tr><th scope="col">metric</th>'
        f'<th scope="col" class="n">{other}</th><th scope="col" class="n">after</th>'
        '<th scope="col" class="n">difference ± error</th></tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def worse(compared: dict[str, dict[str, Measure]]) -> str:
    """A sentence if the calibrator is worse, by more than two standard errors of the log loss."""
    losses = {name: of["Log loss"] for name, of in compared.items()}
    said = [f"than {name} ({_difference(each)})" for name, each in losses.items() if each.worse]
    if not said:
        return ""
    return f"The calibrator is worse {' and '.join(said)}, by its log loss on these rows."


def _difference(of: Measure) -> str:
    """The difference with its standard error; nothing where there is none."""
    if not np.isfinite(of.error):
        return ""
    return f"{of.difference:+.5f} ± {of.error:.5f}".replace("-", "\N{MINUS SIGN}")


def urgent(judged: JudgedSegments) -> str:
    """What the segments drawn are, by chance or not."""
    drawn = judged.table["flagged"][shown(judged)]
    if not len(drawn):
        return ""
    if drawn.all():
        return "All of these are off."
    if drawn.any():
        number = np.count_nonzero(drawn)
        first = "The first is" if number == 1 else f"The first {number:,} are"
        return f"{first} off; the others by no more than chance."
    return "None of these is reliably off: among so many segments, some differ as much by chance."
