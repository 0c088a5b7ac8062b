"""Calibrators on disk: one .npz of plain arrays, no pickle, versioned."""

import json
import os
import secrets
from dataclasses import fields
from pathlib import Path

import numpy as np

from platt_jax import checks, npz
from platt_jax.calibrators import Fit, OneVsRestCalibrator, SegmentCalibrator, Sigmoid
from platt_jax.status import Flag, Status

_FORMAT = "platt-jax calibrator"
_VERSION = 1  # a status or a flag more makes the next, once there is a release
_HEADER_BYTES = 4000  # at most; it has a few hundred

Calibrator = Sigmoid | Fit | SegmentCalibrator | OneVsRestCalibrator

_FIT_FIELDS = tuple(field.name for field in fields(Fit))
_ARRAYS = {
    "Sigmoid": ("A", "B"),
    "Fit": _FIT_FIELDS,
    "SegmentCalibrator": ("keys", "fallback_A", "fallback_B", *_FIT_FIELDS),
    "OneVsRestCalibrator": ("classes", *_FIT_FIELDS),
}
_IDS = ("keys", "classes")
# The fields of whole numbers, and the largest that means something.
_CODES = {
    "status": max(Status),
    "flags": sum(Flag),
    "iterations": float("inf"),
    "passes": float("inf"),
}
# Axes that a field has behind the batch's own.
_TRAILING = {"gradient": (2,), "hessian": (2, 2), "covariance": (2, 2)}


def save(path: str | os.PathLike, calibrator: Calibrator) -> None:
    """Write a calibrator to one .npz file, whole or not at all.

    Args:
        path: where to; taken as it is, no ending is added. An existing file is replaced.
        calibrator: a Sigmoid, Fit, SegmentCalibrator or OneVsRestCalibrator.

    Raises:
        ValueError: something else, keys that are neither numbers nor text, fields that do not
            belong together, or a path that is there but no file.
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
    arrays = {name: _plain(name, values) for name, values in _to_arrays(calibrator).items()}
    _check_arrays(arrays)
    header = json.dumps({"format": _FORMAT, "version": _VERSION, "kind": kind})
    _write_atomically(Path(path), {"header": np.array(header), **arrays})


def _write_atomically(path, arrays):
    """Written beside the target and moved over it: a reader sees the old file or the new one."""
    path = path.resolve()  # through a symbolic link, not over it
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no such directory: {path.parent}")
    if path.exists() and not path.is_file():
        raise ValueError(f"path: expected a file to write, {path} is something else")
    # A name that no other thread or process takes, and short where the target's is not.
    partial = path.with_name(f".platt-jax-{secrets.token_hex(8)}.partial")
    try:
        with open(partial, "xb") as file:
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
    with open(path, "rb") as file:
        try:
            return _read(file)
        except _NewerVersionError as newer:
            raise ValueError(f"{path}: {newer}") from None
        except (OSError, MemoryError):
            raise  # the machine's fault, not the file's
        except Exception:
            # A damaged file can fail anywhere in zip, header or array parsing, in many ways.
            raise ValueError(f"{path}: not a calibrator that platt_jax saved, or damaged") from None


class _NewerVersionError(Exception):
    pass


def _read(file):
    archive = npz.open_archive(file)
    header = npz.read_array(archive, "header")
    if header.nbytes > _HEADER_BYTES:
        raise ValueError("not our header")
    header = json.loads(header.item())
    version = header["version"]
    if header["format"] != _FORMAT or type(version) is not int or version < 1:
        raise ValueError("not our header")
    if version > _VERSION:
        raise _NewerVersionError(
            f"written by a newer platt_jax as version {version}; this one reads up to version "
            f"{_VERSION}"
        )
    names = _ARRAYS[header["kind"]]
    if set(archive.namelist()) != {f"{name}.npy" for name in ("header", *names)}:
        raise ValueError("not the arrays of its kind")
    arrays = {name: npz.read_array(archive, name) for name in names}
    _check_arrays(arrays)
    # From a machine of the other byte order they come out as this one's.
    plain = {name: _plain(name, array) for name, array in arrays.items()}
    return _from_arrays(header["kind"], plain)


def _check_arrays(arrays):
    """What is saved and what is loaded passes here, so that whatever was saved can be loaded.

    Raises:
        ValueError: the arrays do not make a calibrator.
    """
    batch = arrays["A"].shape
    for name, array in arrays.items():
        if name in _IDS:  # before all others
            _check_ids(name, array)
            batch = array.shape
        else:
            shape = () if name.startswith("fallback_") else batch + _TRAILING.get(name, ())
            _check_field(name, array, shape)


def _check_ids(name, ids):
    if ids.dtype.kind not in npz.KINDS:
        raise ValueError(f"{name}: expected numbers or text of fixed width, got dtype {ids.dtype}")
    if ids.ndim != 1 or not len(ids):
        raise ValueError(f"{name}: expected a flat array of ids, got shape {ids.shape}")
    ordered = ids if name == "keys" else np.sort(ids)
    if not (ordered[:-1] < ordered[1:]).all():
        raise ValueError(f"{name}: expected distinct ids, and keys in ascending order")


def _check_field(name, array, shape):
    kind, what = ("i", "integers") if name in _CODES else ("f", "floating numbers")
    if array.shape != shape or array.dtype.kind != kind:
        raise ValueError(
            f"{name}: expected {what} of shape {shape}, got {array.dtype} of shape {array.shape}"
        )
    if name in _CODES and not ((array >= 0) & (array <= _CODES[name])).all():
        raise ValueError(f"{name}: expected 0 to {_CODES[name]}, got other numbers")


def _plain(name, values):
    return np.asarray(values) if name in (*_IDS, *_CODES) else checks.floating(values, name)


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
