"""One command from its words to its exit status."""

from __future__ import annotations

import os
from collections.abc import Sequence

from platt_jax import use_compilation_cache
from platt_jax.cli.outputs import output_written, tell_error, warnings_as_lines
from platt_jax.cli.parser import parser

# What a shell reports of a program stopped by SIGINT or SIGPIPE.
_INTERRUPTED, _BROKEN_PIPE = 128 + 2, 128 + 13


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what a user can put right is one line on stderr and exit status 2.

    Fits that failed are one line there too, and exit status 3, but the file is written. Ctrl-C ends
    it without a word, and so does a reader like `head` that has seen enough.
    """
    try:
        with output_written(), warnings_as_lines():
            arguments = parser().parse_args(argv)
            if "cache" in arguments:
                _keep_programs(arguments.cache or os.environ.get("PLATT_JAX_CACHE"))
            status: int = arguments.command(arguments)
            return status
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        return _BROKEN_PIPE
    except (ValueError, OSError, MemoryError, ImportError) as error:
        tell_error(error)
        return 2


def _keep_programs(folder: str | None) -> None:
    if folder:
        use_compilation_cache(folder)
