"""Reads what a command is given: its rows, and its calibrator.

Rows are arguments of the library's functions, by name: scores, labels, segments, weights, offset
and clusters. The scores of classes are several columns, which are stacked to an array (N, C).
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import platt_jax
from platt_jax import Fit, OneVsRestCalibrator, SegmentCalibrator, Sigmoid, ids, load
from platt_jax.cli import csvio, outputs, parquet
from platt_jax.cli.inputs import Input, staged
from platt_jax.ids.factorize import factorize
from platt_jax.ids.vocabulary import distinct
from platt_jax.results import tables
from platt_jax.results.files import Calibrator, header
from platt_jax.results.multiclass import MulticlassCalibrator

# Parsers of the fields of a text file. Segment 007 is not segment 7. Labels that are classes are
# `class_labels` until they are ids of classes.
_PARSERS: dict[str, csvio.Parse] = {
    "scores": csvio.number,
    "labels": csvio.label,
    "class_labels": str,
    "weights": csvio.number,
    "offset": csvio.number,
    "clusters": str,
    "covariates": str,
    "segments": str,
}


def with_fresh_rows(
    arguments: argparse.Namespace, out: str | None, only_file: str = ""
) -> tuple[SegmentCalibrator | OneVsRestCalibrator, dict[str, Any]]:
    """The calibrator of segments or classes, and fresh rows, maybe none, for a test or an update.

    First checks the output, None for none, as `outputs.check`.
    """
    if out is not None:
        outputs.check(out, *arguments.files, arguments.calibrator, only_file=only_file)
    calibrator = load_calibrator(arguments)
    if isinstance(calibrator, Sigmoid):
        raise ValueError(
            f"{arguments.calibrator} has one sigmoid for all rows: triage, report and update need "
            "one that was fitted with --segment or --scores"
        )
    with staged(arguments.files, arguments.delimiter) as inputs:
        if not any(source.is_parquet for source in inputs):
            check_text(arguments.calibrator, calibrator)
        rows = _read_staged(arguments, inputs, calibrator)
    if not len(rows["scores"]):
        outputs.tell(f"platt-jax: {arguments.files[0]}: has a header line, but no rows")
        return calibrator, dict.fromkeys(rows, np.zeros(0))
    if isinstance(calibrator, SegmentCalibrator):
        any_known = knows_some(calibrator, rows["segments"])
        require_known(calibrator, len(rows["scores"]), any_known)
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
    """Refuse rows of which no segment is known, as of another column than the fit's.

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


def check_classes(arguments: argparse.Namespace) -> None:
    """Check the options beside --scores. Some are refused without --scores, others with it."""
    scores = arguments.scores
    if arguments.score is not None and arguments.score == getattr(arguments, "label", None):
        raise ValueError(f"--score: expected another column than --label, got {arguments.score!r}")
    for name in ("classes", "labels"):
        if values := getattr(arguments, name, None):
            if scores is None:
                raise ValueError(f"--{name}: expected only with --scores")
            if len(values) != len(scores):
                raise ValueError(
                    f"--{name}: expected one for each of {len(scores)} columns of scores, got "
                    f"{len(values)}"
                )
    if scores is None:
        return
    if len(scores) == 1:
        raise ValueError("--scores: expected several columns; for one see --score")
    for name in ("segment", "offset", "pos_label", "distributed"):
        if getattr(arguments, name, None):
            raise ValueError(f"--{name.replace('_', '-')}: expected with --score, got --scores")


def named_classes(arguments: argparse.Namespace) -> list[str]:
    """The classes of the columns of scores."""
    classes: list[str] = arguments.classes or arguments.scores
    return classes


def load_any(arguments: argparse.Namespace) -> Calibrator:
    """The calibrator in a file. From here on `arguments.logit` is as its rows were fitted."""
    path = arguments.calibrator
    about = header(path)
    requested, fitted = getattr(arguments, "logit", False), about.get("logit")
    if requested and fitted is False:
        outputs.tell(f"platt-jax: warning: --logit, but {path} was fitted without it")
    arguments.logit = requested or fitted is True
    arguments.has_offset = about.get("offset", False)
    if arguments.has_offset and "offset" in arguments and arguments.offset is None:
        outputs.tell(
            f"platt-jax: warning: {path} was fitted with --offset: without it, an offset of 0 is "
            "taken for all rows"
        )
    return load(path)


