"""Beta calibration: logistic regression on the logarithms of p and 1 - p."""

from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.model.objective import Array
from platt_jax.results.probabilities import expit, log_expit
from platt_jax.scalers.base import (
    Fitted,
    Scaler,
    along_rows,
    checked,
    class_weights,
    mean_target,
    require,
    unit_frame,
)
from platt_jax.scalers.logistic import fit_logistic

# Which of a, b and c are free on the boundaries of a, b >= 0; the others are 0.
_SIDES = ((0, 1, 1), (1, 0, 1), (0, 0, 1))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False, eq=False)
class FittedBetaCalibration(Fitted):
    """The log-odds a log(q) - b log(1 - q) + c.

    Attributes:
        a: (...) >= 0.
        b: (...) >= 0.
        c: (...) log-odds at q where the other terms are 0.
        inputs: meaning of the scores, as in `BetaCalibration`.
    """

    a: Array
    b: Array
    c: Array
    inputs: str = field(metadata={"static": True})

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        log_q, log_rest = _logarithms(f, self.inputs)
        logit = along_rows(self.a) * log_q - along_rows(self.b) * log_rest + along_rows(self.c)
        return expit(logit)


@dataclass(frozen=True)
class BetaCalibration(Scaler[FittedBetaCalibration]):
    """P(y=1 | q) = 1 / (1 + exp(-c) (1 - q)^b / q^a) with a, b >= 0, by maximum likelihood.

    Kull, Silva Filho & Flach (2017, "Beta calibration", AISTATS, section 4): the log-odds are
    a log(q) - b log(1 - q) + c, and the labels are used without Platt's targets. The authors' code
    fits without the bounds and, where a or b is negative, again without that feature. This class
    finds the bounded optimum itself, which is the same unless both are negative. With
    inputs="scores" q is 1 / (1 + exp(-f)), whose logarithms are exact for every f. Where the
    features separate the classes there is no optimum; the search stops where rounding hides
    further improvement, at a very steep curve.

    One class or constant scores: flat.

    Attributes:
        inputs: "scores" (logits), or "probabilities" in [0, 1], where 0 and 1 are moved inwards by
            the dtype's rounding unit.

    Raises:
        ValueError: in `fit`, a probability is outside [0, 1].

    Example:
        >>> q, labels = [0.1, 0.4, 0.35, 0.8, 0.7, 0.9], [0, 1, 0, 0, 1, 1]
        >>> BetaCalibration("probabilities").fit(q, labels).predict_proba([0.2, 0.8]).round(4)
        array([0.1712, 0.7225])
    """

    inputs: Literal["scores", "probabilities"] = "scores"

    def __post_init__(self) -> None:
        known = self.inputs in ("scores", "probabilities")
        require(self, "inputs", known, '"scores" or "probabilities"')

    def fit(
        self, scores: Column, labels: Column, *, weights: Column = None
    ) -> FittedBetaCalibration:
        """Fit as in `Scaler.fit`; with inputs="probabilities" the scores must be in [0, 1]."""
        if self.inputs == "probabilities":
            q = checked(scores, labels, weights).rows.scores
            validation.require_probabilities(q, "scores")
        return super().fit(scores, labels, weights=weights)

    def _fit_one(self, f: jax.Array, y: jax.Array, w: jax.Array) -> FittedBetaCalibration:
        log_q, log_rest = _logarithms(f, self.inputs)
        # Features scaled to size 1; the intercept allows them to be centred.
        units = [unit_frame(log_q), unit_frame(-log_rest)]
        centered = [
            (x - center) * scale
            for x, (center, scale) in zip((log_q, -log_rest), units, strict=True)
        ]
        features = jnp.stack([*centered, jnp.ones_like(f)], axis=1)
        found = fit_logistic(features, y, w, jnp.ones(3, f.dtype))
        inside = (found.parameters[:2] >= 0).all()
        # The loss is convex: if the optimum is outside, the bounded one is on the boundary.
        sides = jax.vmap(lambda free: fit_logistic(features, y, w, free, needed=~inside))(
            jnp.asarray(_SIDES, f.dtype)
        )
        allowed = (sides.parameters[:, :2] >= 0).all(axis=1)
        at_side = sides.parameters[jnp.argmin(jnp.where(allowed, sides.loss, jnp.inf))]
        best = jnp.where(inside, found.parameters, at_side)
        (center_a, scale_a), (center_b, scale_b) = units
        a, b = best[0] * scale_a, best[1] * scale_b

        n_pos, n_neg = (jnp.sum(x) for x in class_weights(y, w))
        told_apart = (n_pos > 0) & (n_neg > 0) & (f.min() < f.max())
        flat = mean_target(n_pos, n_neg)
        return FittedBetaCalibration(
            a=jnp.where(told_apart, a, 0),
            b=jnp.where(told_apart, b, 0),
            c=jnp.where(
                told_apart, best[2] - a * center_a - b * center_b, jnp.log(flat / (1 - flat))
            ),
            inputs=self.inputs,
        )


def _logarithms(f: Any, inputs: str) -> tuple[Any, Any]:
    """log(q) and log(1 - q)."""
    if inputs == "scores":
        return log_expit(f), log_expit(-f)
    xp = jnp if isinstance(f, jax.Array) else np
    eps = xp.finfo(f.dtype).eps
    q = xp.clip(f, eps, 1 - eps)
    return xp.log(q), xp.log1p(-q)
