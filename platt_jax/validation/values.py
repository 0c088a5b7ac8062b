"""Numbers, shapes and single values; and objects that hold rows in place of arrays."""

import re
import reprlib
from numbers import Integral, Number, Real
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import columns, ids
from platt_jax.columns import Column

IF_LOGITS = "; for logits say from_logits=True"  # advice for numbers that are no probabilities
MANY = 1000  # values searched for a message's example
# Advice for class ids, and for a table of scores with a flat array of labels.
SEE_CLASSES = "see fit_one_vs_rest"
_ONE_COLUMN = f"for a table of scores pass one column, or {SEE_CLASSES}"

_DECIMAL = re.compile(r"\s*[-+]?\d+,\d+\s*")  # with a decimal comma

# A NumPy array, or None if None was given.
ArrayIfGiven: TypeAlias = Any
_TABLE = "pass its columns; platt_jax.sql and platt_jax.cluster take whole tables"


def array(values: Column, name: str) -> NDArray[Any]:
    """Values of any container, which are not traced, as an array."""
    if isinstance(values, jax.core.Tracer):
        raise ValueError(
            f"{name}: expected an array, got a traced one: this function runs on the host; inside "
            "jit use solve, and the sigmoid of its result to predict"
        )
    try:
        values = plain(values)
        converted = np.asarray(columns.narrowed(values))
        if converted.dtype == object and (floats := columns.floats(values)) is not None:
            return floats
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: expected an array ({error})") from None
    if converted.dtype == object and converted.ndim == 0:
        refuse_held(values, name)
    return converted


