"""Communication between processes: gathering bytes, and reductions of arrays."""

import io
import json
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, Protocol, TypeVar

import jax
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.arrays import Floats
from platt_jax.backend import xla
from platt_jax.ids.factorize import factorize
from platt_jax.results.id_arrays import arrays_to_ids, ids_to_arrays

Made = TypeVar("Made")

# How numbers of all processes become one.
Merge = Literal["sum", "minimum"]
_OVER_AXIS: dict[Merge, Callable[[jax.Array, str], jax.Array]] = {
    "sum": lax.psum,
    "minimum": lax.pmin,
}

# Bytes of a message's length, and of a message that is sent at once, with its length.
_HEADER, _SHORT = 8, 1024
# First byte of what `results_of_all` sends.
_RESULT, _ERROR = b"r", b"e"


class Exchange:
    """Gathers and reductions over all processes, with a time limit in seconds, or None."""

    def __init__(self, time_limit: float | None):
        self._time_limit = time_limit

    def gather(self, mine: NDArray[Any]) -> NDArray[Any]:
        """The arrays of all processes, stacked; all must have the same shape and dtype.

        Raises:
            RuntimeError: a process has ended.
            TimeoutError: a process has not answered within the time limit.
        """
        # As bytes, because JAX may not have 64-bit types enabled.
        in_bytes = np.frombuffer(np.ascontiguousarray(mine).tobytes(), np.uint8)
        gathered = self._in_time(lambda: multihost_utils.process_allgather(in_bytes))
        return np.frombuffer(np.asarray(gathered).tobytes(), mine.dtype).reshape(-1, *mine.shape)

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """The bytes of all processes, which may differ in length."""
        # Short ones need a single gather, always of one size, whose program is compiled once.
        message = len(mine).to_bytes(_HEADER, "little") + mine
        gathered = self.gather(_fitted(message, _SHORT))
        lengths = [int.from_bytes(x[:_HEADER].tobytes(), "little") for x in gathered]
        if (longest := _HEADER + max(lengths)) > _SHORT:
            gathered = self.gather(_fitted(message, longest))
        return [
            x[_HEADER : _HEADER + length].tobytes()
            for x, length in zip(gathered, lengths, strict=True)
        ]

    def merged(self, mine: Floats, merge: Merge) -> Floats:
        """The elementwise sum or minimum of arrays of one shape; bitwise equal in each process."""
        return self._in_time(lambda: _reduce(mine, merge))

    def _in_time(self, exchange: Callable[[], Made]) -> Made:
        outcome: dict[str, Any] = {}

        def run() -> None:
            try:
                outcome["found"] = exchange()
            except Exception as error:
                outcome["error"] = error

        # A daemon thread, which does not keep the program from ending.
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self._time_limit)
        if thread.is_alive():
            raise TimeoutError(
                f"a process has said nothing for {self._time_limit} seconds (time_limit): it is "
                "stuck, or has more rows than the others"
            )
        if "error" in outcome:
            raise RuntimeError("a process has ended, or cannot be reached") from outcome["error"]
        return outcome["found"]


class Gathers(Protocol):
    """Gathers bytes of all processes."""

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """The bytes of all processes, which may differ in length."""


def agree(exchange: Gathers, work: Callable[[], Made]) -> Made:
    """Run `work` in every process; returns its result here. An error of any is raised in all."""
    results: list[Made] = []

    def run() -> bytes:
        results.append(work())
        return b""

    results_of_all(exchange, run)
    return results[0]


def results_of_all(exchange: Gathers, work: Callable[[], bytes]) -> list[bytes]:
    """Run `work` in every process; returns the results of all processes, or raises as `agree`."""
    try:
        own_message = _RESULT + work()
    except ValueError as error:
        own_message = _ERROR + str(error).encode()
    gathered = exchange.gather_bytes(own_message)
    for process, message in enumerate(gathered):
        if message.startswith(_ERROR):
            raise ValueError(f"{message[1:].decode()} (in process {process})")
    return [message[1:] for message in gathered]


def _fitted(content: bytes, size: int) -> NDArray[np.uint8]:
    """The content cut or padded with zeros to this size."""
    return np.frombuffer(content[:size].ljust(size, b"\0"), np.uint8)


def _reduce(mine: Floats, merge: Merge) -> Floats:
    """The reduction of the arrays of all processes; each receives about twice an array's bytes."""
    with jax.enable_x64(True):
        mesh = _processes()
        spread = NamedSharding(mesh, Spec("process"))
        gathered = jax.make_array_from_process_local_data(spread, mine[None])
        return np.asarray(_reduction(mesh, merge)(gathered).addressable_data(0))


def _processes() -> Mesh:
    """A mesh of one device from each process."""
    first: dict[int, Any] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    return Mesh(np.array([first[process] for process in sorted(first)]), ("process",))


@cache
def _reduction(mesh: Mesh, merge: Merge) -> Callable[[jax.Array], jax.Array]:
    def local(mine: jax.Array) -> jax.Array:
        return _OVER_AXIS[merge](mine[0], "process")

    reduce = jax.shard_map(local, mesh=mesh, in_specs=Spec("process"), out_specs=Spec())
    return xla.jit(reduce)


def keys_of_all(exchange: Gathers, mine: NDArray[Any] | None) -> NDArray[Any]:
    """The distinct segment ids of all processes, ascending, given the ids of this one."""
    parts = [_from_bytes(x) for x in exchange.gather_bytes(to_bytes(mine)) if x]
    kinds = {_kind(part) for part in parts}
    if len(kinds) > 1:
        raise ValueError(
            "segments: expected ids of one kind in all processes, got "
            + " and ".join(sorted(kinds))
        )
    rows = factorize(ids.read(ids.join(parts)))
    return rows.named(np.flatnonzero(np.bincount(rows.of(slice(None)))))


def _kind(keys: NDArray[Any]) -> str:
    if keys.dtype.names is not None:
        return f"{len(keys.dtype.names)} columns"
    return ids.kind(keys)


def to_bytes(keys: NDArray[Any] | None) -> bytes:
    """An .npz file with an array for each column; objects are stored as text, without pickle."""
    if keys is None:
        return b""
    file = io.BytesIO()
    layout, arrays = ids_to_arrays("keys", keys)
    np.savez(file, layout=json.dumps(layout), **arrays)
    return file.getvalue()


def _from_bytes(sent: bytes) -> NDArray[Any]:
    with np.load(io.BytesIO(sent), allow_pickle=False) as arrays:
        layout = json.loads(arrays["layout"].item())
        return arrays_to_ids("keys", layout, arrays.__getitem__)
