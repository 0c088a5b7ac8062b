"""Tests of segments' predictions on fresh rows."""

from typing import Any, Literal

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.fitted_rows import have_no_rows, rows_of_classes
from platt_jax.execution.predicted_rows import are_there, parameters_of, with_predictions
from platt_jax.execution.replicates import clusters_of_segment_rows
from platt_jax.execution.segment_rows import SegmentRows, laid_out, row_arrays, segment_rows
from platt_jax.groups import Groups
from platt_jax.hypothesis_tests.cluster_shocks import Clusters, numbered
from platt_jax.hypothesis_tests.device_tests import RowFacts, judged_there
from platt_jax.hypothesis_tests.posteriors import posteriors
from platt_jax.hypothesis_tests.segment_tests import COLUMNS, FreshRows, judged, shock_variance
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.hashing import hashes
from platt_jax.ids.indexing import get_indexer
from platt_jax.model.objective import Array
from platt_jax.population.device_segments import fetched
from platt_jax.results import tables
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.segment_calibrator import (
    SegmentCalibrator,
    require_segment_calibrator,
    shift_of,
)
from platt_jax.results.tables import Table

# Largest margin: wider ones allow all that this one does.
_WIDEST = 64.0


@takes_columns
def triage(
    calibrator: SegmentCalibrator | OneVsRestCalibrator,
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    offset: Column = None,
    clusters: Column = None,
    cluster_sd: float | None = None,
    against: Literal["fit", "predictions"] = "fit",
    margin: float = 0.0,
    fdr: float = 0.05,
    non_finite: Literal["flag", "raise", "omit"] = "flag",
) -> Table:
    """Test which segments have changed or are predicted wrongly, on fresh rows.

    There are two hypotheses. `docs/howto/triage.md` helps to choose one, and
    `docs/explanation/numbers.md` has the tests, and what simulations found.

    - `against="fit"`: the segment is as it was when it was fitted. Its (A, B) is drawn from what
      the fit knows about it. A small p-value means that the segment has changed, or that it does
      not belong to the population. The uncertainty of the fit is taken to be large: a segment that
      was fitted on few rows is found only if it changes by more than that.
    - `against="predictions"`: every label is 1 with the predicted probability. A small p-value
      means that the prediction is wrong, even if the fit could not have known better.

    Against the fit, `p_value` is twice the smaller p-value (Bonferroni) of two counts, one for the
    level and one for the slope, by a saddlepoint approximation (Lugannani & Rice 1980) that is
    integrated over the curve's distribution. With clusters, predictions are tested by the same
    two counts. Without clusters, Cox's and Spiegelhalter's statistics are compared with those of
    simulated labels. Either p-value is valid for segments of any size, and depends neither on the
    order of the rows nor on other segments, but for the clusters' estimated spread.

    Among the segments with a q-value of at most q, the expected share of false discoveries is at
    most q (Benjamini & Hochberg 1995), if segments are independent. This holds for one look at rows
    that were not fitted. For looks repeated until a segment is flagged, use `Monitor`. With enough
    rows every calibrator is wrong. Intercept and slope say by how much, and `margin` says how much
    matters. Rows that depend on each other make all of this too sure of itself: see `clusters`.

    Args:
        calibrator: result of `fit_segments`; or of `fit_one_vs_rest`, whose classes are tested as
            segments: are the labels of each class as its own probability says?
        scores: (N,) scores of rows that were not fitted, as in `fit_segments`; or SegmentRows. For
            classes (N, C), as in `fit_one_vs_rest`. Rows of scores on a GPU are copied to the host
            to test them against the fit, whose p-values need each row. Against the predictions they
            stay there, unless there are clusters or the curves are no sigmoids.
        labels: (N,) labels, as in `fit_segments`, or as in `fit_one_vs_rest`.
        segments: (N,) segment ids, as in `fit_segments`; None for classes.
        offset: offset, as in the calibrator's `predict_proba`.
        clusters: (N,) ids of rows that depend on each other, such as their days, or None. The
            log-odds of the rows of a segment and cluster are shifted together, by a normal variable
            with mean 0, independently of other segments. Not with SegmentRows.
        cluster_sd: standard deviation of the clusters' shifts in log-odds; None to estimate it from
            all segments with several clusters, by moments (DerSimonian & Laird 1986). If there are
            none, no segment is tested: every p-value is NaN, and a RuntimeWarning says so.
        against: the hypothesis, "fit" or "predictions".
        margin: the log-odds of a segment may be off by up to this without being wrong, as in
            `Monitor`, but all of a segment's rows by the same. A tenth of the odds is 0.1.
        fdr: false discovery rate, in (0, 1): a segment is flagged if its q-value is at most this.
        non_finite: effect of a score or label that is NaN or infinite. "flag": its segment is not
            tested; "omit": the row is left out; "raise": a ValueError.

    Returns:
        A Table with a line for each segment of the rows, most urgent first, and the columns

        - `segment`, or one column for each of its several columns; for classes `class`;
        - `rows`, without those left out, `positives`, `expected`, the sum of the predictions, and
          `ratio`, positives over expected. The sums of `positives` and `expected` are those of all
          rows together, which may be off where no segment is;
        - `q_value` and `flagged`;
        - `intercept` and `slope` of the true log-odds over the predicted ones, 0 and 1 if these are
          right, with standard errors `se_intercept` and `se_slope`. They are fitted with standard
          normal priors around 0 and 1, because few rows often have no finite fit without;
        - `cox_p_value`, by the chi-square distribution, and `spiegelhalter_z`, standard normal,
          positive where predictions are too extreme; both are rough if rows are few or depend on
          each other. These and `p_value` are of the best predictions within the margin;
        - `p_value`.

        Segments that are not tested come last, the largest first: every column after `ratio` is NaN
        for them, and none is flagged. The columns before are NaN too if rows or predictions are.
        A segment is not tested if it has rows that are not finite (see `non_finite`), or if its fit
        is NaN. Against the fit it is not tested either if too little is known of it: without a
        population, if it was not fitted, was fitted on fewer than 5 rows or has a single score;
        with a population of a handful of segments, or of one or two rows each, if it depends on the
        population. A RuntimeWarning gives their number.

    Raises:
        ValueError: an argument is not as above; SegmentRows have weights; or, with
            non_finite="raise", a score, label or offset is not finite.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> segments = np.arange(4000) % 4
        >>> scores = rng.normal(size=4000)
        >>> labels = rng.random(4000) < 1 / (1 + np.exp(-2 * scores))
        >>> calibrator = fit_segments(scores, labels, segments)
        >>> flipped = labels ^ (segments == 3)
        >>> fresh = triage(calibrator, scores, flipped, segments)
        >>> int(fresh["segment"][0]), int(fresh["flagged"].sum())
        (3, 1)
    """
    if isinstance(calibrator, OneVsRestCalibrator):
        if have_no_rows(scores, labels):
            return tables.by_class(triage(calibrator.by_class, [], [], []))
        class_rows = rows_of_classes(calibrator, scores, labels, segments, offset=offset)
        pairs: Any = class_rows, None, None, None
        if class_rows.device is None or clusters is not None:
            *pairs, _, offset = row_arrays(class_rows, "weights")
            pairs.append(offset)
        by_class = triage(
            calibrator.by_class,
            *pairs[:3],
            offset=pairs[3],
            clusters=class_rows.repeat_rows(clusters),
            cluster_sd=cluster_sd,
            against=against,
            margin=margin,
            fdr=fdr,
            non_finite=non_finite,
        )
        return tables.by_class(by_class)
    validation.require_one_of(against, ("fit", "predictions"), "against")
    require_segment_calibrator(calibrator, "calibrator", any_curve=against == "predictions")
    validation.require_fraction(fdr, "fdr")
    validation.require_one_of(non_finite, ("flag", "raise", "omit"), "non_finite")
    validation.require_not_negative(margin, "margin")
    if cluster_sd is not None:
        validation.require_not_negative(cluster_sd, "cluster_sd")
        if clusters is None:
            raise ValueError("cluster_sd: expected clusters beside it")
    # Ids of several columns have a shape (0, columns).
    if not isinstance(scores, SegmentRows) and (
        np.shape(scores) == np.shape(labels) == (0,) and np.shape(segments)[:1] == (0,)
    ):
        none = np.zeros(0, np.int64)
        untested: dict[str, Array] = dict.fromkeys(COLUMNS, np.zeros(0))
        return _table(calibrator.keys[:0], none, none > 0, untested, fdr)
    caller = Caller()
    rows = segment_rows(scores, labels, segments, None, offset=offset)
    if against == "predictions" and clusters is None and are_there(calibrator, rows):
        with jax.default_device(rows.device):
            return _tested_there(calibrator, rows, min(float(margin), _WIDEST), fdr, non_finite)
    keys, groups, (f, y, _, o) = laid_out(rows, "weights")
    sizes, owner = groups.sizes, groups.owner
    cluster = None
    if clusters is not None:
        if segments is None:
            raise ValueError("clusters: expected none beside SegmentRows")
        cluster = clusters_of_segment_rows(clusters, len(f), segments)(
            slice(0, len(keys)), slice(None)
        )
    finite = np.isfinite(f) if o is None else np.isfinite(f) & np.isfinite(o)
    if non_finite == "raise" and not finite.all():
        _raise_non_finite(keys, np.unique(owner[~finite]))
    if non_finite == "omit":
        o = None if o is None else o[finite]
        cluster = None if cluster is None else cluster[finite]
        f, y, owner, finite = f[finite], y[finite], owner[finite], finite[finite]
        sizes = np.bincount(owner, minlength=len(keys))
    indices = get_indexer(calibrator.keys, split_columns(keys), "segments")
    if calibrator.shift is not None:
        # What the fit knows is known at the rate of its rows.
        shift = shift_of(calibrator, keys, indices)[owner]
        o = -shift if o is None else o - shift
        calibrator = calibrator.unshifted()
    proba = calibrator.predict_proba(f.astype(float), keys[owner], offset=o).astype(float)
    # The probability at an infinite score is finite: 0 or 1.
    bad = ~(finite & np.isfinite(proba))
    testable = (sizes > 0) & (np.bincount(owner, bad, len(keys)) == 0)
    tested, fitted = testable, None
    if against == "fit":
        fitted = posteriors(calibrator, keys, indices)
        tested = testable & fitted.usable
        fitted = fitted.of(tested)
    if not tested.all():
        _warn_untested(caller, keys, testable, tested, non_finite)
    tests: dict[str, Array] = dict.fromkeys(COLUMNS, np.zeros(0))
    if tested.any():
        row_tested = tested[owner]
        by_row = f[row_tested].astype(float), proba[row_tested], y[row_tested] > 0
        fresh_offset = None if o is None else o[row_tested].astype(float)
        drawn = hashes(keys[tested]) if fitted is None else np.zeros(tested.sum(), np.uint64)
        fresh = FreshRows(*by_row, Groups(sizes[tested]), drawn, fresh_offset)
        if cluster is not None:
            fresh = _clustered(fresh, cluster[row_tested], cluster_sd, caller)
        tests = judged(fresh, fitted, min(float(margin), _WIDEST))
    # All rows together are known, tested or not.
    counts = np.where(testable, Groups(sizes).sums([(y > 0).astype(float), proba]), np.nan)
    return _table(keys, sizes, tested, tests, fdr, counts)


