"""Validation: converts the user's arguments to reliable arrays.

Every function raises a ValueError for an argument that it does not accept. The message names the
argument, what it was and what was expected.
"""

import math
import reprlib
from collections.abc import Callable
from numbers import Integral, Number, Real
from typing import Any, NamedTuple, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike, NDArray

from platt_jax import columns, ids
from platt_jax.columns import Column
from platt_jax.ids.labels import labels_by_name
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options, Pooling

LABEL_CODINGS = "bool, {0, 1} or {-1, +1}"
IF_LOGITS = "; for logits say from_logits=True"  # advice for numbers that are no probabilities

# Minimum number of scores for a warning about probabilities; also how many are checked first.
FEW = 100
_MANY = 1000  # values searched for a message's example

# The label of a row whose label is NaN or infinite.
BAD_LABEL = -1
# Advice for class ids, and for a table of scores with a flat array of labels.
_SEE = "see fit_one_vs_rest"
_ONE_COLUMN = f"for a table of scores pass one column, or {_SEE}"

# A NumPy array, or None if None was given.
ArrayIfGiven: TypeAlias = Any


def floating(values: Column, name: str) -> NDArray[Any]:
    """Numbers as float32 or float64; integers and narrower floats are promoted."""
    read = numbers(values, name)
    if read.dtype.kind == "f" and read.dtype.itemsize in (4, 8):
        return read.astype(read.dtype.newbyteorder("="), copy=False)
    narrow = read.dtype.itemsize <= 2 and read.dtype.kind not in "iu"
    return read.astype(np.float32 if narrow else np.float64)


def numbers(values: Column, name: str) -> NDArray[Any]:
    """Real numbers of any dtype."""
    read = array(values, name)
    if read.dtype.kind not in "biuf" and read.dtype.name != "bfloat16":
        raise ValueError(
            f"{columns.labelled(name, values)}: expected numbers, got dtype "
            f"{read.dtype}{_to_float(read)}"
        )
    return read


def scores(values: Column) -> NDArray[Any]:
    """Scores (..., N) with at least one row."""
    read = floating(values, "scores")
    if read.ndim == 0 or read.size == 0:
        raise ValueError(f"scores: expected (..., N) with rows to fit, got shape {read.shape}")
    return read


def labels(values: Column, of_classes: str = _SEE) -> NDArray[np.int8]:
    """Labels of LABEL_CODINGS as int8: 1, 0, and BAD_LABEL where a label is NaN or infinite.

    The message about class ids gives the advice `of_classes`.
    """
    name, read = columns.labelled("labels", values), array(values, "labels")
    if read.dtype == bool:
        return read.view(np.int8)
    if read.dtype.kind not in "iuf":
        hint = _hint(values, read)
        raise ValueError(f"{name}: expected {LABEL_CODINGS}, got dtype {read.dtype}{hint}")
    # The usual case needs no array as long as the labels.
    if read.dtype.kind in "iu" and read.size and read.min() >= 0 and read.max() <= 1:
        return read.astype(np.int8, copy=False)
    positive: NDArray[np.bool_] = read == 1
    minus = bool((read == -1).any())
    known = read == (-1 if minus else 0)
    known |= positive
    if known.all():
        return positive.view(np.int8)
    finite = np.isfinite(read)
    known |= ~finite
    if not known.all():
        raise of_odd_label(read[~known].flat[0], minus, name, of_classes)
    return np.where(finite, positive, np.int8(BAD_LABEL)).astype(np.int8)


def of_odd_label(odd: Any, minus: bool, name: str = "labels", of_classes: str = _SEE) -> ValueError:
    """The error for a label outside the three codings.

    Args:
        odd: the label.
        minus: whether some label is -1.
        name: name of the labels, for the message.
        of_classes: advice for class ids, for the message.
    """
    if minus and odd == 0:
        return ValueError(
            f"{name}: expected one of the codings {LABEL_CODINGS}, got 0 and -1 together"
        )
    return ValueError(f"{name}: expected {LABEL_CODINGS}, got {odd}; for class ids {of_classes}")


