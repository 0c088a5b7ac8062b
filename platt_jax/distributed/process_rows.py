"""Rows in several processes, of which each has its own."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import numpy as np

from platt_jax import validation
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.distributed.call import presence, require_same_fit
from platt_jax.distributed.exchange import Exchange, Gathers, agree, keys_of_all, to_bytes
from platt_jax.distributed.journal import Journal
from platt_jax.distributed.segments import ProcessSegments
from platt_jax.execution.checkpoint import digest
from platt_jax.execution.given import problem_inputs
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.options import Options
from platt_jax.population.segments import FitArguments, Segments
from platt_jax.results.tables import counted
from platt_jax.solver.solution import ProblemInputs


@dataclass(frozen=True, repr=False)
class ProcessRows(validation.HeldRows):
    """Rows of this process, from `rows`, for `platt_jax.fit_segments` in all processes."""

    _taken_by: ClassVar[str] = "fit_segments"

    _scores: Column
    _by_segment: Callable[[Any], SegmentRows]
    _texts: Callable[[], dict[str, str | None]]  # of the arguments of `rows`
    _time_limit: float | None
    _checkpoint: str | os.PathLike[str] | None

    @contextmanager
    def open_segments(self, arguments: FitArguments, caller: Caller) -> Iterator[Segments]:
        """The segments of all processes, once these have compared their calls."""
        exchange = Exchange(self._time_limit)
        require_same_fit(exchange, self, arguments, self._texts())
        rows, dtype, has_offset = _agreed_rows(exchange, self._scores, self._by_segment)
        keys = keys_of_all(exchange, None if rows is None else rows.keys)
        call = {}
        if self._checkpoint is not None:
            inputs = problem_inputs(keys.shape, dtype, arguments.prior, arguments.start)
            call = _call(exchange, rows, inputs, arguments.pooling, arguments.options)
        journal = Journal(exchange, self._checkpoint, call)
        yield ProcessSegments(keys, dtype, rows, journal, caller, has_offset)
        journal.remove()

    def __repr__(self) -> str:
        return f"ProcessRows: {counted(np.size(self._scores), 'row')} of this process"


@takes_columns
def rows(
    scores: Column,
    labels: Column,
    segments: Column,
    *,
    weights: Column | None = None,
    offset: Column | None = None,
    pos_label: Any = None,
    time_limit: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> ProcessRows:
    """Rows of this process, for a fit of segments whose rows are in several processes.

    All processes must call `platt_jax.fit_segments` with such rows, each with its own (possibly
    none). The fits equal fits of rows in memory within rounding, and are bitwise equal in all
    processes. The other arguments must be the same in all, except progress, time_limit and the
    checkpoint's path. The fit checks this first, and raises an error of one process in all.

    Args:
        scores: (N,) scores of this process, as in `platt_jax.fit_segments`. The widest dtype of
            all processes holds for all.
        labels: (N,) labels of this process.
        segments: (N,) segment ids of this process.
        weights: (N,) weights of this process; given in all processes that have rows, or in none.
        offset: (N,) offset of this process; given in all processes that have rows, or in none.
        pos_label: as in `platt_jax.fit_segments`.
        time_limit: maximum number of seconds to wait for other processes in a pass; None for no
            limit.
        checkpoint: directory for the sums of each pass so far, read and written by the first
            process. After a crash, the same call by as many processes with the same rows continues
            from there, with bitwise equal results. It is removed at the end.

    The fit raises the errors below, beside the errors of `platt_jax.fit_segments`.

    Raises:
        ValueError: an argument differs between processes, or the checkpoint is of other rows or
            arguments.
        OSError: the checkpoint cannot be read or written; raised in the first process.
        RuntimeError: a process has ended.
        TimeoutError: a process has not answered within the time limit.

    Example:
        >>> from platt_jax import fit_segments
        >>> calibrator = fit_segments(rows([2.0, -1.0], [1, 0], ["a", "a"]))  # a single process
        >>> calibrator.keys.tolist()
        ['a']
    """

    def texts() -> dict[str, str | None]:
        has_rows = np.size(scores) > 0  # a process without rows may have any weights and offset
        beside = {"weights": weights, "offset": offset}
        return {
            "pos_label": repr(pos_label),
            "checkpoint": presence(checkpoint, "a directory"),
            **{x: presence(beside[x], "an array") if has_rows else None for x in beside},
        }

    by_segment = partial(
        SegmentRows,
        labels=labels,
        segments=segments,
        weights=weights,
        offset=offset,
        pos_label=pos_label,
    )
    return ProcessRows(scores, by_segment, texts, time_limit, checkpoint)


def _agreed_rows(
    exchange: Exchange, scores: Column, by_segment: Callable[[Any], SegmentRows]
) -> tuple[SegmentRows | None, np.dtype[Any], bool]:
    """This process's rows, None without any; the dtype of all scores; whether rows have offsets.

    An error of any process is raised in all.
    """

    def own_rows() -> SegmentRows | None:
        return by_segment(validation.scores(scores)) if np.size(scores) else None

    rows = agree(exchange, own_rows)
    kind = None if rows is None else (rows.dtype, rows.has_offset)
    none_message = "scores: expected rows to fit in some process, got none in all"
    dtype, has_offset = agreed_kind(exchange, kind, none_message)
    if rows is not None and rows.dtype != dtype:
        rows = by_segment(validation.scores(scores).astype(dtype))
    return rows, dtype, has_offset


def agreed_kind(
    exchange: Gathers, mine: tuple[np.dtype[Any], bool] | None, none_message: str
) -> tuple[np.dtype[Any], bool]:
    """The widest dtype of all processes' scores, and whether rows have offsets.

    `mine` is the same of this process's rows, None without rows. If no process has rows, all raise
    a ValueError with `none_message`.
    """
    size, has_offset = (0, False) if mine is None else (mine[0].itemsize, mine[1])
    numbers = np.array([size, has_offset])
    gathered = np.frombuffer(b"".join(exchange.gather_bytes(numbers.tobytes())), numbers.dtype)
    largest, offset = gathered.reshape(-1, 2).max(axis=0)
    if not largest:
        raise ValueError(none_message)
    return np.dtype(f"f{largest}"), bool(offset)


def _call(
    exchange: Exchange,
    rows: SegmentRows | None,
    given: ProblemInputs,
    pooling: str,
    options: Options,
) -> dict[str, str]:
    """What the sums depend on, by name."""
    content = b"" if rows is None else rows.digest() + to_bytes(rows.keys)
    gathered = exchange.gather_bytes(hashlib.blake2b(content, digest_size=16).digest())
    return {
        "rows": b"".join(gathered).hex(),
        "prior or start": digest(jax.tree.leaves(given)),
        "pooling": pooling,
        "options": repr(options),
    }
