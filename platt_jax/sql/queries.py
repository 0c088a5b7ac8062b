"""The texts of the queries, in DuckDB's dialect: the formulas of `model` in SQL.

They use the log-odds relative to a row's label, so that one formula serves both classes. With u the
log-odds against its label, and gap the distance of its target from the label,

    loss = log(1 + exp(u)) - gap u,  d loss / du = p - gap,  d2 loss / du2 = p (1 - p)

where p = 1 / (1 + exp(-u)) is the probability of the other label. It is small for a row that is
fitted well, so no digits are lost.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from platt_jax.model.objective import Derivatives
from platt_jax.model.statistics import Moments
from platt_jax.sql.engines import POINTS, ROWS
from platt_jax.sql.expressions import FAR, literal, quoted

# Columns of `POINTS`, the search's numbers for each segment.
STANDARDIZATION = ("center", "scale")
GAPS = ("gap_pos", "gap_neg")  # distances of the targets from the labels 1 and 0
# Columns by which passes are compared.
SAME = ("same_weight", "same_score", "same_offset")
# Suffix of the columns of the problem of all rows.
ALL = "_all"

# Parts of queries whose columns are expensive, and used several times in the next part.
COMPUTED_ONCE = ("summarized", "at_points", "with_e", "terms")

# The search's numbers for the problem of all rows, by name.
PooledNumbers: TypeAlias = Mapping[str, float]

# Range in which products of three numbers, and sums of many products, neither overflow nor vanish.
_SMALL, _LARGE = "1e-100", "1e100"


class RelationColumns(NamedTuple):
    """The columns of a relation, and the label of class 1."""

    score: str
    label: str | None
    segment: Sequence[str]
    weight: str | None = None
    offset: str | None = None
    pos_label: str | None = None  # its literal; None for numeric labels
    booleans: Sequence[str] = ()  # names of the boolean columns

    @property
    def keys(self) -> list[str]:
        """Names of the segment's columns in queries."""
        return [f"k{i}" for i in range(len(self.segment))]

    @property
    def used(self) -> list[str]:
        """The names of all columns, each once."""
        names = (self.score, self.label, *self.segment, self.weight, self.offset)
        return list(dict.fromkeys(name for name in names if name is not None))


def summary(names: RelationColumns) -> str:
    """For every segment: counts, checks, and the ranges and moments of the scores.

    The moments are of the original scores, over rows where no square overflows or underflows.
    """
    ends = ", ".join(
        f"{end}(CASE WHEN kind = 1 AND y {is_class} THEN f END) AS {name}"
        for end, is_class, name in (
            ("MIN", "= 1", "low_pos"),
            ("MAX", "= 1", "high_pos"),
            ("MIN", "<> 1", "low_neg"),
            ("MAX", "<> 1", "high_neg"),
        )
    )
    keys, extras = ", ".join(names.keys), ""
    if names.offset is not None:
        extras = "MAX(CASE WHEN kind = 1 THEN ABS(o) END) AS widest_offset,"
    if names.pos_label is not None:
        extras += ", ".join(f"{end}(other) AS {end.lower()}_other" for end in ("MIN", "MAX")) + ","
    return f"""
        {with_rows(names)},
        summarized AS (SELECT * FROM checked)
        SELECT {keys}, {ends}, COUNT(*) AS n,
            SUM(CASE WHEN kind = 1 THEN 1 ELSE 0 END) AS good,
            SUM(CASE WHEN kind = 2 THEN 1 ELSE 0 END) AS bad,
            MIN(CASE WHEN kind = 1 THEN w END) AS lightest,
            MIN(w) AS least_weight,
            MAX(CASE WHEN y = -1 THEN 1 ELSE 0 END) AS minus,
            MAX(CASE WHEN y = 0 THEN 1 ELSE 0 END) AS zero,
            MAX(CASE WHEN y NOT IN (-1, 0, 1) AND {_finite("y")} THEN y END) AS bad_label,
            {extras}
            {_moments(names, "f", f"kind = 1 AND {_in_range(names)}")}
        FROM summarized GROUP BY {keys}
    """


def scores(names: RelationColumns) -> str:
    """The scores and weights of all rows that are fitted."""
    return f"{with_rows(names)} SELECT f, w FROM checked WHERE kind = 1"


