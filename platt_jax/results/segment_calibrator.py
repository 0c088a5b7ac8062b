"""Fits by segment, and predictions for rows of many segments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import columns, ids, validation
from platt_jax.arrays import Integers
from platt_jax.backend import accelerators
from platt_jax.backend.threads import ordered_map, row_slices
from platt_jax.columns import Column
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer, indexer
from platt_jax.ids.vocabulary import distinct
from platt_jax.options import Options, Pooling
from platt_jax.results import tables
from platt_jax.results.averages import mean_probability
from platt_jax.results.by_id import ById
from platt_jax.results.curve_thresholds import curve_thresholds
from platt_jax.results.device_rows import band_by_segment, proba_by_segment
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.fit import Fit, named_with_part
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.levels import Levels
from platt_jax.results.population import Population
from platt_jax.results.probabilities import (
    UPPER,
    band,
    critical_value,
    expit,
    normal_parameters,
    variance_of_logit,
    with_offset,
)
from platt_jax.results.published import published_fits
from platt_jax.results.sigmoid import Sigmoid, change_of_B
from platt_jax.results.tables import Table
from platt_jax.results.thresholds import (
    Thresholds,
    mean_thresholds,
    sigmoid_thresholds,
    status_names,
    target_log_odds,
)
from platt_jax.status import Status

# Rows per step of a prediction, few enough to stay in the cache.
_PREDICTED_AT_ONCE = 1 << 15


@dataclass(frozen=True, repr=False, eq=False)
class SegmentCalibrator(ComparedByValue, ById):
    """One sigmoid per segment, and a sigmoid of all rows for unseen segments.

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
        options: how the segments were fitted. Calibrators are compared without it.
        curves: with another curve than the sigmoid, the curves of the segments, and last the curve
            of unseen ones, by which `predict_proba` predicts; else None. The sigmoids `fit` are
            fitted beside them, for comparison, counts and flags.
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
            n_neg: (K,) those of class 0.

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
        return cls(keys, fit, Sigmoid(unknown, unknown), np.full((2, 2), np.nan, fit.A.dtype))

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
        if self.curves is not None:
            lines.append(f"curves: {self.curves.label}")
        return lines

    def table(self) -> Table:
        """One line per segment, as `Fit.table`; with `curves` the columns of these."""
        if self.curves is None:
            return super().table()
        own = self.curves.only(np.arange(len(self.keys)))
        columns = own.columns()
        columns["status"] = tables.texts(own.status, lambda code: Status(code).name)
        columns["monotone"] = own.is_monotone
        columns |= {"n_pos": np.asarray(self.fit.n_pos), "n_neg": np.asarray(self.fit.n_neg)}
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
        fit = jax.tree.map(lambda x: x[where], self.fit)
        population = self.population and self.population.only(where)
        keys = self.keys[where]
        by_level = self.by_level and self.by_level.only(keys)
        shift = None if self.shift is None else self.shift[np.append(where, True)]
        curves = self.curves and self.curves.only(np.append(where, True))
        return replace(
            self,
            keys=keys,
            fit=fit,
            population=population,
            by_level=by_level,
            shift=shift,
            curves=curves,
        )

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

    def predict_proba(
        self, scores: Column, segments: Column = None, *, offset: Column | None = None
    ) -> NDArray[Any]:
        """P(y=1) for each row by the curve of its segment.

        With a population this is the posterior predictive probability: the mean of the sigmoid over
        the posterior distribution of the segment's (A, B), taken as normal. A sigmoid at a single
        (A, B), which `at_mode` uses, would be overconfident: with rare positives and few rows, half
        of the probability comes from curves above it.

        Args:
            scores: (N,) floating.
            segments: (N,) ids as in `fit_segments`, or one id for all. Segments not among keys get
                the probability of a random segment of the population, given what the levels say of
                its values; or the fallback's if there is no population.
            offset: (N,) log-odds that are added to the row's, or one for all, as in `fit_segments`;
                with a population inside the mean over (A, B).

        Returns:
            (N,) in [0, 1]; NaN for segments whose fit is NON_FINITE or EMPTY. A JAX array if the
            scores are on a GPU, as in `fit`; ids may then be integers there, or any ids on the
            host.

        Raises:
            ValueError: the two lengths differ, or an id is missing or has a type that no key can
                equal: text among numbers, 1.5 among integers.
        """
        validation.require_each(scores, segments=segments)
        if self.curves is not None:
            return self._by_row(self._curve_proba, 1, scores, segments, offset)[0]
        A, B = self._with_fallback((self.fit.A, self.fallback.A), (self.fit.B, self.fallback.B))
        if accelerators.holds(scores):
            self._require_no_levels()
            normal = self.predictive()
            on_device: Any = proba_by_segment(self.keys, (A, B), normal, scores, segments, offset)
            return on_device

        def proba(f: NDArray[Any], which: Integers, normal: Any, offset: Any) -> list[NDArray[Any]]:
            if normal is None:
                return [expit(with_offset(-(A[which] * f + B[which]), offset))]
            row_parameters = normal.take(which, axis=0)
            if offset is not None:
                row_parameters[:, 1] -= offset
            return [mean_probability(f, row_parameters)]

        return self._by_row(proba, 1, scores, segments, offset)[0]

    def band(
        self,
        scores: Column,
        segments: Column = None,
        level: float = 0.95,
        simultaneous: bool = False,
        *,
        offset: Column | None = None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """A confidence band for each row's P(y=1), as `Fit.band`.

        Unseen segments get the band of a random segment of the population, given what the levels
        say of its values. Without a population they get the fallback's band, which shows how well
        the pooled rows determine the fallback, not how far such a segment may be from it.

        Args:
            scores: (N,) as in `predict_proba`.
            segments: (N,) ids, or one id for all, as in `predict_proba`.
            level: the confidence level, as in `Fit.band`.
            simultaneous: whether the level holds at all scores of a segment at once.
            offset: (N,) as in `predict_proba`, taken as known.

        Returns:
            Lower and upper probabilities, each (N,). NaN as in `Fit.band`, and for unseen segments
            if the calibrator was saved before files had `fallback_covariance`. JAX arrays if the
            scores are on a GPU, as in `predict_proba`.

        Raises:
            ValueError: the level is not between 0 and 1; or see `predict_proba`.
        """
        validation.require_each(scores, segments=segments)
        critical = critical_value(level, simultaneous)
        if (other := self.curves) is not None:
            if simultaneous:
                raise ValueError(f"simultaneous: expected False for {other.label} curves")

            def curve_band(
                f: NDArray[Any], which: Integers, _: Any, offset: Any
            ) -> tuple[NDArray[Any], NDArray[Any]]:
                which = np.where(which < 0, len(self.keys), which)
                log_odds = self._curve_log_odds(f, which, offset)
                return band(log_odds, other.variance(f, which), critical)

            lower, upper = self._by_row(curve_band, 2, scores, segments, offset)
            return lower, upper
        predictive = self.predictive()
        if predictive is None:
            covariances, fallback_covariance = self.fit.covariance, self.fallback_covariance
            A, B, *covariance = self._with_fallback(
                (self.fit.A, self.fallback.A),
                (self.fit.B, self.fallback.B),
                *((covariances[:, i, j], fallback_covariance[i, j]) for i, j in UPPER),
            )
            curves = np.column_stack([A, B, *covariance])
        if accelerators.holds(scores) and self.by_level is None:
            normal = curves if predictive is None else predictive
            rows = scores, segments, offset
            on_device: Any = band_by_segment(self.keys, self.fit.A, normal, critical, *rows)
            return on_device

        def both(
            f: NDArray[Any], which: Integers, normal: Any, offset: Any
        ) -> tuple[NDArray[Any], NDArray[Any]]:
            A, B, *covariance = (curves if normal is None else normal).T
            variance = variance_of_logit(f, *(x[which] for x in covariance))
            return band(with_offset(-(A[which] * f + B[which]), offset), variance, critical)

        lower, upper = self._by_row(both, 2, scores, segments, offset)
        return lower, upper

    def threshold(
        self,
        probability: Column = None,
        segments: Column = None,
        *,
        level: float | None = None,
        cost: tuple[Column, Column] | None = None,
        offset: Column | None = None,
    ) -> NDArray[np.float64]:
        """The score at which `predict_proba` reaches a probability: the threshold of a decision.

        With a population `predict_proba` is a mean over (A, B), which is nearer to one half than
        the likeliest curve: ``fit.sigmoid.inverse`` is not where it reaches the probability. The
        mean is inverted by Newton's method between bounds. For scores far from the fitted ones it
        tends to Phi(-A / sd A), with the mean of A and its standard deviation, and may rise above
        that before (see `mean_probability`, from which this follows for infinite scores).

        If both kinds of mistake have a cost, the total is smallest if a row is taken as class 1
        from the probability ``false_positive / (false_positive + false_negative)`` on (Elkan 2001,
        "The Foundations of Cost-Sensitive Learning", equation 2).

        Args:
            probability: the probability to reach, one or (n,), in [0, 1].
            segments: (n,) ids as in `predict_proba`, or one id; None for all, in the order of keys.
            level: the confidence level of a `band` whose lower end is to reach the probability.
                None for the prediction itself.
            cost: in place of the probability, the costs above 0 of a false positive and of a false
                negative; numbers or (n,).
            offset: (n,) log-odds that are added to the rows', or one for all, as in
                `predict_proba`.

        Returns:
            (n,) float64 scores. Higher scores have higher probabilities, or lower scores do if the
            curve falls (A > 0); `threshold_table` says which. If no score has the probability, the
            threshold is infinite: scores beyond it are then none, or all. NaN where there is no
            curve, and where a curve that is no sigmoid falls somewhere. Of isotonic curves, bins
            and Venn-Abers predictors it is the smallest score with the probability or a higher one.

        Raises:
            ValueError: an argument is not as above; both probability and cost are given, or
                neither; `level` is given and the curves have no band.

        Example:
            >>> import numpy as np
            >>> from platt_jax import fit_segments
            >>> rng = np.random.default_rng(0)
            >>> shops, scores = np.arange(900) // 30, rng.normal(size=900)
            >>> sold = rng.random(900) < 1 / (1 + np.exp(1 - 2 * scores))
            >>> pooled = fit_segments(scores, sold, shops, pooling="partial")
            >>> at = pooled.threshold(0.8, [3, 4])
            >>> pooled.predict_proba(at, [3, 4]).round(6)
            array([0.8, 0.8])
            >>> bool((pooled.threshold(0.8, [3, 4], level=0.9) > at).all())
            True
        """
        return self._thresholds(probability, segments, level, cost, offset).at

    def threshold_table(
        self,
        probability: Column = None,
        segments: Column = None,
        *,
        level: float | None = None,
        cost: tuple[Column, Column] | None = None,
        offset: Column | None = None,
    ) -> Table:
        """Thresholds as a table, with intervals and statuses; arguments as of `threshold`.

        Returns:
            A Table with a line for each threshold and the columns

            - `segment`, or one column for each of its several columns;
            - `threshold`, the score by `threshold`;
            - `lower` and `upper`, an interval for the score at which the true curve reaches the
              probability, of this level, or of 95 % if it is None: the score at which the
              prediction reaches it, plus and minus so many standard errors by the delta method,
              as `Fit.inverse_standard_error`. It is too short where the slope is uncertain; NaN for
              curves without standard errors;
            - `direction`: "above" if scores from the threshold on have higher probabilities,
              "below" if the curve falls;
            - `status`: OK; UNREACHED, no score has so high a probability; EXCEEDED, every score has
              a higher one; NOT_MONOTONE, a curve that is no sigmoid falls somewhere; NON_FINITE,
              there is no curve.

        Raises:
            ValueError: see `threshold`.

        Example:
            >>> from platt_jax import fit_segments
            >>> scores, sold = [2.0, -1, 1, 0, 3, 1, 0, 2], [1, 0, 0, 1, 1, 0, 0, 1]
            >>> calibrator = fit_segments(scores, sold, ["a"] * 4 + ["b"] * 4)
            >>> table = calibrator.threshold_table(0.5)
            >>> table["threshold"].round(2).tolist(), table["status"].tolist()
            ([0.5, 1.5], ['OK', 'OK'])
        """
        found = self._thresholds(probability, segments, level, cost, offset)
        middle = found
        if level is not None:
            middle = self._thresholds(probability, segments, None, cost, offset)
        with np.errstate(invalid="ignore"):
            reach = critical_value(0.95 if level is None else level, False) * middle.error
            ends = middle.at - reach, middle.at + reach
        if segments is None:
            names = self.keys
        else:
            codes, each = distinct(ids.read_like(self.keys, segments, len(found.at)))
            names = each[codes]
        return tables.keyed(
            "segment",
            names,
            {
                "threshold": found.at,
                "lower": ends[0],
                "upper": ends[1],
                "direction": np.where(found.rising > 0, "above", "below"),
                "status": status_names(found.status),
            },
        )

    def _thresholds(
        self, probability: Column, segments: Column, level: Any, cost: Any, offset: Column | None
    ) -> Thresholds:
        target = target_log_odds(probability, cost)
        critical = None if level is None else critical_value(level, False)
        number = len(self.keys)
        if segments is None:
            segments = self.keys
        else:
            number = ids.number_like(self.keys, segments)
        if number == 1 and target.ndim:
            number = len(target)
        target = validation.broadcast(target, (number,), "probability", of="segments")
        if self.curves is None:
            A, B, *covariance = self._with_fallback(
                (self.fit.A, self.fallback.A),
                (self.fit.B, self.fallback.B),
                *((self.fit.covariance[:, i, j], self.fallback_covariance[i, j]) for i, j in UPPER),
            )
            alone = np.column_stack([A, B, *covariance])

        def some(t: NDArray[Any], which: Integers, normal: Any, offset: Any) -> Thresholds:
            if self.curves is not None:
                which = np.where(which < 0, len(self.keys), which)
                moved = 0.0 if self.shift is None else self.shift[which]
                t = t + moved - (0.0 if offset is None else offset)
                return curve_thresholds(self.curves, t, which, critical)
            A, B, *entries = (alone if normal is None else normal)[which].T
            A, B = A.astype(np.float64), B.astype(np.float64)
            B, covariance = B if offset is None else B - offset, np.stack(entries)
            if normal is None and critical is None:
                return sigmoid_thresholds(t, A, B, covariance)
            return mean_thresholds(t, A, B, covariance, critical)

        return Thresholds(*self._by_row(some, 4, target, segments, offset))

    def predictive(self) -> NDArray[np.float64] | None:
        """The posterior of each segment's (A, B) with a population; None without one.

        Returns:
            (K + 1, 5), the means of A and B, and the entries AA, AB and BB of their covariance, for
            each segment and last for an unseen one. NaN where the fit is NaN.
        """
        population = self.population
        if population is None or not population.estimated:
            return None
        mean = np.vstack([population.posterior_mean, population.predictive_mean])
        covariance = np.concatenate(
            [population.posterior_covariance, population.predictive_covariance[None]]
        )
        normal = normal_parameters(mean, covariance)
        normal[:-1][~np.isfinite(self.fit.A)] = np.nan
        return normal

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
        fit = self.fit
        if self.population is not None and self.population.estimated:
            known = np.isfinite(fit.A)[:, None, None]
            inverse = np.linalg.inv(np.where(known, fit.hessian, np.eye(2)).astype(np.float64))
            fit = replace(fit, covariance=np.where(known, inverse, np.nan).astype(fit.A.dtype))
        return replace(self, fit=fit, pooling="none", population=None, by_level=None)

    def shift_prior(self, from_rate: Column, to_rate: Column) -> "SegmentCalibrator":
        """The calibrator for rows with another rate of positives than the fitted rows.

        Use it after undersampling of negatives, or for another population in which the scores of
        each class have the same distribution, as `Sigmoid.shift_prior`. B of every curve changes by
        the difference of the log-odds of the two rates: of segments, their posteriors, the
        population, its levels, and the fallback. Covariances stay, because the change is taken as
        known. So do `n_pos`, `n_neg`, flags and the objective, which describe the fitted rows.

        With a population the distribution of B moves by exactly this difference, and a probability
        is the mean over it. So the odds of that mean do not change by exactly the ratio of the
        rates' odds.

        With a rate per segment, curves of unseen segments change by the mean difference of all
        segments, or with nested levels of the segments of the deepest known value; the spread
        between segments stays as estimated. `update` then takes the segments as a sample of the
        shifted population. To keep the segments comparable, update the calibrator before the shift,
        with the difference of log-odds as the offset of the new rows, and shift the result.

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
        before = 0.0 if self.shift is None else self.shift
        return replace(self._moved(change), shift=before + change)

    def unshifted(self) -> "SegmentCalibrator":
        """The calibrator before `shift_prior`, for the rate of the fitted rows.

        Example:
            >>> from platt_jax import fit_segments
            >>> calibrator = fit_segments([2.0, -1, 1, 0], [1, 0, 1, 0], ["a", "a", "b", "b"])
            >>> rarer = calibrator.shift_prior(from_rate=0.5, to_rate=0.01)
            >>> bool(abs(rarer.unshifted().fit.B - calibrator.fit.B).max() < 1e-12)
            True
        """
        return self if self.shift is None else replace(self._moved(-self.shift), shift=None)

    def _moved(self, change: NDArray[Any]) -> "SegmentCalibrator":
        """The calibrator with changes (K + 1,) added to B of its segments, and of unseen ones."""
        segment_changes, unseen_change = change[:-1], float(change[-1])
        population, by_level = self.population, self.by_level
        return replace(
            self,
            fit=replace(self.fit, B=self.fit.sigmoid._moved(segment_changes).B),
            fallback=self.fallback._moved(unseen_change),
            population=population and population.moved(segment_changes, unseen_change),
            by_level=by_level and by_level.moved(self.keys, segment_changes, unseen_change),
        )

    def _curve_proba(
        self, f: NDArray[Any], which: Integers, _: Any, offset: Any
    ) -> list[NDArray[Any]]:
        """The probabilities by `curves`, as a function for `_by_row`."""
        curves: Any = self.curves
        which = np.where(which < 0, len(self.keys), which)
        if offset is None and self.shift is None:
            return [curves.proba(f, which)]
        return [expit(self._curve_log_odds(f, which, offset))]

    def _curve_log_odds(self, f: NDArray[Any], which: Integers, offset: Any) -> NDArray[Any]:
        curves: Any = self.curves
        log_odds = curves.log_odds(f, which)
        if self.shift is not None:
            log_odds = log_odds - self.shift[which]
        return np.asarray(with_offset(log_odds, offset))

    @staticmethod
    def _with_fallback(*pairs: tuple[Any, Any]) -> list[NDArray[Any]]:
        """Numbers of the segments (K,), each followed by the fallback's number, at index -1."""
        fetched = accelerators.fetched(pairs)
        return [np.append(each, np.asarray(pooled, each.dtype)) for each, pooled in fetched]

    def _by_row(
        self,
        function: Callable[..., Sequence[NDArray[Any]]],
        results: int,
        scores: Column,
        segments: Column,
        offset: Column | None,
    ) -> tuple[NDArray[Any], ...]:
        """The results, so many arrays, of a function of scores, places and `predictive`.

        It takes scores and places of some rows, the distributions of curves at these places (None
        without a population), and offsets (or None). Without levels the places are those among the
        keys, -1 if not a key.
        """
        scores = validation.numbers(scores, "scores")
        validation.require_flat(scores, "scores")
        name = columns.labelled("segments", segments)
        segments = ids.read_like(self.keys, segments, len(scores))
        normal, find = self._located(segments, name)
        dtype = np.result_type(scores.dtype, self.fit.A.dtype)
        if offset is not None:
            offset = validation.broadcast(
                validation.numbers(offset, "offset"), scores.shape, "offset"
            )
        made = tuple(np.empty(len(scores), dtype) for _ in range(results))

        def fill(piece: slice) -> None:
            for start in range(piece.start, piece.stop, _PREDICTED_AT_ONCE):
                rows = slice(start, min(start + _PREDICTED_AT_ONCE, piece.stop))
                mine = None if offset is None else offset[rows]
                found = function(scores[rows], find(rows), normal, mine)
                for whole, part in zip(made, found, strict=True):
                    whole[rows] = part

        list(ordered_map(fill, row_slices(len(scores))))
        return made

    def _located(
        self, segments: ids.Ids, name: str
    ) -> tuple[NDArray[np.float64] | None, Callable[[slice], Integers]]:
        """`predictive`, and a function that maps a slice of the rows to places in it.

        With levels, unseen segments get places after all others.
        """
        normal = self.predictive()
        if self.by_level is None or normal is None:
            return normal, indexer(self.keys, segments, name)
        codes, each = distinct(segments)
        places = get_indexer(self.keys, split_columns(each), name)
        new = np.flatnonzero(places < 0)
        places[new] = len(normal) + np.arange(len(new))
        mean, covariance = self.by_level.curves(each[new])
        normal = np.vstack([normal, normal_parameters(mean, covariance)])
        return normal, lambda rows: places[codes[rows]]

    def _require_no_levels(self) -> None:
        if self.by_level is not None:
            raise ValueError(
                "scores: expected an array on the host if the calibrator has levels, whose "
                "probabilities are computed there"
            )

    def _fits(self) -> Fit:
        require_sigmoids(self, "calibrator")
        return self.fit

    def _inspected(self) -> tuple[Fit, str, NDArray[Any]]:
        fit = self.fit
        if self.curves is not None:  # whose ends count
            fit = replace(fit, status=self.curves.status[:-1])
        return fit, "segment", self.keys


def with_posterior_covariance(fit: Fit, population: Population | None) -> Fit:
    """The fit of segments (K,) with the covariance of their posteriors.

    The inverse Hessian takes the population as known: near a boundary it may be far too small.
    """
    if population is None or not population.estimated:
        return fit
    known = np.isfinite(fit.A)[:, None, None]
    covariance = np.where(known, population.posterior_covariance, np.nan)
    return replace(fit, covariance=covariance.astype(fit.covariance.dtype))


def parameters(calibrator: SegmentCalibrator) -> NDArray[np.float64]:
    """What probabilities depend on, for each segment and last for an unseen one.

    Returns:
        `SegmentCalibrator.predictive`, (K + 1, 5); without a population (K + 1, 2), A and B.
    """
    normal = calibrator.predictive()
    if normal is not None:
        return normal
    fit, fallback = calibrator.fit, calibrator.fallback
    pairs = (fit.A, fallback.A), (fit.B, fallback.B)
    return np.column_stack([np.append(*pair) for pair in pairs]).astype(np.float64)


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
