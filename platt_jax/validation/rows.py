"""Rows: scores, labels, weights and offsets."""

from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import DTypeLike, NDArray

from platt_jax import columns
from platt_jax.arrays import Floats, Ints
from platt_jax.columns import Column
from platt_jax.ids.labels import labels_by_name
from platt_jax.validation.doubts import FEW
from platt_jax.validation.values import (
    MANY,
    SEE_CLASSES,
    ArrayIfGiven,
    array,
    broadcast,
    floating,
    numbers_as_objects,
)

LABEL_CODINGS = "bool, {0, 1} or {-1, +1}"
# Units of the smallest normal number in the least score of a fit: its digits down to 6e-8.
_DIGITS = 2**24
# The label of a row whose label is NaN or infinite.
BAD_LABEL = -1


def scores(values: Column, name: str = "scores") -> NDArray[Any]:
    """Scores (..., N) with at least one row."""
    f = floating(values, name)
    if f.ndim == 0 or f.size == 0:
        raise ValueError(f"{name}: expected (..., N) with rows to fit, got shape {f.shape}")
    return f


def scores_to_fit(values: Column, name: str = "scores") -> NDArray[Any]:
    """Scores as by `scores`, unless all are so near 0 that few digits are left.

    Compiled programs take subnormal numbers as 0.
    """
    f = scores(values, name)
    least = float(np.finfo(f.dtype).tiny) * _DIGITS
    # The first few scores usually show it; the rest is then not read.
    first = f[(0,) * (f.ndim - 1)][:FEW]
    if not _largest(first) >= least and 0 < (largest := _largest(f)) < least:
        raise ValueError(
            f"{name}: expected magnitudes of {least:.2g} or more in {f.dtype}, got at most "
            f"{largest:.2g}, where it has few digits; multiply the scores by a power of two"
        )
    return f


def _largest(x: NDArray[Any]) -> float:
    """The largest magnitude, NaN aside; NaN if all are."""
    # Without an array as long as x.
    low, high = (float(end.reduce(x, axis=None)) for end in (np.fmin, np.fmax))
    return max(-low, high)


def labels(values: Column, class_advice: str = SEE_CLASSES) -> NDArray[np.int8]:
    """Labels of LABEL_CODINGS as int8: 1, 0, and BAD_LABEL where a label is NaN or infinite.

    The message about class ids gives the advice `class_advice`.
    """
    name, y = columns.labelled("labels", values), array(values, "labels")
    if y.dtype == bool:
        return y.view(np.int8)
    if y.dtype.kind not in "iuf":
        hint = _hint(values, y)
        raise ValueError(f"{name}: expected {LABEL_CODINGS}, got dtype {y.dtype}{hint}")
    # The usual case needs no array as long as the labels.
    if y.dtype.kind in "iu" and y.size and y.min() >= 0 and y.max() <= 1:
        return y.astype(np.int8, copy=False)
    positive: NDArray[np.bool_] = y == 1
    minus = bool((y == -1).any())
    in_coding = y == (-1 if minus else 0)
    in_coding |= positive
    if in_coding.all():
        return positive.view(np.int8)
    finite = np.isfinite(y)
    in_coding |= ~finite
    if not in_coding.all():
        raise odd_label_error(y[~in_coding].flat[0], minus, name, class_advice)
    return np.where(finite, positive, np.int8(BAD_LABEL)).astype(np.int8)


def odd_label_error(
    odd: Any, minus: bool, name: str = "labels", class_advice: str = SEE_CLASSES
) -> ValueError:
    """The error for a label outside the three codings; `minus` says whether some label is -1."""
    if minus and odd == 0:
        return ValueError(
            f"{name}: expected one of the codings {LABEL_CODINGS}, got 0 and -1 together"
        )
    return ValueError(f"{name}: expected {LABEL_CODINGS}, got {odd}; for class ids {class_advice}")


def a_problem_per_class(name: str) -> str:
    """Advice for class ids where they are not accepted; `name` is the array (N, C)."""
    return (
        f"pass labels == classes[:, None] and {name}.T, a problem per class, where {name} has "
        "shape (N, C)"
    )


