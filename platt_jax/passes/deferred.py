"""Rows that every pass reads again: the mask and the standardization are applied at each read."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import jax

from platt_jax.model.objective import Derivatives, Point, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments
from platt_jax.options import Options
from platt_jax.passes.protocol import Rows, RowTerms


class Request(NamedTuple):
    """A call of a method of `Rows`, without its arrays; a static argument of programs."""

    method: str
    last: Hashable = None  # its last argument, such as options, if it takes one
    masked: Options | None = None  # for `mask_nonfinite`; None to mask nothing

    def of(
        self, rows: Any, arrays: tuple[Any, ...], standardization: Standardization | None
    ) -> Any:
        """The result of the method for some of the rows, neither masked nor standardized.

        `arrays` are the arguments of the method before its last one.
        """
        if self.masked is not None:
            rows = rows.mask_nonfinite(self.masked)
        if standardization is not None:
            rows = rows.standardized(standardization)
        last = () if self.last is None else (self.last,)
        return getattr(rows, self.method)(*arrays, *last)


@dataclass(frozen=True)
class DeferredRows(Rows):
    """A base class for rows in several places; a subclass adds up the sums of the places.

    A subclass implements `score_ranges` and `_sum`.

    Attributes:
        masked: the options for `mask_nonfinite`; None to mask nothing.
        standardization: the standardization of the scores, or None.
    """

    masked: Options | None = None
    standardization: Standardization | None = None

    def _sum(self, request: Request, *arrays: Any) -> Any:
        """The sum of the method's results over all places."""
        raise NotImplementedError

    def mask_nonfinite(self, options: Options) -> Self:
        """See `Rows`."""
        return replace(self, masked=options)

    def standardized(self, standardization: Standardization) -> Self:
        """See `Rows`."""
        return replace(self, standardization=standardization)

    def moments(self, standardization: Standardization) -> tuple[Moments, Moments]:
        """See `Rows`."""
        return self._sum(self._request("moments"), standardization)

    def derivatives(
        self, point: Point, targets: Targets, options: Options, active: jax.Array | None = None
    ) -> Derivatives:
        """See `Rows`."""
        return self._sum(self._request("derivatives", options), point, targets)

    def row_sums(self, numbers: Any, terms: RowTerms) -> Any:
        """See `Rows`."""
        return self._sum(self._request("row_sums", terms), numbers)

    def loss(self, point: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""
        return self._sum(self._request("loss"), point, targets)

    def loss_change(self, before: Point, after: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""
        return self._sum(self._request("loss_change"), before, after, targets)

    def _request(self, method: str, last: Hashable = None) -> Request:
        return Request(method, last, self.masked)
