"""Four figures of a calibrator and its rows in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.plots import style
from platt_jax.plots.overview import parameter_map
from platt_jax.plots.rates import rate_funnel
from platt_jax.plots.reliability import reliability_diagram
from platt_jax.plots.slopes import slope_funnel
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator

if TYPE_CHECKING:
    pass

_SIZE = 11.0, 9.5  # inches


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

    The rates are those of these rows, preferably rows that were not fitted.

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
    figure, axes = style.pyplot().subplots(2, 2, layout="constrained", figsize=_SIZE)
    reliability_diagram(labels, models, numbers=False, ax=axes[0, 0], **shared)
    rate_funnel(labels, p, segments, label=label, ax=axes[0, 1], **shared)
    slope_funnel(calibrator, label=label, ax=axes[1, 0])
    parameter_map(calibrator, ax=axes[1, 1])
    titles = ["Reliability"]
    titles += [f"{what} of {style.plural(label)}" for what in ("Rates", "Slopes", "Parameters")]
    for ax, text in zip(axes.flat, titles, strict=True):
        style.titled(ax, text)
    if title is not None:
        figure.suptitle(title)
    made: NDArray[Any] = np.asarray(axes)
    return made
