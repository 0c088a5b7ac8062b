"""Calibration curves other than the sigmoid, of many problems: what a fitted curve can do.

A `SegmentCalibrator` whose `curves` are not None predicts by them. Every kind of curve is a
subclass of `FittedCurves`, here; how each is fitted is in `platt_jax.curves`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats, Integers
from platt_jax.columns import Column
from platt_jax.results import tables
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.pieces import Pieces, pieces
from platt_jax.results.probabilities import expit, logit
from platt_jax.status import Status

# Scores per curve at which is checked whether it is monotone.
_CHECKED = 65


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedCurves(ComparedByValue, ABC):
    """The curves of K problems.

    Attributes:
        status: (K,) int, how each fit ended: a `Status`. Probabilities are NaN if it is NON_FINITE
            or EMPTY.
        low, high: (K,) the smallest and the largest score of the fit.
    """

    kind: ClassVar[str]  # its name in files and messages
    has_errors: ClassVar[bool] = False  # whether `variance` is known

    status: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]

    def __len__(self) -> int:
        return len(self.status)

    @property
    def label(self) -> str:
        """The name of the kind of curve in messages."""
        return self.kind

    def proba(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """P(y=1) of scores (N,) by the curves of the problems `which` (N,)."""
        return expit(self.log_odds(scores, which))

    def log_odds(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """The log-odds of class 1, by `platt_jax.logit` where a curve has probabilities."""
        return logit(self.proba(scores, which))

    def variance(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """The variance of the log-odds (N,).

        Raises:
            ValueError: the kind of curve has no standard errors.
        """
        raise ValueError(
            f"calibrator: expected curves with standard errors for a band, got {self.kind!r}"
        )

    @property
    def is_monotone(self) -> Bools:
        """(K,) whether no higher score of the fit has a lower probability."""
        share = np.linspace(0, 1, _CHECKED)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self.low[:, None] * (1 - share) + self.high[:, None] * share
            which = np.repeat(np.arange(len(self)), _CHECKED)
            p = self.proba(scores.ravel(), which).reshape(scores.shape)
            return np.asarray((np.diff(p, axis=1) >= -1e-12).all(axis=1))

    def pieces(self) -> Pieces:
        """The curves in pieces, for programs without platt_jax.

        Raises:
            ValueError: curves of this kind consist of no polynomials.
        """
        raise ValueError(
            f"calibrator: curves of the kind {self.label!r} have no formula in SQL or Python; "
            "use export.to_json"
        )

    def columns(self) -> dict[str, NDArray[Any]]:
        """Columns (K,) of a table."""
        return {"status": self.status}

    def only(self, which: Any) -> Self:
        """The curves of some problems, by their numbers or a mask."""
        some: dict[str, Any] = {name: x[which] for name, x in self.arrays().items()}
        return replace(self, **some)

    def joined(self, *others: Self) -> Self:
        """These curves and others of the same kind."""
        parts = [x.arrays() for x in (self, *others)]
        all_of_them: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        return replace(self, **all_of_them)

    @property
    def about(self) -> dict[str, Any]:
        """What a file says of them besides arrays."""
        return {"kind": self.kind}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of a file."""
        return {name: getattr(self, name) for name in array_fields(type(self))}


# --- log-odds that are linear in parameters -------------------------------------------------------


@dataclass(frozen=True)
class Features(ABC):
    """Functions of a score; the log-odds are a sum of these, each times a parameter.

    The first function is 1. Scores are in the problem's own coordinates (u = (f - center) scale) if
    `own_coordinates`, else as they are.
    """

    name: ClassVar[str]
    number: ClassVar[int]  # of functions, the constant one included
    own_coordinates: ClassVar[bool] = True
    # Whether beyond the fitted scores the log-odds go on along the tangent.
    tangent: ClassVar[bool] = False
    # Whether all parameters but the first are >= 0.
    not_negative: ClassVar[bool] = False

    @abstractmethod
    def values(self, u: Any, constants: Sequence[Any] | None = None) -> list[Any]:
        """The functions at scores, without the constant one. For NumPy's arrays and JAX's.

        In a compiled program the functions' own constants are `constants`, so that one program
        serves all.
        """

    @property
    def constants(self) -> tuple[float, ...]:
        """Numbers that the functions depend on."""
        return ()

    def without_constants(self) -> Self:
        """The functions for a compiled program, which takes the constants as arrays."""
        return self

    def slopes(self, u: Any) -> list[Any]:
        """Their derivatives."""
        raise NotImplementedError

    def polynomials(self) -> "Polynomials":
        """The functions in pieces; by default the powers of u."""
        return Polynomials(np.array([-np.inf]), np.eye(self.number, 4)[None], np.zeros(self.number))


