"""Draws the picture of the site's first page: ``python docs/draw_picture.py``."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from platt_jax import fit, fit_segments, plots
from platt_jax.data import load_flights

PICTURE = Path(__file__).parent / "images" / "flights.png"


def draw() -> plt.Figure:
    """All flights, the slopes of all aircraft, and what partial pooling makes of them."""
    flights = load_flights()
    rows = flights.score, flights.outcome
    alone = fit_segments(*rows, flights.aircraft)
    pooled = fit_segments(*rows, flights.aircraft, pooling="partial")
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    plots.sigmoid(fit(*rows), *rows, ax=axes[0])
    plots.slope_funnel(alone, ax=axes[1])
    plots.shrinkage(pooled, alone, ax=axes[2])
    titles = "One sigmoid, with its band", "One for each aircraft", "The same, partially pooled"
    # Notes of the figures are titles at the right: all titles go above the longest of them.
    lines = max(len(ax.get_title(loc="right").splitlines()) for ax in axes)
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title + "\n" * lines, loc="left")
    return figure


if __name__ == "__main__":
    draw().savefig(PICTURE, dpi=120)