def _tested_there(
    calibrator: SegmentCalibrator, rows: Any, margin: float, fdr: float, non_finite: str
) -> Table:
    """The tests against the predictions of rows on a device."""
    rows.require_without("weights")
    calibrator = fetched(calibrator)
    keys, sizes = rows.keys[rows.largest_first], rows.sizes
    has_curve = np.isfinite(parameters_of(rows, calibrator)).all(1)
    rows = with_predictions(rows, calibrator)
    facts = RowFacts(rows)
    if non_finite == "raise" and facts.bad.any():
        _raise_non_finite(keys, np.flatnonzero(facts.bad))
    if non_finite == "omit":
        sizes = sizes - facts.bad
    tested = has_curve & (sizes > 0) & ((facts.bad == 0) | (non_finite == "omit"))
    tests: dict[str, Array] = dict.fromkeys(COLUMNS, np.zeros(0))
    if not tested.all():
        _warn_untested(Caller(), keys, tested, tested, non_finite)
    if (indices := np.flatnonzero(tested)).size:
        tests = judged_there(rows, indices, facts, hashes(keys[indices]), margin)
    return _table(keys, sizes, tested, tests, fdr)


def _table(
    keys: NDArray[Any],
    sizes: Ints,
    tested: Bools,
    tests: dict[str, Array],
    fdr: float,
    counts: Any = (np.nan, np.nan),
) -> Table:
    """The result, given segments by size, which are tested, and the columns of these tests.

    `counts` are the positives and their expectation (2, K) of those that are not.
    """
    columns = {name: _placed(tested, tests[name]) for name in COLUMNS}
    q_value = q_values(columns["p_value"])
    first: dict[str, NDArray[Any]] = {
        name: np.where(tested, columns.pop(name), count)
        for name, count in zip(("positives", "expected"), counts, strict=True)
    }
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        first["ratio"] = first["positives"] / first["expected"]
    first |= {"q_value": q_value, "flagged": q_value <= fdr}
    # The rows' segments are sorted by size, and the sort is stable for untested ones.
    order = np.lexsort((columns["cox_p_value"], columns["p_value"], ~tested))
    table = tables.keyed("segment", keys, {"rows": sizes} | first | columns)
    return Table({name: x[order] for name, x in table.items()})