def moments(names: RelationColumns, pooled: PooledNumbers | None) -> str:
    """The moments of the standardized scores by segment; moments of all rows follow."""
    return f"""
        {_with_scores(names, pooled)}
        SELECT j, {_same_rows(names)}, {_moments(names, "g", "kind = 1")} FROM scores GROUP BY j
    """


def derivatives(names: RelationColumns, pooled: PooledNumbers | None) -> str:
    """The sums of `objective.analytic_derivatives`, in lower case, as some engines return names.

    `pooled` are the search's numbers for the problem of all rows, whose sums over the rows of each
    segment are columns that end in `ALL`; None to leave it out.
    """
    problems = _problems(pooled)
    exponentials = ", ".join(
        # CASE, because DuckDB is slower with LEAST and GREATEST.
        f"""EXP(CASE WHEN u{tag} BETWEEN -{FAR} AND {FAR} THEN -u{tag}
                WHEN u{tag} > 0 THEN -{FAR} ELSE {FAR} END) AS e{tag}"""
        for tag in problems
    )
    probabilities = ", ".join(f"1 / (1 + e{tag}) AS p{tag}" for tag in problems)
    terms = ", ".join(
        f"""g{tag}, w * side * (p{tag} - gap{tag}) AS by_z{tag},
                w * (p{tag} * e{tag}) * p{tag} AS by_zz{tag}"""
        for tag in problems
    )
    offset = "" if names.offset is None else ", o"
    sums = ", ".join(
        f"SUM({term}) AS {name.lower()}{tag}"
        for tag in problems
        for name, term in zip(
            Derivatives._fields,
            (
                f"g{tag} * by_z{tag}",
                f"by_z{tag}",
                f"g{tag} * (g{tag} * by_zz{tag})",
                f"g{tag} * by_zz{tag}",
                f"by_zz{tag}",
            ),
            strict=True,
        )
    )
    return f"""
        {_at_points(names, pooled, "")},
        with_e AS (SELECT *, {exponentials} FROM at_points),
        with_p AS (SELECT *, {probabilities} FROM with_e),
        terms AS (SELECT j, f{offset}, same, {terms} FROM with_p)
        SELECT j, {_same_rows(names)}, {sums} FROM terms GROUP BY j
    """


def loss(names: RelationColumns, pooled: PooledNumbers | None) -> str:
    """The sums of `objective.loss`."""
    sums = ", ".join(f"SUM(w * ({_loss(tag, '')})) AS loss{tag}" for tag in _problems(pooled))
    return f"""
        {_at_points(names, pooled, "")}
        SELECT j, {_same_rows(names)}, {sums} FROM at_points GROUP BY j
    """


def loss_change(names: RelationColumns, pooled: PooledNumbers | None) -> str:
    """The sums of the loss at (A, B) minus that at (A_before, B_before), row by row."""
    sums = ", ".join(
        f"SUM(w * ({_loss(tag, '')} - ({_loss(tag, '_before')}))) AS loss_change{tag}"
        for tag in _problems(pooled)
    )
    return f"""
        {_at_points(names, pooled, "", "_before")}
        SELECT j, {_same_rows(names)}, {sums} FROM at_points GROUP BY j
    """


def _loss(of: str, x: str) -> str:
    """A row's loss, with log(1 + exp(u)) = max(u, 0) + log(1 + exp(-|u|))."""
    u = f"u{x}{of}"
    return f"""CASE WHEN {u} > 0 THEN {u} ELSE 0 END - gap{of} * {u}
        + CASE WHEN ABS({u}) > {FAR} THEN 0 ELSE LN(1 + EXP(-ABS({u}))) END"""


def _moments(names: RelationColumns, score: str, counted: str) -> str:
    """The sums of `statistics.moment_terms` for both classes, in the order of the fields."""
    terms = ["w", f"w * {score}", f"w * {score} * {score}", "1"]
    if names.offset is not None:
        terms += ["w * o", f"w * o * {score}"]
    return ", ".join(
        f"SUM(CASE WHEN {counted} AND y {is_class} THEN {term} ELSE 0 END) AS {name}_{suffix}"
        for is_class, suffix in (("= 1", "pos"), ("<> 1", "neg"))
        for name, term in zip(Moments._fields, terms, strict=False)
    )


def _same_rows(names: RelationColumns) -> str:
    """What every pass tells of a segment's rows, to compare with the summary.

    They are the number of rows and, over rows of `_in_range`, the differences between the classes
    in the sums of the weights, scores and offsets.
    """
    terms = ["same", "same * f"] + ["same * o"] * (names.offset is not None)
    sums = (f"SUM({term}) AS {name}" for term, name in zip(terms, SAME, strict=False))
    return f"COUNT(*) AS good, {', '.join(sums)}"


