"""A short text by which files and monitors tell calibrators apart."""

import hashlib
from typing import Any

import numpy as np

from platt_jax.backend import accelerators


def fingerprint(calibrator: Any) -> str:
    """A text that two calibrators share only if their curves are the same, with their errors."""
    calibrator = getattr(calibrator, "by_class", calibrator)
    fields = vars(calibrator)  # of sigmoids that were fitted beside other curves, too
    fit = fields.get("fit", calibrator)
    arrays = [fit.A, fit.B, getattr(fit, "covariance", None)]
    if (fallback := fields.get("fallback")) is not None:
        arrays += [fallback.A, fallback.B, fields["fallback_covariance"], calibrator.predictive()]
        population = fields["population"]
        if population is not None and population.covariates is not None:
            arrays += population.covariates.arrays().values()
        if calibrator.curves is not None:
            arrays += calibrator.curves.arrays().values()
    return digest(arrays)


def digest(arrays: list[Any]) -> str:
    """A text that arrays of numbers share only if they are the same; None is left out."""
    hasher = hashlib.sha256()
    for values in accelerators.fetched(arrays):
        if values is not None:
            numbers = np.array(values, dtype="<f8")
            numbers[np.isnan(numbers)] = np.nan  # of whichever sign
            hasher.update(numbers.tobytes())
    return hasher.hexdigest()[:32]
