"""Funnel plots: differences between problems compared with chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column
from platt_jax.ids.factorize import factorize
from platt_jax.plots import style
from platt_jax.plots.rows import predicted
from platt_jax.results.fit import Inspectable
from platt_jax.results.probabilities import critical_value
from platt_jax.status import Flag, Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Control limits of about two and three standard errors, usual in funnel plots (Spiegelhalter 2005).
_LEVELS = (0.95, 0.998)
_NO_SLOPE = Flag.ONE_CLASS, Flag.CONSTANT_SCORES, Flag.SEPARABLE


def slope_funnel(fits: Inspectable, *, ax: Axes | None = None) -> Axes:
    """Plot slopes against numbers of rows, within control limits around the common slope.

    The common slope is that of the pooled rows, or without them the mean weighted by precision. The
    95 % and 99.8 % limits use the typical standard error at a number of rows; a problem is marked
    by its own. Problems without a meaningful slope are left out: those that did not converge, and
    those flagged ONE_CLASS, CONSTANT_SCORES or SEPARABLE. The figure gives their number.

    Args:
        fits: a SegmentCalibrator, a OneVsRestCalibrator or a Fit of a batch (...). With
            pooling="partial" slopes are drawn together, and fewer are marked.
        ax: matplotlib axes; None to make a new figure.

    Raises:
        ValueError: no problem has a slope.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=(20, 100))
        >>> slope_funnel(fit(scores, rng.random((20, 100)) < 0.5)).get_ylabel()
        'slope, $-A$'
    """
    fit, kind, _ = fits._inspected()
    error = np.ravel(fit.standard_errors[..., 0]).astype(float)
    left_out = _without_slope(np.ravel(fit.status), np.ravel(fit.flags), error)
    usable = ~np.any(list(left_out.values()), axis=0)
    if not usable.any():
        what = "but all are flagged or failed" if len(usable) else "got none"
        raise ValueError(f"fits: expected problems with a slope, {what}")
    slope = -np.ravel(fit.A)[usable].astype(float)
    rows = np.ravel(np.asarray(fit.n_pos, float) + fit.n_neg)[usable]
    error = error[usable]
    pooled = getattr(fits, "fallback", None)
    if pooled is None:
        center, of_all = np.average(slope, weights=error**-2), "weighted mean"
    else:
        center, of_all = float(pooled.slope), "all rows pooled"
    typical = np.median(error * np.sqrt(rows))
    z = (slope - center) / error
    unseen = style.counted_once(left_out)
    ax = _funnel(ax, rows, slope, center, z, typical, kind, of_all, unseen)
    ax.set_ylabel("slope, $-A$")
    return ax


def _without_slope(status: NDArray[Any], flags: NDArray[Any], error: Floats) -> dict[str, Bools]:
    """Which problems (K,) have no meaningful slope, by reason."""
    failed = {each.name: status == each for each in Status if each != Status.CONVERGED}
    flagged = {str(flag.name): (flags & flag) != 0 for flag in _NO_SLOPE}
    return failed | flagged | {"without a standard error": ~(error > 0)}


def rate_funnel(
    labels: Column,
    proba: Column,
    segments: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Plot observed over expected positives of segments against their rows, with control limits.

    Where the probabilities are right the ratio is 1 except for chance, whose variance is the sum of
    p (1 - p). The 95 % and 99.8 % limits use the mean probability and the mean variance of all
    rows; a segment is marked by its own. The limits are those of a normal distribution, which is
    rough where fewer than about ten positives are expected.

    Args:
        labels: (N,) bool, {0, 1} or {-1, +1}.
        proba: (N,) probabilities of class 1, or logits.
        segments: (N,) ids, as in `fit_segments`.
        weights: (N,) counts of rows >= 0.
        from_logits: whether proba holds logits.
        ax: matplotlib axes; None to make a new figure.

    Raises:
        ValueError: an argument is not as above; or a prediction, label or weight is not finite.
        ImportError: matplotlib is missing.

    Example:
        >>> ax = rate_funnel([0, 1, 0, 1], [0.1, 0.3, 0.6, 0.8], ["a", "a", "b", "b"])
        >>> ax.get_ylabel()
        'observed / expected'
    """
    p, y, w = predicted(labels, proba, weights, from_logits)
    numbered = factorize(ids.read_rows(segments, np.shape(proba)[0]))
    codes = numbered.of(slice(0, None))
    if weights is not None:
        codes = codes[np.broadcast_to(weights, codes.shape) != 0]
    rows, observed, expected, variance = (
        np.bincount(codes, w * x, numbered.numbers) for x in (np.ones_like(p), y, p, p * (1 - p))
    )
    used = expected > 0
    unseen = {"with 0 expected": int(np.count_nonzero(~used & (rows > 0)))}
    rows, observed, expected, variance = (x[used] for x in (rows, observed, expected, variance))
    if not len(rows):
        raise ValueError("proba: expected some above 0, got none")
    typical = np.sqrt(variance.sum() * rows.sum()) / expected.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (observed - expected) / np.sqrt(variance)
    ax = _funnel(ax, rows, observed / expected, 1.0, z, typical, "segment", "as expected", unseen)
    ax.set_ylabel("observed / expected")
    ax.set_ylim(max(ax.get_ylim()[0], -0.1), None)
    return ax


def _funnel(
    ax: Axes | None,
    rows: NDArray[Any],
    values: NDArray[Any],
    center: float,
    z: NDArray[Any],
    typical: float,
    kind: str,
    center_label: str,
    unseen: Mapping[str, int],
) -> Axes:
    """Values of K problems against their rows, marked by their distance from the centre.

    Args:
        ax: axes or None.
        rows: (K,) numbers of rows, positive.
        values: (K,) values.
        center: value expected without differences between problems.
        z: (K,) distance of each value from the centre, in its own standard errors.
        typical: standard error of a problem of one row.
        kind: name of a problem, such as "segment".
        center_label: label of the centre line.
        unseen: number of problems not drawn, by reason.
    """
    ax = style.axes_or_new(ax)
    ax.set_xscale("log")
    window = (rows.min() / 1.2, rows.max() * 1.2), style.central(values, pad=0.3)
    ax.set(xlim=window[0], ylim=window[1], xlabel=f"rows of the {kind}")
    grid = np.geomspace(*window[0], 200)
    for level, line in zip(_LEVELS, ("-", "--"), strict=True):
        reach = critical_value(level, False) * typical / np.sqrt(grid)
        looks: dict[str, Any] = {"color": style.ORANGE, "linestyle": line, "linewidth": 1}
        ax.plot(grid, center - reach, **looks)
        ax.plot(grid, center + reach, label=f"typical {style.percent(level)} limits", **looks)
    ax.axhline(center, color=style.ORANGE, linewidth=1.5, label=center_label)
    far = np.abs(z) > critical_value(_LEVELS[1], False)
    some = f"{np.count_nonzero(~far):,} {style.plural(kind)}"
    style.points(ax, rows[~far], values[~far], window, some, color=style.BLUE, alpha=0.4)
    if far.any():
        beyond = f"{np.count_nonzero(far):,} beyond {style.percent(_LEVELS[1])} by their own errors"
        looks = {"color": style.VERMILLION, "marker": "D", "s": 14, "alpha": 1}
        style.points(ax, rows[far], values[far], window, beyond, marked=True, **looks)
    low, high = window[1]
    style.note_undrawn(ax, (values < low) | (values > high), unseen)
    style.legend_beside(ax, rows, values, window)
    return ax
