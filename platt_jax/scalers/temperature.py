"""Temperature scaling: one parameter on the logits."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from numpy.typing import NDArray

from platt_jax.model.objective import Array
from platt_jax.results.probabilities import expit
from platt_jax.scalers.base import Fitted, Scaler, along_rows
from platt_jax.scalers.logistic import fit_logistic


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False, eq=False)
class FittedTemperature(Fitted):
    """P(y=1 | f) = 1 / (1 + exp(-f / T)).

    Attributes:
        inverse_temperature: (...) 1 / T >= 0; with 0 every probability is 1/2.
        converged: (...) bool, False where there is no optimum, because the sign of the logit
            separates the classes.
    """

    inverse_temperature: Array
    converged: Array

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        return expit(along_rows(self.inverse_temperature) * f)


@dataclass(frozen=True)
class Temperature(Scaler[FittedTemperature]):
    """1 / (1 + exp(-f / T)) with T > 0 by maximum likelihood, for scores f that are logits.

    Guo, Pleiss, Sun & Weinberger (2017, "On calibration of modern neural networks", section 4.2),
    for two classes. The labels are used without Platt's targets. If higher scores go with class 0,
    the best T is infinite. If every row's sign matches its class there is no best T; the search
    stops where rounding hides further improvement, at a very small T.

    One class: no exception, the signs of the logits decide. Constant scores: no exception, the
    level of the logits decides; if all are 0, T is infinite.

    Example:
        >>> fitted = Temperature().fit([2.0, -2.0, 2.0, -2.0], [1, 0, 1, 1])
        >>> float(fitted.inverse_temperature.round(6)), bool(fitted.converged)
        (0.549306, True)
    """

    def _fit_one(self, f: jax.Array, y: jax.Array, w: jax.Array) -> FittedTemperature:
        largest = jnp.max(jnp.abs(f))
        unit = f / jnp.where(largest > 0, largest, 1)
        side = jnp.where(y, unit, -unit)
        best = fit_logistic(unit[:, None], y, w, jnp.ones(1, f.dtype))
        # The loss is convex in 1 / T, so its derivative at 0 decides whether 1 / T > 0 is better.
        useful = jnp.sum(w * side) > 0
        slope = best.parameters[0] / jnp.where(largest > 0, largest, 1)
        return FittedTemperature(
            inverse_temperature=jnp.where(useful, slope, 0),
            converged=jnp.where(useful, best.converged & (jnp.min(side) < 0), True),
        )
