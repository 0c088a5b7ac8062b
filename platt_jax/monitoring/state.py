"""What a monitor remembers of each segment, and how a night changes it.

A change may begin at any night. Each starting night has a weight, and all alternatives have the
same weight. The e-process is the weighted mean of the likelihood ratios since the starting nights.
This is a detector of Shiryaev's and Roberts' kind (Shin, Ramdas & Rinaldo 2022, arXiv 2203.03532).
As the weights add up to 1, the mean is an e-process. With weights of 1 each it would bound only the
rate of false alarms per night.
"""

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats, Integers, Ints
from platt_jax.hypothesis_tests.triage import q_values
from platt_jax.ids import join
from platt_jax.ids.factorize import ascending, split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.monitoring.evidence import ALTERNATIVES, Night, log_ratios
from platt_jax.monitoring.shocks import Shocks
from platt_jax.results import tables

# Starting night t has a weight proportional to t^-_DECAY. A change in the 300th night then costs
# 8.6 nats, one in the 20th 5.3.
_DECAY = 1.2
# The sum of all weights: Riemann's zeta function at 1.2.
_ALL_WEIGHTS = 5.591582441177751


@dataclass(frozen=True)
class EvidenceState:
    """The evidence of K segments before tonight, and tonight's sums.

    Nights of a segment are the nights in which it had rows.
    """

    keys: NDArray[Any]  # (K,) ascending
    # (K, ALTERNATIVES) log of the weighted sum, over starting nights, of likelihood ratios
    log_sums: Floats
    # (K, ALTERNATIVES) the start that weighs most in each, as a night of the monitor; 0 for none
    since: NDArray[np.int32]
    nights: Ints  # (K,)
    highest: Floats  # (K,) the largest log e-value so far
    rows: Ints  # (K,)
    positives: Ints  # (K,)
    expected: Ints  # (K,) in UNIT, as in `Night`
    margin: Ints  # (K,)
    tonight: Night

    @classmethod
    def empty(cls, keys: NDArray[Any], terms: int) -> "EvidenceState":
        """The state of segments that have had no rows; nights have T terms, as in `Night`."""
        number = len(keys)
        none, shape = np.zeros(number, np.int64), (number, ALTERNATIVES)
        start = np.full(shape, -np.inf), np.zeros(shape, np.int32), none, np.zeros(number)
        return cls(keys, *start, none, none, none, none, Night.without_rows(number, terms))

    @property
    def terms(self) -> int:
        """T, the number of terms of log likelihood ratios of a night."""
        return self.tonight.log_ratios.shape[1]

    def after(self, night: int, shared: Shocks | None) -> "EvidenceState":
        """The state with tonight's rows among the rows before; tonight was this night."""
        indices = np.flatnonzero(self.tonight.rows)
        log_sums, since, nights = self.log_sums.copy(), self.since.copy(), self.nights.copy()
        nights[indices] += 1
        start = np.log(start_weights(int(nights.max(initial=0)))[0][nights[indices]])[:, None]
        earlier = log_sums[indices]
        since[indices] = np.where(start > earlier, night, since[indices])
        most = np.maximum(earlier, start)
        more = np.log1p(np.exp(np.minimum(earlier, start) - most))
        log_sums[indices] = most + more + log_ratios(self.tonight.of(indices), shared)
        state = replace(
            self,
            log_sums=log_sums,
            since=since,
            nights=nights,
            **{name: getattr(self, name) + getattr(self.tonight, name) for name in _TOTALS},
            tonight=Night.without_rows(len(self.keys), self.terms),
        )
        return replace(state, highest=np.maximum(self.highest, state.log_e()))

    def log_e(self) -> Floats:
        """(K,) logarithms of the e-values before tonight."""
        _, remaining = start_weights(int(self.nights.max(initial=0)))
        most = self.log_sums.max(1)
        finite = np.where(np.isfinite(most), most, 0)
        mean = np.exp(self.log_sums - finite[:, None]).mean(1)
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log(mean) + finite, np.log(remaining[self.nights]))

    def including(self, keys: NDArray[Any]) -> tuple["EvidenceState", Integers]:
        """The state with these segments among its own, and their places in it."""
        new = keys[get_indexer(self.keys, split_columns(keys)) < 0]
        wide = self
        if len(new):
            all_keys, indices = ascending(join([self.keys, new]))
            wide = self.placed(indices[: len(self.keys)], all_keys)
        return wide, get_indexer(wide.keys, split_columns(keys))

    def placed(self, place: Integers, keys: NDArray[Any]) -> "EvidenceState":
        """The segments at these places among more."""
        wide = EvidenceState.empty(keys, self.terms)
        changed: dict[str, Any] = {"tonight": self.tonight.placed(place, len(keys))}
        for name in COLUMNS:
            changed[name] = getattr(wide, name).copy()
            changed[name][place] = getattr(self, name)
        return replace(wide, **changed)

    def of(self, some: Any) -> "EvidenceState":
        """Some of the segments."""
        columns = {name: getattr(self, name)[some] for name in ("keys", *COLUMNS)}
        return EvidenceState(**columns, tonight=self.tonight.of(some))


