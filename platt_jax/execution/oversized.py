"""Oversized problems: their rows are read in blocks, and the host runs the search."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from platt_jax.backend import accelerators
from platt_jax.backend.threads import ordered_map
from platt_jax.execution import devices, planning
from platt_jax.execution.problems import Problems, Task
from platt_jax.execution.progress import ignore_progress
from platt_jax.options import Options
from platt_jax.passes import packing, shapes
from platt_jax.passes.blocks import Block, Blocks
from platt_jax.passes.columns import Columns
from platt_jax.passes.protocol import Rows
from platt_jax.results.fit import Fit
from platt_jax.solver import search
from platt_jax.solver.solution import ProblemInputs, fit_rows

TOO_SMALL = "the device's memory is too small for this fit"


def run_oversized(
    task: Task,
    i: int,
    problems: Problems,
    given: Any,
    options: Options,
    mesh: Mesh | None = None,
) -> Any:
    """The results of oversized problem i; `given` is in the order of the problems' sizes."""
    given = jax.tree.map(lambda leaf: leaf[i], given)
    take = partial(problems.take, slice(i, i + 1))
    with memory_errors():
        rows = _blocks(problems.sizes[i], take, problems.reread, mesh)
        results = task.on_host(rows, given, options)
    return jax.tree.map(lambda x: np.asarray(x)[None], accelerators.fetched(results))


def _blocks(
    size: int,
    take: Callable[..., Columns],
    reread: bool,
    mesh: Mesh | None,
) -> Blocks:
    """The rows of an oversized problem."""
    parts: list[Any] = block_slices(size, 1 if mesh is None else mesh.size)
    reader: Callable[..., Block] = partial(read_block, take, reused=reread)
    if mesh is not None:
        parts = list(devices.together(parts, mesh.size))
        reader = partial(devices.put_blocks, mesh, partial(read_block, take))
    if reread:
        return Blocks(source=parts, read=reader, mesh=mesh)
    blocks = list(ordered_map(lambda part: jax.device_put(reader(part)), parts))
    return Blocks(source=blocks, mesh=mesh)


def block_slices(size: int, devices: int = 1) -> list[slice]:
    """The slices of an oversized problem's rows that make up its blocks."""
    length = planning.block_length(size, devices)
    return [slice(first, min(first + length, size)) for first in range(0, size, length)]


def read_block(
    take: Callable[[slice, packing.Space], Columns], part: slice, reused: bool = False
) -> Block:
    """A block: a slice of the rows that `take` returns; `reused` as in `packing.Space`."""
    columns = take(part, packing.Space(shapes.sizes().block_rows, reused))
    return Block(columns, np.int32(part.stop - part.start))


def fit_on_host(
    rows: Rows,
    given: ProblemInputs,
    options: Options,
    loss: bool = True,
    report: Callable[[NDArray[np.bool_]], Any] = ignore_progress,
) -> Fit:
    """Fits with the host's loop. If `loss` is False, nll is NaN and saves a pass.

    `report` is as in `search.host`.
    """
    runner = search.host(report)
    optimum = partial(search.optimum, runner=runner, loss=loss)
    fitted = fit_rows(rows, given, options, optimum, runner)
    return fitted if loss else replace(fitted, nll=np.full_like(fitted.nll, np.nan))


@contextmanager
def memory_errors() -> Iterator[None]:
    """Raises a MemoryError where JAX's error says that the device's memory is too small."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if is_out_of_memory(error):
            raise MemoryError(TOO_SMALL) from error
        raise


def is_out_of_memory(error: Exception) -> bool:
    """Whether JAX's error says that the device's memory is too small."""
    return "RESOURCE_EXHAUSTED" in str(error)
