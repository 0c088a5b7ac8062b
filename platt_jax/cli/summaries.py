"""Summaries of results on standard output and standard error, and exit statuses."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import Fit, OneVsRestCalibrator, SegmentCalibrator, Sigmoid, Status, ids
from platt_jax.cli import outputs, reading
from platt_jax.results import tables
from platt_jax.results.files import write
from platt_jax.results.fit import inspected

_FITS_FAILED = 3
_SEGMENTS_SHOWN = 10
_MANY_SEGMENTS, _ROWS_EACH = 20, 1.5
_BY_LEVELS = "what is known of their levels"
# What predicts segments that were not fitted, by the pooling.
_UNSEEN_BY = {"partial": "the population", "nested": _BY_LEVELS, "crossed": _BY_LEVELS}


def nouns(calibrator: SegmentCalibrator | OneVsRestCalibrator) -> tuple[str, str]:
    """What one fit of a calibrator is of, and several."""
    classes = isinstance(calibrator, OneVsRestCalibrator)
    return ("class", "classes") if classes else ("segment", "segments")


def saved(
    arguments: argparse.Namespace, calibrator: Fit | SegmentCalibrator | OneVsRestCalibrator
) -> int:
    """Save the calibrator and print a summary; returns the exit status."""
    write(arguments.out, calibrator, **reading.scale_of_rows(arguments))
    fit, _, _ = inspected(calibrator, any_curve=True)
    if arguments.json:
        about = {
            "problems": int(np.size(fit.A)),
            "positives": float(np.sum(fit.n_pos)),
            "negatives": float(np.sum(fit.n_neg)),
            "status": tables.status_counts(fit.status),
            "flags": tables.flag_counts(fit.flags),
            "out": arguments.out,
        }
        print(json.dumps(about))
    else:
        print(calibrator)
        print(f"saved to {arguments.out}")
    if isinstance(calibrator, SegmentCalibrator):
        _tell_empty_ids(calibrator)
    if failed := status(calibrator):
        _tell_failures(calibrator)
    return failed


def status(calibrator: Fit | SegmentCalibrator | OneVsRestCalibrator) -> int:
    """The exit status, which says whether some fits or the search for a population failed."""
    fit, _, _ = inspected(calibrator, any_curve=True)
    population = getattr(getattr(calibrator, "by_class", calibrator), "population", None)
    lost = population is not None and population.status == Status.MAX_ITERATIONS
    return _FITS_FAILED if lost or not np.all(fit.status == Status.CONVERGED) else 0


def tell_many_segments(arguments: argparse.Namespace, segments: int, rows: int) -> None:
    """Report segments of hardly more than a row each: --segment may name another column."""
    if segments >= _MANY_SEGMENTS and rows < _ROWS_EACH * segments:
        columns = " ".join(arguments.segment)
        outputs.tell(
            f"platt-jax: warning: --segment {columns}: {segments:,} segments of {rows:,} rows: is "
            "it the right column?"
        )


def tell_one_class(labels: NDArray[Any]) -> None:
    """Report labels that are all equal: --label may name another column than the outcome."""
    if labels[0] == labels[0] and (labels == labels[0]).all():
        outputs.tell(f"platt-jax: all {len(labels):,} labels are {labels[0]:g}")


def _tell_empty_ids(calibrator: SegmentCalibrator) -> None:
    """Report rows with an empty id, which form a segment of their own."""
    columns = ids.fields(calibrator.keys)
    empty = np.any([column == "" for column in columns if column.dtype.kind == "U"], axis=0)
    if np.any(empty):
        fit, *_ = inspected(calibrator, any_curve=True)
        rows = np.sum((fit.n_pos + fit.n_neg)[empty])
        outputs.tell(
            f"platt-jax: an empty id in {tables.counted(rows, 'row')}: a segment of their own"
        )


def _tell_failures(calibrator: Fit | SegmentCalibrator | OneVsRestCalibrator) -> None:
    fit, noun, keys = inspected(calibrator, any_curve=True)
    statuses = np.ravel(fit.status)
    failed = np.flatnonzero(statuses != Status.CONVERGED)
    if not len(failed):  # the search for the population, of which a warning tells
        return
    many = not isinstance(calibrator, Fit)
    first = f", the first in {noun} {tables.name(keys, failed[0])}" if many else ""
    status = Status(int(statuses[failed[0]]))
    outputs.tell(
        f"platt-jax: {len(failed):,} of {tables.counted(len(statuses), 'fit')} failed{first}: "
        f"{status.name}. {status.message}"
    )


def tell_table(table: tables.Table, out: str | None, say: Callable[[str], None]) -> None:
    """Print the first lines of a table, or the file that has it."""
    if out is None:
        tell_first(table, "--out FILE.csv has all")
    else:
        say(f"saved to {outputs.named(out)}")


def tell_first(table: tables.Table, where: str) -> None:
    """Print the first lines of a table by segment, and `where` the others are."""
    for line in table.lines(_SEGMENTS_SHOWN):
        print(line)
    number = max(map(len, table.values()))
    if number > _SEGMENTS_SHOWN:
        print(f"and {number - _SEGMENTS_SHOWN:,} more: {where}")


def tell_applied(
    arguments: argparse.Namespace,
    counts: dict[str, int],
    calibrator: Sigmoid | SegmentCalibrator | OneVsRestCalibrator,
) -> None:
    """Report the number of rows written, and of rows without a fitted segment or probability."""
    say = outputs.beside(arguments.out)
    if arguments.json:
        say(json.dumps({**counts, "out": arguments.out}))
        return
    say(f"{tables.counted(counts['rows'], 'row')} written to {outputs.named(arguments.out)}")
    if isinstance(calibrator, SegmentCalibrator) and counts["unseen"]:
        by = _UNSEEN_BY.get(calibrator.pooling, "the curve of all rows")
        say(f"of these {counts['unseen']:,} in segments that were not fitted: predicted by {by}")
    if counts["nan"]:
        say(
            f"of these {counts['nan']:,} with probability nan: the score is missing or not finite, "
            f"or {'a class' if arguments.scores else 'the segment'} has no curve"
        )
