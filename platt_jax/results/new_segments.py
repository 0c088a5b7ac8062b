"""Segments without rows, whose curves follow from their covariates."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from platt_jax.ids import join
from platt_jax.ids.factorize import ascending, split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.results.covariates import CovariateTable
from platt_jax.status import Status


def with_covariates(calibrator: Any, given: Any) -> dict[str, Any]:
    """The fields of the calibrator with the segments of a table that it lacks.

    Raises:
        ValueError: the calibrator has no table of covariates, or this table does not fit it.
    """
    population = calibrator.population
    covariates = None if population is None else population.covariates
    if covariates is None or covariates.are_rows:
        kind = "none" if covariates is None else "the numbers of rows, which new segments lack"
        raise ValueError(f"calibrator: expected one with a table of covariates, got {kind}")
    table = CovariateTable.read(given)
    if table.keys is None:
        raise ValueError("covariates: expected a table with ids, got an array")
    new_ids = table.keys[get_indexer(calibrator.keys, split_columns(table.keys), "segments") < 0]
    (_, lines), number = table.of(new_ids, lambda sums: sums, covariates.columns), len(new_ids)
    keys, order = ascending(join([calibrator.keys, new_ids]))

    def joined(old: Any, added: Any) -> Any:
        """Of segments (K,) and new ones, in the order of the keys."""
        combined = np.concatenate([old, np.broadcast_to(added, (number, *np.shape(old)[1:]))])
        ordered = np.empty_like(combined, dtype=np.asarray(old).dtype)
        ordered[order] = combined
        return ordered

    mean = population.predictive_mean + covariates.effects(lines)
    covariance = population.average_covariance + covariates.errors(lines)
    fit = jax.tree.map(lambda x: joined(x, np.zeros((), np.asarray(x).dtype)), calibrator.fit)
    fit_fields = {"A": mean[:, 0], "B": mean[:, 1], "covariance": covariance}
    fit_fields |= {"hessian": np.linalg.inv(covariance), "status": int(Status.CONVERGED)}
    fit = replace(
        fit, **{name: joined(getattr(calibrator.fit, name), x) for name, x in fit_fields.items()}
    )
    posterior_fields = {"likelihood_precision": 0, "likelihood_pull": 0, "shrinkage": 1}
    posterior_fields |= {"posterior_mean": mean, "posterior_covariance": covariance}
    arrays = {name: joined(getattr(population, name), x) for name, x in posterior_fields.items()}
    covariates = replace(covariates, values=joined(covariates.values, lines))
    shift = calibrator.shift
    if shift is not None:
        shift = np.append(joined(shift[:-1], shift[-1]), shift[-1])
    population = replace(population, **arrays, covariates=covariates)
    return {"keys": keys, "fit": fit, "population": population, "shift": shift}
