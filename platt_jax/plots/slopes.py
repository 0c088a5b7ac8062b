"""Slopes of problems, compared with chance."""

from __future__ import annotations

from math import erfc, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from platt_jax.arrays import Bools, Floats
from platt_jax.plots import axes, funnels, style
from platt_jax.plots.funnels import ControlLimits, Funnel
from platt_jax.plots.points import central, points
from platt_jax.results import tables
from platt_jax.results.fit import Fit, Inspectable, inspected
from platt_jax.results.probabilities import critical_value
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.status import Flag, Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FAR = 12.0  # largest distance that the axis is made for
_NO_SLOPE = Flag.ONE_CLASS, Flag.CONSTANT_SCORES, Flag.SEPARABLE


def slope_funnel(
    fits: Inspectable,
    *,
    label: str | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot slopes against their precision, 1 / standard error, compared with the common slope.

    A slope is drawn as its distance from the slope expected of its problem, in its own standard
    errors: `docs/gallery.md` has how it is computed. The legend has the number of problems beyond
    the 95 % and 99.8 % limits, and the number that chance alone puts there. Problems that are
    reliably off, with a q-value of at most 0.05 (false discovery rate, Benjamini & Hochberg 1995),
    are marked, and up to eight are named.

    Slopes of pooled fits are drawn themselves, against their numbers of rows, with the mean of the
    population and the range of 95 % of it: they do not have the errors of independent fits.

    Problems without a meaningful slope are left out: their fit did not converge, or is flagged
    ONE_CLASS, CONSTANT_SCORES or SEPARABLE. The figure gives their number.

    Args:
        fits: a SegmentCalibrator, a OneVsRestCalibrator or a Fit of a batch (...); or a
            PlattCalibratedClassifier with a single calibrator, as with ensemble=False.
        label: what a problem is, in the singular, such as "route"; None for "segment", "class" or
            "problem".
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure.

    Raises:
        ValueError: fits is none of these; or no problem has a slope.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=(20, 100))
        >>> slope_funnel(fit(scores, rng.random((20, 100)) < 0.5)).get_ylabel()
        '(slope - expected) / error'
    """
    fit, kind, keys = inspected(fits)
    kind = kind if label is None else label
    left_out = _without_slope(fit)
    if getattr(fits, "population", None) is not None:  # by `with_segments`
        left_out["without rows"] = np.ravel(fit.n_pos + fit.n_neg) == 0
    usable = ~np.any(list(left_out.values()), axis=0)
    if not usable.any():
        reason = "but all are flagged or failed" if len(usable) else "got none"
        raise ValueError(f"fits: expected problems with a slope, {reason}")
    ax = style.axes_or_new(ax)
    ax.set_xscale("log")
    if isinstance(fits, SegmentCalibrator) and fits.pooling != "none":
        _draw_pooled(ax, fits, usable, left_out, kind)
        return style.titled(ax, title)
    precision = 1 / np.ravel(fit.standard_errors[..., 0])[usable].astype(float)
    z = _distances(fits, fit, usable)
    p_value = np.array([erfc(x / sqrt(2)) for x in np.abs(z).tolist()])
    off, marks = funnels.reliably_off(p_value)
    about = f"1 / standard error of the slope of the {kind}"
    drawn = Funnel(precision, about, z, off, marks, p_value, keys[usable], kind)
    window = funnels.across(precision), _ends(z, off)
    funnels.draw(ax, drawn, _limits(precision), window, left_out)
    ax.set_ylabel("(slope - expected) / error")
    return style.titled(ax, title)


def _without_slope(fit: Fit) -> dict[str, Bools]:
    """Which problems (K,) have no meaningful slope, by reason."""
    status, flags = np.ravel(fit.status), np.ravel(fit.flags)
    failed = {code.name: status == code for code in Status if code != Status.CONVERGED}
    flagged = {str(flag.name): (flags & flag) != 0 for flag in _NO_SLOPE}
    error = np.ravel(fit.standard_errors[..., 0])
    return failed | flagged | {"without a standard error": ~(error > 0)}


def _distances(fits: Inspectable, fit: Fit, usable: Bools) -> Floats:
    """Distances of the usable problems' slopes from the expected ones, in standard errors."""
    slope = -np.ravel(fit.A)[usable].astype(float)
    error = np.ravel(fit.standard_errors[..., 0])[usable].astype(float)
    slope_share = _left_by_targets(fit)[usable]
    pooled = getattr(fits, "fallback", None)
    if pooled is None:
        common = np.sum(slope * slope_share / error**2) / np.sum((slope_share / error) ** 2)
    else:
        common = float(pooled.slope)
    return (slope - common * slope_share) / error


