"""The sums of every pass, kept on disk: a call that is made again skips the passes it finds."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.distributed.exchange import Exchange, agree
from platt_jax.execution import checkpoint

# The sums, or the minima, of arrays of one shape.
_Sums: TypeAlias = NDArray[np.float64]


class Journal:
    """Adds up over all processes, and keeps each pass in a file of its own.

    A fit is a function of these sums: where they are known it needs no rows. The first process
    reads and writes the files, and tells the others.

    Args:
        exchange: with the other processes.
        directory: for the files, made if it is not there; None to keep nothing.
        call: what the sums depend on, by names that messages use; the same in all processes.

    Raises:
        ValueError: a file there is something else, or is of another call; in all processes.
        OSError: a file cannot be read, or there is no place for the directory; in the first.
    """

    def __init__(
        self, exchange: Exchange, directory: str | os.PathLike[str] | None, call: dict[str, str]
    ):
        self._exchange = exchange
        self._writes = directory is not None and jax.process_index() == 0
        self._directory = Path(directory or "")
        self._call = call
        self._passes = 0
        kept = agree(exchange, self._kept)
        self._known = int(exchange.gather(np.array([kept or 0]))[0, 0])

    def sums(self, local: Callable[[], _Sums], shape: tuple[int, int]) -> _Sums:
        """The sum over all processes of what `local` returns: float64 of this shape.

        Raises:
            RuntimeError, TimeoutError: as `Exchange.sums`.
            OSError: the file of this pass cannot be written.
        """
        return self._next(self._exchange.sums, local, shape)

    def minima(self, local: Callable[[], _Sums], shape: tuple[int, int]) -> _Sums:
        """As `sums`, the elementwise minimum."""
        return self._next(self._exchange.minima, local, shape)

    def remove(self) -> None:
        """The call is over: remove the files, and the directory if nothing else is there."""
        if not self._writes:
            return
        for number in range(self._passes):
            self._file(number).unlink(missing_ok=True)
        if not any(self._directory.iterdir()):
            self._directory.rmdir()

    def _next(
        self, reduce: Callable[[_Sums], _Sums], local: Callable[[], _Sums], shape: tuple[int, int]
    ) -> _Sums:
        file = self._file(self._passes)
        self._passes += 1
        if self._passes <= self._known:
            kept = checkpoint.read(file, self._call) if self._writes else None
            return self._exchange.sums(np.zeros(shape) if kept is None else kept["sums"])
        found = reduce(local())
        if self._writes:
            checkpoint.write(file, self._call, {"sums": found})
        return found

    def _kept(self) -> int:
        """How many passes there are files of."""
        if not self._writes:
            return 0
        self._directory.mkdir(exist_ok=True)
        number = 0
        while checkpoint.read(self._file(number), self._call) is not None:
            number += 1
        return number

    def _file(self, number: int) -> Path:
        return self._directory / f"pass-{number:04d}.npz"
