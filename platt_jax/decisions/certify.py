"""Which gates hold on fresh labels, for a curve of any shape.

Of n accepted rows k are right. If they are independent and at most a share q of them is right in
expectation, P(k or more right) is at most as for a binomial variable (Hoeffding 1956, "On the
distribution of the number of successes in independent trials", theorem 4: rows of different
probabilities vary less). Benjamini and Hochberg's procedure (1995) selects R of S segments at a
false discovery rate. Bounds of those selected hold on average if each has the level 1 - R fdr / S
(Benjamini & Yekutieli 2005, "False discovery rate-adjusted multiple confidence intervals", section
3; Benjamini & Bogomolov 2014, "Selective inference on multiple families of hypotheses").
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Floats, Integers
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.decisions.exact import Evidence, exact_p_values, hard_labels
from platt_jax.decisions.gate import NEGATIVE
from platt_jax.decisions.nested_groups import (
    Levels,
    NestedGroups,
    covering_q_values,
    groups_of,
    nearest,
    number_covering,
)
from platt_jax.execution.class_rows import ClassRows
from platt_jax.execution.segment_rows import SegmentRows, row_arrays
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.vocabulary import distinct
from platt_jax.results.tables import Table

_NUMBERS = ("rows", "threshold", "share", "precision", "standard_error", "lower", "target")
_OWN = ("side", *_NUMBERS, "basis", "status")
# All accepted rows disagree with the curves if so many mistakes are less probable than this.
_IMPROBABLE = 0.01
_LEAST_SPREAD = 1e-3  # of the expected mistakes, relative to them
_SUREST = 1 - 2.0**-53  # largest expected precision: probabilities nearer to 1 round to it
# Of the errors of two segments' curves, which have a population in common.
_CORRELATION = 0.1


@takes_columns
def certify(
    gate: Table,
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    fdr: float = 0.05,
    levels: Levels | Literal[True] | None = None,
    clusters: Column = None,
) -> Table:
    """Which gates have the precision that was asked for, by fresh labels and without a curve.

    The accepted rows of each segment are tested by an exact binomial test of the hypothesis that
    their precision is at most the gate's target, and the segments that reject it are certified at a
    false discovery rate. For a curve of any shape, if rows (or `clusters` of rows) are
    independent of each other and were not used for the fit, of the certified segments at most a
    share `fdr` is expected to have a lower precision. The price is labels: for a precision of
    95 % a single segment needs 59 accepted rows without a mistake, and one of many needs more.

    With `levels` groups of segments are tested as well, and each segment is covered by the smallest
    certified group that it belongs to. What holds then is **on the average of the group's accepted
    rows**, those of its segments that are certified themselves included: nothing is said of one
    segment, nor of the rest. Of the groups that cover segments at most a share `fdr` is expected to
    have a lower precision. So segments of a dozen rows can be used, by their group.

    A RuntimeWarning says if more of all accepted rows together are wrong than the curves allow in
    99 % of cases. Then do not trust gates that are not certified. docs/howto/decide.md says how to
    use both kinds of gates, and docs/explanation/numbers.md how often the warning comes, and where
    it is weak evidence.

    Args:
        gate: result of `platt_jax.gate`, or some of its lines.
        scores: (N,) scores of fresh rows, accepted or not; or SegmentRows, for gates of classes
            ClassRows, which have labels and segments. Rows below the thresholds, and of segments
            without a gate, are not used.
        labels: (N,) labels as in `fit_segments`; None beside rows that have them.
        segments: (N,) ids of segments, or of classes if the gates are of classes; or one id.
        fdr: false discovery rate of the certified segments, in (0, 1).
        levels: groups within groups, from coarse to fine: names of the gate's columns of ids, such
            as ["country", "city"] where ids are (country, city, shop); or a dict of columns, of
            which each has the id of a group for each line of the gate. The first level is "all", of
            all segments of a side, and the last one the segments. True means all columns of ids but
            the last. None tests the segments alone.
        clusters: (N,) ids of rows that depend on each other, such as the fields of a document; None
            if rows are independent. In each group a cluster counts once, with the share of its
            accepted rows that is right, and the precision is the mean of these shares. Not beside
            SegmentRows and ClassRows.

    Returns:
        A Table with a line for each line of the gate, in its order; with `levels` after a line for
        each group, level by level. Its columns are

        - `segment`, or one column for each of its several columns, or `class`; and `side`,
          `threshold` and `target`, as in the gate;
        - `rows`, the number of accepted rows, and `right`, how many of them are of their side; with
          clusters `clusters`, the number of those with accepted rows;
        - `precision`, the share of these; NaN without rows;
        - `lower`, the bound of the precision, Clopper and Pearson's unless there are clusters of
          several rows. It allows for the selection of the certified segments: it is the target or
          more where a segment is certified, and below it elsewhere; NaN without rows;
        - `p_value` and `q_value`, NaN without accepted rows; and `flagged`, whether the segment is
          certified: its q-value is at most `fdr`;
        - with `levels`: `level`, such as "all"; None for ids of finer levels, and NaN for the
          threshold of groups; and `certified_by`, the finest level at which the line's segment or
          group is certified, "" if at none, or without rows. `q_value` is NaN also where so few
          rows would not suffice if all were right;
        - `basis`, "exact";
        - `status`: OK, certified; UNCERTIFIED; TOO_FEW, so many rows would not suffice if all were
          right, even for a single segment; NO_ROWS; or the gate's own, if that is not OK.

    Raises:
        ValueError: an argument is not as above; labels are shares, or counts of several trials;
            SegmentRows have weights or an offset.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments, gate
        >>> rng = np.random.default_rng(0)
        >>> def judged(rows):
        ...     task, score = np.arange(rows) % 10, rng.normal(size=rows)
        ...     return score, rng.random(rows) < 1 / (1 + np.exp(-3 * score)), task
        >>> score, right, task = judged(2000)
        >>> judge = fit_segments(score, right, task, pooling="partial")
        >>> gates = gate(judge, score, task, precision=0.9)
        >>> [int(certify(gates, *judged(rows))["flagged"].sum()) for rows in (4_000, 40_000)]
        [0, 7]
    """
    validation.require_fraction(fdr, "fdr")
    names = _names(gate)
    kind = ClassRows if names == ["class"] else SegmentRows
    if isinstance(scores, kind):
        if clusters is not None:
            raise ValueError(f"clusters: expected None beside {kind.__name__}; give the arrays")
        arrays = row_arrays(scores, "weights", "offset", labels=labels, segments=segments)
        scores, labels, segments = arrays.scores, arrays.labels, arrays.segments
    validation.require_each(scores, labels=labels, segments=segments)
    f = validation.numbers(scores, "scores").astype(np.float64)
    validation.require_flat(f, "scores")
    y = hard_labels(labels, f)
    columns = [gate[name] for name in names]
    keys = columns[0] if len(columns) == 1 else ids.structured(names, columns)
    accepted = _accepted(gate, keys, f, y, segments, clusters)
    target = np.asarray(gate["target"], float)
    _warn_if_worse(gate, accepted)
    groups = groups_of(gate, names, levels, [*_OWN, *_TESTED, "level", "certified_by"])
    tested = _tested(groups, accepted, target, fdr)
    line, level = groups.line, groups.level
    single = level == len(groups.levels) - 1
    status = np.select(
        [single & (gate["status"][line] != "OK"), tested.flagged, tested.rows == 0, tested.too_few],
        [gate["status"][line], "OK", "NO_ROWS", "TOO_FEW"],
        "UNCERTIFIED",
    )
    table = Table(groups.ids)
    if levels is not None:
        table["level"] = np.array(groups.levels)[level]
    table |= {
        "side": gate["side"][line],
        "threshold": np.where(single, np.asarray(gate["threshold"], float)[line], np.nan),
        "target": target[line],
        **{name: x for name, x in zip(_TESTED, tested, strict=False) if x is not None},
    }
    if levels is not None:
        by = nearest(tested.flagged, groups)
        table["certified_by"] = np.where(
            (by >= 0) & (tested.rows > 0), np.array(groups.levels)[by], ""
        )
    table["basis"] = np.full(len(line), "exact")
    table["status"] = status
    return table


class _Accepted(NamedTuple):
    """Accepted rows (n,) of the lines of a gate."""

    line: Integers
    right: NDArray[np.bool_]
    cluster: Integers | None  # None if each row is one of its own

    def of(self, groups: NestedGroups) -> Evidence:
        """What they say of each group."""
        rows, right = (groups.sums(x) for x in self.counts(len(groups.of)))
        if self.cluster is None:
            return Evidence(rows, right, np.ones(len(rows), bool))
        number = self.cluster.max(initial=0) + 1
        group = groups.of[self.line].ravel()
        cluster, label = (np.repeat(x, groups.of.shape[1]) for x in (self.cluster, self.right))
        pairs, pair = np.unique(group * number + cluster, return_inverse=True)
        owner, sizes = pairs // number, np.bincount(pair)
        shares = np.bincount(pair, label) / np.maximum(sizes, 1)
        clusters = np.bincount(owner, minlength=len(rows))
        return Evidence(clusters, np.bincount(owner, shares, len(rows)), clusters == rows)

    def counts(self, lines: int) -> tuple[Integers, Integers]:
        """(lines,) numbers of rows, and how many of them are right."""
        rows, right = (np.bincount(x, minlength=lines) for x in (self.line, self.line[self.right]))
        return rows, right

    def weights(self) -> Floats:
        """(n,) of which the rows of each cluster, in all lines together, add up to 1."""
        if self.cluster is None:
            return np.ones(len(self.line))
        return 1 / np.bincount(self.cluster)[self.cluster]


class _Tested(NamedTuple):
    """Tests of groups, of each of which are the accepted rows."""

    rows: Integers
    right: Integers
    clusters: Integers | None  # None if rows have none
    precision: Floats
    lower: Floats
    p_value: Floats
    q_value: Floats
    flagged: NDArray[np.bool_]
    too_few: NDArray[np.bool_]  # rows to reject, if all were right and the group the only one


_TESTED = _Tested._fields[:-1]


def _tested(groups: NestedGroups, accepted: _Accepted, target: Floats, fdr: float) -> _Tested:
    """Tests groups, given the accepted rows and the targets of lines."""
    by_line = accepted.counts(len(target))
    rows, right = (groups.sums(x) for x in by_line)
    evidence, goal = accepted.of(groups), target[groups.line]
    n, p_value = evidence.number, evidence.p_values(goal)
    too_few = ~(exact_p_values(n, n, goal) <= fdr)
    # Numbers of rows say nothing of how many are right: what cannot be rejected is not counted.
    alone = len(groups.levels) == 1
    tested = (n > 0) & (alone | ~too_few)
    paths = groups.of[by_line[0] > 0]
    q_value = covering_q_values(np.where(tested, p_value, np.nan), paths)
    flagged = q_value <= fdr
    doubt = fdr * max(number_covering(flagged, paths), 1) / max(tested.sum(), 1)
    with np.errstate(invalid="ignore"):
        precision = evidence.right / np.where(n > 0, n, np.nan)
    clusters = None if accepted.cluster is None else n
    lower = evidence.lower(doubt)
    return _Tested(rows, right, clusters, precision, lower, p_value, q_value, flagged, too_few)


def _names(gate: Table) -> list[str]:
    """The columns of ids of a table of gates; refuses other tables."""
    if not isinstance(gate, dict) or not {*_OWN} <= {*gate} or len([*gate]) == len(_OWN):
        raise ValueError(f"gate: expected a table from platt_jax.gate, got {type(gate).__name__}")
    for name, column in gate.items():
        if not isinstance(column, np.ndarray):
            kind = type(column).__name__
            raise ValueError(f"gate: expected NumPy arrays in the table, got {name!r} as {kind}")
    return [name for name in gate if name not in _OWN]


def _accepted(
    gate: Table,
    keys: NDArray[Any],
    f: Floats,
    y: NDArray[np.bool_],
    segments: Column,
    clusters: Column,
) -> _Accepted:
    """The accepted rows of each line."""
    owner, present = distinct(ids.read_like(keys, segments, len(f)))
    cluster = None
    if clusters is not None:
        cluster = distinct(ids.read_rows(clusters, len(f), "clusters"))[0]
    parts = []
    for side in np.unique(gate["side"]):
        lines = np.flatnonzero((gate["side"] == side) & (gate["status"] == "OK"))
        codes, line_keys = distinct(split_columns(keys[lines]))
        if len(line_keys) < len(lines):
            raise ValueError("gate: expected one line for each segment and side")
        indices = get_indexer(line_keys, split_columns(present), "segments")[owner]
        rows = np.flatnonzero(indices >= 0)
        line = lines[np.argsort(codes)][indices[rows]]
        threshold = np.asarray(gate["threshold"], float)[line]
        below = side == NEGATIVE
        accepted = f[rows] <= threshold if below else f[rows] >= threshold
        rows, line = rows[accepted], line[accepted]
        parts.append((line, y[rows] != below, rows))
    nothing = np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0, np.int64)
    line, right, rows = (np.concatenate(x) for x in zip(nothing, *parts, strict=True))
    return _Accepted(line, right, None if cluster is None else cluster[rows])


def _warn_if_worse(gate: Table, accepted: _Accepted) -> None:
    """Warns if more of all accepted rows are wrong than the curves allow.

    The number of mistakes is a Poisson variable, whose mean is a gamma variable by the errors of
    the curves. So it is a negative binomial variable.
    """
    from scipy.special import betainc

    weights = accepted.weights()
    rows = np.bincount(accepted.line, weights, len(gate))
    right = (weights * accepted.right).sum()
    used = rows > 0
    n, error = rows[used], gate["standard_error"][used]
    m = np.minimum(gate["precision"][used], _SUREST)
    expected, wrong = (n * (1 - m)).sum(), n.sum() - right
    alone, together = ((n * error) ** 2).sum(), (n * error).sum() ** 2
    variance = (1 - _CORRELATION) * alone + _CORRELATION * together
    variance = np.maximum(variance, (_LEAST_SPREAD * expected) ** 2)
    if not wrong > expected:
        return
    shape = expected**2 / variance
    if betainc(wrong, shape, expected / (shape + expected)) < _IMPROBABLE:
        noun = "accepted rows" if accepted.cluster is None else "clusters of accepted rows"
        Caller().warn(
            f"of {n.sum():,.0f} {noun} {right:,.0f} are right, {n.sum() - expected:,.0f} "
            "were expected: the fitted curves are wrong where gates are. Trust certified gates only"
        )
