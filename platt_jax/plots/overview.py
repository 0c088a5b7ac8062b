"""Overviews of all problems: their parameters and flags, and four figures in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Ints
from platt_jax.columns import Column, takes_columns
from platt_jax.plots import axes, style
from platt_jax.plots.points import central, points
from platt_jax.plots.rates import rate_funnel
from platt_jax.plots.reliability import reliability_diagram
from platt_jax.plots.slopes import slope_funnel
from platt_jax.results import tables
from platt_jax.results.fit import Inspectable, inspected
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator
from platt_jax.status import Flag, Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A problem with several flags is drawn as the first of these, which explains the others.
_LOOKS = {
    Flag.CONSTANT_SCORES: (style.BLACK, "P"),
    Flag.ONE_CLASS: (style.ORANGE, "s"),
    Flag.SEPARABLE: (style.PURPLE, "^"),
    Flag.OUTLIER: (style.GREEN, "D"),
    Flag.REVERSED: (style.VERMILLION, "v"),
}
_SUMMARY_SIZE = 11.0, 9.5  # inches
_ODD = Flag.CONSTANT_SCORES | Flag.ONE_CLASS | Flag.SEPARABLE


def parameter_map(fits: Inspectable, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Plot the parameters (A, B) of all problems, coloured by their flags.

    The axes cover the middle 98 % of the problems that are neither CONSTANT_SCORES, ONE_CLASS nor
    SEPARABLE, or of all problems if most are flagged so. A problem with several flags is drawn as
    the first of CONSTANT_SCORES, ONE_CLASS, SEPARABLE, OUTLIER and REVERSED; the legend counts all
    problems of each flag. Problems without parameters are left out; the figure gives their number.

    Args:
        fits: a SegmentCalibrator, a OneVsRestCalibrator or a Fit of a batch (...); or a
            PlattCalibratedClassifier with a single calibrator, as with ensemble=False.
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure.

    Raises:
        ValueError: fits is none of these; or no problem has parameters.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit
        >>> rng = np.random.default_rng(0)
        >>> ax = parameter_map(fit(rng.normal(size=(20, 100)), rng.random((20, 100)) < 0.5))
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('A', 'B')
    """
    fit, kind, _ = inspected(fits)
    A, B, flags, status = (np.ravel(x) for x in (fit.A, fit.B, fit.flags, fit.status))
    finite = np.isfinite(A) & np.isfinite(B)
    if not finite.any():
        reason = "but all are NaN" if len(finite) else "got none"
        raise ValueError(f"fits: expected problems with parameters, {reason}")
    left_out = {code.name: ~finite & (status == code) for code in Status}
    A, B, flags = A[finite].astype(float), B[finite].astype(float), flags[finite]
    plain = flags == 0
    usual = (flags & _ODD) == 0
    if 2 * np.count_nonzero(usual) < len(usual):
        usual[:] = True
    flagged = _flagged(flags)
    texts = ["of no flag", *(text for text, *_ in flagged)]
    ax = style.axes_or_new(ax)
    window: style.Window = central(A[usual]), central(B[usual])
    with axes.framed(ax, A, B, window, texts, left_out) as window:
        ax.locator_params(nbins=6)
        ax.set(xlabel="A", ylabel="B")
        ax.axvline(0, color=style.GREY, linewidth=0.8, linestyle=":")
        plain_text = f"{tables.counted(np.count_nonzero(plain), kind)}, no flag"
        points(ax, A[plain], B[plain], window, plain_text, color=style.shade(ax, style.BLUE))
        for text, drawn, (color, marker) in flagged:
            looks: dict[str, Any] = {"color": style.shade(ax, color), "marker": marker, "s": 14}
            points(ax, A[drawn], B[drawn], window, text, marked=True, **looks)
    return style.titled(ax, title)


def _flagged(flags: Ints) -> list[tuple[str, Bools, tuple[str, str]]]:
    """For each flag that occurs its label, the problems (K,) drawn for it, and their look.

    The label has the number of all problems with the flag. Those with an earlier flag are drawn for
    that.
    """
    undrawn = np.ones(len(flags), bool)
    flagged = []
    for flag, look in _LOOKS.items():
        raised = (flags & flag) != 0
        drawn = undrawn & raised
        if raised.any():
            elsewhere = np.count_nonzero(raised & ~undrawn)
            also = f", {elsewhere:,} of them above" if elsewhere else ""
            flagged.append((f"{np.count_nonzero(raised):,} {flag.name}{also}", drawn, look))
        undrawn &= ~raised
    return flagged


@takes_columns
def summary(
    calibrator: SegmentCalibrator,
    scores: Column,
    labels: Column,
    segments: Column,
    *,
    weights: Column = None,
    label: str = "segment",
    title: str | None = None,
) -> NDArray[Any]:
    """Plot reliability, rates, slopes and parameters of a calibrator in a new figure.

    The rates are computed from these rows, preferably rows that were not fitted.

    Args:
        calibrator: a SegmentCalibrator.
        scores: (N,) scores.
        labels: (N,) bool, {0, 1} or {-1, +1}.
        segments: (N,) ids, as in `fit_segments`.
        weights: (N,) counts of rows >= 0.
        label: what a segment is, in the singular, such as "route".
        title: title of the figure; None for none.

    Returns:
        An array (2, 2) of axes, with `reliability_diagram` of the sigmoid of all rows pooled and of
        the calibrator, `rate_funnel`, `slope_funnel` and `parameter_map`.

    Raises:
        ValueError: an argument is not as above; a score, label or weight is not finite; or no
            segment has a slope.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=900), rng.random(900) < 0.5, np.arange(900) % 20
        >>> summary(fit_segments(*rows), *rows)[0, 0].get_title(loc="left").strip()
        'Reliability'
    """
    require_segment_calibrator(calibrator, "calibrator")
    f = validation.floating(scores, "scores")
    p = calibrator.predict_proba(f, segments)
    shared: dict[str, Any] = {"weights": weights}
    models = {"all rows pooled": calibrator.fallback.predict_proba(f), f"by {label}": p}
    figure, panels = style.pyplot().subplots(2, 2, layout="constrained", figsize=_SUMMARY_SIZE)
    reliability_diagram(labels, models, numbers=False, ax=panels[0, 0], **shared)
    rate_funnel(labels, p, segments, label=label, ax=panels[0, 1], **shared)
    slope_funnel(calibrator, label=label, ax=panels[1, 0])
    parameter_map(calibrator, ax=panels[1, 1])
    titles = ["Reliability"]
    titles += [f"{part} of {tables.plural(label)}" for part in ("Rates", "Slopes", "Parameters")]
    for ax, text in zip(panels.flat, titles, strict=True):
        style.titled(ax, text)
    if title is not None:
        figure.suptitle(title)
    grid: NDArray[Any] = np.asarray(panels)
    return grid
