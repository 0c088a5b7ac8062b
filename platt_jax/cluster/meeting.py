"""How the parts of a fit exchange numbers: all of them at once, round by round.

A part is a deterministic function of its rows and of what the rounds gave so far. So a part whose
task died may run again from the beginning: rounds that are complete give the same answers at once.
"""

import secrets
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, NamedTuple, Self

import numpy as np

from platt_jax.arrays import Floats
from platt_jax.distributed.exchange import Merge
from platt_jax.distributed.shared_sums import Meeting

_HEADER = struct.Struct("<QQQ")  # number of a round, of a part and of a way to merge
_SECONDS_TO_CLOSE = 0.2  # for which a server may go on to accept after its end
_ENDED = EOFError, OSError  # of the other side of a connection


def _reduced(by: np.ufunc, gathered: list[bytes]) -> list[bytes]:
    """The reduction of float64 arrays, in the order of the parts."""
    return [by.reduce([np.frombuffer(x) for x in gathered]).tobytes()]


# What all parts get, from what each says. Sums travel once to each part instead of once per pair.
_MERGES: list[Callable[[list[bytes]], list[bytes]]] = [
    list,
    partial(_reduced, np.add),
    partial(_reduced, np.minimum),
]
_ALL = 0
_NUMBERS: dict[Merge, int] = {"sum": 1, "minimum": 2}


class Alone(Meeting):
    """The meeting of a single part."""

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """See `Meeting`."""
        return [mine]

    def merged(self, mine: Floats, merge: Merge) -> Floats:
        """See `Meeting`."""
        return np.asarray(mine, np.float64)


class _Round:
    def __init__(self) -> None:
        self.said: dict[int, bytes] = {}
        self.answers: list[bytes] | None = None


class Coordinator:
    """Where parts that run at the same time meet."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._rounds: list[_Round] = []
        self._said = threading.Condition()
        self._stopped = False

    def gather(self, number: int, part: int, mine: bytes, merge: int) -> list[bytes]:
        """What all parts say in the round of this number, merged as soon as all have."""
        with self._said:
            while len(self._rounds) <= number:
                self._rounds.append(_Round())
            state = self._rounds[number]
            if state.answers is None:
                state.said[part] = mine
            if len(state.said) == self._parts:
                state.answers = _MERGES[merge]([state.said[part] for part in range(self._parts)])
                state.said.clear()
            self._said.notify_all()
            self._said.wait_for(lambda: self._stopped or state.answers is not None)
            if self._stopped or state.answers is None:
                raise RuntimeError("the fit was stopped, because another part failed")
            return state.answers

    def stop(self) -> None:
        """Lets all parts that wait fail."""
        with self._said:
            self._stopped = True
            self._said.notify_all()


class Invitation(NamedTuple):
    """How a part reaches the server of a meeting."""

    address: tuple[str, int]
    key: bytes  # a secret of all parts
    parts: int


class Server:
    """A coordinator that parts in other processes and on other machines reach.

    The host is the name or address of this machine, as the others see it.
    """

    def __init__(self, parts: int, host: str) -> None:
        self._coordinator, self._closed = Coordinator(parts), False
        self._left = threading.Semaphore(0)
        self._socket = socket.create_server((host, 0), backlog=parts)
        self._socket.settimeout(_SECONDS_TO_CLOSE)
        port = self._socket.getsockname()[1]
        self.invitation = Invitation((host, port), secrets.token_bytes(), parts)
        self._start(self._accept)

    def wait(self) -> None:
        """Returns when all parts have left."""
        for _ in range(self.invitation.parts):
            self._left.acquire()

    def close(self) -> None:
        """Ends the meeting; parts that still wait fail."""
        self._closed = True
        self._coordinator.stop()

    def _accept(self) -> None:
        with self._socket:
            while not self._closed:
                with suppress(OSError):  # nobody came in this time, or who came has left
                    self._start(self._answer, self._socket.accept()[0])

    def _answer(self, client: socket.socket) -> None:
        with _messages(client) as connection, suppress(*_ENDED, AuthenticationError, RuntimeError):
            deliver_challenge(connection, self.invitation.key)
            answer_challenge(connection, self.invitation.key)
            try:
                self._answer_part(connection)
            finally:
                self._left.release()

    def _answer_part(self, connection: Connection) -> None:
        while True:
            number, part, merge = _HEADER.unpack(connection.recv_bytes())
            answers = self._coordinator.gather(number, part, connection.recv_bytes(), merge)
            for answer in answers:
                connection.send_bytes(answer)

    @staticmethod
    def _start(function: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=function, args=arguments, daemon=True).start()


class MeetingByServer(Meeting):
    """The meeting of a part with the others by a server; a context manager.

    Its methods raise a RuntimeError if the server or another part has ended.
    """

    def __init__(self, invitation: Invitation, part: int) -> None:
        self._connection = _messages(socket.create_connection(invitation.address))
        try:
            answer_challenge(self._connection, invitation.key)
            deliver_challenge(self._connection, invitation.key)
        except BaseException:
            self._connection.close()
            raise
        self._part, self._parts, self._number = part, invitation.parts, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """See `Meeting`; in the order of the parts."""
        return self._round(mine, _ALL)

    def merged(self, mine: Floats, merge: Merge) -> Floats:
        """See `Meeting`."""
        in_bytes = np.ascontiguousarray(mine, np.float64).tobytes()
        return np.frombuffer(self._round(in_bytes, _NUMBERS[merge])[0]).reshape(np.shape(mine))

    def _round(self, mine: bytes, merge: int) -> list[bytes]:
        try:
            self._connection.send_bytes(_HEADER.pack(self._number, self._part, merge))
            self._connection.send_bytes(mine)
            number = self._parts if merge == _ALL else 1
            answers = [self._connection.recv_bytes() for _ in range(number)]
        except _ENDED as error:
            raise RuntimeError("another part has ended, or cannot be reached") from error
        self._number += 1
        return answers


def _messages(connected: socket.socket) -> Connection:
    """The socket's messages, each sent at once: a round is several small ones."""
    connected.setblocking(True)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(connected.detach())
