"""The page of a report, assembled from its parts."""

import base64
import hashlib
import os
import re
from html import escape
from importlib.resources import files
from typing import Any, TypeAlias

import numpy as np

from platt_jax.columns import Column
from platt_jax.extras import needing
from platt_jax.report import charts, problems, rows
from platt_jax.report.rows import Judged, Predicted
from platt_jax.results.atomic import destination, write_atomically
from platt_jax.results.calibrators import SegmentCalibrator, require_segment_calibrator
from platt_jax.results.tables import flag_counts, status_counts
from platt_jax.status import Flag, Status
from platt_jax.version import __version__

# The given scores, labels and segments.
_Given: TypeAlias = tuple[Column, Column, Column]

_FDR = 0.05


def to_html(
    calibrator: SegmentCalibrator,
    path: str | os.PathLike[str],
    scores: Column,
    labels: Column,
    segments: Column,
) -> None:
    """Write a report of a calibrator and its predictions for these rows, as one HTML file.

    The report has the outcome of the fits, reliability before and after, a funnel plot of the
    segments, the segments that `triage` puts first, and a table to sort and search. The table holds
    the 10,000 worst segments. "Before" means the scores themselves if all lie in [0, 1], else the
    sigmoid of all rows pooled; the page says which.

    The p-values are those of `triage(..., against="predictions")`, and valid for rows that were not
    fitted. Use `triage` with its default to find segments that have changed since the fit.

    Args:
        calibrator: result of `fit_segments`.
        path: path of the file; an existing file is replaced atomically.
        scores: (N,) scores, as in `fit_segments`, preferably of rows that were not fitted. A row
            whose score or label is not finite counts only in the number of rows.
        labels: (N,) labels, as in `fit_segments`.
        segments: (N,) segment ids, as in `fit_segments`. Fitted segments without rows, and segments
            that were not fitted, are allowed.

    Raises:
        ValueError: an argument is not as above.
        OSError: the file cannot be written.
        ImportError: matplotlib is missing.

    Example:
        >>> import os, tempfile
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=300), rng.random(300) < 0.5, np.arange(300) % 3
        >>> path = os.path.join(tempfile.mkdtemp(), "report.html")
        >>> to_html(fit_segments(*rows), path, *rows)
        >>> os.path.getsize(path) < 1_000_000
        True
    """
    require_segment_calibrator(calibrator, "calibrator")
    path = destination(path)
    with needing("platt_jax.report needs matplotlib", "platt-jax[report]"):
        import matplotlib  # noqa: F401 - checks that it is installed
    predicted, judged = rows.read(calibrator, scores, labels, segments, _FDR)
    page = _page(calibrator, predicted, judged, (scores, labels, segments))
    # A segment's name may hold characters that UTF-8 cannot encode.
    write_atomically(path, lambda file: file.write(page.encode("utf-8", "xmlcharrefreplace")))


