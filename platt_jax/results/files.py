"""Stores calibrators on disk: one .npz of plain arrays, without pickle, versioned."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.results import level_files
from platt_jax.results.archive import NewerVersionError, read_archive, write_archive
from platt_jax.results.atomic import to_path
from platt_jax.results.fit import Fit
from platt_jax.results.id_arrays import (
    ONE_PLAIN_COLUMN,
    arrays_to_ids,
    check_ids,
    id_names,
    ids_to_arrays,
)
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.population import SHAPES, Population
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.status import Flag, Status

_FORMAT = "platt-jax calibrator"
# What is said of anything else.
REFUSAL = "not a calibrator that platt_jax saved, or damaged"
_HEADER_BYTES = 1 << 20  # maximum size; it holds the names of columns of ids

# The fields of a Fit in a file of each version. A change that adds a field to Fit, a status or a
# flag must add a version. Files of older versions are read with NaN for new fields.
_FIT_FIELDS = dict.fromkeys(
    (1, 2, 3, 4, 5),
    (
        *("A", "B", "status", "flags", "iterations", "passes", "nll"),
        *("gradient", "hessian", "covariance", "n_pos", "n_neg"),
    ),
)
# Since version 5 a population has a `Status`; before, it had a status of its own.
_STATUS_BEFORE_5 = (Status.CONVERGED, Status.MAX_ITERATIONS, Status.BOUNDARY, Status.NOT_ESTIMATED)
# Since version 5 a OneVsRestCalibrator is of multilabel targets, and a SegmentCalibrator has a
# shift, if the header says so.
# Since version 4 a SegmentCalibrator has levels if its header says so.
# Since version 2 a SegmentCalibrator has its fallback's covariance. It also has a population if
# its header says so, which has these fields since version 3.
_POPULATION_SINCE_3 = (
    *("likelihood_precision", "likelihood_pull"),
    *("predictive_mean", "predictive_covariance"),
)
_VERSION = max(_FIT_FIELDS)

Calibrator = Sigmoid | Fit | SegmentCalibrator | OneVsRestCalibrator


class _Kind(NamedTuple):
    """Contents of a file of one class of calibrators, besides the fields of a Fit."""

    fit: bool
    ids: str | None = None
    sigmoid: str | None = None  # prefix of the names of its A and B


_KINDS = {
    "Sigmoid": _Kind(fit=False, sigmoid=""),
    "Fit": _Kind(fit=True),
    "SegmentCalibrator": _Kind(fit=True, ids="keys", sigmoid="fallback_"),
    "OneVsRestCalibrator": _Kind(fit=True, ids="classes"),
}
# Integer fields, and their largest valid value.
_CODES = {
    "status": Status.EMPTY,
    "flags": sum(Flag),
    "iterations": float("inf"),
    "passes": float("inf"),
    "population_status": max(Status),
}
# Axes of a field after those of the batch.
_TRAILING = {"gradient": (2,), "hessian": (2, 2), "covariance": (2, 2)}


def save(path: str | os.PathLike[str], calibrator: Calibrator) -> None:
    """Writes a calibrator to one .npz file, atomically.

    Args:
        path: the file, exactly as named; no extension is added. An existing file is replaced.
        calibrator: a Sigmoid, Fit, SegmentCalibrator or OneVsRestCalibrator.

    Raises:
        ValueError: calibrator is something else, its fields are inconsistent, or path is not a path
            or names something other than a file.
        OSError: the file cannot be written.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "sigmoid.npz")
        >>> save(path, Sigmoid(A=-2.0, B=1.0))
        >>> float(load(path).A)
        -2.0
    """
    about, arrays = described(calibrator)
    write_archive(path, about, arrays)


def described(calibrator: Calibrator) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays of a file of this calibrator. No array holds Python objects.

    Raises:
        ValueError: calibrator is something else, or its fields are inconsistent.
    """
    kind = type(calibrator).__name__
    if kind not in _KINDS:
        raise ValueError(f"calibrator: expected one of {', '.join(_KINDS)}, got {kind}")
    about = {"format": _FORMAT, "version": _VERSION, "kind": kind}
    if getattr(calibrator, "population", None) is not None:
        about["population"] = True
    if getattr(calibrator, "multilabel", False):
        about["multilabel"] = True
    if getattr(calibrator, "shift", None) is not None:
        about["shift"] = True
    arrays = _to_arrays(calibrator)
    if (name := _KINDS[kind].ids) is None:
        _check_fields(arrays, arrays["A"].shape)
    else:
        keys = np.asarray(getattr(calibrator, name))
        check_ids(name, keys)
        _check_fields(arrays, keys.shape)
        layout, columns = ids_to_arrays(name, keys)
        if layout != ONE_PLAIN_COLUMN:
            about["ids"] = layout
        arrays.update(columns)
    if (levels := getattr(calibrator, "by_level", None)) is not None:
        about["levels"], level_arrays = level_files.described(levels)
        arrays |= level_arrays
    if nights := getattr(calibrator, "nights", ()):
        about["nights"] = list(nights)
    return about, arrays


