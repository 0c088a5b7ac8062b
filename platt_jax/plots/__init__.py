"""Figures of calibration, drawn with matplotlib (`pip install 'platt-jax[plots]'`).

Every function draws on the axes `ax`, on new ones of a new figure if there are none, and returns
them. None changes matplotlib's settings. The colours are those of Okabe & Ito (2008), which readers
of any colour vision can tell apart, and what has another colour has another shape as well. Of more
than 20,000 problems counts are drawn, by hexagons, in place of points.

What the figures show is computed in `platt_jax.metrics` and by the fits themselves.
"""

from platt_jax.plots.funnels import rate_funnel, slope_funnel
from platt_jax.plots.overview import convergence, parameter_map
from platt_jax.plots.pooling_losses import pooling_losses
from platt_jax.plots.reliability import ReliabilityDisplay, reliability_diagram
from platt_jax.plots.segments import segment_sigmoids
from platt_jax.plots.shrinkage import shrinkage
from platt_jax.plots.sigmoids import sigmoid

__all__ = [
    "ReliabilityDisplay",
    "convergence",
    "parameter_map",
    "pooling_losses",
    "rate_funnel",
    "reliability_diagram",
    "segment_sigmoids",
    "shrinkage",
    "sigmoid",
    "slope_funnel",
]
