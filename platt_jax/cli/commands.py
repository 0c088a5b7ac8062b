"""What each command does, given its parsed words; returns the exit status."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

import platt_jax
from platt_jax import Fit, Options, SegmentCalibrator, Sigmoid, Status, load, save
from platt_jax.cli import csvio, outputs, parquet
from platt_jax.cli.inputs import DASH, read_rows, staged
from platt_jax.results import tables

_FITS_FAILED, _PROCESS_LOST = 3, 4
_SEGMENTS_TOLD = 10


def demo(arguments: argparse.Namespace) -> int:
    """`platt-jax demo`."""
    from platt_jax.cli import demo as of_flights

    of_flights.run()
    return 0


def fit(arguments: argparse.Namespace) -> int:
    """`platt-jax fit`."""
    outputs.check(arguments.out, *arguments.files, only_file="a calibrator is a binary file")
    if arguments.pooling and not arguments.segment:
        raise ValueError("--pooling: expected only with --segment")
    if arguments.distributed:
        from platt_jax.cli import job

        return job.ending_all(partial(_fit_in_job, arguments), lost=_PROCESS_LOST)
    for name in ("checkpoint", "time_limit"):
        if getattr(arguments, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')}: expected only with --distributed")
    rows = _read(arguments, arguments.files)
    if not len(rows["score"]):
        raise ValueError(f"{arguments.files[0]}: has a header line, but no rows to fit")
    by_row, weights = (rows["score"], rows["label"]), rows.get("weight")
    if "segment" not in rows:
        return _written(
            arguments, platt_jax.fit(*by_row, weights=weights, options=_options(arguments))
        )
    calibrator = platt_jax.fit_segments(
        *by_row,
        rows["segment"],
        weights=weights,
        pooling=arguments.pooling or "none",
        options=_options(arguments),
        progress=_on_terminal(),
    )
    return _written(arguments, calibrator)


def _options(arguments: argparse.Namespace) -> Options:
    return Options(non_finite=arguments.non_finite or "flag")


def _on_terminal() -> bool:
    """Whether somebody sees how far the work is, and it can be shown."""
    seen = sys.stderr is not None and sys.stderr.isatty()
    return seen and find_spec("tqdm") is not None


def _fit_in_job(arguments: argparse.Namespace) -> int:
    if not arguments.segment:
        raise ValueError("--distributed: expected --segment, the column of segments, too")
    if arguments.pooling:
        raise ValueError("--pooling: expected only without --distributed")
    from platt_jax import distributed
    from platt_jax.cli import job

    process, processes = job.begin()
    rows = _read(arguments, arguments.files[process::processes])
    calibrator = distributed.fit_segments(
        *(rows[role] for role in ("score", "label", "segment")),
        weights=rows.get("weight"),
        options=_options(arguments),
        checkpoint=arguments.checkpoint,
        time_limit=arguments.time_limit,
    )
    return _written(arguments, calibrator) if process == 0 else _status(calibrator)


def _written(arguments: argparse.Namespace, calibrator: Fit | SegmentCalibrator) -> int:
    """The exit status, after the calibrator is saved and told of."""
    save(arguments.out, calibrator)
    found = calibrator.fit if isinstance(calibrator, SegmentCalibrator) else calibrator
    if arguments.json:
        about = {
            "problems": int(np.size(found.A)),
            "positives": float(np.sum(found.n_pos)),
            "negatives": float(np.sum(found.n_neg)),
            "status": tables.status_counts(found),
            "flags": tables.flag_counts(found),
            "out": arguments.out,
        }
        print(json.dumps(about))
    else:
        print(calibrator)
        print(f"saved to {arguments.out}")
    if isinstance(calibrator, SegmentCalibrator):
        _tell_empty_ids(calibrator)
    if status := _status(calibrator):
        _tell_failures(calibrator)
    return status


def _status(calibrator: Fit | SegmentCalibrator) -> int:
    found = calibrator.fit if isinstance(calibrator, SegmentCalibrator) else calibrator
    return 0 if np.all(found.status == Status.CONVERGED) else _FITS_FAILED


def _tell_empty_ids(calibrator: SegmentCalibrator) -> None:
    """Fields of a CSV file without an id make a segment, which few expect."""
    keys = calibrator.keys
    columns = [keys] if keys.dtype.names is None else [keys[name] for name in keys.dtype.names]
    empty = np.any([column == "" for column in columns if column.dtype.kind == "U"], axis=0)
    if np.any(empty):
        rows = np.sum((calibrator.fit.n_pos + calibrator.fit.n_neg)[empty])
        outputs.tell(f"platt-jax: {rows:,.0f} rows have an empty id: a segment of their own")


def _tell_if_none_seen(calibrator: SegmentCalibrator, seen: int, rows: int) -> None:
    if rows and not len(calibrator):
        outputs.tell(
            "platt-jax: the calibrator has no segment: all rows are predicted as of an unseen one"
        )
    elif rows and not seen:
        first = [tables.name(calibrator.keys, i) for i in range(min(3, len(calibrator)))]
        outputs.tell(
            f"platt-jax: none of the {rows:,} rows is in a segment that was fitted, such as "
            f"{', '.join(first)}: is --segment the right column?"
        )


def _tell_failures(calibrator: Fit | SegmentCalibrator) -> None:
    if isinstance(calibrator, SegmentCalibrator):
        statuses, keys = calibrator.fit.status, calibrator.keys
    else:
        statuses, keys = np.ravel(calibrator.status), None
    failed = np.flatnonzero(statuses != Status.CONVERGED)
    first = "" if keys is None else f", the first in segment {tables.name(keys, failed[0])}"
    status = Status(int(statuses[failed[0]]))
    outputs.tell(
        f"platt-jax: {len(failed):,} of {len(statuses):,} fits failed{first}: "
        f"{status.name}. {status.message}"
    )


def apply(arguments: argparse.Namespace) -> int:
    """`platt-jax apply`."""
    outputs.check(arguments.out, arguments.file, arguments.calibrator)
    calibrator = _load(arguments.calibrator, arguments.segment)
    if arguments.segment and not isinstance(calibrator, SegmentCalibrator):
        raise ValueError(
            f"{arguments.calibrator} has one sigmoid for all rows: leave out --segment"
        )
    as_parquet = arguments.out.endswith(".parquet")
    counts = {"rows": 0, "unseen": 0, "nan": 0}

    def predict(rows: dict[str, Any]) -> NDArray[np.floating]:
        by_row = [rows[role] for role in ("score", "segment") if role in rows]
        p: NDArray[np.floating] = calibrator.predict_proba(*by_row)
        counts["rows"] += len(p)
        counts["nan"] += int(np.count_nonzero(np.isnan(p)))
        if isinstance(calibrator, SegmentCalibrator):
            counts["unseen"] += int(np.count_nonzero(~calibrator.seen(rows["segment"])))
        return p

    with staged([arguments.file], arguments.delimiter) as (source,):
        if source.is_parquet:
            columns = _columns(arguments)

            def copy(file: BinaryIO) -> Any:
                return list(
                    parquet.copy_with_column(
                        source, file, "probability", columns, predict, as_parquet
                    )
                )
        elif as_parquet:
            raise ValueError(f"{arguments.out}: expected a Parquet FILE for a Parquet output")
        else:
            rows = read_rows([source], _columns(arguments))
            _check_text(arguments.calibrator, calibrator)
            p = predict(rows)

            def copy(file: BinaryIO) -> Any:
                csvio.copy_with_column(source, file, "probability", p)

        outputs.write(arguments.out, copy)
    _tell_applied(arguments, counts, calibrator)
    return 0


def _tell_applied(
    arguments: argparse.Namespace, counts: dict[str, int], calibrator: Sigmoid | SegmentCalibrator
) -> None:
    say = outputs.tell if arguments.out == DASH else print
    if isinstance(calibrator, SegmentCalibrator):
        _tell_if_none_seen(calibrator, counts["rows"] - counts["unseen"], counts["rows"])
    if arguments.json:
        say(json.dumps({**counts, "out": arguments.out}))
        return
    say(f"{counts['rows']:,} rows written to {outputs.named(arguments.out)}")
    if isinstance(calibrator, SegmentCalibrator):
        by = "the population" if calibrator.pooling == "partial" else "the curve of all rows"
        say(f"{counts['unseen']:,} of them, in segments never fitted, by {by}")
    if counts["nan"]:
        say(f"{counts['nan']:,} of them nan: the score is not finite, or the segment has no curve")


def triage(arguments: argparse.Namespace) -> int:
    """`platt-jax triage`."""
    if arguments.out is not None:
        outputs.check(arguments.out, *arguments.files, arguments.calibrator)
    calibrator, rows = _judged(arguments)
    level = 0.05 if arguments.level is None else arguments.level
    by_row = (rows[role] for role in ("score", "label", "segment"))
    table = platt_jax.triage(calibrator, *by_row, level=level)
    flagged = int(np.count_nonzero(table["flagged"]))
    number = len(table["flagged"])
    if arguments.out is not None:
        outputs.write(arguments.out, partial(csvio.write_table, table))
    say = outputs.tell if arguments.out == DASH else print
    if arguments.json:
        say(json.dumps({"segments": number, "flagged": flagged, "level": level}))
        return 0
    say(f"{flagged:,} of {number:,} segments flagged at a false discovery rate of {level:g}")
    if arguments.out is None:
        for line in table.lines(_SEGMENTS_TOLD):
            say(line)
        if number > _SEGMENTS_TOLD:
            say(f"and {number - _SEGMENTS_TOLD:,} more: --out FILE.csv has all")
    else:
        say(f"saved to {outputs.named(arguments.out)}")
    return 0


def report(arguments: argparse.Namespace) -> int:
    """`platt-jax report`."""
    inputs = *arguments.files, arguments.calibrator
    outputs.check(arguments.out, *inputs, only_file="a page is a file")
    calibrator, rows = _judged(arguments)
    calibrator.to_html(arguments.out, *(rows[role] for role in ("score", "label", "segment")))
    number = len(rows["score"])
    if arguments.json:
        print(json.dumps({"segments": len(calibrator), "rows": number, "out": arguments.out}))
    else:
        print(f"a page of {len(calibrator):,} segments and {number:,} rows: {arguments.out}")
    return 0


def export(arguments: argparse.Namespace) -> int:
    """`platt-jax export`."""
    from platt_jax import export as exports

    outputs.check(arguments.out, arguments.calibrator)
    of_sql = ("score", "dialect", "table", "segment")
    if arguments.to != "sql" and (given := [x for x in of_sql if getattr(arguments, x)]):
        raise ValueError(f"--{given[0]}: expected only with --to sql")
    if arguments.to == "sql" and arguments.score is None:
        raise ValueError("--score: expected the column of scores, with --to sql")
    calibrator: Any = load(arguments.calibrator)  # exports refuse a kind that they do not take

    def sql() -> str:
        made = exports.to_sql(
            calibrator,
            arguments.score,
            arguments.segment or None,
            dialect=arguments.dialect or "duckdb",
            table=arguments.table,
        )
        statements = [f"{statement};\n" for statement in made.setup]
        return "".join(statements) + f"{made.expression}\n{made.join}".rstrip() + "\n"

    made: dict[str, Callable[[], str | bytes]] = {
        "json": lambda: exports.to_json(calibrator) + "\n",
        "python": lambda: exports.to_python(calibrator),
        "onnx": lambda: exports.to_onnx(calibrator).SerializeToString(),
        "sql": sql,
    }
    content = made[arguments.to]()
    as_bytes = content if isinstance(content, bytes) else content.encode()
    outputs.write(arguments.out, lambda file: file.write(as_bytes))
    return 0


def _columns(arguments: argparse.Namespace) -> dict[str, Any]:
    """The columns asked for, by role; of the segment a list."""
    named = {role: getattr(arguments, role, None) for role in ("score", "label", "weight")}
    columns: dict[str, Any] = {role: name for role, name in named.items() if name is not None}
    return {**columns, "segment": arguments.segment} if arguments.segment else columns


def _read(arguments: argparse.Namespace, files: list[str]) -> dict[str, Any]:
    with staged(files, arguments.delimiter) as inputs:
        return read_rows(inputs, _columns(arguments))


def _judged(arguments: argparse.Namespace) -> tuple[SegmentCalibrator, dict[str, Any]]:
    """The calibrator, and the rows that it is judged by."""
    calibrator = _load(arguments.calibrator, arguments.segment)
    if not isinstance(calibrator, SegmentCalibrator):
        raise ValueError(
            f"{arguments.calibrator} has one sigmoid for all rows: triage and report need one that "
            "was fitted with --segment"
        )
    with staged(arguments.files, arguments.delimiter) as inputs:
        if not any(source.is_parquet for source in inputs):
            _check_text(arguments.calibrator, calibrator)
        rows = read_rows(inputs, _columns(arguments))
    if not len(rows["score"]):
        raise ValueError(f"{arguments.files[0]}: has a header line, but no rows")
    seen = calibrator.seen(rows["segment"])
    _tell_if_none_seen(calibrator, int(np.count_nonzero(seen)), len(seen))
    return calibrator, rows


def _load(path: str, segment: list[str]) -> Sigmoid | SegmentCalibrator:
    """What `platt-jax fit` saved with these columns of segments, or without one."""
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


def _check_text(path: str, calibrator: Sigmoid | SegmentCalibrator) -> None:
    """Refuse a calibrator whose segments no field of a CSV file is equal to."""
    if not isinstance(calibrator, SegmentCalibrator):
        return
    dtype = calibrator.keys.dtype
    kinds = [dtype] if dtype.names is None else [dtype[name] for name in dtype.names]
    for kind in kinds:
        if kind.kind not in "UO":
            raise ValueError(
                f"{path} was fitted on segments of type {kind}, and those of a CSV file are text"
            )
