"""The command line: `platt-jax demo`, `platt-jax fit`, `platt-jax apply`."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

import platt_jax
from platt_jax import Fit, SegmentCalibrator, Sigmoid, fit, fit_segments, load, save
from platt_jax.csvio import Parse, copy_with_column, label, number, read_columns, text

# What a shell reports of a program stopped by SIGINT or SIGPIPE.
_INTERRUPTED, _BROKEN_PIPE = 128 + 2, 128 + 13


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what a user can put right is one line on stderr and exit status 2.

    Ctrl-C ends it without a word, and so does a reader like `head` that has seen enough.
    """
    try:
        with _output_written(), _warnings_as_lines():
            arguments = _parser().parse_args(argv)
            arguments.command(arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        return _BROKEN_PIPE
    except (ValueError, OSError, MemoryError) as error:
        print(f"platt-jax: error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="platt-jax",
        description="Platt scaling for thousands to millions of classifiers at once. "
        "P(y=1 | score) = 1 / (1 + exp(A score + B)), so A < 0 for a useful score.",
    )
    parser.add_argument("--version", action="version", version=f"platt-jax {platt_jax.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="one sigmoid per aircraft and per route, on real data")
    demo.set_defaults(command=_demo)

    fitting = commands.add_parser("fit", help="fit sigmoids to the scores and labels of a CSV file")
    fitting.add_argument("file", metavar="FILE", help="CSV with a header line, in UTF-8")
    fitting.add_argument("--score", required=True, metavar="COL", help="column of scores")
    fitting.add_argument(
        "--label", required=True, metavar="COL", help="column of 0/1, -1/1 or true/false"
    )
    fitting.add_argument("--segment", metavar="COL", help="column of names: one sigmoid for each")
    fitting.add_argument("--weight", metavar="COL", help="column of weights; 2 is the row twice")
    fitting.add_argument("--out", required=True, metavar="FILE.npz", help="where the sigmoids go")
    fitting.set_defaults(command=_fit)

    applying = commands.add_parser("apply", help="add a column of probabilities to a CSV file")
    applying.add_argument("file", metavar="FILE", help="CSV with a header line, in UTF-8")
    applying.add_argument(
        "--calibrator", required=True, metavar="FILE.npz", help="from platt-jax fit"
    )
    applying.add_argument("--score", required=True, metavar="COL", help="column of scores")
    applying.add_argument("--segment", metavar="COL", help="column of names, if fitted with one")
    applying.add_argument(
        "--out", required=True, metavar="OUT.csv", help="FILE and a column 'probability'"
    )
    applying.set_defaults(command=_apply)
    return parser


def _demo(arguments: argparse.Namespace) -> None:
    from platt_jax import demo

    demo.run()


def _fit(arguments: argparse.Namespace) -> None:
    asked: dict[str, tuple[str | None, Parse]] = {
        "score": (arguments.score, number),
        "label": (arguments.label, label),
        "segment": (arguments.segment, text),
        "weight": (arguments.weight, number),
    }
    wanted = {role: (name, parse) for role, (name, parse) in asked.items() if name is not None}
    read = read_columns(arguments.file, list(wanted.values()))
    columns = dict(zip(wanted, read, strict=True))
    calibrator: Fit | SegmentCalibrator
    rows, weights = (columns["score"], columns["label"]), columns.get("weight")
    if "segment" in columns:
        calibrator = fit_segments(*rows, columns["segment"], weights=weights)
    else:
        calibrator = fit(*rows, weights=weights)
    save(arguments.out, calibrator)
    print(calibrator)
    print(f"saved to {arguments.out}")


def _apply(arguments: argparse.Namespace) -> None:
    calibrator = _load(arguments.calibrator, by_segment=arguments.segment is not None)
    wanted: list[tuple[str, Parse]] = [(arguments.score, number)]
    if arguments.segment is not None:
        wanted.append((arguments.segment, text))
    columns = read_columns(arguments.file, wanted)
    probability = calibrator.predict_proba(*columns)
    copy_with_column(arguments.file, arguments.out, "probability", probability)
    print(f"{len(probability):,} rows written to {arguments.out}")
    if isinstance(calibrator, SegmentCalibrator):
        unseen = np.count_nonzero(~np.isin(columns[1], calibrator.keys))
        print(f"{unseen:,} of them, in segments never fitted, by the fallback (all rows pooled)")
    if undefined := np.count_nonzero(np.isnan(probability)):
        print(f"{undefined:,} of them nan: the score is not finite, or the fit failed")


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


@contextmanager
def _output_written() -> Iterator[None]:
    """What was printed leaves here or is given up: at exit, Python could only complain."""
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
    with warnings.catch_warnings(record=True) as caught:
        yield
    for warning in caught:
        print(f"platt-jax: warning: {warning.message}", file=sys.stderr)