def _hint(given: Column, read: NDArray[Any]) -> str:
    """Advice for labels that are text, tuples or objects, or an empty string."""
    first = read.ravel()[:MANY].tolist()
    items = given[:MANY] if read.ndim > 1 and isinstance(given, list | tuple) else first
    if items and isinstance(items[0], tuple):
        positive = repr(max(items, key=repr))
        return f": tuples; if each is a label, pass the positive one: pos_label={positive}"
    words = {word for word in first if isinstance(word, str)}
    if not words:
        return numbers_as_objects(read)
    positive = repr(max(words))
    return (
        f"; pass a comparison such as labels == {positive}, or, in fit and fit_segments, "
        f"the positive label: pos_label={positive}"
    )


def weights(values: Column, dtype: DTypeLike, name: str = "weights") -> ArrayIfGiven:
    """Weights >= 0, or None, in the dtype of the scores."""
    if values is None:
        return None
    with np.errstate(over="ignore"):  # to infinity, which the fit reports
        values = floating(values, name).astype(dtype, copy=False)
    if np.fmin.reduce(values, axis=None, initial=0) < 0:
        raise negative_weight_error(values[values < 0].flat[0], name)
    return values


def scaled_weights(w: Floats) -> tuple[Floats, Ints]:
    """Weights (K, N) whose sum cannot overflow, and (K,) even exponents e.

    Given finite weights >= 0 of any size, these are times powers of 4 that bring each problem's sum
    to [1/2, 2), without loss of digits: the weights are the first times 2^e.
    """
    _, largest = np.frexp(w.max(axis=-1))
    _, sum_exponent = np.frexp(times_power(w, -largest).sum(axis=-1))
    # Even, so that square roots of sums are scaled by a power of two, too.
    exponent = (largest + sum_exponent).astype(np.int64) // 2 * 2
    return times_power(w, -exponent), exponent


def times_power(w: Floats, exponent: Ints) -> Floats:
    """(K, N) numbers times 2 to the power of K integers."""
    if np.abs(exponent).max(initial=0) < 1000:  # the power is a number: several times faster
        return w * np.ldexp(1.0, exponent)[:, None]
    return np.ldexp(w, exponent[:, None])


def offset(values: Column, scores: Any) -> ArrayIfGiven:
    """Offsets, or None, in the dtype and the shape of the scores."""
    if values is None:
        return None
    with np.errstate(over="ignore"):  # to infinity, which the fit reports
        converted = floating(values, "offset").astype(scores.dtype, copy=False)
    return broadcast(converted, scores.shape, "offset")


def negative_weight_error(weight: Any, name: str = "weights") -> ValueError:
    """The error for a negative weight."""
    return ValueError(f"{name}: expected >= 0, got {weight}")


def segment_codes_error(name: str, segments: jax.Array) -> ValueError:
    """The error for ids on an accelerator that are no integers (N,)."""
    return ValueError(
        f"{name}: expected integers (N,) for ids on a device, got {segments.dtype} of shape "
        f"{segments.shape}; pass np.asarray(segments), or integer codes"
    )


def class_codes_error(labels: jax.Array, shape: tuple[int, int]) -> ValueError:
    """The error for class ids on an accelerator that are no integers, or do not fit the scores."""
    return ValueError(
        f"labels: expected integers {shape[:1]} or {shape} of {LABEL_CODINGS} on a device, got "
        f"{labels.dtype} of shape {labels.shape}; for other class ids pass np.asarray(labels)"
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
    """Labels and weights of values (..., N), in their shape."""

    labels: NDArray[np.int8]  # int8, see `labels`
    weights: NDArray[Any]  # 1 if none are given
    # whether the weight is not 0, and the value, label or weight is not finite
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
    class_advice: str = SEE_CLASSES,
) -> LabelledRows:
    """The rows of an array (..., N) of this name, with weights in float64."""
    y = labels(label_values, class_advice)
    w = weights(1.0 if weight_values is None else weight_values, np.float64)
    y = broadcast(y, values.shape, "labels", name, f"for class ids {class_advice}")
    w = broadcast(w, values.shape, "weights", name, f"for class ids {class_advice}")
    spoilt = (w != 0) & ~(np.isfinite(values) & np.isfinite(w) & (y != BAD_LABEL))
    return LabelledRows(y, w, spoilt)
