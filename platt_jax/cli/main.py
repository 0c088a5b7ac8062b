"""The entry point: runs one command and returns its exit status."""

from __future__ import annotations

import os
from collections.abc import Sequence

from platt_jax import use_compilation_cache
from platt_jax.cli.outputs import output_written, tell_error, warnings_as_lines
from platt_jax.cli.parser import parser

# Exit statuses that a shell reports for programs stopped by SIGINT or SIGPIPE.
_INTERRUPTED, _BROKEN_PIPE = 128 + 2, 128 + 13


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; user errors give one line on stderr and exit status 2.

    Failed fits also give one line, with exit status 3, but the file is written. Ctrl-C, and a
    closed output (as by `head`), end the command without a message.
    """
    try:
        with output_written(), warnings_as_lines():
            arguments = parser().parse_args(argv)
            if "cache" in arguments:
                folder = arguments.cache or os.environ.get("PLATT_JAX_CACHE")
                if folder:
                    use_compilation_cache(folder)
            return arguments.command(arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        return _BROKEN_PIPE
    except (ValueError, OSError, MemoryError, ImportError) as error:
        tell_error(error)
        return 2
