"""Warnings that point to the user's line, from any depth in this package and from any thread.

Among them are warnings about fits with non-finite rows.
"""

import sys
import warnings
from types import FrameType
from typing import Any, ClassVar

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.options import Options
from platt_jax.results import tables
from platt_jax.results.fit import Fit
from platt_jax.status import Status

ARE_NAN = 'their A and B are NaN. Options(non_finite="omit") fits them without these rows'


class Caller:
    """The line that called this package, found when the object is created."""

    _warned_once: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None and _is_of_libraries(frame):
            frame = frame.f_back
        self._file, self._line, self._globals = (
            frame.f_code.co_filename,
            frame.f_lineno,
            frame.f_globals,
        )
        self._warned: set[str] = set()

    def warn_once(self, message: str) -> None:
        """Warns at the line, unless this process has issued the same warning before."""
        if message not in self._warned_once:
            self._warned_once.add(message)
            self.warn(message)

    def warn(self, message: str) -> None:
        """Warns at the line, once per message."""
        if message in self._warned:
            return
        self._warned.add(message)
        warnings.warn_explicit(
            message,
            RuntimeWarning,
            self._file,
            self._line,
            module=self._globals.get("__name__"),
            registry=self._globals.setdefault("__warningregistry__", {}),
        )


def _is_of_libraries(frame: FrameType) -> bool:
    """Whether this is code of this package, or of JAX, which traces this package for a user."""
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] in (__package__.partition(".")[0], "jax")


def report_non_finite(
    result: Fit,
    options: Options,
    kind: str,
    names: NDArray[Any],
    caller: Caller,
    consequence: str = ARE_NAN,
) -> None:
    """Warns of NON_FINITE fits, or raises: how many there are, and which is the first.

    `kind` is the plural noun for the problems, and `consequence` what follows for them.
    """
    bad = np.flatnonzero(jax.device_get(result.status) == Status.NON_FINITE)
    if not len(bad):
        return
    what = (
        f"NaN, infinite or overflowing numbers in {len(bad):,} of {len(names):,} {kind}, "
        f"first in {tables.name(names, bad[0])}"
    )
    if options.non_finite == "raise":
        raise ValueError(f"scores, labels, weights, offset: expected finite values, found {what}")
    caller.warn(f"{what}: {consequence}")
