"""Curves in pieces, as programs without platt_jax compute them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats, Integers

# Smallest width of a sloping piece: 1 / width is finite.
_LEAST_WIDTH = float(np.finfo(float).tiny)


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """K curves in M pieces, of which each holds from its start up to the start of the next one.

    With x = (score - origin) scale, the value of a piece is
    c0 + c1 x + c2 x^2 + c3 x^3 + bend log(1 + exp(-|score|)). The value is P(y=1), or its log-odds.

    Attributes:
        curve: (M,) int, the number of the curve, ascending.
        start: (M,) the score from which on the piece holds, -inf for the first of each curve.
        origin, scale: (M,) the coordinates of the polynomial, 0 where the value is constant.
        c0, c1, c2, c3: (M,) the coefficients; c0 is NaN where there is no curve.
        bend: (M,) the coefficient of log(1 + exp(-|score|)).
        is_log_odds: (M,) bool, whether the value is the log-odds.
        odds: (M,) a factor of the odds p / (1 - p) of a value p, clipped as by `logit`.
    """

    curve: Integers
    start: Floats
    origin: Floats
    scale: Floats
    c0: Floats
    c1: Floats
    c2: Floats
    c3: Floats
    bend: Floats
    is_log_odds: Bools
    odds: Floats

    def __len__(self) -> int:
        return len(self.curve)

    def only(self, which: Any) -> "Pieces":
        """Some pieces, by their numbers or a mask."""
        return replace(self, **{x.name: getattr(self, x.name)[which] for x in fields(self)})

    def lowered(self, change: Floats) -> "Pieces":
        """The pieces with changes (K,) taken from the log-odds of the curves."""
        by_piece = change[self.curve]
        return replace(
            self,
            c0=self.c0 - np.where(self.is_log_odds, by_piece, 0),
            odds=np.where(self.is_log_odds, 1, self.odds * np.exp(-by_piece)),
        )


def pieces(curve: Any, start: Any, c0: Any, *, is_log_odds: bool = False, **others: Any) -> Pieces:
    """Pieces in the order of curves and scores; numbers that are not given are 0.

    Pieces without a start are left out, and constant ones that go on as the piece before.
    """
    required = {"curve": curve, "start": start, "c0": c0, "is_log_odds": is_log_odds, "odds": 1.0}
    absent = {x.name: 0.0 for x in fields(Pieces)}
    columns = np.broadcast_arrays(*(absent | required | others).values())
    types = {"curve": np.int64, "is_log_odds": bool}
    flat = Pieces(
        **{
            name: np.asarray(x, types.get(name, np.float64)).ravel()
            for name, x in zip(absent, columns, strict=True)
        }
    )
    flat = flat.only(~np.isnan(flat.start))
    constant = (flat.c1 == 0) & (flat.c2 == 0) & (flat.c3 == 0) & (flat.bend == 0)
    flat = replace(
        flat, **{x: np.where(constant, 0, getattr(flat, x)) for x in ("origin", "scale")}
    )
    repeats = constant[1:] & constant[:-1] & (np.diff(flat.curve) == 0) & (np.diff(flat.c0) == 0)
    return flat.only(np.append(True, ~repeats)[: len(flat)])


def joined(parts: list[Pieces]) -> Pieces:
    """The pieces of all parts, each of which has curves of its own."""
    combined = Pieces(
        **{
            x.name: np.concatenate([getattr(part, x.name) for part in parts])
            for x in fields(Pieces)
        }
    )
    return combined.only(np.argsort(combined.curve, kind="stable"))


def lines(curve: Integers, scores: NDArray[Any], values: NDArray[Any]) -> Pieces:
    """Lines through the corners of each curve; it is constant beyond the outer ones.

    Corners (M,) are sorted by the number of their curve, and by score.
    """
    scores, values = scores.astype(float), values.astype(float)
    inner = np.append(np.diff(curve) == 0, False)
    following = np.minimum(np.arange(len(curve)) + 1, len(curve) - 1)
    with np.errstate(invalid="ignore", over="ignore"):
        width = np.where(inner, scores[following] - scores, 0)
        slopes = width > _LEAST_WIDTH
        rise = np.where(slopes, values[following] - values, 0)
        scale = np.divide(1, width, out=np.zeros_like(width), where=slopes)
    first = np.flatnonzero(np.append(True, np.diff(curve) != 0)[: len(curve)])
    # Each curve begins with a piece that is constant.
    return pieces(
        np.insert(curve, first, curve[first]),
        np.insert(scores, first, -np.inf),
        np.insert(values, first, values[first]),
        c1=np.insert(rise, first, 0),
        origin=np.insert(scores, first, 0),
        scale=np.insert(scale, first, 0),
    )


# The numbers of a piece in the order of exports.
_NUMBERS = "c0", "c1", "c2", "c3", "origin", "scale", "bend"


def numbers_used(some: Pieces) -> list[str]:
    """The names of the numbers that are not 0 in all pieces."""
    return ["c0", *(name for name in _NUMBERS[1:] if getattr(some, name).any())]


def polynomial(numbers: Mapping[str, str], score: str) -> str:
    """The polynomial of a piece, in SQL as in Python; names without an expression are 0."""
    inner = ""
    for name in ("c3", "c2", "c1", "c0"):
        terms = [numbers[name]] if name in numbers else []
        if inner:
            x = f"({score} - {numbers['origin']})" if "origin" in numbers else score
            terms.append(
                " * ".join([*([numbers["scale"]] if "scale" in numbers else []), x, inner])
            )
        inner = f"({' + '.join(terms)})" if len(terms) > 1 else "".join(terms)
    return inner
