"""The page of a report, assembled from its parts."""

import base64
import hashlib
import os
import re
from html import escape
from typing import Literal

import numpy as np

from platt_jax.columns import Column
from platt_jax.execution.fitted_rows import rows_of_classes
from platt_jax.extras import install_hint
from platt_jax.hypothesis_tests.verdict import verdict
from platt_jax.plots import explorer, names
from platt_jax.plots.explorer import JudgedSegments
from platt_jax.report import charts, rows, sections
from platt_jax.report.rows import ReportRows
from platt_jax.report.sections import FDR, resource
from platt_jax.results.atomic import destination, write_atomically
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator
from platt_jax.version import __version__


def to_html(
    path: str | os.PathLike[str],
    calibrator: SegmentCalibrator | OneVsRestCalibrator,
    scores: Column,
    labels: Column,
    segments: Column = None,
    *,
    before: Column | Literal["logits"] = None,
    title: str = "Calibration report",
) -> None:
    """Write a report of a calibrator and its predictions for these rows, as one HTML file.

    The report says first whether the calibrator is worse than before or than one curve for all, by
    more than two standard errors of the log loss, and then which segments are off, by their level
    or by their slope. It has reliability before and after, with paired standard errors of the
    differences, the larger of those for independent rows and for independent segments; the segments
    that `triage` puts first; and the outcome of the fits. All segments are in it to be explored, as
    by `platt_jax.plots.explore`: a segment takes about 30 bytes of the file.

    Two null hypotheses are tested, both validly for rows that were not fitted. A segment is off by
    `triage(..., against="predictions")`, whose null hypothesis is that each label is 1 with the
    predicted probability; its p-values are those of the page. The number of segments that have
    changed is by `triage` with its default, against the fit: they do not fit what was known of
    them, with its uncertainty.

    Args:
        path: path of the file; an existing file is replaced atomically.
        calibrator: result of `fit_segments`; or of `fit_one_vs_rest`, whose classes are then the
            page's segments, with the pairs of a row and a class as rows.
        scores: (N,) scores, as in `fit_segments`, preferably of rows that were not fitted. A row
            whose score or label is not finite counts only in the number of rows. For classes
            (N, C), as in `fit_one_vs_rest`.
        labels: (N,) labels, as in `fit_segments`, or as in `fit_one_vs_rest`.
        segments: (N,) segment ids, as in `fit_segments`; None for classes. Fitted segments without
            rows, and segments that were not fitted, are allowed.
        before: what the calibrator is compared with: probabilities, as many as scores; or "logits",
            the scores taken as log-odds. None for the scores themselves if all lie in [0, 1]; else
            for segments the sigmoid of all rows pooled, and for classes "logits". The page says
            which.
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
        given = rows_of_classes(calibrator, scores, labels, segments)
        scores, labels, segments, *_ = given.pairs()
        if before is None:
            finite = scores[np.isfinite(scores)]
            before = None if ((finite >= 0) & (finite <= 1)).all() else "logits"
        elif not isinstance(before, str):
            before = given.flatten(before)
        calibrator = calibrator.by_class
    require_segment_calibrator(calibrator, "calibrator")
    path = destination(path)
    with install_hint("platt_jax.report needs matplotlib", "platt-jax[report]"):
        import matplotlib  # noqa: F401 - checks that it is installed
    predicted, judged = rows.read(calibrator, scores, labels, segments, before, FDR)
    page = _page(calibrator, predicted, judged, title)
    # A segment's name may hold characters that UTF-8 cannot encode.
    write_atomically(path, lambda file: file.write(page.encode("utf-8", "xmlcharrefreplace")))


def _page(
    calibrator: SegmentCalibrator,
    predicted: ReportRows,
    judged: JudgedSegments,
    title: str,
) -> str:
    script = f'"use strict";\n{{\n{explorer.script()}\n{resource("report.js")}}}\n'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shown = explorer.contents(calibrator, predicted.rows, judged, FDR)
    compared = predicted.measured()
    first = f"{sections.worse(compared)} {verdict(judged.table, FDR, most=5)}".strip()
    changed = rows.changed(calibrator, predicted.rows, judged, FDR)
    parts = {
        "style": resource("report.css") + explorer.style(),
        "script": script,
        "digest": digest,
        "version": escape(__version__),
        "title": escape(title),
        "verdict": escape(first),
        "summary": sections.summary(calibrator, predicted, judged, changed),
        "outcome": sections.outcome(calibrator),
        "levels": sections.levels(calibrator),
        "before": predicted.source,
        "measured": sections.measured(compared),
        "charts": _reliability(predicted),
        "urgent": sections.urgent(judged),
        "worst": _worst(calibrator, predicted, judged),
        "explorer": explorer.markup(),
        "about": shown.about,
    }
    for i, block in enumerate(shown.blocks):
        parts[f"block{i}"] = base64.b64encode(block).decode()
    # In one pass, so that braces in a part are not replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], resource("report.html"))


def _reliability(predicted: ReportRows) -> str:
    if not predicted.rows.usable.any():
        return "<p>No row has a finite score, label and probability.</p>"
    svg, caption = charts.reliability(predicted)
    return f'<figure class="chart">{svg}<figcaption>{caption}</figcaption></figure>'


def _worst(calibrator: SegmentCalibrator, predicted: ReportRows, judged: JudgedSegments) -> str:
    drawn = charts.worst(calibrator, predicted, judged)
    if not drawn:
        return "<p>No segment of these rows was fitted and could be tested.</p>"
    made = []
    for i, svg in zip(charts.shown(judged), drawn, strict=True):
        name, count = (
            escape(explorer.shortened(names.text(judged.keys[i]))),
            judged.table["rows"][i],
        )
        made.append(
            f'<figure class="chart"><figcaption><bdi title="{name}">{name}</bdi>'
            f"<span>{count:,} rows, q = {judged.table['q_value'][i]:.2g}"
            f"{', off' if judged.table['flagged'][i] else ''}</span></figcaption>"
            f"{svg}</figure>"
        )
    return "".join(made)
