"""The functions of a score whose sums are log-odds: of quadratic, beta and spline curves."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax.arrays import Floats
from platt_jax.results.pieces import Pieces, pieces


@dataclass(frozen=True)
class Features(ABC):
    """Functions of a score f; the log-odds are a sum of these, each times a parameter.

    The first function is 1. The others are 0 at the problem's center, or nearly: the first
    parameter is the log-odds there, with all digits where the others are huge.
    """

    name: ClassVar[str]
    number: ClassVar[int]  # of functions, the constant one included
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

    @abstractmethod
    def pieces(
        self, coefficients: Floats, center: Floats, scale: Floats, low: Floats, high: Floats
    ) -> Pieces:
        """The curves with parameters (K, P) in pieces; the other numbers are (K, 1)."""


class Sides(NamedTuple):
    """Log-odds constant + slope (f - center) + bend log(1 + exp(-|f|)) on two sides of 0.

    Attributes:
        constants, slopes: (K, 2) for negative scores, and for others.
        bends: (K, 1) of both.
    """

    constants: Floats
    slopes: Floats
    bends: Floats


class ScoreFeatures(Features):
    """Functions of the scores as they are, minus their values at the problem's center.

    The constants of `values` are the center and a factor of all functions, 0 and 1 without any.
    """

    @abstractmethod
    def sides(self, coefficients: Floats, center: Floats) -> Sides:
        """The log-odds of K curves with parameters (K, P) and centers (K, 1)."""

    def pieces(self, coefficients: Floats, center: Floats, *_: Floats) -> Pieces:
        """See `Features`. Lines are one piece, which begins at -inf."""
        sides, start = self.sides(coefficients, center), np.array([-np.inf, 0])
        return pieces(
            np.arange(len(center))[:, None],
            np.where((sides.bends == 0) & (start == 0), np.nan, start),
            sides.constants,
            c1=sides.slopes,
            origin=center,
            scale=1,
            bend=sides.bends,
            is_log_odds=True,
        )


_AS_THEY_ARE = 0.0, 1.0


@dataclass(frozen=True)
class LinearFeatures(ScoreFeatures):
    """1, f: a sigmoid."""

    name: ClassVar[str] = "sigmoid"
    number: ClassVar[int] = 2

    def values(self, u: Any, constants: Sequence[Any] | None = None) -> list[Any]:
        """See `Features`."""
        center, factor = constants or _AS_THEY_ARE
        return [(u - center) * factor]

    def sides(self, coefficients: Floats, center: Floats) -> Sides:
        """See `ScoreFeatures`."""
        constant, slope = (np.column_stack([x, x]) for x in coefficients.T)
        return Sides(constant, slope, np.zeros_like(center))


@dataclass(frozen=True)
class BetaFeatures(ScoreFeatures):
    """1, log q and -log(1 - q) with q = 1 / (1 + exp(-f)); their parameters a, b are >= 0.

    Beta calibration (Kull, Silva Filho & Flach 2017, section 4).
    """

    name: ClassVar[str] = "beta"
    number: ClassVar[int] = 3
    not_negative: ClassVar[bool] = True

    def values(self, u: Any, constants: Sequence[Any] | None = None) -> list[Any]:
        """See `Features`."""
        xp, (center, factor) = jnp if isinstance(u, jax.Array) else np, constants or _AS_THEY_ARE
        # Both functions are (u -+ 2 log cosh(u / 2)) / 2 - log 2, and +-min(+-u, 0) -+ tail. The
        # first form keeps the digits of small scores, and the second the digits of large ones,
        # where one of both functions is nearly constant.
        near, log_cosh, tail = _parts(u, xp)
        near_center, log_cosh_center, tail_center = _parts(center, xp)
        near, rise = near & near_center, (u - center) / 2
        bend, tail = log_cosh - log_cosh_center, tail - tail_center
        below, above = (x(u, 0) - x(center, 0) for x in (xp.minimum, xp.maximum))
        return [
            xp.where(near, rise - bend, below - tail) * factor,
            xp.where(near, rise + bend, above + tail) * factor,
        ]

    def sides(self, coefficients: Floats, center: Floats) -> Sides:
        """See `ScoreFeatures`."""
        level, a, b = coefficients.T[:, :, None]
        level = level - (b - a) * _parts(center, np)[2]
        below, above = np.minimum(center, 0), np.maximum(center, 0)
        constants = np.hstack([level + (a - b) * above, level + (b - a) * below])
        return Sides(constants, coefficients[:, 1:], b - a)


def _parts(u: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Whether |u| < 2, log cosh(u / 2) where it is, and log(1 + exp(-|u|))."""
    half = xp.abs(u) / 2
    small = xp.sinh(xp.minimum(half, 1) / 2)
    return half < 1, xp.log1p(2 * small * small), xp.log1p(xp.exp(-2 * half))


class Polynomials(NamedTuple):
    """P functions of u as polynomials on m intervals."""

    # (m,) the starts of the intervals, ascending; the first one may start elsewhere
    origins: Floats
    coefficients: Floats  # (m, P, 4), of the powers of u - origin


