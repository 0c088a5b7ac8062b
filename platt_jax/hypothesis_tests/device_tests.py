"""Tests of predictions for rows on a GPU, where sums are computed and labels are drawn.

The host gets numbers of segments. P-values above 5 % need no more. For smaller ones it gets the
predictions of the segment's rows, of a large segment the means of similar ones.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from platt_jax.arrays import Bools, Floats, Ints, Words
from platt_jax.caller import Caller
from platt_jax.hypothesis_tests.score_tests import (
    GROUPS,
    ScoreTest,
    extreme,
    judged_variances,
    statistics,
)
from platt_jax.hypothesis_tests.segment_tests import (
    HALVINGS,
    LEAST,
    columns_of,
    recalibrated,
    simulated_p_values,
)
from platt_jax.hypothesis_tests.simulation import SEED, settled_p_values
from platt_jax.hypothesis_tests.tilting import tilted_p_values
from platt_jax.model.objective import Array
from platt_jax.options import Options
from platt_jax.passes.columns import Columns
from platt_jax.passes.replicated import mixed, problem_words
from platt_jax.population.device_segments import segments_of
from platt_jax.results.probabilities import expit


class RowFacts:
    """What is known of the rows of segments (K,), in the order of the layout."""

    def __init__(self, rows: Any) -> None:
        sums = rows.map(_facts)
        self.bad: Ints = sums[:, 0].astype(np.int64)  # number of rows that are not finite
        self.positives, self.expected = sums[:, 1], sums[:, 2]  # of the others


def _facts(rows: Columns, inside: jax.Array) -> jax.Array:
    counts = inside & jnp.isfinite(rows.scores) & jnp.isfinite(rows.offset)
    bad = inside & ~jnp.isfinite(rows.scores)
    columns = bad, counts & (rows.labels > 0), jnp.where(counts, rows.offset, 0)
    return jnp.stack([jnp.sum(x, -1, dtype=np.float64) for x in columns], -1)


def judged_there(
    rows: Any, some: Ints, facts: RowFacts, ids: Words, margin: float
) -> dict[str, Array]:
    """`judged` against the predictions, of rows as by `with_predictions`.

    Args:
        rows: rows of K segments; those that are not finite do not count.
        some: (J,) places of the segments to test, each with a row that counts.
        facts: of the rows.
        ids: (J,) as in `FreshRows`.
        margin: as in `judged`.
    """
    log_odds = segments_of(rows.with_columns(_log_odds), Caller())
    fit = recalibrated(log_odds, Options(targets="none", non_finite="omit"))
    fit = jax.tree.map(lambda x: np.asarray(jax.device_get(x))[rows.largest_first[some]], fit)
    shift = np.zeros(len(some))
    if margin:
        shift = rows.map(_best_within, np.full(len(some), margin), some=some)
    tests = _TestsThere(rows, some, shift)
    p_value = simulated_p_values(tests, ids, tests.sequential_p_values, tests.tilted_p_values)
    return columns_of(facts.positives[some], facts.expected[some], fit, tests, p_value)


class _TestsThere:
    """`ScoreTests` of segments (J,), whose rows stay where they are."""

    def __init__(self, rows: Any, some: Ints, shift: Floats) -> None:
        self._rows, self._some, self._shift = rows, some, shift
        sums = rows.map(_sums_of_tests, shift, some=some).T
        (v_00, self._center, v_11, v_22), fourth, observed = np.split(sums, (4, 7))
        has_slope, variances, self.normal = judged_variances(v_00, v_11, v_22, self._center, fourth)
        self._deviations = np.sqrt(variances)
        self._deviations[self._deviations == 0] = np.inf
        self._observed = observed / self._deviations
        self._found = statistics(self._observed, has_slope, v_22 > 0)
        self.cox_p_value, self.spiegelhalter_z = self._found[:2]
        self.least_p_value = self._found.least_p_value

    def sequential_p_values(self, ids: Words, which: Ints) -> Floats:
        """See `sequential_p_values`."""
        result, words = self._found, problem_words(SEED, ids[which])
        numbers = (self._shift, self._center, self._deviations.T, result.chi_square, result.z)
        chosen = [x[which] for x in numbers]

        def draw(open_: Ints, first: int, last: int) -> Bools:
            streams = words[open_, None] + np.arange(first, last, dtype=np.uint64)
            arguments = streams, *(x[open_] for x in chosen)
            drawn: Bools = self._rows.map(_are_extreme, *arguments, some=self._some[which[open_]])
            return drawn.T

        return settled_p_values(len(which), draw)

    def tilted_p_values(self, ids: Words, which: Ints) -> Floats:
        """See `tilted_p_values`."""
        p_values = np.empty(len(which))
        large = self.normal[which]
        for subset, function in (
            (np.flatnonzero(~large), _ascending),
            (np.flatnonzero(large), _means_of_similar),
        ):
            places = which[subset]
            sizes = self._rows.sizes[self._some[places]]
            starts = np.linspace(0, sizes, GROUPS, endpoint=False, axis=-1).astype(np.int64)
            arguments = self._shift[places], np.concatenate([starts, sizes[:, None]], 1)
            pieces = self._rows.by_size(function, *arguments, some=self._some[places])
            for piece, (proba, log_odds, counts) in pieces:
                tests = _Tests(self, places[piece], proba, log_odds, counts)
                indices = np.arange(len(piece))
                p_values[subset[piece]] = tilted_p_values(tests, ids[places[piece]], indices)
        return p_values

    def one(self, k: int, proba: Floats, log_odds: Floats, counts: Floats) -> ScoreTest:
        """The test of problem k, given its rows, or groups of them with these counts."""
        shares = np.stack([np.ones_like(proba), log_odds - self._center[k], 1 - 2 * proba])
        shares /= self._deviations[:, k, None]
        return ScoreTest(
            proba,
            shares,
            counts,
            shares @ (proba * counts),
            self._observed[:, k],
            self._found.chi_square[k],
            self._found.z[k],
            self.normal[k],
        )


class _Tests:
    """Tests of some problems, with the method of `ScoreTests` that `tilted_p_values` needs."""

    def __init__(
        self, tests: _TestsThere, which: Ints, proba: Floats, log_odds: Floats, counts: Floats
    ) -> None:
        self._tests, self._which, self._rows = tests, which, (proba, log_odds, counts)

    def one(self, k: int) -> ScoreTest:
        used = self._rows[2][k] > 0
        return self._tests.one(self._which[k], *(x[k][used] for x in self._rows))


def _log_odds(rows: Columns, _: list[jax.Array]) -> Columns:
    """Rows whose scores are the predicted log-odds, NaN where they do not count."""
    counts = jnp.isfinite(rows.scores)
    log_odds = _logit(jnp.clip(rows.offset, LEAST, 1 - LEAST))
    return Columns(jnp.where(counts, log_odds, np.nan), rows.labels)


def _logit(proba: jax.Array) -> jax.Array:
    return jnp.log(proba) - jnp.log1p(-proba)


def _predictions(
    rows: Columns, inside: jax.Array, shift: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Which rows count, their probabilities moved within the margin, and log-odds."""
    counts = inside & jnp.isfinite(rows.scores) & jnp.isfinite(rows.offset)
    proba = jnp.clip(jnp.where(counts, rows.offset, 0.5), LEAST, 1 - LEAST)
    proba = jnp.where(shift == 0, proba, expit(_logit(proba) + shift))
    return counts, proba, _logit(proba)


