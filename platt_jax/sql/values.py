"""Values of results of queries."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """A column as float64, with NaN for NULL."""
    return pc.cast(column, pa.float64()).to_numpy()
