"""One process of a job that fits together: how it begins, and how it ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn

import jax

from platt_jax.cli.outputs import tell_error


def begin() -> tuple[int, int]:
    """Join the other processes of the job that a launcher started.

    Returns:
        The number of this process, from 0, and how many there are.

    Raises:
        ValueError: no launcher that JAX knows started this process.
        RuntimeError: the others cannot be reached.
    """
    # With that service SIGTERM only sets a mark, and a job that is cancelled would go on.
    config: Any = jax.config  # whose methods have no types
    config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize()
    except ValueError as error:
        raise ValueError(
            "--distributed: expected to be started by srun, mpirun or another launcher that "
            f"jax.distributed.initialize knows, which says: {error}"
        ) from None
    return jax.process_index(), jax.process_count()


def ending_all(work: Callable[[], int], lost: int) -> int:
    """The exit status that the work returns; after an error this process ends here and now.

    JAX would have it wait for the others at exit, and these wait for its sums.

    Args:
        work: `begin` and what follows.
        lost: the exit status if another process has ended or is stuck.
    """
    try:
        return work()
    except (ValueError, OSError, MemoryError) as error:
        # TimeoutError is an OSError: of `time_limit`.
        _end(error, lost if isinstance(error, TimeoutError) else 2)
    except RuntimeError as error:
        _end(error, lost)


def _end(error: Exception, status: int) -> NoReturn:
    tell_error(error)
    os._exit(status)