def _raise_non_finite(keys: NDArray[Any], bad: Ints) -> None:
    """Raises, given the segments with rows that are not finite."""
    raise ValueError(
        f"scores, labels, offset: expected finite values, found NaN or infinite numbers in "
        f"{len(bad):,} of {tables.counted(len(keys), 'segment')}, the largest "
        f"{tables.name(keys, bad[0])}"
    )


def _warn_untested(
    caller: Caller, keys: NDArray[Any], testable: Bools, tested: Bools, non_finite: str
) -> None:
    """Warns of segments that are not tested: some have bad rows, others have no posterior."""
    reason = (
        "they have rows that are not finite, or no curve. "
        'triage(..., non_finite="omit") tests them without these rows'
    )
    if non_finite == "omit":
        reason = "they have no finite rows, or no curve"
    unknown = (
        "their fits say too little (few rows, one score, not fitted, or few segments). "
        'triage(..., against="predictions") tests what is predicted for them'
    )
    for mask, why in ((~testable, reason), (testable & ~tested, unknown)):
        if mask.any():
            first = tables.name(keys, np.flatnonzero(mask)[0])
            caller.warn(
                f"{mask.sum():,} of {tables.counted(len(keys), 'segment')} not tested, the "
                f"largest {first}: {why}"
            )


