"""Small drawings of fitted curves with their bands, for tables in a notebook."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.results.probabilities import band, critical_value, expit, variance_of_logit

_WIDTH, _HEIGHT = 72, 24  # pixels
_POINTS = 25
_LOGIT = 4.0  # a typical curve is drawn where its log-odds are in this distance of 0


class CurveDrawings(NamedTuple):
    """Drawings of some fits over the same scores."""

    low: float  # the first score
    high: float  # the last score
    drawings: list[str]  # SVG

    @property
    def axes(self) -> str:
        """What the axes of the drawings are."""
        return f"curve: P(y=1) from 0 to 1 for scores from {self.low:.3g} to {self.high:.3g}"


def drawn(
    A: Floats, B: Floats, covariance: Floats, shown: NDArray[np.intp]
) -> CurveDrawings | None:
    """Curves of the fits with the numbers `shown`, among A (K,), B (K,) and covariances (K, 2, 2).

    None where no fit has a slope.
    """
    sloping = np.isfinite(A) & np.isfinite(B) & (A != 0)
    if not sloping.any():
        return None
    slope, level = (np.median(x[sloping].astype(float)) for x in (A, B))
    if slope == 0:  # the mean of two
        return None
    low, high = sorted(((-level - _LOGIT) / slope, (-level + _LOGIT) / slope))
    if not np.isfinite(high - low):
        return None
    scores = np.linspace(low, high, _POINTS)
    A, B, covariance = (x[shown].astype(float) for x in (A, B, covariance))
    entries = (covariance[:, i, j, None] for i, j in ((0, 0), (0, 1), (1, 1)))
    variance = variance_of_logit(scores, *entries)
    logit = -(A[:, None] * scores + B[:, None])
    middle, (lower, upper) = expit(logit), band(logit, variance, critical_value(0.95, False))
    return CurveDrawings(low, high, [_svg(*x) for x in zip(middle, lower, upper, strict=True)])


def _svg(middle: Floats, lower: Floats, upper: Floats) -> str:
    """A curve and, where it is known, its band; nothing for a failed fit."""
    if not np.isfinite(middle).all():
        return ""
    x = np.linspace(1, _WIDTH - 1, _POINTS)
    around = ""
    if np.isfinite(lower).all() and np.isfinite(upper).all():
        there, back = _path(x, lower), _path(x[::-1], upper[::-1])
        around = f'<polygon points="{there} {back}" fill="currentColor" opacity="0.2"/>'
    curve = f'<polyline points="{_path(x, middle)}" fill="none" stroke="currentColor"/>'
    what = f"from {middle[0]:.2g} to {middle[-1]:.2g}"
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{what}">'
        f"<title>{what}</title>{around}{curve}</svg>"
    )


def _path(x: Floats, probability: Floats) -> str:
    y = 1 + (1 - probability) * (_HEIGHT - 2)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
