"""Checks what users give: columns of rows, and what else there is for each problem."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.backend import accelerators
from platt_jax.columns import Column
from platt_jax.model.prior import CenteredPrior, GaussianPrior
from platt_jax.passes.columns import Columns
from platt_jax.solver.solution import ProblemInputs


def given_columns(
    scores: NDArray[Any], labels: Column, weights: Column, offset: Column, pos_label: Any = None
) -> Columns:
    """Columns (..., N), given checked scores."""
    y, w = validation.labels_and_weights(labels, weights, scores, pos_label)
    return Columns(scores, y, w, validation.offset(offset, scores))


def problem_inputs(
    batch: tuple[int, ...],
    dtype: np.dtype[Any],
    prior: GaussianPrior | None = None,
    start: tuple[Column, Column] | None = None,
) -> ProblemInputs:
    """Prior and start for the problems of a batch, with leading axis (K,)."""
    if isinstance(prior, GaussianPrior):  # JAX's arrays may lack float64
        prior = GaussianPrior(*(validation.array(_fetched(leaf), "prior") for leaf in prior))
    if isinstance(start, tuple):
        start = tuple(map(_fetched, start))
    centered = None
    if validation.prior(prior, batch, dtype) is not None:
        centered = CenteredPrior.of(_flat(prior, batch), dtype)
    pair: Any = validation.start(start, batch, dtype)  # NumPy arrays here, JAX arrays where traced
    if pair is not None:
        pair = pair[0].reshape(-1), pair[1].reshape(-1)
    return ProblemInputs(centered, pair)


def _flat(prior: Any, batch: tuple[int, ...]) -> GaussianPrior:
    """The prior of each problem, as floats of the dtype that it is given in."""
    mean, precision = (x if x.dtype.kind == "f" else x.astype(float) for x in prior)
    return GaussianPrior(
        np.broadcast_to(mean, (*batch, 2)).reshape(-1, 2),
        np.broadcast_to(precision, (*batch, 2, 2)).reshape(-1, 2, 2),
    )


def _fetched(values: Any) -> Any:
    """An array on an accelerator as NumPy's; others are returned as given."""
    return jax.device_get(accelerators.taken(values)) if accelerators.holds(values) else values


def shared_prior(prior: GaussianPrior | None) -> GaussianPrior | None:
    """The prior if all problems share it, so that it also applies to the pooled fit; else None."""
    if not isinstance(prior, GaussianPrior):
        return None
    return prior if np.ndim(prior.mean) == 1 and np.ndim(prior.precision) == 2 else None
