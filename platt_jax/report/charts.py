"""The charts of a report, as inline SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import plots, validation
from platt_jax.plots.explorer import JudgedSegments
from platt_jax.plots.reliability import is_rare
from platt_jax.report.rows import ReportRows
from platt_jax.results.segment_calibrator import SegmentCalibrator

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_SEGMENTS = 12
# Maximum number of points drawn as vectors; more take less room as an image.
_MOST_VECTORS = 500


# Expected positives in a bin of a reliability diagram of rare ones, and the largest number of bins.
_OF_A_BIN, _MOST_BINS = 5, 10


def reliability(predicted: ReportRows) -> tuple[str, str]:
    """Reliability diagrams before and after, and a caption."""
    rows, usable = predicted.rows, predicted.rows.usable
    proba = {"before": predicted.before[usable], "after": rows.proba[usable]}
    labels = rows.labels[usable]
    bins, strategy, caption = _MOST_BINS, "quantile", "Bins of equal numbers of rows"
    if is_rare(labels, list(proba.values())):
        strategy = "positives"
        bins = int(np.clip(labels.sum() // _OF_A_BIN, 1, _MOST_BINS))
        caption = (
            "Bins of equal expected numbers of positives, on logarithmic axes (bins without "
            "positives at the lower edge)"
        )

    def draw(axes: Sequence[Axes]) -> None:
        # A table has the numbers.
        looks: dict[str, Any] = {"n_bins": bins, "strategy": strategy, "numbers": False}
        plots.reliability_diagram(labels, proba, ax=axes[0], **looks)

    what = "Reliability diagram: observed frequency against predicted probability, before and after"
    return _svg(draw, what)[0], f"{caption}, 95 % intervals."


def worst(
    calibrator: SegmentCalibrator, predicted: ReportRows, judged: JudgedSegments
) -> list[str]:
    """The curves of the most urgent segments, which are `shown`."""
    positions = judged.place[shown(judged)]
    chosen = [calibrator.keys[position] for position in positions]
    rows = predicted.rows
    # Also rows without a probability before: a segment may have no others.
    usable = np.isfinite(rows.scores) & (rows.labels != validation.BAD_LABEL)
    by_row = rows.scores[usable], rows.labels[usable], judged.keys[rows.segments[usable]]

    def draw(axes: Sequence[Axes]) -> None:
        plots.segment_sigmoids(calibrator, *by_row, chosen, axes=np.array(axes))
        for ax in axes:
            ax.set_title("")  # the page has titles as text
            ax.set(xlabel="score", ylabel="P(y = 1)")

    what = "The segment's curve over its observed rates"
    if calibrator.curves is None:
        what = "The segment's sigmoid over its observed rates"
    return _svg(draw, what, number=len(chosen), small=True) if chosen else []


def shown(judged: JudgedSegments) -> NDArray[np.intp]:
    """The numbers of the drawn segments: the first ones with a test and a fit."""
    drawable = (judged.place >= 0) & np.isfinite(judged.table["p_value"])
    return np.flatnonzero(drawable)[:MOST_SEGMENTS]


def _svg(
    draw: Callable[[Sequence[Axes]], None], what: str, number: int = 1, small: bool = False
) -> list[str]:
    """Draw on axes, each with a figure of its own, and return the figures as SVG elements."""
    from matplotlib import style
    from matplotlib.figure import Figure

    # The user's own style might not suit the page. A fixed hash salt makes equal pages equal.
    with style.context(["default", {"svg.fonttype": "none", "svg.hashsalt": "platt_jax"}]):
        if small:  # all of one layout
            figures = [Figure(figsize=(2.8, 2.2)) for _ in range(number)]
            draw([figure.add_axes((0.18, 0.2, 0.8, 0.77)) for figure in figures])
        else:
            figures = [Figure(figsize=(4.8, 4.4), layout="constrained") for _ in range(number)]
            draw([figure.add_subplot() for figure in figures])
        return [_element(figure, what) for figure in figures]


def _element(figure: Figure, what: str) -> str:
    for ax in figure.axes:
        for collection in ax.collections:
            offsets: Any = collection.get_offsets()
            if len(offsets) > _MOST_VECTORS:
                collection.set_rasterized(True)
    file = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format="svg", transparent=True, dpi=150, metadata=no_metadata)
    # The page sets the width. Inline SVG needs no namespace.
    svg = re.sub(
        r'.*<svg [^>]*(viewBox="[^"]*")[^>]*>',
        rf'<svg \1 role="img" aria-label="{what}">',
        file.getvalue(),
        count=1,
        flags=re.S,
    )
    # Other charts of the page use the same group ids, and a style element applies to all of them.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.S)
    # Text takes the page's own font.
    return re.sub(r'font: ([\d.]+px)[^;"]*', r"font-size: \1", svg)
