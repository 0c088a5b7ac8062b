"""Reads what a command is given: its rows, and its calibrator.

Rows are arguments of the library's functions, by name: scores, labels, segments, weights, offset
and clusters.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

import platt_jax
from platt_jax import Fit, SegmentCalibrator, Sigmoid, ids, load
from platt_jax.cli import csvio, outputs, parquet
from platt_jax.cli.inputs import Input, staged
from platt_jax.ids.factorize import factorize
from platt_jax.results import tables

# Parsers of the fields of a text file. Segment 007 is not segment 7.
_PARSERS: dict[str, csvio.Parse] = {
    "scores": csvio.number,
    "labels": csvio.label,
    "weights": csvio.number,
    "offset": csvio.number,
    "clusters": str,
    "segments": str,
}


def with_fresh_rows(
    arguments: argparse.Namespace, out: str | None, only_file: str = ""
) -> tuple[SegmentCalibrator, dict[str, Any]]:
    """The segments' calibrator, and the fresh rows, maybe none, for a test or an update.

    First checks the output, None for none, as `outputs.check`.
    """
    if out is not None:
        outputs.check(out, *arguments.files, arguments.calibrator, only_file=only_file)
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
    if not len(rows["scores"]):
        outputs.tell(f"platt-jax: {arguments.files[0]}: has a header line, but no rows")
        return calibrator, dict.fromkeys(rows, np.zeros(0))
    require_known(calibrator, len(rows["scores"]), knows_some(calibrator, rows["segments"]))
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
    """The rows of these files."""
    with staged(files, arguments.delimiter) as inputs:
        return _read_staged(arguments, inputs)


def _read_staged(arguments: argparse.Namespace, inputs: list[Input]) -> dict[str, Any]:
    if outputs.on_terminal():
        outputs.tell("platt-jax: reading " + ", ".join(source.name for source in inputs))
    pos_label = getattr(arguments, "pos_label", None)
    rows = on_scale(arguments, read_rows(inputs, columns(arguments), pos_label))
    if pos_label is not None and len(rows["labels"]) and not (rows["labels"] == 1).any():
        outputs.tell(f"platt-jax: no row has the label {pos_label!r} in column {arguments.label!r}")
    return rows


def columns(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """The names of the requested columns, by argument; several for the segments only."""
    named = {x: getattr(arguments, x.removesuffix("s"), None) for x in _PARSERS}  # as --score
    given = {x: [name] if isinstance(name, str) else name for x, name in named.items()}
    return {x: names for x, names in given.items() if names}


def read_rows(
    inputs: Sequence[Input], columns: Mapping[str, list[str]], pos_label: str | None = None
) -> dict[str, Any]:
    """The rows of all files.

    Args:
        inputs: files, all Parquet or all text.
        columns: result of `columns`.
        pos_label: label of class 1 as text, if labels are two other values than 0 and 1.

    Returns:
        Arguments of the library's functions. A segment of several columns is a structured array, or
        a pyarrow table. Without files all are empty.

    Raises:
        ValueError: a file is damaged or lacks a column; or Parquet and text files are mixed.
        ImportError: a file is Parquet, and pyarrow is missing.
    """
    if not inputs:
        return dict.fromkeys(columns, np.zeros(0))
    kinds = [source.is_parquet for source in inputs]
    if any(kinds) and not all(kinds):
        raise ValueError(
            f"{inputs[kinds.index(True)].name} is a Parquet file, and "
            f"{inputs[kinds.index(False)].name} is not: expected files of one kind"
        )
    if all(kinds):
        return parquet.read_rows(inputs, columns, pos_label)
    parsers = _PARSERS | ({} if pos_label is None else {"labels": str})
    wanted = [(name, parsers[x]) for x, names in columns.items() for name in names]
    parts = [csvio.read_columns(source, wanted) for source in inputs]
    read = iter([np.concatenate(x) for x in zip(*parts, strict=True)])
    found: dict[str, Any] = {}
    for x, names in columns.items():
        each = [next(read) for _ in names]
        found[x] = each[0] if len(each) == 1 else ids.structured(names, each)
    if pos_label is not None:
        texts = np.char.strip(found["labels"])
        missing = csvio.are_missing(texts)
        (name,) = columns["labels"]
        found["labels"] = csvio.labels_by_name(texts[~missing], missing, pos_label.strip(), name)
    return found


def on_scale(arguments: argparse.Namespace, rows: dict[str, Any]) -> dict[str, Any]:
    """The rows, with log-odds as scores if --logit is given."""
    if not arguments.logit:
        return rows
    try:
        return {**rows, "scores": platt_jax.logit(rows["scores"])}
    except ValueError as error:
        raise ValueError(f"--logit: column {arguments.score!r}: {error}") from None


def tell_work(rows: dict[str, Any]) -> None:
    """On a terminal, says how many rows were read, and that compilation takes time."""
    if outputs.on_terminal():
        config: Any = jax.config  # its attributes are not declared
        cached = config.jax_compilation_cache_dir
        compiling = "" if cached else "; compiling, which --cache FOLDER saves the next time"
        outputs.tell(f"platt-jax: {len(rows['scores']):,} rows read{compiling}")
