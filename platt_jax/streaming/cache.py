"""The cache of rows on disk, written atomically and reused."""

import errno
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from glob import escape
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np

from platt_jax.caller import Caller
from platt_jax.execution.progress import Listener, Stage
from platt_jax.streaming.files import file_at, files_at
from platt_jax.streaming.grouping import group_source
from platt_jax.streaming.sources import (
    EXPECTED,
    Fingerprint,
    Source,
    SourceColumns,
    arrays_source,
    batches_source,
    column,
    dataset_source,
    parquet_source,
    require_names,
)
from platt_jax.streaming.stored_rows import StoredRows, is_stored

_ARGUMENTS = ("scores", "labels", "segments", "weights", "offset")


def rows(
    source: Any,
    cache: str | os.PathLike[str],
    *,
    score: str | None = None,
    label: str | None = None,
    segment: str | list[str] | None = None,
    weight: str | None = None,
    offset: str | None = None,
    pos_label: Any = None,
    key: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Listener = False,
) -> StoredRows:
    """Rows for `platt_jax.fit_segments`, grouped by segment on disk, unless the cache has them.

    Args:
        source: rows, read once: a Parquet file, a directory of Parquet files, a pattern such as
            ``rows/*.parquet``, or a list of paths, all of which may be URIs such as ``s3://rows``;
            a `pyarrow.dataset.Dataset`; a mapping from names to arrays, or a tuple of arrays
            (scores, labels, segments[, weights[, offset]]), such as memory-mapped ones; or batches,
            an iterable of such tuples, of mappings, or of tables of pyarrow, pandas or polars. A
            column that a Parquet file lacks is taken from its directories' names (``country=NO``).
        cache: directory for the rows. If it already has rows of this source, these are used, and
            files are not read. float32 scores without weights take 5 bytes a row, and 18 while it
            is written.
        score: name of the column of scores; None if columns come in tuples.
        label: name of the column of labels; None if columns come in tuples.
        segment: name of the column of segment ids, or several names; None if columns come in
            tuples.
        weight: name of the column of weights; None for no weights.
        offset: name of the column of offsets; None for no offsets.
        pos_label: as in `platt_jax.fit_segments`.
        key: a text that you change when the content of arrays or batches changes; a cache made with
            another key is refused. Local files are identified by their sizes and the times of
            their modification and last change (of which `chmod`, copying and moving are one), files
            elsewhere by size and modification time, arrays by a hash of all their rows, which are
            read for it, batches and filtered datasets by their key alone.
        checkpoint: file for the segments' fits so far, as in StoredRows.
        progress: as in `platt_jax.fit_segments`; the stages are "reading rows", if their number is
            known in advance, and "grouping rows".

    Raises:
        ValueError: a batch is not as in `platt_jax.fit_segments`; the cache is of another source,
            or is a directory of something else; a file changed while it was read; or no file system
            opens a URI.
        OSError: the rows cannot be read or written.
        ImportError: xxhash is missing; or the source is Parquet files, and pyarrow is missing.

    Example:
        >>> import os, tempfile
        >>> cache = os.path.join(tempfile.mkdtemp(), "rows")
        >>> batches = [([2.0, -1.0], [1, 0], ["a", "b"]), ([1.0, 0.0], [1, 0], ["b", "a"])]
        >>> from platt_jax import fit_segments
        >>> fit_segments(rows(batches, cache)).keys.tolist()
        ['a', 'b']
    """
    caller, stage = Caller(), partial(Stage.of, progress, last=False)
    opened = _open_source(source, SourceColumns(score, label, segment, weight, offset), key)
    expected = _as_json(_call_fingerprint(opened, pos_label))
    cache = Path(os.path.abspath(cache))
    # In this order: another thread or process may put the whole cache there in between.
    occupied = cache.exists() and (not cache.is_dir() or any(cache.iterdir()))
    if is_stored(cache):
        return _reopened(cache, expected, checkpoint)
    if occupied:
        raise ValueError(f"cache: expected a new or empty directory, {cache} is something else")
    cache.parent.mkdir(parents=True, exist_ok=True)
    with _beside(cache) as unfinished:
        group_source(opened, unfinished, expected, pos_label, stage, caller)
        if (actual := _as_json(_call_fingerprint(opened, pos_label))) != expected:
            raise ValueError(f"source: changed while it was read: {_differences(expected, actual)}")
        try:
            os.rename(unfinished, cache)
        except OSError as error:
            # Another process has finished first.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not is_stored(cache):
                raise
            return _reopened(cache, expected, checkpoint)
    return StoredRows(cache, checkpoint)


