"""Validation: what the user gave, as arrays that the rest can rely on, or a ValueError."""

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax.objective import GaussianPrior
from platt_jax.options import Options
from platt_jax.segments import locate

_CODINGS = "bool, {0, 1} or {-1, +1}"

# The label of a row whose label is NaN or infinite.
BAD_LABEL = -1


def floating(values, name: str) -> np.ndarray:
    """Numbers as float32 or float64; integers and narrower floats are promoted.

    Raises:
        ValueError: not numbers.
    """
    values = _array(values, name)
    if values.dtype.kind == "f" and values.dtype.itemsize in (4, 8):
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    if values.dtype.kind not in "biuf" and values.dtype.name != "bfloat16":
        raise ValueError(f"{name}: expected numbers, got dtype {values.dtype}")
    narrow = values.dtype.itemsize <= 2 and values.dtype.kind not in "iu"
    return values.astype(np.float32 if narrow else np.float64)


def scores(values) -> np.ndarray:
    """Scores (..., N) with at least one row.

    Raises:
        ValueError: no rows, or not numbers.
    """
    values = floating(values, "scores")
    if values.ndim == 0 or values.size == 0:
        raise ValueError(f"scores: expected (..., N) with rows to fit, got shape {values.shape}")
    return values


def labels(values) -> np.ndarray:
    """Labels as int8: 1, 0, and BAD_LABEL where a label is NaN or infinite.

    Raises:
        ValueError: labels outside the three codings.
    """
    values = _array(values, "labels")
    if values.dtype == bool:
        return values.view(np.int8)
    if values.dtype.kind not in "iuf":
        raise ValueError(f"labels: expected {_CODINGS}, got dtype {values.dtype}")
    # The usual case, without any array of the length of the labels.
    if values.dtype.kind in "iu" and values.size and values.min() >= 0 and values.max() <= 1:
        return values.astype(np.int8, copy=False)
    positive = values == 1
    minus = bool((values == -1).any())
    known = values == (-1 if minus else 0)
    known |= positive
    if known.all():
        return positive.view(np.int8)
    finite = np.isfinite(values)
    known |= ~finite
    if not known.all():
        odd = values[~known].flat[0]
        if minus and odd == 0:
            raise ValueError(
                f"labels: expected one of the codings {_CODINGS}, got 0 and -1 together"
            )
        raise ValueError(
            f"labels: expected {_CODINGS}, got {odd}; for class ids see fit_one_vs_rest"
        )
    return np.where(finite, positive, np.int8(BAD_LABEL)).astype(np.int8)


def weights(values, dtype) -> np.ndarray | None:
    """Weights in the dtype of the scores.

    Raises:
        ValueError: a negative weight.
    """
    if values is None:
        return None
    with np.errstate(over="ignore"):  # to infinity, which the fit reports
        values = floating(values, "weights").astype(dtype, copy=False)
    if np.fmin.reduce(values, axis=None, initial=0) < 0:
        raise ValueError(f"weights: expected >= 0, got {values[values < 0].flat[0]}")
    return values


def broadcast(values, shape: tuple[int, ...], name: str):
    """Values as a read-only view of this shape.

    Raises:
        ValueError: the shapes do not match.
    """
    if values is None:
        return None
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        raise ValueError(_shape_message(name, shape, values.shape)) from None


def prior(values: GaussianPrior | None, batch: tuple[int, ...], dtype):
    """A prior with one mean and one precision per problem of the batch.

    Raises:
        ValueError: the shapes do not match, or a precision that is not traced is no symmetric
            positive semidefinite matrix.
    """
    if values is None:
        return None
    if not isinstance(values, GaussianPrior):
        raise ValueError(f"prior: expected a GaussianPrior, got {type(values).__name__}")
    xp = jnp if any(isinstance(leaf, jax.Array) for leaf in values) else np
    mean, precision = (xp.asarray(leaf, dtype) for leaf in values)
    try:
        if mean.shape[-1:] != (2,) or precision.shape[-2:] != (2, 2):
            raise ValueError
        result = GaussianPrior(
            xp.broadcast_to(mean, (*batch, 2)), xp.broadcast_to(precision, (*batch, 2, 2))
        )
    except ValueError:
        raise ValueError(
            f"prior: expected mean (2,) or {(*batch, 2)} and precision (2, 2) or "
            f"{(*batch, 2, 2)}, got {mean.shape} and {precision.shape}"
        ) from None
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in values):
        if not (np.isfinite(mean).all() and np.isfinite(precision).all()):
            raise ValueError("prior: expected finite numbers, got NaN or infinity")
        _check_precision(np.asarray(precision, np.float64))
    return result


