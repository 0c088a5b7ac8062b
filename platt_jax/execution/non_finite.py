"""Warnings about fits with non-finite rows."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.caller import Caller
from platt_jax.options import Options
from platt_jax.results import tables
from platt_jax.results.fit import Fit
from platt_jax.status import Status

ARE_NAN = 'their A and B are NaN. Options(non_finite="omit") fits them without these rows'


def report_non_finite(
    result: Fit,
    options: Options,
    kind: str,
    names: NDArray[Any],
    caller: Caller,
    consequence: str = ARE_NAN,
) -> None:
    """Warns of NON_FINITE fits, or raises: how many there are, and which is the first.

    `kind` is the plural noun for the problems, and `consequence` what follows for them.
    """
    bad = np.flatnonzero(jax.device_get(result.status) == Status.NON_FINITE)
    if not len(bad):
        return
    what = (
        f"NaN, infinite or overflowing numbers in {len(bad):,} of {len(names):,} {kind}, "
        f"first in {tables.name(names, bad[0])}"
    )
    if options.non_finite == "raise":
        raise ValueError(f"scores, labels, weights, offset: expected finite values, found {what}")
    caller.warn(f"{what}: {consequence}")
