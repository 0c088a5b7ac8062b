"""Stores calibrators on disk: one .npz of plain arrays, without pickle, versioned."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, fields
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.options import ClassPooling, Options, Pooling
from platt_jax.results import covariates, level_files, mixed_curves
from platt_jax.results.archive import NewerVersionError, read_archive, write_archive
from platt_jax.results.atomic import to_path
from platt_jax.results.covariates import Covariates
from platt_jax.results.fingerprint import digest, fingerprint
from platt_jax.results.fit import Fit, named_with_part
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.id_arrays import (
    ONE_PLAIN_COLUMN,
    arrays_to_ids,
    check_ids,
    id_names,
    ids_to_arrays,
)
from platt_jax.results.multiclass import (
    Model,
    MulticlassCalibrator,
    MulticlassFits,
    TemperaturePopulation,
    parameters,
)
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.population import SHAPES, Population
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.status import Flag, Status
from platt_jax.version import __version__

_FORMAT = "platt_jax calibrator"
# A change of the fields of a calibrator, or a new status or flag, must add a version.
_VERSION = 1
_ELSEWHERE = "population_elsewhere"
# What is said of anything else.
REFUSAL = "not a calibrator that platt_jax saved, or damaged"
_HEADER_BYTES = 1 << 20  # maximum size; it holds the names of columns of ids

Calibrator = Sigmoid | Fit | SegmentCalibrator | OneVsRestCalibrator | MulticlassCalibrator
_KINDS = tuple(kind.__name__ for kind in get_args(Calibrator))
# Integer fields, and their largest valid value.
_CODES = {
    "status": Status.EMPTY,
    "flags": sum(Flag),
    "iterations": float("inf"),
    "passes": float("inf"),
    "population_status": max(Status),
}
_TEXTS = "nights", "events"  # fields of a SegmentCalibrator
# Axes of a field after the axes of the batch.
_TRAILING = {"gradient": (2,), "hessian": (2, 2), "covariance": (2, 2)}
FIT_FIELDS = tuple(field.name for field in fields(Fit))
# Of a MulticlassCalibrator: fields of int32; others are float64.
_WHOLE = ("status", "flags", "iterations")
# Fields of its population with an axis of K + 1 segments; others are numbers.
_NODES = ("nodes", "node_weights")


def save(path: str | os.PathLike[str], calibrator: Calibrator) -> None:
    """Writes a calibrator to one .npz file, atomically.

    Args:
        path: the file, exactly as named; no extension is added. An existing file is replaced.
        calibrator: a Sigmoid, Fit, SegmentCalibrator, OneVsRestCalibrator or MulticlassCalibrator.

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
    write(path, calibrator)


def write(path: str | os.PathLike[str], calibrator: Calibrator, **more: Any) -> None:
    """`save` with more entries in the header, which `load` skips."""
    about, arrays = described(calibrator)
    write_archive(path, about | more, arrays)


def header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header of a file that `save` wrote; errors as of `load`."""
    path = to_path(path)
    with read_archive(path, _FORMAT, str(path), REFUSAL, _HEADER_BYTES) as (about, _, _):
        return about


def described(calibrator: Calibrator) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays of a file of this calibrator. No array holds Python objects."""
    kind = type(calibrator).__name__
    if kind not in _KINDS:
        raise ValueError(
            f"calibrator: expected one of {', '.join(_KINDS)}, got {named_with_part(calibrator)}"
        )
    about: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "package": __version__}
    about["kind"] = kind
    if isinstance(calibrator, MulticlassCalibrator):
        header, arrays = _described_multiclass(calibrator)
        return about | header, arrays
    arrays = {}
    if isinstance(calibrator, OneVsRestCalibrator):
        about["multilabel"] = calibrator.multilabel
        _add_ids(about, arrays, "classes", calibrator.classes)
        calibrator = calibrator.by_class
    numbers = _to_arrays(calibrator)
    if isinstance(calibrator, SegmentCalibrator):
        about["pooling"], about["options"] = calibrator.pooling, _changed(calibrator.options)
        if calibrator.curves is not None:
            about["curves"] = calibrator.curves.about
            arrays |= {f"curve_{name}": x for name, x in calibrator.curves.arrays().items()}
        for name in _TEXTS:
            if texts := getattr(calibrator, name):
                about[name] = list(texts)
        _add_ids(about, arrays, "keys", calibrator.keys)
        population = calibrator.population
        if population is not None and (regression := population.covariates) is not None:
            about["covariates"] = regression.about
            arrays |= {f"covariates_{name}": x for name, x in regression.arrays().items()}
        if calibrator.by_level is not None:
            about["levels"], level_arrays = level_files.described(calibrator.by_level)
            arrays |= level_arrays
        _check_fields(numbers, np.shape(calibrator.keys))
    else:
        _check_fields(numbers, numbers["A"].shape)
    if "n_pos" in numbers:
        about["rows"] = float(np.nansum(numbers["n_pos"]) + np.nansum(numbers["n_neg"]))
    about["fingerprint"] = fingerprint(calibrator)
    return about, numbers | arrays


