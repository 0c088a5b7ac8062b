"""Tables of columns by name, as text, HTML and frames of other libraries; statuses as text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.extras import install_hint
from platt_jax.model.objective import Array
from platt_jax.status import Flag, Status

_FAILURES_NAMED = 5
ROWS_SHOWN = 10

# Line width of a printed table.
WIDTH = 100
_BETWEEN = 2
_DIGITS = 3
_MOST_DECIMALS = 8
# Largest ratio of two numbers of a column of equal decimals.
_SPREAD = 1e4

# Units of times and durations that both polars and pyarrow support.
_UNITS = {
    "M": {("D", 1), ("ms", 1), ("us", 1), ("ns", 1)},
    "m": {("ms", 1), ("us", 1), ("ns", 1)},
}


class Table(dict[str, NDArray[Any]]):
    """Columns by name, as NumPy arrays of one length, which is that of the table."""

    def __len__(self) -> int:
        return max(map(len, self.values()), default=0)

    def __repr__(self) -> str:
        rows = len(self)
        note = f"{counted(rows, 'row')}; to_pandas(), to_polars() and to_arrow() have all"
        return "\n".join([*self.lines(ROWS_SHOWN), *([note] if rows > ROWS_SHOWN else [])])

    def _repr_html_(self) -> str:
        rows = len(self)
        note = f"<div>and {rows - ROWS_SHOWN:,} more</div>" if rows > ROWS_SHOWN else ""
        return html_rows(self, range(min(rows, ROWS_SHOWN))) + note

    def lines(self, rows: int) -> list[str]:
        """The column names and the first rows as lines of text, with as many columns as fit.

        A last line names the other columns, if any.
        """
        columns = [[name, *cells(column[:rows])] for name, column in self.items()]
        shown = _fitting(columns)
        other_names = ", ".join(list(self)[shown:])
        return _lines(columns[:shown]) + ([f"also: {other_names}"] if other_names else [])

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame.

        The column of flags is `frame["flags"]`; `frame.flags` is an attribute of pandas.

        Raises:
            ImportError: pandas is not installed.
        """
        with install_hint("to_pandas() needs pandas", "platt-jax[pandas]"):
            import pandas as pd
        return pd.DataFrame(dict(self))

    def to_polars(self) -> Any:
        """The table as a polars DataFrame.

        Raises:
            ImportError: polars is not installed.
            ValueError: ids have several types, or a type that polars lacks.
        """
        with install_hint("to_polars() needs polars", "polars"):
            import polars as pl

        def series(name: str, values: Any) -> Any:
            column = pl.Series(name, values)
            _require_kept(values, column.to_list)
            return column

        return pl.DataFrame(self._converted(series, "polars"))

    def to_arrow(self) -> Any:
        """The table as a pyarrow Table.

        Raises:
            ImportError: pyarrow is not installed.
            ValueError: ids have several types, or a type that pyarrow lacks.
        """
        with install_hint("to_arrow() needs pyarrow", "pyarrow"):
            import pyarrow as pa
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
    """A column as a pyarrow array, or an exception of any class if pyarrow has no type for it."""
    import pyarrow as pa

    array = pa.array(values)
    _require_kept(values, array.to_pylist)
    return array


def _require_kept(values: Any, read_back: Callable[[], list[Any]]) -> None:
    """Refuses a converted list if a value was changed, such as a datetime cut to its date."""
    if isinstance(values, list):
        expected = [list(x) if isinstance(x, tuple) else x for x in values]
        if read_back() != expected:
            raise ValueError("a value was changed")


def _portable(column: NDArray[Any]) -> Any:
    """The column in types that other libraries have: objects as a list, times in their units."""
    if column.dtype == object:
        return column.tolist()
    if column.dtype.kind in "mM":
        unit, count = np.datetime_data(column.dtype)
        if (unit, count) in _UNITS[column.dtype.kind]:
            return column
        finer = "D" if column.dtype.kind == "M" and unit in "YMW" else "ms"
        return column.astype(f"{column.dtype.kind}8[{unit if unit in ('us', 'ns') else finer}]")
    return column.astype(column.dtype.newbyteorder("="), copy=False)


def by_class(table: Table) -> Table:
    """A table of segments that are classes."""
    return Table({"class" if name == "segment" else name: x for name, x in table.items()})


def keyed(kind: str, names: NDArray[Any], columns: dict[str, NDArray[Any]]) -> Table:
    """A table with columns of names first, one per field, renamed if the name is taken."""
    if names.dtype.names is None:
        return Table({kind: names}, **columns)
    fields = {
        f"{kind}_{field}" if field in columns else field: names[field]
        for field in names.dtype.names
    }
    return Table(fields, **columns)


def plural(kind: str) -> str:
    """The plural of a regular noun."""
    return kind + ("es" if kind.endswith("s") else "s")


def counted(number: float | np.number[Any], kind: str) -> str:
    """A number of things as text: 1 segment, 2,000 classes."""
    return f"{number:,.0f} {kind if number == 1 else plural(kind)}"


def name(names: NDArray[Any], i: int) -> str:
    """The name of problem i in messages."""
    return str(names[i]) if names.dtype.kind in "mM" else repr(names[i : i + 1].tolist()[0])


