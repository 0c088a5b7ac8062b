"""Rows that every pass reads anew: masks and coordinates are kept, and applied as they are read."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import jax

from platt_jax.model.objective import Derivatives, Point, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments
from platt_jax.options import Options
from platt_jax.passes.protocol import Rows


class Request(NamedTuple):
    """A method of `Rows` to call: what does not depend on the rows."""

    method: str
    options: Options | None = None  # its last argument, if it takes one
    masked: Options | None = None  # how rows that are not finite are masked first; None for not

    def of(
        self, rows: Any, arrays: tuple[Any, ...], standardization: Standardization | None
    ) -> Any:
        """What the method returns for some of the rows.

        Args:
            rows: as they came, of any kind.
            arrays: the other arguments of the method.
            standardization: of the scores, None for none.
        """
        if self.masked is not None:
            rows = rows.mask_nonfinite(self.masked)
        if standardization is not None:
            rows = rows.standardized(standardization)
        options = () if self.options is None else (self.options,)
        return getattr(rows, self.method)(*arrays, *options)


@dataclass(frozen=True)
class DeferredRows(Rows):
    """A base class: one of its kinds says how rows of many places add up.

    Attributes:
        masked: how rows that are not finite are masked, None for not.
        standardization: of the scores, None for none.
    """

    masked: Options | None = None
    standardization: Standardization | None = None

    def _sum(self, request: Request, *arrays: Any) -> Any:
        """The sum over all rows of what the method returns for some."""
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

    def loss(self, point: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""
        return self._sum(self._request("loss"), point, targets)

    def loss_change(self, before: Point, after: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""
        return self._sum(self._request("loss_change"), before, after, targets)

    def _request(self, method: str, options: Options | None = None) -> Request:
        return Request(method, options, self.masked)
