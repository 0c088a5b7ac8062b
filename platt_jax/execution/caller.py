"""Warnings about fits with rows that are not finite."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.caller import Caller
from platt_jax.options import Options
from platt_jax.results import tables
from platt_jax.results.fit import Fit
from platt_jax.status import Status

ARE_NAN = 'their curves are NaN. Options(non_finite="omit") fits them without these rows'


def report_non_finite(
    result: Fit,
    options: Options,
    kind: str,
    names: NDArray[Any],
    caller: Caller,
    consequence: str = ARE_NAN,
) -> None:
    """Warns of NON_FINITE fits, or raises: how many there are, and which is the first.

    `kind` is the noun for a problem, and `consequence` what follows for them.
    """
    bad = np.flatnonzero(jax.device_get(result.status) == Status.NON_FINITE)
    if not len(bad):
        return
    fault = (
        f"NaN, infinite or overflowing numbers in {len(bad):,} of "
        f"{tables.counted(len(names), kind)}, first in {tables.name(names, bad[0])}"
    )
    if options.non_finite == "raise":
        raise ValueError(f"scores, labels, weights, offset: expected finite values, found {fault}")
    caller.warn(f"{fault}: {consequence}")
