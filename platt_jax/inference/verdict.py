"""What a table of `triage` says, in a sentence."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

_LONGEST_NAME = 40
# What is said of none, of one and of several segments.
_WORDS = {
    "fit": ("has reliably changed", "has changed", "have changed"),
    "predictions": ("is reliably off", "is off", "are off"),
}


def verdict(
    table: Mapping[str, NDArray[Any]],
    fdr: float,
    *,
    nouns: tuple[str, str] = ("segment", "segments"),
    against: Literal["fit", "predictions"] = "predictions",
    most: int = 3,
) -> str:
    """How many segments are flagged, and of the first ones what is off: their level or slope.

    Args:
        table: result of `triage`.
        fdr: its false discovery rate.
        nouns: what one segment is called, and several.
        against: what they were tested against. Flagged ones have changed if it is the fit, else
            they are off.
        most: maximum number of segments to name.
    """
    kind, kinds = nouns
    tested = int(np.count_nonzero(np.isfinite(table["p_value"])))
    flagged = np.flatnonzero(table["flagged"])
    if not tested:
        return f"No {kind} could be tested."
    none, one, several = _WORDS[against]
    if not len(flagged):
        smallest = table["q_value"][:tested].min()
        return f"No {kind} {none}: of {tested:,} tested, the smallest q-value is {smallest:.2g}."
    number = len(flagged)
    of = f"{number:,} of {tested:,} {kinds} {one if number == 1 else several}"
    named = "; ".join(_described(table, i) for i in flagged[:most].tolist())
    rest = f"; and {number - most:,} more" if number > most else ""
    return f"{of} (q at most {fdr:g}): {named}{rest}."


def _described(table: Mapping[str, NDArray[Any]], i: int) -> str:
    """A segment's name, and what is off: its level or slope, whichever is farther, or both.

    Both are said where both are off by two standard errors, and Spiegelhalter's statistic where
    neither is. The error of the level is at least that of a count of the predicted labels: as if
    all had one probability.
    """
    columns = list(table)
    name = ", ".join(str(table[column][i]) for column in columns[: columns.index("rows")])
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 11]}...{name[-8:]}"
    numbers = ("rows", "positives", "expected", "slope", "se_slope", "spiegelhalter_z", "q_value")
    rows, positives, expected, slope, error, z, q = (float(table[x][i]) for x in numbers)
    spread = np.sqrt(expected * max(1 - expected / rows, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(np.divide((positives - expected, slope - 1), (spread, error)))
    level_off, slope_off = np.nan_to_num(off, nan=0, posinf=np.inf)
    noun = "positive" if positives == 1 else "positives"
    counts = f"{positives:,.0f} {noun}, {_short(expected)} predicted"
    curve = f"{slope:.2f} (standard error {error:.2f}), 1 predicted"
    if min(level_off, slope_off) >= 2:
        what = f"by level and slope: {counts}; slope {curve}"
    elif max(level_off, slope_off, 2) < abs(z):
        extreme = "too extreme" if z > 0 else "not extreme enough"
        what = f"by neither level nor slope: predictions {extreme} (Spiegelhalter's z {z:.1f})"
    elif slope_off > level_off:
        what = f"by its slope: {curve}"
    else:
        what = f"by its level: {counts}"
    return f"{name} {what} (q {q:.2g})"


def _short(value: float) -> str:
    """Three digits, or more before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
