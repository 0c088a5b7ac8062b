"""Problems through the compiled program, chunk by chunk."""

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import jax
import numpy as np

from platt_jax import checks, packing
from platt_jax.calibrators import Fit
from platt_jax.objective import GaussianPrior
from platt_jax.solve import solve_tiles

# In a job of fewer rows the second loop, for stragglers, saves less than it takes to compile: some
# 1.5 ns a row against about a second. A notebook's first fit should not wait for it.
_ROWS_FOR_A_SECOND_LOOP = 1 << 20

# Given a slice of the problems, their rows end to end: scores, labels, weights or None.
TakeRows = Callable[[slice], tuple[np.ndarray, np.ndarray, np.ndarray | None]]


def fit_problems(sizes: np.ndarray, take: TakeRows, dtype, prior, options, progress) -> Fit:
    """Fit K problems.

    Args:
        sizes: (K,) numbers of rows, which must not ascend.
        take: gives the rows of a slice of the problems.
        dtype: of the scores.
        prior: None, or with mean (K, 2) and precision (K, 2, 2).
        options: how to fit.
        progress: show a progress bar.

    Returns:
        A Fit of NumPy arrays that lead with (K,).

    Raises:
        MemoryError: the device's memory is too small even for the smallest chunks.
    """
    done: list[Fit] = []
    apart = stragglers_apart(sizes)
    with _progress_bar(len(sizes), progress) as bar:

        def begin(chunk):
            return _begin(chunk, take(chunk.problems), dtype, prior, options, apart)

        first, most = 0, packing.LARGEST
        while first < len(sizes):
            try:
                for fitted in _one_ahead(begin, packing.chunks(sizes, first, most)):
                    done.append(fitted)
                    first += len(fitted.status)
                    bar.update(len(fitted.status))
            except jax.errors.JaxRuntimeError as error:
                most = _smaller_chunks(most, error)
    return jax.tree.map(lambda *parts: np.concatenate(parts), *done)


def stragglers_apart(sizes: np.ndarray) -> bool:
    """Whether a job of problems of these sizes is to have a second loop for stragglers."""
    return int(sizes.sum()) > _ROWS_FOR_A_SECOND_LOOP


def _one_ahead(begin, chunks) -> Iterator[Fit]:
    """The fits of the chunks; one computes while the next is being packed."""
    in_flight = None
    for chunk in chunks:
        following = begin(chunk)
        if in_flight is not None:
            yield in_flight()
        in_flight = following
    if in_flight is not None:
        yield in_flight()


def _smaller_chunks(tile_rows, error):
    """The size to go on with after this error.

    Raises:
        JaxRuntimeError: it was not for want of memory.
        MemoryError: there is no smaller size.
    """
    if "RESOURCE_EXHAUSTED" not in str(error):
        raise error
    smaller = packing.smaller(tile_rows)
    if smaller is None:
        raise MemoryError("the device's memory is too small for this fit") from error
    if tile_rows == packing.LARGEST:
        warnings.warn(
            "the device's memory ran out: going on with smaller chunks, which takes longer",
            RuntimeWarning,
            stacklevel=4,
        )
    return smaller


def begin_one(scores, labels, weights, prior, options) -> Callable[[], Fit]:
    """Begin the fit of one problem, which computes while the caller does something else.

    Returns:
        A function that waits for the end and gives a Fit whose arrays lead with (1,).

    Raises:
        MemoryError: the device's memory is too small; the function may raise it, too.
    """
    rows = scores, labels, weights
    (chunk,) = packing.chunks(np.array([len(scores)]))

    def whole(step):
        try:
            return step()
        except jax.errors.JaxRuntimeError as error:
            return _smaller_chunks(0, error)  # there are none: it always raises

    fitted = whole(lambda: _begin(chunk, rows, scores.dtype, prior, options, apart=False))
    return lambda: whole(fitted)


def _begin(chunk, rows, dtype, prior, options, apart) -> Callable[[], Fit]:
    options = checks.options(options).with_tol(dtype)
    with jax.enable_x64(dtype == np.float64):
        result = _run_chunk(chunk, rows, prior, options, apart)
    problems = chunk.problems.stop - chunk.problems.start
    return lambda: jax.tree.map(lambda x: _lead_with_problems(x)[:problems], result)


def _run_chunk(chunk, rows, prior, options, apart):
    scores, labels, weights = rows
    if labels.min() == checks.BAD_LABEL:
        scores = np.where(labels == checks.BAD_LABEL, np.asarray(np.nan, scores.dtype), scores)
    rows = scores, labels, weights
    flat = [None if x is None else _lengthen(x, chunk.capacity) for x in rows]
    if prior is not None:
        shape = chunk.start.shape
        prior = GaussianPrior(
            *(
                _lengthen(leaf[chunk.problems], chunk.start.size).reshape(shape + leaf.shape[1:])
                for leaf in prior
            )
        )
    layout = (chunk.start, chunk.size, chunk.owner, chunk.part)
    return _solve_chunk(*flat, layout, prior, options=options, apart=apart)


# XLA takes to vectors of half the width on its own; half of float64 passes goes by the full one.
_COMPILER_OPTIONS = {"xla_cpu_prefer_vector_width": 512}


@partial(jax.jit, static_argnames=("options", "apart"), compiler_options=_COMPILER_OPTIONS)
def _solve_chunk(scores, labels, weights, layout, prior, options, apart):
    return solve_tiles(packing.gather(scores, labels, weights, *layout), prior, options, apart)


def _lead_with_problems(x):
    x = np.asarray(x)
    return x.reshape((-1, *x.shape[2:]))


def _lengthen(values, length):
    """Values, and zeros up to this length, where JAX takes them as they are on a CPU."""
    out = _aligned((length, *values.shape[1:]), values.dtype)
    out[: len(values)] = values
    out[len(values) :] = 0
    return out


# JAX copies NumPy's arrays to a CPU that do not begin at a multiple of so many bytes.
_ALIGNMENT = 64


def _aligned(shape, dtype):
    """An array of anything."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    skipped = -memory.ctypes.data % _ALIGNMENT
    return memory[skipped : skipped + size].view(dtype).reshape(shape)


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
