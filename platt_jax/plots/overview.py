"""All problems at a glance: their parameters, their flags, and how their fits converged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from platt_jax.plots import style
from platt_jax.results.fit import Inspectable
from platt_jax.status import Flag, Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of a problem with several flags the first of these is shown: it explains the others.
_LOOKS = {
    Flag.CONSTANT_SCORES: (style.BLACK, "P"),
    Flag.ONE_CLASS: (style.ORANGE, "s"),
    Flag.SEPARABLE: (style.PURPLE, "^"),
    Flag.OUTLIER: (style.GREEN, "D"),
    Flag.REVERSED: (style.VERMILLION, "v"),
}
_ODD = Flag.CONSTANT_SCORES | Flag.ONE_CLASS | Flag.SEPARABLE


def parameter_map(fits: Inspectable, *, ax: Axes | None = None) -> Axes:
    """The parameters (A, B) of all problems, coloured by their flags.

    The axes hold the middle 98 % of the problems that are neither CONSTANT_SCORES, ONE_CLASS nor
    SEPARABLE, or of all where most are. A problem with several flags is shown by the first of
    CONSTANT_SCORES, ONE_CLASS, SEPARABLE, OUTLIER and REVERSED that it has. Problems that have no
    parameters are left out.

    Args:
        fits: a SegmentCalibrator, a OneVsRestCalibrator or a Fit of a batch (...).
        ax: matplotlib axes; None for those of a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: no problem has parameters.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit
        >>> rng = np.random.default_rng(0)
        >>> ax = parameter_map(fit(rng.normal(size=(20, 100)), rng.random((20, 100)) < 0.5))
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('A', 'B')
    """
    fit, kind, _ = fits._inspected()
    A, B, flags = (np.ravel(x) for x in (fit.A, fit.B, fit.flags))
    finite = np.isfinite(A) & np.isfinite(B)
    if not finite.any():
        what = "but all are NaN" if len(finite) else "got none"
        raise ValueError(f"fits: expected problems with parameters, {what}")
    A, B, flags = A[finite].astype(float), B[finite].astype(float), flags[finite]
    plain = flags == 0
    usual = (flags & _ODD) == 0
    if 2 * np.count_nonzero(usual) < len(usual):
        usual[:] = True
    window = style.central(A[usual]), style.central(B[usual])
    ax = style.axes_or_new(ax)
    ax.set(xlim=window[0], ylim=window[1], xlabel="A", ylabel="B")
    ax.axvline(0, color=style.GREY, linewidth=0.8, linestyle=":")
    some = f"{np.count_nonzero(plain):,} {style.plural(kind)}, no flag"
    style.points(ax, A[plain], B[plain], window, some, color=style.BLUE, alpha=0.4)
    left = ~plain
    for flag, (color, marker) in _LOOKS.items():
        mine = left & ((flags & flag) != 0)
        left &= ~mine
        if mine.any():
            some = f"{np.count_nonzero(mine):,} {flag.name}"
            looks: dict[str, Any] = {"color": color, "marker": marker, "s": 14}
            style.points(ax, A[mine], B[mine], window, some, marked=True, **looks)
    within = [(x >= low) & (x <= high) for x, (low, high) in zip((A, B), window, strict=True)]
    style.note_beyond(ax, ~(within[0] & within[1]))
    style.legend_beside(ax, A, B, window)
    return ax


def convergence(fits: Inspectable, *, ax: Axes | None = None) -> Axes:
    """How many Newton steps the fits took, by status, and how many passes over the rows.

    Args:
        fits: a SegmentCalibrator, a OneVsRestCalibrator or a Fit of a batch (...).
        ax: matplotlib axes; None for those of a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: there are no problems.
        ImportError: matplotlib is missing.

    Example:
        >>> from platt_jax import fit
        >>> convergence(fit([5.0, -4.0, 1.0, 2.0], [1, 0, 0, 1])).get_ylabel()
        'problems'
    """
    fit, kind, _ = fits._inspected()
    iterations, passes, status = (np.ravel(x) for x in (fit.iterations, fit.passes, fit.status))
    if not len(status):
        raise ValueError("fits: expected problems, got none")
    ax = style.axes_or_new(ax)
    longest = int(max(iterations.max(), passes.max()))
    columns = [
        (f"steps of {np.count_nonzero(status == each):,} {each.name}", iterations[status == each])
        for each in Status
        if (status == each).any()
    ]
    columns.append(("passes over the rows", passes))
    width = 0.8 / len(columns)
    highest = 1
    for i, (label, numbers) in enumerate(columns):
        counts = np.bincount(numbers, minlength=longest + 1)
        highest = max(highest, counts.max())
        looks: dict[str, Any] = {
            "color": style.CYCLE[i],
            "edgecolor": style.BLACK,
            "linewidth": 0.5,
        }
        if numbers is passes:
            looks |= {"color": "none", "hatch": "////"}
        place = np.arange(longest + 1) + (i + 0.5) * width - 0.4
        ax.bar(place, counts, width, label=label, **looks)
    # Room for the legend above the bars, on a logarithmic axis.
    room = 1 / (1 - 0.09 * len(columns))
    ax.set(yscale="log", ylim=(0.5, 0.5 * (2.5 * highest) ** room), xlim=(-0.6, longest + 0.6))
    ax.set(xlabel="Newton steps or passes of a fit", ylabel=style.plural(kind))
    locator: Any = ax.xaxis.get_major_locator()
    locator.set_params(integer=True)
    style.legend(ax, loc="upper left")
    return ax
