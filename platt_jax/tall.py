"""One problem too tall for a chunk: each pass goes slab by slab, and the host adds up the sums.

The stages of `solve.solve_tiles`, each a program of its own over a slab of one shape. So a problem
of any size compiles the same few programs and takes little more memory than its rows.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import jax
import numpy as np

from platt_jax import frame as frames
from platt_jax import newton, packing, root, solve, tiles
from platt_jax.calibrators import Fit
from platt_jax.frame import Frame
from platt_jax.objective import GaussianPrior
from platt_jax.options import Options
from platt_jax.threads import in_order
from platt_jax.tiles import Summary, Tiles

# The fields of a Summary that are the greatest of any slab. The others are the least.
_GREATEST = {"bad", "high_pos", "high_neg"}

_compiled = partial(jax.jit, static_argnames="options", compiler_options=tiles.COMPILER_OPTIONS)


def slabs_of(size: int, take: Callable[[slice], tuple]) -> Iterator[tuple]:
    """A problem of so many rows as slabs, each with the number of rows in it.

    Args:
        size: how many rows the problem has.
        take: gives the scores, labels and weights (or None) of a slice of them.
    """
    for first in range(0, size, packing.SLAB):
        last = min(first + packing.SLAB, size)
        yield *packing.flat(take(slice(first, last)), packing.SLAB), np.int32(last - first)


def fit_tall(slabs: Iterable[tuple], prior: GaussianPrior | None, options: Options) -> Fit:
    """Fit one problem.

    Args:
        slabs: its rows, see `slabs_of`; they are standardised in place.
        prior: None, or leading with [1, 1].
        options: how to fit.

    Returns:
        A Fit whose fields lead with [1, 1].
    """

    def add_up(term, slabs, *arguments):
        """The sum of a term over the slabs, in float64 whatever its type: counts stay exact."""
        of_slabs = in_order(
            lambda slab: jax.block_until_ready(term(slab, *arguments, options=options)), slabs
        )
        with np.errstate(all="ignore"):
            return jax.tree.map(
                lambda *x: np.sum(np.stack(x), 0, dtype=np.float64).astype(x[0].dtype), *of_slabs
            )

    begun = in_order(partial(_begin, options=options), slabs)
    slabs, on_device, looks = map(list, zip(*begun, strict=True))
    seen = _together(looks)
    moments = add_up(_moments, on_device, seen)
    del on_device  # On a CPU these are the slabs themselves, which now change.
    targets, setting, state = _plan(seen, moments, prior, options=options)
    rows = list(in_order(partial(_standardise, frame=setting.frame), slabs))
    while newton.running(state).any():
        sums = add_up(_evaluate, rows, state, targets)
        change = None
        if options.line_search == "loss":
            change = add_up(_nll_change, rows, state, targets)
        state = _step(state, sums, change, prior, setting, options=options)
    loss = add_up(_nll, rows, state, targets)
    del slabs, rows  # JAX lets go of a NumPy array at its next call, which should be one of ours.
    return _report(state, loss, prior, setting, seen, moments, options=options)


def _begin(slab, options):
    """A slab, the same on the device, and the look at it."""
    on_device = jax.device_put(slab)
    return slab, on_device, jax.block_until_ready(_look(on_device, options=options))


def _standardise(slab, frame: Frame) -> Tiles:
    """The slab as tiles fit to be evaluated.

    By the host and in place: memory of its own would have to be cleared by the system first, which
    takes longer than all else that is done here.
    """
    scores, labels, weights, size = slab
    absent = ~np.isfinite(scores)
    if weights is not None:
        absent |= ~np.isfinite(weights)
    absent[size:] = True
    center, scale = (np.asarray(x).item() for x in frame)
    with np.errstate(all="ignore"):
        scores -= center
        scores *= scale
    if absent.any():
        scores[absent] = tiles.far(scores.dtype)
        if weights is not None:
            weights[absent] = 0
    return jax.device_put(packing.slab_tiles(scores, labels > 0, weights))


def _together(looks: list[Summary]) -> Summary:
    """The summary of the whole problem."""

    def of_all(name):
        parts = np.stack([getattr(look, name) for look in looks])
        return parts.max(0) if name in _GREATEST else parts.min(0)

    return Summary(*map(of_all, Summary._fields))


@_compiled
def _look(slab, options):
    _, seen = solve.look(packing.slab(*slab), options)
    return seen


@_compiled
def _moments(slab, seen, options):
    rows, _ = solve.look(packing.slab(*slab), options)
    return tiles.moments(rows, *frames.rough_frame(seen))


@_compiled
def _plan(seen, moments, prior, options):
    targets, setting = solve.plan(seen, frames.rough_frame(seen), moments, prior, options)
    return targets, setting, newton.start(setting.A, setting.B)


@_compiled
def _evaluate(rows, state, targets, options):
    return tiles.evaluate(rows, newton.trial(state), targets, options.derivatives)


@_compiled
def _nll_change(rows, state, targets, options):
    return tiles.nll_change(rows, (state.A, state.B), newton.trial(state), targets)


@_compiled
def _step(state, sums, change, prior, setting, options):
    trial = newton.trial(state)
    sums = root.add_prior(sums, prior, setting, trial)
    if change is not None:
        change += root.penalty_change(prior, setting, (state.A, state.B), trial)
    return newton.step_all(state, sums, change, setting.facts, options)


@_compiled
def _nll(rows, state, targets, options):
    return tiles.nll(rows, (state.A, state.B), targets)


@_compiled
def _report(state, loss, prior, setting, seen, moments, options):
    loss += root.penalty(prior, setting, (state.A, state.B))
    solution = root.ended(state, loss, setting)
    rough = frames.rough_frame(seen)
    return solve.report(solution, setting.frame, seen, rough, moments, options)
