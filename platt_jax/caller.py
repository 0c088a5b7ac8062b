"""Warnings that point to the user's line, from any depth in this package and from any thread."""

import sys
import warnings
from types import FrameType
from typing import ClassVar


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