def a_problem_per_class(name: str) -> str:
    """Advice for class ids where they are not accepted; `name` is the array (N, C)."""
    return (
        f"pass labels == classes[:, None] and {name}.T, a problem per class, where {name} has "
        "shape (N, C)"
    )


def _hint(given: Column, read: NDArray[Any]) -> str:
    """Advice for labels that are text, tuples or objects, or an empty string."""
    first = read.ravel()[:_MANY].tolist()
    each = given[:_MANY] if read.ndim > 1 and isinstance(given, list | tuple) else first
    if each and isinstance(each[0], tuple):
        positive = repr(max(each, key=repr))
        return f": tuples; if each is a label, pass the positive one: pos_label={positive}"
    words = {word for word in first if isinstance(word, str)}
    if not words:
        return _missing(read)
    positive = repr(max(words))
    return (
        f"; pass a comparison such as labels == {positive}, or, in fit and fit_segments, "
        f"the positive label: pos_label={positive}"
    )


def _to_float(values: NDArray[Any]) -> str:
    """Advice for values that are text or objects and should be numbers, or an empty string."""
    if values.dtype.kind in "OSU":
        flat = values.ravel()[:_MANY].tolist()
        text = next((x for x in flat if isinstance(x, str | bytes)), None)
        if text is not None:
            return f": text such as {text!r}; convert it to float, with NaN for what is missing"
        odd = [x for x in flat if not isinstance(x, Number) and ids.missing(x) is None]
        if odd:
            return f": {type(odd[0]).__name__} such as {reprlib.repr(odd[0])}"
    return _missing(values)


def _missing(values: NDArray[Any]) -> str:
    """Advice for missing numbers, if there are any, or an empty string."""
    if values.dtype != object:
        return ""
    found = next((what for x in values.ravel().tolist() if (what := ids.missing(x))), None)
    return f" with {found} in it; convert to float, with NaN for what is missing" if found else ""


def weights(values: Column, dtype: DTypeLike) -> ArrayIfGiven:
    """Weights >= 0, or None, in the dtype of the scores."""
    if values is None:
        return None
    with np.errstate(over="ignore"):  # to infinity, which the fit reports
        values = floating(values, "weights").astype(dtype, copy=False)
    if np.fmin.reduce(values, axis=None, initial=0) < 0:
        raise of_negative_weight(values[values < 0].flat[0])
    return values


def offset(values: Column, scores: Any) -> ArrayIfGiven:
    """Offsets, or None, in the dtype and the shape of the scores."""
    if values is None:
        return None
    with np.errstate(over="ignore"):  # to infinity, which the fit reports
        read = floating(values, "offset").astype(scores.dtype, copy=False)
    return broadcast(read, scores.shape, "offset")


def of_negative_weight(weight: Any) -> ValueError:
    """The error for a negative weight."""
    return ValueError(f"weights: expected >= 0, got {weight}")


def of_codes(name: str, segments: jax.Array) -> ValueError:
    """The error for ids on an accelerator that are no integers (N,)."""
    return ValueError(
        f"{name}: expected integers (N,) for ids on a device, got {segments.dtype} of shape "
        f"{segments.shape}; pass np.asarray(segments), or integer codes"
    )


def labels_and_weights(
    label_values: Column, weight_values: Column, scores: NDArray[Any], pos_label: Any = None
) -> tuple[NDArray[np.int8], ArrayIfGiven]:
    """Labels and weights (or None), as by `labels` and `weights`, in the shape of the scores."""
    named = pos_label is not None
    y = labels_by_name(label_values, pos_label, scores.ndim) if named else labels(label_values)
    return (
        broadcast(y, scores.shape, "labels"),
        broadcast(weights(weight_values, scores.dtype), scores.shape, "weights"),
    )


