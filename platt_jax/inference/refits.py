"""Rows that are left out one by one, each by a fit of the other rows of its problem."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Ints
from platt_jax.backend import accelerators
from platt_jax.caller import Caller
from platt_jax.execution import planning
from platt_jax.execution.problems import Context, Problems
from platt_jax.execution.run import fit_problems
from platt_jax.groups import Groups
from platt_jax.model.prior import CenteredPrior, GaussianPrior
from platt_jax.options import Options
from platt_jax.passes import packing, shapes
from platt_jax.passes.columns import Columns
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.solver.solution import ProblemInputs


def refit(
    rows: Any,
    which: Ints,
    start: tuple[NDArray[Any], NDArray[Any]],
    prior: GaussianPrior | None,
    options: Options,
    caller: Caller,
) -> NDArray[Any]:
    """The probabilities of these rows, each by a fit of the other rows of its problem.

    `rows` are a ProblemRows, or have the methods of `DeviceGroupedRows`.
    """
    problem = np.searchsorted(rows.groups.starts, which, side="right") - 1
    sizes = rows.groups.sizes[problem] - 1
    found = np.full(len(which), np.nan, rows.dtype)
    some = np.flatnonzero(sizes > 0)
    order = planning.largest_first(sizes[some])
    some = some[order]
    if not len(some):
        return found
    sizes = sizes[some]
    starts, left_out = rows.groups.starts[problem[some]], which[some]

    def take(fits: slice, part: slice, space: packing.Space) -> Columns:
        first, last, _ = part.indices(int(sizes[fits][0]))
        if part == slice(None):
            own = Groups(sizes[fits])
            where = own.by_row(starts[fits]) + own.place
            where += where >= own.by_row(left_out[fits])
        else:
            where = np.arange(first, last) + starts[fits]
            where += where >= left_out[fits]
        return rows.taken(where, space)

    each = None
    if prior is not None:
        own: GaussianPrior = jax.tree.map(lambda x: x[problem[some]], prior)
        each = CenteredPrior.of(own, found.dtype)
    given = ProblemInputs(each, tuple(x[some] for x in start))
    fits = fit_problems(Problems(sizes, take, found.dtype), given, Context(options, caller))
    space = packing.Space(shapes.few_lengths(len(some), 1))
    mine = accelerators.fetched(rows.taken(left_out, space))
    mine = jax.tree.map(lambda x: x[: len(some), None], mine)
    proba = Sigmoid(fits.A, fits.B).predict_proba(mine.scores, offset=mine.offset)
    found[some] = proba[:, 0]
    return found