def raise_if_failed(status: Array, names: NDArray[Any]) -> None:
    """Raises a RuntimeError that names the first fits that did not converge."""
    status = np.ravel(status)
    failed = np.flatnonzero(status != Status.CONVERGED)
    if not len(failed):
        return
    lines = [
        f"  {name(names, i)}: {Status(status[i]).name}. {Status(status[i]).message}"
        for i in failed[:_FAILURES_NAMED]
    ]
    remaining = len(failed) - len(lines)
    lines += [f"  and {remaining:,} more; see table()"] if remaining else []
    raise RuntimeError(
        f"{len(failed):,} of {counted(len(status), 'fit')} failed:\n" + "\n".join(lines)
    )


def status_counts(status: Array) -> dict[str, int]:
    """The number of fits with each status that occurs, by name."""
    codes, counts = np.unique(np.asarray(status), return_counts=True)
    return {Status(code).name: int(n) for code, n in zip(codes, counts, strict=True)}


def flag_counts(flags: Array) -> dict[str, int]:
    """The number of fits with each flag that occurs, by name."""
    flags = np.asarray(flags)
    counts = {str(flag.name): int(np.count_nonzero(flags & flag)) for flag in Flag}
    return {name: n for name, n in counts.items() if n}


def html_rows(
    columns: Table, shown: Iterable[int], more: Mapping[str, Sequence[str]] | None = None
) -> str:
    """These rows of a table as HTML, with more columns of HTML behind the name of each row."""
    more = more or {}
    indices = np.array(list(shown), np.intp)
    (first, *other_columns) = (
        [escape(text) for text in cells(np.asarray(column)[indices])] for column in columns.values()
    )
    name, *names = map(escape, columns)
    head = "".join(f"<th>{x}</th>" for x in (name, *map(escape, more), *names))
    rows = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>"
        for line in zip(first, *more.values(), *other_columns, strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def texts(codes: NDArray[Any], name: Callable[[int], str]) -> NDArray[np.str_]:
    """(K,) the names of codes (K,)."""
    distinct, inverse = np.unique(codes, return_inverse=True)
    return np.array([name(int(code)) for code in distinct], str)[inverse.reshape(-1)]


def flag_names(code: int) -> str:
    """The flags of a problem by name, ONE_CLASS|SEPARABLE."""
    return "|".join(str(flag.name) for flag in Flag if code & flag)


def cell(value: Any) -> str:
    """A value alone, as in a repr: a float with six digits."""
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def fields_as_lines(result: Any) -> str:
    """A named tuple as text, a line for each field: few numbers, or their shape and range."""
    lines = [f"{type(result).__name__}:"]
    width = max(map(len, result._fields))
    for name, value in zip(result._fields, result, strict=True):
        first, *continued = _few(value).split("\n")
        lines += [f"  {name:<{width}}  {first}", *(f"  {'':<{width}}  {x}" for x in continued)]
    return "\n".join(lines)


def _few(value: Any) -> str:
    if not hasattr(value, "dtype"):
        return repr(value)
    array = np.asarray(value)
    if array.size <= ROWS_SHOWN:
        return " ".join(cells(array.reshape(-1)) if array.ndim else [cell(array[()])])
    if array.dtype.kind not in "biuf":
        return f"{array.shape} from {array.flat[0]} to {array.flat[-1]}"
    least, most = np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)
    return f"{array.shape} from {cell(least)} to {cell(most)}"


def cells(values: NDArray[Any]) -> list[str]:
    """A column as text: floats with three digits or more and with equal decimals.

    Where numbers differ too much in size for that, each has three digits.
    """
    if values.dtype.kind != "f":
        # Python would have integers for NumPy's nanoseconds.
        return [cell(value) for value in (values if values.dtype.kind in "mM" else values.tolist())]
    numbers = values.astype(float)
    sizes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    if not len(sizes) or sizes.max() > _SPREAD * sizes.min():
        return [f"{number:.{_DIGITS}g}" for number in numbers]
    if (sizes == np.rint(sizes)).all():
        return [f"{number:.0f}" for number in numbers]
    typical, smallest = np.floor(np.log10([np.median(sizes), sizes.min()])).astype(int)
    decimals = max(_DIGITS - 1 - typical, _DIGITS - 2 - smallest, 0)
    if decimals > _MOST_DECIMALS:
        return [f"{number:.{_DIGITS}g}" for number in numbers]
    return [f"{number:.{decimals}f}" for number in numbers]


def _fitting(columns: Sequence[list[str]]) -> int:
    """How many of the columns fit in a line."""
    widths = np.array([max(map(len, column), default=0) + _BETWEEN for column in columns])
    return max(int(np.count_nonzero(np.cumsum(widths) - _BETWEEN <= WIDTH)), 1)


def _lines(columns: Sequence[list[str]]) -> list[str]:
    """Columns side by side, as lines."""
    widths = [max(map(len, column)) for column in columns]
    return [
        (" " * _BETWEEN).join(word.rjust(width) for word, width in zip(line, widths, strict=True))
        for line in zip(*columns, strict=True)
    ]
