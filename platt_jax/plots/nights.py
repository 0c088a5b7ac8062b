"""The evidence of a monitor over its nights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats, Integers
from platt_jax.ids.factorize import ascending, split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.plots import names, style
from platt_jax.plots.rows import ids_in_table
from platt_jax.results.tables import Table, counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST, _MOST = 0.0, 8.0  # of the evidence in the image, in powers of ten
_MOST_SEGMENTS = 60
_MOST_NAMES = 30
_NAME_LENGTH = 18
_EVIDENCE = "evidence, log₁₀ of the e-value"


def nights(
    tables: Sequence[Table],
    segments: Any = None,
    *,
    fdr: float = 0.05,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the evidence of each night that the predictions of segments are off.

    Evidence is the logarithm of the e-value, in powers of ten. A mark is an alarm at this false
    discovery rate.

    Args:
        tables: the results of `Monitor.table` after each night, in their order.
        segments: (S,) ids to draw, a line each, at most 7. None for an image with a line of pixels
            for each of the 60 segments with the most evidence, which is sorted by the first night
            with an alarm.
        fdr: false discovery rate of the alarms, in (0, 1).
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure.

    Raises:
        ValueError: there are no tables of a monitor, or none of the segments is in any.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import Monitor, fit_segments
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=400), rng.random(400) < 0.5, np.arange(400) % 4
        >>> monitor, tables = Monitor.start(fit_segments(*rows)), []
        >>> for _ in range(5):
        ...     rows = rng.normal(size=40), rng.random(40) < 0.9, np.arange(40) % 4
        ...     monitor = monitor.update(*rows)
        ...     tables.append(monitor.table())
        >>> nights(tables).get_xlabel()
        'night'
    """
    validation.require_fraction(fdr, "fdr")
    if not len(tables) or any("log_e_value" not in table for table in tables):
        raise ValueError("tables: expected the results of Monitor.table, one for each night")
    history = _history(tables, fdr)
    ax = style.axes_or_new(ax)
    ax.set_xlabel("night")
    if segments is None:
        _image(ax, history)
    else:
        _lines(ax, _chosen(history, segments))
    return style.titled(ax, title)


class _SegmentHistories(NamedTuple):
    keys: NDArray[Any]  # (K,)
    evidence: Floats  # (K, nights), in powers of ten; NaN before the first rows
    alarms: Bools  # (K, nights)

    def of(self, some: Integers) -> _SegmentHistories:
        """Some of the segments."""
        return _SegmentHistories(self.keys[some], self.evidence[some], self.alarms[some])


def _history(tables: Sequence[Table], fdr: float) -> _SegmentHistories:
    """The evidence of all segments in the last table, which has the segments of all others."""
    keys, _ = ascending(_segments(tables[-1]))
    evidence = np.full((len(keys), len(tables)), np.nan)
    alarms = np.zeros(evidence.shape, bool)
    for night, table in enumerate(tables):
        positions = get_indexer(keys, split_columns(_segments(table)))
        present = positions >= 0  # segments that were restarted may be missing from the last table
        evidence[positions[present], night] = table["log_e_value"][present] / np.log(10)
        alarms[positions[present], night] = table["q_value"][present] <= fdr
    return _SegmentHistories(keys, evidence, alarms)


def _segments(table: Table) -> NDArray[Any]:
    fields = list(takewhile(lambda name: name != "nights", table))
    return ids_in_table(table, fields if len(fields) > 1 else None)


def _chosen(history: _SegmentHistories, segments: Any) -> _SegmentHistories:
    wanted = [segments] if isinstance(segments, str) else segments
    positions = get_indexer(history.keys, ids.read(wanted))
    if len(positions) > len(style.CYCLE):
        raise ValueError(f"segments: expected at most {len(style.CYCLE)}, got {len(positions)}")
    if (positions < 0).any():
        raise ValueError(
            "segments: expected segments of the last table, which does not have the one at "
            f"position {np.argmax(positions < 0)}"
        )
    return history.of(positions)


def _lines(ax: Axes, history: _SegmentHistories) -> None:
    numbers = np.arange(1, history.evidence.shape[1] + 1)
    ax.axhline(0, color=style.GREY, linewidth=0.8, zorder=0)
    texts = _texts(history.keys)
    for i, (evidence, alarms) in enumerate(zip(history.evidence, history.alarms, strict=True)):
        looks: dict[str, Any] = {"color": style.cycle(ax, i), "label": names.in_legend(texts[i])}
        alone = np.isfinite(evidence).sum() == 1  # no line would be seen
        ax.plot(numbers, evidence, "." if alone else "-", linewidth=1.3, **looks)
        marks: dict[str, Any] = {"linestyle": "none", "marker": style.MARKERS[i], "markersize": 5}
        ax.plot(numbers[alarms], evidence[alarms], color=style.cycle(ax, i), **marks)
    ax.set_ylabel(_EVIDENCE)
    _count_nights(ax, len(numbers))
    style.legend(ax, title="marked: with an alarm", title_fontsize=style.SMALL)


def _count_nights(ax: Axes, number: int) -> None:
    """Whole numbers on the axis of so many nights."""
    ax.set_xlim(0.5, number + 0.5)
    ax.locator_params(axis="x", integer=True, min_n_ticks=1)


def _image(ax: Axes, history: _SegmentHistories) -> None:
    most = np.nan_to_num(history.evidence, nan=-np.inf).max(1)
    chosen = np.argsort(-most, kind="stable")[:_MOST_SEGMENTS]
    number = history.evidence.shape[1]
    first = np.where(history.alarms.any(1), history.alarms.argmax(1), number)[chosen]
    shown = history.of(chosen[np.lexsort((-most[chosen], first))])
    drawn = ax.imshow(
        np.maximum(shown.evidence, _LEAST),
        aspect="auto",
        interpolation="nearest",
        cmap="magma_r",  # transparent before a segment's first rows
        vmin=_LEAST,
        vmax=_MOST,
        extent=(0.5, number + 0.5, len(chosen) - 0.5, -0.5),
    )
    line, night = np.nonzero(shown.alarms)
    begins = np.unique(line, return_index=True)[1]
    looks: dict[str, Any] = {"marker": "|", "s": 40, "color": style.SKY, "linewidth": 1.6}
    if len(begins):
        ax.scatter(night[begins] + 1, line[begins], label="first alarm", **looks)
        style.legend(ax, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    ax.figure.colorbar(drawn, ax=ax, label=_EVIDENCE, extend="max")
    _count_nights(ax, number)
    _name_lines(ax, shown.keys, len(history.keys))


def _name_lines(ax: Axes, keys: NDArray[Any], of: int) -> None:
    label = "segments" if len(keys) == of else f"{len(keys)} of {counted(of, 'segment')}"
    if len(keys) > _MOST_NAMES:
        ax.set_yticks([])
    else:
        texts = _texts(keys)
        looks: dict[str, Any] = {"fontfamily": names.families(texts), "parse_math": False}
        ax.set_yticks(range(len(keys)), texts, **looks)
        ax.tick_params(axis="y", labelsize=style.SMALL, length=0)
    ax.set_ylabel(label)


def _texts(keys: NDArray[Any]) -> list[str]:
    """The segments' ids, shortened if they are long."""
    return names.distinct([names.text(key) for key in keys], _NAME_LENGTH)
