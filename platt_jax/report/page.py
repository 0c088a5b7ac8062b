"""The page of a report, assembled from its parts: text, tables and charts."""

import base64
import hashlib
import os
import re
from html import escape
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from platt_jax.columns import Column, takes_columns
from platt_jax.execution.fitted_rows import rows_of_classes
from platt_jax.execution.segment_rows import row_arrays
from platt_jax.extras import install_hint
from platt_jax.hypothesis_tests.verdict import verdict
from platt_jax.plots import explorer, names
from platt_jax.plots.explorer import JudgedSegments
from platt_jax.report import charts, rows
from platt_jax.report.rows import Judgement, Measure, ReportRows
from platt_jax.results.atomic import destination, write_atomically
from platt_jax.results.fit import inspected
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.segment_calibrator import (
    SIZES,
    SegmentCalibrator,
    pooled_proba,
    require_segment_calibrator,
)
from platt_jax.results.tables import counted, flag_counts, status_counts
from platt_jax.status import Flag, Status
from platt_jax.version import __version__

# False discovery rate of the segments called off.
_FDR = 0.05
_OF_SIZES = "Curves depend on the number of rows: where rows are few, predictions are off."


@takes_columns
def to_html(
    path: str | os.PathLike[str],
    calibrator: SegmentCalibrator | OneVsRestCalibrator,
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    before: Column | Literal["logits"] = None,
    title: str = "Calibration report",
) -> None:
    """Write a report of a calibrator and its predictions for these rows, as one HTML file.

    The report says first whether the calibrator is worse than before or than one curve for all, by
    more than two standard errors of the log loss, and then which segments are off, by their level
    or by their slope. It has reliability before and after, the segments that `triage` puts first,
    and the outcome of the fits. All segments are in it to be explored, as by
    `platt_jax.plots.explore`: a segment takes about 30 bytes of the file. A segment is off by
    `triage(..., against="predictions")`, and has changed by `triage` against the fit, both validly
    for rows that were not fitted. docs/tour.md says more of these tests and errors.

    Args:
        path: path of the file; an existing file is replaced atomically.
        calibrator: result of `fit_segments`, with any curves; or of `fit_one_vs_rest`, whose
            classes are then the page's segments, with the pairs of a row and a class as rows.
        scores: (N,) scores, as in `fit_segments`, preferably of rows that were not fitted. A row
            whose score or label is not finite counts only in the number of rows. For classes
            (N, C), as in `fit_one_vs_rest`. Or SegmentRows or ClassRows without weights and offset,
            which replace the arrays.
        labels: (N,) labels, as in `fit_segments`, or as in `fit_one_vs_rest`.
        segments: (N,) segment ids, as in `fit_segments`; None for classes. Fitted segments without
            rows, and segments that were not fitted, are allowed.
        before: what the calibrator is compared with: probabilities, as many as scores (not beside
            SegmentRows, which do not keep their order); or "logits", the scores taken as log-odds.
            None for the scores themselves if all lie in [0, 1]; else for segments the curve of all
            rows pooled, and for classes "logits". The page says which.
        title: title of the page, such as the name and the dates of the rows.

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
        >>> to_html(path, fit_segments(*rows), *rows)
        >>> os.path.getsize(path) < 1_000_000
        True
    """
    if isinstance(calibrator, OneVsRestCalibrator):
        class_rows = rows_of_classes(calibrator, scores, labels, segments)
        scores, labels, segments, *_ = row_arrays(class_rows, "weights", "offset")
        if before is None:
            finite = scores[np.isfinite(scores)]
            before = None if ((finite >= 0) & (finite <= 1)).all() else "logits"
        elif not isinstance(before, str):
            before = class_rows.flatten(before)
        calibrator = calibrator.by_class
    require_segment_calibrator(calibrator, "calibrator", any_curve=True)
    path = destination(path)
    with install_hint("platt_jax.report needs matplotlib", "platt-jax[report]"):
        import matplotlib  # noqa: F401 - checks that it is installed
    predicted, judged = rows.read(calibrator, scores, labels, segments, before, _FDR)
    page = _page(calibrator, predicted, judged, title)
    # A segment's name may hold characters that UTF-8 cannot encode.
    write_atomically(path, lambda file: file.write(page.encode("utf-8", "xmlcharrefreplace")))


