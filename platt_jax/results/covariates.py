"""What is known of segments besides their rows, and how their curves follow it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column, dictionary, floats, on_host
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.vocabulary import distinct
from platt_jax.results import tables
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.tables import Table

ROWS = "rows"  # the argument for the logarithm of a segment's number of rows
_IDS = "segment"  # the name of a table's column of ids
_MOST = 1e100  # whose squares are numbers
_AT_ONCE = 1 << 18  # covariates of some segments
ARRAYS = "values", "center", "coefficients", "covariance", "spread"  # in files


class CovariateColumn(NamedTuple):
    """A column of a table by segment: of numbers, or of categories, ascending; the first is 0."""

    name: str
    categories: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of its numbers: one for each category but the first."""
        if not self.categories:
            return [self.name]
        return [f"{self.name}={value}" for value in self.categories[1:]]

    def coded(self, values: NDArray[Any], keys: NDArray[Any]) -> NDArray[np.float64]:
        """(K, P) of the column's values (K,): numbers, or 0 and 1 for each category but the first.

        Raises:
            ValueError: a value is no finite number below 1e100, or none of the categories.
        """
        if self.categories:
            known, expected = np.array(self.categories), f"one of {list(self.categories)[:10]}"
            text = values if values.dtype.kind != "f" else np.array([f"{x:.17g}" for x in values])
            positions = np.minimum(np.searchsorted(known, text), len(known) - 1)
            good = known[positions] == text
            numbers = (positions[:, None] == np.arange(1, len(known))).astype(float)
        else:
            expected = "finite numbers below 1e100"
            known = values if values.dtype.kind == "f" else np.full(len(values), np.nan)
            good, numbers = np.abs(known) < _MOST, known[:, None]
        if not good.all():
            bad = int(np.argmin(good))
            raise ValueError(
                f"covariates, column {self.name!r}: expected {expected}, got {values[bad]} for "
                f"segment {tables.name(keys, bad)}"
            )
        return numbers


LOG_ROWS = CovariateColumn("log(rows)")


class CovariateTable(NamedTuple):
    """Covariates of segments, as they were given: a line for each of n segments."""

    columns: dict[str, NDArray[Any]]  # (n,) float64, or text
    keys: NDArray[Any] | None  # (n,) the segments; None for those that are fitted, in their order

    @classmethod
    def read(cls, given: Any) -> "CovariateTable":
        """A DataFrame or a mapping of columns by name, or an array (K, P) in the order of the keys.

        Raises:
            ValueError: it is none of these, has no ids or no columns, or an id twice.
        """
        given = on_host(given)
        columns: Any = given
        if not isinstance(given, Mapping):  # pyarrow's `columns` are no names
            columns = getattr(given, "column_names", getattr(given, "columns", None))
        if columns is None:
            return cls._of_array(validation.numbers(given, "covariates"))
        names = [x for x in columns if x != _IDS]
        if len(names) < len(columns):
            keys = given[_IDS]
        elif hasattr(given, "reindex"):  # pandas
            keys = given.index.tolist() if given.index.nlevels > 1 else given.index
        else:
            raise ValueError(f"covariates: expected a column {_IDS!r} of ids, got {names[:10]}")
        if not names:
            raise ValueError("covariates: expected columns beside the ids, got none")
        if LOG_ROWS.name in names:
            raise ValueError(
                f"covariates: expected another name than {LOG_ROWS.name!r}, which "
                f'covariates="{ROWS}" has'
            )
        codes, unique = distinct(ids.read(keys, f"covariates, {_IDS}"))
        if len(unique) < len(codes):
            repeated = int(np.argmax(np.bincount(codes) > 1))
            raise ValueError(
                "covariates: expected a line for each segment, got several for "
                f"{tables.name(unique, repeated)}"
            )
        order = np.argsort(codes)
        return cls({str(x): _column(str(x), given[x], len(codes))[order] for x in names}, unique)

    @classmethod
    def _of_array(cls, values: NDArray[Any]) -> "CovariateTable":
        if values.ndim != 2 or not values.shape[1]:
            raise ValueError(
                "covariates: expected a table by segment, (K, P) numbers in the order of the "
                f'segments, or "{ROWS}", got shape {values.shape}'
            )
        return cls({f"x{i}": x for i, x in enumerate(values.astype(float).T)}, None)

    def of(
        self,
        keys: NDArray[Any],
        total: Callable[[Floats], Floats],
        columns: tuple[CovariateColumn, ...] | None = None,
    ) -> tuple[tuple[CovariateColumn, ...], NDArray[np.float64]]:
        """The columns, and the numbers (K, P) of these segments.

        Without `columns` these are all, with the categories that segments have, also of other
        processes: `total` is as in `Segments`.

        Raises:
            ValueError: a segment has no line, or a number that is missing or infinite; or there is
                no such column, or another category.
        """
        number = len(next(iter(self.columns.values())))
        positions: Any = np.arange(number)
        if self.keys is not None:
            positions = get_indexer(self.keys, split_columns(keys), "segments")
        elif number != len(keys):
            raise ValueError(
                f"covariates: expected a line for each of {len(keys):,} segments, got {number:,}"
            )
        if len(missing := np.flatnonzero(positions < 0)):
            raise ValueError(
                f"covariates: expected a line for each segment, got none for {len(missing):,} of "
                f"{len(keys):,}, first {tables.name(keys, missing[0])}"
            )
        data = {name: x[positions] for name, x in self.columns.items()}
        if columns is None:
            columns = tuple(
                CovariateColumn(
                    name, () if x.dtype.kind == "f" else self._categories(name, x, total)
                )
                for name, x in data.items()
            )
        elif lacking := [x.name for x in columns if x.name not in data]:
            raise ValueError(f"covariates: expected a column {lacking[0]!r}, got {list(data)[:10]}")
        return columns, np.hstack([x.coded(data[x.name], keys) for x in columns])

    def _categories(
        self, name: str, mine: NDArray[Any], total: Callable[[Floats], Floats]
    ) -> tuple[str, ...]:
        """The categories of a column that segments have, ascending."""
        each = np.unique(self.columns[name])
        numbers = total(np.bincount(np.searchsorted(each, mine), minlength=len(each)).astype(float))
        return tuple(each[numbers > 0].tolist())


