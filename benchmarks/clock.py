"""The stopwatch, which sees what a machine's host gave to other machines meanwhile.

The kernel of a virtual machine counts for how long the host ran others on its processors ("steal",
proc_stat(5)). Such time is no contender's: a sample that lost some is taken again.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")

# Processors' seconds lost per second: a sample that lost no more counts as undisturbed.
LITTLE = 0.02
TRIES = 5
_WAIT_S = 0.5  # between them
_SAMPLE_S = 0.05
# After a parallel loop OpenMP's idle threads go on spinning for a while, on the next one's cores.
_PAUSE_S = 0.02
_STAT = Path("/proc/stat")
_STEAL = 8  # the column


class Sample(NamedTuple):
    """How long a call took."""

    seconds: float  # mean of the calls of the sample
    stolen: float  # processors' seconds that the host gave to others, per second


def sample(call: Callable[[], object], calls: int = 1, tries: int = TRIES) -> Sample:
    """The least disturbed of some samples of so many calls in a row."""
    return Sample(*least_disturbed(lambda: _seconds(call, calls), tries))


def least_disturbed(take: Callable[[], T], tries: int = TRIES) -> tuple[T, float]:
    """What `take` gives while the host takes little, and how much that was.

    Of so many tries the one that lost least. It is chosen by what was lost, not by what it gives.
    """
    taken = [_with_loss(take)]
    while len(taken) < tries and taken[-1][1] > LITTLE:
        time.sleep(_WAIT_S)
        taken.append(_with_loss(take))
    return min(taken, key=lambda one: one[1])


def _with_loss(take: Callable[[], T]) -> tuple[T, float]:
    before, start = _stolen(), time.perf_counter()
    given = take()
    return given, (_stolen() - before) / (time.perf_counter() - start)


def calls_per_sample(call: Callable[[], object]) -> int:
    """Enough that a sample outlasts a clock tick of the scheduler."""
    return max(1, min(20, round(_SAMPLE_S / _seconds(call, 1))))


def _seconds(call: Callable[[], object], calls: int) -> float:
    """Of one call, mean of so many in a row."""
    gc.collect()
    time.sleep(_PAUSE_S)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _stolen() -> float:
    """Seconds that all processors together have lost; 0 where the kernel does not say."""
    if not _STAT.exists():
        return 0.0
    ticks = _STAT.read_text().split(maxsplit=_STEAL + 1)[_STEAL]
    return int(ticks) / os.sysconf("SC_CLK_TCK")