def plain(values: Column) -> Any:
    """Replaces masked values by NaN or None, and converts what NumPy and JAX cannot read."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        if values.dtype.kind not in "biuf":
            return np.ma.filled(values.astype(object), None)
        dtype = values.dtype if values.dtype.kind == "f" else np.float64
        return np.ma.filled(values.astype(dtype), np.nan)
    return columns.on_host(values)


def numbers(values: Column, name: str) -> NDArray[Any]:
    """Real numbers of any dtype."""
    converted = array(values, name)
    if converted.dtype.kind not in "biuf" and converted.dtype.name != "bfloat16":
        raise ValueError(
            f"{columns.labelled(name, values)}: expected numbers, got dtype "
            f"{converted.dtype}{_to_float(converted)}"
        )
    return converted


def floating(values: Column, name: str) -> NDArray[Any]:
    """Numbers as float32 or float64; integers and narrower floats are promoted."""
    converted = numbers(values, name)
    if converted.dtype.kind == "f" and converted.dtype.itemsize in (4, 8):
        return converted.astype(converted.dtype.newbyteorder("="), copy=False)
    narrow = converted.dtype.itemsize <= 2 and converted.dtype.kind not in "iu"
    return converted.astype(np.float32 if narrow else np.float64)


def _to_float(values: NDArray[Any]) -> str:
    """Advice for values that are text or objects and should be numbers, or an empty string."""
    if values.dtype.kind in "OSU":
        flat = values.ravel()[:MANY].tolist()
        text = next((x for x in flat if isinstance(x, str | bytes)), None)
        if text is not None:
            comma = ", and its decimal comma to a point" if _DECIMAL.fullmatch(str(text)) else ""
            return (
                f": text such as {text!r}; convert it to float{comma}, with NaN for what is missing"
            )
        odd = [x for x in flat if not isinstance(x, Number) and ids.missing(x) is None]
        if odd:
            return f": {type(odd[0]).__name__} such as {reprlib.repr(odd[0])}"
    return numbers_as_objects(values)


def numbers_as_objects(values: NDArray[Any]) -> str:
    """Advice for numbers as objects, some of them missing, or an empty string."""
    flat = values.ravel().tolist() if values.dtype == object else []
    missing_name = next((name for x in flat if (name := ids.missing(x))), None)
    if missing_name:
        return f" with {missing_name} in it; convert to float, with NaN for what is missing"
    if flat and all(isinstance(x, Number) for x in flat):
        return f" of {type(flat[0]).__name__}; convert to float"
    return ""


def broadcast(
    values: ArrayIfGiven,
    shape: tuple[int, ...],
    name: str,
    of: str | None = None,
    advice: str = _ONE_COLUMN,
) -> ArrayIfGiven:
    """Values as a read-only view of this shape; None stays.

    `of` names the array that has the shape, None for the scores of a fit. The advice says what to
    do if that array is a table (N, C), and the values are (N,).
    """
    if values is None:
        return None
    xp = jnp if isinstance(values, jax.Array) else np
    try:
        return xp.broadcast_to(values, shape)
    except ValueError:
        actual = values.shape
        hint = as_flat(name, actual, shape) or as_flat(of or "scores", shape, actual)
        if not hint and len(shape) == 2 and actual == shape[:1]:
            hint = f"; {advice}"
        expected = f"the scores' {shape}" if of is None else f"{shape}, the shape of {of}"
        raise ValueError(
            f"{name}: expected a shape that broadcasts to {expected}, got {actual}{hint}"
        ) from None


def as_flat(name: str, got: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """Advice for a column vector or a one-column table in place of a flat array, or empty."""
    if name == "proba" and got == (*expected, 2):
        return "; of the probabilities of two classes pass proba[:, 1]"
    if got != (*expected, 1):
        return ""
    return f"; for a column vector pass {name}.ravel(), for a table its column"


def require_flat(values: NDArray[Any], name: str) -> None:
    """Refuses an array that is not flat."""
    if values.ndim != 1:
        shape = values.shape
        hint = as_flat(name, shape, shape[:1])
        raise ValueError(f"{name}: expected a flat array (N,), got shape {shape}{hint}")


def require_probabilities(values: NDArray[Any], name: str, advice: str = "") -> None:
    """Refuses numbers outside [0, 1]; NaN may be among them."""
    outside = (values < 0) | (values > 1)
    if outside.any():
        raise ValueError(
            f"{name}: expected probabilities in [0, 1], got {values[outside].flat[0]}{advice}"
        )


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
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or value < least or (most is not None and value > most):
        expected = f">= {least}" if most is None else f"from {least} to {most:,}"
        raise ValueError(f"{name}: expected an integer {expected}, got {value!r}")


def require_one_of(value: Any, allowed: tuple[str, ...], name: str) -> None:
    """Refuses anything but these words."""
    if not (isinstance(value, str) and value in allowed):
        raise ValueError(f"{name}: expected one of {allowed}, got {value!r}")


class HeldRows:
    """An object that holds rows: scores with their segments, labels and so on."""

    _taken_by: ClassVar[str]  # the functions that take it, for messages


def named_with_takers(values: object) -> str:
    """The type of an argument that is refused, and the functions that take rows that it holds."""
    takers = f", rows for {values._taken_by}" if isinstance(values, HeldRows) else ""
    return type(values).__name__ + takers


def refuse_held(values: object, name: str) -> None:
    """Refuses an object that holds rows, or a whole table, in place of an array."""
    # A table by its type: to ask a lazy one for its columns may be slow.
    is_table = hasattr(type(values), "columns")
    if isinstance(values, HeldRows) or is_table:
        advice = f": {_TABLE}" if is_table else ""
        raise ValueError(f"{name}: expected an array, got {named_with_takers(values)}{advice}")


def require_none_beside(rows: object, **columns: Any) -> None:
    """Refuses columns beside an object that holds the rows."""
    for name, values in columns.items():
        if values is not None:
            raise ValueError(
                f"{name}: expected none beside {type(rows).__name__}, which hold the rows"
            )


def require_each(first: Column, name: str = "scores", /, **columns: Column) -> None:
    """Refuses missing columns beside a first one of this name, which may be all that was given."""
    missing = [name for name, values in columns.items() if values is None]
    if missing:
        refuse_held(first, name)
        raise ValueError(f"{missing[0]}: expected one per row, got None")
