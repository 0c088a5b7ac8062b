"""How a fit is done: its prior, start, pooling and options."""

from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike, NDArray

from platt_jax.columns import Column
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options, Pooling
from platt_jax.validation.values import numbers, require_one_of


def prior(
    values: GaussianPrior | None, batch: tuple[int, ...], dtype: DTypeLike
) -> GaussianPrior | None:
    """A prior with one mean and one precision per problem of the batch.

    A concrete precision must be symmetric and positive semidefinite.
    """
    if values is None:
        return None
    if not isinstance(values, GaussianPrior):
        raise ValueError(f"prior: expected a GaussianPrior, got {type(values).__name__}")
    xp = jnp if any(isinstance(leaf, jax.Array) for leaf in values) else np
    mean, precision = (
        xp.asarray(leaf if isinstance(leaf, jax.Array) else numbers(leaf, "prior"), dtype)
        for leaf in values
    )
    try:
        if mean.shape[-1:] != (2,) or precision.shape[-2:] != (2, 2):
            raise ValueError
        result = GaussianPrior(
            xp.broadcast_to(mean, (*batch, 2)), xp.broadcast_to(precision, (*batch, 2, 2))
        )
    except ValueError:
        raise ValueError(
            f"prior: expected mean (2,) or {(*batch, 2)} and precision (2, 2) or "
            f"{(*batch, 2, 2)}, got {mean.shape} and {precision.shape}"
        ) from None
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in values):
        if not (np.isfinite(mean).all() and np.isfinite(precision).all()):
            raise ValueError("prior: expected finite numbers, got NaN or infinity")
        _check_precision(np.asarray(precision, np.float64))
    return result


def _check_precision(precision: NDArray[np.float64]) -> None:
    p_AA, p_AB, p_BA, p_BB = (precision[..., i, j] for i in (0, 1) for j in (0, 1))
    # Accepts rank-one matrices even if rounding makes the determinant negative, and computed
    # inverses, which are symmetric up to rounding.
    # By roots: products of large precisions overflow.
    root = np.sqrt(np.abs(p_AA)) * np.sqrt(np.abs(p_BB))
    bounded = np.abs(p_AB) <= root * (1 + 5e-7)
    symmetric = np.abs(p_AB - p_BA) <= 1e-6 * root
    ok = symmetric & (p_AA >= 0) & (p_BB >= 0) & bounded
    if not np.all(ok):
        first = precision.reshape(-1, 2, 2)[np.argmin(ok)]
        raise ValueError(
            f"prior: expected a symmetric positive semidefinite precision, got {first.tolist()}"
        )


def start(
    values: tuple[Column, Column] | None, batch: tuple[int, ...], dtype: DTypeLike
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """(A, B) to start from, each with the batch shape."""
    if values is None:
        return None
    if not isinstance(values, tuple | list) or len(values) != 2:
        length = f" of {len(values)}" if hasattr(values, "__len__") else ""
        raise ValueError(f"start: expected a pair (A, B), got {type(values).__name__}{length}")
    pair = [numbers(x, "start").astype(dtype) for x in values]
    try:
        A, B = (np.broadcast_to(x, batch) for x in pair)
    except ValueError:
        shapes = " and ".join(str(np.shape(x)) for x in values)
        raise ValueError(f"start: expected A and B of shape {batch}, got {shapes}") from None
    return A, B


def pooling(value: Any, prior_given: Any, start_given: Any, fit_options: Options) -> None:
    """Checks `pooling`, and whether the other arguments agree with it."""
    require_one_of(value, get_args(Pooling), "pooling")
    if value == "none":
        return
    one_curve = value == "complete"
    if not one_curve and prior_given is not None:
        raise ValueError(
            f'prior: expected None with pooling="{value}": the population is the prior'
        )
    if start_given is not None:
        raise ValueError(f'start: expected None with pooling="{value}"')
    if not one_curve:
        for name, usual in (("monotone", False), ("intercept", True)):
            if getattr(fit_options, name) != usual:
                raise ValueError(
                    f'Options({name}={not usual}): expected {usual} with pooling="{value}", whose '
                    "population has normal (A, B)"
                )


def options(values: Options) -> Options:
    """The options, if that is what they are."""
    if not isinstance(values, Options):
        raise ValueError(f"options: expected an Options, got {type(values).__name__}")
    return values


def no_mesh(mesh: Any) -> None:
    """Refuses a mesh for scores on an accelerator."""
    if mesh is not None:
        raise ValueError(
            "mesh: expected None for scores on a device, which are fitted there; for a mesh pass "
            "np.asarray(scores)"
        )