class LabelledRows(NamedTuple):
    """Labels and weights of values (..., N), in their shape.

    Attributes:
        labels: int8, see `labels`.
        weights: 1 if none are given.
        spoilt: whether the weight is not 0, and the value, label or weight is not finite.
    """

    labels: NDArray[np.int8]
    weights: NDArray[Any]
    spoilt: NDArray[np.bool_]

    def flat(self) -> "LabelledRows":
        """The rows (K, N) of a flat batch of K problems."""
        flat: Any = (x.reshape(-1, x.shape[-1]) for x in self)
        return LabelledRows(*flat)


def labelled_rows(
    values: NDArray[Any],
    label_values: Column,
    weight_values: Column,
    name: str,
    *,
    of_classes: str = _SEE,
    dtype: DTypeLike = np.float64,
) -> LabelledRows:
    """The rows of an array (..., N) of this name, with weights of this dtype."""
    y = labels(label_values, of_classes)
    w = weights(1.0 if weight_values is None else weight_values, dtype)
    y = broadcast(y, values.shape, "labels", name, f"for class ids {of_classes}")
    w = broadcast(w, values.shape, "weights", name, f"for class ids {of_classes}")
    spoilt = (w != 0) & ~(np.isfinite(values) & np.isfinite(w) & (y != BAD_LABEL))
    return LabelledRows(y, w, spoilt)


def require_probabilities(values: NDArray[Any], name: str, advice: str = "") -> None:
    """Refuses numbers outside [0, 1]; NaN may be among them."""
    outside = (values < 0) | (values > 1)
    if outside.any():
        raise ValueError(
            f"{name}: expected probabilities in [0, 1], got {values[outside].flat[0]}{advice}"
        )


def no_mesh(mesh: Any) -> None:
    """Refuses a mesh for scores on an accelerator.

    Raises:
        ValueError: there is a mesh.
    """
    if mesh is not None:
        raise ValueError(
            "mesh: expected None for scores on a device, which are fitted there; for a mesh pass "
            "np.asarray(scores)"
        )


def broadcast(
    values: ArrayIfGiven,
    shape: tuple[int, ...],
    name: str,
    of: str | None = None,
    advice: str = _ONE_COLUMN,
) -> ArrayIfGiven:
    """Values as a read-only view of this shape.

    Args:
        values: an array, or None.
        shape: the shape.
        name: name of the values, for a message.
        of: name of the array that has the shape; None for the scores of a fit.
        advice: what to do if that array is a table (N, C), and the values are (N,).
    """
    if values is None:
        return None
    xp = jnp if isinstance(values, jax.Array) else np
    try:
        return xp.broadcast_to(values, shape)
    except ValueError:
        got = values.shape
        hint = as_flat(name, got, shape) or as_flat(of or "scores", shape, got)
        if not hint and len(shape) == 2 and got == shape[:1]:
            hint = f"; {advice}"
        expected = f"the scores' {shape}" if of is None else f"{shape}, that of {of}"
        raise ValueError(
            f"{name}: expected a shape that broadcasts to {expected}, got {got}{hint}"
        ) from None


def prior(
    values: GaussianPrior | None, batch: tuple[int, ...], dtype: DTypeLike
) -> GaussianPrior | None:
    """A prior with one mean and one precision per problem of the batch.

    A concrete precision must be symmetric and positive semidefinite.
    """
    if values is None:
        return None
    if not isinstance(values, GaussianPrior):
        raise ValueError(f"prior: expected a GaussianPrior, got {type(values).__name__}")
    xp = jnp if any(isinstance(leaf, jax.Array) for leaf in values) else np
    mean, precision = (
        xp.asarray(leaf if isinstance(leaf, jax.Array) else numbers(leaf, "prior"), dtype)
        for leaf in values
    )
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


