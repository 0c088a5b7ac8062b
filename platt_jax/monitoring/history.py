"""The nights that a monitor has seen: how many, their names, and by which calibrator."""

import datetime
from typing import Any, NamedTuple, Self

import numpy as np

from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.results.fingerprint import fingerprint
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator

_NAMES = str, int, np.integer, datetime.date, np.datetime64


class History(NamedTuple):
    """The nights so far."""

    night: int = 0  # their number
    names: tuple[str, ...] = ()  # of the nights that have one, in their order
    judged_by: str = ""  # the fingerprint of the last night's calibrator; empty if not known
    last: str = ""  # a digest of the last night's rows, by which the command line knows them

    def named(self, night: Any) -> tuple[str, ...]:
        """The names with tonight's, if it is not None; refuses the name of a night before."""
        if night is None:
            return self.names
        if not isinstance(night, _NAMES) or isinstance(night, bool) or not str(night):
            raise ValueError(f"night: expected a text, an integer or a date, got {night!r}")
        if str(night) in self.names:
            raise ValueError(f"night: expected a night that is not in the monitor, got {night}")
        return *self.names, str(night)

    def next(self, night: Any, calibrator: SegmentCalibrator) -> Self:
        """The nights with tonight, judged by this calibrator."""
        return type(self)(self.night + 1, self.named(night), fingerprint(calibrator))

    def require_parts(self, other: "History") -> None:
        """Refuses anything but the nights of another part of the last night's rows."""
        for name in ("night", "names"):
            value, second = getattr(self, name), getattr(other, name)
            if value != second:
                raise ValueError(f"other: expected a monitor with {name} {value!r}, got {second!r}")
        if self.judged_by and other.judged_by and self.judged_by != other.judged_by:
            raise ValueError(
                "other: expected a monitor whose last night the same calibrator judged, got one of "
                "another calibrator"
            )


def known(calibrator: SegmentCalibrator, keys: Any) -> int:
    """The number of these segments that a calibrator was fitted on."""
    indices = get_indexer(calibrator.keys, split_columns(keys), "calibrator")
    return int(np.count_nonzero(indices >= 0))


def require_successor(calibrator: Any, keys: Any, before: int) -> None:
    """Refuses a calibrator of other segments: it knows fewer than half as many as before.

    `keys` are the segments that had rows, and `before` how many the calibrator before it knew.
    """
    require_segment_calibrator(calibrator, "calibrator", any_curve=True)
    if 2 * (number := known(calibrator, keys)) < before:
        raise ValueError(
            f"calibrator: expected one of the monitor's segments, got one that knows {number:,} of "
            f"them, where the one before it knew {before:,}; Monitor.start begins a new monitor"
        )