def scale_of_rows(arguments: argparse.Namespace) -> dict[str, bool]:
    """What a file keeps of how its rows were read, for `load_any`."""
    fitted = getattr(arguments, "has_offset", False)
    has_offset = fitted or getattr(arguments, "offset", None) is not None
    return {"logit": arguments.logit, "offset": has_offset}


def load_sigmoids(
    arguments: argparse.Namespace,
) -> Sigmoid | Fit | SegmentCalibrator | OneVsRestCalibrator:
    """The calibrator in a file, if it is one that the commands take."""
    path, calibrator = arguments.calibrator, load_any(arguments)
    if isinstance(calibrator, MulticlassCalibrator):
        raise ValueError(
            f"{path} has a MulticlassCalibrator, which only Python takes: see its predict_proba"
        )
    return calibrator


def load_calibrator(
    arguments: argparse.Namespace,
) -> Sigmoid | SegmentCalibrator | OneVsRestCalibrator:
    """The calibrator that `platt-jax fit` saved, checked against the columns of its rows."""
    check_classes(arguments)
    path, segment = arguments.calibrator, arguments.segment
    calibrator = load_sigmoids(arguments)
    if isinstance(calibrator, OneVsRestCalibrator):
        classes = [str(x) for x in calibrator.classes.tolist()]
        if arguments.scores is None:
            raise ValueError(
                f"{path} has one curve per class: name the columns of scores of "
                f"{csvio.columns_there(classes)} by --scores"
            )
        if sorted(named_classes(arguments)) != sorted(classes):
            raise ValueError(
                f"--scores: expected columns of the classes {csvio.columns_there(classes)}, got "
                f"{csvio.columns_there(named_classes(arguments))}: see --classes"
            )
        return calibrator
    if arguments.scores is not None:
        raise ValueError(f"{path} has no classes: name its one column of scores by --score")
    if isinstance(calibrator, Fit):
        calibrator = calibrator.sigmoid
    if isinstance(calibrator, SegmentCalibrator):
        if not segment:
            raise ValueError(f"{path} has one curve per segment: name their column by --segment")
        names = calibrator.keys.dtype.names
        if len(names or [""]) != len(segment):
            fitted = f"the columns {list(names)}" if names else "one column"
            raise ValueError(
                f"{path} has segments of {fitted}: expected a --segment for each, got {segment}"
            )
    elif not isinstance(calibrator, Sigmoid) or np.ndim(calibrator.A):
        raise ValueError(f"{path} holds a {type(calibrator).__name__} of many problems, not one")
    return calibrator


def check_text(path: str, calibrator: Sigmoid | SegmentCalibrator | OneVsRestCalibrator) -> None:
    """Check that the segments can equal fields of a CSV file, which are text."""
    if not isinstance(calibrator, SegmentCalibrator):
        return
    for column in ids.fields(calibrator.keys):
        if column.dtype.kind not in "UO":
            raise ValueError(
                f"{path} was fitted on segments of type {column.dtype}, and a CSV file's segments "
                "are text"
            )


def read(arguments: argparse.Namespace, files: list[str]) -> dict[str, Any]:
    """The rows of these files."""
    with staged(files, arguments.delimiter) as inputs:
        return _read_staged(arguments, inputs)


def _read_staged(
    arguments: argparse.Namespace, inputs: list[Input], calibrator: Any = None
) -> dict[str, Any]:
    if outputs.on_terminal():
        outputs.tell("platt-jax: reading " + ", ".join(source.name for source in inputs))
    pos_label = getattr(arguments, "pos_label", None)
    rows = on_scale(arguments, read_rows(inputs, columns(arguments, calibrator), pos_label))
    if "class_labels" in rows:
        rows["labels"] = _class_ids(rows.pop("class_labels"), arguments, calibrator)
    if pos_label is not None and len(rows["labels"]) and not (rows["labels"] == 1).any():
        outputs.tell(f"platt-jax: no row has the label {pos_label!r} in column {arguments.label!r}")
    return rows


def _class_ids(texts: Any, arguments: argparse.Namespace, calibrator: Any) -> Any:
    """Labels that are classes as ids of the calibrator's type, which may be whole numbers."""
    if calibrator is None or calibrator.classes.dtype.kind not in "iu":
        return texts
    try:
        return np.asarray(texts).astype(calibrator.classes.dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"column {arguments.label!r}: expected classes of {arguments.calibrator}, which are "
            f"numbers: {error}"
        ) from None