def _add_ids(
    about: dict[str, Any], arrays: dict[str, NDArray[Any]], name: str, ids: NDArray[Any]
) -> None:
    """Adds ids to the arrays, and their layout to the header if it is not the usual one."""
    ids = np.asarray(ids)
    check_ids(name, ids)
    layout, columns = ids_to_arrays(name, ids)
    if layout != ONE_PLAIN_COLUMN:
        about["ids"] = layout
    arrays |= columns


def _changed(options: Options) -> dict[str, Any]:
    """The options that differ from their defaults."""
    return {name: x for name, x in asdict(options).items() if x != getattr(Options(), name)}


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
    """The inverse of `described`; an exception of any class if it describes no calibrator."""
    version = about["version"]
    if about["format"] != _FORMAT or type(version) is not int or version < 1:
        raise ValueError("not our header")
    if version > _VERSION:
        raise NewerVersionError(
            f"written by a newer platt_jax as version {version}; this one reads up to version "
            f"{_VERSION}"
        )
    kind, layout = about["kind"], about.get("ids", ONE_PLAIN_COLUMN)
    if kind not in _KINDS:
        raise ValueError("not a kind of calibrator")
    if kind == "MulticlassCalibrator":
        return _assembled_multiclass(about, names, read)
    by_segment = kind in ("SegmentCalibrator", "OneVsRestCalibrator")
    id_arrays = ["classes"] * (kind == "OneVsRestCalibrator") + ["keys"] * by_segment
    fields = ["A", "B"] if kind == "Sigmoid" else list(FIT_FIELDS)
    if by_segment:
        fields += ["fallback_A", "fallback_B", "fallback_covariance"]
        fields += [f"population_{name}" for name in SHAPES if "population_mean" in names]
        fields += [x for x in ("shift", _ELSEWHERE) if x in names]
    columns = [column for name in id_arrays for column in id_names(name, layout)]
    level_names = level_files.names(about["levels"]) if "levels" in about else []
    curve_names = mixed_curves.array_names(about["curves"]) if "curves" in about else []
    extra_names = [*level_names, *(f"curve_{x}" for x in curve_names)]
    if "covariates" in about:
        extra_names += [f"covariates_{name}" for name in covariates.ARRAYS]
    if set(names) != {*columns, *fields, *extra_names}:
        raise ValueError("not the arrays of its kind")
    # Arrays in the other byte order are converted to this machine's.
    arrays = {name: _plain(name, read(name)) for name in fields}
    ids = {name: arrays_to_ids(name, layout, read) for name in id_arrays}
    batch = ids["keys"].shape if by_segment else arrays["A"].shape
    if batch == (0,):  # an empty JSON list has no shape
        arrays = {
            name: array.reshape(_shape(name, batch)) if array.shape == (0,) else array
            for name, array in arrays.items()
        }
    _check_fields(arrays, batch)
    calibrator: Calibrator
    if kind == "Sigmoid":
        calibrator = Sigmoid(**arrays)
    elif kind == "Fit":
        calibrator = Fit(**arrays)
    elif kind == "SegmentCalibrator":
        calibrator = _segment_calibrator(about, arrays, ids["keys"], read)
    else:
        by_class = _segment_calibrator(about, arrays, ids["keys"], read)
        calibrator = OneVsRestCalibrator(ids["classes"], by_class, about["multilabel"] is True)
        if set(calibrator.classes.tolist()) != set(by_class.keys.tolist()):
            raise ValueError("not the same classes")
    if about["fingerprint"] != fingerprint(calibrator):
        raise ValueError("not the arrays that were saved")
    return calibrator


