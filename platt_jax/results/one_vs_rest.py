"""Fits by class, and probabilities of the classes of rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Integers
from platt_jax.backend import accelerators
from platt_jax.columns import Column, require_class_order, takes_columns
from platt_jax.ids.factorize import ascending
from platt_jax.ids.indexing import get_indexer
from platt_jax.options import Options
from platt_jax.results import tables
from platt_jax.results.by_id import ById
from platt_jax.results.device_rows import proba_by_class
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.fit import Fit, warn_if_unlike
from platt_jax.results.probabilities import (
    expit,
    log_expit,
    log_odds,
    normalized,
    with_offset,
)
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_sigmoids
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.results.tables import Table
from platt_jax.status import Status


@dataclass(frozen=True, repr=False, eq=False)
class OneVsRestCalibrator(ComparedByValue, ById):
    """One curve per class of a classifier, by default a sigmoid: each class against all others.

    `calibrator[class_id]` is the Fit of one class, `class_id in calibrator` is whether there is
    one, and `len(calibrator)` is the number of classes.

    Attributes:
        classes: (C,) the class ids, in the order of the score columns.
        by_class: the same curves with the classes as segments, ascending. Functions of segments
            take it beside `ClassRows`.
        multilabel: whether a row may be of several classes, or of none. Its probabilities are then
            not divided by their sum, unless by `predict_proba(normalize=True)`.
    """

    classes: NDArray[Any]
    by_class: SegmentCalibrator
    multilabel: bool = False

    _shared_rows: ClassVar[bool] = True

    @classmethod
    def from_fit(
        cls,
        classes: Column,
        fit: Fit,
        multilabel: bool = False,
        options: Options = Options(),
    ) -> Self:
        """The calibrator with the fits (C,) of these classes, each fitted alone.

        Example:
            >>> from platt_jax import fit
            >>> each = fit([[2.0, -1.0, 1.0], [-1.0, 1.0, 0.5]], [[1, 0, 1], [0, 1, 0]])
            >>> OneVsRestCalibrator.from_fit(["dog", "cat"], each).by_class.keys.tolist()
            ['cat', 'dog']
        """
        if not isinstance(fit, Fit):
            raise ValueError(
                f"fit: expected a Fit, got a {type(fit).__name__}; for other curves than sigmoids "
                "see `fit_one_vs_rest(curve=)`"
            )
        names = ids.single_column(ids.read(classes, "classes"), "classes")
        keys, positions = ascending(names)
        by_class = jax.tree.map(lambda x: x[np.argsort(positions)], fit)
        return cls(names, unpooled(keys, by_class, options), multilabel)

    @property
    def fit(self) -> Fit:
        """The fits of the classes, in the order of the score columns.

        Raises:
            AttributeError: the classes have other curves than sigmoids; see `by_class.curves`.
        """
        return self._in_columns(self.by_class.fit)

    @property
    def options(self) -> Options:
        """How the classes were fitted."""
        return self.by_class.options

    def only(self, where: Column) -> "OneVsRestCalibrator":
        """A calibrator with some of the classes, for scores with their columns.

        Args:
            where: (C,) bool, the classes to keep, in the order of `classes`.

        Raises:
            ValueError: where is not one bool per class.

        Example:
            >>> from platt_jax import fit_one_vs_rest
            >>> scores = [[2.0, -1.0, 0.0], [-1.0, 1.0, 0.5], [1.0, 0.5, 2.0]]
            >>> calibrator = fit_one_vs_rest(scores, ["ant", "cat", "dog"])
            >>> calibrator.only(calibrator.classes != "cat").classes.tolist()
            ['ant', 'dog']
        """
        where = validation.array(where, "where")
        if where.dtype != bool or where.shape != self.classes.shape:
            raise ValueError(
                f"where: expected a bool for each of {self.classes.shape} classes, got "
                f"{where.dtype} of shape {where.shape}"
            )
        _, positions = ascending(self.classes)
        by_class = self.by_class.only(where[np.argsort(positions)])
        return replace(self, classes=self.classes[where], by_class=by_class)

    @takes_columns
    def predict_proba(
        self, scores: Column, normalize: bool | None = None, *, offset: Column | None = None
    ) -> NDArray[Any]:
        """Probabilities of the classes.

        Args:
            scores: (N, C) scores.
            normalize: whether to divide each row by its sum, which is right where exactly one class
                is. False gives each class's own probability. None means True for a calibrator of
                class ids, and False for one of multilabel targets.
            offset: (N, C) log-odds of each class against all others that are added to the fitted
                ones, before they are normalised, as in `fit_one_vs_rest`.

        Returns:
            (N, C) in [0, 1]. A class whose fit is NON_FINITE or EMPTY is NaN; the others are
            normalised without it. A NaN score makes its row NaN. A JAX array if the scores are on
            a GPU, as in `fit`.

        Raises:
            ValueError: scores do not have one column per class.

        Example:
            >>> from platt_jax import fit_one_vs_rest
            >>> scores = [[2.0, -1.0], [-1.0, 1.0], [1.0, -0.5]]
            >>> one_class = fit_one_vs_rest(scores, ["cat", "dog", "cat"])
            >>> one_class.predict_proba(scores).sum(axis=1)
            array([1., 1., 1.])
            >>> several = fit_one_vs_rest(scores, [[1, 0], [1, 1], [0, 0]], classes=["cat", "dog"])
            >>> several.predict_proba(scores).sum(axis=1).round(2)
            array([0.78, 1.31, 0.9 ])
        """
        if normalize is None:
            normalize = not self.multilabel
        by_row = self.by_class.predictive() is not None or self.by_class.curves is not None
        if accelerators.holds(scores):
            if by_row:
                raise ValueError(
                    "scores: expected an array on the host if the calibrator has a population or "
                    "other curves than sigmoids, whose probabilities are computed there"
                )
            A, B = jax.device_get((self.fit.A, self.fit.B))
            table = self._with_columns(accelerators.taken(scores))
            on_device: Any = proba_by_class(A, B, table, normalize, offset)
            return on_device
        scores = self._columns(scores)
        if by_row:
            (proba,) = self._by_column(self.by_class.predict_proba, scores, offset)
            if not normalize:
                return proba
            log_proba = np.log(np.maximum(proba, np.finfo(proba.dtype).tiny))
        else:
            logit = with_offset(log_odds(self.fit.A, scores, self.fit.B), offset)
            # A curve of all classes has the rows of all.
            fitted_to = slice(None) if self.by_class.pooling == "complete" else 0
            rows = self.fit.n_pos[fitted_to], self.fit.n_neg[fitted_to]
            fitted = validation.FittedScores.of(self.fit.covariance[0], rows)
            warn_if_unlike(scores[:, 0], expit(logit[:, 0]), fitted)
            if not normalize:
                return expit(logit)
            log_proba = log_expit(logit)
        if self.by_class.curves is None:
            return normalized(log_proba, np.isfinite(self.fit.A))
        status = self._inspected()[0].status
        return normalized(log_proba, (status != Status.NON_FINITE) & (status != Status.EMPTY))

    @takes_columns
    def band(
        self,
        scores: Column,
        level: float = 0.95,
        simultaneous: bool = False,
        *,
        offset: Column | None = None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """A confidence band for each class's own probability, as `Fit.band`.

        It is the band of `predict_proba(scores, normalize=False)`. Normalised probabilities may lie
        outside.

        Args:
            scores: (N, C) scores.
            level: the confidence level for each class, as in `Fit.band`.
            simultaneous: whether the level holds at all scores of a class at once.
            offset: (N, C) as in `predict_proba`.

        Returns:
            Lower and upper probabilities, each (N, C); NaN as in `Fit.band`.

        Raises:
            ValueError: the level is not between 0 and 1, or scores do not have a column per class.
        """
        by_class = partial(self.by_class.band, level=level, simultaneous=simultaneous)
        lower, upper = self._by_column(by_class, self._columns(scores), offset)
        return lower, upper

    def threshold(
        self,
        probability: Column = None,
        classes: Column = None,
        *,
        level: float | None = None,
        cost: tuple[Column, Column] | None = None,
        offset: Column | None = None,
    ) -> NDArray[np.float64]:
        """The score at which each class's own probability is reached.

        It is as `SegmentCalibrator.threshold`, for ``predict_proba(scores, normalize=False)``.
        Normalised probabilities depend on the scores of all classes, so they have no threshold.

        Args:
            probability: the probability to reach, one or (n,), in [0, 1].
            classes: (n,) class ids, or one; None for all, in the order of the score columns.
            level: the confidence level of a `band` whose lower end is to reach the probability.
            cost: in place of the probability, the costs of a false positive and a false negative.
            offset: (n,) log-odds that are added, or one for all.

        Returns:
            (n,) float64 scores, infinite or NaN as in `SegmentCalibrator.threshold`.

        Raises:
            ValueError: see `SegmentCalibrator.threshold`.

        Example:
            >>> from platt_jax import fit_one_vs_rest
            >>> scores = [[2.0, -1.0], [-1.0, 1.0], [1.0, -0.5], [-0.5, -1.0]]
            >>> calibrator = fit_one_vs_rest(scores, ["cat", "dog", "cat", "dog"])
            >>> at = calibrator.threshold(0.7)
            >>> calibrator.predict_proba([at], normalize=False).round(6)
            array([[0.7, 0.7]])
        """
        arguments: dict[str, Any] = dict(level=level, cost=cost, offset=offset)
        return self.by_class.threshold(probability, self._named_classes(classes), **arguments)

    def threshold_table(
        self,
        probability: Column = None,
        classes: Column = None,
        *,
        level: float | None = None,
        cost: tuple[Column, Column] | None = None,
        offset: Column | None = None,
    ) -> Table:
        """Thresholds as a table: `SegmentCalibrator.threshold_table`, with a column `class`.

        Raises:
            ValueError: see `SegmentCalibrator.threshold`.

        Example:
            >>> from platt_jax import fit_one_vs_rest
            >>> scores = [[2.0, -1.0], [-1.0, 1.0], [1.0, -0.5], [-0.5, -1.0]]
            >>> calibrator = fit_one_vs_rest(scores, ["cat", "dog", "cat", "dog"])
            >>> list(calibrator.threshold_table(cost=(1, 9)))
            ['class', 'threshold', 'lower', 'upper', 'direction', 'status']
        """
        arguments: dict[str, Any] = dict(level=level, cost=cost, offset=offset)
        named = self._named_classes(classes)
        return tables.by_class(self.by_class.threshold_table(probability, named, **arguments))

    def _named_classes(self, classes: Column) -> Column:
        """These classes, or all in the order of the columns; refuses others."""
        if classes is None:
            return self.classes
        named = ids.read_like(self.classes, classes, ids.number_like(self.classes, classes))
        if (get_indexer(self.by_class.keys, named, "classes") < 0).any():
            raise ValueError("classes: expected classes of the calibrator")
        return classes

    def shift_prior(self, from_rate: Column, to_rate: Column) -> "OneVsRestCalibrator":
        """The calibrator for rows with other rates of the classes, as `Sigmoid.shift_prior`.

        Each class's own probability changes as if its rows and all others kept their distributions
        of scores. The others do so only if their rates keep their proportions, as one label of a
        multilabel classifier or one class among many has it. Where the rates of all classes change
        and each row is of one class, their normalized probabilities need no such assumption
        (Saerens, Latinne & Decaestecker 2002, equation 2.4):
        ``p = calibrator.predict_proba(scores) * to_rate / from_rate``, and each row of it divided
        by its sum.

        Args:
            from_rate: (C,), the share of each class among the fitted rows; or one number.
            to_rate: (C,), the share of each class where the calibrator will be used; or one number.

        Raises:
            ValueError: a rate is not between 0 and 1, or there is not one rate per class.

        Example:
            >>> from platt_jax import fit_one_vs_rest
            >>> scores = [[2.0, -1.0], [-1.0, 1.0], [1.0, 0.5], [-1.0, 0.0]]
            >>> tagged = fit_one_vs_rest(scores, [[1, 0], [0, 1], [1, 1], [0, 0]])
            >>> rarer = tagged.shift_prior(from_rate=[0.5, 0.5], to_rate=[0.01, 0.5])
            >>> [x.predict_proba([[1.0, 0.5]]).round(2).tolist() for x in (tagged, rarer)]
            [[[0.66, 0.61]], [[0.02, 0.61]]]
        """
        _, positions = ascending(self.classes)
        rates = (validation.numbers(x, "rate") for x in (from_rate, to_rate))
        ordered = (x[np.argsort(positions)] if x.shape == self.classes.shape else x for x in rates)
        return replace(self, by_class=self.by_class.shift_prior(*ordered))

    def raise_if_failed(self) -> Self:
        """Returns the calibrator if every fit and the search for the population converged.

        Raises:
            RuntimeError: a fit or that search failed. The message says what to do.
        """
        super().raise_if_failed()
        self.by_class.raise_if_failed()
        return self

    def _by_column(
        self, function: Callable[..., Any], scores: NDArray[Any], offset: Column
    ) -> list[NDArray[Any]]:
        """The results (N, C) of a method of `by_class`, called for each column."""
        if offset is not None:
            offset = validation.broadcast(
                validation.numbers(offset, "offset"), scores.shape, "offset"
            )
        columns = [
            np.atleast_2d(
                function(
                    scores[:, i], self.classes[i], offset=None if offset is None else offset[:, i]
                )
            )
            for i in range(len(self.classes))
        ]
        return list(np.stack(columns, -1))

    def _in_columns(self, fit: Fit) -> Fit:
        """Fits of the keys of `by_class`, in the order of the score columns."""
        keys, positions = ascending(self.classes)
        if len(keys) == len(positions) and (positions == np.arange(len(positions))).all():
            return fit
        in_columns: Fit = jax.tree.map(lambda x: x[positions], fit)
        return in_columns

    def _columns(self, scores: Column) -> NDArray[Any]:
        require_class_order(scores, self.classes, "scores")
        return self._with_columns(validation.numbers(scores, "scores"))

    def _with_columns(self, scores: Any) -> Any:
        """Returns an array (N, C); refuses other shapes."""
        if scores.ndim != 2 or scores.shape[1] != len(self.classes):
            raise ValueError(
                f"scores: expected shape (N, {len(self.classes)}), a column per class, "
                f"got {scores.shape}"
            )
        return scores

    def _places(self, some: Column, name: str) -> Integers:
        ordered, positions = ascending(self.classes)
        indices = get_indexer(ordered, ids.read(some, name), name)
        return np.where(indices < 0, -1, np.argsort(positions)[indices])

    def table(self) -> Table:
        """One line per class, as `Fit.table`; of other curves, the columns of these."""
        if self.by_class.curves is None:
            return super().table()
        _, positions = ascending(self.classes)
        by_class = {name: column[positions] for name, column in self.by_class.table().items()}
        return tables.by_class(Table(by_class))

    def _fits(self) -> Fit:
        require_sigmoids(self, "calibrator")
        return self.fit

    @property
    def _curve(self) -> str:
        return self.by_class._curve

    def _inspected(self) -> tuple[Fit, str, NDArray[Any]]:
        return self._in_columns(self.by_class._inspected()[0]), "class", self.classes


def unpooled(
    keys: NDArray[Any], fit: Fit, options: Options, events: tuple[str, ...] = ()
) -> SegmentCalibrator:
    """The calibrator of classes that were fitted each alone, of which none is unseen."""
    unknown = np.full((), np.nan, fit.A.dtype)
    covariance = np.full((2, 2), np.nan, fit.A.dtype)
    none = Sigmoid(unknown, unknown)
    return SegmentCalibrator(keys, fit, none, covariance, events=events, options=options)