def columns(arguments: argparse.Namespace, calibrator: Any = None) -> dict[str, list[str]]:
    """The names of the requested columns, by argument; several for segments and classes only.

    The columns of classes are in the order of the calibrator, if there is one.
    """
    chosen: dict[str, list[str]] = {}
    for x in _PARSERS:
        singular = x.removesuffix("s")  # as --score, or --segment
        names = getattr(arguments, x, None) or getattr(arguments, singular, None)
        if names:
            chosen[x] = [names] if isinstance(names, str) else names
    if arguments.scores and getattr(arguments, "label", None):
        chosen["class_labels"] = chosen.pop("labels")
    if isinstance(calibrator, OneVsRestCalibrator):
        positions = {name: i for i, name in enumerate(named_classes(arguments))}
        order = [positions[str(x)] for x in calibrator.classes.tolist()]
        for x in {"scores", "labels"} & set(chosen):
            chosen[x] = [chosen[x][i] for i in order]
    return chosen


def read_rows(
    inputs: Sequence[Input], columns: Mapping[str, list[str]], pos_label: str | None = None
) -> dict[str, Any]:
    """The rows of all files, all Parquet or all text, as arguments of the library's functions.

    A segment of several columns is a structured array, or a pyarrow table, and several columns of
    numbers are an array (N, C). Without files all are empty. `columns` is the result of `columns`.
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
    arrays = iter([np.concatenate(x) for x in zip(*parts, strict=True)])
    rows: dict[str, Any] = {}
    for x, names in columns.items():
        block = [next(arrays) for _ in names]
        if x == "covariates":
            rows[x] = [_numbers_or_text(column) for column in block]
        elif len(block) == 1:
            rows[x] = block[0]
        else:
            rows[x] = ids.structured(names, block) if x == "segments" else np.stack(block, axis=1)
    if pos_label is not None:
        texts = np.char.strip(rows["labels"])
        missing = csvio.are_missing(texts)
        (name,) = columns["labels"]
        rows["labels"] = csvio.labels_by_name(texts[~missing], missing, pos_label.strip(), name)
    return rows


def _numbers_or_text(texts: Any) -> Any:
    """A column of covariates by segment: numbers, NaN where missing, or else categories.

    Digits after a leading 0, as in postal codes, are a category.
    """
    words, code = np.unique(np.char.strip(texts), return_inverse=True)
    missing = csvio.are_missing(words)
    if not any(re.match(r"[+-]?0\d", word) for word in words.tolist()):
        with contextlib.suppress(ValueError):  # some are no numbers
            return np.array([csvio.number(word) for word in words.tolist()])[code]
    if missing.any():
        raise ValueError(
            f"--covariate: expected a category in each row, got {str(words[missing][0])!r}"
        )
    return texts


def covariates(arguments: argparse.Namespace, rows: dict[str, Any]) -> Any:
    """The covariates of segments, which leave the rows, by `fit_segments`; None for none."""
    if arguments.covariate_rows:
        return "rows"
    if not (columns := rows.pop("covariates", None)):
        return None
    codes, keys = distinct(ids.read(rows["segments"]))
    first = np.empty(len(keys), np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    table: dict[str, Any] = {"segment": keys}
    for name, column in zip(arguments.covariate, columns, strict=True):
        if name in table:
            raise ValueError(f"--covariate: expected another name than {name!r}, which is taken")
        values = np.asarray(column)
        # A missing number, which is no number equal to itself, is refused by `fit_segments`.
        differs = (values != values[first][codes]) & (values == values)
        if differs.any():
            segment = tables.name(keys, codes[np.argmax(differs)])
            raise ValueError(
                f"--covariate: column {name!r}: expected one value for all rows of a segment, got "
                f"several for {segment}"
            )
        table[name] = values[first]
    return table


def on_scale(arguments: argparse.Namespace, rows: dict[str, Any]) -> dict[str, Any]:
    """The rows, with log-odds as scores if --logit is given, or was when they were fitted."""
    if not arguments.logit:
        return rows
    try:
        return {**rows, "scores": platt_jax.logit(rows["scores"])}
    except ValueError as error:
        where = "--scores" if arguments.score is None else f"column {arguments.score!r}"
        hint = " (a calibrator keeps the --logit of its fit)" if "calibrator" in arguments else ""
        raise ValueError(f"--logit: {where}: {error}{hint}") from None


def tell_work(rows: dict[str, Any]) -> None:
    """On a terminal, says how many rows were read."""
    if outputs.on_terminal():
        outputs.tell(f"platt-jax: {tables.counted(len(rows['scores']), 'row')} read")
