"""Calibrators as JSON, complete; the schema is `calibrator.schema.json`."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.export.curves import reached
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.results import files
from platt_jax.results.archive import as_value_error
from platt_jax.results.files import Calibrator
from platt_jax.results.one_vs_rest import OneVsRestCalibrator

_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_WORDS = {word: float(name) for name, word in _NAMES.items()}
# Beyond, JavaScript, R and jq 1.6 read several integers as one.
_EXACT = 2**53


def to_json(calibrator: Calibrator, *, threshold: float | None = None) -> str:
    """A calibrator as a JSON text, which `from_json` reads without loss.

    The text has a version, the class of the calibrator, the dtype of each array, and the arrays:
    `keys` or `classes`, `A`, `B`, and the other fields of `Fit`. Numbers that JSON lacks are the
    strings "NaN", "Infinity" and "-Infinity". Where one of an array's integers is beyond 2^53,
    which many readers of JSON would round, all are strings; its dtype says that they are integers.
    The schema is `platt_jax/export/calibrator.schema.json`.

    Args:
        calibrator: any calibrator that `save` accepts.
        threshold: a probability in (0, 1). The text then also has `thresholds`: the `probability`;
            `score`, the score of each segment or class at which it is reached, as by
            `SegmentCalibrator.threshold`; `direction`, "above" if rows are accepted from that score
            on, "below" if up to it; `status` as in `threshold_table`; and for segments that were
            not fitted the same three as `unseen`. `from_json` does not read them. None for none.

    Returns:
        JSON in ASCII, without line breaks.

    Raises:
        ValueError: as in `save`; segments are complex numbers, which JSON lacks; or a threshold is
            given beside levels, one sigmoid or several classes of `fit_multiclass`.

    Example:
        >>> from platt_jax import Sigmoid
        >>> text = to_json(Sigmoid(A=-2.0, B=1.0))
        >>> text[:47]
        '{"format": "platt_jax calibrator", "version": 1'
        >>> float(from_json(text).A)
        -2.0
    """
    about, arrays = files.described(calibrator)
    types = {name: array.dtype.newbyteorder("<").str for name, array in arrays.items()}
    for name, array in arrays.items():
        if array.dtype.kind == "c":
            raise ValueError(f"{name}: expected ids that JSON can hold, got {array.dtype}")
    values = {name: _to_list(array) for name, array in arrays.items()}
    if threshold is not None:
        about["thresholds"] = _thresholds(calibrator, threshold)
    return json.dumps({**about, "types": types, "arrays": values}, allow_nan=False)


def from_json(text: str | bytes) -> Calibrator:
    """Read a calibrator from the text of `to_json`.

    Args:
        text: the JSON.

    Returns:
        The calibrator, of its original class.

    Raises:
        ValueError: the text is not a calibrator, is damaged, or is from a newer version.

    Example:
        >>> from platt_jax import Sigmoid
        >>> float(from_json(to_json(Sigmoid(A=-2.0, B=1.0))).A)
        -2.0
    """
    with as_value_error("text", files.REFUSAL):
        about = json.loads(text)
        arrays, types = about.pop("arrays"), about.pop("types")
        if set(arrays) != set(types):
            raise ValueError("not a dtype for each array")
        return files.assembled(about, arrays, lambda name: _to_array(arrays[name], types[name]))


def _thresholds(calibrator: Calibrator, probability: float) -> dict[str, Any]:
    """The thresholds of segments, and of others; or of classes in their order."""
    by_segment = calibrator.by_class if isinstance(calibrator, OneVsRestCalibrator) else calibrator
    thresholds = reached(by_segment, probability)
    words = np.where(thresholds.falls, "below", "above")
    columns = {"score": thresholds.at, "direction": words, "status": thresholds.status}
    if isinstance(calibrator, OneVsRestCalibrator):
        positions = get_indexer(calibrator.by_class.keys, split_columns(calibrator.classes))
        by_place = {name: _to_list(x[positions]) for name, x in columns.items()}
        return {"probability": probability, **by_place}
    of_segments = {name: _to_list(x[:-1]) for name, x in columns.items()}
    unseen = {name: _to_list(x[-1:])[0] for name, x in columns.items()}
    return {"probability": probability, **of_segments, "unseen": unseen}


def _to_list(array: NDArray[Any]) -> Any:
    if array.dtype.kind == "S":
        return [value.hex() for value in array.tolist()]
    array = array.view(np.int64) if array.dtype.kind in "mM" else array
    if array.dtype.kind in "iu" and ((array > _EXACT) | (array < -_EXACT)).any():
        return _each(array.tolist(), str)
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    return _each(array.tolist(), lambda x: x if math.isfinite(x) else _NAMES[str(x)])


def _to_array(values: Any, type_: str) -> NDArray[Any]:
    dtype = np.dtype(type_)
    if dtype.kind == "S":
        return np.array([bytes.fromhex(value) for value in values], dtype)
    if dtype.kind in "iumM":
        values = _each(values, lambda x: int(x) if isinstance(x, str) else x)
    if dtype.kind in "mM":
        return np.array(values, np.int64).view(dtype)
    if dtype.kind == "f":
        # np.array of a mixed list of numbers and words would be text.
        return np.array(_each(values, lambda x: _WORDS[x] if isinstance(x, str) else x), dtype)
    if dtype.kind not in "biuU":
        raise ValueError("not a plain dtype")
    array = np.array(values, dtype)
    if array.tolist() != values:
        raise ValueError("not values of their dtype")
    return array


def _each(values: Any, change: Callable[[Any], Any]) -> Any:
    """The values of nested lists, changed."""
    return [_each(x, change) for x in values] if isinstance(values, list) else change(values)