class Polynomials(NamedTuple):
    """P functions of u as polynomials on m intervals.

    Attributes:
        starts: (m,) where the intervals start, ascending, the first at -inf.
        coefficients: (m, P, 4), of the powers of u - start, and of u in the first interval.
        bends: (P,) coefficients of log(2 cosh(u / 2)), which is added.
    """

    starts: Floats
    coefficients: Floats
    bends: Floats


@dataclass(frozen=True)
class LinearFeatures(Features):
    """1, f: a sigmoid."""

    name: ClassVar[str] = "sigmoid"
    number: ClassVar[int] = 2
    own_coordinates: ClassVar[bool] = False

    def values(self, u: Any, constants: Sequence[Any] | None = None) -> list[Any]:
        """See `Features`."""
        return [u]


@dataclass(frozen=True)
class QuadraticFeatures(Features):
    """1, u, u^2."""

    name: ClassVar[str] = "quadratic"
    number: ClassVar[int] = 3
    tangent: ClassVar[bool] = True

    def values(self, u: Any, constants: Sequence[Any] | None = None) -> list[Any]:
        """See `Features`."""
        return [u, u * u]

    def slopes(self, u: Any) -> list[Any]:
        """See `Features`."""
        return [np.ones_like(u), 2 * u]


@dataclass(frozen=True)
class BetaFeatures(Features):
    """1, log(2 q) and -log(2 (1 - q)) with q = 1 / (1 + exp(-f)); their parameters a, b are >= 0.

    Beta calibration (Kull, Silva Filho & Flach 2017, section 4). The factors 2 move only the
    constant: without them both functions are constants for small scores.
    """

    name: ClassVar[str] = "beta"
    number: ClassVar[int] = 3
    own_coordinates: ClassVar[bool] = False
    not_negative: ClassVar[bool] = True

    def values(self, u: Any, constants: Sequence[Any] | None = None) -> list[Any]:
        """See `Features`."""
        xp = jnp if isinstance(u, jax.Array) else np
        half = xp.abs(u) / 2
        small = xp.sinh(xp.minimum(half, 1) / 2)
        log_cosh, near = xp.log1p(2 * small * small), half < 1
        # log cosh(u / 2) - |u| / 2, so that far out the function that is constant there is so to
        # the last bit.
        rest = xp.log1p(xp.exp(-2 * half)) - math.log(2)
        return [
            xp.where(near, u / 2 - log_cosh, xp.minimum(u, 0) - rest),
            xp.where(near, u / 2 + log_cosh, xp.maximum(u, 0) + rest),
        ]

    def polynomials(self) -> Polynomials:
        """See `Features`."""
        two = math.log(2)
        made = np.array([[1, 0, 0, 0], [two, 0.5, 0, 0], [-two, 0.5, 0, 0]])
        return Polynomials(np.array([-np.inf]), made[None], np.array([0.0, -1.0, 1.0]))


@dataclass(frozen=True)
class SplineFeatures(Features):
    """The natural cubic spline with these knots, in u of all rows (Harrell 2015, equation 2.24).

    Beyond the outer knots it is linear.
    """

    name: ClassVar[str] = "spline"
    knots: tuple[float, ...]  # ascending, in the coordinates u

    @property
    def number(self) -> int:  # type: ignore[override]
        """See `Features`."""
        return len(self.knots)

    def values(self, u: Any, constants: Sequence[Any] | None = None) -> list[Any]:
        """See `Features`."""
        xp = jnp if isinstance(u, jax.Array) else np
        first, *_ = *inner, before, last = self.knots if constants is None else constants

        def cube(x: Any) -> Any:
            positive = xp.maximum(x, 0)
            return positive * positive * positive

        made = [u]
        for knot in inner:
            # Beyond the last knot it is a line, without differences of huge cubes.
            at = xp.minimum(u, last)
            curved = cube(at - knot) - cube(at - before) * (last - knot) / (last - before)
            slope = 3 * ((last - knot) ** 2 - (last - before) * (last - knot))
            made.append((curved + slope * xp.maximum(u - last, 0)) / (last - first) ** 2)
        return made

    def polynomials(self) -> Polynomials:
        """See `Features`."""
        knots = np.array(self.knots)
        first, *_, before, last = knots
        inner = knots[:-2]
        # Of the cubes of u - knot, from each knot on.
        weights = np.eye(len(inner), len(knots))
        weights[:, -2] = (inner - last) / (last - before)
        distance = np.tril(knots[:, None] - knots)
        cubes = np.stack([distance**3, 3 * distance**2, 3 * distance, np.tri(len(knots))], -1)
        cubes[-1, :, 2:] = 0  # from the last knot on a line
        made = np.zeros((1 + len(knots), self.number, 4))
        made[:, 0, 0] = made[:, 1, 1] = 1
        made[1:, 1, 0] = knots
        made[1:, 2:] = np.einsum("fk,mkd->mfd", weights, cubes) / (last - first) ** 2
        return Polynomials(np.append(-np.inf, knots), made, np.zeros(self.number))

    @property
    def constants(self) -> tuple[float, ...]:
        """See `Features`."""
        return self.knots

    def without_constants(self) -> Self:
        """See `Features`."""
        return type(self)((0.0,) * len(self.knots))