# --- what belongs together ------------------------------------------------------------------------


def _check_fields(arrays: Mapping[str, NDArray[Any]], batch: tuple[int, ...]) -> None:
    """Checks fields before saving and after loading, so that every saved file can be loaded."""
    for name, array in arrays.items():
        shape = _shape(name, batch)
        kind, kind_name = ("i", "integers") if name in _CODES else ("f", "floating numbers")
        if array.shape != shape or array.dtype.kind != kind:
            raise ValueError(
                f"{name}: expected {kind_name} of shape {shape}, got {array.dtype} of shape "
                f"{array.shape}"
            )
        if name in _CODES and not ((array >= 0) & (array <= _CODES[name])).all():
            raise ValueError(f"{name}: expected 0 to {_CODES[name]}, got other numbers")


def _shape(name: str, batch: tuple[int, ...]) -> tuple[int, ...]:
    """The expected shape of a field of a calibrator with this many problems."""
    if name == "shift":
        return (batch[0] + 1,)
    if name == _ELSEWHERE:
        return (3,)
    owner, _, field = name.partition("_")
    if owner == "fallback":
        return _TRAILING.get(field, ())
    if owner == "population":
        per_problem, trailing = SHAPES[field]
        return (batch if per_problem else ()) + trailing
    return batch + _TRAILING.get(name, ())


def _plain(name: str, values: Column) -> NDArray[Any]:
    return np.asarray(values) if name in _CODES else validation.floating(values, name)


def _to_arrays(calibrator: Sigmoid | Fit | SegmentCalibrator) -> dict[str, NDArray[Any]]:
    """The fields by their names in the file, except ids."""
    arrays: dict[str, Any]
    if isinstance(calibrator, Sigmoid):
        arrays = {"A": calibrator.A, "B": calibrator.B}
    else:
        arrays = fit_arrays(vars(calibrator).get("fit", calibrator))
    if isinstance(calibrator, SegmentCalibrator):
        attributes = vars(calibrator)  # of sigmoids that were fitted beside other curves, too
        fallback = attributes["fallback"]
        arrays.update(fallback_A=fallback.A, fallback_B=fallback.B)
        arrays["fallback_covariance"] = attributes["fallback_covariance"]
        if (population := calibrator.population) is not None:
            arrays |= {f"population_{name}": getattr(population, name) for name in SHAPES}
            if population.elsewhere is not None:
                arrays[_ELSEWHERE] = population.elsewhere
        if calibrator.shift is not None:
            arrays["shift"] = calibrator.shift
    return {name: _plain(name, values) for name, values in arrays.items()}


def fit_arrays(fit: Fit) -> dict[str, Any]:
    """The fields of a Fit by their names in a file."""
    return {name: getattr(fit, name) for name in FIT_FIELDS}


def _segment_calibrator(
    about: dict[str, Any], arrays: dict[str, Any], keys: Any, read: Callable[[str], NDArray[Any]]
) -> SegmentCalibrator:
    if about["pooling"] not in get_args(Pooling):
        raise ValueError("not a kind of pooling")
    texts = {name: tuple(about.get(name, ())) for name in _TEXTS}
    if not all(isinstance(x, str) for entries in texts.values() for x in entries):
        raise ValueError("not texts")
    population = None
    if "population_mean" in arrays:
        numbers = {name: arrays[f"population_{name}"] for name in SHAPES}
        extras: dict[str, Any] = {"status": Status(int(numbers["status"]))}
        extras["elsewhere"] = arrays.get(_ELSEWHERE)
        if "covariates" in about:
            values = {name: np.asarray(read(f"covariates_{name}")) for name in covariates.ARRAYS}
            extras["covariates"] = Covariates.assembled(about["covariates"], values, len(keys))
        population = Population(**numbers | extras)
    return SegmentCalibrator(
        keys,
        Fit(**{name: arrays[name] for name in FIT_FIELDS}),
        Sigmoid(arrays["fallback_A"], arrays["fallback_B"]),
        arrays["fallback_covariance"],
        about["pooling"],
        population,
        level_files.assembled(about["levels"], read) if "levels" in about else None,
        arrays.get("shift"),
        options=Options(**about["options"]),
        curves=_curves(about["curves"], read, len(keys) + 1) if "curves" in about else None,
        **texts,
    )


