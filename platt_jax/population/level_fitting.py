"""Pooling of nested or crossed levels: from segments of several columns to their calibrator."""

from itertools import combinations, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.execution.progress import Listener, Stage
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.vocabulary import distinct
from platt_jax.options import Options
from platt_jax.population.crossed import Crossed
from platt_jax.population.estimate import with_left_out
from platt_jax.population.gaussians import NormalMoments
from platt_jax.population.level_search import EstimatedLevels, estimate_levels
from platt_jax.population.levels import Design, Scoring
from platt_jax.population.nested import Nested
from platt_jax.population.search import covariance_errors
from platt_jax.population.segments import Segments
from platt_jax.results.fit import Fit
from platt_jax.results.levels import Level, Levels
from platt_jax.results.population import Population
from platt_jax.solver.solution import ProblemInputs
from platt_jax.status import Status

_Array: TypeAlias = NDArray[Any]


class _Values(NamedTuple):
    """The values of a level, and the value of each segment."""

    name: str
    keys: NDArray[Any]  # (V,), ascending
    codes: NDArray[Any]  # (K,)


def levels_of(keys: NDArray[Any], kind: str) -> list[_Values]:
    """The levels of these segments, "nested" or "crossed".

    Refuses ids of one column, a column of one value, and two columns that determine each other.
    """
    names = keys.dtype.names
    if names is None:
        raise ValueError(
            f'segments: expected ids of several columns with pooling="{kind}", got one column; '
            'for one column use pooling="partial"'
        )
    values = [_column(name, keys[name]) for name in names]
    for level in values:
        if len(level.keys) == 1:
            raise ValueError(
                f"segments: expected columns of several values with pooling={kind!r}, got one "
                f"value in column {level.name!r}: leave the column out"
            )
    if kind == "nested":
        values = [_prefix(keys, number + 1) for number in range(len(names))]
    pairs: Any = pairwise(values) if kind == "nested" else combinations(values, 2)
    for one, other in pairs:
        _require_different(one, other)
    return values


def _column(name: str, column: NDArray[Any]) -> _Values:
    codes, keys = distinct(split_columns(column))
    return _Values(name, keys, codes)


def _prefix(keys: NDArray[Any], columns: int) -> _Values:
    """The distinct ids in the first columns; the keys are in ascending order of these."""
    names = keys.dtype.names[:columns]  # type: ignore[index]
    new = np.zeros(len(keys), bool)
    new[:1] = True
    for name in names:
        new[1:] |= keys[name][1:] != keys[name][:-1]
    id_columns = [keys[name][new] for name in names]
    values = id_columns[0] if columns == 1 else ids.structured(names, id_columns)
    return _Values(" > ".join(names), values, np.cumsum(new) - 1)


def _require_different(one: _Values, other: _Values) -> None:
    sizes = len(one.keys), len(other.keys)
    if sizes[0] == sizes[1] == len(np.unique(one.codes * sizes[1] + other.codes)):
        raise ValueError(
            f"segments: {one.name!r} and {other.name!r} determine each other, so their effects "
            "cannot be told apart: leave one of them out"
        )


def fit_levels(
    segments: Segments,
    values: list[_Values],
    kind: str,
    pooled: Fit,
    options: Options,
    progress: bool | Listener,
) -> tuple[Fit | None, Population, Levels | None]:
    """The fits of the segments, their population and their levels.

    The population has no estimate, and there are neither fits nor levels, if these would say less
    of the rows than the curve of all rows, `pooled`. That has converged, with rows of both classes.
    """
    result = estimate_levels(segments, _design(values, kind), pooled, options, progress)
    if result is None:
        status = Status.MAX_ITERATIONS
        return None, Population.not_estimated(len(segments.keys), status), None
    fit, estimate = result
    population, levels = _assembled(estimate, values, kind, fit)
    if estimate.left_out is not None:
        alone = segments.fit(ProblemInputs(), options, Stage.of(progress))
        fit, population = with_left_out(fit, population, alone, estimate.left_out)
    return fit, population, levels


def _assembled(
    found: EstimatedLevels, values: list[_Values], kind: str, fit: Fit
) -> tuple[Population, Levels]:
    """The estimate in the coordinates of the original scores."""
    rows = fit.n_pos + fit.n_neg
    back = np.linalg.inv(found.coordinates.matrix)
    spreads = [_LevelCovariance.of(step, back) for step in found.steps]
    variance = np.array([np.trace(step.covariance) for step in found.steps])
    root = found.posteriors.root_for_prediction.transformed(back)
    level_tables = tuple(
        Level(
            level.name,
            level.keys,
            np.bincount(level.codes, rows, len(level.keys)),
            *effects.transformed(back),
            spread.covariance,
            spread.errors,
            back @ unseen @ back.T,
            float(share),
        )
        for level, effects, spread, unseen, share in zip(
            values,
            found.posteriors.for_prediction,
            spreads,
            found.unseen,
            variance / variance.sum(),
            strict=True,
        )
    )
    levels = Levels(kind, level_tables, root.mean[0], root.covariance[0])
    return _population(found, spreads, root, back), levels


def _design(values: list[_Values], kind: str) -> Design:
    if kind == "crossed":
        codes = np.stack([level.codes for level in values], 1)
        return Crossed(codes, [len(level.keys) for level in values])
    parents = [np.zeros(len(values[0].keys), np.intp)]
    for above, level in pairwise(values):
        parent = np.empty(len(level.keys), np.intp)
        parent[level.codes] = above.codes
        parents.append(parent)
    return Nested(parents)


class _LevelCovariance(NamedTuple):
    """Covariance of a level's effects in the original coordinates, with standard errors.

    They are NaN where the search holds a standard deviation at its minimum.
    """

    covariance: _Array
    errors: _Array

    @classmethod
    def of(cls, step: Scoring, back: _Array) -> "_LevelCovariance":
        root = back @ np.linalg.cholesky(step.covariance)
        errors = covariance_errors(root, step.spread)
        return cls(root @ root.T, np.where(errors > 0, errors, np.nan))


def _population(
    found: EstimatedLevels, spreads: list[_LevelCovariance], root: NormalMoments, back: _Array
) -> Population:
    """The segments as a population: the mean curve with the spreads of all levels."""
    original = found.likelihoods.transformed(back)
    segments = found.posteriors.segments.transformed(back)
    mean_curve = found.posteriors.root.transformed(back)
    covariance = sum((x.covariance for x in spreads), np.zeros((2, 2)))
    ratio = np.linalg.solve(found.cavity.covariance, found.posteriors.segments.covariance)
    return Population(
        mean=mean_curve.mean[0],
        covariance=covariance,
        mean_covariance=mean_curve.covariance[0],
        covariance_errors=np.sqrt(np.nansum([x.errors**2 for x in spreads], axis=0)),
        status=found.status,
        likelihood_precision=original.precision.matrices,
        likelihood_pull=original.pull,
        posterior_mean=segments.mean,
        posterior_covariance=segments.covariance,
        predictive_mean=root.mean[0],
        predictive_covariance=root.covariance[0] + back @ sum(found.unseen) @ back.T,
        shrinkage=np.clip(np.trace(ratio, axis1=1, axis2=2) / 2, 0, 1),
    )
