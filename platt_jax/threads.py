"""Work on a few threads at once.

A compiled program keeps one core busy, or has stretches that do: the host's part before and after
it, small arrays, the wait of one operation for the other cores' part of the one before it. Other
programs keep the other cores busy.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import cache
from itertools import chain, islice
from typing import Any, TypeVar

import jax

from platt_jax import xla


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# One more than there are cores, and at least so many as hide the stretches.
_AT_ONCE = max(3, 1 + cores())
_ROWS_PER_SLICE = 1 << 18

# Settings that people debug their own programs with, and what ours need: padding is NaN, rows go to
# the device and results come back.
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
    """What the work returns, which runs compiled programs on concrete arrays.

    They are compiled, whatever the user debugs with. Inside a function that the user has JAX trace
    the work goes to another thread, where nothing is traced: the programs would become part of the
    user's.

    Args:
        work: called once.
        x64: whether it finds 64-bit types switched on.
    """
    with ExitStack() as settings:
        _enter_own_settings(settings, x64)
        if not xla.tracing():
            return work()
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_as_the_caller(work)).result()


def _enter_own_settings(settings: ExitStack, x64: bool) -> None:
    config: Any = jax.config  # whose attributes type checkers do not know
    settings.enter_context(jax.enable_x64(x64))
    for name, (setting, own) in _SETTINGS_TO_DEBUG.items():
        if getattr(config, name) not in (None, own):
            settings.enter_context(setting(own))


def ordered_map(work: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """What work makes of each item, in their order; a few items are worked on at a time.

    Work finds the caller's default device and 64-bit switch of JAX, which threads do not inherit.
    An item's error is raised in its turn, and items that are not begun by then never are. All share
    the threads of the process: work that waited for more of its kind could wait for itself.
    """
    items = _unless_stopped(items)
    head = list(islice(items, 2))
    if len(head) < 2:
        yield from map(work, head)
        return
    work_there = _as_the_caller(work)
    begun: deque[Future[Made]] = deque()
    pool = _pool(os.getpid())
    try:
        for item in chain(head, items):
            try:
                begun.append(pool.submit(work_there, item))
            except RuntimeError:  # Python is about to exit, and starts no more threads.
                yield from _results(begun)
                yield work(item)
            if len(begun) > _AT_ONCE:
                yield begun.popleft().result()
        yield from _results(begun)
    finally:
        for future in begun:
            future.cancel()
        wait(begun)


def run_concurrently(other: Callable[[], Made], mine: Callable[[], Item]) -> tuple[Made, Item]:
    """What both return: the other runs on a thread of its own, which may use `ordered_map` too.

    Where this thread is interrupted, the other stops at the next item of its `ordered_map`.
    """
    stop = threading.Event()

    def other_unless_stopped() -> Made:
        _here.stop = stop
        return other()

    with ThreadPoolExecutor(1) as thread:
        try:
            begun = thread.submit(_as_the_caller(other_unless_stopped))
        except RuntimeError:  # As above.
            return other(), mine()
        try:
            made = mine()
            return begun.result(), made
        finally:
            stop.set()


# Of a thread that another may stop: the event that tells it to.
_here = threading.local()


def _unless_stopped(items: Iterable[Item]) -> Iterator[Item]:
    stop = getattr(_here, "stop", None)
    for item in items:
        if stop is not None and stop.is_set():
            raise CancelledError
        yield item


def _as_the_caller(work: Callable[..., Made]) -> Callable[..., Made]:
    """The work with the present default device and 64-bit switch of JAX, on any thread."""
    config: Any = jax.config  # as above
    device, x64 = config.jax_default_device, config.jax_enable_x64

    def as_the_caller(*arguments: Any) -> Made:
        with ExitStack() as settings:
            settings.enter_context(jax.default_device(device))
            _enter_own_settings(settings, x64)
            return work(*arguments)

    return as_the_caller


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of this process, which wait for the next call: to start some takes a millisecond.

    A forked process has none of its parent's.
    """
    return ThreadPoolExecutor(_AT_ONCE, "platt_jax")


def row_slices(rows: int, least: int = 0, begin: int = 0) -> list[slice]:
    """Rows, from `begin` on, in pieces of one length: a quarter of a million, or `least`, or so."""
    parts = max(1, -(-rows // max(_ROWS_PER_SLICE, least)))
    length = max(1, -(-rows // parts))
    end = begin + rows
    return [slice(first, min(first + length, end)) for first in range(begin, end, length)]


def _results(begun: deque[Future[Made]]) -> Iterator[Made]:
    while begun:
        yield begun.popleft().result()
