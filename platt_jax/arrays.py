"""Names for the types of NumPy arrays."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Integers: TypeAlias = NDArray[np.integer[Any]]  # of any width
Bools: TypeAlias = NDArray[np.bool_]
Words: TypeAlias = NDArray[np.uint64]  # random words, and ids that determine them