def _curves(
    about: dict[str, Any], read: Callable[[str], NDArray[Any]], number: int
) -> FittedCurves:
    """The curves of so many problems."""
    arrays = {name: np.asarray(read(f"curve_{name}")) for name in mixed_curves.array_names(about)}
    curves = mixed_curves.from_arrays(about, arrays)
    mixed_curves.checked_lengths(curves, number)
    return curves


# --- calibrators of several classes ---------------------------------------------------------------


def _described_multiclass(
    calibrator: MulticlassCalibrator,
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays of a calibrator. No array holds Python objects."""
    header: dict[str, Any] = {"model": calibrator.model, "pooling": calibrator.pooling}
    header["layouts"] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name in ("classes", "keys"):
        check_ids(name, getattr(calibrator, name))
        header["layouts"][name], columns = ids_to_arrays(name, getattr(calibrator, name))
        arrays |= columns
    numbers = _multiclass_numbers(calibrator)
    header["fingerprint"] = digest(list(numbers.values()))
    return header, arrays | numbers


def _assembled_multiclass(
    about: dict[str, Any], names: Collection[str], read: Callable[[str], NDArray[Any]]
) -> MulticlassCalibrator:
    """The inverse of `_described_multiclass`, given a function that returns the array of a name."""
    model, pooling, layouts = about["model"], about["pooling"], about["layouts"]
    if model not in get_args(Model) or pooling not in get_args(ClassPooling):
        raise ValueError("not a model, or not a kind of pooling")
    classes, keys = (arrays_to_ids(name, layouts[name], read) for name in ("classes", "keys"))
    id_columns = {x for name in ("classes", "keys") for x in id_names(name, layouts[name])}
    fits = MulticlassFits(**_read_part(MulticlassFits, "fits", read))
    shape = len(keys) + 1, parameters(model, len(classes))
    for field in fields(fits):
        axes = shape if field.name in ("coefficients", "standard_errors") else shape[:1]
        _check_array(field.name, getattr(fits, field.name), axes)
    farthest = read("farthest").astype(np.float64)
    _check_array("farthest", farthest, shape[:1])
    population = None
    if pooling == "partial":
        population = TemperaturePopulation(**_read_part(TemperaturePopulation, "population", read))
        axes = len(keys) + 1, np.shape(population.nodes)[1]
        for field in fields(population):
            _check_array(field.name, getattr(population, field.name), axes * (field.name in _NODES))
    calibrator = MulticlassCalibrator(keys, classes, model, pooling, fits, farthest, population)
    numbers = _multiclass_numbers(calibrator)
    if set(names) != id_columns | set(numbers):
        raise ValueError("not the arrays of its kind")
    if about["fingerprint"] != digest(list(numbers.values())):
        raise ValueError("not the arrays that were saved")
    return calibrator


def _multiclass_numbers(calibrator: MulticlassCalibrator) -> dict[str, NDArray[Any]]:
    parts = {"fits": calibrator.fits, "population": calibrator.population}
    return {"farthest": calibrator.farthest} | {
        f"{part}_{field.name}": np.asarray(getattr(value, field.name))
        for part, value in parts.items()
        if value is not None
        for field in fields(value)
    }


def _read_part(kind: Any, part: str, read: Callable[[str], NDArray[Any]]) -> dict[str, Any]:
    return {
        x.name: read(f"{part}_{x.name}").astype(np.int32 if x.name in _WHOLE else np.float64)
        for x in fields(kind)
    }


def _check_array(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    if name == "status" and not ((array >= 0) & (array <= max(Status))).all():
        raise ValueError("not a status")