def load(path: str | os.PathLike[str]) -> Calibrator:
    """Reads a calibrator that `save` wrote.

    Args:
        path: the file.

    Returns:
        The calibrator, of the class that was saved.

    Raises:
        ValueError: path is not a path; or the file is not a calibrator, is damaged, or is from a
            newer version.
        OSError: the file cannot be read.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "sigmoid.npz")
        >>> save(path, Sigmoid(A=-2.0, B=1.0))
        >>> type(load(path)).__name__
        'Sigmoid'
    """
    path = to_path(path)
    with read_archive(path, _FORMAT, str(path), REFUSAL, _HEADER_BYTES) as contents:
        return assembled(*contents)


def assembled(
    about: dict[str, Any], names: Collection[str], read: Callable[[str], NDArray[Any]]
) -> Calibrator:
    """The calibrator with this header and arrays of these names, from `described`.

    Raises:
        Exception: they are not those of a calibrator. The class depends on the fault.
    """
    version = about["version"]
    if about["format"] != _FORMAT or type(version) is not int or version < 1:
        raise ValueError("not our header")
    if version > _VERSION:
        raise NewerVersionError(
            f"written by a newer platt_jax as version {version}; this one reads up to version "
            f"{_VERSION}"
        )
    kind, layout = _KINDS[about["kind"]], about.get("ids", ONE_PLAIN_COLUMN)
    columns = [] if kind.ids is None else id_names(kind.ids, layout)
    fields = [] if kind.sigmoid is None else [f"{kind.sigmoid}A", f"{kind.sigmoid}B"]
    fields += _FIT_FIELDS[version] if kind.fit else ()
    if version >= 2 and about["kind"] == "SegmentCalibrator":
        fields.append("fallback_covariance")
        if about.get("population"):
            missing = _POPULATION_SINCE_3 if version < 3 else ()
            fields += [f"population_{name}" for name in SHAPES if name not in missing]
        if about.get("shift"):
            fields.append("shift")
    level_names = level_files.names(about["levels"]) if "levels" in about else []
    if set(names) != {*columns, *fields, *level_names}:
        raise ValueError("not the arrays of its kind")
    # Arrays in the other byte order are converted to this machine's.
    arrays = {name: _plain(name, read(name)) for name in fields}
    keys = None
    if kind.ids is not None:
        keys = arrays_to_ids(kind.ids, layout, read)
        check_ids(kind.ids, keys)
    batch = arrays["A"].shape if keys is None else keys.shape
    if batch == (0,):  # an empty JSON list has no shape
        arrays = {
            name: array.reshape(_shape(name, batch)) if array.shape == (0,) else array
            for name, array in arrays.items()
        }
    if version < 5 and "population_status" in arrays:
        status = arrays["population_status"]
        arrays["population_status"] = np.array(_STATUS_BEFORE_5[int(status)])
    _check_fields(arrays, batch)
    made: Any = _from_arrays(about["kind"], arrays, keys)
    if "multilabel" in about:
        made = replace(made, multilabel=about["multilabel"] is True)
    if level_names:
        made = replace(made, by_level=level_files.assembled(about["levels"], read))
    if nights := tuple(about.get("nights", ())):
        if not all(isinstance(night, str) for night in nights):
            raise ValueError("not names of nights")
        made = replace(made, nights=nights)
    calibrator: Calibrator = made
    return calibrator


# --- what belongs together ------------------------------------------------------------------------


