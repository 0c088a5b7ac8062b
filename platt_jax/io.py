"""Calibrators on disk: one .npz of plain arrays, no pickle, versioned."""

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from platt_jax.calibrators import Fit, OneVsRestCalibrator, SegmentCalibrator, Sigmoid

_FORMAT = "platt-jax calibrator"
_VERSION = 1

Calibrator = Sigmoid | Fit | SegmentCalibrator | OneVsRestCalibrator

_FIT_FIELDS = tuple(field.name for field in fields(Fit))
_ARRAYS = {
    "Sigmoid": ("A", "B"),
    "Fit": _FIT_FIELDS,
    "SegmentCalibrator": ("keys", "fallback_A", "fallback_B", *_FIT_FIELDS),
    "OneVsRestCalibrator": ("classes", *_FIT_FIELDS),
}
_CODES = ("status", "flags", "iterations", "passes")
# Axes that a field has behind the batch's own.
_TRAILING = {"gradient": (2,), "hessian": (2, 2), "covariance": (2, 2)}


def save(path: str | os.PathLike, calibrator: Calibrator) -> None:
    """Write a calibrator to one .npz file, whole or not at all.

    Args:
        path: where to; taken as it is, no ending is added. An existing file is replaced.
        calibrator: a Sigmoid, Fit, SegmentCalibrator or OneVsRestCalibrator.

    Raises:
        ValueError: something else, keys that are neither numbers nor text, or a path that is
            there but no file.
        OSError: the file cannot be written.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "sigmoid.npz")
        >>> save(path, Sigmoid(A=-2.0, B=1.0))
        >>> float(load(path).A)
        -2.0
    """
    kind = type(calibrator).__name__
    if kind not in _ARRAYS:
        raise ValueError(f"calibrator: expected one of {', '.join(_ARRAYS)}, got {kind}")
    arrays: dict[str, Any] = {
        name: np.asarray(array) for name, array in _to_arrays(calibrator).items()
    }
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise ValueError(f"{name}: only numbers and text can be saved, got mixed objects")
    header = json.dumps({"format": _FORMAT, "version": _VERSION, "kind": kind})
    arrays["header"] = np.array(header)
    _write_atomically(Path(path), arrays)


def _write_atomically(path, arrays):
    """Written beside the target and moved over it: a reader sees the old file or the new one."""
    path = path.resolve()  # through a symbolic link, not over it
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no such directory: {path.parent}")
    if path.exists() and not path.is_file():
        raise ValueError(f"path: expected a file to write, {path} is something else")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def load(path: str | os.PathLike) -> Calibrator:
    """Read a calibrator that `save` wrote.

    Args:
        path: the file.

    Returns:
        The calibrator, of the class it was saved from.

    Raises:
        ValueError: the file is no calibrator, is damaged, or is from a newer version.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as handle:
        try:
            header, arrays = _read(handle)
        except _NewerVersionError as newer:
            raise ValueError(f"{path}: {newer}") from None
        except Exception:
            # A damaged file can fail anywhere in zip, header or array parsing, in many ways.
            raise ValueError(f"{path}: not a calibrator that platt_jax saved, or damaged") from None
    return _from_arrays(header["kind"], arrays)


class _NewerVersionError(Exception):
    pass


def _read(handle):
    with np.load(handle, allow_pickle=False) as file:
        header = json.loads(str(file["header"]))
        if header["format"] != _FORMAT or type(header["version"]) is not int:
            raise ValueError
        if header["version"] > _VERSION:
            raise _NewerVersionError(
                f"written by a newer platt_jax as version {header['version']}; this one reads up "
                f"to version {_VERSION}"
            )
        arrays = {name: file[name] for name in _ARRAYS[header["kind"]]}
    names = arrays.get("keys", arrays.get("classes"))
    batch = arrays["A"].shape if names is None else (len(names),)
    if names is not None and names.ndim != 1:
        raise ValueError
    if "keys" in arrays and not (arrays["keys"][:-1] < arrays["keys"][1:]).all():
        raise ValueError
    for name in ("A", "B", *_FIT_FIELDS):
        _check(arrays.get(name), batch + _TRAILING.get(name, ()), "i" if name in _CODES else "f")
    for name in ("fallback_A", "fallback_B"):
        _check(arrays.get(name), (), "f")
    return header, arrays


def _check(array, shape, kind):
    if array is not None and (array.shape != shape or array.dtype.kind != kind):
        raise ValueError


def _to_arrays(calibrator):
    if isinstance(calibrator, Sigmoid):
        return {"A": calibrator.A, "B": calibrator.B}
    if isinstance(calibrator, Fit):
        return {name: getattr(calibrator, name) for name in _FIT_FIELDS}
    if isinstance(calibrator, OneVsRestCalibrator):
        return {"classes": calibrator.classes, **_to_arrays(calibrator.fit)}
    fallback = calibrator.fallback
    return {
        "keys": calibrator.keys,
        "fallback_A": fallback.A,
        "fallback_B": fallback.B,
        **_to_arrays(calibrator.fit),
    }


def _from_arrays(kind, arrays):
    if kind == "Sigmoid":
        return Sigmoid(**arrays)
    fit = Fit(**{name: arrays[name] for name in _FIT_FIELDS})
    if kind == "Fit":
        return fit
    if kind == "OneVsRestCalibrator":
        return OneVsRestCalibrator(arrays["classes"], fit)
    return SegmentCalibrator(
        arrays["keys"], fit, Sigmoid(arrays["fallback_A"], arrays["fallback_B"])
    )
