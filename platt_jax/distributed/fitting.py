"""`fit_segments` for rows in several processes."""

import hashlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.distributed.call import described, hashed, presence, require_same_call
from platt_jax.distributed.exchange import Exchange, agree, keys_of_all, to_bytes
from platt_jax.distributed.journal import Journal
from platt_jax.distributed.segments import ProcessSegments
from platt_jax.execution.caller import Caller
from platt_jax.execution.checkpoint import digest
from platt_jax.execution.given import problem_inputs
from platt_jax.execution.progress import Listener, Stage
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options, Pooling
from platt_jax.population.fitting import fit_by_segment
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.solver.solution import ProblemInputs


def fit_segments(
    scores: Column,
    labels: Column,
    segments: Column,
    *,
    weights: Column | None = None,
    offset: Column | None = None,
    pos_label: Any = None,
    prior: GaussianPrior | None = None,
    start: tuple[Any, Any] | None = None,
    pooling: Pooling = "none",
    options: Options = Options(),
    progress: bool | Listener = False,
    time_limit: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> SegmentCalibrator:
    """Fit one sigmoid to the rows of each segment, which may be in several processes.

    The results equal those of `platt_jax.fit_segments` within rounding. All processes must call it,
    each with its own rows (possibly none). The other arguments must be the same in all, except
    progress, time_limit and the checkpoint's path. This is checked first.

    Args:
        scores: (N,) scores of this process, as in `platt_jax.fit_segments`. The widest dtype of
            all processes holds for all.
        labels: (N,) labels of this process.
        segments: (N,) segment ids of this process.
        weights: (N,) weights of this process; given in all processes that have rows, or in none.
        offset: (N,) offset of this process; given in all processes that have rows, or in none.
        pos_label: as in `platt_jax.fit_segments`.
        prior: as in `platt_jax.fit_segments`; a leading axis (K,) is for the segments of all
            processes.
        start: as in `platt_jax.fit_segments`, for the segments of all processes.
        pooling: as in `platt_jax.fit_segments`.
        options: as in `platt_jax.fit_segments`.
        progress: as in `platt_jax.fit_segments`, for the segments of all processes; each process
            reports as its own argument says.
        time_limit: maximum number of seconds to wait for other processes in a pass; None for no
            limit.
        checkpoint: directory for the sums of each pass so far, read and written by the first
            process. After a crash, the same call by as many processes with the same rows continues
            from there, with bitwise equal results. It is removed at the end.

    Returns:
        A SegmentCalibrator of the segments of all processes, bitwise equal in each.

    Raises:
        ValueError: an argument is not as above or differs between processes, or the checkpoint is
            of other rows or arguments. An error in one process is raised in all.
        OSError: the checkpoint cannot be read or written; raised in the first process.
        RuntimeError: a process has ended.
        TimeoutError: a process has not answered within the time limit.

    Example:
        >>> calibrator = fit_segments([2.0, -1.0], [1, 0], ["a", "a"])  # a single process
        >>> calibrator.keys.tolist()
        ['a']
    """
    caller, exchange = Caller(), Exchange(time_limit)

    def describe() -> dict[str, str | None]:
        validation.pooling(pooling, prior, start, validation.options(options))
        Stage.of(progress)
        has_rows = np.size(scores) > 0  # a process without rows may have any weights and offset
        beside = {"weights": weights, "offset": offset}
        return {
            **described("fit_segments", options, pooling=pooling, pos_label=pos_label),
            "prior": hashed("prior", prior),
            "start": hashed("start", start),
            "checkpoint": presence(checkpoint, "a directory"),
            **{x: presence(beside[x], "an array") if has_rows else None for x in beside},
        }

    require_same_call(exchange, describe)
    by_segment = partial(
        SegmentRows,
        labels=labels,
        segments=segments,
        weights=weights,
        offset=offset,
        pos_label=pos_label,
    )
    rows, dtype, has_offset = _agreed_rows(exchange, scores, by_segment)
    keys = keys_of_all(exchange, None if rows is None else rows.keys)
    call = {}
    if checkpoint is not None:
        given = problem_inputs(keys.shape, dtype, prior, start)
        call = _call(exchange, rows, given, pooling, options)
    journal = Journal(exchange, checkpoint, call)
    everywhere = ProcessSegments(keys, dtype, rows, exchange, journal, caller, has_offset)
    calibrator = fit_by_segment(everywhere, prior, start, pooling, options, progress, caller)
    journal.remove()
    return calibrator


def _agreed_rows(
    exchange: Exchange, scores: Column, by_segment: Callable[[Any], SegmentRows]
) -> tuple[SegmentRows | None, np.dtype[Any], bool]:
    """This process's rows, None without any; the dtype of all scores; whether rows have offsets.

    Raises:
        ValueError: the rows of a process are invalid; raised in all processes.
    """
    rows = agree(exchange, lambda: by_segment(scores) if np.size(scores) else None)
    size = 0 if rows is None else rows.dtype.itemsize
    offset = 0 if rows is None else int(rows.has_offset)
    gathered = exchange.gather(np.array([size, offset]))
    largest, offset = gathered.max(axis=0)
    if not largest:
        raise ValueError("scores: expected rows to fit in some process, got none in all")
    dtype = np.dtype(f"f{largest}")
    if rows is not None and rows.dtype != dtype:
        rows = by_segment(validation.scores(scores).astype(dtype))
    return rows, dtype, bool(offset)


def _call(
    exchange: Exchange,
    rows: SegmentRows | None,
    given: ProblemInputs,
    pooling: str,
    options: Options,
) -> dict[str, str]:
    """What the sums depend on, by name."""
    mine = b"" if rows is None else rows.digest() + to_bytes(rows.keys)
    gathered = exchange.gather_bytes(hashlib.blake2b(mine, digest_size=16).digest())
    return {
        "rows": b"".join(gathered).hex(),
        "prior or start": digest(jax.tree.leaves(given)),
        "pooling": pooling,
        "options": repr(options),
    }
