"""A source of rows as batches of columns."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from platt_jax.ids import structured

# JSON that identifies the content of a source; None if that is not possible.
Fingerprint: TypeAlias = dict[str, Any] | None

BATCH_ROWS = 1 << 20


class SourceColumns(NamedTuple):
    """The column names of a source, None for columns without a name."""

    score: str | None
    label: str | None
    segment: Any  # a name, or a list of names for ids of several columns
    weight: str | None
    offset: str | None = None

    @property
    def columns(self) -> list[str]:
        """All names."""
        segment = [self.segment] if isinstance(self.segment, str) else list(self.segment)
        others = [name for name in (self.weight, self.offset) if name is not None]
        return [str(self.score), str(self.label), *segment, *others]

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The names by argument; as before there were offsets if there is none."""
        names = self._asdict()
        if self.offset is None:
            del names["offset"]
        return names

    def __str__(self) -> str:
        given = {name: x for name, x in self._asdict().items() if x is not None}
        return f" ({', '.join(f'{name} {x!r}' for name, x in given.items())})" if given else ""


class Batch(NamedTuple):
    """A batch of rows."""

    where: str  # name of the batch in messages
    scores: Any
    labels: Any
    segments: Any
    weights: Any
    offset: Any = None


class Source(NamedTuple):
    """Rows that can be read in order."""

    batches: Callable[[], Iterator[Batch]]
    fingerprint: Callable[[], Fingerprint]
    rows: int | None  # None if unknown


def require_names(names: SourceColumns) -> None:
    """Refuses a source with named columns if the score, label or segment has no name."""
    for argument, name in zip(("score", "label", "segment"), names, strict=False):
        if name is None:
            raise ValueError(f"{argument}: expected the name of a column of the source, got None")


def column(table: Any, name: Any, where: str) -> Any:
    """A column of a mapping or table; a table for several names, None for no name."""
    if name is None:
        return None
    if not isinstance(name, str):
        if hasattr(table, "select"):  # pyarrow and polars
            return table.select(list(name))
        if not isinstance(table, Mapping):
            return table[list(name)]
        columns = [np.asarray(column(table, part, where)) for part in name]
        return structured(name, columns)
    try:
        return table[name]
    except (KeyError, IndexError, LookupError):
        there = list(getattr(table, "column_names", None) or table.keys())
        raise ValueError(f"{where}: expected a column {name!r}, there are {there}") from None
