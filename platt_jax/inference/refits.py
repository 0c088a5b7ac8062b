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
    proba = np.full(len(which), np.nan, rows.dtype)
    indices = np.flatnonzero(sizes > 0)
    order = planning.largest_first(sizes[indices])
    indices = indices[order]
    if not len(indices):
        return proba
    sizes = sizes[indices]
    starts, left_out = rows.groups.starts[problem[indices]], which[indices]

    def take(fits: slice, part: slice, space: packing.Space) -> Columns:
        first, last, _ = part.indices(int(sizes[fits][0]))
        if part == slice(None):
            groups = Groups(sizes[fits])
            where = groups.by_row(starts[fits]) + groups.place
            where += where >= groups.by_row(left_out[fits])
        else:
            where = np.arange(first, last) + starts[fits]
            where += where >= left_out[fits]
        return rows.taken(where, space)

    centered = None
    if prior is not None:
        row_prior: GaussianPrior = jax.tree.map(lambda x: x[problem[indices]], prior)
        centered = CenteredPrior.of(row_prior, proba.dtype)
    inputs = ProblemInputs(centered, tuple(x[indices] for x in start))
    fits = fit_problems(Problems(sizes, take, proba.dtype), inputs, Context(options, caller))
    space = packing.Space(shapes.few_lengths(len(indices), 1))
    columns = accelerators.fetched(rows.taken(left_out, space))
    columns = jax.tree.map(lambda x: x[: len(indices), None], columns)
    predicted = Sigmoid(fits.A, fits.B).predict_proba(columns.scores, offset=columns.offset)
    proba[indices] = predicted[:, 0]
    return proba
