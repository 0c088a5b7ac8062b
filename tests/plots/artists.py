"""Reads figures: what they draw, by the names in their legends."""

from dataclasses import replace

import numpy as np

from platt_jax import Status


def sizes(calibrator):
    return calibrator.fit.n_pos + calibrator.fit.n_neg


def labelled(ax):
    """The artists that the legend names, by label."""
    return dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))


def starting(ax, text):
    (found,) = [artist for label, artist in labelled(ax).items() if text in label]
    return found


def drawn(dots):
    """The points of a scatter, as a sorted list."""
    return sorted(map(tuple, np.asarray(dots.get_offsets()).tolist()))


def pairs(*columns):
    return sorted(zip(*(np.asarray(x, float).tolist() for x in columns), strict=True))


def failing(calibrator, places, status=Status.NON_FINITE):
    """The calibrator with fits that failed at these places."""
    fit = calibrator.fit
    A, B, codes = fit.A.copy(), fit.B.copy(), fit.status.copy()
    A[places], B[places], codes[places] = np.nan, np.nan, status
    return replace(calibrator, fit=replace(fit, A=A, B=B, status=codes))


def notes(ax):
    """What the figure says of problems that it does not show."""
    return ax.get_title(loc="right").replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")
