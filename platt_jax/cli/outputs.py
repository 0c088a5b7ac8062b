"""Outputs of a command: files, written atomically; standard output; messages to the user."""

from __future__ import annotations

import gzip
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from platt_jax.cli.inputs import DASH, ROWS_ENDINGS
from platt_jax.results.atomic import destination, naming_file, write_atomically

# Python arguments in the library's messages, and the command-line options that replace them.
_IN_THE_SHELL = {
    'Options(non_finite="omit")': "--non-finite omit",
    'triage(..., non_finite="omit")': "--non-finite omit",
    'triage(..., against="predictions")': "--against predictions",
    'Monitor.start(..., against="predictions")': "--against predictions",
    "raise Options(max_iter=...), or look": "look",
    "platt_jax.logit(p)": "--logit",
    'see pooling="partial"': "see --pooling partial",
    'covariates="rows"': "--covariate-rows",
    "labels: expected pos_label=": "expected --pos-label ",
    "is not among classes": "is not among the classes (see --scores, --classes)",
}


def check(output: str, *inputs: str, only_file: str = "") -> None:
    """Check, before any work, that an output can be written and is none of the inputs.

    `only_file` is the reason why it must be a regular file, and not be named like a file of rows;
    empty if it need not be one.
    """
    if not output:
        raise ValueError("--out: expected the name of a file, got ''")
    if output == DASH:
        if only_file:
            raise ValueError(f"{only_file}: --out needs its name, got -")
        if sys.stdout is None:
            raise ValueError(f"{output}: standard output is closed")
        written: os.stat_result | None = os.fstat(sys.stdout.fileno())
    elif os.path.isdir(output):
        raise ValueError(f"{output}: is a directory")
    elif (folder := os.path.dirname(output)) and not os.path.isdir(folder):
        raise ValueError(f"{output}: there is no directory {folder}")
    else:
        written = os.stat(output) if os.path.exists(output) else None
        if only_file and written and not os.path.isfile(output):
            raise ValueError(f"{output}: is no regular file, which --out has to be")
    for path in inputs:
        if written and os.path.exists(path) and os.path.samestat(written, os.stat(path)):
            raise ValueError(f"{output}: would overwrite the file that is being read")
    if only_file and output.lower().endswith(ROWS_ENDINGS):
        raise ValueError(f"{output}: is named like a file of rows, and {only_file}")


def write(output: str, content: Callable[[BinaryIO], object]) -> None:
    """Write to a file, atomically, or to standard output; compressed if its name ends in .gz."""
    if output == DASH:
        with naming_file(named(output)), open(sys.stdout.fileno(), "wb", closefd=False) as file:
            content(file)
    elif os.path.exists(output) and not os.path.isfile(output):  # a device, a pipe
        with naming_file(output), open(output, "wb") as file:
            content(file)
    else:
        write_atomically(destination(output), lambda file: _compressed(output, file, content))


def _compressed(output: str, file: BinaryIO, content: Callable[[BinaryIO], object]) -> None:
    if not output.endswith(".gz"):
        content(file)
        return
    with gzip.GzipFile(fileobj=file, mode="wb") as inner:
        content(cast(BinaryIO, inner))


def named(output: str) -> str:
    """The name of an output in messages."""
    return "standard output" if output == DASH else output


def beside(output: str | None) -> Callable[[str], None]:
    """Where to say what was written: not on standard output if that has the output."""
    return tell if output == DASH else print


def tell_error(error: Exception) -> None:
    """Print an error as one line on standard error, with the name of a file first."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        tell(f"platt-jax: error: {error.filename}: {error.strerror}")
    else:
        tell(f"platt-jax: error: {error}")


def tell(line: str) -> None:
    """Print a line on standard error, if that is open; print would use standard output instead."""
    for python, shell in _IN_THE_SHELL.items():
        line = line.replace(python, shell)
    if sys.stderr is not None:
        print(line, file=sys.stderr)


def on_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def output_written() -> Iterator[None]:
    """Flush standard output at the end, where an error can still be handled, unlike at exit.

    A character that the terminal's encoding lacks is escaped, as Python does on standard error.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        try:
            with naming_file(named(DASH)):
                print(end="", flush=True)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print warnings as lines like errors, without the place in the code.

    The warning about NON_FINITE fits is suppressed; the line about failed fits covers it.
    """

    def show(message: Warning | str, *_: Any) -> None:
        tell(f"platt-jax: warning: {message}")

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* their curves are NaN", RuntimeWarning)
        warnings.showwarning = show  # type: ignore[assignment]  # called by position
        yield
