"""Fits by segment."""

from dataclasses import dataclass, field, fields, replace
from html import escape
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.options import Options, Pooling
from platt_jax.results import tables
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.fit import Fit, named_with_part
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.levels import Levels
from platt_jax.results.population import Population
from platt_jax.results.published import published_fits
from platt_jax.results.segment_curves import ShiftedCurves
from platt_jax.results.segment_predictions import PredictsBySegment
from platt_jax.results.sigmoid import Sigmoid, change_of_B
from platt_jax.results.tables import Table
from platt_jax.status import Status

SIZES, ONLY = "sizes", "only"  # events of `SegmentCalibrator.events`
# Fields that calibrators with other curves lack, and what their `Fit` says of predictions.
_SIGMOIDS = "fit", "fallback", "fallback_covariance"
_OF_CURVES = "A", "B", "nll", "gradient", "hessian", "covariance"


@dataclass(frozen=True, repr=False, eq=False)
class SegmentCalibrator(ComparedByValue, PredictsBySegment):
    """One curve per segment, and one of all rows for unseen segments; by default sigmoids.

    `calibrator[segment]` is the Fit of one segment, `segment in calibrator` is whether there is
    one, and `len(calibrator)` is the number of segments.

    Attributes:
        keys: (K,) the segments, ascending; for segments of several columns a structured array with
            a field per column.
        fit: the fits of the segments, in the order of keys. With an estimated population (A, B) is
            the likeliest, given the population, and `covariance` is the posterior's. With the
            population's uncertainty it is usually larger than the inverse Hessian.
        fallback: the sigmoid fitted to all finite rows.
        fallback_covariance: (2, 2), covariance of its (A, B), as `Fit.covariance`; NaN if unknown.
        pooling: the kind of pooling, "none", "partial", "nested", "crossed" or "complete". It is
            also "complete" if no population could be estimated: all segments then have the curve
            of all rows.
        population: the population of the segments with pooling="partial", "nested" or "crossed",
            else None.
        by_level: what is known of each level with pooling="nested" or "crossed", else None;
            `levels` is a summary.
        shift: (K + 1,), what `shift_prior` has added to B of each segment, and last to B of unseen
            segments, since the fit; None for nothing.
        nights: names of the nights by which `update` was called.
        events: what later calls must know of how (A, B) came about. "prior": fitted with a prior,
            or `at_mode` left a population's. "offset": some rows had an offset. "drift": updated
            with a drift. "shifted rows": updated after `shift_prior`. "robust_covariance":
            covariances are sandwiches. "sizes": pooled though curves depend on numbers of rows.
            "only": segments were left out.
        options: how the segments were fitted. Calibrators are compared without it.
        curves: with another curve than the sigmoid, the curves of the segments, and last the curve
            of unseen ones, by which `predict_proba` predicts; else None. Beside them `fit`,
            `fallback` and `fallback_covariance` are an AttributeError; `table()` has the statuses,
            flags and numbers of rows.
    """

    keys: NDArray[Any]
    fit: Fit
    fallback: Sigmoid
    fallback_covariance: NDArray[Any] = field(default_factory=lambda: np.full((2, 2), np.nan))
    pooling: Pooling = "none"
    population: Population | None = None
    by_level: Levels | None = None
    shift: NDArray[Any] | None = None
    nights: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    options: Options = field(default=Options(), compare=False)
    curves: FittedCurves | None = None

    @classmethod
    def from_table(
        cls,
        segments: Column,
        A: Column,
        B: Column,
        *,
        covariance: Column = None,
        n_pos: Column = None,
        n_neg: Column = None,
        options: Options | None = None,
    ) -> Self:
        """A calibrator of curves that someone else fitted, from the columns of their table.

        Predictions, thresholds, exports and tests against the predictions need A and B alone. Bands
        also need the covariance of (A, B). The standard errors of both are not enough, since the
        two depend on each other. Gates and tests against the fit need the numbers of rows, too.
        Unseen segments have no curve: their probabilities are NaN. For `platt_jax.update` a curve
        without a covariance is no information: new rows of its segment replace it.

        Args:
            segments: (K,) distinct ids, as in `fit_segments`.
            A: (K,) minus the slopes of the log-odds. Negate the slopes of software that has
                1 / (1 + exp(-(slope score + intercept))).
            B: (K,) minus the log-odds at score 0.
            covariance: (K, 2, 2), of (A, B); NaN where it is not known. None for none.
            n_pos: (K,) numbers of the rows of class 1 that were fitted; None for 0, not known.
            n_neg: (K,) numbers of the rows of class 0.
            options: how the curves were fitted; None for Platt's targets, as LIBSVM and
                scikit-learn have. `Options(targets="none")` is plain logistic regression.

        Returns:
            A SegmentCalibrator without pooling. The status of a curve is CONVERGED, or NON_FINITE
            if A or B is not finite.

        Raises:
            ValueError: an argument is not as above, or an id occurs twice.

        Example:
            >>> birds = SegmentCalibrator.from_table(["wren", "rook"], [-8.0, -5.0], [6.0, 1.0])
            >>> birds.predict_proba([0.75, 0.75, 0.75], ["wren", "rook", "owl"]).round(3)
            array([0.5 , 0.94,  nan])
            >>> birds.threshold(0.9).round(3)
            array([0.639, 1.025])
        """
        keys, fit = published_fits(segments, A, B, covariance, n_pos, n_neg)
        unknown = np.full((), np.nan, fit.A.dtype)
        options = Options() if options is None else validation.options(options)
        no_errors = np.full((2, 2), unknown)
        return cls(keys, fit, Sigmoid(unknown, unknown), no_errors, options=options)

    def _replaced(self, **changes: Any) -> Self:
        """The calibrator with other fields; `dataclasses.replace` is for sigmoids only."""
        attributes = {x.name: vars(self)[x.name] for x in fields(self)}
        return type(self)(**attributes | changes)

    @property
    def shrinkage(self) -> NDArray[Any] | None:
        """(K,), from 0 (own rows alone) to 1 (population alone); None without a population."""
        return None if self.population is None else self.population.shrinkage

    @property
    def levels(self) -> Table | None:
        """A row per level with pooling="nested" or "crossed"; None otherwise.

        Columns:
            level: name of the column; for nested levels of all columns up to it.
            values: number of values.
            rows_per_value: mean number of rows of a value, weighted.
            slope_sd, intercept_sd: standard deviation of the level's effects on A and on B.
            se_slope_sd, se_intercept_sd: their standard errors; NaN where no spread is seen.
            share: share of the variance of log-odds due to this level, at a typical score.
        """
        return None if self.by_level is None else self.by_level.table()

    def __repr__(self) -> str:
        return "\n  ".join([super().__repr__(), *self._population_lines()])

    def _repr_html_(self) -> str:
        lines = "<br>".join(map(escape, self._population_lines()))
        return super()._repr_html_() + (f"<div>{lines}</div>" if lines else "")

    def _population_lines(self) -> list[str]:
        lines = [] if self.by_level is None else self.by_level.lines()
        status = None if self.population is None else self.population.status
        if status in (Status.MAX_ITERATIONS, Status.NOT_ESTIMATED):
            lines.append(f"population: {status.name}")
        if SIZES in self.events:
            lines.append("population: curves depend on the number of rows")
        return lines

    @property
    def _curve(self) -> str:
        return super()._curve if self.curves is None else f"{self.curves.label} curve"

    def table(self) -> Table:
        """One line per segment, as `Fit.table`; with `curves` the columns of these."""
        if self.curves is None:
            return super().table()
        columns = self.curves.only(np.arange(len(self.keys))).named_columns()
        rows = self._inspected()[0]
        columns["flags"] = tables.texts(np.asarray(rows.flags), tables.flag_names)
        columns |= {"n_pos": np.asarray(rows.n_pos), "n_neg": np.asarray(rows.n_neg)}
        return tables.keyed("segment", self.keys, columns)

    def raise_if_failed(self) -> Self:
        """Returns the calibrator if every fit and the search for the population converged.

        Raises:
            RuntimeError: a fit or that search failed. The message says what to do.
        """
        super().raise_if_failed()
        if self.population is not None and self.population.status == Status.MAX_ITERATIONS:
            raise RuntimeError(f"population: MAX_ITERATIONS. {Status.MAX_ITERATIONS.message}")
        return self

    def only(self, where: Column) -> "SegmentCalibrator":
        """A calibrator with some of the segments. The others become unseen segments.

        So failed, flagged or small segments get the fallback's or the population's probability,
        also after saving and loading.

        Args:
            where: (K,) bool, the segments to keep, in the order of keys.

        Returns:
            A SegmentCalibrator of these segments, with the same fallback.

        Raises:
            ValueError: where is not one bool per segment.

        Example:
            >>> from platt_jax import Flag, fit_segments
            >>> shops = ["a"] * 4 + ["b"] * 2
            >>> calibrator = fit_segments([2.0, -1, 1, 0, 3, 1], [1, 0, 0, 1, 1, 0], shops)
            >>> fit = calibrator.fit
            >>> enough = fit.n_pos + fit.n_neg >= 4
            >>> calibrator.only(enough & fit.converged & (fit.flags & Flag.REVERSED == 0)).keys
            array(['a'], dtype='<U1')
        """
        where = validation.array(where, "where")
        if where.dtype != bool or where.shape != self.keys.shape:
            raise ValueError(
                f"where: expected a bool for each of {self.keys.shape} segments, got "
                f"{where.dtype} of shape {where.shape}"
            )
        fit = jax.tree.map(lambda x: x[where], vars(self)["fit"])
        rows = vars(self)["fit"].n_pos + vars(self)["fit"].n_neg
        population = self.population and self.population.only(where, rows)
        keys = self.keys[where]
        by_level = self.by_level and self.by_level.only(keys)
        shift = None if self.shift is None else self.shift[np.append(where, True)]
        curves = self.curves and self.curves.only(np.append(where, True))
        calibrator = self._replaced(
            keys=keys,
            fit=fit,
            population=population,
            by_level=by_level,
            shift=shift,
            curves=curves,
        )
        return calibrator if where.all() else with_event(calibrator, ONLY)

    def with_segments(self, covariates: Any) -> "SegmentCalibrator":
        """A calibrator with more segments: those of a table of covariates that were not fitted.

        Their curves are what the population promises segments with these covariates, and their
        numbers of rows are 0.

        Args:
            covariates: a table as in `fit_segments`, with the columns that were fitted.

        Raises:
            ValueError: the calibrator has no covariates of a table, or this table lacks a column or
                has a category that was not fitted.

        Example:
            >>> import numpy as np
            >>> from platt_jax import fit_segments
            >>> rng = np.random.default_rng(0)
            >>> shops, scores = np.arange(900) // 30, rng.normal(size=900)
            >>> size = {"segment": np.arange(31), "size": np.arange(31) / 10}
            >>> sold = rng.random(900) < 1 / (1 + np.exp(size["size"][shops] - scores))
            >>> pooled = fit_segments(scores, sold, shops, pooling="partial", covariates=size)
            >>> pooled.predict_proba([0.0, 0.0], 30, covariates=size).shape
            (2,)
            >>> 30 in pooled, 30 in pooled.with_segments(size)
            (False, True)
        """
        from platt_jax.results.new_segments import with_covariates

        return self._replaced(**with_covariates(self, covariates))

    def seen(self, segments: Column) -> NDArray[np.bool_]:
        """Which rows belong to fitted segments: (N,) bool for ids (N,).

        Raises:
            ValueError: an id is missing, or has a type that no key can equal.

        Example:
            >>> from platt_jax import fit_segments
            >>> calibrator = fit_segments([2.0, -1.0], [1, 0], ["a", "a"])
            >>> calibrator.seen(["a", "b", "a"])
            array([ True, False,  True])
        """
        return self._places(segments, "segments") >= 0

    def at_mode(self) -> "SegmentCalibrator":
        """The same calibrator without its population: each segment at its most probable (A, B).

        It needs only two numbers per segment, but is overconfident for segments with few rows: its
        errors take the population as known. Unseen segments get the fallback.

        Example:
            >>> import numpy as np
            >>> from platt_jax import fit_segments
            >>> rng = np.random.default_rng(0)
            >>> shops, scores = np.arange(600) // 6, rng.normal(size=600)
            >>> sold = rng.random(600) < 0.05
            >>> pooled = fit_segments(scores, sold, shops, pooling="partial")
            >>> pooled.at_mode().pooling
            'none'
        """
        if self.population is None or not self.population.estimated:
            return self._replaced(population=None)
        fit = vars(self)["fit"]
        finite = np.isfinite(fit.A)[:, None, None]
        inverse = np.linalg.inv(np.where(finite, fit.hessian, np.eye(2)).astype(np.float64))
        fit = replace(fit, covariance=np.where(finite, inverse, np.nan).astype(fit.A.dtype))
        calibrator = self._replaced(
            fit=fit,
            pooling="none",
            population=None,
            by_level=None,
            options=replace(self.options, targets="none"),
            events=tuple(x for x in self.events if x != SIZES),
        )
        return with_event(calibrator, "prior")

    def shift_prior(self, from_rate: Column, to_rate: Column) -> "SegmentCalibrator":
        """The calibrator for rows with another rate of positives than the fitted rows.

        Use it after undersampling of negatives, or for another population in which the scores of
        each class have the same distribution, as `Sigmoid.shift_prior`. B of every curve changes by
        the difference of the log-odds of the two rates, also of the population and the fallback.
        Covariances, `n_pos`, `n_neg`, flags and the objective stay.

        With a rate per segment, curves of unseen segments change by the mean difference of all
        segments, or with nested levels of the segments of the deepest known value; the spread
        between segments stays as estimated. `docs/howto/base_rate.md` says how to update such a
        calibrator.

        Args:
            from_rate: the share of positives among the fitted rows, in (0, 1): one number, or (K,)
                in the order of keys. If negatives were sampled alike in all segments, one rate of
                all rows serves every segment.
            to_rate: the share where the calibrator will be used, in the same way.

        Raises:
            ValueError: a rate is not between 0 and 1, or there is not one rate per segment.

        Example:
            >>> import numpy as np
            >>> from platt_jax import fit_segments
            >>> rng = np.random.default_rng(0)
            >>> shops, scores = np.arange(600) // 6, rng.normal(size=600)
            >>> pooled = fit_segments(scores, rng.random(600) < 0.5, shops, pooling="partial")
            >>> rarer = pooled.shift_prior(from_rate=0.5, to_rate=0.01)
            >>> pooled.predict_proba([0.0], 0).round(3), rarer.predict_proba([0.0], 0).round(3)
            (array([0.502]), array([0.01]))
        """
        change = change_of_B(from_rate, to_rate, self.keys.shape)
        # Without segments one rate still moves the fallback.
        unseen_change = change.mean() if change.size else 0.0
        change = np.append(np.broadcast_to(change, self.keys.shape), unseen_change)
        old_shift = 0.0 if self.shift is None else self.shift
        return self._moved(change)._replaced(shift=old_shift + change)

    def unshifted(self) -> "SegmentCalibrator":
        """The calibrator before `shift_prior`, for the rate of the fitted rows.

        Raises:
            ValueError: segments of nested levels with different shifts were left out since: the
                curves of the levels' values moved by the mean of all their segments.

        Example:
            >>> from platt_jax import fit_segments
            >>> calibrator = fit_segments([2.0, -1, 1, 0], [1, 0, 1, 0], ["a", "a", "b", "b"])
            >>> rarer = calibrator.shift_prior(from_rate=0.5, to_rate=0.01)
            >>> bool(abs(rarer.unshifted().fit.B - calibrator.fit.B).max() < 1e-12)
            True
        """
        if self.shift is None:
            return self
        nested = self.by_level is not None and self.by_level.kind == "nested"
        if nested and ONLY in self.events and not np.allclose(self.shift, self.shift[-1]):
            raise ValueError(
                "calibrator: expected segments of one shift, or all that were fitted; leave "
                "segments out before shift_prior"
            )
        return self._moved(-self.shift)._replaced(shift=None)

    def _moved(self, change: NDArray[Any]) -> "SegmentCalibrator":
        """The calibrator with changes (K + 1,) added to B of its segments, and of unseen ones."""
        segment_changes, unseen_change = change[:-1], float(change[-1])
        population, by_level = self.population, self.by_level
        if self.curves is not None:  # by which `shift` moves predictions
            return self
        return replace(
            self,
            fit=replace(self.fit, B=self.fit.sigmoid._moved(segment_changes).B),
            fallback=self.fallback._moved(unseen_change),
            population=population and population.moved(segment_changes, unseen_change),
            by_level=by_level and by_level.moved(self.keys, segment_changes, unseen_change),
        )

    def _fits(self) -> Fit:
        require_sigmoids(self, "calibrator")
        return self.fit

    def _inspected(self) -> tuple[Fit, str, NDArray[Any]]:
        if self.curves is None:
            return self.fit, "segment", self.keys
        # Flags and numbers of rows are those of the sigmoids that were fitted beside the curves.
        fit: Fit = vars(self)["fit"]
        unknown = {name: np.full_like(getattr(fit, name), np.nan) for name in _OF_CURVES}
        return replace(fit, status=self.curves.status[:-1], **unknown), "segment", self.keys