def _check_fields(arrays: Mapping[str, NDArray[Any]], batch: tuple[int, ...]) -> None:
    """Checks fields before saving and after loading, so that every saved file can be loaded."""
    for name, array in arrays.items():
        shape = _shape(name, batch)
        kind, what = ("i", "integers") if name in _CODES else ("f", "floating numbers")
        if array.shape != shape or array.dtype.kind != kind:
            raise ValueError(
                f"{name}: expected {what} of shape {shape}, got {array.dtype} of shape "
                f"{array.shape}"
            )
        if name in _CODES and not ((array >= 0) & (array <= _CODES[name])).all():
            raise ValueError(f"{name}: expected 0 to {_CODES[name]}, got other numbers")


def _shape(name: str, batch: tuple[int, ...]) -> tuple[int, ...]:
    """The expected shape of a field of a calibrator with this many problems."""
    if name == "shift":
        return (batch[0] + 1,)
    owner, _, field = name.partition("_")
    if owner == "fallback":
        return _TRAILING.get(field, ())
    if owner == "population":
        per_problem, trailing = SHAPES[field]
        return (batch if per_problem else ()) + trailing
    return batch + _TRAILING.get(name, ())


def _plain(name: str, values: Column) -> NDArray[Any]:
    return np.asarray(values) if name in _CODES else validation.floating(values, name)


def _to_arrays(calibrator: Calibrator) -> dict[str, NDArray[Any]]:
    """The fields by their names in the file, except ids."""
    arrays: dict[str, Any]
    if isinstance(calibrator, Sigmoid):
        arrays = {"A": calibrator.A, "B": calibrator.B}
    else:
        fit = calibrator if isinstance(calibrator, Fit) else calibrator.fit
        arrays = fit_arrays(fit)
    if isinstance(calibrator, SegmentCalibrator):
        fallback = calibrator.fallback
        arrays.update(fallback_A=fallback.A, fallback_B=fallback.B)
        arrays["fallback_covariance"] = calibrator.fallback_covariance
        if (population := calibrator.population) is not None:
            arrays |= {f"population_{name}": getattr(population, name) for name in SHAPES}
        if calibrator.shift is not None:
            arrays["shift"] = calibrator.shift
    return {name: _plain(name, values) for name, values in arrays.items()}


def fit_arrays(fit: Fit) -> dict[str, Any]:
    """The fields of a Fit by their names in a file of the newest version."""
    return {name: getattr(fit, name) for name in _FIT_FIELDS[_VERSION]}


def _from_arrays(kind: str, arrays: dict[str, Any], keys: Any) -> Calibrator:
    if kind == "Sigmoid":
        return Sigmoid(**arrays)
    # A field that is newer than the file is NaN.
    unknown = np.full_like(arrays["A"], np.nan)
    fit = Fit(**{field.name: arrays.get(field.name, unknown) for field in fields(Fit)})
    if kind == "Fit":
        return fit
    if kind == "OneVsRestCalibrator":
        return OneVsRestCalibrator(keys, fit)
    fallback, population = Sigmoid(arrays["fallback_A"], arrays["fallback_B"]), None
    if "population_mean" in arrays:
        found = {name: arrays.get(f"population_{name}") for name in SHAPES}
        population = _population(found)
    unknown = np.full((2, 2), np.nan, fallback.A.dtype)
    covariance = arrays.get("fallback_covariance", unknown)
    shift = arrays.get("shift")
    return SegmentCalibrator(keys, fit, fallback, covariance, population, shift=shift)


def _population(found: dict[str, Any]) -> Population:
    """A population from its fields, which are None if the file is too old to have them."""
    if found["predictive_mean"] is None:
        # The stored posteriors are those given the population, as if it were known.
        mean, covariance = found["mean"], found["covariance"]
        prior_precision = (
            np.linalg.pinv(covariance) if np.isfinite(covariance).all() else covariance
        )
        precision = np.linalg.inv(found["posterior_covariance"])
        pull = (precision @ found["posterior_mean"][..., None])[..., 0] - prior_precision @ mean
        found |= {
            "likelihood_precision": precision - prior_precision,
            "likelihood_pull": pull,
            "predictive_mean": mean,
            "predictive_covariance": covariance + found["mean_covariance"],
        }
    return Population(**found | {"status": Status(int(found["status"]))})
