"""`fit_segments` for rows on disk."""

import os
from typing import Any

from jax.sharding import Mesh

from platt_jax import validation
from platt_jax.execution.caller import Caller
from platt_jax.execution.checkpoint import Checkpoint, digest
from platt_jax.execution.devices import checked
from platt_jax.execution.progress import Listener
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options, Pooling
from platt_jax.population.chunked import ChunkedSegments
from platt_jax.population.fitting import fit_by_segment
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.streaming.cache import store_rows
from platt_jax.streaming.stored_rows import StoredRows


def fit_segments(
    source: Any,
    *,
    score: str | None = None,
    label: str | None = None,
    segment: str | list[str] | None = None,
    weight: str | None = None,
    offset: str | None = None,
    pos_label: Any = None,
    cache: str | os.PathLike[str] | None = None,
    key: str | None = None,
    prior: GaussianPrior | None = None,
    start: tuple[Any, Any] | None = None,
    pooling: Pooling = "none",
    mesh: Mesh | None = None,
    options: Options = Options(),
    progress: bool | Listener = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> SegmentCalibrator:
    """`platt_jax.fit_segments` for rows that do not fit in memory, with the same results.

    Args:
        source: as in `store_rows`; or StoredRows.
        score: as in `store_rows`.
        label: as in `store_rows`.
        segment: as in `store_rows`.
        weight: as in `store_rows`.
        offset: as in `store_rows`.
        pos_label: as in `platt_jax.fit_segments`.
        cache: as in `store_rows`; None only with StoredRows.
        key: as in `store_rows`.
        prior: as in `platt_jax.fit_segments`.
        start: as in `platt_jax.fit_segments`.
        pooling: as in `platt_jax.fit_segments`.
        mesh: as in `platt_jax.fit_segments`.
        options: as in `platt_jax.fit_segments`.
        progress: as in `platt_jax.fit_segments`; also for the stages of `store_rows`.
        checkpoint: file for the segments' fits so far, written every few seconds. After a crash the
            same call continues from there, with bitwise equal results. The file is removed at the
            end. The pooled fit, a few passes over the rows, starts anew. Not supported with
            pooling="partial", "nested" or "crossed".

    Raises:
        ValueError: as in `store_rows` and `platt_jax.fit_segments`; or the checkpoint is of other
            rows or other arguments.
        OSError: as in `store_rows`; or the checkpoint cannot be read or written.

    Example:
        >>> import os, tempfile
        >>> cache = os.path.join(tempfile.mkdtemp(), "rows")
        >>> batches = [([2.0, -1.0], [1, 0], ["a", "b"]), ([1.0, 0.0], [1, 0], ["b", "a"])]
        >>> fit_segments(batches, cache=cache).keys.tolist()
        ['a', 'b']
    """
    caller, mesh = Caller(), checked(mesh)
    # Checked before hours of reading.
    validation.pooling(pooling, prior, start, validation.options(options))
    if checkpoint is not None and pooling in ("partial", "nested", "crossed"):
        raise ValueError(
            f'checkpoint: expected None with pooling="{pooling}": it keeps the fits of segments '
            "one by one, and a population is of all of them"
        )
    if isinstance(source, StoredRows):
        rows = source.for_one_call()
    elif cache is None:
        raise ValueError("cache: expected a directory for the rows by segment, got None")
    else:
        rows = store_rows(
            source,
            cache,
            score=score,
            label=label,
            segment=segment,
            weight=weight,
            offset=offset,
            pos_label=pos_label,
            key=key,
            progress=progress,
        ).for_one_call()
    kept = None
    if checkpoint is not None:
        kept = Checkpoint(checkpoint, _call(rows, prior, start, options))
    by_segment = ChunkedSegments(rows, caller, mesh, kept)
    calibrator = fit_by_segment(by_segment, prior, start, pooling, options, progress, caller)
    if kept is not None:
        kept.remove()
    return calibrator


def _call(
    rows: StoredRows, prior: GaussianPrior | None, start: tuple[Any, Any] | None, options: Options
) -> dict[str, str]:
    """What the segments' fits depend on, by name."""
    return {
        "rows": rows.identity,
        "prior": digest(prior or ()),
        "start": digest(start or ()),
        "options": repr(options.with_tol(rows.dtype)),
    }
