"""What a figure draws, as text: the text of every figure in a notebook's kernel.

It is the same for all versions of matplotlib, unlike pixels, and changes where a number drawn does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.collections import Collection, PathCollection
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.spines import Spine

from platt_jax.plots import alt_text

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_DIGITS = 5  # of means and standard deviations


def install(shell) -> None:
    """Make it the text of figures in this IPython, and pictures as large as their figures."""
    from matplotlib.figure import Figure
    from matplotlib_inline.config import InlineBackend

    # By default a picture is cut where its texts end, which depends on the version of matplotlib.
    InlineBackend.instance(parent=shell).print_figure_kwargs = {"bbox_inches": None}
    shell.enable_matplotlib("inline")  # which resets the texts of figures, so it comes before
    texts = shell.display_formatter.formatters["text/plain"]
    texts.for_type(Figure, lambda figure, printer, cycle: printer.text(text(figure)))


def text(figure: Figure) -> str:
    """The size of the figure, and for each of its axes what it shows, with a line per artist."""
    width, height = figure.get_size_inches()
    lines = [f"Figure of {width:.3g} x {height:.3g} inches"]
    for number, ax in enumerate(figure.axes, 1):
        lines += [f"Axes {number}: {alt_text(ax)}", *_artists(ax)]
    return "\n".join(lines)


def _artists(ax: Axes) -> list[str]:
    if ax.get_label() == "<colorbar>":  # drawn by matplotlib, in each version its own way
        return []
    inside = [x for x in ax.get_children() if x is not ax.patch and not isinstance(x, Spine)]
    bars = [_corners(x) for x in inside if isinstance(x, Patch)]
    drawn = [("patches", np.concatenate(bars))] if bars else []
    drawn += [found for x in inside for found in _numbers(x)]
    return [f"  {kind}: {_summary(numbers)}" for kind, numbers in drawn]


def _corners(patch: Patch) -> NDArray:
    return patch.get_patch_transform().transform(patch.get_path().vertices)


def _numbers(artist: Artist) -> list[tuple[str, NDArray]]:
    """Kind and numbers, (N, 2) or (N, 1), of what an artist draws; none of texts and legends."""
    if isinstance(artist, Line2D):
        return [("line", artist.get_xydata())]
    if isinstance(artist, AxesImage):
        return [("image", np.ma.filled(artist.get_array().astype(float), np.nan).reshape(-1, 1))]
    if isinstance(artist, Collection):
        offsets = np.ma.filled(artist.get_offsets().astype(float), np.nan)
        if isinstance(artist, PathCollection) or len(offsets) > 1:
            return [("dots", offsets)]
        corners = [path.vertices for path in artist.get_paths()]
        return [("shapes", np.concatenate([np.empty((0, 2)), *corners]))]
    return []


def _summary(numbers) -> str:
    """How many, and the mean and standard deviation of each coordinate."""
    known = numbers[np.isfinite(numbers).all(1)].astype(float)
    return f"{len(known)} points, {', '.join(map(_moments, known.T))}" if len(known) else "nothing"


def _moments(x) -> str:
    mean, deviation = x.mean(), x.std()
    scale = max(abs(mean), deviation)
    decimals = max(1, _DIGITS - 1 - int(np.floor(np.log10(scale)))) if scale else 1
    return f"{mean:.{decimals}f} ± {deviation:.{decimals}f}"
