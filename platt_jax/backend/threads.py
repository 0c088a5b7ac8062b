"""Runs work on several threads.

A compiled program keeps one core busy for all or part of its time: the host's code before and
after it, small arrays, and waits of one operation for another use only one core. Other programs
then keep the other cores busy.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import ExitStack
from functools import cache
from itertools import chain, islice
from typing import Any, TypeVar

import jax

from platt_jax.backend import xla


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Items in progress: one more than there are cores, and enough to fill the single-core phases.
AT_ONCE = max(3, 1 + cores())
# Rows per slice of `row_slices`, unless more are asked for.
_ROWS_PER_SLICE = 1 << 18

# Settings for debugging users' programs, and the values that ours need: padding is NaN, and rows
# and results are transferred.
_SETTINGS_TO_DEBUG: dict[str, tuple[Callable[..., Any], bool | str]] = {
    "jax_disable_jit": (jax.disable_jit, False),
    "jax_debug_nans": (jax.debug_nans, False),
    "jax_debug_infs": (jax.debug_infs, False),
    "jax_transfer_guard_host_to_device": (jax.transfer_guard_host_to_device, "allow"),
    "jax_transfer_guard_device_to_device": (jax.transfer_guard_device_to_device, "allow"),
    "jax_transfer_guard_device_to_host": (jax.transfer_guard_device_to_host, "allow"),
}

Item = TypeVar("Item")
Made = TypeVar("Made")


def run_programs(work: Callable[[], Made], x64: bool) -> Made:
    """Runs work that calls compiled programs on concrete arrays, and returns its result.

    The programs are compiled even if the user's debug settings say otherwise, with 64-bit types if
    `x64`. If the user's program is being traced, the work runs on another thread, where nothing is
    traced; otherwise the programs would become part of the user's.
    """
    with ExitStack() as settings:
        _enter_own_settings(settings, x64)
        if not xla.tracing():
            return work()
        with futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(_as_the_caller(work)).result()


def _enter_own_settings(settings: ExitStack, x64: bool) -> None:
    config: Any = jax.config  # type checkers do not know its attributes
    settings.enter_context(jax.enable_x64(x64))
    for name, (setting, value) in _SETTINGS_TO_DEBUG.items():
        if getattr(config, name) not in (None, value):
            settings.enter_context(setting(value))


def ordered_map(work: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """The results of work for each item, in order; several items are in progress at a time.

    Work has the caller's default device and 64-bit switch of JAX, which threads do not inherit. An
    item's error is raised in its turn, and later items that are not started are skipped. All calls
    share the threads of the process, so work must not call `ordered_map` itself: it could wait for
    itself.
    """
    items = _unless_stopped(items)
    head = list(islice(items, 2))
    if len(head) < 2:
        yield from map(work, head)
        return
    work_there = _as_the_caller(work)
    pending: deque[futures.Future[Made]] = deque()
    try:
        for item in chain(head, items):
            try:
                pending.append(_pool(os.getpid()).submit(work_there, item))
            except RuntimeError:  # Python is exiting, and makes no more pools or threads.
                yield from _results(pending)
                yield work(item)
            if len(pending) > AT_ONCE:
                yield pending.popleft().result()
        yield from _results(pending)
    finally:
        for future in pending:
            future.cancel()
        futures.wait(pending)


def run_concurrently(other: Callable[[], Made], mine: Callable[[], Item]) -> tuple[Made, Item]:
    """The results of both functions. `other` runs on its own thread, which may use `ordered_map`.

    If this thread is interrupted, `other` stops at the next item of its `ordered_map`.
    """
    stop = threading.Event()

    def other_unless_stopped() -> Made:
        _here.stop = stop
        return other()

    with ExitStack() as threads:
        try:
            thread = threads.enter_context(futures.ThreadPoolExecutor(1))
            future = thread.submit(_as_the_caller(other_unless_stopped))
        except RuntimeError:  # As above.
            return other(), mine()
        try:
            result = mine()
            return future.result(), result
        finally:
            stop.set()


# Per thread: the event by which another thread stops it.
_here = threading.local()


def _unless_stopped(items: Iterable[Item]) -> Iterator[Item]:
    stop = getattr(_here, "stop", None)
    for item in items:
        if stop is not None and stop.is_set():
            raise futures.CancelledError
        yield item


def _as_the_caller(work: Callable[..., Made]) -> Callable[..., Made]:
    """The work with the caller's default device and 64-bit switch of JAX, on any thread."""
    config: Any = jax.config  # as above
    device, x64 = config.jax_default_device, config.jax_enable_x64

    def as_the_caller(*arguments: Any) -> Made:
        with ExitStack() as settings:
            settings.enter_context(jax.default_device(device))
            _enter_own_settings(settings, x64)
            return work(*arguments)

    return as_the_caller


@cache
def _pool(process: int) -> "futures.ThreadPoolExecutor":
    """The threads of this process, kept for the next call: starting threads takes a millisecond.

    A forked process does not have its parent's threads.
    """
    return futures.ThreadPoolExecutor(AT_ONCE, "platt_jax")


def row_slices(rows: int, least: int = 0, begin: int = 0) -> list[slice]:
    """Slices of equal length from `begin` on, of about 2^18 rows each, or `least` if larger."""
    parts = max(1, -(-rows // max(_ROWS_PER_SLICE, least)))
    length = max(1, -(-rows // parts))
    end = begin + rows
    return [slice(first, min(first + length, end)) for first in range(begin, end, length)]


def _results(begun: deque[futures.Future[Made]]) -> Iterator[Made]:
    while begun:
        yield begun.popleft().result()
