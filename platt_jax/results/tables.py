"""A batch of fits as text and tables: what was fitted, and what needs a look."""

from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.status import Flag, Status

if TYPE_CHECKING:
    from platt_jax.results.fit import Fit

_FAILURES_NAMED = 5
_ROWS_SHOWN = 10

# Of times and durations, those that polars and pyarrow both have.
_UNITS = {
    "M": {("D", 1), ("ms", 1), ("us", 1), ("ns", 1)},
    "m": {("ms", 1), ("us", 1), ("ns", 1)},
}


class Table(dict[str, NDArray[Any]]):
    """Columns by name, as NumPy arrays of one length."""

    def __repr__(self) -> str:
        rows = self._rows()
        more = f"{rows:,} rows; to_pandas(), to_polars() and to_arrow() have all"
        return "\n".join([*self.lines(_ROWS_SHOWN), *([more] if rows > _ROWS_SHOWN else [])])

    def _repr_html_(self) -> str:
        rows = self._rows()
        more = f"<div>and {rows - _ROWS_SHOWN:,} more</div>" if rows > _ROWS_SHOWN else ""
        return _html(self, range(min(rows, _ROWS_SHOWN))) + more

    def _rows(self) -> int:
        return max(map(len, self.values()), default=0)

    def lines(self, rows: int) -> list[str]:
        """The names of the columns and the first rows as text, one column below another."""
        columns = [[name, *map(cell, _values(column[:rows]))] for name, column in self.items()]
        widths = [max(map(len, column)) for column in columns]
        return [
            "  ".join(word.rjust(width) for word, width in zip(line, widths, strict=True))
            for line in zip(*columns, strict=True)
        ]

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("to_pandas() needs pandas: pip install 'platt-jax[pandas]'") from None
        return pd.DataFrame(dict(self))

    def to_polars(self) -> Any:
        """The table as a polars DataFrame.

        Raises:
            ImportError: polars is not installed.
            ValueError: ids of several types, or of one that polars lacks.
        """
        try:
            import polars as pl
        except ImportError:
            raise ImportError("to_polars() needs polars: pip install polars") from None

        def series(name: str, values: Any) -> Any:
            made = pl.Series(name, values)
            _require_kept(values, made.to_list)
            return made

        return pl.DataFrame(self._converted(series, "polars"))

    def to_arrow(self) -> Any:
        """The table as a pyarrow Table.

        Raises:
            ImportError: pyarrow is not installed.
            ValueError: ids of several types, or of one that pyarrow lacks.
        """
        try:
            import pyarrow as pa
        except ImportError:
            raise ImportError("to_arrow() needs pyarrow: pip install pyarrow") from None
        return pa.table(self._converted(lambda _, x: arrow_array(x), "pyarrow"))

    def _converted(self, convert: Callable[[str, Any], Any], library: str) -> dict[str, Any]:
        columns = {}
        for name, column in self.items():
            try:
                columns[name] = convert(name, _portable(column))
            except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
                raise ValueError(
                    f"column {name!r}: {library} has no type for all its values; make them text: "
                    f"table[{name!r}] = table[{name!r}].astype(str)"
                ) from error
        return columns


def arrow_array(values: Any) -> Any:
    """A column as pyarrow's array.

    Raises:
        Exception: pyarrow has no type for all its values; of which class depends on these.
    """
    import pyarrow as pa

    made = pa.array(values)
    _require_kept(values, made.to_pylist)
    return made


def _require_kept(values: Any, read_back: Callable[[], list[Any]]) -> None:
    """Refuse a column that a library made of a list with other values.

    Raises:
        ValueError: there is one, as of a datetime among dates only the date.
    """
    if isinstance(values, list):
        expected = [list(x) if isinstance(x, tuple) else x for x in values]
        if read_back() != expected:
            raise ValueError("a value was changed")


def _values(column: NDArray[Any]) -> Any:
    """Python's values, but of times NumPy's: of nanoseconds Python would have integers."""
    return column if column.dtype.kind in "mM" else column.tolist()


def _portable(column: NDArray[Any]) -> Any:
    """The column in types that others have: objects as a list, times in their units."""
    if column.dtype == object:
        return column.tolist()
    if column.dtype.kind in "mM":
        unit, count = np.datetime_data(column.dtype)
        if (unit, count) in _UNITS[column.dtype.kind]:
            return column
        finer = "D" if column.dtype.kind == "M" and unit in "YMW" else "ms"
        return column.astype(f"{column.dtype.kind}8[{unit if unit in ('us', 'ns') else finer}]")
    return column.astype(column.dtype.newbyteorder("="), copy=False)


def table(fit: "Fit", kind: str, names: NDArray[Any]) -> Table:
    """The fits line by line, behind a column of names, or several; status and flags as text.

    No column has the name of an attribute of a DataFrame, such as `flags` or `index`.
    """
    flat = {key: np.ravel(getattr(fit, key)) for key in ("A", "B", "status", "flags")}
    errors = np.asarray(fit.standard_errors).reshape(-1, 2)
    counts = {key: np.ravel(getattr(fit, key)) for key in ("n_pos", "n_neg", "nll", "iterations")}
    columns = dict(
        A=flat["A"],
        B=flat["B"],
        se_A=errors[:, 0],
        se_B=errors[:, 1],
        status=_texts(flat["status"], lambda code: Status(code).name),
        flag=_texts(flat["flags"], flag_names),
        **counts,
    )
    return keyed(kind, names, columns)


