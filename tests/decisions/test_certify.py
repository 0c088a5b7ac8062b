"""Certification: against binomial probabilities by hand, and by simulation at the worst case."""

import warnings

import numpy as np
import pytest
from scipy.stats import binom, nbinom

import platt_jax as pj

# Labels of these tests are not those that the gates' curves expect.
pytestmark = pytest.mark.filterwarnings("ignore:of .* accepted rows:RuntimeWarning")


@pytest.fixture
def gates(rng):
    """Gates of 30 segments at 0.9, of known thresholds."""
    ids = np.repeat(np.arange(30), 100)
    scores = rng.normal(size=3_000)
    labels = rng.random(3_000) < 1 / (1 + np.exp(-4 * scores))
    calibrator = pj.fit_segments(scores, labels, ids, pooling="partial")
    table = pj.gate(calibrator, scores, ids, precision=0.9)
    assert (table["status"] == "OK").all()
    table["threshold"] = np.zeros(30)
    return table


def drawn(rng, right, each):
    """Rows of which half have a score above 0, and so many of these are of class 1."""
    ids = np.repeat(np.arange(len(right)), each)
    scores = rng.choice([-1.0, 1.0], len(ids))
    return scores, (rng.random(len(ids)) < right[ids]) & (scores > 0), ids


def test_numbers_are_those_of_the_binomial_distribution(rng, gates):
    right = np.linspace(0.85, 1, 30)
    scores, labels, ids = drawn(rng, right, 200)
    order = rng.permutation(6_000)
    found = pj.certify(gates, scores[order], labels[order], ids[order])
    p = np.empty(30)
    for k in range(30):
        mine = (ids == k) & (scores > 0)
        n, good = mine.sum(), labels[mine].sum()
        assert (found["rows"][k], found["right"][k]) == (n, good)
        p[k] = binom.sf(good - 1, n, 0.9)
    np.testing.assert_allclose(found["p_value"], p, rtol=1e-9)
    # Benjamini and Hochberg's largest R with p_(R) <= R fdr / 30.
    chosen = max((r for r in range(31) if r == 0 or np.sort(p)[r - 1] <= r * 0.05 / 30), default=0)
    assert found["flagged"].sum() == chosen > 3
    np.testing.assert_array_equal(found["flagged"], p <= chosen * 0.05 / 30)
    # The bound is the precision at which the test just rejects, at the level of those selected.
    for k in range(30):
        tail = binom.sf(found["right"][k] - 1, found["rows"][k], found["lower"][k])
        np.testing.assert_allclose(tail, chosen * 0.05 / 30, rtol=1e-6)
    assert (found["lower"] <= found["precision"]).all()
    np.testing.assert_array_equal(found["lower"] >= 0.9, found["flagged"])
    # Where none is certified, one would be at a p-value of fdr / 30.
    none = pj.certify(gates, *drawn(rng, np.full(30, 0.85), 100))
    assert not none["flagged"].any() and (none["lower"] < 0.9).all()
    tail = binom.sf(none["right"] - 1, none["rows"], none["lower"])
    np.testing.assert_allclose(tail, 0.05 / 30, rtol=1e-6)
    np.testing.assert_array_equal(found["status"] == "OK", found["flagged"])
    assert (found["basis"] == "exact").all() and (found["target"] == 0.9).all()


def test_statuses_and_few_rows(rng, gates):
    """At 0.9 a single segment needs 29 rows without a mistake."""
    gates["status"] = np.where(np.arange(30) == 5, "REVERSED", gates["status"])
    ids = np.concatenate([np.repeat(0, 28), np.repeat(1, 200), np.repeat(2, 200), np.repeat(5, 99)])
    scores = np.ones(len(ids))
    labels = (ids != 2) | (np.arange(len(ids)) % 5 > 0)
    found = pj.certify(gates, scores, labels, ids)
    expected = ["TOO_FEW", "OK", "UNCERTIFIED", "NO_ROWS", "NO_ROWS", "REVERSED"]
    assert found["status"][:6].tolist() == expected
    assert found["rows"][5] == 0 and np.isnan(found["p_value"][[3, 5]]).all()
    assert np.isnan(found["precision"][3])
    alone = pj.certify(gates, np.ones(29), np.ones(29), np.zeros(29, int))
    assert (
        alone["flagged"][0]
        and not pj.certify(gates, np.ones(28), np.ones(28), np.zeros(28, int))["flagged"].any()
    )


