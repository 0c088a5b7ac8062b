"""The mean label of each segment, from few rows with labels and many with scores only.

Prediction-powered inference (Angelopoulos et al. 2023, arXiv 2301.09633): the mean prediction of
the many rows is corrected by the mean error of predictions on the few. The predictions count with
a power from 0 to 1 that makes the variance smallest (Angelopoulos, Duchi & Zrnic 2023, arXiv
2311.01453). With few labels in a segment three things differ from the papers: predictions of rows
with labels come from fits without the row, the power is one number for all segments, and a
segment's variance is shrunk to the variance of all rows, with Wilson's interval instead of a
normal one.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats, Integers
from platt_jax.columns import Column, takes_columns
from platt_jax.hypothesis_tests.posteriors import posteriors
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.inference.mean_rows import MeanRows, read_rows
from platt_jax.results import tables
from platt_jax.results.probabilities import band, critical_value
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.tables import Table

# A segment's variance, and the mean behind its number of labels, are shrunk by as many rows.
SHRUNK_BY = 20
_LEAST_EXPECTED = 3  # positives and negatives; with fewer expected, labels alone are used


@takes_columns
def estimate_means(
    calibrator: SegmentCalibrator,
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    pool: Column,
    pool_segments: Column = None,
    probability: Column = None,
    level: float = 0.95,
    width: float | None = None,
) -> Table:
    """The mean label of each segment, from rows with labels and a pool of rows with scores only.

    It is the mean of the labels which the rows of the segment have, or would have. It is right
    for every curve, as long as a segment's rows with labels are a random sample of its rows: a
    wrong curve costs width. `model_mean`, the mean prediction, is right only if the curves are.
    The mean prediction for the pool is corrected by the mean error of predictions for the labelled
    rows (prediction-powered inference, arXiv 2301.09633, 2311.01453). The interval is Wilson's
    (1927). docs/howto/means.md has the formula, and how often intervals held the mean.

    Args:
        calibrator: result of `fit_segments` for the rows with labels; or, with `probability`, for
            any rows. Fits with an offset are not for this.
        scores: (n,) scores of rows with labels; or SegmentRows.
        labels: (n,) their labels.
        segments: (n,) their segments, or one id for all.
        pool: (N,) scores of further rows, without labels, drawn from the segments like those with
            labels; or SegmentRows, whose labels are not used.
        pool_segments: (N,) their segments, or one id for all.
        probability: (n,) probabilities for the rows with labels by the calibrator's kind of curve,
            fitted without them: the pool is predicted by the calibrator. None for `leave_one_out`,
            which takes pooling="none", "complete" and "partial". Other curves, levels, and
            calibrators of other rows need it.
        level: confidence level of the intervals, in (0, 1).
        width: a width of intervals, in (0, 1), for the column `more_labels`.

    Returns:
        A Table with a line for each segment that has rows with labels or in the pool, in ascending
        order, and the columns

        - `segment`, or one column for each of its several columns;
        - `rows` with labels, and `pool`, the number of rows in the pool;
        - `mean`, and the interval from `lower` to `upper`;
        - `labels_worth`, the number of labels that alone would give as narrow an interval;
        - `more_labels`, with a width: how many more labels make the interval that narrow; infinite
          where the pool is too small for that;
        - `model_mean`, the mean prediction for the pool, with `model_lower` and `model_upper`, NaN
          where too little is known of the segment's curve (see `triage`), or it is no sigmoid;
        - `labels_only`, the mean of the labels, with Wilson's interval from `labels_lower` to
          `labels_upper`;
        - `power`, how much predictions count, from 0 to 1;
        - `status`: OK; or FEW_POSITIVES, less than 3 positives or negatives expected among the
          labels, NO_POOL, or NON_FINITE, a score, label or probability is not finite: `mean` is
          then `labels_only`; or NO_LABELS, whose mean is NaN.

    Raises:
        ValueError: an argument is not as above; SegmentRows have weights or an offset.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> judges = np.arange(80_000) % 40
        >>> right = rng.random(80_000) < np.linspace(0.3, 0.7, 40)[judges]
        >>> scores = rng.normal(size=80_000) + 2 * right
        >>> rows = scores[:2000], right[:2000], judges[:2000]
        >>> calibrator = fit_segments(*rows, pooling="partial")
        >>> found = estimate_means(
        ...     calibrator, *rows, pool=scores[2000:], pool_segments=judges[2000:]
        ... )
        >>> int(found["rows"][0]), found["labels_worth"].mean() > 70
        (50, np.True_)
    """
    critical = critical_value(level, False)
    if width is not None:
        validation.require_fraction(width, "width")
    rows = read_rows(calibrator, scores, labels, segments, pool, pool_segments, probability)
    means = estimated(rows)
    lower, upper = wilson(means.mean, means.worth, critical)
    number = np.where(means.rows > 0, means.rows, np.nan)
    columns: dict[str, Any] = {
        "rows": means.rows,
        "pool": means.pool,
        "mean": means.mean,
        "lower": lower,
        "upper": upper,
        "labels_worth": means.worth,
    }
    if width is not None:
        columns["more_labels"] = _more_labels(means, width, critical)
    columns["model_mean"] = means.model_mean
    columns["model_lower"], columns["model_upper"] = _model_interval(
        calibrator, rows, means, critical
    )
    columns["labels_only"] = means.labels_only
    columns["labels_lower"], columns["labels_upper"] = wilson(means.labels_only, number, critical)
    columns["power"], columns["status"] = means.power, means.status
    return tables.keyed("segment", rows.keys, columns)


class Means(NamedTuple):
    """Estimated means of segments (S,), and the parts of their variances.

    The variance of a mean is `label_variance` / n + `pool_variance`; of one label it is `unit`.
    """

    rows: Integers  # n
    pool: Integers  # N
    mean: Floats
    labels_only: Floats
    model_mean: Floats
    power: Floats
    label_variance: Floats
    pool_variance: Floats
    unit: Floats
    status: NDArray[np.str_]

    def worth_with(self, rows: Any) -> Floats:
        """The number of labels that alone would have this variance, with so many labels."""
        with np.errstate(divide="ignore", invalid="ignore"):
            worth: Floats = self.unit / (self.label_variance / rows + self.pool_variance)
        return worth

    @property
    def worth(self) -> Floats:
        """As now; NaN without labels."""
        return self.worth_with(np.where(self.rows > 0, self.rows, np.nan))


def estimated(rows: MeanRows) -> Means:
    """The means of all segments."""
    n, N = rows.sums(np.ones(len(rows.owner))), rows.pool.rows
    with np.errstate(invalid="ignore", divide="ignore"):
        labels_only, model_mean = rows.sums(rows.labels) / n, rows.pool.proba / N
        spread = rows.pool.squares / np.maximum(N - 1, 1)
    status = _status(rows, n, N, model_mean)
    used = status == "OK"
    power = np.where(used, _power(rows, used, n, N), 0)
    with np.errstate(invalid="ignore"):
        error, center = errors(rows, power)
        predicted = np.where(used, power * model_mean, 0)
        mean = np.clip(predicted + center, 0, 1)
        scale = np.where(used, model_mean * (1 - model_mean), 0)
        # Without power both are the same, so that useless predictions leave the number of labels.
        label_variance, unit = (
            _shrunk(np.where(used, rows.sums((x - mean_x[rows.owner]) ** 2), 0), n - 1, scale)
            for x, mean_x in ((error, center), (rows.labels, labels_only))
        )
    # With labels alone the number of labels is what counts, and the unit is arbitrary.
    unit = np.where(used, unit, 1.0)
    return Means(
        rows=n.astype(int),
        pool=N.astype(int),
        mean=mean,
        labels_only=labels_only,
        model_mean=model_mean,
        power=power,
        label_variance=np.where(used, label_variance, unit),
        pool_variance=np.where(used, power**2 * spread / np.maximum(N, 1), 0),
        unit=unit,
        status=status,
    )


def _shrunk(squares: Floats, freedom: Floats, scale: Floats) -> Floats:
    """(S,) variances of one row, from sums of squares, shrunk to the variance of all rows.

    Relative to the scale p (1 - p), which is 0 where rows are not used, variances of segments are
    about the same. The sums are those of the rows and of one more, shared by all segments, whose
    square is 1: where few rows had no error, the next one may have.
    """
    part = freedom * scale
    total = max(part.sum(), np.finfo(float).tiny)
    squares = squares + part / total
    variance: Floats = squares + SHRUNK_BY * squares.sum() / total * scale
    return variance / (np.maximum(freedom, 0) + SHRUNK_BY)


def _status(rows: MeanRows, n: Floats, N: Floats, model_mean: Floats) -> NDArray[np.str_]:
    with np.errstate(invalid="ignore"):
        # An infinite score times p (1 - p) = 0 is NaN.
        pool = rows.pool.proba + rows.pool.by_A
        finite = np.isfinite(rows.sums(rows.labels + rows.left_out) + pool)
        few = ~(n * np.minimum(model_mean, 1 - model_mean) >= _LEAST_EXPECTED)
    return np.select(
        [n == 0, ~finite, N == 0, few],
        ["NO_LABELS", "NON_FINITE", "NO_POOL", "FEW_POSITIVES"],
        "OK",
    )


def _power(rows: MeanRows, used: Bools, n: Floats, N: Floats) -> float:
    """The power of smallest variance, PPI++ equation 6 with sums over the segments used."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_y, mean_q = (rows.sums(x) / n for x in (rows.labels, rows.left_out))
        q = rows.left_out - mean_q[rows.owner]
        covariance = rows.sums((rows.labels - mean_y[rows.owner]) * q)[used].sum()
        variance = ((1 + n / N) * rows.sums(q * q))[used].sum()
    return float(np.clip(covariance / variance, 0, 1)) if variance > 0 else 0.0


