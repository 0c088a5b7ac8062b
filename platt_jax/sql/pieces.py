"""Curves in pieces as SQL: an expression, or a table of the pieces to join."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.results.pieces import Pieces, numbers_used, polynomial
from platt_jax.results.probabilities import LEAST
from platt_jax.sql import expressions

# Scores beyond are taken as this one; infinite ones would make a constant NaN.
_FARTHEST = "1e300"


def cases(pieces: Pieces, curve: int, score: str) -> str:
    """The probability by one curve, as a CASE over its pieces; NULL where the score is NaN."""
    selected = pieces.only(pieces.curve == curve)
    valid = finite(score)
    whens = []
    for index in range(len(selected)):
        piece = selected.only(np.array([index]))
        numbers = {name: number(getattr(piece, name)[0]) for name in numbers_used(piece)}
        last = index == len(selected) - 1
        argument = valid if last or not index else score
        odds = None if piece.odds[0] == 1 else number(piece.odds[0])
        p = probability(_value(numbers, argument), str(int(piece.is_log_odds[0])), odds)
        test = f"{valid} IS NOT NULL" if last else f"{score} < {number(selected.start[index + 1])}"
        whens.append(f" WHEN {test} THEN {p}")
    return f"CASE{''.join(whens)} END"


def columns(pieces: Pieces) -> dict[str, NDArray[Any]]:
    """The columns of a table of all pieces, by their names."""
    largest = np.finfo(float).max
    last = np.append(np.diff(pieces.curve) != 0, True)[: len(pieces)]
    ends = np.where(last, np.inf, np.roll(pieces.start, -1))
    arrays: dict[str, Any] = {
        "piece": pieces.curve,
        "start": np.clip(pieces.start, -largest, largest),
        "end": np.clip(ends, -largest, largest),
    }
    arrays |= {name: getattr(pieces, name) for name in _columns(pieces)}
    return {f"platt_{name}": np.asarray(x, float) for name, x in arrays.items()}


def join(table: str, curve: str, score: str, prefix: str = "platt_") -> str:
    """The clause that joins each row with its piece, given the expression of its curve.

    The names of the columns of the table have a prefix.
    """
    valid = finite(score)
    on = f"{prefix}piece = {curve} AND {valid} >= {prefix}start AND {valid} < {prefix}end"
    return f"LEFT JOIN {table} ON {on}"


def joined(pieces: Pieces, score: str, prefix: str = "platt_") -> tuple[str, str, str | None]:
    """The value of the joined piece, whether that is the log-odds, and the factor of its odds."""
    names = _columns(pieces)
    numbers = {name: f"{prefix}{name}" for name in numbers_used(pieces)}
    link = str(int(pieces.is_log_odds.all()))
    return (
        _value(numbers, finite(score)),
        f"{prefix}is_log_odds" if "is_log_odds" in names else link,
        f"{prefix}odds" if "odds" in names else None,
    )


def number(x: float) -> str:
    """A literal; NULL for NaN. In brackets if it is negative, for two minus signs are a comment."""
    if x != x:
        return "NULL"
    text = expressions.literal(x)
    return f"({text})" if text.startswith("-") else text


def _columns(pieces: Pieces) -> list[str]:
    """The names of the numbers that a table of the pieces needs."""
    names = numbers_used(pieces)
    if len(np.unique(pieces.is_log_odds)) > 1:
        names.append("is_log_odds")
    return [*names, "odds"] if (pieces.odds != 1).any() else names


def _value(numbers: Mapping[str, str], score: str) -> str:
    value = polynomial(numbers, score)
    if "bend" in numbers:
        # Where e is small, 1 + e lacks its digits, and log(1 + e) is e - e^2 / 2. EXP of a large
        # negative number is an error in some engines.
        e = f"EXP(-ABS({score}))"
        near, far = f"WHEN ABS({score}) < 12 THEN LN(1 + {e})", f"{e} * (1 - {e} / 2)"
        tail = f"CASE {near} WHEN ABS({score}) < 700 THEN {far} ELSE 0 END"
        value = f"({value} + {numbers['bend']} * {tail})"
    return value


def probability(
    value: str, is_log_odds: str, odds: str | None = None, offset: str | None = None
) -> str:
    """The probability by the value of a piece; the offset is added to the log-odds."""
    added = "" if offset is None else f" - {offset}"
    of_log_odds = expressions.probability(f"(-{value}{added})")
    if is_log_odds == "1":
        return of_log_odds
    p = value
    if odds is not None or offset is not None:
        low, high = number(LEAST), number(1 - LEAST)
        p = f"(CASE WHEN {p} < {low} THEN {low} WHEN {p} > {high} THEN {high} ELSE {p} END)"
    if offset is not None:
        z = f"(-LN({p} / (1 - {p})){'' if odds is None else f' - LN({odds})'}{added})"
        p = expressions.probability(z)
    elif odds is not None:
        p = f"({p} * {odds} / ({p} * {odds} + (1 - {p})))"
    if is_log_odds == "0":
        return p
    return f"CASE WHEN {is_log_odds} = 1 THEN {of_log_odds} ELSE {p} END"


def finite(score: str) -> str:
    """The score, or the farthest one beyond; NULL for NaN, which engines order last."""
    return (
        f"(CASE WHEN ABS({score}) <= {_FARTHEST} THEN {score} WHEN {score} < 0 THEN -{_FARTHEST} "
        f"WHEN {score} <= {expressions.LARGEST} OR 1 / {score} = 0 THEN {_FARTHEST} END)"
    )