def keyed(kind: str, names: NDArray[Any], columns: dict[str, NDArray[Any]]) -> Table:
    """A table of columns behind those of the names: a field each, whose own name gives way."""
    if names.dtype.names is None:
        return Table({kind: names}, **columns)
    fields = {
        f"{kind}_{field}" if field in columns else field: names[field]
        for field in names.dtype.names
    }
    return Table(fields, **columns)


def name(names: NDArray[Any], i: int) -> str:
    """What messages call the problem i."""
    return str(names[i]) if names.dtype.kind in "mM" else repr(names[i : i + 1].tolist()[0])


def raise_if_failed(fit: "Fit", names: NDArray[Any]) -> None:
    """Raises a RuntimeError that names the first fits that did not converge."""
    status = np.ravel(fit.status)
    failed = np.flatnonzero(status != Status.CONVERGED)
    if not len(failed):
        return
    lines = [
        f"  {name(names, i)}: {Status(status[i]).name}. {Status(status[i]).message}"
        for i in failed[:_FAILURES_NAMED]
    ]
    more = len(failed) - len(lines)
    lines += [f"  and {more:,} more; see table()"] if more else []
    raise RuntimeError(f"{len(failed):,} of {len(status):,} fits failed:\n" + "\n".join(lines))


def status_counts(fit: "Fit") -> dict[str, int]:
    """How many fits ended with each status that occurs, by name."""
    codes, counts = np.unique(np.asarray(fit.status), return_counts=True)
    return {Status(code).name: int(n) for code, n in zip(codes, counts, strict=True)}


def flag_counts(fit: "Fit") -> dict[str, int]:
    """How many fits carry each flag that occurs, by name."""
    flags = np.asarray(fit.flags)
    counts = {str(flag.name): int(np.count_nonzero(flags & flag)) for flag in Flag}
    return {name: n for name, n in counts.items() if n}


def describe(kind: str, fit: "Fit", shared_rows: bool) -> str:
    """Three lines: what was fitted, how it ended, what is flagged.

    Args:
        kind: what the result is called.
        fit: the fits.
        shared_rows: whether all problems are of the same rows.
    """
    if not isinstance(fit.status, np.ndarray | np.generic | jax.Array) or isinstance(
        fit.status, jax.core.Tracer
    ):
        return f"{kind}: traced, of {fit.status}"
    return "\n".join([_headline(kind, fit, shared_rows), *("  " + x for x in _outcome(fit))])


def describe_html(kind: str, fit: "Fit", shared_rows: bool, make_table: Callable[[], Table]) -> str:
    """The three lines, and the first rows of the table: failures first, then flagged fits."""
    columns = make_table()
    urgency = np.lexsort([-np.ravel(fit.flags), -np.ravel(fit.status)])
    shown = urgency[:_ROWS_SHOWN]
    lines = "<br>".join(escape(line) for line in _outcome(fit))
    rest = len(urgency) - len(shown)
    note = f"<div>and {rest:,} more; see <code>table()</code></div>" if rest else ""
    return (
        f"<div><b>{escape(_headline(kind, fit, shared_rows))}</b><br>{lines}</div>"
        f"{_html(columns, shown)}{note}"
    )


def _html(columns: Table, shown: Iterable[int]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell(c[i]))}</td>" for c in columns.values()) + "</tr>"
        for i in shown
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _headline(kind: str, fit: "Fit", shared_rows: bool) -> str:
    n = np.size(fit.A)
    of_problems = np.asarray(fit.n_pos, float) + fit.n_neg
    # A class whose scores are not all finite has fewer.
    rows = float(np.max(of_problems, initial=0) if shared_rows else np.sum(of_problems))
    count = f"{rows:,.0f}" if float(rows).is_integer() else f"{rows:,.6g} (weighted)"
    return f"{kind}: {n:,} sigmoid{'' if n == 1 else 's'} from {count} rows in all, {fit.A.dtype}"


def _outcome(fit: "Fit") -> list[str]:
    statuses = ", ".join(f"{n:,} {name}" for name, n in status_counts(fit).items())
    flags = ", ".join(f"{n:,} {name}" for name, n in flag_counts(fit).items())
    return [f"status: {statuses or 'none'}", f"flags:  {flags or 'none'}"]


def _texts(codes: NDArray[Any], name: Callable[[int], str]) -> NDArray[np.str_]:
    distinct, which = np.unique(codes, return_inverse=True)
    return np.array([name(int(code)) for code in distinct], str)[which.reshape(-1)]


def flag_names(code: int) -> str:
    """The flags of a problem by name, ONE_CLASS|SEPARABLE."""
    return "|".join(str(flag.name) for flag in Flag if code & flag)


def cell(value: Any) -> str:
    """A value as reprs and tables of text show it: a float by six digits."""
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
