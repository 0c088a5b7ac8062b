"""Where a command writes: files, whole or not at all; standard output; what it tells its user."""

from __future__ import annotations

import gzip
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from platt_jax.cli.inputs import DASH
from platt_jax.results.files import destination, naming_file, write_atomically

# What the library says of its own arguments, and what to write at the command line instead.
_IN_THE_SHELL = {
    'Options(non_finite="omit")': "--non-finite omit",
    'triage(..., non_finite="omit")': "--non-finite omit",
    'triage(..., against="predictions")': "--against predictions",
    "raise Options(max_iter=...), or look": "look",
    "platt_jax.logit(p)": "--logit",
}


def check(output: str, *inputs: str, only_file: str = "") -> None:
    """Refuse, before any work, an output that cannot be, or that is one of the inputs.

    Args:
        output: its name.
        inputs: those of the files that are read.
        only_file: why it has to be a regular file, if it has to.

    Raises:
        ValueError: says which file, and why.
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


def write(output: str, content: Callable[[BinaryIO], object]) -> None:
    """Have `content` write to a file, or to standard output.

    Args:
        output: its name; compressed if it ends in .gz. A regular file is whole or not there.
        content: called with a binary file.
    """
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
    """What messages call an output."""
    return "standard output" if output == DASH else output


def tell_error(error: Exception) -> None:
    """One line on standard error that says what went wrong; the name of a file comes first."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        tell(f"platt-jax: error: {error.filename}: {error.strerror}")
    else:
        tell(f"platt-jax: error: {error}")


def tell(line: str) -> None:
    """A line on standard error, if that is open; print would take standard output instead."""
    for python, shell in _IN_THE_SHELL.items():
        line = line.replace(python, shell)
    if sys.stderr is not None:
        print(line, file=sys.stderr)


def on_terminal() -> bool:
    """Whether somebody may be watching."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def output_written() -> Iterator[None]:
    """What was printed leaves here or is given up: at exit, Python could only complain.

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
    """Warnings as lines in the manner of the errors, without the place in the code.

    Not that of fits that are NON_FINITE: the line about all fits that failed says so.
    """

    def show(message: Warning | str, *_: Any) -> None:
        tell(f"platt-jax: warning: {message}")

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* their A and B are NaN", RuntimeWarning)
        warnings.showwarning = show  # type: ignore[assignment]  # called by position
        yield
