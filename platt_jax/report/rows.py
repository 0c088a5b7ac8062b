"""The rows of a report, with predictions before and after, and their metrics."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import metrics, validation
from platt_jax.arrays import Floats, Integers
from platt_jax.columns import Column
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.hypothesis_tests.posteriors import posteriors
from platt_jax.hypothesis_tests.triage import triage
from platt_jax.metrics.binned import binned
from platt_jax.metrics.rows import read_predictions
from platt_jax.plots import names
from platt_jax.plots.explorer import ExploredRows, JudgedSegments, judged_rows
from platt_jax.results.probabilities import expit
from platt_jax.results.segment_calibrator import SegmentCalibrator, pooled_proba

# What the calibrator is compared with.
_BEFORE, _POOLED = "before calibration", "one curve for all"
_BINS = 10  # of the expected calibration error


class Measure(NamedTuple):
    """A metric of all rows."""

    before: float  # by the probabilities before
    after: float  # by the calibrator's
    error: float  # standard error of after - before; NaN where there is none

    @property
    def difference(self) -> float:
        """After - before."""
        return self.after - self.before

    @property
    def worse(self) -> bool:
        """Whether it is larger after by more than two standard errors."""
        return self.difference > 2 * self.error


class ReportRows(NamedTuple):
    """N rows and their predictions."""

    # the rows with the calibrator's predictions; not usable either where `before` is not finite
    rows: ExploredRows
    before: Floats  # (N,) probabilities without the calibrator's segments
    source: str  # what `before` is, in words
    # (N,) probabilities by one curve for all, which may be `before` itself; None if they are not
    # finite
    pooled: Floats | None

    def measured(self) -> dict[str, dict[str, Measure]]:
        """The metrics of the usable rows, compared with metrics of other probabilities.

        The probabilities before come first, and then probabilities by one curve for all, if there
        are any. Empty if no row is usable.
        """
        rows, usable = self.rows, self.rows.usable
        baselines = {_BEFORE: self.before, _POOLED: self.pooled}
        if self.pooled is self.before:
            del baselines[_BEFORE]
        if not usable.any():
            return {}
        calibrated = rows.proba[usable], rows.segments[usable]
        return {
            name: measures(rows.labels[usable], baseline[usable], *calibrated)
            for name, baseline in baselines.items()
            if baseline is not None
        }


def measures(
    labels: NDArray[np.int8], before: Floats, after: Floats, segments: Integers
) -> dict[str, Measure]:
    """Each metric of N rows by name. Errors are paired, the larger of two: by row and by segment.

    Labels are 0 or 1, `before` and `after` are probabilities, segments have numbers.
    """
    by_row: dict[str, Callable[[Floats], Floats]] = {
        "Log loss": lambda p: metrics.log_loss(labels[:, None], p[:, None]),
        "Brier score": lambda p: metrics.brier_score(labels[:, None], p[:, None]),
        "Expected calibration error": lambda p: _calibration_errors(labels, p),
    }
    by_metric = {}
    for name, losses in by_row.items():
        earlier, later = losses(before), losses(after)
        error = _error_of_mean(later - earlier, segments)
        by_metric[name] = Measure(float(earlier.mean()), float(later.mean()), error)
    earlier, later = (metrics.ece_by_chance(labels, p, n_bins=_BINS) for p in (before, after))
    by_metric["The same by chance alone"] = Measure(float(earlier), float(later), np.nan)
    return by_metric


def _calibration_errors(labels: NDArray[np.int8], proba: Floats) -> Floats:
    """(N,) the rows' shares of the expected calibration error, which is their mean.

    A row's residual counts with the sign of its bin's, so that a bin's shares add up to the size of
    its residual.
    """
    bins = binned(read_predictions(labels, proba, None, False), _BINS, "uniform")
    return np.sign(bins.residual[0])[bins.bin[0]] * (labels - proba)


def _error_of_mean(values: Floats, segments: Integers) -> float:
    """The standard error of a mean over rows; NaN for one row.

    It is the larger of two: for independent segments, which rows that belong together need, and for
    independent rows. The first alone is too small for a handful of segments: equal predictions
    differ by two of it in 10 % of the cases with two segments, and in 6 % with three.
    """
    off = values - values.mean()
    errors = [
        np.sqrt(np.sum(part**2) * number / (number - 1)) / len(values)
        for part, number in (
            (off, len(values)),
            (np.bincount(segments, off), len(np.unique(segments))),
        )
        if number > 1
    ]
    return float(max(errors, default=np.nan))


class Judgement(NamedTuple):
    """How many segments were tested, and how many of these are flagged."""

    tested: int
    flagged: int


def changed(
    calibrator: SegmentCalibrator, rows: ExploredRows, judged: JudgedSegments, fdr: float
) -> Judgement | None:
    """The segments that `triage` flags against the fit, if enough is known of them.

    None for curves that are no sigmoids, which are tested against the predictions only.
    """
    if calibrator.curves is not None:
        return None
    has_posterior = posteriors(calibrator, judged.keys, judged.place).usable
    usable = rows.usable & has_posterior[rows.segments]
    if not usable.any():
        return Judgement(0, 0)
    keys = judged.keys[rows.segments[usable]]
    table = triage(calibrator, rows.scores[usable], rows.labels[usable], keys, fdr=fdr)
    tested = np.isfinite(table["p_value"])
    return Judgement(int(np.count_nonzero(tested)), int(np.count_nonzero(table["flagged"])))


def read(
    calibrator: SegmentCalibrator,
    scores: Column,
    labels: Column,
    segments: Column,
    before: Column,
    fdr: float,
) -> tuple[ReportRows, JudgedSegments]:
    """The rows and their segments; `before` as in `to_html`."""
    if isinstance(scores, SegmentRows) and not isinstance(before, str):
        validation.require_none_beside(scores, before=before)
    rows, judged = judged_rows(calibrator, scores, labels, segments, fdr)
    one_curve = pooled_proba(calibrator, rows.scores)
    earlier, source = _before(rows.scores, before) or (
        one_curve,
        f"the {pooled_name(calibrator)} pooled, as the scores do not all lie in [0, 1]",
    )
    rows = rows._replace(usable=rows.usable & np.isfinite(earlier))
    pooled = one_curve if np.isfinite(one_curve[rows.usable]).all() else None
    return ReportRows(rows, earlier, source, pooled), judged


def pooled_name(calibrator: SegmentCalibrator) -> str:
    """What the curve is called to which others are compared."""
    kind = names.kind_of_curve(calibrator)
    return f"{kind if calibrator.curves is None else f'{kind} curve'} of all fitted rows"


def _before(f: Floats, before: Column) -> tuple[Floats, str] | None:
    """The probabilities before, and what they are; None for those by one curve for all."""
    if isinstance(before, str):
        validation.require_one_of(before, ("logits",), "before")
        return expit(f), "the scores, taken as log-odds"
    if before is not None:
        p = validation.floating(before, "before").astype(float)
        if p.shape != f.shape:
            raise ValueError(f"before: expected the shape of scores, {f.shape}, got {p.shape}")
        validation.require_probabilities(p[np.isfinite(p)], "before")
        return p, "the probabilities given"
    finite = f[np.isfinite(f)]
    if len(finite) > 0 and 0 <= finite.min() and finite.max() <= 1:
        return f, "the scores, taken as probabilities, as all lie in [0, 1]"
    return None