def _best_within(rows: Columns, inside: jax.Array, margin: jax.Array) -> jax.Array:
    counts, _, log_odds = _predictions(rows, inside, jnp.zeros_like(margin))
    labels = (rows.labels > 0).astype(np.float64)

    def halved(_: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) / 2
        off = jnp.where(counts, labels - expit(log_odds + middle), 0)
        more = jnp.sum(off, -1, keepdims=True) > 0
        return jnp.where(more, middle, low), jnp.where(more, high, middle)

    low, high = lax.fori_loop(0, HALVINGS, halved, (-margin, margin))
    return (low + high)[:, 0] / 2


def _sums_of_tests(rows: Columns, inside: jax.Array, shift: jax.Array) -> jax.Array:
    """(k, 10) what `judged_variances` takes, and the sums of the labels less their expectations."""
    counts, proba, log_odds = _predictions(rows, inside, shift)
    variance = jnp.where(counts, proba * (1 - proba), 0)
    v_00 = jnp.sum(variance, -1)
    center = jnp.sum(variance * log_odds, -1) / v_00
    shares = jnp.ones_like(proba), log_odds - center[:, None], 1 - 2 * proba
    off = jnp.where(counts, (rows.labels > 0).astype(np.float64) - proba, 0)
    v_11, v_22 = (jnp.sum(variance * x**2, -1) for x in shares[1:])
    fourth = [jnp.sum(variance * x**4, -1) for x in shares]
    observed = [jnp.sum(off * x, -1) for x in shares]
    return jnp.stack([v_00, center, v_11, v_22, *fourth, *observed], -1)


