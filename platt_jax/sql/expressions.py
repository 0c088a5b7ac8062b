"""Expressions in DuckDB's dialect: numbers, names of columns, probabilities, and parameters."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlglot import exp

from platt_jax.model.objective import Array
from platt_jax.results.averages import PAIRS, STEP, nodes

LARGEST = "1.7976931348623157e308"
# Largest exponent: exp(x) is infinite beyond 709, and 0 below -746, an error in some engines.
FAR = "700"
# A standard deviation of log-odds, far above `FAR`, of which the square is finite.
_FARTHEST = 1e140


def literal(x: float | Array) -> str:
    """An exact literal of a finite number; the exponent keeps engines from reading a DECIMAL."""
    return f"{float(x):.17e}"


def quoted(name: str) -> str:
    """A column's name as a quoted identifier."""
    return exp.to_identifier(name, quoted=True).sql("duckdb")


def probability(z: str) -> str:
    """1 / (1 + EXP(z)) for a numeric expression, including NaN and infinities.

    No branch has an exponential that overflows or underflows, which is an error in some engines.
    """
    # Engines order NaN above all numbers; 1 / z distinguishes infinity from it.
    return f"""CASE
        WHEN {z} BETWEEN 0 AND {FAR} THEN EXP(-({z})) / (1 + EXP(-({z})))
        WHEN {z} BETWEEN -{FAR} AND 0 THEN 1 / (1 + EXP({z}))
        WHEN {z} < -{FAR} THEN 1.0
        WHEN {z} <= {LARGEST} OR 1 / ({z}) = 0 THEN 0.0
        ELSE {z} END"""


def is_number(x: str) -> str:
    """Whether not NaN; NULL for NULL.

    By arithmetic: DuckDB 2.0 decides comparisons with constants by the minimum and the maximum that
    a Parquet file states of a column, which leave NaN out. 1 / x is 0 for infinities; of x = 0
    the first condition holds.
    """
    return f"({x} * 0 = 0 OR 1 / {x} = 0)"


def is_far(score: str, AA: str) -> str:
    """Whether the variance of the log-odds might overflow, which ends a query in PostgreSQL."""
    return f"ABS({score}) * SQRT({AA}) > {literal(_FARTHEST)}"


def deviation_of_logit(score: str, AA: str, AB: str, BB: str) -> str:
    """The standard deviation of A score + B of a score that is not far, given the covariance."""
    variance = f"({score} * ({AA} * {score} + 2 * {AB}) + {BB})"
    return f"SQRT(CASE WHEN {variance} > 0 THEN {variance} ELSE 0 END)"


def bounded_deviation(score: str, AA: str, AB: str, BB: str) -> str:
    """The standard deviation of A score + B, given the covariance; of far scores a large one."""
    near = deviation_of_logit(score, AA, AB, BB)
    return f"CASE WHEN {is_far(score, AA)} THEN {literal(_FARTHEST)} ELSE {near} END"


def mean_probability(
    z: str, s: str, rule: tuple[float, int] = (STEP, PAIRS), far: str | None = None
) -> str:
    """The mean of 1 / (1 + EXP(z)) over a normal z, an expression of its mean.

    `s` is its standard deviation; the rule is the step and number of pairs of the nodes, as in
    `results/averages.py`. Where `far` holds, `s` is not computed.
    """
    points = nodes(*rule)
    terms = " + ".join(
        f"{literal(weight)} / (1 + EXP({z} + ({literal(node)}) * {s}))" for node, weight in points
    )
    # Otherwise the exponential of a term could overflow.
    far_case = "" if far is None else f"WHEN {far} THEN {probability(z)}"
    return f"""CASE {far_case}
        WHEN ABS({z}) + {literal(points[-1][0])} * {s} <= {FAR} THEN {terms}
        ELSE {probability(z)} END"""


class Joined(NamedTuple):
    """Expressions about one joined table, for one parameter."""

    known: str  # NULL where no row of the table was joined
    value: str  # the parameter of the row that was joined
    # the parameter if none was joined; None if that depends on other tables
    unseen: str | None = None


def parameter(segment: Joined, root: str, levels: Sequence[Joined]) -> str:
    """A parameter of a row: from its segment, or from what is known of its values.

    The root is the parameter of a segment that was not fitted, without any level.
    """
    expression = root
    for level in levels:
        if level.unseen is None:
            expression = _either(level, expression)
        else:
            expression = f"{expression} + {_either(level, level.unseen)}"
    return _either(segment, expression)


def _either(joined: Joined, otherwise: str) -> str:
    return f"(CASE WHEN {joined.known} IS NULL THEN {otherwise} ELSE {joined.value} END)"