FEATURES: dict[str, type[Features]] = {
    x.name: x for x in (LinearFeatures, QuadraticFeatures, BetaFeatures, SplineFeatures)
}


@dataclass(frozen=True, eq=False, kw_only=True)
class LogOddsCurves(FittedCurves):
    """Curves whose log-odds are linear in P parameters.

    Attributes:
        features: the functions of the score.
        center, scale: (K,) the coordinates u = (f - center) scale of the scores.
        coefficients: (K, P) the parameters.
        covariance: (K, P, P) the inverse of the Hessian of the objective; infinite variances where
            the rows say nothing of a parameter, which is then 0.
        flags, iterations: (K,) int, as in `Fit`.
        nll: (K,) the objective, as in `Fit`.
    """

    kind: ClassVar[str] = "log-odds"
    has_errors: ClassVar[bool] = True

    features: Features
    center: NDArray[Any]
    scale: NDArray[Any]
    coefficients: NDArray[Any]
    covariance: NDArray[Any]
    flags: NDArray[Any]
    iterations: NDArray[Any]
    nll: NDArray[Any]

    @property
    def label(self) -> str:
        """See `FittedCurves`."""
        return self.features.name

    def log_odds(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`."""
        inside, beyond = self._coordinates(scores, which)
        coefficients = self.coefficients[which].T
        made = coefficients[0] + sum(
            map(np.multiply, coefficients[1:], self.features.values(inside))
        )
        if self.features.tangent:
            slope = sum(map(np.multiply, coefficients[1:], self.features.slopes(inside)))
            made = made + slope * beyond
        return np.asarray(made)

    def variance(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`."""
        x = np.stack(self.functions(scores, which), -1)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.einsum("np,npq,nq->n", x, self.covariance[which], x))

    def functions(self, scores: NDArray[Any], which: Integers) -> list[NDArray[Any]]:
        """The functions (N,) whose sum, each times its parameter, are the log-odds of scores."""
        inside, beyond = self._coordinates(scores, which)
        functions = [np.ones_like(inside), *self.features.values(inside)]
        if self.features.tangent:
            slopes = [np.zeros_like(inside), *self.features.slopes(inside)]
            functions = [x + d * beyond for x, d in zip(functions, slopes, strict=True)]
        return functions

    def _coordinates(
        self, scores: NDArray[Any], which: Integers
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The coordinates of the scores within the fitted ones, and how far they are beyond."""
        if not self.features.own_coordinates:
            return scores, np.zeros_like(scores)
        center, scale = self.center[which], self.scale[which]
        with np.errstate(over="ignore", invalid="ignore"):
            u = (scores - center) * scale
            if not self.features.tangent:
                return u, np.zeros_like(u)
            ends = ((x[which] - center) * scale for x in (self.low, self.high))
            inside = np.clip(u, *ends)
            return inside, u - inside

    def pieces(self) -> Pieces:
        """See `FittedCurves`. Lines have the scale 1, so that they go on to the largest scores."""
        starts, functions, bends = self.features.polynomials()
        coefficients = self.coefficients.astype(float)
        made = np.moveaxis(np.einsum("kp,mpd->kmd", coefficients, functions), -1, 0)
        at, each = np.where(np.isinf(starts), 0, starts), np.arange(len(self))[:, None]
        own = self.features.own_coordinates
        center, scale = (x.astype(float)[:, None] for x in (self.center, self.scale))
        center, scale = (center, scale) if own else (np.zeros_like(center), np.ones_like(scale))
        origin = center + at / scale
        start = np.where(np.isinf(starts), -np.inf, origin)
        if self.features.tangent:
            made, start, origin = self._with_tangents(made, start, origin, scale)
        line = (made[2] == 0) & (made[3] == 0)
        return pieces(
            each,
            start,
            made[0],
            c1=np.where(line, made[1] * scale, made[1]),
            c2=made[2],
            c3=made[3],
            origin=origin,
            scale=np.where(line, 1, scale),
            bend=(coefficients @ bends)[:, None],
            is_log_odds=True,
        )

    def _with_tangents(
        self, made: Floats, start: Floats, origin: Floats, scale: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """The coefficients (4, K, m) of one piece, and of the lines beyond its scores."""
        which = np.arange(len(self))
        coefficients = [made]
        for ends in (self.low, self.high):
            inside, _ = self._coordinates(ends, which)
            slope = sum(map(np.multiply, self.coefficients.T[1:], self.features.slopes(inside)))
            zero = np.zeros(len(self))
            line = np.stack([self.log_odds(ends, which), slope, zero, zero])
            coefficients.append(line[:, :, None].astype(float))
        middle, below, beyond = coefficients
        low, high = (x.astype(float)[:, None] for x in (self.low, self.high))
        return (
            np.concatenate([below, middle, beyond], 2),
            np.concatenate([start, low, high], 1),
            np.concatenate([low, origin, high], 1),
        )

    def columns(self) -> dict[str, NDArray[Any]]:
        """See `FittedCurves`."""
        errors = np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))
        named = {f"coefficient_{j}": x for j, x in enumerate(self.coefficients.T)}
        named |= {f"se_coefficient_{j}": x for j, x in enumerate(errors.T)}
        return named | super().columns()

    @property
    def about(self) -> dict[str, Any]:
        """See `FittedCurves`."""
        options = {x.name: getattr(self.features, x.name) for x in fields(self.features)}
        return {"kind": self.kind, "features": self.features.name, "options": options}


