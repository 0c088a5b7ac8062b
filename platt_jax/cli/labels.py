"""Labels with two values of any kind, one of which --pos-label names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.ids.labels import labels_by_name


def by_name(values: Any, missing: NDArray[np.bool_], pos_label: Any, column: str) -> NDArray[Any]:
    """1 where a label is `pos_label`, 0 where it is the one other value, NaN where it is missing.

    Args:
        values: the labels that are not missing, in order.
        missing: (N,) which labels are missing.
        pos_label: the label of class 1, of the type of the values.
        column: name of their column, for messages.

    Returns:
        (N,) integers, or float64 if some are missing.

    Raises:
        ValueError: there is a third value.
    """
    try:
        labels = labels_by_name(values, pos_label, 1)
    except ValueError as error:
        raise ValueError(f"column {column!r}: {error}") from None
    if not missing.any():
        return labels.astype(np.int64)
    full = np.full(len(missing), np.nan)
    full[~missing] = labels
    return full
