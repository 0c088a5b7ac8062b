"""A Gaussian prior on (A, B): a quadratic added to the sums over the rows."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

from platt_jax.model.objective import Array, Derivatives, EarlierCounts, Point
from platt_jax.model.standardization import (
    Standardization,
    derivatives_to_standardized,
    to_original,
)


class GaussianPrior(NamedTuple):
    """A normal prior on theta = (A, B): adds (theta-mean)' precision (theta-mean) / 2 to the loss.

    Attributes:
        mean: (2,), or (..., 2) with one mean per problem.
        precision: (2, 2) symmetric positive semidefinite, or (..., 2, 2); the inverse covariance.
    """

    mean: Array
    precision: Array


class CenteredPrior(NamedTuple):
    """A prior on the (A, B) of score - center, (...).

    Where scores are far from 0, A and B depend on each other so much that a precision in float32
    is not positive definite. At their own center they are independent. The fields are arrays of one
    shape: within a kernel there are scalars only.
    """

    center: Array
    mean_A: Array
    mean_B: Array
    precision_AA: Array
    precision_AB: Array
    precision_BB: Array

    @classmethod
    def around_zero(cls, prior: GaussianPrior) -> "CenteredPrior":
        """The prior as it is, on the (A, B) of the scores."""
        mean, precision = prior
        entries = (precision[..., i, j] for i, j in ((0, 0), (0, 1), (1, 1)))
        return cls(jnp.zeros_like(mean[..., 0]), mean[..., 0], mean[..., 1], *entries)

    @classmethod
    def of(cls, prior: GaussianPrior, dtype: DTypeLike) -> "CenteredPrior":
        """The prior in this dtype, from NumPy's arrays of floats, with A independent of B.

        Rounding of the precision hides what it says of A beyond B. A few units of rounding remain
        in any case, so that A does not depend on the next rounding error.
        """
        mean, precision = (np.asarray(x, float) for x in prior)
        AA, AB, BB = (precision[..., i, j] for i, j in ((0, 0), (0, 1), (1, 1)))
        center = AB / np.where(BB > 0, BB, 1)
        rounding = 4 * np.finfo(np.asarray(prior.precision).dtype).eps * AA
        own_AA = np.maximum(AA - center * AB, np.where(AB == 0, 0, rounding))
        mean_B = mean[..., 1] + center * mean[..., 0]
        centered = cls(center, mean[..., 0], mean_B, own_AA, np.zeros_like(center), BB)
        converted: Any = jax.tree.map(lambda x: x.astype(dtype), centered)
        return converted

    def original(self) -> GaussianPrior:
        """The prior on the (A, B) of the scores, in float64."""
        center, mean_A, mean_B, AA, AB, BB = (np.asarray(x, float) for x in self)
        mean = np.stack([mean_A, mean_B - center * mean_A], -1)
        at_0 = AB + center * BB
        rows = np.stack([AA + center * (AB + at_0), at_0], -1), np.stack([at_0, BB], -1)
        return GaussianPrior(mean, np.stack(rows, -2))


def at_later_targets(
    prior: CenteredPrior, n_pos: jax.Array, n_neg: jax.Array, before: EarlierCounts
) -> CenteredPrior:
    """The prior that earlier rows are, with Platt's target of all rows of their class.

    It changes where they are of one class.
    """
    n = before.n_pos + before.n_neg
    number = n + jnp.where(before.n_pos > 0, n_pos, n_neg)
    change, factor = with_target_of(number, before, prior.precision_BB)
    return prior._replace(
        mean_B=prior.mean_B + change,
        precision_AA=prior.precision_AA * factor,
        precision_AB=prior.precision_AB * factor,
        precision_BB=prior.precision_BB * factor,
    )


def with_target_of(number: Any, rows: EarlierCounts, precision_BB: Any) -> tuple[Any, Any]:
    """What is added to B, and the factor of the precision, where Platt's target changes.

    It becomes the target of another number of rows. Nothing changes where rows are of both classes.
    Else all of them have one probability, the target t, and their information on its log-odds is
    n t (1 - t). Any more in the precision does not come from these rows.
    """
    xp: Any = jnp if isinstance(precision_BB, jax.Array) else np
    n = rows.n_pos + rows.n_neg
    # t (1 - t) = m / (m + 1)^2 and |log-odds| = log m, with m the number of rows + 1.
    earlier, later = n + 1, number + 1
    row_share = n * earlier / (earlier + 1) ** 2 / xp.where(precision_BB > 0, precision_BB, 1)
    share = xp.where(rows.one_class, xp.minimum(row_share, 1), 0)
    surer = share * xp.log(later / earlier)
    factor = 1 - share * (1 - later * (earlier + 1) ** 2 / (earlier * (later + 1) ** 2))
    return xp.where(rows.n_pos > 0, -surer, surer), factor


def add_derivatives(
    sums: Derivatives, prior: CenteredPrior | None, standardization: Standardization, point: Point
) -> Derivatives:
    """Adds the prior's derivatives to sums over rows, at a point in standardized coordinates."""
    if prior is None:
        return sums
    frame = _from(prior, standardization)
    share = derivatives(prior, *to_original(frame, *point))
    return jax.tree.map(jnp.add, sums, derivatives_to_standardized(frame, share))


def penalty_at(
    prior: CenteredPrior | None, standardization: Standardization, point: Point
) -> jax.Array:
    """The penalty that the prior adds to the loss, at a point in standardized coordinates."""
    if prior is None:
        return jnp.zeros_like(standardization.center)
    return penalty(prior, *to_original(_from(prior, standardization), *point))


def _from(prior: CenteredPrior, standardization: Standardization) -> Standardization:
    """The standardization of score - center."""
    return standardization._replace(center=standardization.center - prior.center)


def penalty(prior: CenteredPrior, A: jax.Array, B: jax.Array) -> jax.Array:
    """The penalty that the prior adds to the loss, at (A, B) of score - center."""
    off_A, off_B = A - prior.mean_A, B - prior.mean_B
    slope = derivatives(prior, A, B)
    return (off_A * slope.g_A + off_B * slope.g_B) / 2


def derivatives(prior: CenteredPrior, A: jax.Array, B: jax.Array) -> Derivatives:
    """The prior's gradient and Hessian, at (A, B) of score - center."""
    off_A, off_B = A - prior.mean_A, B - prior.mean_B
    p_AA, p_AB, p_BB = map(
        jnp.asarray, (prior.precision_AA, prior.precision_AB, prior.precision_BB)
    )
    return Derivatives(p_AA * off_A + p_AB * off_B, p_AB * off_A + p_BB * off_B, p_AA, p_AB, p_BB)
