"""Rows of segments, for repeated fits."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.backend import accelerators
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.device_grouping import DeviceGroups, group_ids
from platt_jax.execution.device_segments import DeviceGroupedRows
from platt_jax.execution.given import given_columns
from platt_jax.execution.grouping import GroupedRows
from platt_jax.execution.on_device import DeviceRows, only_device, require_rows
from platt_jax.execution.problems import Problems
from platt_jax.groups import Groups
from platt_jax.ids.factorize import factorize
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns
from platt_jax.results.tables import counted


class _Placed:
    """Makes rows in arrays on an accelerator of a kind of their own."""

    _kind_there: ClassVar[Any] = None  # the kind for scores on an accelerator, if there is one

    def __new__(cls, scores: Column = None, *_: Any, **__: Any) -> Any:
        kind = cls._kind_there if accelerators.holds(scores) else None
        return super().__new__(kind or cls)


class SegmentRows(_Placed, GroupedRows, validation.HeldRows):
    """Rows grouped by segment once, so that `fit_segments` can fit them repeatedly.

    The arguments are as in `fit_segments`: arrays (N,), and the positive label. The rows are
    copied: later changes of the arrays do not change the fits. Rows of scores on a GPU stay there.

    Attributes:
        keys: (K,) the distinct segments, ascending.
        dtype: the dtype of the scores and of the fits, float32 or float64.
        device: the device of the rows; None for the host.

    Raises:
        ValueError: an argument is invalid for `fit_segments`.

    Example:
        >>> from platt_jax import fit_segments
        >>> rows = SegmentRows([2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"])
        >>> rows
        SegmentRows: 4 rows of 2 segments, float64
        >>> fit_segments(rows).keys.tolist()
        ['a', 'b']
    """

    _taken_by: ClassVar[str] = (
        "fit_segments, bootstrap, profile_spreads, metrics.by_segment and, with a "
        "SegmentCalibrator, triage, update, Monitor.update, robust_covariance, estimate_rates, "
        "estimate_means, estimate_drift, gate, certify, plots.explore and report.to_html"
    )
    device: jax.Device | None = None

    @takes_columns
    def __init__(
        self,
        scores: Column,
        labels: Column,
        segments: Column,
        weights: Column | None = None,
        *,
        offset: Column | None = None,
        pos_label: Any = None,
    ) -> None:
        columns, segments = checked_rows(
            scores, labels, segments, weights, offset=offset, pos_label=pos_label
        )
        scores = columns.scores
        if (warning := validation.probabilities_for_scores(scores)) is not None:
            Caller().warn_once(warning)
        super().__init__(factorize(segments), columns)
        self.dtype = scores.dtype
        self._rows = len(scores)

    def __len__(self) -> int:
        return self._rows

    @property
    def problems(self) -> Problems:
        """A problem per segment."""
        return Problems(self.sizes, self.take, self.dtype, self.largest_first, self.reread)

    @property
    def pooled(self) -> Problems:
        """All rows as one problem; it includes the gaps, whose scores are NaN."""

        def take(_: slice, part: slice, space: packing.Space) -> Columns:
            return self.all(part, space)

        return Problems(np.array([self.length]), take, self.dtype, reread=self.reread)

    def for_one_call(self) -> Self:
        """The same rows; a kind on disk checks for this call that they are as they were written."""
        return self

    def __repr__(self) -> str:
        rows, segments = counted(len(self), "row"), counted(len(self.keys), "segment")
        return f"SegmentRows: {rows} of {segments}, {self.dtype}"


class DeviceSegmentRows(DeviceGroupedRows, SegmentRows):
    """SegmentRows whose scores are on an accelerator.

    Ids are integers there, or any ids on the host; or the groups of these rows. With `doubt` a
    warning says if the scores look like probabilities.
    """

    def __init__(
        self,
        scores: Column,
        labels: Column,
        segments: Column | DeviceGroups,
        weights: Column | None = None,
        *,
        offset: Column | None = None,
        pos_label: Any = None,
        doubt: bool = True,
    ) -> None:
        scores = accelerators.taken(scores)
        validation.require_flat(scores, "scores")
        self.device = only_device(scores)
        require_rows(scores)
        with jax.default_device(self.device):
            if not isinstance(segments, DeviceGroups):
                segments = group_ids(segments, len(scores))
            rows = DeviceRows(scores, labels, weights, pos_label, offset, segments.padded)
            self._columns = segments.laid_out(rows.columns)
        if doubt and rows.doubtful_scores is not None:
            Caller().warn_once(rows.doubtful_scores)
        self.dtype, self.keys = rows.dtype, segments.keys
        self.largest_first, self.sizes = segments.largest_first, segments.sizes
        self._starts = segments.starts
        self._rows = self.length = segments.length

    def __repr__(self) -> str:
        return f"{super().__repr__()}, on {self.device}"


SegmentRows._kind_there = DeviceSegmentRows


class LaidOutRows(NamedTuple):
    """All rows of S segments in memory, the largest segment first."""

    keys: NDArray[Any]  # (S,)
    groups: Groups
    columns: Columns  # (N,) the score of a bad label is NaN


class RowArrays(NamedTuple):
    """Rows as arrays (N,), named as arguments are."""

    scores: NDArray[Any]
    labels: NDArray[Any]  # bool; float, if one is NaN
    segments: NDArray[Any]
    weights: NDArray[Any] | None
    offset: NDArray[Any] | None


def laid_out(rows: SegmentRows, *without: str, some: slice = slice(None)) -> LaidOutRows:
    """The rows of all segments, or of some places, on the host; refuses columns in `without`."""
    groups, (first, last, _) = Groups(rows.sizes[some]), some.indices(len(rows.keys))
    fetched = rows.take(slice(first, last), slice(None), packing.Space(groups.rows))
    fetched = accelerators.fetched(fetched)
    columns: Columns = jax.tree.map(lambda x: x[: groups.rows], fetched)
    for name in without:
        if getattr(columns, name) is not None:
            raise ValueError(f"scores: expected {type(rows).__name__} without {name}")
    return LaidOutRows(rows.keys[rows.largest_first[some]], groups, columns)


def row_arrays(rows: SegmentRows, *without: str, **beside: Any) -> RowArrays:
    """The rows given to a function of arrays, beside which there is no array; see `laid_out`."""
    validation.require_none_beside(rows, **beside)
    keys, groups, (scores, labels, weights, offset) = laid_out(rows.for_one_call(), *without)
    positive, bad = labels > 0, labels == validation.BAD_LABEL
    y = np.where(bad, np.nan, positive) if bad.any() else positive
    return RowArrays(scores, y, groups.by_row(keys), weights, offset)


def on_host(rows: SegmentRows) -> SegmentRows:
    """The rows in memory of the host; those on a device are copied."""
    if rows.device is None:
        return rows
    scores, labels, segments, weights, offset = row_arrays(rows)
    return SegmentRows(scores, labels, segments, weights, offset=offset)


_Kind = TypeVar("_Kind", bound=SegmentRows)


def checked_rows(
    scores: Column,
    labels: Column,
    segments: Column,
    weights: Column | None,
    *,
    offset: Column | None = None,
    pos_label: Any = None,
) -> tuple[Columns, ids.Ids]:
    """The columns as arrays (N,), and the ids of the rows' segments."""
    scores = validation.scores(scores)
    validation.require_flat(scores, "scores")
    columns = given_columns(scores, labels, weights, offset, pos_label)
    segments = ids.read(segments)
    if (number := ids.length(segments)) != len(scores):
        raise ValueError(
            f"segments: expected one id per score {scores.shape}, got shape ({number},)"
        )
    return columns, segments


def segment_rows(
    scores: Column,
    labels: Column | None,
    segments: Column | None,
    weights: Column | None = None,
    *,
    offset: Column | None = None,
    pos_label: Any = None,
) -> SegmentRows:
    """SegmentRows of these arrays; or those given as scores, beside which there is no array."""
    columns = dict(labels=labels, segments=segments, weights=weights, offset=offset)
    columns["pos_label"] = pos_label
    return given_or_made(SegmentRows, scores, columns, "labels", "segments")


def given_or_made(
    kind: type[_Kind], scores: Column, columns: Mapping[str, Column], *needed: str
) -> _Kind:
    """Rows of a kind for one call: those given as scores, or made of scores and other columns."""
    if isinstance(scores, kind):
        validation.require_none_beside(scores, **columns)
        return scores.for_one_call()
    validation.require_each(scores, **{name: columns[name] for name in needed})
    return kind(scores, **columns)