def _in_range(names: RelationColumns) -> str:
    """Whether no square of a good row's numbers overflows or underflows."""
    columns = ["f"] if names.offset is None else ["f", "o"]
    in_range = [f"({x} = 0 OR ABS({x}) BETWEEN {_SMALL} AND {_LARGE})" for x in columns]
    return " AND ".join([*in_range, f"ABS(w) BETWEEN {_SMALL} AND {_LARGE}"])


def _problems(pooled: PooledNumbers | None) -> tuple[str, ...]:
    """The suffixes of a row's problems in column names: for its segment, and for all rows."""
    return ("",) if pooled is None else ("", ALL)


def with_rows(names: RelationColumns) -> str:
    """Rows with fixed column names and types; kind is 0 for weight 0, 2 for non-finite, else 1.

    same is the weight of a good row with label 1, its negative with another label, and 0 where a
    square of the row's numbers could overflow or underflow.
    """
    columns = [
        f"{quoted(column)} AS {key}" for column, key in zip(names.segment, names.keys, strict=True)
    ]
    label = _number(names, names.label)
    if names.pos_label is not None:
        x = quoted(names.label or "")
        is_other = f"{x} <> {names.pos_label}"
        label = f"CASE WHEN {x} = {names.pos_label} THEN 1 WHEN {is_other} THEN 0 END"
        columns.append(f"CASE WHEN {is_other} THEN {x} END AS other")
    numbers = {"f": _number(names, names.score), "y": label, "w": _number(names, names.weight)}
    if names.offset is not None:
        numbers["o"] = _number(names, names.offset)
    columns += [f"CAST({number} AS DOUBLE) AS {short}" for short, number in numbers.items()]
    finite = " AND ".join(map(_finite, numbers))
    return f"""
        WITH plain AS (SELECT {", ".join(columns)} FROM {ROWS}),
        checked AS (
            SELECT *, CASE WHEN w = 0 THEN 0 WHEN {finite} THEN 1 ELSE 2 END AS kind,
                CASE WHEN NOT ({_in_range(names)}) THEN 0 WHEN y = 1 THEN w ELSE -w END AS same
            FROM plain
        )
    """


def _number(names: RelationColumns, name: str | None) -> str:
    """A column as a number, 1 without a column; booleans are converted, as some engines cannot."""
    if name is None:
        return "1.0"
    x = quoted(name)
    return f"CASE WHEN {x} THEN 1 WHEN NOT {x} THEN 0 END" if name in names.booleans else x


def _with_scores(names: RelationColumns, pooled: PooledNumbers | None) -> str:
    """The good rows with their problems' numbers and their standardized scores."""
    on = " AND ".join(f"checked.{key} = {POINTS}.p_{key}" for key in names.keys)
    constants = "".join(f", {literal(x)} AS {name}{ALL}" for name, x in (pooled or {}).items())
    g = ", ".join(f"(f - center{tag}) * scale{tag} AS g{tag}" for tag in _problems(pooled))
    return f"""
        {with_rows(names)},
        joined AS (
            SELECT *{constants} FROM checked JOIN {POINTS} ON {on} WHERE kind = 1
        ),
        scores AS (SELECT *, {g} FROM joined)
    """


def _at_points(names: RelationColumns, pooled: PooledNumbers | None, *which: str) -> str:
    """The rows with u at the given points, gap, and side, which is 1 for label 1 and -1 for 0."""
    problems = _problems(pooled)
    gaps = ", ".join(
        f"CASE WHEN y = 1 THEN gap_pos{tag} ELSE gap_neg{tag} END AS gap{tag}" for tag in problems
    )
    offset = "" if names.offset is None else " - o"
    u = ", ".join(
        f"side * (A{x}{tag} * g{tag} + B{x}{tag}{offset}) AS u{x}{tag}"
        for tag in problems
        for x in which
    )
    return f"""
        {_with_scores(names, pooled)},
        labelled AS (
            SELECT *, CASE WHEN y = 1 THEN 1 ELSE -1 END AS side, {gaps} FROM scores
        ),
        at_points AS (SELECT *, {u} FROM labelled)
    """


def _finite(column: str) -> str:
    """Whether finite; by arithmetic, as `expressions.is_number` has it."""
    return f"{column} * 0 = 0"
