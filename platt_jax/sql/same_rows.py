"""The check that every pass reads the rows of the first."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from platt_jax.sql.moments import ClassMoments
from platt_jax.sql.names import SAME
from platt_jax.sql.values import numbers

_EPS = np.finfo(float).eps
_ADVICE = "give snapshot=True, or store them as a table that nothing changes"


def check_same_rows(
    found: pa.Table,
    which: NDArray[np.intp],
    good: NDArray[np.int64],
    plain: ClassMoments,
    widest_offset: Any,
) -> None:
    """Check what a pass tells of its rows, see `queries._same_rows`.

    Args:
        found: the result of the pass.
        which: (J,) segments whose rows were joined.
        good: (K,) or (K + 1,) number of good rows by the first pass.
        plain: (K,) moments of the original scores by the first pass.
        widest_offset: None, or (K,) or (K + 1,) largest absolute offset.

    Raises:
        ValueError: they differ from those of the first pass.
    """
    place = numbers(found["j"]).astype(int)
    number = np.zeros(len(good))
    number[place] = numbers(found["good"])
    if (changed := number[which] != good[which]).any():
        first = which[np.argmax(changed)]
        raise ValueError(
            "relation: expected the same rows in every pass, but rows changed: "
            f"{int(number[first]):,} rows of a segment that had {good[first]:,} are there now; "
            f"{_ADVICE}"
        )
    for name, (expected, size) in zip(SAME, _sums(plain, widest_offset), strict=False):
        off = np.abs(numbers(found[name]) - expected[place])
        # A sum of n terms errs by up to n units in the last place of the sum of their sizes, in
        # each of the two passes; a term itself by one.
        if (off > 2 * (good[place] + 2) * _EPS * size[place]).any():
            raise ValueError(
                "relation: expected the same rows in every pass, but rows changed: a segment's "
                f"sums of {_name_in_words(name)} differ from those of the first pass; {_ADVICE}"
            )


def _name_in_words(name: str) -> str:
    return f"{name.removeprefix('same_')}s and labels"


def _sums(plain: ClassMoments, widest_offset: Any) -> list[tuple[Any, Any]]:
    """The sums by the first pass, and bounds of the sums of their terms' sizes."""
    # Any: traced rows have JAX arrays where these are NumPy arrays.
    pos: Any
    neg: Any
    pos, neg = plain
    weight = pos.total + neg.total
    # By the inequality of Cauchy and Schwarz.
    score_bound = np.sqrt(weight) * np.sqrt(pos.second + neg.second)
    sums: list[tuple[Any, Any]] = [
        (pos.total - neg.total, weight),
        (pos.first - neg.first, score_bound),
    ]
    if widest_offset is not None:
        sums.append((pos.offset - neg.offset, weight * widest_offset[: len(weight)]))
    return sums