def test_the_negative_side_and_both(rng):
    ids = np.repeat(np.arange(10), 400)
    scores = rng.normal(size=4_000)
    labels = rng.random(4_000) < 1 / (1 + np.exp(-4 * scores))
    calibrator = pj.fit_segments(scores, labels, ids, pooling="partial")
    both = pj.gate(calibrator, scores, ids, side="both")
    fresh = rng.normal(size=40_000)
    k = np.arange(40_000) % 10
    truth = rng.random(40_000) < 1 / (1 + np.exp(-4 * fresh))
    found = pj.certify(both, fresh, truth, k)
    for side, sign in (("positive", 1), ("negative", -1)):
        lines = np.flatnonzero(both["side"] == side)
        one = pj.certify(pj.gate(calibrator, scores, ids, side="both"), fresh, truth, k)
        for line in lines:
            t = both["threshold"][line]
            mine = (k == both["segment"][line]) & (sign * fresh >= sign * t)
            assert found["rows"][line] == mine.sum()
            assert found["right"][line] == (truth[mine] == (sign > 0)).sum()
        np.testing.assert_array_equal(one["rows"][lines], found["rows"][lines])
    assert found["precision"].min() > 0.9


def test_some_lines_and_ids_of_several_columns(rng):
    ids = np.repeat(np.arange(12), 300)
    scores = rng.normal(size=3_600)
    labels = rng.random(3_600) < 1 / (1 + np.exp(-4 * scores))
    pairs = [(f"k{i // 3}", int(i)) for i in ids]
    calibrator = pj.fit_segments(scores, labels, pairs)
    gates = pj.gate(calibrator, scores, pairs)
    found = pj.certify(gates, scores, labels, pairs)
    some = pj.certify(
        type(gates)({name: x[2:4] for name, x in gates.items()}), scores, labels, pairs
    )
    np.testing.assert_array_equal(some["rows"], found["rows"][2:4])
    rows = pj.certify(gates, pj.SegmentRows(scores, labels, pairs), None)
    np.testing.assert_array_equal(rows["rows"], found["rows"])


@pytest.mark.slow
def test_ids_may_be_numbers_and_text(rng):
    """They have no order: NumPy refuses to sort them."""
    codes, f = np.arange(600) % 6, rng.normal(size=600)
    y = rng.random(600) < 1 / (1 + np.exp(-2 * f))
    mixed = [int(x) if x < 3 else str(x) for x in codes]
    found = []
    for ids in (codes, mixed):
        calibrator = pj.fit_segments(f, y, ids)
        gate = pj.gate(calibrator, f, ids, precision=0.7)
        means = pj.inference.estimate_means(calibrator, f, y, ids, pool=f, pool_segments=ids)
        found.append((pj.certify(gate, f, y, ids), means))
    for plain, other in zip(*found, strict=True):
        assert [str(x) for x in other["segment"]] == [str(x) for x in plain["segment"]]
        for name in list(plain)[1:]:
            np.testing.assert_array_equal(other[name], plain[name])


def test_at_the_target_few_are_certified(rng, gates):
    """Each segment's precision is the target itself: the false discovery rate is the worst."""
    any_certified = [
        pj.certify(gates, *drawn(rng, np.full(30, 0.9), 400))["flagged"].any() for _ in range(400)
    ]
    assert np.mean(any_certified) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
    # It does find something: the test is not empty.
    assert 0.005 < np.mean(any_certified)


@pytest.mark.slow
def test_bounds_of_the_selected_hold(rng, gates):
    """On average over selected segments, at the level of the false discovery rate."""
    missed = chosen = missed_others = 0
    for _ in range(500):
        right = rng.uniform(0.85, 1, 30)
        found = pj.certify(gates, *drawn(rng, right, 300))
        chosen += found["flagged"].sum()
        off = found["lower"] > right
        missed += off[found["flagged"]].sum()
        missed_others += off[~found["flagged"]].sum()
    assert chosen > 1_000 and missed / chosen < 0.05
    assert missed_others / (500 * 30 - chosen) < 0.05


