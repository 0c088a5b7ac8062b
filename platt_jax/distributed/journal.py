"""The sums of every pass on disk, so that a repeated call skips the passes already done."""

import os
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from platt_jax.arrays import Floats
from platt_jax.distributed.exchange import Exchange, Merge, agree
from platt_jax.execution import checkpoint


class Journal:
    """Reductions over all processes, with the result of each pass in a file.

    A fit is a function of these sums, so passes with known sums need no rows. The first process
    reads and writes the files, and sends their content to the others. Without a directory nothing
    is kept. `call` is what the sums depend on, by names for messages; files of another call are
    refused in all processes.
    """

    def __init__(
        self, exchange: Exchange, directory: str | os.PathLike[str] | None, call: dict[str, str]
    ):
        self._exchange = exchange
        self._writes = directory is not None and jax.process_index() == 0
        self._directory = Path(directory or "")
        self._call = call
        self._passes = 0
        stored_passes = agree(exchange, self._kept)
        self._known = int(exchange.gather(np.array([stored_passes or 0]))[0, 0])
        self.gather_bytes, self.merged = exchange.gather_bytes, exchange.merged

    def pass_over_rows(
        self, local: Callable[[], Floats], merge: Merge, shape: tuple[int, int]
    ) -> Floats:
        """See `Meeting`."""
        file = self._file(self._passes)
        self._passes += 1
        if self._passes <= self._known:
            saved = checkpoint.read(file, self._call) if self._writes else None
            return self._exchange.merged(np.zeros(shape) if saved is None else saved["sums"], "sum")
        sums = self._exchange.merged(local(), merge)
        if self._writes:
            checkpoint.write(file, self._call, {"sums": sums})
        return sums

    def remove(self) -> None:
        """Remove the files at the end of a call, and the directory if nothing else is in it."""
        if not self._writes:
            return
        for number in range(self._passes):
            self._file(number).unlink(missing_ok=True)
        if not any(self._directory.iterdir()):
            self._directory.rmdir()

    def _kept(self) -> int:
        """The number of passes with files."""
        if not self._writes:
            return 0
        self._directory.mkdir(exist_ok=True)
        number = 0
        while checkpoint.read(self._file(number), self._call) is not None:
            number += 1
        return number

    def _file(self, number: int) -> Path:
        return self._directory / f"pass-{number:04d}.npz"