def _page(
    calibrator: SegmentCalibrator, predicted: ReportRows, judged: JudgedSegments, title: str
) -> str:
    script = f'"use strict";\n{{\n{explorer.script()}\n{_resource("report.js")}}}\n'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shown = explorer.contents(calibrator, predicted.rows, judged, _FDR)
    compared = predicted.measured()
    first = f"{_worse(compared)} {verdict(judged.table, _FDR, most=5)}".strip()
    changed = rows.changed(calibrator, predicted.rows, judged, _FDR)
    parts = {
        "style": _resource("report.css") + explorer.style(),
        "script": script,
        "digest": digest,
        "version": escape(__version__),
        "title": escape(title),
        "verdict": escape(first),
        "summary": _summary(calibrator, predicted, judged, changed),
        "outcome": _outcome(calibrator),
        "levels": _levels(calibrator) or _covariates(calibrator),
        "before": predicted.source,
        "measured": _measured(compared),
        "charts": _reliability(predicted),
        "urgent": _urgent(judged),
        "worst": _worst(calibrator, predicted, judged),
        "explorer": explorer.markup(),
        "tests": _resource("tests.html" if calibrator.curves is None else "one_test.html"),
        "scaling": _scaling(calibrator),
        "curve": _drawn(calibrator),
        "dashed": _dashed(calibrator),
        "about": shown.about,
    }
    for i, block in enumerate(shown.blocks):
        parts[f"block{i}"] = base64.b64encode(block).decode()
    # In one pass, so that braces in a part are not replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _resource("report.html"))


def _scaling(calibrator: SegmentCalibrator) -> str:
    """What the page is about."""
    if calibrator.curves is None:
        return "Platt scaling by segment"
    return f"Calibration by segment, {names.kind_of_curve(calibrator)} curves"


def _drawn(calibrator: SegmentCalibrator) -> str:
    """What the line of a segment is."""
    curves = calibrator.curves
    if curves is not None and not curves.has_errors:
        return "curve"
    return f"{'sigmoid' if curves is None else 'curve'} with its 95&nbsp;% band"


def _dashed(calibrator: SegmentCalibrator) -> str:
    """What the dashed line beside it is, where it is drawn: classes have none."""
    if np.isnan(pooled_proba(calibrator, np.zeros(1))).all():
        return ""
    return f" Dashed: the {rows.pooled_name(calibrator)} pooled."


def _reliability(predicted: ReportRows) -> str:
    if not predicted.rows.usable.any():
        return "<p>No row has a finite score, label and probability.</p>"
    svg, caption = charts.reliability(predicted)
    return f'<figure class="chart">{svg}<figcaption>{caption}</figcaption></figure>'


def _worst(calibrator: SegmentCalibrator, predicted: ReportRows, judged: JudgedSegments) -> str:
    drawn = charts.worst(calibrator, predicted, judged)
    if not drawn:
        return "<p>No segment of these rows was fitted and could be tested.</p>"
    figures = []
    for i, svg in zip(charts.shown(judged), drawn, strict=True):
        name = escape(explorer.shortened(names.text(judged.keys[i])))
        figures.append(
            f'<figure class="chart"><figcaption><bdi title="{name}">{name}</bdi>'
            f"<span>{counted(judged.table['rows'][i], 'row')}, q = {judged.table['q_value'][i]:.2g}"
            f"{', off' if judged.table['flagged'][i] else ''}</span></figcaption>"
            f"{svg}</figure>"
        )
    return "".join(figures)