@pytest.mark.parametrize("error", [0.0, 0.01])
def test_all_accepted_rows_together_say_that_the_curves_are_wrong(gates, error):
    """A warning at a probability of 1 % by a negative binomial distribution, on one side."""
    gates["precision"], gates["standard_error"] = np.full(30, 0.95), np.full(30, error)
    for each in (1, 100):  # 1.5 and 150 mistakes are expected
        ids, scores = np.repeat(np.arange(30), each), np.ones(30 * each)
        # Errors have a correlation of .1.
        expected, variance = 1.5 * each, max((27 + 90) * (each * error) ** 2, 1e-9)
        shape = expected**2 / variance
        tail = nbinom.sf(np.arange(30 * each), shape, shape / (shape + expected))
        most = int(np.argmax(tail < 0.01))  # P(more than so many) is less
        for wrong, warns in ((most, False), (most + 1, True), (0, False)):
            labels = np.arange(30 * each) >= wrong
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                pj.certify(gates, scores, labels, ids)
            assert bool(heard) is warns, (each, wrong)
    right = 3_000 - most - 1
    with pytest.warns(RuntimeWarning, match=f"of 3,000 accepted rows {right:,} are right, 2,850"):
        pj.certify(gates, scores, np.arange(3_000) < right, ids)


def test_mistakes_among_rows_whose_probabilities_round_to_1_are_told(rng):
    scores, ids = rng.normal(size=2_000), np.arange(2_000) % 4
    labels = rng.random(2_000) < 1 / (1 + np.exp(-4 * scores))
    far, far_ids = np.full(400, 60.0), np.arange(400) % 4
    gates = pj.gate(pj.fit_segments(scores, labels, ids), far, far_ids)
    assert (gates["precision"] == 1).all()
    with pytest.warns(RuntimeWarning, match="of 400 accepted rows 100 are right, 400 were expec"):
        pj.certify(gates, far, np.arange(400) < 100, far_ids)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pj.certify(gates, far, np.ones(400), far_ids)


@pytest.mark.parametrize(
    ("labels", "what"),
    [
        (np.full(90, 0.3), "got 0.3: an exact test needs a label of each row, not shares"),
        (np.full(90, 3), "got 3: an exact test needs a label of each row, not counts of several"),
        (np.full(90, np.nan), "labels: expected a label of each row, got NaN"),
        (np.ones(80), r"labels: expected one per row, \(90,\)"),
        (["yes"] * 90, "labels: expected"),
    ],
)
def test_labels_that_are_none_are_refused(gates, labels, what):
    with pytest.raises(ValueError, match=what):
        pj.certify(gates, np.ones(90), labels, np.arange(90) % 30)


def test_other_refusals(rng, gates):
    given = np.ones(90), np.ones(90), np.arange(90) % 30
    with pytest.raises(ValueError, match="fdr: expected"):
        pj.certify(gates, *given, fdr=0)
    for other in (
        {"segment": [1]},
        gates["threshold"],
        pj.fit_segments(*given, pooling="complete").table(),
    ):
        with pytest.raises(ValueError, match=r"gate: expected a table from platt_jax\.gate"):
            pj.certify(other, *given)
    lists = {name: x.tolist() for name, x in gates.items()}
    with pytest.raises(ValueError, match="gate: expected NumPy arrays in the table, got"):
        pj.certify(lists, *given)
    double = type(gates)({name: np.repeat(x, 2) for name, x in gates.items()})
    with pytest.raises(ValueError, match="gate: expected one line for each segment and side"):
        pj.certify(double, *given)
    for name in ("weights", "offset"):
        rows = pj.SegmentRows(*given, **{name: np.ones(90)})
        with pytest.raises(ValueError, match=f"scores: expected SegmentRows without {name}"):
            pj.certify(gates, rows, None)
    with pytest.raises(ValueError, match="labels: expected one per row, got None"):
        pj.certify(gates, np.ones(3), None, [1, 2, 3])
