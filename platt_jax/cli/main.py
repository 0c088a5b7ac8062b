"""The entry point: runs one command and returns its exit status."""

from __future__ import annotations

import _thread
import argparse
import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

import platt_jax
from platt_jax.cli.outputs import output_written, tell, tell_error, warnings_as_lines
from platt_jax.cli.parser import parser

# Exit statuses that a shell reports for programs stopped by SIGINT or SIGPIPE.
_INTERRUPTED, _BROKEN_PIPE = 128 + 2, 128 + 13
_AGAIN = 0.05  # seconds


def run() -> NoReturn:
    """Run the command of this process, and end the process.

    What is imported is not searched for garbage, nor freed at the end: both took as long as a fit.
    """
    gc.disable()
    sys.unraisablehook = _interrupt_again
    status = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is done is done
    if status != _INTERRUPTED:
        atexit._run_exitfuncs()  # processes of a job wait here for the others
    # Python's own exit would also destroy what XLA was at work on, which is a segmentation fault.
    os._exit(status)


def _interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """Repeat a Ctrl-C whose exception Python ignored, as in JAX's callback at each collection."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        threading.Timer(_AGAIN, _thread.interrupt_main).start()  # outside of this function
    else:
        sys.__unraisablehook__(lost)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; user errors give one line on stderr and exit status 2.

    Failed fits also give one line, with exit status 3, but the file is written. Ctrl-C gives one
    line, too, and a closed output (as by `head`) none.
    """
    try:
        with output_written(), warnings_as_lines():
            arguments, unknown = parser().parse_known_args(argv)
            if unknown:
                arguments.refuse(f"unrecognized arguments: {' '.join(unknown)}")
            # What was refused, or is help, needs neither JAX nor NumPy.
            from platt_jax.cli import commands

            gc.enable()
            if getattr(arguments, "cache", None):
                platt_jax.environment.use_compilation_cache(arguments.cache)
            command: Callable[[argparse.Namespace], int] = getattr(commands, arguments.command)
            return command(arguments)
    except KeyboardInterrupt:
        tell("platt-jax: stopped by Ctrl-C")
        return _INTERRUPTED
    except BrokenPipeError:
        return _BROKEN_PIPE
    except (ValueError, OSError, MemoryError, ImportError) as error:
        tell_error(error)
        return 2
