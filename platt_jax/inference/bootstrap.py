"""Bootstrap: the spread of fits over random reweightings of the rows, and intervals by it."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.api import fit, fit_segments
from platt_jax.arrays import Bools, Floats
from platt_jax.backend import accelerators
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.dense_rows import DenseRows, DeviceDenseRows
from platt_jax.execution.given import problem_inputs
from platt_jax.execution.problems import Context
from platt_jax.execution.progress import Listener, Stage
from platt_jax.execution.replicates import (
    Plan,
    TakeClusters,
    clusters_of_dense_rows,
    clusters_of_segment_rows,
    fit_replicates,
)
from platt_jax.execution.segment_rows import SegmentRows, on_host, segment_rows
from platt_jax.ids.hashing import hashes
from platt_jax.inference.influence import Influence, influence
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options
from platt_jax.passes import replicated
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.fit import Fit
from platt_jax.results.probabilities import expit, with_offset
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.results.tables import counted
from platt_jax.status import Status

# Maximum number of a band's log-odds in memory at a time.
_AT_ONCE = 1 << 22
# Of intervals; those of weights are in `passes/replicated.py`.
INTERVAL_KINDS = ("bca", "percentile", "basic")


@dataclass(frozen=True, repr=False, eq=False)
class Bootstrap(ComparedByValue):
    """R bootstrap replicates of each problem of a batch (...), and the spread of their parameters.

    Failed replicates are left out of every statistic. A replicate fails if it did not converge, or
    if only one class has weight in it, so that the slope is undetermined. A statistic is NaN where
    fewer than two replicates are left.

    Attributes:
        A: (R, ...), minus the slope of the log-odds in each replicate.
        B: (R, ...), minus the log-odds at score 0.
        status: (R, ...) int8, the `Status` of each fit. Where the original fit is NON_FINITE, all
            of its replicates are, too.
        one_class: (R, ...) bool, whether only rows of one class have weight in the replicate.
        fit: the original fits, of the batch's shape.
        influence: the influence of single rows, or clusters, on the original fits; for BCa
            intervals.
        keys: (K,) segment ids, in the order of the batch (K,); None without segments.

    Example:
        >>> from platt_jax.inference import bootstrap
        >>> bootstrap([5.0, -4.0, 1.0, 2.0], [1, 0, 0, 1], replicates=50).A.shape
        (50,)
    """

    A: NDArray[Any]
    B: NDArray[Any]
    status: NDArray[np.int8]
    one_class: Bools
    fit: Fit
    influence: Influence
    keys: NDArray[Any] | None = None

    @property
    def failed(self) -> Bools:
        """(R, ...) bool, which replicates are left out."""
        return (self.status != Status.CONVERGED) | self.one_class

    @property
    def standard_errors(self) -> NDArray[Any]:
        """(..., 2) standard deviations of A and of B over the replicates."""
        used = ~self.failed
        count = used.sum(0)
        divisor = np.where(count > 1, count - 1, 1)

        def deviation(x: NDArray[Any]) -> NDArray[Any]:
            mean = np.where(used, x, 0).sum(0) / np.maximum(count, 1)
            squares = np.where(used, x - mean, 0) ** 2
            return np.where(count > 1, np.sqrt(squares.sum(0) / divisor), np.nan).astype(x.dtype)

        return np.stack([deviation(self.A), deviation(self.B)], -1)

    def interval(self, level: float = 0.95, kind: str = "bca") -> tuple[NDArray[Any], NDArray[Any]]:
        """Confidence intervals of A and B (Efron & Tibshirani 1993, chapters 13 and 14).

        "bca" is the default because its coverage is closest to `level`, and its intervals are
        shorter: docs/howto/bands.md has figures. With about 15 rows of a class all kinds but
        "basic" are too short. 400 replicates in place of 200 add up to 1 % to the coverage.

        Args:
            level: confidence level of each interval, in (0, 1).
            kind: "percentile", between quantiles of the replicates; "bca" (bias-corrected and
                accelerated), between quantiles shifted for the estimate's bias and skewness (Efron
                1987, "Better bootstrap confidence intervals"); or "basic", the percentile interval
                mirrored at the original fit.

        Returns:
            Lower and upper ends of the intervals of A and B, each (..., 2).

        Raises:
            ValueError: level or kind is not as above.
        """
        shares = _tails(level)
        validation.require_one_of(kind, INTERVAL_KINDS, "kind")
        replicates = np.where(self.failed[..., None], np.nan, np.stack([self.A, self.B], -1))
        estimate = np.stack([self.fit.A, self.fit.B], -1)
        acceleration = self.influence.parameter_accelerations()
        lower, upper = _interval(replicates, estimate, acceleration, shares, kind)
        return lower, upper

    @takes_columns
    def band(
        self,
        scores: Column,
        level: float = 0.95,
        kind: str = "bca",
        *,
        offset: Column | None = None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Pointwise confidence intervals of P(y=1 | score).

        Args:
            scores: (..., N), or an array that broadcasts to it: (N,) applies to every problem.
            level: as in `interval`.
            kind: as in `interval`; the interval is taken for the log-odds.
            offset: log-odds that are added to the interval's ends, broadcastable to scores.

        Returns:
            Lower and upper probabilities, each (..., N).

        Raises:
            ValueError: level or kind is not as in `interval`, or the shapes do not match.
        """
        shares = _tails(level)
        validation.require_one_of(kind, INTERVAL_KINDS, "kind")
        # Raises if the scores are bad or of the wrong shape.
        logit = self.fit.sigmoid.logit(scores)
        shape, dtype = logit.shape, self.A.dtype
        scores = np.broadcast_to(np.asarray(scores), shape).reshape(-1, shape[-1])
        number, (problems, length) = len(self.A), scores.shape
        failed = self.failed.reshape(number, problems)
        A, B = (np.where(failed, np.nan, x.reshape(number, problems)) for x in (self.A, self.B))
        logit, influence = logit.reshape(problems, length), self.influence.by_row()
        out = np.empty((2, problems, length), dtype)
        wide = max(1, _AT_ONCE // number)
        high = max(1, wide // length)
        for i in range(0, problems, high):
            for j in range(0, length, wide):
                block = slice(i, i + high), slice(j, j + wide)
                replicates = Sigmoid(A[:, block[0]], B[:, block[0]]).logit(scores[block][None])
                acceleration = influence.some(block[0]).logit_accelerations(scores[block])
                out[:, *block] = _interval(replicates, logit[block], acceleration, shares, kind)
        lower, upper = (expit(with_offset(end, offset)) for end in out.reshape(2, *shape))
        return lower, upper

    def __repr__(self) -> str:
        number, problems = len(self.A), math.prod(self.A.shape[1:])
        unit = "problem" if self.keys is None else "segment"
        left_out = int(self.failed.sum())
        text = f"Bootstrap: {counted(number, 'replicate')} of {counted(problems, unit)}"
        if not left_out:
            return text
        one_class = int((self.one_class & (self.status == Status.CONVERGED)).sum())
        counts = {"of one class": one_class} | {
            status.name: int((self.status == status).sum()) for status in list(Status)[1:]
        }
        named = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        return f"{text}, {counted(left_out, 'fit')} left out: {named}"


@takes_columns
def bootstrap(
    scores: Column,
    labels: Column = None,
    *,
    segments: Column = None,
    weights: Column = None,
    offset: Column = None,
    clusters: Column = None,
    prior: GaussianPrior | None = None,
    replicates: int = 200,
    kind: str = "poisson",
    seed: int = 0,
    options: Options = Options(),
    progress: bool | Listener = False,
) -> Bootstrap:
    """Refit each problem many times, with random weights of its rows.

    The random weights are independent with mean 1 and variance 1, and multiply the given weights.
    Each depends only on the seed, the replicate, the row's number in its problem, and the problem:
    its place in the batch, or the segment's id. Platt's targets are of the replicate's weights.

    Args:
        scores: (..., N) as in `fit`; with segments (N,), or SegmentRows, as in `fit_segments`. Rows
            of scores on a GPU stay there, unless there are clusters.
        labels: (..., N) as in `fit`; with segments (N,).
        segments: (N,) ids as in `fit_segments`; None for problems as in `fit`.
        weights: as in `fit` or `fit_segments`. A row of weight 3 is drawn as a whole, so it varies
            more than three equal rows of weight 1, which are drawn independently.
        offset: as in `fit` or `fit_segments`; a row keeps its offset in every replicate.
        clusters: (N,) ids of rows that depend on each other, such as rows of one user; None if
            rows are independent. All rows of a cluster share one random factor, determined by the
            cluster's id, so the order of rows does not matter. Different problems are treated as
            independent. Not supported with SegmentRows.
        prior: as in `fit`, or in `fit_segments`.
        replicates: number of replicates of each problem, at least 2.
        kind: "poisson", counts of mean 1, which nearly resample rows with replacement (Chamandy et
            al. 2012); or "bayesian", exponential weights (Rubin 1981), which never lose a class.
        seed: integer from 0 to 2^64 - 1.
        options: as in `fit`. Every replicate starts from the original fit. With tol=None,
            replicates stop at 1e-4 standard errors; the last step leaves far less.
        progress: whether to show a progress bar (needs tqdm); or a function, which is called with a
            `ProgressReport` after each chunk of the work.

    Returns:
        A Bootstrap with batch shape (...), or (K,) for segments.

    Warns:
        RuntimeWarning: as `fit`.

    Raises:
        ValueError: an argument is not as above.
        MemoryError: as `fit`.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=500)
        >>> labels = rng.random(500) < 1 / (1 + np.exp(-2 * scores))
        >>> result = bootstrap(scores, labels)
        >>> result
        Bootstrap: 200 replicates of 1 problem
        >>> lower, upper = result.band([0.0, 1.0])
        >>> bool((lower < result.fit.predict_proba([0.0, 1.0])).all())
        True
    """
    caller = Caller()
    validation.require_integer(replicates, "replicates", 2, 2**31 - 1)
    validation.require_integer(seed, "seed", 0, 2**64 - 1)
    validation.require_one_of(kind, replicated.KINDS, "kind")
    stage = Stage.of(progress, "bootstrap")
    rows: SegmentRows | DenseRows | DeviceDenseRows
    cluster: TakeClusters | None = None
    if segments is None and not isinstance(scores, SegmentRows):
        validation.require_each(scores, labels=labels)
        if accelerators.holds(scores) and clusters is None:
            rows = DeviceDenseRows(scores, labels, weights, offset)
        else:
            rows = DenseRows(scores, labels, weights, offset=offset)
        keys, order, batch = None, np.arange(len(rows.sizes)), rows.batch
        ids = order.astype(np.uint64)
        if clusters is not None:
            cluster = clusters_of_dense_rows(clusters, np.shape(scores)[-1])
        original = fit(
            scores,
            labels,
            weights=weights,
            offset=offset,
            prior=prior,
            options=options,
            progress=progress,
        )
    else:
        if clusters is not None and isinstance(scores, SegmentRows):
            raise ValueError("clusters: expected None beside SegmentRows; give the arrays instead")
        rows = segment_rows(scores, labels, segments, weights, offset=offset)
        rows = rows if clusters is None else on_host(rows)
        keys, order, batch = rows.keys, rows.largest_first, rows.keys.shape
        ids = hashes(keys[order])
        if clusters is not None:
            cluster = clusters_of_segment_rows(clusters, len(rows), segments)
        original = fit_segments(rows, prior=prior, options=options, progress=progress).fit
    original = jax.device_get(original)
    inputs = problem_inputs(batch, rows.dtype, prior, (original.A, original.B))
    plan = Plan(kind, int(seed), int(replicates), ids)
    with accelerators.as_default(rows.device):
        fits = fit_replicates(rows.problems, inputs, plan, Context(options, caller, stage), cluster)
    fits = jax.tree.map(lambda x: x.reshape(-1, *batch), fits)
    # A draw may give bad rows weight 0; the fit of the other rows is not a replicate of this one.
    bad = original.status == Status.NON_FINITE
    for x, answer in zip(fits, (np.nan, np.nan, Status.NON_FINITE, False), strict=True):
        x[:, bad] = answer
    with accelerators.as_default(rows.device):
        influences = influence(original, order, rows, options.targets == "platt", cluster)
    return Bootstrap(fits.A, fits.B, fits.status, fits.one_class, original, influences, keys)


def _tails(level: float) -> tuple[float, float]:
    """The shares of a distribution below the lower and the upper end."""
    validation.require_fraction(level, "level")
    tail = (1 - float(level)) / 2
    return tail, 1 - tail


def _interval(
    x: NDArray[Any],
    estimate: NDArray[Any],
    acceleration: NDArray[Any],
    shares: tuple[float, float],
    kind: str,
) -> NDArray[Any]:
    """(2, ...) the ends of intervals; NaN where fewer than two replicates (R, ...) are not NaN.

    The acceleration is a sixth of the estimate's skewness. The shares of the distribution are below
    the lower and the upper end.
    """
    x = np.sort(x, axis=0)  # NaN last
    count = len(x) - np.isnan(x).sum(0)
    parts: Any = shares
    if kind == "bca":
        below = ((x < estimate).sum(0) + (x <= estimate).sum(0)) / 2
        parts = _accelerated(below, count, acceleration, shares)
    ends = np.stack([_quantile(x, count, part) for part in parts])
    return 2 * estimate - ends[::-1] if kind == "basic" else ends


def _accelerated(
    below: NDArray[Any], count: NDArray[Any], acceleration: NDArray[Any], shares: tuple[float, ...]
) -> list[Floats]:
    """The quantile levels at the ends of BCa intervals (Efron 1987, equations 2.3 and 4.4)."""
    from scipy.special import ndtr, ndtri  # JAX has SciPy; the import adds a warnings filter

    half = 0.5 / np.maximum(count, 1)
    bias = ndtri(np.clip(below * 2 * half, half, 1 - half))
    a = np.where(np.isfinite(acceleration), acceleration, 0)
    moved = [bias + ndtri(share) for share in shares]
    # Acceleration is at most 1/6, so for any level in use the divisor is far from 0.
    return [ndtr(bias + z / np.maximum(1 - a * z, np.finfo(float).tiny)) for z in moved]


def _quantile(x: NDArray[Any], count: NDArray[Any], part: Any) -> NDArray[Any]:
    """Quantiles along the first axis, of sorted values with NaN last, by linear interpolation.

    `numpy.nanquantile` does the same, but one problem at a time and with one level for all.
    """
    position = part * np.maximum(count - 1, 0)
    below = position.astype(np.intp)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    low, high = (np.take_along_axis(x, index[None], 0)[0] for index in (below, above))
    between: NDArray[Any] = low + (position - below).astype(x.dtype) * (high - low)
    return np.where(count > 1, between, np.nan)
