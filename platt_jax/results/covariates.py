"""What is known of segments besides their rows, and how their curves follow it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column, floats
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.vocabulary import distinct
from platt_jax.results import tables
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.tables import Table

ROWS = "rows"  # the argument for the logarithm of a segment's number of rows
_IDS = "segment"  # the name of a table's column of ids
ARRAYS = "values", "center", "coefficients", "covariance", "spread"  # in files


class CovariateColumn(NamedTuple):
    """A column of a table by segment: of numbers, or of categories, of which the first is 0."""

    name: str
    categories: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of its numbers: one for each category but the first."""
        if not self.categories:
            return [self.name]
        return [f"{self.name}={value}" for value in self.categories[1:]]

    def coded(self, values: Column) -> NDArray[np.float64]:
        """(n, P) of the column's values (n,): numbers, or 0 and 1 for each category but the first.

        Raises:
            ValueError: a value is no number, or none of the categories.
        """
        what = f"covariates, column {self.name!r}"
        if not self.categories:
            return validation.numbers(values, what).astype(float)[:, None]
        codes, each = distinct(ids.read(values, what))
        known = dict(zip(self.categories, range(len(self.categories)), strict=True))
        if unknown := [str(x) for x in each.tolist() if str(x) not in known]:
            raise ValueError(
                f"{what}: expected one of {list(self.categories)[:10]}, got {unknown[0]!r}"
            )
        place = np.array([known[str(x)] for x in each.tolist()], np.int64)[codes]
        return (place[:, None] == np.arange(1, len(known))).astype(float)


LOG_ROWS = CovariateColumn("log(rows)")


class CovariateTable(NamedTuple):
    """Covariates of segments, as they were given: a line for each of n segments."""

    columns: tuple[CovariateColumn, ...]
    lines: NDArray[np.float64]  # (n, P)
    keys: NDArray[Any] | None  # (n,) the segments; None for those that are fitted, in their order

    @classmethod
    def read(
        cls, given: Any, columns: tuple[CovariateColumn, ...] | None = None
    ) -> "CovariateTable":
        """A DataFrame or a mapping of columns by name, or an array (K, P) in the order of the keys.

        With `columns` these, in a table that may have others.

        Raises:
            ValueError: it is none of these, has no ids or no columns, or an id twice.
        """
        there: Any = given
        if not isinstance(given, Mapping):  # pyarrow's `columns` are no names
            there = getattr(given, "column_names", getattr(given, "columns", None))
        if there is None:
            return cls._of_array(validation.numbers(given, "covariates"))
        names = [x for x in there if x != _IDS]
        if len(names) < len(there):
            keys = given[_IDS]
        elif hasattr(given, "reindex"):  # pandas
            keys = given.index.tolist() if given.index.nlevels > 1 else given.index
        else:
            raise ValueError(f"covariates: expected a column {_IDS!r} of ids, got {names[:10]}")
        if columns is None:
            columns = tuple(_column(name, given[name]) for name in names)
        elif missing := [x.name for x in columns if x.name not in names]:
            raise ValueError(f"covariates: expected a column {missing[0]!r}, got {names[:10]}")
        if not columns:
            raise ValueError("covariates: expected columns beside the ids, got none")
        codes, each = distinct(ids.read(keys, f"covariates, {_IDS}"))
        if len(each) < len(codes):
            twice = int(np.argmax(np.bincount(codes) > 1))
            raise ValueError(
                f"covariates: expected a line for each segment, got several for "
                f"{tables.name(each, twice)}"
            )
        lines = np.hstack([x.coded(given[x.name]) for x in columns])
        table = cls(columns, np.empty_like(lines), each)
        table.lines[codes] = lines
        return table

    @classmethod
    def _of_array(cls, values: NDArray[Any]) -> "CovariateTable":
        if values.ndim != 2 or not values.shape[1]:
            raise ValueError(
                "covariates: expected a table by segment, (K, P) numbers in the order of the "
                f'segments, or "{ROWS}", got shape {values.shape}'
            )
        columns = tuple(CovariateColumn(f"x{i}") for i in range(values.shape[1]))
        return cls(columns, values.astype(float), None)

    def of(self, keys: NDArray[Any]) -> NDArray[np.float64]:
        """(K, P), the lines of these segments.

        Raises:
            ValueError: a segment has no line, or a number that is missing or infinite.
        """
        place: Any = np.arange(len(self.lines))
        if self.keys is not None:
            place = get_indexer(self.keys, split_columns(keys), "segments")
        elif len(place) != len(keys):
            raise ValueError(
                f"covariates: expected a line for each of {len(keys):,} segments, got "
                f"{len(place):,}"
            )
        if len(missing := np.flatnonzero(place < 0)):
            raise ValueError(
                f"covariates: expected a line for each segment, got none for {len(missing):,} of "
                f"{len(keys):,}, first {tables.name(keys, missing[0])}"
            )
        lines = self.lines[place]
        for segment, column in np.argwhere(~np.isfinite(lines))[:1]:
            names = [name for x in self.columns for name in x.names]
            raise ValueError(
                f"covariates, column {names[column]!r}: expected finite numbers, got "
                f"{lines[segment, column]} for segment {tables.name(keys, segment)}"
            )
        return lines