COLUMNS = tuple(
    field.name for field in fields(EvidenceState) if field.name not in ("keys", "tonight")
)
_TOTALS = Night._fields[1:]


@lru_cache(maxsize=4)
def start_weights(nights: int) -> tuple[Floats, Floats]:
    """(nights + 1,) the weight of each starting night, and of all that follow it."""
    weight = np.zeros(nights + 1)
    weight[1:] = np.arange(1, nights + 1) ** -_DECAY / _ALL_WEIGHTS
    return weight, 1 - np.cumsum(weight)


def merged(first: EvidenceState, second: EvidenceState) -> EvidenceState:
    """The state of both; a segment of both must have the same past."""
    if not len(second.keys):
        return first
    if not len(first.keys):
        return second
    shared = get_indexer(first.keys, split_columns(second.keys)) >= 0
    first, places = first.including(second.keys)
    second = second.placed(places, first.keys)
    in_both, in_second = places[shared], places[~shared]
    columns = {}
    for name in COLUMNS:
        values, second_values = getattr(first, name).copy(), getattr(second, name)
        differs = (values[in_both] != second_values[in_both]).any(axis=tuple(range(1, values.ndim)))
        if differs.any():
            raise ValueError(
                "other: expected a monitor that was the same before the last night; it has another "
                f"past of segment {tables.name(first.keys, in_both[differs.argmax()])}"
            )
        values[in_second] = second_values[in_second]
        columns[name] = values
    tonight = Night(*(x + y for x, y in zip(first.tonight, second.tonight, strict=True)))
    return replace(first, **columns, tonight=tonight)


def e_q_values(log_e: Floats) -> Floats:
    """(K,) the least false discovery rate at which e-BH reports each segment.

    e-BH is the procedure of Benjamini and Hochberg applied to 1 / e (Wang & Ramdas 2022, "False
    discovery rate control with e-values"). It needs no assumption on the dependence of segments.
    """
    return q_values(np.exp(-np.maximum(log_e, 0)))


def lifted(highest: Floats) -> Floats:
    """(K,) log e-values from the logarithms L of the maxima of e-processes.

    A maximum m is not an e-value; (m - 1 - L) / L^2 is. It is the mean of the adjusters
    k m^(1 - k) over k from 0 to 1 (Shafer, Shen, Vereshchagin & Vovk 2011, "Test martingales, Bayes
    factors and p-values"; Choe & Ramdas 2024, "Combining evidence across filtrations using
    adjusters").
    """
    L = np.maximum(highest, 0)
    near, safe = L < 1e-3, np.maximum(L, 1e-3)
    # L + log(1 - (1 + L) exp(-L)) - 2 log(L), and its series at 0
    exact = safe + np.log(-np.expm1(np.log1p(safe) - safe)) - 2 * np.log(safe)
    return np.where(near, np.log(0.5) + L / 3, exact)