def _clustered(rows: FreshRows, words: NDArray[Any], sd: float | None, caller: Caller) -> FreshRows:
    """The rows with their clusters, given the hash of each row's and the shifts' deviation."""
    owner = numbered(rows.groups.owner, words)
    variance = shock_variance(rows, owner) if sd is None else float(sd) * float(sd)  # ** 2 raises
    if np.isnan(variance):
        caller.warn(
            "no segment tested: none has two clusters of rows that are not all surely predicted or "
            "of one label, so how much clusters differ is not known. Give it as cluster_sd"
        )
    return rows._replace(clusters=Clusters(owner, variance))


def _placed(where: Bools, x: Array) -> Floats:
    """The numbers where the mask holds, NaN elsewhere."""
    placed = np.full(len(where), np.nan)
    placed[where] = x
    return placed


def q_values(p_value: Floats) -> Floats:
    """Benjamini-Hochberg q-values; NaN for NaN."""
    order = np.argsort(p_value)  # NaN last
    number = np.isfinite(p_value).sum()
    q: Floats = p_value[order] * number / np.arange(1, len(p_value) + 1)
    q[:number] = np.minimum.accumulate(q[:number][::-1])[::-1]
    q_value = np.empty_like(q)
    q_value[order] = np.minimum(q, 1)
    return q_value
