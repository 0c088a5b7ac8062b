"""Names for the types of NumPy arrays."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Words: TypeAlias = NDArray[np.uint64]  # random words, and ids that determine them
