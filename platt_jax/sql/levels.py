"""Expressions of the parameters of segments with levels, of fitted ones and of others."""

from collections.abc import Sequence
from typing import NamedTuple


class Joined(NamedTuple):
    """Expressions about one joined table, for one parameter.

    Attributes:
        known: NULL where no row of the table was joined.
        value: the parameter of the row that was joined.
        unseen: the parameter if none was joined; None if that depends on other tables.
    """

    known: str
    value: str
    unseen: str | None = None


def parameter(segment: Joined, root: str, levels: Sequence[Joined]) -> str:
    """A parameter of a row: that of its segment, or of what is known of its values.

    Args:
        segment: the table of the segments.
        root: the parameter of a segment that was not fitted, without any level.
        levels: the tables of the levels, as in `results.levels.Part`.
    """
    others = root
    for level in levels:
        if level.unseen is None:
            others = _either(level, others)
        else:
            others = f"{others} + {_either(level, level.unseen)}"
    return _either(segment, others)


def _either(joined: Joined, otherwise: str) -> str:
    return f"(CASE WHEN {joined.known} IS NULL THEN {otherwise} ELSE {joined.value} END)"
