"""Names in queries: the columns of a relation, and those of points and results."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

# Columns of `POINTS`, the search's numbers for each segment.
STANDARDIZATION = ("center", "scale")
GAPS = ("gap_pos", "gap_neg")  # distances of the targets from the labels 1 and 0
# Columns by which passes are compared.
SAME = ("same_weight", "same_score", "same_offset")
# Suffix of the columns of the problem of all rows.
ALL = "_all"

# Parts of queries whose columns are expensive, and used several times in the next part.
COMPUTED_ONCE = ("summarized", "at_points", "with_e", "terms")

# The search's numbers for the problem of all rows, by name.
PooledNumbers: TypeAlias = Mapping[str, float]


class RelationColumns(NamedTuple):
    """The columns of a relation."""

    score: str
    label: str
    segment: Sequence[str]
    weight: str | None = None
    booleans: Sequence[str] = ()  # names of the boolean columns
    pos_label: str | None = None  # literal of the label of class 1; None for numeric labels
    offset: str | None = None

    @property
    def keys(self) -> list[str]:
        """Names of the segment's columns in queries."""
        return [f"k{i}" for i in range(len(self.segment))]
