"""What processes tell each other: bytes of each to all, in the order of the processes."""

import io
import threading
from typing import Any

import numpy as np
from jax.experimental import multihost_utils

from platt_jax import ids
from platt_jax.ids import codec
from platt_jax.ids.factorize import factorize


class Exchange:
    """Gathers over all processes, and does not wait for a silent one forever.

    Args:
        time_limit: seconds that a process waits for the others, None for as long as it takes.
    """

    def __init__(self, time_limit: float | None):
        self._time_limit = time_limit

    def arrays(self, mine: np.ndarray) -> np.ndarray:
        """The arrays of all processes, which have one shape and dtype, along a new first axis.

        Raises:
            RuntimeError: a process has ended.
            TimeoutError: one says nothing for longer than the time limit.
        """
        # As bytes, whatever types JAX has switched on.
        in_bytes = np.frombuffer(np.ascontiguousarray(mine).tobytes(), np.uint8)
        found = self._in_time(lambda: multihost_utils.process_allgather(in_bytes))
        return np.frombuffer(np.asarray(found).tobytes(), mine.dtype).reshape(-1, *mine.shape)

    def bytes(self, mine: bytes) -> list[bytes]:
        """The bytes of all processes, of whatever lengths.

        Raises:
            RuntimeError, TimeoutError: as `arrays`.
        """
        lengths = self.arrays(np.array([len(mine)]))[:, 0]
        padded = np.zeros(max(1, *lengths), np.uint8)  # an empty array cannot be gathered
        padded[: len(mine)] = np.frombuffer(mine, np.uint8)
        of_all = self.arrays(padded)
        return [x[:length].tobytes() for x, length in zip(of_all, lengths, strict=True)]

    def _in_time(self, gather):
        made: dict[str, Any] = {}

        def run():
            try:
                made["found"] = gather()
            except Exception as error:
                made["error"] = error

        # A thread that the end of the program does not wait for.
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self._time_limit)
        if thread.is_alive():
            raise TimeoutError(
                f"a process has said nothing for {self._time_limit} seconds (time_limit): it is "
                "stuck, or has more rows than the others"
            )
        if "error" in made:
            raise RuntimeError("a process has ended, or cannot be reached") from made["error"]
        return made["found"]


def keys_of_all(exchange: Exchange, mine: np.ndarray | None) -> np.ndarray:
    """The distinct segments of all processes, ascending, given those of this one.

    Raises:
        ValueError: the ids of two processes are of different kinds; in all processes.
    """
    parts = [_from_bytes(x) for x in exchange.bytes(_to_bytes(mine)) if x]
    kinds = {_kind(part) for part in parts}
    if len(kinds) > 1:
        raise ValueError(
            "segments: expected ids of one kind in all processes, got "
            + " and ".join(sorted(kinds))
        )
    if len({part.dtype.hasobject for part in parts}) > 1:
        parts = [np.fromiter(part.tolist(), object, len(part)) for part in parts]
    rows = factorize(ids.read(np.concatenate(parts)))
    return rows.named(np.flatnonzero(np.bincount(rows.of(slice(None)))))


def _kind(keys):
    if keys.dtype.names is not None:
        return f"{len(keys.dtype.names)} columns"
    return ids.kind(keys)


def _to_bytes(keys: np.ndarray | None) -> bytes:
    """A file of NumPy's; objects as text, without pickle."""
    if keys is None:
        return b""
    file, is_text = io.BytesIO(), keys.dtype.hasobject
    if is_text:
        keys = codec.to_text(np.fromiter(keys.tolist(), object, len(keys)))
    np.save(file, keys, allow_pickle=False)
    return bytes([is_text]) + file.getvalue()


def _from_bytes(sent: bytes) -> np.ndarray:
    keys = np.load(io.BytesIO(sent[1:]), allow_pickle=False)
    return codec.from_text(keys) if sent[0] else keys