def _open_source(source: Any, names: SourceColumns, key: str | None) -> Source:
    """The rows of a source, given as in `rows`."""
    if isinstance(source, str | os.PathLike):
        return parquet_source(files_at(source), names)
    if isinstance(source, list | tuple) and source and _all_are(source, str | os.PathLike):
        return parquet_source([file_at(path) for path in source], names)
    if _is_dataset(source):
        return dataset_source(source, names, key)
    if isinstance(source, Mapping):
        require_names(names)
        arrays = {name: column(source, name, "source") for name in names.columns}
        return arrays_source(arrays, names, key)
    if isinstance(source, tuple) and source and _all_are(source, np.ndarray):
        if len(source) not in (3, 4, 5) or any(x.ndim < 1 for x in source):
            raise ValueError(
                f"source: expected arrays {EXPECTED}, got shapes {[x.shape for x in source]}"
            )
        columns = _ARGUMENTS[: len(source)]
        arrays = dict(zip(columns, source, strict=True))
        return arrays_source(arrays, SourceColumns(*columns), key)
    if hasattr(source, "columns"):  # a whole table
        source = [source]
    if not isinstance(source, Iterable):
        raise ValueError(
            "source: expected Parquet files, a dataset, arrays or batches, got a "
            + type(source).__name__
        )
    return batches_source(source, names, key)


def _is_dataset(source: Any) -> bool:
    arrow = sys.modules.get("pyarrow.dataset")  # whoever has a dataset has imported it
    return arrow is not None and isinstance(source, arrow.Dataset)


def _all_are(values: Iterable[Any], kind: type | UnionType) -> bool:
    return all(isinstance(value, kind) for value in values)


@contextmanager
def _beside(cache: Path) -> Iterator[Path]:
    """A new directory beside the cache, removed at the end if it still exists.

    It is locked while it is written. A directory without a lock was left by a killed process, and
    is removed.
    """
    unfinished = cache.with_name(f".{cache.name}-{secrets.token_hex(8)}.partial")
    with ExitStack() as until_the_end:
        # The parent is locked, so that no other process removes the directory before its own lock.
        with ExitStack() as while_made:
            _lock(cache.parent, while_made, wait=True)
            for leftover in cache.parent.glob(f".{escape(cache.name)}-*.partial"):
                with ExitStack() as while_removed:
                    if _lock(leftover, while_removed, wait=False):
                        shutil.rmtree(leftover, ignore_errors=True)
            unfinished.mkdir()
            until_the_end.callback(shutil.rmtree, unfinished, ignore_errors=True)
            _lock(unfinished, until_the_end, wait=True)
        yield unfinished


def _lock(directory: Path, until: ExitStack, wait: bool) -> bool:
    """Lock a directory; returns whether that succeeded, as not all systems can."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        descriptor = os.open(directory, os.O_RDONLY)
        until.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _reopened(
    cache: Path, fingerprint: Fingerprint, checkpoint: str | os.PathLike[str] | None
) -> StoredRows:
    rows = StoredRows(cache, checkpoint)
    if fingerprint is None:
        raise ValueError(
            f"cache: {cache} has rows already, and batches or a filtered dataset cannot be "
            "compared with them; name their content by key=, take StoredRows(cache), or delete the "
            "directory"
        )
    if rows.fingerprint != fingerprint:
        raise ValueError(
            f"cache: {cache} is of another source: {_differences(rows.fingerprint, fingerprint)}; "
            "delete the directory, or name another"
        )
    return rows


def _call_fingerprint(source: Source, pos_label: Any) -> Fingerprint:
    """What the stored rows depend on; None if the source has no fingerprint."""
    fingerprint = source.fingerprint()
    if fingerprint is None or pos_label is None:
        return fingerprint
    return {**fingerprint, "pos_label": repr(pos_label)}


def _as_json(fingerprint: Fingerprint) -> Fingerprint:
    return json.loads(json.dumps(fingerprint))


def _differences(old: Fingerprint, new: Fingerprint) -> str:
    """A description of the differences between two fingerprints."""
    old, new = (_flat(x or {}) for x in (old, new))
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    shown = [f"{name} was {old.get(name)}, is {new.get(name)}" for name in names[:3]]
    return "; ".join(shown) + ("; ..." if len(names) > 3 else "")


def _flat(fingerprint: dict[str, Any]) -> dict[str, Any]:
    file_hashes = fingerprint.get("files", {})
    return {**{x: y for x, y in fingerprint.items() if x != "files"}, **file_hashes}