class StandardizedFeatures(Features):
    """Functions of scores in the problem's own coordinates, u = (f - center) scale.

    Beyond the ends the log-odds go on along the tangent.
    """

    @abstractmethod
    def slopes(self, u: Any) -> list[Any]:
        """The derivatives of the functions within the ends."""

    @abstractmethod
    def ends(self, low: Floats, high: Floats) -> tuple[Any, Any]:
        """The ends, given the smallest and the largest score of the fits."""

    @abstractmethod
    def polynomials(self) -> Polynomials:
        """The functions within the ends."""

    def pieces(
        self, coefficients: Floats, center: Floats, scale: Floats, low: Floats, high: Floats
    ) -> Pieces:
        """See `Features`. Lines have the scale 1, so that they go on to the largest scores."""
        origins, functions = self.polynomials()
        inner = np.moveaxis(np.einsum("kp,mpd->kmd", coefficients, functions), -1, 0)
        constant, *factors = coefficients.T[:, :, None]
        ends, lines = [], []
        for end in self.ends((low - center) * scale, (high - center) * scale):
            u = np.broadcast_to(end, center.shape)
            value, slope = (
                sum(map(np.multiply, factors, x)) for x in (self.values(u), self.slopes(u))
            )
            lines.append(np.stack([constant + value, slope, 0 * u, 0 * u]))
            ends.append(center + u / scale)
        cubics = np.concatenate([lines[0], inner, lines[1]], 2)
        score_origins, line = center + origins / scale, (cubics[2] == 0) & (cubics[3] == 0)
        return pieces(
            np.arange(len(center))[:, None],
            np.hstack([np.full_like(center, -np.inf), ends[0], score_origins[:, 1:], ends[1]]),
            cubics[0],
            c1=np.where(line, cubics[1] * scale, cubics[1]),
            c2=cubics[2],
            c3=cubics[3],
            origin=np.hstack([ends[0], score_origins, ends[1]]),
            scale=np.where(line, 1, scale),
            is_log_odds=True,
        )


@dataclass(frozen=True)
class QuadraticFeatures(StandardizedFeatures):
    """1, u, u^2, up to the outer scores."""

    name: ClassVar[str] = "quadratic"
    number: ClassVar[int] = 3

    def values(self, u: Any, constants: Sequence[Any] | None = None) -> list[Any]:
        """See `Features`."""
        return [u, u * u]

    def slopes(self, u: Any) -> list[Any]:
        """See `StandardizedFeatures`."""
        return [np.ones_like(u), 2 * u]

    def ends(self, low: Floats, high: Floats) -> tuple[Any, Any]:
        """See `StandardizedFeatures`."""
        return low, high

    def polynomials(self) -> Polynomials:
        """See `StandardizedFeatures`."""
        return Polynomials(np.zeros(1), np.eye(3, 4)[None])


@dataclass(frozen=True)
class SplineFeatures(StandardizedFeatures):
    """The natural cubic spline with these knots, in u (Harrell 2015, equation 2.24).

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
        # The log-odds of a far score do not depend on how far it is, and its square is finite.
        reach = float(xp.finfo(u.dtype).max) ** 0.25
        u = xp.clip(u, -reach, reach)

        def cube(x: Any) -> Any:
            positive = xp.maximum(x, 0)
            return positive * positive * positive

        functions = [u]
        for knot in inner:
            # Beyond the last knot it is a line, without differences of huge cubes.
            bounded = xp.minimum(u, last)
            curved = cube(bounded - knot) - cube(bounded - before) * (last - knot) / (last - before)
            slope = 3 * ((last - knot) ** 2 - (last - before) * (last - knot))
            functions.append((curved + slope * xp.maximum(u - last, 0)) / (last - first) ** 2)
        return functions

    def slopes(self, u: Any) -> list[Any]:
        """See `StandardizedFeatures`."""
        first, *_ = *inner, before, last = self.knots
        slopes = [np.ones_like(u)]
        for knot in inner:
            curved = np.maximum(u - knot, 0) ** 2
            curved -= np.maximum(u - before, 0) ** 2 * ((last - knot) / (last - before))
            slopes.append(3 * curved / (last - first) ** 2)
        return slopes

    def ends(self, low: Floats, high: Floats) -> tuple[Any, Any]:
        """See `StandardizedFeatures`."""
        return self.knots[0], self.knots[-1]

    def polynomials(self) -> Polynomials:
        """See `StandardizedFeatures`."""
        knots = np.array(self.knots)
        first, *_, before, last = knots
        origins, inner = knots[:-1], knots[:-2]
        # Of the cubes of u - knot, from each knot on.
        weights = np.eye(len(inner), len(origins))
        weights[:, -1] = (inner - last) / (last - before)
        distance = np.tril(origins[:, None] - origins)
        cubes = np.stack([distance**3, 3 * distance**2, 3 * distance, np.tri(len(origins))], -1)
        functions = np.zeros((len(origins), self.number, 4))
        functions[:, 0, 0] = functions[:, 1, 1] = 1
        functions[:, 1, 0] = origins
        functions[:, 2:] = np.einsum("fk,mkd->mfd", weights, cubes) / (last - first) ** 2
        return Polynomials(origins, functions)

    @property
    def roughness(self) -> Floats:
        """(P - 2, P - 2): integrals of products of the curved functions' second derivatives."""
        _, functions = self.polynomials()
        gaps = np.diff(self.knots)
        # The second derivative is 2 c2 + 6 c3 x, for which Simpson's rule is exact.
        below = 2 * functions[:, 2:, 2].T
        middle, above = (below + 6 * functions[:, 2:, 3].T * gaps * part for part in (0.5, 1))
        products = below[:, None] * below + 4 * middle[:, None] * middle + above[:, None] * above
        integrals: Floats = products @ gaps / 6
        return integrals

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
