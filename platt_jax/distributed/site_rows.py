"""Rows of one of several sites, which send sums of many rows and nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.distributed.call import presence, require_same_fit
from platt_jax.distributed.exchange import Exchange, keys_of_all
from platt_jax.distributed.folder import Folder, MeetingByFiles
from platt_jax.distributed.journal import Journal
from platt_jax.distributed.process_rows import agreed_kind
from platt_jax.distributed.segments import ProcessSegments
from platt_jax.distributed.shared_sums import Meeting
from platt_jax.execution.segment_rows import RowArrays, SegmentRows, laid_out
from platt_jax.population.segments import FitArguments, Segments
from platt_jax.results.tables import counted


@dataclass(frozen=True, repr=False)
class SiteRows(validation.HeldRows):
    """Rows of this site, from `site_rows`, for `platt_jax.fit_segments` at all sites.

    Attributes:
        withheld: (W,) the segments of which this site says nothing.
    """

    _taken_by: ClassVar[str] = "fit_segments"

    withheld: NDArray[Any]
    _arrays: RowArrays
    _sent: Bools  # (N,) rows of the other segments
    _others: Bools  # (N,) rows of withheld segments that the fit of all rows has
    _min_cell: int
    _folder: Folder | None
    _time_limit: float | None

    @contextmanager
    def open_segments(self, arguments: FitArguments, caller: Caller) -> Iterator[Segments]:
        """The segments of all sites, once these have compared their calls."""
        meeting: Meeting
        if self._folder is None:
            meeting = Journal(Exchange(self._time_limit), None, {})
        else:
            meeting = MeetingByFiles(self._folder, self._time_limit)
        arrays, adds_rows = self._arrays, (self._sent | self._others).any()
        beside = {"weights": arrays.weights, "offset": arrays.offset}
        texts = {x: presence(beside[x], "an array") if adds_rows else None for x in beside}
        require_same_fit(meeting, self, arguments, texts)
        dtype, has_offset = agreed_kind(
            meeting,
            (arrays.scores.dtype, arrays.offset is not None) if self._sent.any() else None,
            f"min_cell: expected a segment with {counted(self._min_cell, 'row')} of each class at "
            "some site, got none",
        )
        rows, other_rows = (self._segment_rows(mask, dtype) for mask in (self._sent, self._others))
        keys = keys_of_all(meeting, None if rows is None else rows.keys)
        yield ProcessSegments(
            keys, dtype, rows, meeting, caller, has_offset, without_fit=other_rows, sums_only=True
        )

    def _segment_rows(self, some: Bools, dtype: np.dtype[Any]) -> SegmentRows | None:
        if not some.any():
            return None
        arrays: RowArrays = jax.tree.map(lambda x: x[some], self._arrays)
        return SegmentRows(arrays.scores.astype(dtype), *arrays[1:4], offset=arrays.offset)

    def __repr__(self) -> str:
        return (
            f"SiteRows: {counted(self._sent.sum(), 'row')} of this site, in sums of at least "
            f"{counted(self._min_cell, 'row')} of each class; "
            f"{counted(len(self.withheld), 'segment')} withheld"
        )


@takes_columns
def site_rows(
    scores: Column,
    labels: Column,
    segments: Column,
    *,
    weights: Column | None = None,
    offset: Column | None = None,
    pos_label: Any = None,
    min_cell: int = 10,
    folder: Folder | None = None,
    time_limit: float | None = None,
) -> SiteRows:
    """Rows of this site, for a fit of segments to which each site only adds sums.

    All sites call `platt_jax.fit_segments` with such rows and the same other arguments, as with
    `rows`, and get the same fits, as of all rows in memory within rounding, without the
    segments that a site withholds. With pooling="partial" the unit of the population's prior is by
    means and variances of the scores, where in memory it is by quartiles: of few segments, with
    scores of heavy tails, A has moved by .4 standard errors. `Flag.SEPARABLE` may be missing, and
    `Flag.OUTLIER` differ.
    A site sends the ids of its segments, and for each pass some sums over the rows of each. No
    noise is added: docs/howto/federated.md says what sums give away.

    Args:
        scores: (N,) scores of this site, as in `platt_jax.fit_segments`. The widest dtype of all
            sites holds for all.
        labels: (N,) labels of this site.
        segments: (N,) segment ids of this site.
        weights: (N,) weights of this site; given at all sites, or at none.
        offset: (N,) offset of this site; given at all sites, or at none.
        pos_label: as in `platt_jax.fit_segments`.
        min_cell: a segment with fewer finite rows of a class at this site is withheld: neither
            its id nor its sums are sent. The rows of all withheld segments together are in the
            fit of all rows if they have as many of each class; else they are left out. Each site
            has its own.
        folder: where sites exchange files; None for the processes of `jax.distributed`.
        time_limit: maximum number of seconds to wait for other sites in a pass; None for no
            limit. With 0 a fit ends where a file of another site is missing, and the same call
            goes on from there.

    Returns:
        Rows for `platt_jax.fit_segments`, with the ids of `withheld` segments.

    Invalid rows are refused at once, at this site alone. The fit raises the errors below, beside
    the errors of `platt_jax.fit_segments`.

    Raises:
        ValueError: an argument differs between sites, which are numbered as processes in the
            order of their names; no site has a segment of min_cell rows of each class; or a file
            in the folder is of another call, or damaged.
        RuntimeError: a process has ended.
        TimeoutError: another site has not answered within the time limit.

    Example:
        >>> from platt_jax import fit_segments
        >>> mine = site_rows([2.0, -1.0, 1.0], [1, 0, 1], ["a", "a", "b"], min_cell=1)
        >>> mine.withheld.tolist()
        ['b']
        >>> fit_segments(mine).keys.tolist()  # a single site
        ['a']
    """
    validation.require_integer(min_cell, "min_cell", 1)
    if not (folder is None or isinstance(folder, Folder)):
        raise ValueError(f"folder: expected a distributed.Folder, got {folder!r}")
    if time_limit is not None:
        validation.require_not_negative(time_limit, "time_limit")
    rows = SegmentRows(scores, labels, segments, weights, offset=offset, pos_label=pos_label)
    keys, groups, columns = laid_out(rows)
    arrays = RowArrays(
        columns.scores, columns.labels > 0, groups.by_row(keys), columns.weights, columns.offset
    )
    counts = np.isfinite(arrays.scores)
    for x in (arrays.weights, arrays.offset):
        counts &= True if x is None else np.isfinite(x)
    if arrays.weights is not None:
        counts &= arrays.weights > 0
    by_class = np.stack([counts & arrays.labels, counts & ~arrays.labels]).astype(np.int64)
    cells = groups.sums(by_class)
    enough = cells.min(0) >= min_cell
    sent = groups.by_row(enough)
    pooled = ~sent & (cells[:, ~enough].sum(1).min() >= min_cell)
    withheld = rows.keys[np.sort(rows.largest_first[~enough])]
    return SiteRows(withheld, arrays, sent, pooled, min_cell, folder, time_limit)
