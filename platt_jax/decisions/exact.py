"""Exact tests of precisions, and gates by labels alone.

Of n accepted rows k are right. If they are independent and at most a share q of them is right in
expectation, P(k or more right) is at most as for a binomial variable (Hoeffding 1956, "On the
distribution of the number of successes in independent trials", theorem 4).

A gate by labels is the lowest of some thresholds that such tests do not reject, one after the other
from the most cautious one on. Thresholds are chosen by scores alone, and the first one that fails
ends the sequence, so that each test may have the whole level (Angelopoulos, Bates, Candes, Jordan &
Lei 2021, "Learn then test", section 2.3, fixed sequence testing).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Floats, Integers
from platt_jax.columns import Column
from platt_jax.decisions.accepted import FirstAccepted, KnownRows

# Of sums of shares, and how often an interval is halved to find a bound.
_ROUNDING, _HALVINGS = 1e-9, 50
# The next threshold accepts a tenth more rows: each test is one more that may end the sequence.
_GROWTH = 1.1


def first_certified(
    known: KnownRows,
    positive: bool,
    target: float,
    level: float,
    labels: NDArray[np.bool_],
    halves: bool,
) -> tuple[NDArray[Any], FirstAccepted]:
    """The status of segments, and the first row of each from which on labels certify all rows.

    With `halves` only rows that are predicted to be of the side may be accepted.
    """
    if not positive:
        known = known.reversed()
    groups, scores = known.groups, known.scores
    ends = groups.by_row(groups.starts + groups.sizes)
    n, right = ends - np.arange(groups.rows), (labels[known.place] == positive).astype(np.int64)
    k = _from_here_on(right, ends)
    # Rows of one score are accepted together. Of those that accept enough rows are tested the first
    # ones, from the last row of a segment on, at each stage of growth.
    first_of_score = np.append(True, scores[1:] != scores[:-1])[: groups.rows]
    first_of_score |= groups.place == 0
    least = least_rows(target, level)
    candidates = np.flatnonzero(first_of_score & (n >= least))
    stage = np.floor(np.log(n[candidates] / least) / np.log(_GROWTH))
    following = np.append(candidates[1:], groups.rows)
    begins = following >= ends[candidates]
    begins[:-1] |= stage[:-1] > stage[1:]
    tested = candidates[begins]
    fails = np.zeros(groups.rows, np.int64)
    fails[tested] = ~(exact_p_values(n[tested], k[tested], target) <= 1 - level)
    allowed = np.zeros(groups.rows, bool)
    allowed[tested] = (_from_here_on(fails, ends) == 0)[tested]
    if halves:
        predicted = known.proba >= 0.5 if positive else known.proba > 0.5
        allowed &= _from_here_on(~predicted, ends) == 0
    position = np.where(allowed, groups.place, groups.by_row(groups.sizes))
    first = groups.minima(position)
    reached = first < groups.sizes
    row = (groups.starts + np.where(reached, first, 0)).astype(np.int64)
    enough = np.where(groups.sizes < least, "TOO_FEW", "OK")
    status = np.where(known.status == "NON_FINITE", known.status, enough)
    return status, FirstAccepted(
        groups.sizes,
        reached,
        scores[row] if positive else -scores[row],
        n[row] / groups.sizes,
        k[row] / n[row],
        np.full(len(row), np.nan),
        clopper_pearson(n[row], k[row], 1 - level),
    )


def _from_here_on(counts: Integers | NDArray[np.bool_], ends: Integers) -> Integers:
    """(N,) sums of whole numbers from each row to the last one of its group."""
    total = np.append(0, np.cumsum(counts))
    return total[ends] - total[:-1]


def least_rows(target: float, level: float) -> int:
    """How many rows, all of them right, certify a precision."""
    return int(np.ceil(np.log1p(-level) / np.log(target)))


def exact_p_values(rows: NDArray[Any], right: NDArray[Any], target: Floats | float) -> Floats:
    """(G,) P(so many right or more) if the precision is the target; NaN without rows."""
    from scipy.special import betainc

    has_right = right > 0
    a, b = np.where(has_right, right, 1), rows - np.where(has_right, right, 1) + 1
    tail = np.where(has_right, betainc(a, np.maximum(b, 1), target), 1.0)
    return np.where(rows > 0, tail, np.nan)


def clopper_pearson(rows: NDArray[Any], right: NDArray[Any], doubt: float) -> Floats:
    """(G,) the lower bounds that fail with this probability (Clopper & Pearson 1934)."""
    from scipy.special import betaincinv

    has_right = right > 0
    a, b = np.where(has_right, right, 1), rows - np.where(has_right, right, 1) + 1
    return np.where(has_right, betaincinv(a, np.maximum(b, 1), doubt), 0.0)


class Evidence(NamedTuple):
    """Accepted rows of G groups, or clusters of rows that depend on each other."""

    number: Integers  # of rows, or of clusters
    right: Integers | Floats  # sums of labels that are right, or of clusters' shares of these
    exact: NDArray[np.bool_]  # whether no cluster has two rows, so that the tail is binomial

    def p_values(self, target: Floats) -> Floats:
        """(G,) P(so many right or more) at most, if the precision is the target; NaN without rows.

        For shares in [0, 1] by two bounds of the same tail, of which the smaller holds (Hoeffding
        1963, "Probability inequalities for sums of bounded random variables", theorem 1; Bentkus
        2004, "On Hoeffding's inequalities", theorem 1.2).
        """
        from scipy.special import rel_entr

        count = np.floor(np.asarray(self.right) + _ROUNDING).astype(np.int64)
        binomial = exact_p_values(self.number, count, target)
        with np.errstate(invalid="ignore"):
            share = np.minimum(self.right / self.number, 1.0)
            divergence = rel_entr(share, target) + rel_entr(1 - share, 1 - target)
            hoeffding = np.where(share > target, np.exp(-self.number * divergence), 1.0)
        bound = np.minimum(np.minimum(np.e * binomial, hoeffding), 1)
        return np.where(self.exact | (self.number == 0), binomial, bound)

    def lower(self, doubt: float) -> Floats:
        """(G,) the precisions of which the p-value is the doubt; NaN without rows.

        As lower bounds they fail with at most this probability.
        """
        count = np.asarray(self.right).astype(np.int64)
        lower = clopper_pearson(self.number, count, doubt)
        if not self.exact.all():
            low, high = np.zeros(len(lower)), self.right / np.maximum(self.number, 1)
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                below = self.p_values(middle) <= doubt
                low, high = np.where(below, middle, low), np.where(below, high, middle)
            lower = np.where(self.exact, lower, low)
        return np.where(self.number > 0, lower, np.nan)


def hard_labels(labels: Column, f: NDArray[Any]) -> NDArray[np.bool_]:
    """(N,) whether labels are 1; refuses shares and counts."""
    values = validation.array(labels, "labels")
    if values.shape != f.shape:
        raise ValueError(f"labels: expected one per row, {f.shape}, got shape {values.shape}")
    if values.dtype.kind in "iuf":
        if not np.isfinite(values).all():
            raise ValueError("labels: expected a label of each row, got NaN or infinite ones")
        odd = values[~np.isin(values, (-1, 0, 1))]
        if len(odd):
            noun = "counts of several trials" if (odd == np.rint(odd)).all() else "shares"
            raise ValueError(
                f"labels: expected {validation.LABEL_CODINGS}, got {odd[0]}: an exact test needs "
                f"a label of each row, not {noun}"
            )
    return validation.labels(values) > 0
