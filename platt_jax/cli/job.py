"""One process of a distributed job: its start and its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax

from platt_jax.cli.outputs import tell_error


def begin() -> tuple[int, int]:
    """Join the other processes of the job that a launcher started.

    Returns the number of this process, from 0, and the number of processes.
    """
    # With that service SIGTERM only sets a mark, and a cancelled job would continue.
    config: Any = jax.config  # its methods have no types
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
    """The exit status returned by `work`, or `lost` if another process has ended or is stuck.

    After an error this process exits immediately. Otherwise JAX would wait for the other processes
    at exit, which wait for this one's sums.
    """
    try:
        return work()
    except (ValueError, OSError, MemoryError, RuntimeError) as error:
        tell_error(error)
        # TimeoutError is by `time_limit`.
        os._exit(lost if isinstance(error, TimeoutError | RuntimeError) else 2)