class KnownCovariates(NamedTuple):
    """Covariates of segments that were fitted, as numbers."""

    keys: NDArray[Any]  # (n,)
    columns: tuple[CovariateColumn, ...]
    values: NDArray[np.float64]  # (n, P)

    def of(
        self, keys: NDArray[Any], total: Callable[[Floats], Floats]
    ) -> tuple[tuple[CovariateColumn, ...], NDArray[np.float64]]:
        """See `CovariateTable`; of segments that are all among them."""
        return self.columns, self.values[get_indexer(self.keys, split_columns(keys), "segments")]


# What a fit takes: one of both, or `ROWS`.
GivenCovariates: TypeAlias = CovariateTable | KnownCovariates | str


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


def _column(name: str, values: Column, number: int) -> NDArray[Any]:
    """The column (n,) of a table: float64, or the texts of its categories."""
    argument = f"covariates, column {name!r}"
    numbers = None if _are_categories(values) else floats(values)
    if numbers is None:
        numbers = np.asarray(validation.plain(values))
    text = [isinstance(x, str) for x in numbers.ravel()] if numbers.dtype.kind == "O" else []
    if not _are_categories(values) and not any(text) and numbers.dtype.kind not in "US":
        column: NDArray[Any] = validation.numbers(numbers, argument).astype(float)
    else:
        codes, unique = distinct(ids.read(values, argument))
        column = np.array([str(x) for x in unique.tolist()])[codes]
    if column.shape != (number,):
        raise ValueError(f"{argument}: expected {number:,} values, got shape {column.shape}")
    return column


def _are_categories(values: Column) -> bool:
    """Whether this is a column of categories, which may be numbers."""
    return not isinstance(values, list | tuple) and dictionary(values) is not None


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
    def rank(self) -> int:
        """How many of the numbers differ between segments, in different ways."""
        x = self.values - self.values.mean(0) if len(self.values) else self.values
        largest = np.abs(x).max(0, initial=0)
        varying = largest > 1e-9 * np.abs(self.values).max(0, initial=0)
        return int(np.linalg.matrix_rank(x[:, varying] / largest[varying])) if varying.any() else 0

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

    def given(self, keys: NDArray[Any]) -> "KnownCovariates | str":
        """The argument `covariates` of a fit of the segments (K,) with these keys."""
        return ROWS if self.are_rows else KnownCovariates(keys, self.columns, self.values)

    def effects(self, values: NDArray[Any] | None = None) -> Floats:
        """(n, 2), what covariates (n, P), by default the segments', add to the mean of (A, B)."""
        effects: Floats = ((self.values if values is None else values) - self.center) @ (
            self.coefficients
        )
        return effects

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
        solution = np.linalg.solve(blocks, self.coefficients[..., None])[..., 0]
        return Table(
            covariate=np.array(self.names),
            slope=-self.coefficients[:, 0],
            se_slope=errors[:, 0],
            intercept=-self.coefficients[:, 1],
            se_intercept=errors[:, 1],
            p_value=np.exp(-(self.coefficients * solution).sum(1) / 2),
        )


def errors_of_effects(values: NDArray[Any], covariance: NDArray[Any]) -> Floats:
    """(n, 2, 2), how much the covariance of mean + x @ coefficients differs from that of the mean.

    The covariance (2 + 2 P, 2 + 2 P) is of the estimates of the mean and of the coefficients.
    """
    x = np.column_stack([np.ones(len(values)), values])
    blocks = covariance.reshape(x.shape[1], 2, x.shape[1], 2)
    covariances = np.empty((len(x), 2, 2))
    step = max(_AT_ONCE // x.shape[1], 1)
    for chunk in (slice(first, first + step) for first in range(0, len(x), step)):
        covariances[chunk] = np.einsum("kp,kq,piqj->kij", x[chunk], x[chunk], blocks, optimize=True)
    return covariances - blocks[0, :, 0]
