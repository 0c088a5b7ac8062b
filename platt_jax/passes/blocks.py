"""One problem too tall for a chunk: each pass goes slab by slab, and the host adds up the sums.

The stages of `solution.solve_rows`, each a program of its own over a slab of one shape. So a
problem of any size compiles the same few programs and takes little more memory than its rows.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax.execution import planning
from platt_jax.model import standardization as frames
from platt_jax.model.objective import GaussianPrior
from platt_jax.model.statistics import ScoreRanges
from platt_jax.options import Options
from platt_jax.passes import packing, tiles, vectors, xla
from platt_jax.results.calibrators import Fit
from platt_jax.solver import newton, search, solution
from platt_jax.solver.search import passes_over
from platt_jax.threads import ordered_map

# The fields of a ScoreRanges that are the greatest of any slab. The others are the least.
_GREATEST = {"bad", "high_pos", "high_neg"}


def blocks_of(size: int, take: Callable[[slice, packing.Space], tuple]) -> Iterator[tuple]:
    """A problem of so many rows as slabs, each with the number of rows in it.

    Args:
        size: how many rows the problem has.
        take: gives scores, labels and weights (or None) of a slice of them, in a space.
    """
    length = planning.block_length(size)
    for first in range(0, size, length):
        last = min(first + length, size)
        yield *take(slice(first, last), packing.Space(planning.BLOCK)), np.int32(last - first)


def fit_oversized(
    slabs: Iterable[tuple], prior: GaussianPrior | None, options: Options, loss: bool = True
) -> Fit:
    """Fit one problem.

    Args:
        slabs: its rows, see `blocks_of`.
        prior: None, or of this problem.
        options: how to fit.
        loss: whether the loss is wanted, which takes a pass; if not, it is NaN.
    """
    by_strips = xla.fused_cpu_supported()

    def run(stage, slab, *arguments):
        return jax.block_until_ready(stage(slab, *arguments, options=options, by_strips=by_strips))

    def look(slab):
        slab = jax.device_put(slab)
        return slab, run(_look, slab)

    def add_up(stage, slabs, *arguments):
        """The sum of a term over the slabs, in float64 whatever its type: counts stay exact."""
        of_slabs = ordered_map(lambda slab: run(stage, slab, *arguments), slabs)
        with np.errstate(all="ignore"):
            return jax.tree.map(
                lambda *x: np.sum(np.stack(x), 0, dtype=np.float64).astype(x[0].dtype), *of_slabs
            )

    on_device, looks = map(list, zip(*ordered_map(look, slabs), strict=True))
    seen = _together(looks)
    moments = add_up(_moments, on_device, seen)
    targets, setting, state = _plan(seen, moments, prior, options=options)
    while newton.running(jax.device_get(state)):
        sums = add_up(_evaluate, on_device, setting.frame, state, targets)
        change = None
        if options.line_search == "loss":
            change = add_up(_nll_change, on_device, setting.frame, state, targets)
        state = _step(state, sums, change, prior, setting, options=options)
    nll = np.zeros_like(state.A)
    if loss:
        nll = add_up(_nll, on_device, setting.frame, state, targets)
    del on_device  # JAX lets go of a NumPy array at its next call, which should be one of ours.
    fit = _report(state, nll, prior, setting, seen, moments, options=options)
    return fit if loss else replace(fit, nll=np.full_like(nll, np.nan))


def _together(looks: list[ScoreRanges]) -> ScoreRanges:
    """The summary of the whole problem."""

    def of_all(name):
        parts = np.stack([getattr(look, name) for look in looks])
        return parts.max(0) if name in _GREATEST else parts.min(0)

    return ScoreRanges(*map(of_all, ScoreRanges._fields))


_compiled = partial(jax.jit, compiler_options=tiles.COMPILER_OPTIONS)


def _stage(function):
    """What a function makes of the rows of a slab, as a program."""

    def run(slab, *arguments, options, by_strips):
        def of_strip(columns, size, arguments):
            scores, labels, weights = columns
            strip = vectors.VectorRows(scores, labels, weights, jnp.int32(0), size)
            return function(strip, *arguments, options=options)

        *columns, size = slab
        if by_strips:
            return xla.single_call(of_strip)(columns, size, arguments)
        arguments = jax.tree.map(lambda x: x[..., None, None], arguments)
        made = function(packing.slab(*slab), *arguments, options=options)
        return jax.tree.map(lambda x: x[0, 0], made)

    return _compiled(run, static_argnames=("options", "by_strips"))


@_stage
def _look(rows, options):
    return passes_over(rows).look(rows, options)


@_stage
def _moments(rows, seen, options):
    passes = passes_over(rows)
    return passes.moments(passes.summable(rows, options), *frames.range_standardization(seen))


@_stage
def _evaluate(rows, frame, state, targets, options):
    passes, rows = _standardised(rows, frame, options)
    return passes.evaluate(rows, newton.trial(state), targets, options.derivatives)


@_stage
def _nll_change(rows, frame, state, targets, options):
    passes, rows = _standardised(rows, frame, options)
    return passes.nll_change(rows, (state.A, state.B), newton.trial(state), targets)


@_stage
def _nll(rows, frame, state, targets, options):
    passes, rows = _standardised(rows, frame, options)
    state = newton.last_step(state, options)
    return passes.nll(rows, (state.A, state.B), targets)


def _standardised(rows, frame, options):
    """The passes, and the rows as these want them: they are reckoned anew each time."""
    passes = passes_over(rows)
    return passes, passes.standardise(passes.summable(rows, options), *frame)


def _decision(function):
    """What a function makes of a few numbers, as a program: much sooner compiled as one."""

    def run(*arguments, options):
        return xla.single_call(partial(function, options=options))(*arguments)

    return _compiled(run, static_argnames="options")


@_decision
def _plan(seen, moments, prior, options):
    targets, setting = solution.plan(
        seen, frames.range_standardization(seen), moments, prior, options
    )
    return targets, setting, newton.start(setting.A, setting.B)


@_decision
def _step(state, sums, change, prior, setting, options):
    trial = newton.trial(state)
    sums = search.add_prior(sums, prior, setting, trial)
    if change is not None:
        change += search.penalty_change(prior, setting, (state.A, state.B), trial)
    return newton.step(state, sums, change, setting.facts, options)


@_decision
def _report(state, nll, prior, setting, seen, moments, options):
    state = newton.last_step(state, options)
    nll += search.penalty(prior, setting, (state.A, state.B))
    found = search.ended(state, nll, setting)
    rough = frames.range_standardization(seen)
    return solution.report(found, setting.frame, seen, rough, moments, options)