def _ascending(
    rows: Columns, inside: jax.Array, shift: jax.Array, _: Any = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(k, width) probabilities and log-odds of rows as by `canonical_order`, and which count.

    Rows of one probability are exchangeable, and the draws do not depend on the labels.
    """
    counts, proba, _ = _predictions(rows, inside, shift)
    proba = jnp.sort(jnp.where(counts, proba, np.inf), -1)
    counts = jnp.isfinite(proba)
    proba = jnp.where(counts, proba, 0.5)
    return proba, _logit(proba), counts.astype(np.float64)


def _means_of_similar(
    rows: Columns, inside: jax.Array, shift: jax.Array, starts: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The means of the rows of each group, and their numbers; `starts` are where groups start."""
    proba, log_odds, counts = _ascending(rows, inside, shift)
    first, last = starts[:, 0, :-1, None], starts[:, 0, 1:, None]
    position = first + jnp.arange(proba.shape[1] // GROUPS + 2)[None, None]
    row = jnp.minimum(position, proba.shape[1] - 1).reshape(len(proba), -1)
    in_group = position < last

    def sums(x: jax.Array) -> jax.Array:
        values = jnp.take_along_axis(x * counts, row, 1).reshape(in_group.shape)
        return jnp.sum(jnp.where(in_group, values, 0), -1)

    number = sums(counts)
    return sums(proba) / number, sums(log_odds) / number, number


def _are_extreme(
    rows: Columns,
    inside: jax.Array,
    streams: jax.Array,
    shift: jax.Array,
    center: jax.Array,
    deviations: jax.Array,
    chi_square: jax.Array,
    z: jax.Array,
) -> jax.Array:
    """(k, R) whether draws of labels are at least as extreme, given the words of R draws."""
    proba, log_odds, counts = _ascending(rows, inside, shift)
    pair, second = np.divmod(np.arange(proba.shape[1])[None], 2)
    threshold = (proba * 2.0**32).astype(np.uint32)
    shares = jnp.ones_like(proba), log_odds - center, 1 - 2 * proba

    def is_extreme(stream: jax.Array) -> jax.Array:
        words = mixed(mixed(stream)[:, None] + pair.astype(np.uint64))
        words = jnp.where(second == 1, words >> np.uint64(32), words).astype(np.uint32)
        off = counts * ((words < threshold).astype(np.float64) - proba)
        sums = [jnp.sum(off * x, -1) / deviations[:, 0, i] for i, x in enumerate(shares)]
        return extreme(sums, chi_square[:, 0], z[:, 0])

    return lax.map(is_extreme, streams[:, 0].T).T