def read_covariates(given: Any, pooling: str) -> CovariateTable | str | None:
    """The argument `covariates` of a fit with this pooling.

    Raises:
        ValueError: it is none, or the pooling has no population of segments.
    """
    if given is None:
        return None
    if pooling != "partial":
        raise ValueError(f"covariates: expected None beside pooling={pooling!r}")
    if isinstance(given, str):
        if given != ROWS:
            raise ValueError(f'covariates: expected a table by segment or "{ROWS}", got {given!r}')
        return given
    return CovariateTable.read(given)


def _column(name: Any, values: Column) -> CovariateColumn:
    """The column of a table, with its categories unless it has numbers."""
    if floats(values) is not None or np.asarray(values).dtype.kind in "biuf":
        return CovariateColumn(str(name))
    what = f"covariates, column {name!r}"
    _, each = distinct(ids.read(values, what))
    return CovariateColumn(str(name), tuple(map(str, each.tolist())))


def _shapes(segments: int, P: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of a file."""
    shapes = (segments, P), (P,), (P, 2), (2 + 2 * P, 2 + 2 * P), (2, 2)
    return dict(zip(ARRAYS, shapes, strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class Covariates(ComparedByValue):
    """Covariates of K segments, and how the mean of (A, B) follows them.

    A segment with covariates x has the mean ``population.mean + (x - center) @ coefficients``.

    Attributes:
        columns: the columns of the table, with their categories.
        values: (K, P), the numbers of each segment.
        center: (P,), their means over the segments.
        coefficients: (P, 2), the change of the mean of (A, B) by a unit of each number.
        covariance: (2 + 2 P, 2 + 2 P), of the estimates of the mean and of the coefficients, in the
            order of their entries.
        spread: (2, 2), by how much the covariance of (A, B) of an unseen segment is larger than
            that of one with average covariates.
    """

    columns: tuple[CovariateColumn, ...]
    values: NDArray[Any]
    center: NDArray[Any]
    coefficients: NDArray[Any]
    covariance: NDArray[Any]
    spread: NDArray[Any]

    @property
    def names(self) -> list[str]:
        """The names of the P numbers."""
        return [name for column in self.columns for name in column.names]

    @property
    def about(self) -> list[Any]:
        """What a file says of them besides arrays."""
        return [[column.name, list(column.categories)] for column in self.columns]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of a file."""
        return {name: getattr(self, name) for name in ARRAYS}

    @classmethod
    def assembled(cls, about: Any, arrays: Mapping[str, Any], segments: int) -> "Covariates":
        """The inverse of `about` and `arrays`; an exception of any class if they are no such."""
        columns = tuple(CovariateColumn(str(name), tuple(map(str, x))) for name, x in about)
        P = sum(len(column.names) for column in columns)
        for name, shape in _shapes(segments, P).items():
            if arrays[name].shape != shape or arrays[name].dtype.kind != "f":
                raise ValueError(f"{name}: expected floating numbers of shape {shape}")
        return cls(columns, **{name: arrays[name] for name in ARRAYS})

    @property
    def are_rows(self) -> bool:
        """Whether the covariate is the number of a segment's rows, by `covariates="rows"`."""
        return self.columns == (LOG_ROWS,)

    def given(self, keys: NDArray[Any]) -> "CovariateTable | str":
        """The argument `covariates` of a fit of the segments (K,) with these keys."""
        return ROWS if self.are_rows else CovariateTable(self.columns, self.values, keys)

    def effects(self, values: NDArray[Any] | None = None) -> Floats:
        """(n, 2), what covariates (n, P), by default the segments', add to the mean of (A, B)."""
        made: Floats = ((self.values if values is None else values) - self.center) @ (
            self.coefficients
        )
        return made

    def errors(self, values: NDArray[Any]) -> Floats:
        """(n, 2, 2), by how much the mean's covariance differs from that at average covariates."""
        return errors_of_effects(values - self.center, self.covariance)

    def only(self, where: Bools) -> "Covariates":
        """Of some of the segments."""
        return replace(self, values=self.values[where])

    def table(self) -> Table:
        """The coefficients, a line for each number.

        Columns:
            covariate: its name; "column=category" is the difference from the column's first one.
            slope, intercept: change of the slope -A and of the intercept -B by one unit.
            se_slope, se_intercept: their standard errors.
            p_value: of both being 0, by Wald's test, chi-square with 2 degrees of freedom.
        """
        errors = np.sqrt(np.diag(self.covariance)).reshape(-1, 2)[1:]
        pairs = np.arange(2, 2 + 2 * len(errors)).reshape(-1, 2)
        blocks = self.covariance[pairs[:, :, None], pairs[:, None, :]]
        solved = np.linalg.solve(blocks, self.coefficients[..., None])[..., 0]
        return Table(
            covariate=np.array(self.names),
            slope=-self.coefficients[:, 0],
            se_slope=errors[:, 0],
            intercept=-self.coefficients[:, 1],
            se_intercept=errors[:, 1],
            p_value=np.exp(-(self.coefficients * solved).sum(1) / 2),
        )


def errors_of_effects(values: NDArray[Any], covariance: NDArray[Any]) -> Floats:
    """(n, 2, 2), how much the covariance of mean + x @ coefficients differs from that of the mean.

    The covariance (2 + 2 P, 2 + 2 P) is of the estimates of the mean and of the coefficients.
    """
    x = np.column_stack([np.ones(len(values)), values])
    blocks = covariance.reshape(x.shape[1], 2, x.shape[1], 2)
    made: Floats = np.einsum("kp,kq,piqj->kij", x, x, blocks, optimize=True)
    return made - blocks[0, :, 0]
