"""What partial pooling does to segments."""

import numpy as np

from platt_jax.plots import style

_ARROWS = 300


def shrinkage(calibrator, unpooled=None, *, ax=None):
    """How far partial pooling takes the segments towards the population, by their rows.

    Without `unpooled` it is the shrinkage itself, from 0, a segment's own rows alone, to 1, the
    population alone. With it arrows go from each unpooled slope to the partially pooled one; of
    more than 300 segments that many have arrows, evenly by rank of rows.

    Args:
        calibrator: a SegmentCalibrator with pooling="partial".
        unpooled: that of the same rows with pooling="none", or None.
        ax: matplotlib axes; None for those of a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: the calibrator has no population, or the two have other segments.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=500), rng.random(500) < 0.5, np.arange(500) % 20
        >>> ax = shrinkage(fit_segments(*rows, pooling="partial"))
        >>> ax.get_ylabel()
        'shrinkage'
    """
    if calibrator.population is None:
        raise ValueError('calibrator: expected one with pooling="partial", got one without')
    if unpooled is not None and not np.array_equal(unpooled.keys, calibrator.keys):
        raise ValueError("unpooled: expected a calibrator of the same segments, got other keys")
    rows = np.asarray(calibrator.fit.n_pos, float) + calibrator.fit.n_neg
    ax = style.axes_or_new(ax)
    ax.set(xscale="log", xlabel="rows of the segment")
    across = rows[rows > 0].min() / 1.2, rows.max() * 1.2
    if unpooled is None:
        window = across, (-0.02, 1.02)
        ax.set(xlim=window[0], ylim=window[1], ylabel="shrinkage")
        some = f"{len(rows):,} segments"
        style.points(ax, rows, calibrator.shrinkage, window, some, color=style.BLUE, alpha=0.4)
    else:
        _arrows(ax, rows, -unpooled.fit.A, -calibrator.fit.A, across)
        mean = float(-calibrator.population.mean[0])
        ax.axhline(
            mean, color=style.ORANGE, linewidth=1.5, label="mean of the population", zorder=1
        )
    ax.legend(frameon=False, fontsize=style.SMALL + 1, loc="upper right")
    return ax


def _arrows(ax, rows, before, after, across):
    usable = np.flatnonzero(np.isfinite(before) & np.isfinite(after) & (rows > 0))
    window = across, style.central(before[usable].astype(float))
    by_rows = usable[np.argsort(rows[usable], kind="stable")]
    few = np.linspace(0, len(by_rows) - 1, min(len(by_rows), _ARROWS)).astype(np.intp)
    some = by_rows[few]
    ax.set(xlim=window[0], ylim=window[1], ylabel="slope, $-A$")
    looks = {"color": style.GREY, "arrowstyle": "->", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
    for x, start, end in zip(rows[some], before[some], after[some], strict=True):
        ax.annotate("", (x, end), (x, start), arrowprops=looks, annotation_clip=True)
    dots = {"s": 10, "zorder": 3, "linewidth": 0.8}
    ax.scatter(
        rows[some], before[some], label="unpooled", edgecolor=style.VERMILLION, color="none", **dots
    )
    count = "" if len(few) == len(by_rows) else f", {len(few)} of {len(by_rows):,} segments"
    ax.scatter(rows[some], after[some], label=f"partially pooled{count}", color=style.BLUE, **dots)
    low, high = window[1]
    style.note_beyond(ax, (before[some] < low) | (before[some] > high))
