"""The commands: each takes its parsed arguments and returns the exit status."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

import platt_jax
from platt_jax import Monitor, OneVsRestCalibrator, Options, SegmentCalibrator
from platt_jax.cli import csvio, outputs, parquet, reading, summaries
from platt_jax.cli.inputs import staged
from platt_jax.hypothesis_tests.verdict import together, verdict
from platt_jax.results import files
from platt_jax.results.fingerprint import digest
from platt_jax.results.probabilities import expit
from platt_jax.results.tables import Table, counted
from platt_jax.validation.doubts import FEW

_PROCESS_LOST, _ALARMS = 4, 5
# Options of `export` for some formats alone.
_OPTIONS_OF_EXPORT = {
    ("sql",): ("score", "dialect", "table", "view", "rows", "segment"),
    ("onnx",): ("dtype",),
    ("json", "onnx", "sql"): ("threshold",),
}
_BINARY = "a calibrator is a binary file"


def demo(arguments: argparse.Namespace) -> int:
    """`platt-jax demo`."""
    from platt_jax.cli import demo as flights_demo

    flights_demo.run()
    return 0


def fit(arguments: argparse.Namespace) -> int:
    """`platt-jax fit`."""
    outputs.check(arguments.out, *arguments.files, only_file=_BINARY)
    reading.check_classes(arguments)
    for name in ("pooling", "curve"):
        if getattr(arguments, name) and not arguments.segment and not arguments.scores:
            raise ValueError(f"--{name}: expected only with --segment or --scores")
    apart = not arguments.segment or _pooling(arguments) != "partial" or arguments.distributed
    if apart and (arguments.covariate or arguments.covariate_rows):
        raise ValueError(
            "--covariate: expected only with --segment and --pooling partial, and without "
            "--distributed"
        )
    if arguments.distributed:
        from platt_jax.cli import job

        if arguments.pos_label is not None:  # a third value may be in another process's files
            raise ValueError("--pos-label: expected without --distributed")
        if arguments.curve is not None:
            raise ValueError("--curve: expected without --distributed")
        return job.ending_all(partial(_fit_in_job, arguments), lost=_PROCESS_LOST)
    for name in ("checkpoint", "time_limit"):
        if getattr(arguments, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')}: expected only with --distributed")
    rows = reading.read(arguments, arguments.files)
    if not len(rows["scores"]):
        raise ValueError(f"{arguments.files[0]}: has a header line, but no rows to fit")
    reading.tell_work(rows)
    options = Options(non_finite=arguments.non_finite)
    common: dict[str, Any] = {"pooling": _pooling(arguments), "progress": _bar()}
    common["curve"] = arguments.curve or "sigmoid"
    if arguments.scores:
        classes = reading.named_classes(arguments)
        by_class = platt_jax.fit_one_vs_rest(**rows, classes=classes, **common, options=options)
        return summaries.saved(arguments, by_class)
    summaries.tell_one_class(rows["labels"])
    if "segments" not in rows:
        return summaries.saved(arguments, platt_jax.fit(**rows, options=options))
    common["covariates"] = reading.covariates(arguments, rows)
    by_segment = platt_jax.fit_segments(**rows, **common, options=options)
    summaries.tell_many_segments(arguments, len(by_segment), len(rows["scores"]))
    return summaries.saved(arguments, by_segment)


def _pooling(arguments: argparse.Namespace) -> Any:
    """What segments share: their population, unless the user or the kind of curve decides."""
    unpooled = arguments.scores or arguments.curve not in (None, "sigmoid")
    return arguments.pooling or ("none" if unpooled else "partial")


def _bar() -> bool:
    """Whether a progress bar can be shown, and would be seen."""
    return outputs.on_terminal() and find_spec("tqdm") is not None


def _fit_in_job(arguments: argparse.Namespace) -> int:
    if not arguments.segment:
        raise ValueError("--distributed: expected --segment, the column of segments, too")
    from platt_jax import distributed
    from platt_jax.cli import job

    process, processes = job.begin()
    process_rows = distributed.rows(
        **reading.read(arguments, arguments.files[process::processes]),
        checkpoint=arguments.checkpoint,
        time_limit=arguments.time_limit,
    )
    options = Options(non_finite=arguments.non_finite)
    calibrator = platt_jax.fit_segments(process_rows, pooling=_pooling(arguments), options=options)
    return summaries.saved(arguments, calibrator) if process == 0 else summaries.status(calibrator)


def update(arguments: argparse.Namespace) -> int:
    """`platt-jax update`."""
    calibrator: Any  # of one of two classes; the result is of the same
    calibrator, rows = reading.with_fresh_rows(arguments, arguments.out, _BINARY)
    updated = platt_jax.update(
        calibrator,
        **rows,
        forgetting=arguments.forgetting,
        night=arguments.night,
        options=Options(non_finite=arguments.non_finite),
        progress=_bar(),
    )
    return summaries.saved(arguments, updated)


def apply(arguments: argparse.Namespace) -> int:
    """`platt-jax apply`."""
    outputs.check(arguments.out, arguments.file, arguments.calibrator)
    calibrator = reading.load_calibrator(arguments)
    if arguments.segment and not isinstance(calibrator, SegmentCalibrator):
        raise ValueError(
            f"{arguments.calibrator} has one sigmoid for all rows: leave out --segment"
        )
    as_parquet = arguments.out.endswith(".parquet")
    if not arguments.name:
        raise ValueError("--name: expected the name of the new column, got ''")
    names = [arguments.name]
    if isinstance(calibrator, OneVsRestCalibrator):
        names = [f"{arguments.name}_{x}" for x in calibrator.classes.tolist()]
    counts = {"rows": 0, "unseen": 0, "nan": 0}
    any_known, votes = False, True

    def predict(rows: dict[str, Any]) -> NDArray[np.floating]:
        nonlocal any_known, votes
        votes = votes and bool(np.isin(rows["scores"], (0, 1)).all())
        p: NDArray[np.floating] = calibrator.predict_proba(**reading.on_scale(arguments, rows))
        p = p.reshape(len(p), len(names))
        counts["rows"] += len(p)
        counts["nan"] += int(np.count_nonzero(np.isnan(p).any(axis=1)))
        if isinstance(calibrator, SegmentCalibrator):
            counts["unseen"] += int(np.count_nonzero(~calibrator.seen(rows["segments"])))
            any_known = any_known or reading.knows_some(calibrator, rows["segments"])
        return p

    def check_known() -> None:
        if isinstance(calibrator, SegmentCalibrator):
            reading.require_known(calibrator, counts["rows"], any_known)

    columns = reading.columns(arguments, calibrator)
    with staged([arguments.file], arguments.delimiter) as (source,):
        if source.is_parquet:

            def copy(file: BinaryIO) -> Any:
                parquet.copy_with_columns(source, file, names, columns, predict, as_parquet)
                check_known()
        elif as_parquet:
            raise ValueError(f"{arguments.out}: expected a Parquet FILE for a Parquet output")
        else:
            rows = reading.read_rows([source], columns)
            reading.check_text(arguments.calibrator, calibrator)
            p = predict(rows)
            check_known()

            def copy(file: BinaryIO) -> Any:
                csvio.copy_with_columns(source, file, names, p)

        outputs.write(arguments.out, copy)
    summaries.tell_applied(arguments, counts, calibrator)
    if votes and counts["rows"] >= FEW:
        outputs.tell("platt-jax: warning: all scores are 0 or 1: is it the right column?")
    return 0


def shift(arguments: argparse.Namespace) -> int:
    """`platt-jax shift`."""
    outputs.check(arguments.out, arguments.calibrator, only_file=_BINARY)
    calibrator = reading.load_sigmoids(arguments)
    if isinstance(calibrator, OneVsRestCalibrator):
        raise ValueError(
            f"{arguments.calibrator} has one curve per class, and a rate of each: shift it by "
            "OneVsRestCalibrator.shift_prior"
        )
    rates = {"from_rate": arguments.from_rate, "to_rate": arguments.to_rate}
    try:
        shifted = calibrator.shift_prior(**rates)
    except ValueError as error:
        raise ValueError(f"--{str(error).replace('_', '-', 1)}") from None
    files.write(arguments.out, shifted, **reading.scale_of_rows(arguments))
    if arguments.json:
        print(json.dumps({**rates, "out": arguments.out}))
    else:
        print("from a rate of {from_rate:g} to {to_rate:g}".format(**rates))
        print(f"saved to {arguments.out}")
    return 0


def threshold(arguments: argparse.Namespace) -> int:
    """`platt-jax threshold`."""
    if arguments.out is not None:
        outputs.check(arguments.out, arguments.calibrator)
    calibrator = reading.load_sigmoids(arguments)
    if not isinstance(calibrator, SegmentCalibrator | OneVsRestCalibrator):
        raise ValueError(
            f"{arguments.calibrator} has one sigmoid for all rows: its threshold is -(log(p / "
            "(1 - p)) + B) / A, as Sigmoid.inverse computes it"
        )
    cost = arguments.cost and tuple(arguments.cost)
    rule = {"probability": arguments.probability, "level": arguments.level, "cost": cost}
    try:
        table = calibrator.threshold_table(**rule)
    except ValueError as error:
        raise ValueError(f"--{error}") from None
    if arguments.logit:  # scores as in the files
        table |= {name: expit(table[name]) for name in ("threshold", "lower", "upper")}
    if arguments.out is not None:
        outputs.write(arguments.out, partial(csvio.write_table, table))
    states, counts = np.unique(table["status"], return_counts=True)
    by_status = dict(zip(states.tolist(), counts.tolist(), strict=True))
    (noun, nouns), say = summaries.nouns(calibrator), outputs.beside(arguments.out)
    if arguments.json:
        say(json.dumps({nouns: len(calibrator), **rule, "status": by_status, "out": arguments.out}))
        return 0
    status_text = ", ".join(f"{n:,} {name}" for name, n in by_status.items())
    say(f"{counted(len(calibrator), noun)}: {status_text}")
    summaries.tell_table(table, arguments.out, say)
    return 0


def triage(arguments: argparse.Namespace) -> int:
    """`platt-jax triage`."""
    if arguments.cluster_sd is not None and arguments.cluster is None:
        raise ValueError("--cluster-sd: expected only with --cluster")
    calibrator, rows = reading.with_fresh_rows(arguments, arguments.out)
    test = {x: getattr(arguments, x) for x in ("fdr", "against", "margin")}
    table = platt_jax.triage(
        calibrator,
        **rows,
        **test,
        cluster_sd=arguments.cluster_sd,
        non_finite=arguments.non_finite,
    )
    flagged = int(np.count_nonzero(table["flagged"]))
    number, untested = len(table["flagged"]), int(np.count_nonzero(np.isnan(table["p_value"])))
    nouns = summaries.nouns(calibrator)
    if arguments.out is not None:
        outputs.write(arguments.out, partial(csvio.write_table, table))
    say = outputs.beside(arguments.out)
    if arguments.json:
        say(json.dumps({nouns[1]: number, "not_tested": untested, "flagged": flagged, **test}))
        return 0
    suffix = f" {untested:,} not tested (standard error says why)." if untested else ""
    say(verdict(table, arguments.fdr, nouns=nouns, against=arguments.against) + suffix)
    say(together(table))
    summaries.tell_table(table, arguments.out, say)
    return 0


def monitor(arguments: argparse.Namespace) -> int:
    """`platt-jax monitor`."""
    out = arguments.state if arguments.out is None else arguments.out
    if arguments.table is not None:
        inputs = *arguments.files, arguments.calibrator, out, arguments.state
        outputs.check(arguments.table, *inputs)
    calibrator, rows = reading.with_fresh_rows(arguments, out, "a monitor is a binary file")
    new = not os.path.exists(arguments.state)
    before = _opened_monitor(arguments, calibrator, new)
    settings = {x: getattr(arguments, x) for x in ("reported", "night", "non_finite")}
    labels = np.asarray(rows["labels"])
    if labels.dtype.kind not in "biuf":  # names of classes
        labels = np.unique(labels, return_inverse=True)[1]
    last = digest([rows["scores"], labels])
    if arguments.night is None and len(rows["scores"]) and last == before.history.last:
        outputs.tell(
            f"platt-jax: warning: the last night of {arguments.state} had the same scores and "
            "labels: are they counted twice? With --night ID a repeated call is refused"
        )
    after = before.update(**rows, **settings)
    after = replace(after, history=after.history._replace(last=last))
    fdr = arguments.fdr
    alarms = after.alarms(fdr, ever=arguments.ever)
    # The state comes last: a call that fails can be repeated.
    if arguments.table is not None:
        outputs.write(arguments.table, partial(csvio.write_table, after.table()))
    after.save(out, new=new and out == arguments.state)
    _tell_alarms(arguments, after, alarms, out)
    return _ALARMS if len(alarms["rows"]) else 0


def _opened_monitor(
    arguments: argparse.Namespace, calibrator: SegmentCalibrator | OneVsRestCalibrator, new: bool
) -> Monitor:
    """The monitor in the file, or a new one if there is no file."""
    settings = {x: getattr(arguments, x) for x in ("against", "margin", "night_sd")}
    settings = {name: value for name, value in settings.items() if value is not None}
    if new:
        if arguments.restart:
            raise ValueError(f"--restart: {arguments.state} does not exist")
        outputs.tell(f"platt-jax: {arguments.state} does not exist: a new monitor")
        return Monitor.start(calibrator, **settings)
    stored = Monitor.load(arguments.state, calibrator)
    for name, value in settings.items():
        if getattr(stored, name) != value:
            raise ValueError(
                f"--{name.replace('_', '-')}: {arguments.state} has {getattr(stored, name)}, got "
                f"{value}; it cannot be changed"
            )
    return _restarted_monitor(stored, arguments.restart) if arguments.restart else stored


def _restarted_monitor(monitor: Monitor, words: list[str]) -> Monitor:
    keys = monitor.state.keys
    if keys.dtype.names is not None:
        raise ValueError("--restart: expected segments of one column; Monitor.restart has no limit")
    key_by_word = {str(key): key for key in keys.tolist()}
    if unknown := [word for word in words if word not in key_by_word]:
        raise ValueError(f"--restart: expected segments of the monitor, got {', '.join(unknown)}")
    return monitor.restart([key_by_word[word] for word in words])


def _tell_alarms(arguments: argparse.Namespace, monitor: Monitor, alarms: Table, out: str) -> None:
    number, total, fdr = len(alarms["rows"]), len(monitor.table()["rows"]), arguments.fdr
    noun, nouns = summaries.nouns(monitor.calibrator)
    if arguments.json:
        test = {x: getattr(monitor, x) for x in ("against", "margin", "night_sd")}
        counts = {"night": monitor.night, nouns: total, "alarms": number}
        print(json.dumps({**counts, "fdr": fdr, **test, "out": out}))
        return
    when = "so far" if arguments.ever else "now"
    print(
        f"night {monitor.night:,}: alarms {when} for {number:,} of {counted(total, noun)}, at "
        f"a false discovery rate of {fdr:g}"
    )
    print(together(monitor.table(), "judged rows"))
    if number:
        summaries.tell_first(alarms, f"--table FILE.csv has all {nouns}")
    print(f"saved to {outputs.named(out)}")


def report(arguments: argparse.Namespace) -> int:
    """`platt-jax report`."""
    from platt_jax.report import to_html

    calibrator, rows = reading.with_fresh_rows(arguments, arguments.out, "a page is a file of HTML")
    number = len(rows["scores"])
    if not number:
        raise ValueError(f"{arguments.files[0]}: expected rows to report on")
    # With --logit the scores are log-odds of the probabilities before.
    to_html(arguments.out, calibrator, **rows, before="logits" if arguments.logit else None)
    noun, nouns = summaries.nouns(calibrator)
    if arguments.json:
        print(json.dumps({nouns: len(calibrator), "rows": number, "out": arguments.out}))
    else:
        kinds = f"{counted(len(calibrator), noun)} and {counted(number, 'row')}"
        print(f"a page of {kinds}: {arguments.out}")
    return 0


def export(arguments: argparse.Namespace) -> int:
    """`platt-jax export`."""
    from platt_jax import export as exports

    outputs.check(arguments.out, arguments.calibrator)
    for to, names in _OPTIONS_OF_EXPORT.items():
        if arguments.to not in to and (refused := [x for x in names if getattr(arguments, x)]):
            raise ValueError(f"--{refused[0]}: expected only with --to {' or '.join(to)}")
    if arguments.to == "sql" and arguments.score is None:
        raise ValueError("--score: expected the column of scores, with --to sql")
    calibrator: Any = reading.load_any(arguments)  # exports check its type
    if arguments.logit:
        outputs.tell(
            f"platt-jax: warning: {arguments.calibrator} was fitted with --logit: the export takes "
            "log-odds of its probabilities p, log(p / (1 - p)), as scores"
        )
    if isinstance(calibrator, OneVsRestCalibrator) and arguments.to != "json":
        raise ValueError(
            f"--to {arguments.to}: {arguments.calibrator} has one curve per class, which --to "
            "json writes; platt-jax apply computes probabilities of classes"
        )

    writers: dict[str, Callable[[], str | bytes]] = {
        "json": lambda: exports.to_json(calibrator, threshold=arguments.threshold) + "\n",
        "python": lambda: exports.to_python(calibrator),
        "javascript": lambda: exports.to_javascript(calibrator),
        "onnx": lambda: exports.to_onnx(
            calibrator, dtype=arguments.dtype or "float64", threshold=arguments.threshold
        ).SerializeToString(),
        "sql": lambda: _sql(arguments, calibrator),
    }
    content = writers[arguments.to]()
    as_bytes = content if isinstance(content, bytes) else content.encode()
    outputs.write(arguments.out, lambda file: file.write(as_bytes))
    say = outputs.beside(arguments.out)
    say(f"saved to {outputs.named(arguments.out)}")
    return 0


def _sql(arguments: argparse.Namespace, calibrator: Any) -> str:
    """An expression, or the statements that it needs first, with how to use them."""
    from platt_jax.export import to_sql

    settings = {x: getattr(arguments, x) for x in ("table", "view", "rows", "threshold")}
    columns = arguments.score, arguments.segment or None
    exported = to_sql(calibrator, *columns, dialect=arguments.dialect or "duckdb", **settings)
    if not exported.setup:
        return f"{exported.expression}\n"
    script = "".join(f"{statement};\n" for statement in exported.setup)
    if arguments.view:
        return script
    name = "probability" if arguments.threshold is None else "accepted"
    query = f"SELECT *, {exported.expression} AS {name} FROM rows {exported.join}"
    return script + "".join(f"-- {line}\n" for line in query.splitlines())