def errors(rows: MeanRows, power: Floats) -> tuple[Floats, Floats]:
    """(n,) labels minus what predictions say of them, and (S,) their means."""
    counts = power[rows.owner]
    error = rows.labels - np.where(counts > 0, counts * rows.left_out, 0)
    with np.errstate(invalid="ignore"):
        return error, rows.sums(error) / rows.sums(np.ones(len(error)))


def wilson(mean: Floats, number: Floats, critical: float) -> tuple[Floats, Floats]:
    """Wilson's interval (1927) of a mean of so many labels."""
    more = critical**2 / number
    center = (mean + more / 2) / (1 + more)
    reach = np.sqrt(more * (mean * (1 - mean) + more / 4)) / (1 + more)
    # Rounding: the interval of mean 0 begins at 0.
    return np.minimum(center - reach, mean).clip(0), np.maximum(center + reach, mean).clip(None, 1)


def _more_labels(found: Means, width: float, critical: float) -> Floats:
    """How many more labels make Wilson's interval so narrow.

    With z the critical value and u the mean's u (1 - u), the width w at a number k is that where
    w^2 (k + z^2)^2 = z^2 (4 u k + z^2).
    """
    z2, w2 = critical**2, width**2
    u = found.mean * (1 - found.mean)
    half = z2 * (2 * u / w2 - 1)
    worth = half + np.sqrt(half**2 + z2 * z2 * (1 / w2 - 1))
    with np.errstate(divide="ignore"):
        allowed = found.unit / worth - found.pool_variance
        needed = np.where(allowed > 0, found.label_variance / allowed, np.inf)
    more: Floats = np.ceil(np.maximum(needed - found.rows, 0))
    return np.where(found.rows > 0, more, np.nan)


def _model_interval(
    calibrator: SegmentCalibrator, rows: MeanRows, found: Means, critical: float
) -> tuple[Floats, Floats]:
    """(S,) intervals of the mean prediction, by the variances of the curves and of the pool."""
    if calibrator.curves is not None:
        return np.full(len(rows.keys), np.nan), np.full(len(rows.keys), np.nan)
    indices = get_indexer(calibrator.keys, split_columns(rows.keys), "segments")
    covariance = posteriors(calibrator, rows.keys, indices).curves.covariance
    mean = found.model_mean
    with np.errstate(invalid="ignore", divide="ignore"):
        g = np.stack([rows.pool.by_A, rows.pool.by_B]) / found.pool
        off = rows.pool.squares / found.pool**2
        variance = np.einsum("as,sab,bs->s", g, covariance, g) + off
        unit = mean * (1 - mean)
        return band(np.log(mean) - np.log1p(-mean), variance / unit**2, critical)
