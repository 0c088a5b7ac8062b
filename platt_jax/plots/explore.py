"""Every segment in a notebook: a funnel to click, search and brush."""

from __future__ import annotations

from functools import cache
from typing import Any

from platt_jax.columns import Column, takes_columns
from platt_jax.execution.fitted_rows import rows_of_classes
from platt_jax.execution.segment_rows import row_arrays
from platt_jax.extras import install_hint
from platt_jax.plots import explorer, funnels
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator


@takes_columns
def explore(
    calibrator: SegmentCalibrator | OneVsRestCalibrator,
    scores: Column,
    labels: Column = None,
    segments: Column = None,
) -> Any:
    """Show every segment in a notebook, as points of a funnel and as a table.

    The funnel has observed over expected positives against rows, as `rate_funnel`; segments that
    `triage(..., against="predictions")` flags at a false discovery rate of 0.05 are marked. A click
    on a point, or the arrow keys, select a segment, and show its curve, with a 95 % band if it is a
    sigmoid, and its observed rates by score with Wilson's intervals. A drawn rectangle, a search
    for a part of an id, and status, flag or q-value filter the table. All segments, fitted or in
    the rows, are sent to the browser, most in 20 bytes each: docs/gallery.md says what more, and
    `platt_jax.report.to_html` writes the same page into a report.

    Args:
        calibrator: result of `fit_segments`; or of `fit_one_vs_rest`, whose classes are then the
            segments, and their scores (N, C) and labels as in that function.
        scores: (N,) scores, as in `fit_segments`, preferably of rows that were not fitted; or
            SegmentRows or ClassRows without weights and offset, which replace the arrays. Rows
            whose score or label is not finite are left out. A RuntimeWarning gives the number of
            segments that cannot be tested, as in `triage`.
        labels: (N,) bool, {0, 1} or {-1, +1}.
        segments: (N,) ids, as in `fit_segments`; None for classes. Fitted segments without rows,
            and segments that were not fitted, are allowed.

    Returns:
        An anywidget, which a notebook shows. `selected` is the id of the selected segment, or None;
        to set it selects a segment. `brushed` has the ids of the segments in the drawn rectangle,
        (n,) with the most urgent first. `region` is that rectangle: a list of the least and the
        greatest number of expected positives, and the least and the greatest ratio, None where
        there is no limit; or None if there is none. `observe` calls a function when `selected` or
        `region` changes.

    Raises:
        ValueError: an argument is not as above.
        ImportError: anywidget is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=300), rng.random(300) < 0.5, np.repeat(["a", "b", "c"], 100)
        >>> shown = explore(fit_segments(*rows), *rows)
        >>> shown.selected = "b"
        >>> shown.region = [20, None, None, None]
        >>> sorted(shown.brushed.tolist())
        ['a', 'b', 'c']
    """
    if isinstance(calibrator, OneVsRestCalibrator):
        class_rows = rows_of_classes(calibrator, scores, labels, segments)
        calibrator = calibrator.by_class
        scores, labels, segments, *_ = row_arrays(class_rows, "weights", "offset")
    require_segment_calibrator(calibrator, "calibrator", any_curve=True)
    widget = _widget()
    rows, judged = explorer.judged_rows(calibrator, scores, labels, segments, funnels.FDR)
    shown = explorer.contents(calibrator, rows, judged, funnels.FDR)
    return widget(shown)


@cache
def _widget() -> Any:
    with install_hint("platt_jax.plots.explore needs anywidget", "platt-jax[explore]"):
        import anywidget
        import traitlets

    class Explorer(anywidget.AnyWidget):  # type: ignore[misc]
        """A page of segments in a notebook; see `explore`."""

        _esm = explorer.module()
        _css = explorer.style()
        _about = traitlets.Unicode().tag(sync=True)
        _blocks = traitlets.List(traitlets.Bytes()).tag(sync=True)
        # The number of the selected segment in the page's order, -1 for none.
        _selected = traitlets.Int(-1).tag(sync=True)
        region: Any = traitlets.List(default_value=None, allow_none=True).tag(sync=True)
        selected = traitlets.Any(None, allow_none=True)

        def __init__(self, shown: explorer.Contents) -> None:
            self._shown = shown
            super().__init__(_about=shown.about, _blocks=list(shown.blocks))

        @traitlets.observe("_selected")
        def _selected_there(self, change: Any) -> None:
            self.selected = self._shown.ids.at(change.new) if change.new >= 0 else None

        @traitlets.validate("selected")
        def _check_selected(self, proposal: Any) -> Any:
            if proposal.value is not None and self._place(proposal.value) < 0:
                raise ValueError(f"selected: expected an id of a segment, got {proposal.value!r}")
            return proposal.value

        @traitlets.observe("selected")
        def _selected_here(self, change: Any) -> None:
            self._selected = -1 if change.new is None else self._place(change.new)

        def _place(self, id_: Any) -> int:
            return self._shown.ids.place(id_, "selected")

        @property
        def brushed(self) -> Any:
            """(n,) ids of the segments in the region, the most urgent first."""
            ids = self._shown.ids.judged
            return ids[:0] if self.region is None else self._shown.within(self.region)

    return Explorer
