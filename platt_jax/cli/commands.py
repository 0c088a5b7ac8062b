"""The command line: `platt-jax demo`, `platt-jax fit`, `platt-jax apply`."""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

import platt_jax
from platt_jax import Fit, SegmentCalibrator, Sigmoid, Status, fit, fit_segments, load, save
from platt_jax.cli.csvio import (
    STDOUT,
    Column,
    Parse,
    copy_with_column,
    label,
    number,
    read_columns,
    text,
)

_FITS_FAILED, _PROCESS_LOST = 3, 4
# What a shell reports of a program stopped by SIGINT or SIGPIPE.
_INTERRUPTED, _BROKEN_PIPE = 128 + 2, 128 + 13


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what a user can put right is one line on stderr and exit status 2.

    Fits that failed are one line there too, and exit status 3, but the file is written. Ctrl-C ends
    it without a word, and so does a reader like `head` that has seen enough.
    """
    try:
        with _output_written(), _warnings_as_lines():
            arguments = _parser().parse_args(argv)
            return arguments.command(arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        return _BROKEN_PIPE
    except (ValueError, OSError, MemoryError) as error:
        _tell(f"platt-jax: error: {error}")
        return 2


class _Once(argparse.Action):
    """Stores a value, and refuses a second one, where argparse by itself would take the last."""

    def __call__(self, parser, namespace, values, option_string=None):
        if getattr(namespace, self.dest) is not None:
            raise argparse.ArgumentError(self, "given twice")
        setattr(namespace, self.dest, values)


def _parser() -> argparse.ArgumentParser:
    exit_statuses = (
        "exit status: 0 done, and every fit converged; 2 bad input, or an output that cannot be "
        "written; 3 some fits failed, or all: the calibrator is written, and one line on standard "
        "error says how many failed and which first; 4 with --distributed, another process ended, "
        "or said nothing for too long."
    )
    parser = argparse.ArgumentParser(
        prog="platt-jax",
        description="Platt scaling for thousands to millions of classifiers at once. "
        "P(y=1 | score) = 1 / (1 + exp(A score + B)), so A < 0 for a useful score.",
        epilog=exit_statuses,
    )
    parser.add_argument("--version", action="version", version=f"platt-jax {platt_jax.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="one sigmoid per aircraft and per route, on real data")
    demo.set_defaults(command=_demo)

    def add_command(name: str, about: str) -> tuple[argparse.ArgumentParser, Callable]:
        command = commands.add_parser(name, help=about, description=about, epilog=exit_statuses)
        return command, partial(command.add_argument, action=_Once)

    about_file = "CSV with a header line, in UTF-8"
    fitting, option = add_command("fit", "fit sigmoids to the scores and labels of CSV files")
    fitting.add_argument("files", metavar="FILE", nargs="+", help=about_file)
    option("--score", required=True, metavar="COL", help="column of scores")
    option("--label", required=True, metavar="COL", help="column of 0/1, -1/1 or true/false")
    option("--segment", metavar="COL", help="column of names: one sigmoid for each")
    option("--weight", metavar="COL", help="column of weights; 2 is the row twice")
    option("--out", required=True, metavar="FILE.npz", help="where the sigmoids go")
    several = fitting.add_argument_group(
        "several processes",
        "Started by SLURM (srun), Open MPI (mpirun) or another launcher that "
        "jax.distributed.initialize knows. Process i of n reads every n-th FILE, from the i-th on; "
        "a segment may have rows in all of them.",
    )
    several.add_argument("--distributed", action="store_true", help="fit by all processes of a job")
    several.add_argument(
        "--checkpoint",
        metavar="DIR",
        action=_Once,
        help="keep the sums of each pass there; the same command goes on from them",
    )
    several.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=float,
        action=_Once,
        help="how long a process waits for the others in a pass; forever if not given",
    )
    fitting.set_defaults(command=_fit)

    applying, option = add_command("apply", "add a column of probabilities to a CSV file")
    applying.add_argument("file", metavar="FILE", help=about_file)
    option("--calibrator", required=True, metavar="FILE.npz", help="from platt-jax fit")
    option("--score", required=True, metavar="COL", help="column of scores")
    option("--segment", metavar="COL", help="column of names, if fitted with one")
    option(
        "--out",
        required=True,
        metavar="OUT.csv",
        help="FILE and a column 'probability'; - for standard output",
    )
    applying.set_defaults(command=_apply)
    return parser


def _demo(arguments: argparse.Namespace) -> int:

    from platt_jax.cli import demo

    demo.run()
    return 0


def _fit(arguments: argparse.Namespace) -> int:
    if arguments.out == STDOUT:
        raise ValueError("a calibrator is a binary file: --out needs its name, got -")
    _check_files(arguments.out, *arguments.files)
    if os.path.exists(arguments.out) and not os.path.isfile(arguments.out):
        raise ValueError(f"{arguments.out}: is no regular file, which --out has to be")
    if arguments.distributed:
        from platt_jax.cli import job

        return job.ending_all(partial(_fit_in_job, arguments), lost=_PROCESS_LOST)
    for name in ("checkpoint", "time_limit"):
        if getattr(arguments, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')}: expected only with --distributed")
    columns = _columns(arguments, arguments.files)
    if not len(columns["score"]):
        raise ValueError(f"{arguments.files[0]}: has a header line, but no rows to fit")
    calibrator: Fit | SegmentCalibrator
    rows, weights = (columns["score"], columns["label"]), columns.get("weight")
    if "segment" in columns:
        calibrator = fit_segments(*rows, columns["segment"], weights=weights)
    else:
        calibrator = fit(*rows, weights=weights)
    return _written(arguments, calibrator)


def _fit_in_job(arguments: argparse.Namespace) -> int:
    if arguments.segment is None:
        raise ValueError("--distributed: expected --segment, the column of segments, too")
    from platt_jax import distributed
    from platt_jax.cli import job

    process, processes = job.begin()
    columns = _columns(arguments, arguments.files[process::processes])
    calibrator = distributed.fit_segments(
        *(columns[role] for role in ("score", "label", "segment")),
        weights=columns.get("weight"),
        checkpoint=arguments.checkpoint,
        time_limit=arguments.time_limit,
    )
    return _written(arguments, calibrator) if process == 0 else _status(calibrator)


def _columns(arguments: argparse.Namespace, files: Sequence[str]) -> dict[str, Column]:
    """By role, the columns asked for, of the rows of all files; empty ones without a file."""
    asked: dict[str, tuple[str | None, Parse]] = {
        "score": (arguments.score, number),
        "label": (arguments.label, label),
        "segment": (arguments.segment, text),
        "weight": (arguments.weight, number),
    }
    wanted = {role: (name, parse) for role, (name, parse) in asked.items() if name is not None}
    parts = [read_columns(file, list(wanted.values())) for file in files]
    if not parts:
        return dict.fromkeys(wanted, np.zeros(0))
    return dict(zip(wanted, map(np.concatenate, zip(*parts, strict=True)), strict=True))


def _written(arguments: argparse.Namespace, calibrator: Fit | SegmentCalibrator) -> int:
    """The exit status, after the calibrator is saved and shown."""
    save(arguments.out, calibrator)
    print(calibrator)
    print(f"saved to {arguments.out}")
    return _report_failures(calibrator)


def _status(calibrator: Fit | SegmentCalibrator) -> int:
    found = calibrator.fit if isinstance(calibrator, SegmentCalibrator) else calibrator
    return 0 if np.all(found.status == Status.CONVERGED) else _FITS_FAILED


def _report_failures(calibrator: Fit | SegmentCalibrator) -> int:
    """The exit status; fits that failed are counted on stderr, and the first is named."""
    if isinstance(calibrator, SegmentCalibrator):
        statuses, names = calibrator.fit.status, calibrator.keys.tolist()
    else:
        statuses, names = np.ravel(calibrator.status), None
    failed = np.flatnonzero(statuses != Status.CONVERGED)
    if not len(failed):
        return _status(calibrator)
    first = f", the first in segment {names[failed[0]]!r}" if names else ""
    status = Status(int(statuses[failed[0]]))
    _tell(
        f"platt-jax: {len(failed):,} of {len(statuses):,} fits failed{first}: "
        f"{status.name}. {status.message}"
    )
    return _status(calibrator)


def _apply(arguments: argparse.Namespace) -> int:
    _check_files(arguments.out, arguments.file, arguments.calibrator)
    calibrator = _load(arguments.calibrator, by_segment=arguments.segment is not None)
    wanted: list[tuple[str, Parse]] = [(arguments.score, number)]
    if arguments.segment is not None:
        wanted.append((arguments.segment, text))
    columns = read_columns(arguments.file, wanted)
    probability = calibrator.predict_proba(*columns)
    copy_with_column(arguments.file, arguments.out, "probability", probability)
    to_stdout = arguments.out == STDOUT
    say = _tell if to_stdout else print
    say(f"{len(probability):,} rows written to {'standard output' if to_stdout else arguments.out}")
    if isinstance(calibrator, SegmentCalibrator):
        unseen = np.count_nonzero(~np.isin(columns[1], calibrator.keys))
        say(f"{unseen:,} of them, in segments never fitted, by the fallback (all rows pooled)")
    if undefined := np.count_nonzero(np.isnan(probability)):
        say(f"{undefined:,} of them nan: the score is not finite, or the fit failed")
    return 0


def _check_files(output: str, *inputs: str) -> None:
    """Refuse, before any work, an output that cannot be, or that is one of the inputs.

    Raises:
        ValueError: Says which file, and why.
    """
    for path in inputs:
        if path == "-":
            raise ValueError("-: standard input is not read, expected the name of a file")
    if not output:
        raise ValueError("--out: expected the name of a file, got ''")
    if output == STDOUT:
        if sys.stdout is None:
            raise ValueError(f"{output}: standard output is closed")
        written: os.stat_result | None = os.fstat(sys.stdout.fileno())
    elif os.path.isdir(output):
        raise ValueError(f"{output}: is a directory")
    elif (folder := os.path.dirname(output)) and not os.path.isdir(folder):
        raise ValueError(f"{output}: there is no directory {folder}")
    else:
        written = os.stat(output) if os.path.exists(output) else None
    for path in inputs:
        if written and os.path.exists(path) and os.path.samestat(written, os.stat(path)):
            raise ValueError(f"{output}: would overwrite the file that is being read")


def _load(path: str, by_segment: bool) -> Sigmoid | SegmentCalibrator:
    """What `platt-jax fit` saved with, or without, a segment column."""
    calibrator = load(path)
    if isinstance(calibrator, Fit):
        calibrator = calibrator.sigmoid
    if isinstance(calibrator, SegmentCalibrator):
        if not by_segment:
            raise ValueError(f"{path} has one sigmoid per segment: name their column by --segment")
        if calibrator.keys.dtype.kind != "U":
            raise ValueError(
                f"{path} was fitted on segments of type {calibrator.keys.dtype}, "
                "and those of a CSV file are text"
            )
    elif not isinstance(calibrator, Sigmoid) or np.ndim(calibrator.A):
        raise ValueError(f"{path} holds a {type(calibrator).__name__} of many problems, not one")
    elif by_segment:
        raise ValueError(f"{path} has one sigmoid for all rows: leave out --segment")
    return calibrator


def _tell(line: str) -> None:
    """A line on standard error, if that is open; print would take standard output instead."""
    if sys.stderr is not None:
        print(line, file=sys.stderr)


@contextmanager
def _output_written() -> Iterator[None]:
    """What was printed leaves here or is given up: at exit, Python could only complain.

    A character that the terminal's encoding lacks is escaped, as Python does on standard error.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        try:
            print(end="", flush=True)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Warnings as lines in the manner of the errors, without the place in the code."""

    def show(message, *_):
        _tell(f"platt-jax: warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
