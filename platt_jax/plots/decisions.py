"""What calibrated probabilities are worth to decisions, by threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from platt_jax.metrics.net_benefit import DecisionCurve
from platt_jax.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PAD = 0.08  # share of the height


def decision_curve(
    curve: DecisionCurve, *, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Plot net benefits before and after calibration by threshold, with treating all.

    The band is of the probabilities after calibration. The axis ends a little below 0: what is
    lower is worse than calling no row positive.

    Args:
        curve: result of `metrics.decision_curve` for one problem.
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure.

    Raises:
        ValueError: curve is not of one problem, or is NaN.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import metrics
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random(300)
        >>> curve = metrics.decision_curve(rng.random(300) < p, p, before=p**2)
        >>> decision_curve(curve).get_ylabel()
        'net benefit per row'
    """
    is_single = isinstance(curve, DecisionCurve) and np.ndim(curve.value) == 1
    if not is_single or not np.isfinite(curve.value).all():
        raise ValueError("curve: expected a decision curve of one problem without NaN")
    ax = style.axes_or_new(ax)
    thresholds, blue = curve.threshold, style.shade(ax, style.BLUE)
    ax.fill_between(thresholds, curve.lower, curve.upper, color=blue, alpha=0.2, linewidth=0)
    lines: tuple[tuple[Any, str, str, str], ...] = (
        (curve.value, "after calibration", blue, "-"),
        (curve.before, "before", style.VERMILLION, "--"),
        (curve.treat_all, "all called positive", style.shade(ax, style.BLACK), ":"),
        (curve.treat_none, "none called positive", style.GREY, "-"),
    )
    for y, label, color, line in lines:
        ax.plot(thresholds, y, line, color=color, label=label, linewidth=1.5)
    top = float(max(curve.upper.max(), curve.treat_all.max(), 0))
    low = min(float(curve.lower.min()), 0.0)
    ax.set_ylim(max(low, -0.3 * top) - _PAD * top, (1 + _PAD) * top)
    ax.set(xlabel="threshold", ylabel="net benefit per row")
    style.legend(ax)
    return style.titled(ax, title)
