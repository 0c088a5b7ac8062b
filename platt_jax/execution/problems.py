"""A set of problems, and the context they are solved in."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from platt_jax.caller import Caller
from platt_jax.execution.checkpoint import Checkpoint
from platt_jax.execution.progress import SILENT, Stage
from platt_jax.options import Options
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns

# Takes a slice of the problems, a slice of each one's rows, and a space. Returns the columns of
# these rows end to end, with the space's length; what follows is undefined.
TakeRows: TypeAlias = Callable[[slice, slice, packing.Space], Columns]


class Problems(NamedTuple):
    """The rows of K problems."""

    # (K,) numbers of rows, in the order of `planning.largest_first`.
    sizes: NDArray[Any]
    # Returns the problems' rows; called on several threads.
    take: TakeRows
    # The dtype of the scores.
    dtype: np.dtype[Any]
    # (K,) the place of each problem among what is given and in the result; None for the same order.
    order: NDArray[Any] | None = None
    # Whether every pass over an oversized problem reads its rows again, because the device's memory
    # may not hold them.
    reread: bool = False


class Context(NamedTuple):
    """How problems are solved, and what receives progress, warnings and results so far."""

    options: Options
    # Gets warnings about anything that makes the solution slower.
    caller: Caller
    # The stage whose progress is reported.
    stage: Stage = SILENT
    # Where results are kept while the call runs, and where an interrupted call's results are found.
    # Only for tasks that return a Fit.
    checkpoint: Checkpoint | None = None
    # A mesh from `devices.checked`; None for the default device.
    mesh: Mesh | None = None
    # Whether to compile alone, which ends at once if the program ran before: no results are kept.
    ahead: bool = False


class Task(NamedTuple):
    """A computation for every problem. Two functions take rows, what is given, and options."""

    traced: Callable[..., Any]  # results have the problems' leading axes
    on_host: Callable[..., Any]  # for an oversized problem; runs on the host
    # As `in_kernel.fit_ranges`; None if no kernel computes it.
    by_kernel: Callable[..., Any] | None = None
    # Takes what `traced` returns, and options; None if that is the result. It is computed in a loop
    # of its own, and changes no last digit of what is computed before. The result is that of
    # `checked` of what `traced` returns.
    then: Callable[..., Any] | None = None