def _left_by_targets(fit: Fit) -> Floats:
    """(K,) the share of the slope that Platt's targets leave.

    With targets t1 and t0 of the classes q = p t1 + (1 - p) t0 is fitted. Its log-odds have
    (t1 - t0) p (1 - p) / (q (1 - q)) times the slope of the log-odds of p. Here p is the share of
    class 1. Where the curve covers a range of probabilities, the mean of q (1 - q) is smaller; for
    normal scores the loss of slope is larger by about the square of that.
    """
    positive, negative = (np.ravel(x).astype(float) for x in (fit.n_pos, fit.n_neg))
    rows = positive + negative
    with np.errstate(divide="ignore", invalid="ignore"):
        p, t1, t0 = positive / rows, (positive + 1) / (positive + 2), 1 / (negative + 2)
        q = p * t1 + (1 - p) * t0
        flat = (t1 - t0) * p * (1 - p) / (q * (1 - q))
        steepness = q * (1 - q) * rows / np.ravel(fit.hessian[..., 1, 1]).astype(float)
        slope_share: Floats = flat ** np.maximum(steepness, 1) ** 2
    return slope_share


def _ends(z: Floats, marked: Bools) -> tuple[float, float]:
    """An axis with the limits, most distances, and the marked ones that are not too far."""
    shown = np.concatenate([[-4, 4], central(z, pad=0.05), np.clip(1.05 * z[marked], -_FAR, _FAR)])
    return float(shown.min()), float(shown.max())


def _limits(precision: Floats) -> ControlLimits:
    reach = [np.full(2, critical_value(level, False)) for level in funnels.LEVELS]
    ends = tuple((-z, z) for z in reach)
    return ControlLimits(np.array(funnels.across(precision)), ends, 0.0, "expected")


def _draw_pooled(
    ax: Axes, calibrator: SegmentCalibrator, usable: Bools, left_out: dict[str, Bools], kind: str
) -> None:
    """Slopes of partially pooled fits, with the mean and the range of the population."""
    rows = (np.asarray(calibrator.fit.n_pos, float) + calibrator.fit.n_neg)[usable]
    slope = -np.asarray(calibrator.fit.A, float)[usable]
    population = calibrator.population
    if population is None:
        mean, label, reach = float(calibrator.fallback.slope), "all rows pooled", 0.0
    else:
        mean, label = -float(population.mean[0]), "mean of the population"
        variance = population.covariance[0, 0]
        if population.covariates is not None:
            variance = variance + population.covariates.spread[0, 0]
        reach = critical_value(0.95, False) * float(np.sqrt(variance))
    total, band = tables.counted(len(rows), kind), "95 % of the population"
    window = funnels.across(rows), central(np.append(slope, [mean - reach, mean + reach]), 1.0)
    ax.set(xlabel=f"rows of the {kind}", ylabel="slope, $-A$")
    with axes.framed(ax, rows, slope, window, [label, total, band], left_out) as window:
        looks: dict[str, Any] = {"color": style.ORANGE, "linewidth": 0, "alpha": 0.2, "zorder": 0}
        if reach:
            ax.axhspan(mean - reach, mean + reach, label=band, **looks)
        ax.axhline(mean, color=style.ORANGE, linewidth=1.5, label=label)
        points(ax, rows, slope, window, total, color=style.shade(ax, style.BLUE))
