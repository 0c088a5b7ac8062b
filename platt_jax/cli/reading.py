"""Reads what a command is given: its rows, and its calibrator."""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np

import platt_jax
from platt_jax import Fit, SegmentCalibrator, Sigmoid, ids, load
from platt_jax.cli import outputs
from platt_jax.cli.inputs import Input, staged
from platt_jax.cli.rows import read_rows
from platt_jax.ids.factorize import factorize
from platt_jax.results import tables


def with_fresh_rows(arguments: argparse.Namespace) -> tuple[SegmentCalibrator, dict[str, Any]]:
    """The segments' calibrator, and the fresh rows, maybe none, for a test or an update."""
    calibrator = load_calibrator(arguments.calibrator, arguments.segment)
    if not isinstance(calibrator, SegmentCalibrator):
        raise ValueError(
            f"{arguments.calibrator} has one sigmoid for all rows: triage, report and update need "
            "one that was fitted with --segment"
        )
    with staged(arguments.files, arguments.delimiter) as inputs:
        if not any(source.is_parquet for source in inputs):
            check_text(arguments.calibrator, calibrator)
        rows = _read_staged(arguments, inputs)
    if not len(rows["score"]):
        outputs.tell(f"platt-jax: {arguments.files[0]}: has a header line, but no rows")
        return calibrator, dict.fromkeys(rows, np.zeros(0))
    require_known(calibrator, len(rows["score"]), knows_some(calibrator, rows["segment"]))
    tell_work(rows)
    return calibrator, rows


def knows_some(calibrator: SegmentCalibrator, segments: Any) -> bool:
    """Whether a row is in a fitted segment or, with levels, has a fitted value of one."""
    if calibrator.seen(segments).any():
        return True
    if calibrator.by_level is None or not len(segments):
        return False
    rows = factorize(ids.read(segments))
    columns = ids.fields(rows.named(np.arange(rows.numbers)))
    for number, level in enumerate(calibrator.by_level.each):
        first = 0 if calibrator.by_level.kind == "nested" else number
        if (level.places(columns[first : number + 1]) >= 0).any():
            return True
    return False


def require_known(calibrator: SegmentCalibrator, rows: int, known: bool) -> None:
    """Refuse rows of which no segment is known, as of another column than that of the fit.

    A calibrator without segments only gets a line: it knows no segment of any file.
    """
    if rows and not len(calibrator):
        outputs.tell(
            "platt-jax: the calibrator has no segment: all rows are predicted as of an unseen one"
        )
    elif rows and not known:
        first = [tables.name(calibrator.keys, i) for i in range(min(3, len(calibrator)))]
        raise ValueError(
            f"--segment: none of the {rows:,} rows is in a segment that was fitted, such as "
            f"{', '.join(first)}: is it the right column?"
        )


def load_calibrator(path: str, segment: list[str]) -> Sigmoid | SegmentCalibrator:
    """The calibrator that `platt-jax fit` saved, checked against the columns of segments."""
    calibrator = load(path)
    if isinstance(calibrator, Fit):
        calibrator = calibrator.sigmoid
    if isinstance(calibrator, SegmentCalibrator):
        if not segment:
            raise ValueError(f"{path} has one sigmoid per segment: name their column by --segment")
        names = calibrator.keys.dtype.names
        if len(names or [""]) != len(segment):
            fitted = f"the columns {list(names)}" if names else "one column"
            raise ValueError(
                f"{path} has segments of {fitted}: expected a --segment for each, got {segment}"
            )
    elif not isinstance(calibrator, Sigmoid) or np.ndim(calibrator.A):
        raise ValueError(f"{path} holds a {type(calibrator).__name__} of many problems, not one")
    return calibrator


def check_text(path: str, calibrator: Sigmoid | SegmentCalibrator) -> None:
    """Check that the segments can equal fields of a CSV file, which are text."""
    if not isinstance(calibrator, SegmentCalibrator):
        return
    for column in ids.fields(calibrator.keys):
        if column.dtype.kind not in "UO":
            raise ValueError(
                f"{path} was fitted on segments of type {column.dtype}, and those of a CSV file "
                "are text"
            )


def read(arguments: argparse.Namespace, files: list[str]) -> dict[str, Any]:
    """The rows of these files, by role."""
    with staged(files, arguments.delimiter) as inputs:
        return _read_staged(arguments, inputs)


def _read_staged(arguments: argparse.Namespace, inputs: list[Input]) -> dict[str, Any]:
    if outputs.on_terminal():
        outputs.tell("platt-jax: reading " + ", ".join(source.name for source in inputs))
    pos_label = getattr(arguments, "pos_label", None)
    rows = on_scale(arguments, read_rows(inputs, columns(arguments), pos_label))
    if pos_label is not None and len(rows["label"]) and not (rows["label"] == 1).any():
        outputs.tell(f"platt-jax: no row has the label {pos_label!r} in column {arguments.label!r}")
    return rows


def columns(arguments: argparse.Namespace) -> dict[str, Any]:
    """The requested columns by role; a list for the segment."""
    roles = ("score", "label", "weight", "offset", "cluster")
    named = {role: getattr(arguments, role, None) for role in roles}
    columns: dict[str, Any] = {role: name for role, name in named.items() if name is not None}
    return {**columns, "segment": arguments.segment} if arguments.segment else columns


def on_scale(arguments: argparse.Namespace, rows: dict[str, Any]) -> dict[str, Any]:
    """The rows, with log-odds as scores if --logit is given."""
    if not arguments.logit:
        return rows
    try:
        return {**rows, "score": platt_jax.logit(rows["score"])}
    except ValueError as error:
        raise ValueError(f"--logit: column {arguments.score!r}: {error}") from None


def tell_work(rows: dict[str, Any]) -> None:
    """On a terminal, says how many rows were read, and that compilation takes time."""
    if outputs.on_terminal():
        config: Any = jax.config  # its attributes are not declared
        cached = config.jax_compilation_cache_dir
        compiling = "" if cached else "; compiling, which --cache FOLDER saves the next time"
        outputs.tell(f"platt-jax: {len(rows['score']):,} rows read{compiling}")