@dataclass(frozen=True, eq=False, repr=False)
class CurveBatch(ComparedByValue):
    """The curves of a batch of problems, from `platt_jax.fit` with another curve than the sigmoid.

    Attributes:
        batch: the batch shape (...).
        curves: the curves of the problems, in the order of a flat batch.
    """

    batch: tuple[int, ...]
    curves: FittedCurves

    @property
    def status(self) -> NDArray[Any]:
        """(...) int, how each fit ended: a `Status`."""
        return np.asarray(self.curves.status).reshape(self.batch)

    @property
    def converged(self) -> NDArray[np.bool_]:
        """(...) bool, whether each fit converged."""
        return np.asarray(self.status == Status.CONVERGED)

    def predict_proba(self, scores: Column) -> NDArray[Any]:
        """P(y=1 | score): (..., N) for scores (..., N), or for one (N,) for all problems.

        Raises:
            ValueError: scores are not numbers, or their shape does not match the problems.

        Example:
            >>> from platt_jax import fit
            >>> fitted = fit([[1.0, 2.0, 3.0, 4.0]], [[0, 1, 0, 1]], curve="isotonic")
            >>> fitted.predict_proba([0.0, 1.5, 2.5, 3.5])
            array([[0.  , 0.25, 0.5 , 0.75]])
        """
        f = validation.floating(scores, "scores")
        if not f.ndim or f.shape[:-1] not in ((), self.batch):
            raise ValueError(
                f"scores: expected (..., N) for problems of shape {self.batch}, got {f.shape}"
            )
        rows = np.broadcast_to(f, (*self.batch, f.shape[-1]))
        which = np.repeat(np.arange(len(self.curves)), f.shape[-1])
        return self.curves.proba(rows.ravel(), which).reshape(rows.shape)

    def __repr__(self) -> str:
        counts = tables.status_counts(self.status)
        statuses = ", ".join(f"{n:,} {name}" for name, n in counts.items())
        return f"{type(self).__name__}: {len(self.curves):,} {self.curves.label}: {statuses}"


def array_fields(kind: type[FittedCurves]) -> list[str]:
    """The names of the arrays of a kind of curves."""
    return [x.name for x in fields(kind) if x.name not in ("features", "parts")]
