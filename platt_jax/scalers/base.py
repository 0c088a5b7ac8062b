"""Common parts of scalers: checked rows, one program per batch, warnings, predictions."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools
from platt_jax.backend import xla
from platt_jax.backend.threads import run_programs
from platt_jax.columns import Column
from platt_jax.execution.caller import Caller
from platt_jax.model import objective
from platt_jax.model.objective import Array
from platt_jax.results import tables
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.fit import problem_names

# Powers of two between which the sum of a problem's weights is kept: beyond, Platt's targets do not
# change. The numbers of float32 end at 2^128.
_LARGEST = 60


_C = TypeVar("_C")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def fitted(cls: type[_C]) -> type[_C]:
    """Makes a class of fitted scalers a frozen dataclass and a pytree."""
    made: type[_C] = dataclass(frozen=True, repr=False, eq=False)(cls)
    return jax.tree_util.register_dataclass(made)


class FiniteRows(NamedTuple):
    """The rows of K problems, all finite; or of one problem, without the leading axis.

    A row of weight 0 is replaced by its problem's heaviest row, so that it does not affect ranges
    or bins. A problem that cannot be fitted gets weights of 1, and its results are blanked later.
    """

    scores: NDArray[Any]  # (K, N)
    positive: Bools  # (K, N)
    weights: NDArray[Any]  # (K, N)


class CheckedArguments(NamedTuple):
    """The arguments of a fit, checked."""

    rows: FiniteRows
    batch: tuple[int, ...]
    bad: Bools  # (K,) a score, label or weight is not finite
    empty: Bools  # (K,) no row has a positive weight


class Fitted(ComparedByValue, ABC):
    """A fitted scaler for a batch of problems (...): a dataclass of arrays."""

    # Number of axes of the first field beyond the batch's.
    _own_axes: ClassVar[int] = 0

    def predict_proba(self, scores: Column) -> NDArray[Any]:
        """P(y=1 | score).

        Args:
            scores: (..., N) for problems (...), or (N,) for all problems.

        Returns:
            (..., N) in [0, 1]; NaN for NaN scores and for problems that could not be fitted. An
            infinite score is treated as the largest finite one.

        Raises:
            ValueError: scores are not numbers, or their shape does not match the problems.
        """
        f, batch = validation.floating(scores, "scores"), self._batch()
        try:
            # A scalar raises IndexError here, having no axis -1.
            np.broadcast_shapes(f.shape, (*batch, f.shape[-1]))
        except (IndexError, ValueError):
            raise ValueError(
                f"scores: expected (..., N) for problems of shape {batch}, got {f.shape}"
            ) from None
        largest = np.finfo(f.dtype).max
        # A score may overflow in the computation of a probability of 0 or 1.
        with np.errstate(over="ignore"):
            return np.where(np.isnan(f), np.nan, self._predict(np.clip(f, -largest, largest)))

    def __repr__(self) -> str:
        named, _ = jax.tree_util.tree_flatten_with_path(self)
        if not named:
            return f"{type(self).__name__}: no parameters"
        batch, (_, first) = self._batch(), named[0]
        number = math.prod(batch)
        learnt = [_in_repr(jax.tree_util.keystr(path)[1:], leaf, batch) for path, leaf in named]
        options = [x.name for x in fields(self) if x.metadata.get("static")]  # type: ignore[arg-type]
        learnt += [f"{name}={getattr(self, name)!r}" for name in options]
        return (
            f"{type(self).__name__}: {number:,} problem{'' if number == 1 else 's'}, "
            f"{getattr(first, 'dtype', 'no array')}: {', '.join(learnt)}"
        )

    def _batch(self) -> tuple[int, ...]:
        leaves = jax.tree.leaves(self)
        first = np.shape(leaves[0]) if leaves else ()
        return first[: len(first) - self._own_axes]

    @abstractmethod
    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        """Probabilities for floating scores."""


F = TypeVar("F", bound=Fitted)


class Scaler(ABC, Generic[F]):
    """A calibration method: a frozen dataclass of its options."""

    def fit(self, scores: Column, labels: Column, *, weights: Column = None) -> F:
        """Fit each problem of a batch.

        Args:
            scores: (..., N) numbers, higher for class 1; leading axes are independent problems.
            labels: bool, {0, 1} or {-1, +1}, broadcastable to scores.
            weights: counts of rows >= 0, broadcastable to scores.

        Returns:
            The fitted scaler, with NumPy arrays whose leading axes are the batch shape (...).

        Raises:
            ValueError: an argument is not as above.
        """
        rows, batch, bad, empty = checked(scores, labels, weights)
        flat: F = jax.tree.map(partial(_blank, bad | empty), self._fit_batch(rows))
        _report_non_finite(flat, bad, empty, batch)
        return jax.tree.map(lambda x: x.reshape(batch + x.shape[1:]), flat)

    def _fit_batch(self, rows: FiniteRows) -> F:
        """Fit K problems; the arrays of the result have leading axis K."""

        def fit_each() -> F:
            return jax.tree.map(np.asarray, _fit_each(rows, self))

        return run_programs(fit_each, x64=rows.scores.dtype == np.float64)

    def _fit_one(self, f: jax.Array, y: jax.Array, w: jax.Array) -> F:
        """Fit one problem from (N,) scores, bool labels and weights; traced by JAX."""
        raise NotImplementedError


@partial(xla.jit, static_argnames="scaler")
def _fit_each(rows: tuple[jax.Array, jax.Array, jax.Array], scaler: Scaler[F]) -> F:
    # By default products of float32 matrices have three digits on a GPU.
    with jax.default_matmul_precision("highest"):
        return jax.vmap(scaler._fit_one)(*rows)


def checked(scores: Column, labels: Column, weights: Column) -> CheckedArguments:
    """The rows of a fit, checked."""
    f = validation.scores(scores)
    class_advice = validation.a_problem_per_class("scores")
    y, w, spoilt = validation.labelled_rows(
        f, labels, weights, "scores", class_advice=class_advice
    ).flat()
    batch, f = f.shape[:-1], f.reshape(y.shape)
    bad, empty = np.any(spoilt, axis=1), np.all(w == 0, axis=1)
    hopeless = (bad | empty)[:, None]
    f, w = np.where(hopeless, 0, f), np.where(hopeless, 1, w)
    scaled, exponent = validation.scaled_weights(w)
    w = np.ldexp(scaled, np.clip(exponent, -_LARGEST, _LARGEST)[:, None]).astype(f.dtype)
    heaviest = w.argmax(axis=1)[:, None]
    f = np.where(w > 0, f, np.take_along_axis(f, heaviest, 1))
    y = np.where(w > 0, y, np.take_along_axis(y, heaviest, 1))
    return CheckedArguments(FiniteRows(f, y == 1, w), batch, bad, empty)


def along_rows(x: Array) -> Any:
    """A parameter per problem (...), in a shape that broadcasts with scores (..., N)."""
    return x[..., None]


def class_weights(y: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The weights of rows with label 1, and the weights of all others; 0 elsewhere."""
    return jnp.where(y, w, 0), jnp.where(y, 0, w)


