"""`platt-jax monitor`: another night for a monitor in a file."""

from __future__ import annotations

import argparse
import json
import os
from functools import partial

from platt_jax import Monitor, SegmentCalibrator
from platt_jax.cli import csvio, outputs, summaries
from platt_jax.cli.reading import with_fresh_rows
from platt_jax.results.tables import Table

_ALARMS = 5


def monitor(arguments: argparse.Namespace) -> int:
    """`platt-jax monitor`."""
    out = arguments.state if arguments.out is None else arguments.out
    if arguments.table is not None:
        inputs = *arguments.files, arguments.calibrator, out, arguments.state
        outputs.check(arguments.table, *inputs)
    calibrator, rows = with_fresh_rows(arguments, out, "a monitor is a binary file")
    new = not os.path.exists(arguments.state)
    before = _opened(arguments, calibrator, new)
    given = {x: getattr(arguments, x) for x in ("reported", "night", "non_finite")}
    after = before.update(**rows, **given)
    fdr = arguments.fdr
    alarms = after.alarms(fdr, ever=arguments.ever)
    # The state comes last: a call that fails can be repeated.
    if arguments.table is not None:
        outputs.write(arguments.table, partial(csvio.write_table, after.table()))
    after.save(out, new=new and out == arguments.state)
    _tell(arguments, after, alarms, out)
    return _ALARMS if len(alarms["rows"]) else 0


def _opened(arguments: argparse.Namespace, calibrator: SegmentCalibrator, new: bool) -> Monitor:
    """The monitor in the file, or a new one if there is no file."""
    given = {x: getattr(arguments, x) for x in ("against", "margin", "night_sd")}
    given = {name: value for name, value in given.items() if value is not None}
    if new:
        if arguments.restart:
            raise ValueError(f"--restart: {arguments.state} does not exist")
        outputs.tell(f"platt-jax: {arguments.state} does not exist: a new monitor")
        return Monitor.start(calibrator, **given)
    found = Monitor.load(arguments.state, calibrator)
    for name, value in given.items():
        if getattr(found, name) != value:
            raise ValueError(
                f"--{name.replace('_', '-')}: {arguments.state} has {getattr(found, name)}, got "
                f"{value}; it cannot be changed"
            )
    return _restarted(found, arguments.restart) if arguments.restart else found


def _restarted(monitor: Monitor, words: list[str]) -> Monitor:
    """The monitor without the evidence of these segments."""
    keys = monitor.state.keys
    if keys.dtype.names is not None:
        raise ValueError("--restart: expected segments of one column; Monitor.restart has no limit")
    key_by_word = {str(key): key for key in keys.tolist()}
    if unknown := [word for word in words if word not in key_by_word]:
        raise ValueError(f"--restart: expected segments of the monitor, got {', '.join(unknown)}")
    return monitor.restart([key_by_word[word] for word in words])


def _tell(arguments: argparse.Namespace, monitor: Monitor, alarms: Table, out: str) -> None:
    number, segments, fdr = len(alarms["rows"]), len(monitor.table()["rows"]), arguments.fdr
    if arguments.json:
        test = {x: getattr(monitor, x) for x in ("against", "margin", "night_sd")}
        about = dict(
            night=monitor.night, segments=segments, alarms=number, fdr=fdr, **test, out=out
        )
        print(json.dumps(about))
        return
    when = "so far" if arguments.ever else "now"
    print(
        f"night {monitor.night:,}: alarms {when} for {number:,} of {segments:,} segments, at a "
        f"false discovery rate of {fdr:g}"
    )
    if number:
        summaries.tell_first(alarms, "--table FILE.csv has all segments")
    print(f"saved to {outputs.named(out)}")
