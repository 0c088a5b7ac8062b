"""Differences of the mean labels of two segments, which may have items in common."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Floats, Integers
from platt_jax.columns import Column, takes_columns
from platt_jax.groups import Groups
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.vocabulary import distinct
from platt_jax.inference.mean_rows import MeanRows, read_rows
from platt_jax.inference.means import SHRUNK_BY, Means, errors, estimated, wilson
from platt_jax.results import tables
from platt_jax.results.probabilities import critical_value
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.tables import Table


@takes_columns
def compare_means(
    calibrator: SegmentCalibrator,
    scores: Column,
    labels: Column,
    segments: Column,
    *,
    first: Column,
    second: Column,
    pool: Column,
    pool_segments: Column,
    items: Column = None,
    pool_items: Column = None,
    probability: Column = None,
    level: float = 0.95,
) -> Table:
    """By how much the mean label of a first segment is above a second one's.

    The means are as by `estimate_means`. Segments may have items in common, such as the questions
    that two models answered: then their difference is known better than from other items. The
    interval is Newcombe's (1998, Statistics in Medicine 17, 2635, method 10), from both means'
    intervals and their correlation; that of labels is shrunk to the correlation of all pairs.

    Args:
        calibrator: as in `estimate_means`.
        scores: (n,) as there.
        labels: (n,) as there.
        segments: (n,) as there.
        first: (D,) the first segments.
        second: (D,) the second segments, or one for all.
        pool: (N,) as in `estimate_means`.
        pool_segments: (N,) as there.
        items: (n,) ids of what the rows with labels are about, each once in a segment; None if
            segments have no items in common.
        pool_items: (N,) the same of the pool; None if no items of the pool are in common.
        probability: (n,) as in `estimate_means`.
        level: confidence level of the intervals, in (0, 1).

    Returns:
        A Table with a line for each pair, and the columns `first` and `second`, or one column for
        each of their several columns with these names before it; `items`, the number of items with
        labels in both; `difference`, the first mean minus the second, and the interval from `lower`
        to `upper`; `correlation` of the two means. NaN where a segment has no labels.

    Raises:
        ValueError: an argument is not as above, or a segment has no rows.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> questions, models = np.divmod(np.arange(8000), 4)  # 2,000 questions to four models
        >>> hard = rng.normal(size=2000)[questions]
        >>> right = hard + rng.normal(size=8000) < 0.2 * models
        >>> scores = rng.normal(size=8000) + 2 * right
        >>> rows = scores[:400], right[:400], models[:400]  # 100 questions with labels
        >>> calibrator = fit_segments(*rows)
        >>> rest = {"pool": scores[400:], "pool_segments": models[400:]}
        >>> ids = {"items": questions[:400], "pool_items": questions[400:]}
        >>> found = compare_means(calibrator, *rows, first=[1, 2, 3], second=0, **rest, **ids)
        >>> found["items"].tolist(), bool((found["correlation"] > 0.1).all())
        ([100, 100, 100], True)
    """
    critical = critical_value(level, False)
    # SegmentRows do not keep the order of the rows.
    validation.refuse_held(scores, "scores")
    validation.refuse_held(pool, "pool")
    given_rows = scores, labels, segments, pool, pool_segments, probability
    rows = read_rows(calibrator, *given_rows, with_pool_rows=pool_items is not None)
    means = estimated(rows)
    first_ids = ids.read(first, "first")
    one = _places(rows.keys, first_ids, "first")
    other = _places(rows.keys, ids.read_like(rows.keys, second, len(one), "second"), "second")
    common, correlation = _correlation(rows, means, (one, other), items, pool_items)
    mean, (lower, upper) = means.mean, wilson(means.mean, means.worth, critical)
    difference, down, up = mean[one] - mean[other], mean - lower, upper - mean

    def reach(a: Floats, b: Floats) -> Floats:
        root: Floats = np.sqrt(np.maximum(a * a - 2 * correlation * a * b + b * b, 0))
        return root

    return Table(
        _named("first", rows.keys[one]) | _named("second", rows.keys[other]),
        items=common,
        difference=difference,
        lower=difference - reach(down[one], up[other]),
        upper=difference + reach(up[one], down[other]),
        correlation=correlation,
    )


def _places(keys: NDArray[Any], given: ids.Ids, name: str) -> Integers:
    indices = get_indexer(keys, given, name)
    if (indices < 0).any():
        number, names = distinct(given)
        missing = tables.name(names, int(number[np.argmax(indices < 0)]))
        raise ValueError(f"{name}: expected segments that have rows, got {missing}")
    return indices


def _named(kind: str, keys: NDArray[Any]) -> dict[str, NDArray[Any]]:
    if keys.dtype.names is None:
        return {kind: keys}
    return {f"{kind}_{field}": keys[field] for field in keys.dtype.names}


Pairs: TypeAlias = tuple[Integers, Integers]  # (D,) places of the first and second segments


def _correlation(
    rows: MeanRows, found: Means, pairs: Pairs, items: Column, pool_items: Column
) -> tuple[Integers, Floats]:
    """(D,) numbers of items with labels in both segments, and correlations of their means."""
    one, other = pairs
    covariance, common = np.zeros(len(one)), np.zeros(len(one), int)
    error, center = errors(rows, found.power)
    if items is not None:
        shared = _products(
            rows.owner, error - center[rows.owner], items, "items", pairs, len(rows.keys)
        )
        common = shared.number
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = np.sqrt(shared.first_squares * shared.second_squares)
            total = np.nansum(scale)
            all_pairs = np.nansum(shared.products) / total if total > 0 else 0.0
            r = np.where(scale > 0, shared.products / scale, 0)
            r = (common * r + SHRUNK_BY * all_pairs) / (common + SHRUNK_BY)
            sd = np.sqrt(found.label_variance)
            covariance += common * r * sd[one] * sd[other] / (found.rows[one] * found.rows[other])
    if pool_items is not None:
        assert rows.pool_proba is not None and rows.pool_owner is not None
        off = rows.pool_proba - found.model_mean[rows.pool_owner]
        shared = _products(rows.pool_owner, off, pool_items, "pool_items", pairs, len(rows.keys))
        weight = found.power / np.maximum(found.pool, 1)
        used = weight[one] * weight[other] > 0
        covariance += np.where(used, weight[one] * weight[other] * shared.products, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.sqrt(found.label_variance / found.rows + found.pool_variance)
        return common, np.clip(covariance / (sd[one] * sd[other]), -1, 1)


class _Products(NamedTuple):
    """Sums over the items that two segments have in common, (D,)."""

    number: Integers
    products: Floats
    first_squares: Floats
    second_squares: Floats


def _products(
    owner: Integers, values: Floats, items: Column, name: str, pairs: Pairs, segments: int
) -> _Products:
    """Sums of products of values (n,) of rows with these items, in two segments of so many."""
    item, names = distinct(ids.read_rows(items, len(owner), name))
    code = owner.astype(np.int64) * len(names) + item
    order = np.argsort(code, kind="stable")
    code, values = code[order], values[order]
    if (twice := code[1:] == code[:-1]).any():
        repeated = tables.name(names, int(code[np.argmax(twice)] % len(names)))
        raise ValueError(f"{name}: expected each item once in a segment, got {repeated} twice")
    by_segment = Groups(np.bincount(owner, minlength=segments))
    first_rows, by_pair = by_segment.rows_of(pairs[0]), Groups(by_segment.sizes[pairs[0]])
    wanted = by_pair.by_row(pairs[1]) * len(names) + code[first_rows] % len(names)
    positions = np.minimum(np.searchsorted(code, wanted), len(code) - 1)
    matched = code[positions] == wanted
    a, b = np.where(matched, values[first_rows], 0), np.where(matched, values[positions], 0)
    return _Products(*map(by_pair.sums, (matched.astype(int), a * b, a * a, b * b)))
