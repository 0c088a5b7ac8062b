"""Numbers that depend on an id alone."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def hashes(keys: NDArray[Any]) -> NDArray[np.uint64]:
    """(K,) uint64 for ids (K,): the same in every process."""
    return np.array([_hash(key) for key in keys.tolist()], np.uint64)


def _hash(key: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little")