class _OfSigmoids:
    """A field of calibrators of sigmoids; beside other curves, which predict, it is refused.

    Files, and flags and numbers of rows, are from the sigmoids that were fitted beside the curves:
    ``vars(calibrator)`` has them.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, calibrator: Any, owner: type | None = None) -> Any:
        if calibrator is None:
            return self
        if (curves := calibrator.curves) is not None:
            raise AttributeError(
                f"{self.name}: expected sigmoids, got a calibrator with {curves.label} curves; "
                "see its `curves`, of which the last is that of unseen segments, and `table()`"
            )
        return vars(calibrator)[self.name]

    def __set__(self, calibrator: Any, value: Any) -> None:
        vars(calibrator)[self.name] = value


for _name in _SIGMOIDS:
    setattr(SegmentCalibrator, _name, _OfSigmoids(_name))


def shift_of(
    calibrator: SegmentCalibrator, keys: NDArray[Any], place: NDArray[Any]
) -> NDArray[Any]:
    """What `shift_prior` added to B of these segments (n,), at their places among the fitted.

    A segment that was not fitted has place -1.
    """
    if calibrator.shift is None:
        return np.zeros(len(place))
    shift: NDArray[Any] = calibrator.shift[place]
    if calibrator.by_level is not None and (unseen := place < 0).any():
        unshifted: Any = calibrator.unshifted().by_level
        shifted, original = (x.curves(keys[unseen])[0] for x in (calibrator.by_level, unshifted))
        shift[unseen] = shifted[:, 1] - original[:, 1]
    return shift


def with_event(calibrator: SegmentCalibrator, event: str) -> SegmentCalibrator:
    """The calibrator with one more event in its events."""
    events = dict.fromkeys((*calibrator.events, event))
    return calibrator._replaced(events=tuple(events))


def with_posterior_covariance(fit: Fit, population: Population | None) -> Fit:
    """The fit of segments (K,) with the covariance of their posteriors.

    The inverse Hessian takes the population as known: near a boundary it may be far too small.
    """
    if population is None or not population.estimated:
        return fit
    finite = np.isfinite(fit.A)[:, None, None]
    covariance = np.where(finite, population.posterior_covariance, np.nan)
    return replace(fit, covariance=covariance.astype(fit.covariance.dtype))


def parameters(calibrator: SegmentCalibrator) -> NDArray[np.float64]:
    """What probabilities depend on, for each segment and last for an unseen one.

    It is `SegmentCalibrator.predictive`, (K + 1, 5); without a population (K + 1, 2), A and B.
    """
    normal = calibrator.predictive()
    if normal is not None:
        return normal
    fit, fallback = calibrator.fit, calibrator.fallback
    pairs = (fit.A, fallback.A), (fit.B, fallback.B)
    return np.column_stack([np.append(*pair) for pair in pairs]).astype(np.float64)


def pooled_proba(calibrator: SegmentCalibrator, scores: NDArray[Any]) -> NDArray[Any]:
    """P(y=1) of scores (N,) by the curve of all fitted rows; NaN for classes, which have none."""
    if calibrator.curves is None:
        return calibrator.fallback.predict_proba(scores)
    unseen = np.full(len(scores), -1)
    return ShiftedCurves(calibrator.curves, calibrator.shift).proba(scores, unseen, None)


def require_segment_calibrator(value: object, name: str, *, any_curve: bool = False) -> None:
    """Refuses anything but a SegmentCalibrator, and other curves than sigmoids if not any."""
    if not isinstance(value, SegmentCalibrator):
        raise ValueError(f"{name}: expected a SegmentCalibrator, got {named_with_part(value)}")
    if not any_curve:
        require_sigmoids(value, name)


def require_sigmoids(value: object, name: str) -> None:
    """Refuses a calibrator that predicts by other curves than sigmoids."""
    curves = getattr(getattr(value, "by_class", value), "curves", None)
    if isinstance(curves, FittedCurves):
        raise ValueError(f"{name}: expected sigmoids, got a calibrator with {curves.label} curves")