def _page(
    calibrator: SegmentCalibrator, predicted: Predicted, judged: Judged, given: _Given
) -> str:
    script = _resource("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    lines = problems.lines(calibrator, judged)
    columns = problems.columns(calibrator)
    parts = {
        "style": _resource("report.css"),
        "script": script,
        "digest": digest,
        "version": escape(__version__),
        "summary": _summary(calibrator, predicted, judged),
        "outcome": _outcome(calibrator),
        "levels": _levels(calibrator),
        "before": _before(predicted),
        "measured": _measured(predicted),
        "charts": _charts(predicted, given[2]),
        "worst": _worst(calibrator, judged, given),
        "held": _held(len(lines), problems.total(calibrator, judged)),
        "head": "".join(map(_heading, columns)),
        "meaning": "".join(
            f"<dt>{name}</dt><dd>{escape(problems.COLUMNS[name])}</dd>" for name in columns
        ),
        "data": problems.as_json({"columns": columns, "rows": lines}),
    }
    # In one pass, so that braces in a part are not replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _resource("report.html"))


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _summary(calibrator: SegmentCalibrator, predicted: Predicted, judged: Judged) -> str:
    fit, table = calibrator.fit, judged.table
    seen = judged.place >= 0
    converged = np.count_nonzero(np.asarray(fit.status) == Status.CONVERGED)
    terms: dict[str, Any] = {
        "segments fitted": f"{len(calibrator.keys):,}",
        "converged": f"{converged:,}",
        "with a flag": f"{np.count_nonzero(fit.flags):,}",
        "pooling": calibrator.pooling,
        "rows of this report": f"{len(predicted.usable):,}",
        "rows left out": f"{np.count_nonzero(~predicted.usable):,}",
        "segments without rows": f"{len(calibrator.keys) - np.count_nonzero(seen):,}",
        "segments not fitted": f"{np.count_nonzero(~seen):,}",
        f"predictions off, q ≤ {_FDR:g}": (
            f"{np.count_nonzero(table['flagged']):,} of "
            f"{np.count_nonzero(np.isfinite(table['p_value'])):,}"
        ),
    }
    return "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in terms.items())


def _outcome(calibrator: SegmentCalibrator) -> str:
    """Table rows of the statuses and flags that occur, with their numbers and meanings."""
    statuses, flags = calibrator.fit.status, calibrator.fit.flags
    said = [(name, n, Status[name].message) for name, n in status_counts(statuses).items()]
    said += [(name, n, Flag[name].message) for name, n in flag_counts(flags).items()]
    return "".join(
        f'<tr><th scope="row">{name}</th><td class="n">{n:,}</td><td>{escape(message)}</td></tr>'
        for name, n, message in said
    )


def _levels(calibrator: SegmentCalibrator) -> str:
    """The section with a line per level; empty without levels."""
    table = calibrator.levels
    if table is None:
        return ""
    lines = "".join(
        f'<tr><th scope="row"><bdi>{escape(str(name))}</bdi></th>'
        f'<td class="n">{values:,}</td><td class="n">{rows:,.4g}</td>'
        f'<td class="n">{slope:.3g} ± {slope_error:.2g}</td>'
        f'<td class="n">{intercept:.3g} ± {intercept_error:.2g}</td>'
        f'<td class="n">{100 * share:.0f} %</td></tr>'
        for name, values, rows, slope, slope_error, intercept, intercept_error, share in zip(
            *table.values(), strict=True
        )
    )
    return _resource("levels.html").replace("{{lines}}", lines)


def _before(predicted: Predicted) -> str:
    if predicted.scores_are_probabilities:
        return "the scores, taken as probabilities, as all lie in [0, 1]"
    return "the sigmoid of all fitted rows pooled, as the scores do not all lie in [0, 1]"


def _measured(predicted: Predicted) -> str:
    if not predicted.usable.any():
        return ""
    lines = "".join(
        f'<tr><th scope="row">{name}</th><td class="n">{before:.4f}</td>'
        f'<td class="n">{after:.4f}</td></tr>'
        for name, (before, after) in predicted.measured().items()
    )
    return (
        '<table class="measured"><thead><tr><th scope="col">metric</th>'
        '<th scope="col" class="n">before</th><th scope="col" class="n">after</th></tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def _charts(predicted: Predicted, segments: Column) -> str:
    if not predicted.usable.any():
        return "<p>No row has a finite score, label and probability.</p>"
    drawn = [(charts.reliability(predicted), "Bins of equal numbers of rows, 95 % intervals.")]
    if (predicted.after[predicted.usable] > 0).any():
        caption = "Within the limits a segment differs by no more than chance explains."
        drawn.append((charts.funnel(predicted, segments), caption))
    return "".join(
        f'<figure class="chart">{svg}<figcaption>{caption}</figcaption></figure>'
        for svg, caption in drawn
    )


def _worst(calibrator: SegmentCalibrator, judged: Judged, given: _Given) -> str:
    drawn = charts.worst(calibrator, judged, *given)
    if not drawn:
        return "<p>No segment of these rows was fitted and could be tested.</p>"
    made = []
    for i, svg in zip(charts.shown(judged), drawn, strict=True):
        name, count = escape(problems.name(judged.keys[i])), judged.table["rows"][i]
        made.append(
            f'<figure class="chart"><figcaption><bdi>{name}</bdi>'
            f"<span>{count:,} rows, q = {judged.table['q_value'][i]:.2g}</span></figcaption>"
            f"{svg}</figure>"
        )
    return "".join(made)


def _held(held: int, total: int) -> str:
    if held < total:
        return f"The worst {held:,} of {total:,} segments."
    return f"All {total:,} segments, the worst first."


def _heading(name: str) -> str:
    return (
        f'<th scope="col" aria-sort="none"><button type="button">{name}'
        '<span aria-hidden="true"></span></button></th>'
    )