def _resource(name: str) -> str:
    """The text of a file of this package."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def _summary(
    calibrator: SegmentCalibrator,
    predicted: ReportRows,
    judged: JudgedSegments,
    changed: Judgement | None,
) -> str:
    """The numbers of segments that are off, and that have changed, and eight other numbers."""
    table = judged.table
    is_fitted = judged.place >= 0
    flagged = np.count_nonzero(table["flagged"])
    tested = np.count_nonzero(np.isfinite(table["p_value"]))
    usable = predicted.rows.usable
    positive = f"{100 * predicted.rows.labels[usable].mean():.3g} %" if usable.any() else "none"
    terms: dict[str, Any] = {
        f"segments off, q ≤ {_FDR:g}": f"{flagged:,} of {tested:,}",
        f"changed since the fit, q ≤ {_FDR:g}": changed
        and f"{changed.flagged:,} of {changed.tested:,}",
        "of the rows positive": positive,
        "rows of this report": f"{len(usable):,}",
        "rows left out": f"{np.count_nonzero(~usable):,}",
        "segments fitted": f"{len(calibrator.keys):,}",
        "with a flag": f"{np.count_nonzero(inspected(calibrator, any_curve=True)[0].flags):,}",
        "pooling": calibrator.pooling,
        "segments without rows": f"{len(calibrator.keys) - np.count_nonzero(is_fitted):,}",
        "segments not fitted": f"{np.count_nonzero(~is_fitted):,}",
    }
    shown_terms = ((name, value) for name, value in terms.items() if value is not None)
    return "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in shown_terms)


def _outcome(calibrator: SegmentCalibrator) -> str:
    """Table rows of the statuses and flags that occur, with their numbers and meanings."""
    fit, *_ = inspected(calibrator, any_curve=True)
    statuses, flags = fit.status, fit.flags
    lines = [(name, n, Status[name].message) for name, n in status_counts(statuses).items()]
    population = calibrator.population
    if population is not None and population.status != Status.CONVERGED:
        lines.append((f"population: {population.status.name}", 1, population.status.message))
    if SIZES in calibrator.events:
        lines.append(("population", 1, _OF_SIZES))
    lines += [(name, n, Flag[name].message) for name, n in flag_counts(flags).items()]
    return "".join(
        f'<tr><th scope="row">{name}</th><td class="n">{n:,}</td><td>{escape(message)}</td></tr>'
        for name, n, message in lines
    )


def _levels(calibrator: SegmentCalibrator) -> str:
    """The section with a line per level; empty without levels."""
    table = calibrator.levels
    if table is None:
        return ""
    lines = "".join(
        _line(
            f"<bdi>{escape(str(name))}</bdi>",
            f"{values:,}",
            f"{rows:,.4g}",
            _with_error(slope, slope_error),
            _with_error(intercept, intercept_error),
            f"{100 * share:.0f} %",
        )
        for name, values, rows, slope, slope_error, intercept, intercept_error, share in zip(
            *table.values(), strict=True
        )
    )
    return _resource("levels.html").replace("{{lines}}", lines)


def _covariates(calibrator: SegmentCalibrator) -> str:
    """The section with a line per covariate; empty without covariates."""
    population = calibrator.population
    if population is None or population.coefficients is None:
        return ""
    lines = "".join(
        _line(
            f"<bdi>{escape(str(name))}</bdi>",
            _with_error(slope, slope_error),
            _with_error(intercept, intercept_error),
            f"{p:.2g}",
        )
        for name, slope, slope_error, intercept, intercept_error, p in zip(
            *population.coefficients.values(), strict=True
        )
    )
    return _resource("covariates.html").replace("{{lines}}", lines)


def _line(name: str, *numbers: str) -> str:
    """A table row of a name and numbers."""
    cells = "".join(f'<td class="n">{number}</td>' for number in numbers)
    return f'<tr><th scope="row">{name}</th>{cells}</tr>'


def _with_error(spread: float, error: float) -> str:
    return f"{spread:.3g} ± {error:.2g}" if np.isfinite(error) else f"{spread:.3g}"


def _measured(compared: dict[str, dict[str, Measure]]) -> str:
    """A table of metrics for each comparison of `ReportRows.measured`."""
    return "".join(
        '<table class="measured"><thead><tr><th scope="col">metric</th>'
        f'<th scope="col" class="n">{baseline}</th><th scope="col" class="n">after</th>'
        '<th scope="col" class="n">difference ± error</th></tr></thead><tbody>'
        + "".join(
            _line(name, f"{measure.before:.4f}", f"{measure.after:.4f}", _difference(measure))
            for name, measure in metrics.items()
        )
        + "</tbody></table>"
        for baseline, metrics in compared.items()
    )


def _worse(compared: dict[str, dict[str, Measure]]) -> str:
    """A sentence if the calibrator is worse, by more than two standard errors of the log loss."""
    losses = {name: measures["Log loss"] for name, measures in compared.items()}
    phrases = [f"than {name} ({_difference(loss)})" for name, loss in losses.items() if loss.worse]
    if not phrases:
        return ""
    return f"The calibrator is worse {' and '.join(phrases)}, by its log loss on these rows."


def _difference(of: Measure) -> str:
    """The difference with its standard error; nothing where there is none."""
    if not np.isfinite(of.error):
        return ""
    return f"{of.difference:+.5f} ± {of.error:.5f}".replace("-", "\N{MINUS SIGN}")


def _urgent(judged: JudgedSegments) -> str:
    """What the segments drawn are, by chance or not."""
    drawn = judged.table["flagged"][charts.shown(judged)]
    if not len(drawn):
        return ""
    if drawn.all():
        return "All of these are off."
    if drawn.any():
        number = np.count_nonzero(drawn)
        first = "The first is" if number == 1 else f"The first {number:,} are"
        return f"{first} off; the others by no more than chance."
    return "None of these is reliably off: among so many segments, some differ as much by chance."
