"""The texts of the queries, in DuckDB's dialect: what `model` says of a row, in SQL."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlglot import exp

from platt_jax.model.objective import Derivatives
from platt_jax.sql.engines import POINTS, ROWS

LARGEST = "1.7976931348623157e308"
# exp(-x) is 0 beyond 746; some engines call that an error.
_FAR = "700"
# What a search knows of each segment, in the columns of `POINTS`.
STANDARDIZATION = ("center", "scale")
TARGETS = ("t_pos", "t_neg", "c_pos", "c_neg")
# The fields of `Moments`, each with _pos or _neg.
MOMENTS = {
    "total": "w",
    "first": "w * ((f - center) * scale)",
    "second": "w * ((f - center) * scale) * ((f - center) * scale)",
    "rows": "1",
}


class Names(NamedTuple):
    """The columns of a relation."""

    score: str
    label: str
    segment: Sequence[str]
    weight: str | None = None

    @property
    def keys(self) -> list[str]:
        """What queries call the columns of the segment."""
        return [f"k{i}" for i in range(len(self.segment))]


def quoted(name: str) -> str:
    """A column's name, whatever is in it."""
    return exp.to_identifier(name, quoted=True).sql("duckdb")


def ranges(names: Names) -> str:
    """Of every segment: its rows counted, the ranges of the scores by class, what is wrong."""
    ends = ", ".join(
        f"{end}(CASE WHEN kind = 1 AND y {of_class} THEN f END) AS {name}"
        for end, of_class, name in (
            ("MIN", "= 1", "low_pos"),
            ("MAX", "= 1", "high_pos"),
            ("MIN", "<> 1", "low_neg"),
            ("MAX", "<> 1", "high_neg"),
        )
    )
    keys = ", ".join(names.keys)
    return f"""
        {_with_rows(names)}
        SELECT {keys}, {ends}, COUNT(*) AS n,
            SUM(CASE WHEN kind = 1 THEN 1 ELSE 0 END) AS good,
            SUM(CASE WHEN kind = 2 THEN 1 ELSE 0 END) AS bad,
            MIN(CASE WHEN kind = 1 THEN w END) AS lightest,
            MIN(w) AS least_weight,
            MAX(CASE WHEN y = -1 THEN 1 ELSE 0 END) AS minus,
            MAX(CASE WHEN y = 0 THEN 1 ELSE 0 END) AS zero,
            MAX(CASE WHEN y NOT IN (-1, 0, 1) AND {_finite("y")} THEN y END) AS odd
        FROM checked GROUP BY {keys}
    """


def moments(names: Names) -> str:
    """The sums of `statistics.moment_terms` of both classes."""
    terms = [
        f"SUM(CASE WHEN y {of_class} THEN {term} ELSE 0 END) AS {name}_{suffix}"
        for of_class, suffix in (("= 1", "pos"), ("<> 1", "neg"))
        for name, term in MOMENTS.items()
    ]
    return f"""
        {_with_rows(names)}
        SELECT j, COUNT(*) AS good, {", ".join(terms)}
        FROM checked {_joined(names)} WHERE kind = 1 GROUP BY j
    """


def derivatives(names: Names) -> str:
    """The sums of `objective.analytic_derivatives`."""
    terms = "g * by_z", "by_z", "g * g * by_zz", "g * by_zz", "by_zz"
    sums = ", ".join(
        f"SUM({term}) AS {name}" for name, term in zip(Derivatives._fields, terms, strict=True)
    )
    return f"""
        {_at_points(names, "")},
        tails AS (SELECT *, e / (1 + e) AS tail FROM at_points),
        terms AS (
            SELECT j, g, w * tail * (1 - tail) AS by_zz,
                w * CASE WHEN z < 0 THEN tail - t ELSE t - tail END AS by_z
            FROM tails
        )
        SELECT j, COUNT(*) AS good, {sums} FROM terms GROUP BY j
    """


def loss(names: Names) -> str:
    """The sums of `objective.loss`."""
    return f"""
        {_at_points(names, "")}
        SELECT j, COUNT(*) AS good, SUM(w * (t * d + LN(1 + e))) AS loss
        FROM at_points GROUP BY j
    """


def loss_change(names: Names) -> str:
    """The sums of the loss at (A, B) less that at (A_before, B_before), row by row."""
    change = "t * d - t_before * d_before + LN(1 + e) - LN(1 + e_before)"
    return f"""
        {_at_points(names, "", "_before")}
        SELECT j, COUNT(*) AS good, SUM(w * ({change})) AS loss_change
        FROM at_points GROUP BY j
    """


def _with_rows(names: Names) -> str:
    """The rows with columns of known names and types; kind 0 is without weight, 2 not finite."""
    columns = [
        f"{quoted(column)} AS {key}" for column, key in zip(names.segment, names.keys, strict=True)
    ]
    weight = "1.0" if names.weight is None else quoted(names.weight)
    for value, short in ((quoted(names.score), "f"), (quoted(names.label), "y"), (weight, "w")):
        columns.append(f"CAST({value} AS DOUBLE) AS {short}")
    finite = " AND ".join(map(_finite, "fyw"))
    return f"""
        WITH plain AS (SELECT {", ".join(columns)} FROM {ROWS}),
        checked AS (
            SELECT *, CASE WHEN w = 0 THEN 0 WHEN {finite} THEN 1 ELSE 2 END AS kind FROM plain
        )
    """


def _at_points(names, *which):
    """What each row's loss is made of at points of its segment (`objective._less_likely`)."""
    z = ", ".join(f"A{x} * ((f - center) * scale) + B{x} AS z{x}" for x in which)
    parts = ", ".join(
        f"""ABS(z{x}) AS d{x},
                CASE WHEN z{x} < 0 THEN CASE WHEN y = 1 THEN c_pos ELSE c_neg END
                    ELSE CASE WHEN y = 1 THEN t_pos ELSE t_neg END END AS t{x},
                CASE WHEN ABS(z{x}) > {_FAR} THEN 0 ELSE EXP(-ABS(z{x})) END AS e{x}"""
        for x in which
    )
    return f"""
        {_with_rows(names)},
        logits AS (
            SELECT *, (f - center) * scale AS g, {z} FROM checked {_joined(names)} WHERE kind = 1
        ),
        at_points AS (SELECT *, {parts} FROM logits)
    """


def _joined(names):
    """The join with the points; without columns of segments all rows are of the only one."""
    on = " AND ".join(f"checked.{key} = {POINTS}.p_{key}" for key in names.keys) or "1 = 1"
    return f"JOIN {POINTS} ON {on}"


def _finite(column):
    return f"{column} BETWEEN -{LARGEST} AND {LARGEST}"
