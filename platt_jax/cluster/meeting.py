"""How the parts of a fit exchange numbers: all of them at once, round by round.

A part is a deterministic function of its rows and of what the rounds gave so far. So a part whose
task died may run again from the beginning: rounds that are complete give the same answers at once.
"""

import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

_Sums: TypeAlias = NDArray[np.float64]


class Gather(Protocol):
    """A round: gives what this part says to all parts, and returns what each part says."""

    def __call__(self, mine: bytes) -> list[bytes]:
        """The bytes of all parts, in the order of the parts; the same in each."""


class Meeting:
    """Reductions over all parts, which must ask for the same ones in the same order.

    Args:
        gather: gathers the bytes of all parts.
        part: the number of this part.
    """

    def __init__(self, gather: Gather, part: int) -> None:
        self._gather = gather
        self.part = part

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """The bytes of all parts, in the order of the parts."""
        return self._gather(mine)

    def sums(self, local: Callable[[], _Sums], shape: tuple[int, ...]) -> _Sums:
        """The sum over all parts of the results of `local`: float64 of this shape."""
        return self._reduced(local(), shape).sum(0)

    def minima(self, local: Callable[[], _Sums], shape: tuple[int, ...]) -> _Sums:
        """The elementwise minimum; otherwise as `sums`."""
        return self._reduced(local(), shape).min(0)

    def total(self, mine: _Sums) -> _Sums:
        """The sum of the arrays of all parts, of one shape."""
        return self.sums(lambda: mine, mine.shape)

    def stacked(self, mine: _Sums) -> _Sums:
        """The arrays of all parts, of one shape, (P, ...)."""
        return self._reduced(mine, mine.shape)

    def _reduced(self, mine: _Sums, shape: tuple[int, ...]) -> _Sums:
        of_all = self._gather(np.ascontiguousarray(mine, np.float64).tobytes())
        return np.stack([np.frombuffer(x).reshape(shape) for x in of_all])


class Coordinator:
    """Where parts that run at the same time meet.

    Args:
        parts: number of parts.
    """

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._rounds: list[dict[int, bytes]] = []
        self._said = threading.Condition()
        self._stopped = False

    def gather(self, number: int, part: int, mine: bytes) -> list[bytes]:
        """What all parts say in the round of this number, as soon as all have.

        Raises:
            RuntimeError: the fit was stopped.
        """
        with self._said:
            while len(self._rounds) <= number:
                self._rounds.append({})
            said = self._rounds[number]
            said.setdefault(part, mine)
            self._said.notify_all()
            self._said.wait_for(lambda: self._stopped or len(said) == self._parts)
            if self._stopped:
                raise RuntimeError("the fit was stopped, because another part failed")
            return [said[part] for part in range(self._parts)]

    def stop(self) -> None:
        """Lets all parts that wait fail."""
        with self._said:
            self._stopped = True
            self._said.notify_all()


class AtCoordinator:
    """`Gather` by a coordinator.

    Args:
        gather: `Coordinator.gather`, or a call of it from another process.
        part: the number of this part.
    """

    def __init__(self, gather: Callable[[int, int, bytes], list[bytes]], part: int) -> None:
        self._call, self._part, self._number = gather, part, 0

    def __call__(self, mine: bytes) -> list[bytes]:
        """See `Gather`."""
        answers = self._call(self._number, self._part, mine)
        self._number += 1
        return answers
