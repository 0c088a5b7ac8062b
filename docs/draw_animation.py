"""Draws the README's animation, docs/images/flights.webp: ``python docs/draw_animation.py``."""

from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from PIL import ExifTags, Image

from platt_jax import Sigmoid, fit_segments, metrics
from platt_jax.data import load_flights
from platt_jax.plots import style

ANIMATION = Path(__file__).parent / "images" / "flights.webp"

POOLINGS = "none", "partial", "complete"
FEW = 10  # flights
STEPS = 26  # pictures between the first and the last
PAUSE, STEP = 2500, 60  # milliseconds
SIZE, DPI = (7.2, 4.2), 100  # inches, and pixels for each


class Curves(NamedTuple):
    """The curves of K aircraft at G scores, and the log loss of the three fits."""

    scores: np.ndarray  # (G,)
    alone: np.ndarray  # (K, G) log-odds
    pooled: np.ndarray  # (K, G) log-odds
    everyone: np.ndarray  # (G,) probabilities of one curve for all flights
    few: np.ndarray  # (K,) whether an aircraft has FEW flights at most
    losses: dict[str, float]  # on the days that were not fitted, by the kind of pooling


def curves() -> Curves:
    """Fit the flights of even days and judge on the flights of odd days."""
    flights = load_flights()
    rows = flights.score, flights.outcome, flights.aircraft
    even = flights.day % 2 == 0
    fitted, (score, outcome, aircraft) = [[c[days] for c in rows] for days in (even, ~even)]
    fits = {pooling: fit_segments(*fitted, pooling=pooling) for pooling in POOLINGS}
    losses = {
        pooling: float(metrics.log_loss(outcome, fit.predict_proba(score, aircraft)))
        for pooling, fit in fits.items()
    }
    grid = np.linspace(*np.quantile(flights.score, [0.001, 0.999]), 120)
    alone, pooled, (everyone, *_) = (log_odds(fit.fit.sigmoid, grid) for fit in fits.values())
    _, sizes = np.unique(fitted[2], return_counts=True)
    return Curves(grid, alone, pooled, expit(everyone), sizes <= FEW, losses)


def log_odds(curves: Sigmoid, scores: np.ndarray) -> np.ndarray:
    """(K, G) log-odds of each curve, clipped: all beyond looks like 0 or 1."""
    # Unclipped, a curve of 100 times the common slope would stay a step for most of the way.
    return np.clip(curves.logit(scores[None]), -6, 6)


def expit(log_odds: np.ndarray) -> np.ndarray:
    """Probabilities of log-odds."""
    return 1 / (1 + np.exp(-log_odds))


def title(of: Curves, part: float) -> str:
    """What is shown at this part of the way."""
    number = f"{len(of.few):,} aircraft"
    if part == 0:
        return f"{number}, each alone: log loss {of.losses['none']:.4f} on other days"
    if part == 1:
        return f"{number}, partially pooled: log loss {of.losses['partial']:.4f} on other days"
    return "Aircraft with few flights learn from all others ..."


def draw(of: Curves, part: float) -> Image.Image:
    """The curves at a part of the way from alone, 0, to pooled, 1."""
    figure, ax = plt.subplots(figsize=SIZE, dpi=DPI, layout="constrained")
    handles = []
    lines = expit((1 - part) * of.alone + part * of.pooled)
    for chosen, color, alpha in ((~of.few, style.BLUE, 0.07), (of.few, style.VERMILLION, 0.06)):
        points = [np.column_stack([of.scores, line]) for line in lines[chosen]]
        ax.add_collection(LineCollection(points, colors=color, alpha=alpha, linewidths=0.6))
        handles.append(Line2D([], [], color=color))
    handles += ax.plot(of.scores, of.everyone, color=style.BLACK, linestyle="--", linewidth=1.5)
    labels = (
        f"{np.sum(~of.few):,} aircraft with more than {FEW} flights",
        f"{np.sum(of.few):,} with {FEW} or fewer",
        f"one curve for all flights: log loss {of.losses['complete']:.4f}",
    )
    style.legend(ax, handles=handles, labels=labels, loc="upper left", fontsize=11)
    ax.set(xlim=of.scores[[0, -1]], ylim=(0, 1))
    ax.set_xlabel("score", fontsize=12)
    ax.set_ylabel("P(late)", fontsize=12)
    ax.set_title(title(of, part), loc="left", fontsize=14)
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    plt.close(figure)
    return picture


def parts() -> np.ndarray:
    """The parts of the way that are drawn, slow near both ends."""
    return (1 - np.cos(np.linspace(0, np.pi, STEPS + 2))) / 2


def save(pictures: list[Image.Image]) -> None:
    """Write the animation, with the version of matplotlib as EXIF's Software."""
    exif = Image.Exif()
    exif[ExifTags.Base.Software] = f"Matplotlib version {matplotlib.__version__}"
    first, *others = pictures
    first.save(
        ANIMATION,
        save_all=True,
        append_images=others,
        duration=[PAUSE, *[STEP] * STEPS, PAUSE],
        loop=0,
        quality=70,
        method=6,
        exif=exif,
    )


if __name__ == "__main__":
    drawn = curves()
    save([draw(drawn, part) for part in parts()])