def start(
    values: tuple[Column, Column] | None, batch: tuple[int, ...], dtype: DTypeLike
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """(A, B) to start from, each with the batch shape."""
    if values is None:
        return None
    if not isinstance(values, tuple | list) or len(values) != 2:
        of_length = f" of {len(values)}" if hasattr(values, "__len__") else ""
        raise ValueError(f"start: expected a pair (A, B), got {type(values).__name__}{of_length}")
    pair = [numbers(x, "start").astype(dtype) for x in values]
    try:
        A, B = (np.broadcast_to(x, batch) for x in pair)
    except ValueError:
        shapes = " and ".join(str(np.shape(x)) for x in values)
        raise ValueError(f"start: expected A and B of shape {batch}, got {shapes}") from None
    return A, B


def pooling(value: Any, prior_given: Any, start_given: Any, fit_options: Options) -> None:
    """Checks `pooling`, and whether the other arguments agree with it."""
    require_one_of(value, get_args(Pooling), "pooling")
    if value == "none":
        return
    one_curve = value == "complete"
    if not one_curve and prior_given is not None:
        raise ValueError(
            f'prior: expected None with pooling="{value}": the population is the prior'
        )
    if start_given is not None:
        raise ValueError(f'start: expected None with pooling="{value}"')
    if not one_curve:
        for name, usual in (("monotone", False), ("intercept", True)):
            if getattr(fit_options, name) != usual:
                raise ValueError(
                    f'Options({name}={not usual}): expected {usual} with pooling="{value}", whose '
                    "population has normal (A, B)"
                )


def _check_precision(precision: NDArray[np.float64]) -> None:
    p_AA, p_AB, p_BA, p_BB = (precision[..., i, j] for i in (0, 1) for j in (0, 1))
    # Accepts rank-one matrices even if rounding makes the determinant negative, and computed
    # inverses, which are symmetric up to rounding.
    enough = p_AA * p_BB * (1 + 1e-6) >= p_AB * p_AB
    symmetric = np.abs(p_AB - p_BA) <= 1e-6 * np.sqrt(np.abs(p_AA * p_BB))
    ok = symmetric & (p_AA >= 0) & (p_BB >= 0) & enough
    if not np.all(ok):
        first = precision.reshape(-1, 2, 2)[np.argmin(ok)]
        raise ValueError(
            f"prior: expected a symmetric positive semidefinite precision, got {first.tolist()}"
        )


def options(values: Options) -> Options:
    """The options, if that is what they are."""
    if not isinstance(values, Options):
        raise ValueError(f"options: expected an Options, got {type(values).__name__}")
    return values


def require_fraction(value: Any, name: str) -> None:
    """Refuses anything but a number in (0, 1)."""
    if not (isinstance(value, Real) and 0 < float(value) < 1):
        raise ValueError(f"{name}: expected a number in (0, 1), got {value!r}")


def require_not_negative(value: Any, name: str) -> None:
    """Refuses anything but a finite number of at least 0."""
    if not (isinstance(value, Real) and 0 <= float(value) < float("inf")):
        raise ValueError(f"{name}: expected a number >= 0, got {value!r}")


def require_integer(value: Any, name: str, least: int, most: int | None = None) -> None:
    """Refuses anything but an integer from `least` to `most`."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        expected = f">= {least}" if most is None else f"from {least} to {most:,}"
        raise ValueError(f"{name}: expected an integer {expected}, got {value!r}")


def require_one_of(value: Any, allowed: tuple[str, ...], name: str) -> None:
    """Refuses anything but these words."""
    if not (isinstance(value, str) and value in allowed):
        raise ValueError(f"{name}: expected one of {allowed}, got {value!r}")


def doubtful_shape(shape: tuple[int, ...], are_one_hot: Callable[[], bool]) -> str | None:
    """A warning if the arrays' shape suggests that rows were taken for problems, else None.

    Args:
        shape: (..., N), the shape of scores and labels.
        are_one_hot: says whether each problem has one positive row, and other rows.
    """
    *batch, rows = shape
    problems = math.prod(batch)
    if problems > 1 and rows == 1:
        return (
            f"scores: shape {shape} is {problems:,} problems of one row each; "
            "for one problem of all rows pass scores.ravel() and labels.ravel(), or table columns"
        )
    if problems > rows > 2 and are_one_hot():
        return (
            f"scores: shape {shape} is {problems:,} problems of {rows} rows, and one row of "
            "each is positive; for a classifier of that many classes see fit_one_vs_rest"
        )
    return None


class UnitInterval(NamedTuple):
    """Counts that show whether scores look like probabilities. Non-finite scores are ignored.

    Attributes:
        outside: whether a score lies outside [0, 1]. The other counts are then not taken.
        inside: the number of scores in [0, 1].
        between: whether a score is neither 0 nor 1. Votes are all 0 or 1.
    """

    outside: bool = False
    inside: int = 0
    between: bool = False

    def with_more(self, other: "UnitInterval") -> "UnitInterval":
        """The counts of both sets of scores."""
        outside, between = self.outside or other.outside, self.between or other.between
        return UnitInterval(outside, self.inside + other.inside, between)

    @property
    def doubt(self) -> str | None:
        """A warning if there are many scores and they look like probabilities, else None."""
        if self.outside or not self.between or self.inside < FEW:
            return None
        return (
            "scores: all lie in [0, 1]. If they are probabilities p, fit and predict by their "
            "log-odds, platt_jax.logit(p): a sigmoid of p itself cannot even represent p"
        )


def in_unit_interval(scores: NDArray[Any]) -> UnitInterval:
    """Counts that show whether checked scores (..., N) look like probabilities."""
    # The first few scores usually show that they are none; the rest is then not read.
    first = scores[(0,) * (scores.ndim - 1)][:FEW]
    if _leaves_unit_interval(first) or _leaves_unit_interval(scores):
        return UnitInterval(outside=True)
    between = bool(((scores > 0) & (scores < 1)).any())
    return UnitInterval(False, int(np.count_nonzero(np.isfinite(scores))), between)


def probabilities_for_scores(scores: NDArray[Any]) -> str | None:
    """A warning if many checked scores (..., N) all lie in [0, 1], else None."""
    return in_unit_interval(scores).doubt if scores.shape[-1] >= FEW else None


def _leaves_unit_interval(x: NDArray[Any]) -> bool:
    """Whether a finite number lies outside [0, 1]."""
    # fmin and fmax ignore NaN, without an array as long as x.
    low, high = (end.reduce(x, axis=None) for end in (np.fmin, np.fmax))
    if np.isinf(low) or np.isinf(high):
        x = x[np.isfinite(x)]
        return bool(((x < 0) | (x > 1)).any())
    return bool(low < 0 or high > 1)


def one_hot(labels: NDArray[np.int8]) -> bool:
    """Whether each problem (..., N) has one positive row, and no row a bad label."""
    return _one_hot(labels[:FEW]) and _one_hot(labels)


def _one_hot(labels: NDArray[np.int8]) -> bool:
    return bool((labels.sum(axis=-1, dtype=np.int64) == 1).all() and labels.min() == 0)


def as_flat(name: str, got: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """Advice for a column vector or a one-column table in place of a flat array, or empty."""
    if got != (*expected, 1):
        return ""
    return f"; for a column vector pass {name}.ravel(), for a table its column"


def require_flat(values: NDArray[Any], name: str) -> None:
    """Refuses an array that is not flat."""
    if values.ndim != 1:
        shape = values.shape
        hint = as_flat(name, shape, shape[:1])
        raise ValueError(f"{name}: expected a flat array (N,), got shape {shape}{hint}")


def array(values: Column, name: str) -> NDArray[Any]:
    """Values of any container, which are not traced, as an array."""
    if isinstance(values, jax.core.Tracer):
        raise ValueError(
            f"{name}: expected an array, got a traced one: this function runs on the host; inside "
            "jit use solve, and the sigmoid of its result to predict"
        )
    try:
        values = plain(values)
        read = np.asarray(columns.narrowed(values))
        if read.dtype == object and (floats := columns.floats(values)) is not None:
            return floats
        return read
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: expected an array ({error})") from None


def plain(values: Column) -> Any:
    """Replaces masked values by NaN or None, and converts what NumPy and JAX cannot read."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        if values.dtype.kind not in "biuf":
            return np.ma.filled(values.astype(object), None)
        dtype = values.dtype if values.dtype.kind == "f" else np.float64
        return np.ma.filled(values.astype(dtype), np.nan)
    return columns.on_host(values)
