"""`fit_segments` for rows in an engine of many workers."""

import pickle
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.caller import Caller
from platt_jax.cluster.engines import Engine
from platt_jax.cluster.local import Local, as_table
from platt_jax.cluster.results import ClusterCalibrator
from platt_jax.cluster.tasks import (
    Call,
    EngineColumns,
    check_columns,
    fit_part,
    read_ids,
    segment_rows_of,
)
from platt_jax.curves import Curve
from platt_jax.curves.base import pooled
from platt_jax.curves.fitting import read, require_no_offset
from platt_jax.curves.log_odds import LogOddsCurve
from platt_jax.execution.problems import Context
from platt_jax.ids.factorize import factorize
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options, Pooling
from platt_jax.population.fitting import report_few_rows
from platt_jax.population.sizes import report_dependence
from platt_jax.results.segment_calibrator import SIZES

_POOLINGS = "none", "partial", "complete"
_SAMPLED = 100_000  # rows
# A segment is large if it has at least this share of the mean number of rows of a part.
_LARGE = 1.0
_NO_ROWS = "rows: expected rows to fit, got none"
_POOLED_ROWS = 1_000_000  # for the curve of unseen segments, if it is no sigmoid


def fit_segments(
    rows: Any,
    *,
    score: str,
    label: str,
    segment: str | Sequence[str],
    weight: str | None = None,
    offset: str | None = None,
    pos_label: Any = None,
    prior: GaussianPrior | None = None,
    pooling: Pooling = "none",
    curve: str | Curve = "sigmoid",
    options: Options = Options(),
    partitions: int | None = None,
) -> ClusterCalibrator:
    """Fit one curve to the rows of each segment, where the rows are.

    The engine moves the rows once, so that a segment's rows meet in one of its workers, which
    fits them as `platt_jax.fit_segments` does. The workers exchange totals: the sums of the curve
    of all rows, and of the population with pooling="partial". The results stay in the engine. A
    segment whose rows are more than a worker's share is fitted by all workers together.

    Args:
        rows: a DataFrame of Spark, also of Spark Connect; a DataFrame of Dask, for the workers of
            the current `distributed.Client`; a Dataset of Ray; or rows in memory, for processes of
            this machine: an Arrow table, or a data frame that has the Arrow PyCapsule interface.
        score: name of the column of scores, float32 or float64.
        label: name of the column of labels, as in `platt_jax.fit_segments`.
        segment: name of the column of segment ids, or several, whose combinations are the segments.
        weight: name of the column of weights; None for no weights.
        offset: name of the column of offsets; None for no offsets.
        pos_label: as in `platt_jax.fit_segments`.
        prior: as in `platt_jax.fit_segments`, the same for all segments.
        pooling: "none", "partial" or "complete", as in `platt_jax.fit_segments`.
        curve: as in `platt_jax.fit_segments`. With other curves than sigmoids each segment is
            fitted by one worker, however large it is, and the curve of unseen segments is fitted on
            this machine to 1,000,000 rows at most, drawn at random.
        options: as in `platt_jax.fit_segments`.
        partitions: number of parts, which run at the same time; None for as many as the engine has
            places for tasks.

    Returns:
        A ClusterCalibrator. Without population the bits of a segment's fit are as by
        `platt_jax.fit_segments`, unless it is large; otherwise they agree within rounding, or, with
        a population of more than 100,000 rows, to 1e-4 standard errors.

    Raises:
        ValueError: an argument is not as above, or a column is missing or invalid.

    Example:
        >>> import pyarrow as pa
        >>> rows = pa.table({"f": [2.0, -1.0, 1.0], "y": [1, 0, 1], "shop": ["a", "a", "b"]})
        >>> names = dict(score="f", label="y", segment="shop")
        >>> fitted = fit_segments(rows, **names, partitions=1)
        >>> fitted.collect().keys.tolist()
        ['a', 'b']
    """
    options = validation.options(options)
    if pooling not in _POOLINGS:
        raise ValueError(f"pooling: expected one of {_POOLINGS}, got {pooling!r}")
    validation.pooling(pooling, prior, None, options)
    if prior is not None and np.ndim(prior.mean) > 1:
        raise ValueError("prior: expected one for all segments, got one for each")
    curve_kind = None
    if curve != "sigmoid":
        curve_kind, options = read(curve, pooling, options, prior=prior)
        if curve_kind is not None:
            require_no_offset(curve_kind, offset is not None)
    engine, rows = _engine_of(rows, partitions)
    segments = (segment,) if isinstance(segment, str) else tuple(segment)
    names = EngineColumns(score, segments, label, weight, offset)
    schema = engine.schema(rows)
    check_columns(schema, names)
    rows = engine.select(rows, names.used)
    one_curve = None
    if curve_kind is not None:
        drawn = segment_rows_of(engine.collect(rows, names.used, _POOLED_ROWS), names, pos_label)
        if drawn is None:
            raise ValueError(_NO_ROWS)
        one_curve = curve_kind.fit(drawn.pooled, pooled(Context(options, Caller())))
    else:
        sample = engine.collect(rows, list(segments), _SAMPLED)
        names = names._replace(large=_large(sample, segments, engine.partitions))
    call = Call(names, pos_label, prior, pooling, options, curve_kind, one_curve)
    fitted = engine.fit(rows, names, partial(fit_part, call))
    summaries = [pickle.loads(summary) for summary in engine.results(fitted, "summary")]
    for part in summaries:
        if isinstance(part, ValueError):
            raise part
    if pooling == "none" and (curve_kind is None or isinstance(curve_kind, LogOddsCurve)):
        report_few_rows(np.sum([part.smoothing for part in summaries], axis=0), options, Caller())
    if SIZES in summaries[0].large.events:
        report_dependence(Caller())
    ids = [schema.field(name) for name in segments]
    return ClusterCalibrator(engine, fitted, names, ids, summaries)


def _engine_of(rows: Any, partitions: int | None) -> tuple[Engine, Any]:
    """The engine that has the rows, and the rows as it takes them."""
    if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
        raise ValueError(f"partitions: expected a positive int, got {partitions!r}")
    module = type(rows).__module__
    if module.startswith("pyspark."):
        from platt_jax.cluster.spark import Spark

        return Spark(rows, partitions), rows
    if module.startswith("dask."):
        from platt_jax.cluster.dask import Dask

        return Dask(partitions), rows
    if module.startswith("ray."):
        from platt_jax.cluster.ray import Ray

        return Ray(partitions), rows
    if hasattr(rows, "__arrow_c_stream__"):
        from platt_jax.backend.threads import cores

        return Local(partitions or cores()), as_table(rows)
    raise ValueError(
        "rows: expected a DataFrame of Spark or Dask, a Dataset of Ray or a table in memory, "
        f"got {validation.named_with_takers(rows)}"
    )


def _large(sample: pa.Table, segment: Sequence[str], partitions: int) -> NDArray[Any]:
    """The ids of segments with more rows than a part's share, found in a sample."""
    if not sample.num_rows:
        raise ValueError(_NO_ROWS)
    rows = factorize(read_ids(sample, segment))
    counts = np.bincount(rows.of(slice(None)))
    share = _LARGE * sample.num_rows / partitions
    return rows.named(np.flatnonzero(counts > share))