def mean_target(n_pos: Any, n_neg: Any) -> Any:
    """The mean of Platt's targets: the prediction where the scores are uninformative."""
    targets = objective.platt_targets(n_pos, n_neg)
    return (n_pos * targets.positive + n_neg * targets.negative) / (n_pos + n_neg)


def told_apart(f: jax.Array, n_pos: jax.Array, n_neg: jax.Array) -> jax.Array:
    """Whether there are rows of both classes and different scores (N,); else a curve is flat."""
    return (n_pos > 0) & (n_neg > 0) & (f.min() < f.max())


def flat_logit(n_pos: jax.Array, n_neg: jax.Array) -> jax.Array:
    """The log-odds of `mean_target`."""
    flat = mean_target(n_pos, n_neg)
    return jnp.log(flat / (1 - flat))


def unit_frame(f: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(center, scale) that map the scores of one problem to [-1, 1], or constant scores to 0."""
    low, high = f.min(), f.max()
    # Halved before they are subtracted, because the range of finite scores may overflow.
    half = high / 2 - low / 2
    tiny = jnp.finfo(f.dtype).tiny
    return low / 2 + high / 2, jnp.where(half > 0, 1 / jnp.maximum(half, tiny), 1)


def require(scaler: Scaler[Any], name: str, ok: bool, expected: str) -> None:
    """Check an option of a scaler."""
    if not ok:
        raise ValueError(
            f"{type(scaler).__name__}({name}={getattr(scaler, name)!r}): expected {expected}"
        )


def _in_repr(name: str, leaf: Any, batch: tuple[int, ...]) -> str:
    """A field in a repr: its value if it is one number, else its shape for each problem."""
    if not np.shape(leaf):
        return f"{name}={tables.cell(leaf[()] if isinstance(leaf, np.ndarray) else leaf)}"
    own = np.shape(leaf)[len(batch) :]
    return f"{name} ({', '.join(['...', *map(str, own)])})"


def _blank(lost: Bools, x: NDArray[Any]) -> NDArray[Any]:
    """X, with NaN or 0 for the problems that are lost."""
    lost = lost.reshape(lost.shape + (1,) * (x.ndim - 1))
    return np.where(lost, np.nan if x.dtype.kind == "f" else x.dtype.type(0), x)


def _report_non_finite(flat: Fitted, bad: Bools, empty: Bools, batch: tuple[int, ...]) -> None:
    leaves = [x.reshape(len(bad), -1) for x in jax.tree.leaves(flat)]
    lost = np.any([~np.isfinite(x).all(axis=1) for x in leaves], axis=0)
    (which,) = np.nonzero(bad | lost & ~empty)
    if len(which):
        names = problem_names(batch)
        Caller().warn(
            f"NaN, infinite or overflowing numbers in {len(which):,} of {len(names):,} problems, "
            f"first in {names[which[:1]].tolist()[0]!r}: what was learnt of them is NaN"
        )
