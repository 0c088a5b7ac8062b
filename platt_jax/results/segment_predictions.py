"""Predictions for rows of many segments, and the scores at which these reach a probability."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import columns, ids, validation
from platt_jax.arrays import Integers
from platt_jax.backend import accelerators
from platt_jax.backend.threads import ordered_map, row_slices
from platt_jax.columns import Column, takes_columns
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer, indexer
from platt_jax.ids.vocabulary import distinct
from platt_jax.results import tables
from platt_jax.results.by_id import ById
from platt_jax.results.device_rows import band_by_segment, proba_by_segment
from platt_jax.results.fit import Fit, warn_if_unlike
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.levels import Levels
from platt_jax.results.population import Population
from platt_jax.results.probabilities import critical_value, normal_parameters
from platt_jax.results.ragged_curves import VennAbersCurves
from platt_jax.results.segment_curves import (
    PosteriorSigmoids,
    SegmentCurves,
    SegmentSigmoids,
    ShiftedCurves,
)
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.results.tables import Table
from platt_jax.results.thresholds import Thresholds, status_names, target_log_odds

# Rows per step of a prediction, few enough to stay in the cache.
_PREDICTED_AT_ONCE = 1 << 15


class PredictsBySegment(ById):
    """Methods of a `SegmentCalibrator` that say something of rows; fields are described there."""

    keys: NDArray[Any]
    fit: Fit
    fallback: Sigmoid
    fallback_covariance: NDArray[Any]
    population: Population | None
    by_level: Levels | None
    shift: NDArray[Any] | None
    curves: FittedCurves | None

    def with_segments(self, covariates: Any) -> "PredictsBySegment":
        """See `SegmentCalibrator`."""
        raise NotImplementedError

    @takes_columns
    def predict_proba(
        self,
        scores: Column,
        segments: Column = None,
        *,
        offset: Column | None = None,
        covariates: Any = None,
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
            covariates: a table as in `fit_segments`, of segments that were not fitted: they are
                predicted as by `with_segments`. Without it, nothing is known of them.

        Returns:
            (N,) in [0, 1]; NaN for segments whose fit is NON_FINITE or EMPTY. A JAX array if the
            scores are on a GPU, as in `fit`; ids may then be integers there, or any ids on the
            host.

        Raises:
            ValueError: the two lengths differ, or an id is missing or has a type that no key can
                equal: text among numbers, 1.5 among integers.
        """
        if covariates is not None:
            return self.with_segments(covariates).predict_proba(scores, segments, offset=offset)
        validation.require_each(scores, segments=segments)
        if self.curves is None and accelerators.holds(scores):
            keys, numbers, segments = self._numbered(scores, segments, errors=False)
            rows = scores, segments, offset
            on_device: Any = proba_by_segment(keys, self.fit.A, numbers, *rows)
            return on_device

        def proba(curves: SegmentCurves, f: Any, places: Integers, offset: Any) -> Any:
            return [curves.proba(f, places, offset)]

        scores, curves = validation.plain(scores), self._segment_curves(errors=False)
        (p,) = self._by_row(curves, proba, 1, scores, segments, offset)
        warn_if_unlike(scores, p, self._fitted_scores)
        return p

    @cached_property
    def _fitted_scores(self) -> validation.FittedScores:
        attributes = vars(self)  # of sigmoids that were fitted beside other curves, too
        fit, covariance = attributes["fit"], attributes["fallback_covariance"]
        return validation.FittedScores.of(covariance, (fit.n_pos, fit.n_neg))

    @takes_columns
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
        if self.curves is not None and simultaneous:
            raise ValueError(f"simultaneous: expected False for {self.curves.label} curves")
        if self.curves is None and accelerators.holds(scores):
            keys, numbers, segments = self._numbered(scores, segments)
            rows = scores, segments, offset
            on_device: Any = band_by_segment(keys, self.fit.A, numbers, critical, *rows)
            return on_device

        def band(curves: SegmentCurves, f: Any, places: Integers, offset: Any) -> Any:
            return curves.band(f, places, offset, critical)

        lower, upper = self._by_row(self._segment_curves(), band, 2, scores, segments, offset)
        return lower, upper

    @takes_columns
    def bounds(
        self, scores: Column, segments: Column = None, *, offset: Column | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The two probabilities of each row by Venn-Abers predictors, of which one is calibrated.

        p0 is the isotonic fit of the segment's rows and this row with label 0, at this row; p1 is
        the same with label 1. If the rows are exchangeable, the probability by the row's own label
        is calibrated, for any distribution of scores (Vovk, Petej & Fedorova 2015, theorem 1).
        `predict_proba` lies between the two. With few rows the two are far apart.

        Args:
            scores: (N,) as in `predict_proba`.
            segments: (N,) ids, or one id for all, as in `predict_proba`.
            offset: (N,) as in `predict_proba`. After an offset or `shift_prior` neither is
                calibrated of itself.

        Returns:
            p0 and p1, each (N,), p0 <= p1. NaN where `predict_proba` is.

        Raises:
            ValueError: the curves are no Venn-Abers predictors; or see `predict_proba`.

        Example:
            >>> from platt_jax import fit_segments
            >>> rows = [1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1], ["a"] * 4
            >>> p0, p1 = fit_segments(*rows, curve="venn_abers").bounds([2.5], "a")
            >>> p0.round(4), p1.round(4)
            (array([0.3333]), array([0.6667]))
        """
        if not isinstance(self.curves, VennAbersCurves):
            kind = "sigmoids" if self.curves is None else f"{self.curves.label} curves"
            raise ValueError(f"calibrator: expected Venn-Abers predictors for bounds, got {kind}")

        def bounds(curves: ShiftedCurves, f: Any, places: Integers, offset: Any) -> Any:
            return curves.bounds(f, places, offset)

        p0, p1 = self._by_row(self._segment_curves(), bounds, 2, scores, segments, offset)
        return p0, p1

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
        the likeliest curve: ``fit.sigmoid.inverse`` is not where it reaches the probability. For
        scores far from the fitted ones it has a limit below 1 (`docs/howto/decide.md`).

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
        return self._thresholds(level, probability, segments, cost, offset).at

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
        arguments = probability, segments, cost, offset
        thresholds = self._thresholds(level, *arguments)
        middle = thresholds if level is None else self._thresholds(None, *arguments)
        with np.errstate(invalid="ignore"):
            reach = critical_value(0.95 if level is None else level, False) * middle.error
            ends = middle.at - reach, middle.at + reach
        columns = {
            "threshold": thresholds.at,
            "lower": ends[0],
            "upper": ends[1],
            "direction": np.where(thresholds.rising > 0, "above", "below"),
            "status": status_names(thresholds.status),
        }
        if segments is None:
            return tables.keyed("segment", self.keys, columns)
        codes, unique = distinct(ids.read_like(self.keys, segments, len(thresholds.at)))
        return tables.keyed("segment", unique[codes], columns)

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

    @property
    def _dtype(self) -> np.dtype[Any]:
        numbers: Any = self.fit.A if self.curves is None else self.curves.low
        return np.dtype(numbers.dtype)

    @takes_columns
    def _thresholds(
        self,
        level: float | None,
        probability: Column,
        segments: Column,
        cost: tuple[Column, Column] | None,
        offset: Column | None,
    ) -> Thresholds:
        target = target_log_odds(probability, cost)
        critical = None if level is None else critical_value(level, False)
        number = len(self.keys) if segments is None else ids.number_like(self.keys, segments)
        if number == 1 and target.ndim:
            number = len(target)
        target = validation.broadcast(target, (number,), "probability", of="segments")
        segments = self.keys if segments is None else segments

        def thresholds(curves: SegmentCurves, f: Any, places: Integers, offset: Any) -> Any:
            return curves.thresholds(f, places, offset, critical)

        curves = self._segment_curves()
        return Thresholds(*self._by_row(curves, thresholds, 4, target, segments, offset))

    def _segment_curves(self, *, errors: bool = True) -> SegmentCurves:
        """The curves by which rows are predicted; with covariances, unless without errors."""
        if self.curves is not None:
            return ShiftedCurves(self.curves, self.shift)
        return self._sigmoids(errors=errors)

    def _sigmoids(self, *, errors: bool = True) -> SegmentSigmoids:
        normal = self.predictive()
        if normal is not None:
            return PosteriorSigmoids(normal)
        covariance = self.fallback_covariance if errors else None
        return SegmentSigmoids.joined(self.fit, self.fallback, covariance)

    def _by_row(
        self,
        curves: SegmentCurves,
        function: Callable[..., Sequence[NDArray[Any]]],
        results: int,
        scores: Column,
        segments: Column,
        offset: Column | None,
    ) -> tuple[NDArray[Any], ...]:
        """The results, so many arrays, of a function of curves, scores, places and offsets.

        It is called with some rows at a time, as `SegmentCurves.proba`.
        """
        scores = validation.numbers(scores, "scores")
        validation.require_flat(scores, "scores")
        name = columns.labelled("segments", segments)
        segments = ids.read_like(self.keys, segments, len(scores))
        curves, find = self._located(curves, segments, name)
        dtype = np.result_type(scores.dtype, self._dtype)
        if offset is not None:
            offset = validation.broadcast(
                validation.numbers(offset, "offset"), scores.shape, "offset"
            )
        outputs = tuple(np.empty(len(scores), dtype) for _ in range(results))

        def fill(piece: slice) -> None:
            for start in range(piece.start, piece.stop, _PREDICTED_AT_ONCE):
                rows = slice(start, min(start + _PREDICTED_AT_ONCE, piece.stop))
                row_offset = None if offset is None else offset[rows]
                parts = function(curves, scores[rows], find(rows), row_offset)
                for output, part in zip(outputs, parts, strict=True):
                    output[rows] = part

        list(ordered_map(fill, row_slices(len(scores))))
        return outputs

    def _numbered(
        self, scores: Any, segments: Column, *, errors: bool = True
    ) -> tuple[NDArray[Any], NDArray[Any], Column]:
        """Keys, the curves' numbers, and the ids of rows on a device.

        With levels, where ids have several columns, these are places among the curves.
        """
        curves = self._sigmoids(errors=errors)
        if self.by_level is None:
            return self.keys, curves.numbers, segments
        row_ids = ids.read_like(self.keys, segments, len(scores))
        located: Any
        located, find = self._located(curves, row_ids, "segments")
        number = len(located.numbers)
        # The last curve is of unseen places, of which there are none.
        numbers = np.vstack([located.numbers, located.numbers[-1:]])
        return np.arange(number), numbers, find(slice(None))

    def _located(
        self, curves: SegmentCurves, segments: ids.Ids, name: str
    ) -> tuple[SegmentCurves, Callable[[slice], Integers]]:
        """The curves, and a function that maps a slice of the rows to places among them.

        With levels, unseen segments have curves of their own, after all others.
        """
        if self.by_level is None or not isinstance(curves, PosteriorSigmoids):
            return curves, indexer(self.keys, segments, name)
        codes, unique = distinct(segments)
        places = get_indexer(self.keys, split_columns(unique), name)
        unseen = np.flatnonzero(places < 0)
        places[unseen] = len(curves.numbers) + np.arange(len(unseen))
        mean, covariance = self.by_level.curves(unique[unseen])
        numbers = np.vstack([curves.numbers, normal_parameters(mean, covariance)])
        return PosteriorSigmoids(numbers), lambda rows: places[codes[rows]]
