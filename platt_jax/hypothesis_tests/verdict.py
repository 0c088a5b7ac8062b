"""What a table of `triage` says, in a sentence."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from platt_jax.results.tables import counted

# What may be off in a segment.
LEVEL, SLOPE, BOTH, NEITHER = range(4)
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

    The nouns are what one segment is called, and several. Flagged ones have changed if they were
    tested against the fit, else they are off.
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
    text = f"{number:,} of {tested:,} {kind if tested == 1 else kinds}"
    text = f"{text} {one if number == 1 else several}"
    kinds_of = kinds_off(table)
    named = "; ".join(_described(table, i, int(kinds_of[i])) for i in flagged[:most].tolist())
    ending = f"; and {number - most:,} more" if number > most else ""
    return f"{text} (q at most {fdr:g}): {named}{ending}."


def together(table: Mapping[str, NDArray[Any]], which: str = "rows") -> str:
    """What a table of `triage`, or of a `Monitor`, says of all rows together."""
    positives, expected = (np.nansum(np.asarray(table[x])) for x in ("positives", "expected"))
    return f"all {which} together: {counted(positives, 'positive')}, {_short(expected)} expected"


def kinds_off(table: Mapping[str, NDArray[Any]]) -> NDArray[np.intp]:
    """What is off in each segment of a table of `triage`, if it is: one of the four kinds.

    It is the level or the slope, whichever is farther from right in its standard errors, or both
    where both are by two of them. It is neither where both are within two, and Spiegelhalter's
    statistic is not. The error of a level is at least the error of a count of the predicted labels:
    as if all had one probability.
    """
    rows, positives, expected, slope, error, z = (
        np.asarray(table[name], float)
        for name in ("rows", "positives", "expected", "slope", "se_slope", "spiegelhalter_z")
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(expected * np.maximum(1 - expected / rows, 0))
        deviations = np.array([(positives - expected) / spread, (slope - 1) / error, z])
    level, curve, spiegelhalter = np.nan_to_num(np.abs(deviations), nan=0, posinf=np.inf)
    within = np.maximum(level, curve) < 2
    kinds = np.where(curve > level, SLOPE, LEVEL)
    kinds = np.where(within & (spiegelhalter >= 2), NEITHER, kinds)
    return np.where(np.minimum(level, curve) >= 2, BOTH, kinds)


def _described(table: Mapping[str, NDArray[Any]], i: int, kind: int) -> str:
    """A segment's name, and what is off."""
    columns = list(table)
    name = ", ".join(str(table[column][i]) for column in columns[: columns.index("rows")])
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 11]}...{name[-8:]}"
    numbers = ("positives", "expected", "slope", "se_slope", "spiegelhalter_z", "q_value")
    positives, expected, slope, error, z, q = (float(table[x][i]) for x in numbers)
    counts = f"{counted(positives, 'positive')}, {_short(expected)} predicted"
    curve = f"{slope:.2f} (standard error {error:.2f}), 1 predicted"
    extreme = "too extreme" if z > 0 else "not extreme enough"
    reasons = {
        LEVEL: f"by its level: {counts}",
        SLOPE: f"by its slope: {curve}",
        BOTH: f"by level and slope: {counts}; slope {curve}",
        NEITHER: f"by neither level nor slope: predictions {extreme} (Spiegelhalter's z {z:.1f})",
    }
    return f"{name} {reasons[kind]} (q {q:.2g})"


def _short(value: float) -> str:
    """Three digits, or more before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
