"""Problems through the compiled program, chunk by chunk."""

from collections.abc import Callable
from functools import partial

import jax
import numpy as np

from platt_jax import validation
from platt_jax.execution import planning
from platt_jax.execution.caller import Caller
from platt_jax.execution.planning import GatherMap, RowRanges
from platt_jax.model.objective import GaussianPrior
from platt_jax.options import Options
from platt_jax.passes import packing, scan, tiles, xla
from platt_jax.passes.blocks import blocks_of, fit_oversized
from platt_jax.results.calibrators import Fit
from platt_jax.solver.solution import solve_rows
from platt_jax.threads import ordered_map, run_programs

# Given a slice of the problems, which rows of each, and a space: these rows end to end in arrays of
# its length, scores, labels, and weights or None. What follows them may be anything.
TakeRows = Callable[[slice, slice, packing.Space], tuple[np.ndarray, np.ndarray, np.ndarray | None]]
_ALL = slice(None)

_TOO_SMALL = "the device's memory is too small for this fit"


def fit_problems(
    sizes: np.ndarray,
    take: TakeRows,
    dtype,
    prior,
    options,
    progress,
    caller: Caller,
    places=None,
    loss=True,
) -> Fit:
    """Fit K problems.

    Args:
        sizes: (K,) numbers of rows, in the order of `layout.largest_first`.
        take: gives their rows; called on several threads.
        dtype: of the scores.
        prior: None, or with mean (K, 2) and precision (K, 2, 2).
        options: how to fit.
        progress: show a progress bar.
        caller: is warned of what makes the fit slower.
        places: (K,) where each goes in the result; None for as they come.
        loss: whether the loss is wanted. If not, that of problems that fit no chunk is NaN: it
            takes a pass.

    Returns:
        A Fit of NumPy arrays that lead with (K,).

    Raises:
        MemoryError: the device's memory is too small even for the smallest chunks, or for all rows
            of a problem that fits no chunk.
    """
    options = validation.options(options).with_tol(dtype)
    if (slower := xla.missing()) is not None:
        caller.warn_once(slower)

    def fit_chunk(chunk):
        space = packing.Space(chunk.capacity, reused=True)
        return _fit_chunk(chunk, take(chunk.problems, _ALL, space), prior, options)

    def fit_all():
        results = _Results(len(sizes), places)
        most = planning.LARGEST
        with _progress_bar(len(sizes), progress) as bar:
            for i in range(int(np.sum(sizes > planning.MAX_CHUNK_PROBLEM))):
                bar.update(results.add(_fit_oversized(i, sizes[i], take, prior, options, loss)))
            while results.count < len(sizes):
                try:
                    for fitted in ordered_map(
                        fit_chunk, planning.chunks(sizes, results.count, most)
                    ):
                        bar.update(results.add(fitted))
                except jax.errors.JaxRuntimeError as error:
                    if not _is_want_of_memory(error):
                        raise
                    most = _smaller_chunks(most, error, caller)
        return results.fit

    return run_programs(fit_all, x64=dtype == np.float64)


class _Results:
    """The fits of the problems, each put in its place as it comes."""

    def __init__(self, length, places):
        self._length = length
        self._places = places
        self.count = 0

    def add(self, fitted: Fit) -> int:
        """Take in the fits of the next problems, and say how many they are."""
        if self.count == 0:
            shape = (self._length,)
            self.fit = jax.tree.map(lambda x: np.empty(shape + x.shape[1:], x.dtype), fitted)
        number = len(fitted.status)
        where = slice(self.count, self.count + number)
        if self._places is not None:
            where = self._places[where]
        for whole, part in zip(*map(jax.tree.leaves, (self.fit, fitted)), strict=True):
            _items(whole)[where] = _items(part)
        self.count += number
        return number


def _items(x):
    """All numbers of a problem as one item, of which NumPy places many in the time of a row."""
    kind = np.dtype((np.void, x.nbytes // len(x)))
    return x.reshape(len(x), -1).view(kind)[:, 0]


def _smaller_chunks(rows, error, caller) -> int:
    """The size to go on with after this error.

    Raises:
        MemoryError: there is no smaller size.
    """
    smaller = planning.smaller(rows)
    if smaller is None:
        raise MemoryError(_TOO_SMALL) from error
    if rows == planning.LARGEST:
        caller.warn("the device's memory ran out: going on with smaller chunks, which takes longer")
    return smaller


def _is_want_of_memory(error):
    return "RESOURCE_EXHAUSTED" in str(error)


def _fit_oversized(i, size, take, prior, options, loss) -> Fit:
    """Fit the problem i, which fits no chunk."""
    slabs = blocks_of(size, partial(take, slice(i, i + 1)))
    if prior is not None:
        prior = jax.tree.map(lambda leaf: leaf[i], prior)
    try:
        fitted = fit_oversized(slabs, prior, options, loss)
    except jax.errors.JaxRuntimeError as error:
        if _is_want_of_memory(error):
            raise MemoryError(_TOO_SMALL) from error
        raise
    return jax.tree.map(lambda x: np.asarray(x)[None], fitted)


def _fit_chunk(chunk, rows, prior, options) -> Fit:
    if prior is not None:
        slices, group = chunk.grid
        prior = GaussianPrior(
            *(
                packing.lengthen(leaf[chunk.problems], slices * group).reshape(
                    chunk.grid + leaf.shape[1:]
                )
                for leaf in prior
            )
        )
    fitted = solve_chunk(*rows, chunk.row_map(), prior, options=options)
    problems = chunk.problems.stop - chunk.problems.start
    return jax.tree.map(lambda x: _lead_with_problems(x)[:problems], fitted)


@partial(jax.jit, static_argnames="options", compiler_options=tiles.COMPILER_OPTIONS)
def solve_chunk(
    scores, labels, weights, where: GatherMap | RowRanges, prior, options: Options
) -> Fit:
    """Fit the problems of a chunk; every field of the result leads with [S, G]."""
    if isinstance(where, GatherMap):
        return solve_rows(packing.gather(scores, labels, weights, where), prior, options)
    fit = partial(solve_rows, options=options)
    columns = scores, labels, weights
    return scan.scan_groups(fit, columns, *where, prior, planning.MAX_SIDE_BY_SIDE)


def _lead_with_problems(x):
    x = np.asarray(x)
    return x.reshape((-1, *x.shape[2:]))


class _NoBar:
    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        return None

    def update(self, n):
        pass


def _progress_bar(total, wanted):
    if not wanted:
        return _NoBar()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm: pip install 'platt-jax[progress]'") from None
    return tqdm(total=total, unit="fit")