def _check_precision(precision):
    p_AA, p_AB, p_BA, p_BB = (precision[..., i, j] for i in (0, 1) for j in (0, 1))
    # A rank-one matrix is fine, however its determinant is rounded.
    enough = p_AA * p_BB * (1 + 1e-6) >= p_AB * p_AB
    ok = (p_AB == p_BA) & (p_AA >= 0) & (p_BB >= 0) & enough
    if not np.all(ok):
        first = precision.reshape(-1, 2, 2)[np.argmin(ok)]
        raise ValueError(
            f"prior: expected a symmetric positive semidefinite precision, got {first.tolist()}"
        )


def options(values) -> Options:
    """The options.

    Raises:
        ValueError: something else.
    """
    if not isinstance(values, Options):
        raise ValueError(f"options: expected an Options, got {type(values).__name__}")
    return values


def traced_arrays(scores_in, labels_in, weights_in):
    """Scores, labels and weights of one shape (..., N), as JAX arrays; the inputs may be traced.

    Raises:
        ValueError: shapes do not match, or concrete labels or weights are not what they should be.
    """
    f = jnp.asarray(scores_in)
    if not jnp.issubdtype(f.dtype, jnp.floating):
        f = f.astype(float)
    elif jnp.finfo(f.dtype).bits < 32:
        f = f.astype(jnp.float32)
    if f.ndim == 0 or f.size == 0:
        raise ValueError(f"scores: expected (..., N) with rows to fit, got shape {f.shape}")
    if isinstance(labels_in, jax.core.Tracer):
        y = (labels_in > 0).astype(jnp.int8)
        if jnp.issubdtype(labels_in.dtype, jnp.floating):
            y = jnp.where(jnp.isfinite(labels_in), y, jnp.int8(BAD_LABEL))
    else:
        y = jnp.asarray(labels(labels_in))
    w = weights_in
    if w is not None and not isinstance(w, jax.core.Tracer):
        weights(w, np.float64)
    if w is not None:
        w = jnp.asarray(w).astype(f.dtype)
    y, w = _traced_broadcast(y, f.shape, "labels"), _traced_broadcast(w, f.shape, "weights")
    return jnp.where(y == BAD_LABEL, jnp.nan, f), y, w


def _traced_broadcast(values, shape, name):
    if values is None:
        return None
    try:
        return jnp.broadcast_to(values, shape)
    except ValueError:
        raise ValueError(_shape_message(name, shape, values.shape)) from None


def _shape_message(name, expected, got):
    return f"{name}: expected a shape that broadcasts to the scores' {expected}, got {got}"


def _array(values, name):
    if isinstance(values, jax.core.Tracer):
        raise ValueError(f"{name}: expected an array, got a traced one; inside jit call solve")
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name}: expected an array ({error})") from None


def classes(values, class_labels: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The class ids of the columns of scores with this shape (N, C).

    Raises:
        ValueError: not one distinct id per column.
    """
    if values is None:
        values = np.arange(shape[1]) if class_labels.ndim == 2 else np.unique(class_labels)
        if len(values) != shape[1]:
            raise ValueError(
                f"labels: expected {shape[1]} classes, one per column of scores, found "
                f"{len(values)} distinct labels; name the columns with classes="
            )
    values = np.asarray(values)
    if values.shape != (shape[1],) or len(np.unique(values)) != shape[1]:
        raise ValueError(
            f"classes: expected {shape[1]} distinct ids, one per column of scores, "
            f"got {values.tolist()}"
        )
    return values


def class_membership(class_labels: np.ndarray, class_ids: np.ndarray, shape: tuple[int, int]):
    """A function from slices of the classes and rows to the int8 labels of those problems there.

    Raises:
        ValueError: shapes do not match, or a label is not among the classes.
    """
    if class_labels.shape == shape:
        columns = labels(class_labels).T
        return lambda some, rows: columns[some, rows]
    if class_labels.shape != shape[:1]:
        raise ValueError(
            f"labels: expected {shape[:1]} class ids or {shape} of {_CODINGS}, "
            f"got shape {class_labels.shape}"
        )
    ascending = np.argsort(class_ids)
    found = locate(class_ids[ascending], class_labels, "labels")
    if (found < 0).any():
        raise ValueError(f"labels: {class_labels[found < 0].tolist()[0]!r} is not among classes")
    codes = ascending[found]
    ids = np.arange(len(class_ids))[:, None]
    return lambda some, rows: (codes[rows] == ids[some]).view(np.int8)
