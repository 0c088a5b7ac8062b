"""`fit_segments` over rows in several processes."""

import hashlib
import os
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.api import report_non_finite, shared_prior
from platt_jax.columns import Column
from platt_jax.distributed.exchange import Exchange, agree, keys_of_all, to_bytes
from platt_jax.distributed.journal import Journal
from platt_jax.distributed.rows import LocalRows, SummedRows
from platt_jax.execution.caller import Caller
from platt_jax.execution.checkpoint import digest
from platt_jax.execution.given import given_to
from platt_jax.execution.run import fit_on_host
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.ids import read
from platt_jax.ids.factorize import get_indexer
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options
from platt_jax.passes import packing
from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import Given
from platt_jax.threads import run_programs


def fit_segments(
    scores: Column,
    labels: Column,
    segments: Column,
    *,
    weights: Column | None = None,
    prior: GaussianPrior | None = None,
    start: tuple[Any, Any] | None = None,
    options: Options = Options(),  # noqa: B008 - immutable
    time_limit: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> SegmentCalibrator:
    """Fit one sigmoid to the rows of each segment, which may lie in several processes.

    The answers are those of `platt_jax.fit_segments`, to rounding. All processes call it, each
    with rows of its own, which may be none; all must give the same prior, start and options.

    Args:
        scores: (N,) of this process.
        labels: (N,) likewise.
        segments: (N,) likewise.
        weights: (N,) likewise.
        prior: as in `platt_jax.fit_segments`; with leading axis (K,) for the segments of all.
        start: likewise.
        options: likewise.
        time_limit: seconds to wait for the other processes in a pass; None for as long as it takes.
        checkpoint: a directory for the sums of each pass so far, which the first process reads and
            writes: the same call after a crash, by as many processes with the same rows, goes on
            from there to the same bits. It is removed in the end.

    Returns:
        A SegmentCalibrator of the segments of all processes, the same bits in each.

    Raises:
        ValueError: an argument is not as above, or the checkpoint is of other rows or arguments;
            here or in another process: all raise.
        OSError: the checkpoint cannot be read or written; in the first process.
        RuntimeError: a process has ended.
        TimeoutError: a process says nothing for longer than the time limit.

    Example:
        >>> calibrator = fit_segments([2.0, -1.0], [1, 0], ["a", "a"])  # of one process
        >>> calibrator.keys.tolist()
        ['a']
    """
    caller, exchange = Caller(), Exchange(time_limit)
    options = validation.options(options)
    rows, dtype = _agreed_rows(exchange, scores, labels, segments, weights)
    keys = keys_of_all(exchange, None if rows is None else rows.keys)
    given = given_to(keys.shape, dtype, prior, start)
    shared = given_to((1,), dtype, shared_prior(prior))
    call = {} if checkpoint is None else _call(exchange, rows, given, options)
    journal = Journal(exchange, checkpoint, call)

    def fitted(
        local: LocalRows | None, number: int, given: Given, options: Options, loss: bool
    ) -> Fit:
        summed = SummedRows(local, number, dtype, journal, caller)
        fit = fit_on_host(summed, given, options.with_tol(dtype), loss)
        on_host: Fit = jax.tree.map(np.asarray, fit)
        return on_host

    def fit_both() -> tuple[Fit, Fit]:
        omitting = replace(options, non_finite="omit")
        pooled = fitted(_pooled(rows), 1, shared, omitting, loss=False)
        each = fitted(_by_segment(rows, keys), len(keys), given, options, loss=True)
        return jax.tree.map(lambda x: x[0], pooled), each

    pooled, each = run_programs(fit_both, x64=dtype == np.float64)
    journal.remove()
    report_non_finite(each, options, "segments", keys, caller)
    covariance: Any = pooled.covariance  # NumPy's, of a fit on the host
    return SegmentCalibrator(keys, each, pooled.sigmoid, covariance)


def _agreed_rows(
    exchange: Exchange, scores: Column, labels: Column, segments: Column, weights: Column | None
) -> tuple[SegmentRows | None, np.dtype[Any]]:
    """This process's rows, None where there are none, and the dtype of all scores.

    Raises:
        ValueError: the rows of a process are not as they should be; in all processes.
    """

    def rows_here() -> SegmentRows | None:
        return SegmentRows(scores, labels, segments, weights) if np.size(scores) else None

    rows = agree(exchange, rows_here)
    size = 0 if rows is None else rows.dtype.itemsize
    largest = exchange.gather(np.array([size])).max()
    if not largest:
        raise ValueError("scores: expected rows to fit in some process, got none in all")
    dtype = np.dtype(f"f{largest}")
    if rows is not None and rows.dtype != dtype:
        rows = SegmentRows(validation.scores(scores).astype(dtype), labels, segments, weights)
    return rows, dtype


def _call(
    exchange: Exchange, rows: SegmentRows | None, given: Given, options: Options
) -> dict[str, str]:
    """What the sums depend on."""
    mine = b"" if rows is None else rows.digest() + to_bytes(rows.keys)
    of_all = exchange.gather_bytes(hashlib.blake2b(mine, digest_size=16).digest())
    return {
        "rows": b"".join(of_all).hex(),
        "prior or start": digest(jax.tree.leaves(given)),
        "options": repr(options),
    }


def _by_segment(rows: SegmentRows | None, keys: NDArray[Any]) -> LocalRows | None:
    if rows is None:
        return None
    places = get_indexer(keys, read(rows.keys))[rows.largest_first]
    return LocalRows(rows.sizes, rows.take, rows.dtype, places)


def _pooled(rows: SegmentRows | None) -> LocalRows | None:
    if rows is None:
        return None

    def take(_: slice, part: slice, space: packing.Space) -> packing.Columns:
        return rows.all(part, space)

    return LocalRows(np.array([rows.length]), take, rows.dtype, np.array([0]))
