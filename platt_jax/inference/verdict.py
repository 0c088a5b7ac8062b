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
    """How many segments are flagged, and the first ones with their counts of positives.

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
    named = "; ".join(_counts(table, i) for i in flagged[:most].tolist())
    rest = f"; and {number - most:,} more" if number > most else ""
    return f"{of} (q at most {fdr:g}): {named}{rest}."


def _counts(table: Mapping[str, NDArray[Any]], i: int) -> str:
    columns = list(table)
    name = ", ".join(str(table[column][i]) for column in columns[: columns.index("rows")])
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 11]}...{name[-8:]}"
    positives, expected = table["positives"][i], table["expected"][i]
    q = table["q_value"][i]
    return f"{name}: {positives:,.0f} positives, {_short(expected)} predicted (q {q:.2g})"


def _short(value: float) -> str:
    """Three digits, or more before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
