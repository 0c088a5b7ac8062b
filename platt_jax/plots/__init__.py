"""Figures of calibration, drawn with matplotlib (`pip install 'platt-jax[plots]'`).

Every function draws on the axes `ax`, or on axes of a new figure if `ax` is None, and returns the
axes. None of them changes matplotlib's settings. Colours come from Okabe & Ito (2008), which
readers with any colour vision can distinguish; elements of different colour also differ in shape.
Beyond 20,000 problems, hexagons of counts replace points. `explore` is no figure but a page in a
notebook.

The plotted quantities are computed in `platt_jax.metrics` and by the fits themselves.
"""

from platt_jax.plots.centres import centre_curves, forest
from platt_jax.plots.classes import class_reliability
from platt_jax.plots.decisions import decision_curve
from platt_jax.plots.description import alt_text
from platt_jax.plots.explore import explore
from platt_jax.plots.nights import nights
from platt_jax.plots.overview import parameter_map, summary
from platt_jax.plots.pooling import levels, pooling_losses, shrinkage
from platt_jax.plots.rates import rate_funnel
from platt_jax.plots.reliability import ReliabilityDisplay, reliability_diagram
from platt_jax.plots.risk_coverage import risk_coverage
from platt_jax.plots.sigmoids import segment_sigmoids, sigmoid
from platt_jax.plots.slopes import slope_funnel

__all__ = [
    "ReliabilityDisplay",
    "alt_text",
    "centre_curves",
    "class_reliability",
    "decision_curve",
    "explore",
    "forest",
    "levels",
    "nights",
    "parameter_map",
    "pooling_losses",
    "rate_funnel",
    "reliability_diagram",
    "risk_coverage",
    "segment_sigmoids",
    "shrinkage",
    "sigmoid",
    "slope_funnel",
    "summary",
]
