"""Calibrators of several classes as a header and plain arrays, for files."""

from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from platt_jax.options import ClassPooling
from platt_jax.results.fingerprint import digest
from platt_jax.results.id_arrays import arrays_to_ids, check_ids, id_names, ids_to_arrays
from platt_jax.results.multiclass import (
    Model,
    MulticlassCalibrator,
    MulticlassFits,
    TemperaturePopulation,
    parameters,
)
from platt_jax.status import Status

_WHOLE = ("status", "flags", "iterations")  # fields of int32, others are float64
# Fields of a population with an axis of K + 1 segments; others are numbers.
_NODES = ("nodes", "node_weights")


def described(calibrator: MulticlassCalibrator) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays of a calibrator. No array holds Python objects."""
    header: dict[str, Any] = {"model": calibrator.model, "pooling": calibrator.pooling}
    header["layouts"] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name in ("classes", "keys"):
        check_ids(name, getattr(calibrator, name))
        header["layouts"][name], columns = ids_to_arrays(name, getattr(calibrator, name))
        arrays |= columns
    numbers = _numbers(calibrator)
    header["fingerprint"] = digest(list(numbers.values()))
    return header, arrays | numbers


def assembled(
    about: dict[str, Any], names: Collection[str], read: Callable[[str], NDArray[Any]]
) -> MulticlassCalibrator:
    """The inverse of `described`, given a function that returns the array of a name."""
    model, pooling, layouts = about["model"], about["pooling"], about["layouts"]
    if model not in get_args(Model) or pooling not in get_args(ClassPooling):
        raise ValueError("not a model, or not a kind of pooling")
    classes, keys = (arrays_to_ids(name, layouts[name], read) for name in ("classes", "keys"))
    known = {x for name in ("classes", "keys") for x in id_names(name, layouts[name])}
    fits = MulticlassFits(**_read(MulticlassFits, "fits", read))
    shape = len(keys) + 1, parameters(model, len(classes))
    for field in fields(fits):
        axes = shape if field.name in ("coefficients", "standard_errors") else shape[:1]
        _check(field.name, getattr(fits, field.name), axes)
    farthest = read("farthest").astype(np.float64)
    _check("farthest", farthest, shape[:1])
    population = None
    if pooling == "partial":
        population = TemperaturePopulation(**_read(TemperaturePopulation, "population", read))
        axes = len(keys) + 1, np.shape(population.nodes)[1]
        for field in fields(population):
            _check(field.name, getattr(population, field.name), axes * (field.name in _NODES))
    made = MulticlassCalibrator(keys, classes, model, pooling, fits, farthest, population)
    numbers = _numbers(made)
    if set(names) != known | set(numbers):
        raise ValueError("not the arrays of its kind")
    if about["fingerprint"] != digest(list(numbers.values())):
        raise ValueError("not the arrays that were saved")
    return made


def _numbers(calibrator: MulticlassCalibrator) -> dict[str, NDArray[Any]]:
    parts = {"fits": calibrator.fits, "population": calibrator.population}
    return {"farthest": calibrator.farthest} | {
        f"{part}_{field.name}": np.asarray(getattr(value, field.name))
        for part, value in parts.items()
        if value is not None
        for field in fields(value)
    }


def _read(kind: Any, part: str, read: Callable[[str], NDArray[Any]]) -> dict[str, Any]:
    return {
        x.name: read(f"{part}_{x.name}").astype(np.int32 if x.name in _WHOLE else np.float64)
        for x in fields(kind)
    }


def _check(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    if name == "status" and not ((array >= 0) & (array <= max(Status))).all():
        raise ValueError("not a status")
