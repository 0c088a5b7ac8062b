"""Other rates of positives: calibrators whose B changes, and all that follows from it."""

import warnings
from functools import cache

import numpy as np
import pytest
from data import labels_of
from levelled import OF_THREE, of_three_levels

import platt_jax as pj
from platt_jax.export import from_json, to_json
from platt_jax.monitoring.judging import before_night
from platt_jax.results.segment_calibrator import parameters

POOLINGS = ["none", "partial", "complete"]
ALL = [*POOLINGS, "nested", "crossed"]
# Rates of the fitted rows and of the use, and the difference of their log-odds.
RATES = {"from_rate": 0.5, "to_rate": 0.01}
BACK = {"from_rate": 0.01, "to_rate": 0.5}
MORE = np.log(0.01 / 0.99)


@cache
def fitted(pooling):
    """A calibrator, and ids of some of its segments and of one that was not fitted."""
    if pooling in ("nested", "crossed"):
        return of_three_levels(pooling), OF_THREE
    rng = np.random.default_rng(0)
    shops = np.arange(600) % 12
    scores, slope = rng.normal(size=600), rng.normal(1.5, 0.3, 12)[shops]
    labels = labels_of(rng, slope * scores + rng.normal(0, 0.7, 12)[shops])
    return pj.fit_segments(scores, labels, shops, pooling=pooling), np.array([0, 5, 11, 99])


def rows(pooling, number=200):
    """A calibrator, and fresh rows of its segments and of others."""
    calibrator, some = fitted(pooling)
    rng = np.random.default_rng(1)
    scores = rng.normal(size=number)
    return calibrator, scores, labels_of(rng, 1.5 * scores + MORE), some[np.arange(number) % 4]


@pytest.mark.parametrize("pooling", ALL)
def test_log_odds_change_by_the_difference_of_the_rates(pooling):
    """As an offset of this size does, which is inside the mean over a population."""
    calibrator, scores, _, segments = rows(pooling)
    shifted = calibrator.shift_prior(**RATES)
    np.testing.assert_allclose(
        shifted.predict_proba(scores, segments),
        calibrator.predict_proba(scores, segments, offset=MORE),
        rtol=1e-12,
    )
    for found, expected in zip(
        shifted.band(scores, segments), calibrator.band(scores, segments, offset=MORE), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert shifted.pooling == calibrator.pooling
    np.testing.assert_array_equal(parameters(shifted)[:, 0], parameters(calibrator)[:, 0])
    np.testing.assert_array_equal(parameters(shifted)[:, 2:], parameters(calibrator)[:, 2:])
    np.testing.assert_allclose(parameters(shifted)[:, 1], parameters(calibrator)[:, 1] - MORE)
    np.testing.assert_allclose(shifted.at_mode().fit.B, calibrator.fit.B - MORE)


@pytest.mark.parametrize("pooling", ALL)
@pytest.mark.parametrize("each", [False, True])
def test_back_to_the_first_rate(pooling, each):
    calibrator, scores, _, segments = rows(pooling)
    rng = np.random.default_rng(2)
    old, new = rng.uniform(0.001, 0.999, (2, len(calibrator)) if each else (2,))
    again = calibrator.shift_prior(old, new).shift_prior(from_rate=new, to_rate=old)
    for one, other in ((again, calibrator), (again.only(again.keys == again.keys[3]), None)):
        other = other or calibrator.only(calibrator.keys == calibrator.keys[3])
        np.testing.assert_allclose(
            one.predict_proba(scores, segments), other.predict_proba(scores, segments), rtol=1e-12
        )
    np.testing.assert_allclose(again.fit.B, calibrator.fit.B, atol=1e-13)
    if calibrator.population is not None:
        for name in ("mean", "likelihood_pull", "posterior_mean", "predictive_mean"):
            found, expected = getattr(again.population, name), getattr(calibrator.population, name)
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["none", "partial", "nested", "crossed"])
def test_an_update_follows(pooling):
    """To shift and learn rows is to learn them with the difference as their offset, and shift."""
    calibrator, scores, labels, segments = rows(pooling)
    one = pj.update(calibrator.shift_prior(**RATES), scores, labels, segments)
    offset = np.full(len(scores), MORE)
    other = pj.update(calibrator, scores, labels, segments, offset=offset).shift_prior(**RATES)
    # Segments that were new are fitted at the new rate.
    known = calibrator.seen(one.keys)
    np.testing.assert_allclose(one.shift, np.append(np.where(known, -MORE, 0.0), -MORE))
    if pooling == "none":
        np.testing.assert_allclose(one.fit.B, other.fit.B, rtol=1e-12)
        return
    found, expected = one.population.likelihood_pull, other.population.likelihood_pull
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
    # The population of both is found within the tolerance of its search.
    np.testing.assert_allclose(
        one.predict_proba(scores, segments), other.predict_proba(scores, segments), rtol=1e-4
    )


@pytest.mark.parametrize("against", ["fit", "predictions"])
@pytest.mark.parametrize("pooling", ["nested", "crossed"])
def test_triage_of_new_segments_tests_what_is_predicted(pooling, against):
    """A new city has the shift of its country, which is the mean of its cities' shifts."""
    calibrator = of_three_levels(pooling)
    to = np.linspace(0.05, 0.95, len(calibrator))
    shifted = calibrator.shift_prior(from_rate=0.5, to_rate=to)
    rng = np.random.default_rng(0)
    place = np.arange(len(OF_THREE)).repeat(50)
    scores, segments = rng.normal(size=len(place)), OF_THREE[place]
    proba = shifted.predict_proba(scores, segments)
    labels = rng.random(len(place)) < proba
    found = pj.triage(shifted, scores, labels, segments, against=against)
    ids = np.stack([found[f"segment_{i}"] for i in range(3)], 1)
    of_ids = [np.flatnonzero((OF_THREE == one).all(1))[0] for one in ids]
    expected = np.bincount(place, proba)[of_ids]
    np.testing.assert_allclose(found["expected"], expected, rtol=1e-9)


def test_a_shift_is_taken_back_only_where_all_its_segments_are():
    calibrator = of_three_levels("nested")
    some = np.arange(len(calibrator)) % 3 == 0
    one = calibrator.shift_prior(from_rate=0.5, to_rate=0.2).only(some).unshifted()
    np.testing.assert_allclose(
        one.predict_proba(np.zeros(len(OF_THREE)), OF_THREE),
        calibrator.only(some).predict_proba(np.zeros(len(OF_THREE)), OF_THREE),
    )
    to = np.linspace(0.05, 0.95, len(calibrator))
    with pytest.raises(ValueError, match="calibrator: expected segments of one shift, or all"):
        calibrator.shift_prior(from_rate=0.5, to_rate=to).only(some).unshifted()


def test_an_update_of_one_curve_keeps_it_one():
    calibrator, scores, labels, segments = rows("complete")
    fresh = scores, labels, segments + 1  # one segment is new
    shifted = pj.update(calibrator.shift_prior(**RATES), *fresh)
    undone = shifted.unshifted()
    np.testing.assert_allclose(undone.fit.B, undone.fallback.B, rtol=1e-12)
    by_segment = calibrator.shift_prior(0.5, np.linspace(0.1, 0.5, len(calibrator)))
    with pytest.raises(ValueError, match="expected curves whose intercepts may differ"):
        pj.update(by_segment, *fresh)
    one_rate = calibrator.shift_prior(0.5, np.full(len(calibrator), 0.1))
    np.testing.assert_allclose(pj.update(one_rate, *fresh).shift, np.log(9), rtol=1e-12)


def test_an_update_of_temperatures_keeps_no_shift():
    """Their B is 0 after an update: a shift would be lost."""
    _, *fresh = rows("none")
    calibrator = pj.fit_segments(*fresh, curve="temperature")
    options = calibrator.options
    assert (pj.update(calibrator, *fresh, options=options).fit.B == 0).all()
    shifted = calibrator.shift_prior(**RATES)
    with pytest.raises(ValueError, match="expected curves whose intercepts may differ"):
        pj.update(shifted, *fresh, options=options)
    with pytest.raises(ValueError, match="expected sigmoids, got temperatures"):
        pj.update(shifted, *fresh)
    with pytest.raises(ValueError, match="from_rate: expected shares of positives"):
        pj.inference.estimate_rates(shifted, fresh[0], fresh[2])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("against", ["fit", "predictions"])
def test_triage_follows(pooling, against):
    """What is known of a curve is known at the rate of its rows, and moved with it."""
    calibrator, scores, labels, segments = rows(pooling, 400)
    labels[segments == 5] ^= scores[segments == 5] < 0
    offset = np.full(len(scores), MORE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # segments that were not fitted
        fresh = scores, labels, segments
        found = pj.triage(calibrator.shift_prior(**RATES), *fresh, against=against)
        expected = pj.triage(calibrator, *fresh, offset=offset, against=against)
        # An offset of their own that undoes it: as scores without one, but in another order.
        undone = pj.triage(calibrator.shift_prior(**RATES), *fresh, offset=-offset, against=against)
        plain = pj.triage(calibrator, *fresh, offset=0 * offset, against=against)
    for one, other in ((found, expected), (undone, plain)):
        assert one["segment"].tolist() == other["segment"].tolist()
        for name in ("expected", "intercept", "slope"):
            np.testing.assert_allclose(one[name], other[name], rtol=1e-9)
        # The tail of 1e-39 multiplies rounding errors of the log-odds by ten.
        for name in ("p_value", "q_value"):
            np.testing.assert_allclose(np.log(one[name]), np.log(other[name]), rtol=1e-9)
    assert found["segment"][0] == 5 and found["flagged"][0]


@pytest.mark.parametrize("pooling", ["none", "complete"])
@pytest.mark.parametrize("each", [False, True])
def test_rates_of_rows_without_labels_are_what_they_were(pooling, each):
    calibrator, scores, _, segments = rows(pooling)
    old = np.linspace(0.2, 0.8, len(calibrator)) if each else 0.5
    new = old / (old + 99 * (1 - old))
    shifted = calibrator.shift_prior(from_rate=old, to_rate=new)
    found, expected = (
        pj.inference.estimate_rates(x, scores, segments) for x in (shifted, calibrator)
    )
    for name in ("rate", "se_rate", "lower", "upper"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, atol=1e-9)
    odds, before = (x["from_rate"] / (1 - x["from_rate"]) for x in (found, expected))
    np.testing.assert_allclose(odds, before / 99)


def test_a_monitor_tells_slopes_from_intercepts_at_the_new_rate():
    calibrator, *_ = fitted("none")
    pivots = [
        before_night(x, np.array([0, 5, 99]), "predictions").pivot
        for x in (calibrator.shift_prior(**RATES), calibrator)
    ]
    np.testing.assert_allclose(pivots[0] - pivots[1], MORE)


@pytest.mark.parametrize("pooling", ALL)
def test_a_file_keeps_the_shift(pooling, tmp_path):
    calibrator, _ = fitted(pooling)
    shifted = calibrator.shift_prior(**RATES)
    pj.save(tmp_path / "c.npz", shifted)
    for again in (pj.load(tmp_path / "c.npz"), from_json(to_json(shifted))):
        assert again == shifted and again != calibrator
        np.testing.assert_allclose(again.unshifted().fit.B, calibrator.fit.B, rtol=1e-12)
    some = calibrator.keys == calibrator.keys[3]
    np.testing.assert_array_equal(again.only(some).shift, shifted.shift[[3, -1]])
    np.testing.assert_allclose(shifted.shift, -MORE)
    assert calibrator.unshifted() is calibrator


def test_undersampled_negatives_of_pooled_segments(rng):
    """Of all negatives a twentieth: the mean prediction is that of all rows, not 10 times it."""
    shops = rng.integers(0, 200, 40_000)
    labels = rng.random(40_000) < 0.01
    scores = rng.normal(size=40_000) + 2 * labels
    kept = labels | (rng.random(40_000) < 0.05)
    rates = {"from_rate": labels[kept].mean(), "to_rate": labels.mean()}
    pooled = pj.fit_segments(scores[kept], labels[kept], shops[kept], pooling="partial")
    assert pooled.predict_proba(scores, shops).mean() > 5 * labels.mean()
    shifted = pooled.shift_prior(**rates)
    assert shifted.predict_proba(scores, shops).mean() == pytest.approx(labels.mean(), rel=0.1)


@pytest.mark.parametrize("pooling", ALL)
def test_a_rate_for_each_segment(pooling):
    """Each changes by its own; segments that were not fitted by the mean of all of these."""
    calibrator, _ = fitted(pooling)
    old = np.linspace(0.2, 0.8, len(calibrator))
    change = np.log(old / (1 - old)) - np.log(0.1 / 0.9)
    shifted = calibrator.shift_prior(from_rate=old, to_rate=0.1)
    expected = np.append(change, change.mean())
    np.testing.assert_allclose(parameters(shifted)[:, 1] - parameters(calibrator)[:, 1], expected)
    np.testing.assert_allclose(shifted.fallback.B - calibrator.fallback.B, change.mean())
    np.testing.assert_allclose(shifted.fit.B - calibrator.fit.B, change)
    assert shifted.pooling == shifted.unshifted().pooling == pooling


def test_rates_of_nested_segments_are_those_of_their_countries():
    """A segment of a known country changes as those of its country, of which each has the rate."""
    calibrator, some = fitted("nested")
    of_country = np.array([0.1, 0.3, 0.5, 0.9])
    rates = of_country[calibrator.keys.view(np.int64).reshape(-1, 3)[:, 0]]
    shifted = calibrator.shift_prior(from_rate=rates, to_rate=0.5)
    new = np.array([row for row in some if row[0] < 4])
    more = -np.log(of_country / (1 - of_country))[new[:, 0]]
    np.testing.assert_allclose(
        shifted.predict_proba(np.zeros(len(new)), new),
        calibrator.predict_proba(np.zeros(len(new)), new, offset=more),
        rtol=1e-12,
    )


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_a_fit_and_classes(rng, dtype):
    labels = rng.integers(0, 3, 300)
    scores = (rng.normal(size=(300, 3)) + 2 * np.eye(3)[labels]).astype(dtype)
    each = pj.fit(scores.T, labels == np.arange(3)[:, None])
    old, new = np.array([[0.3, 0.3, 0.4], [0.1, 0.1, 0.8]])
    shifted = each.shift_prior(old, new)
    assert shifted.B.dtype == dtype and shifted.A is each.A and shifted.hessian is each.hessian
    np.testing.assert_array_equal(shifted.B, each.sigmoid.shift_prior(old, new).B)
    for given in (labels, np.eye(3)[labels]):
        classes = pj.fit_one_vs_rest(scores, given)
        moved = classes.shift_prior(from_rate=old, to_rate=new)
        np.testing.assert_array_equal(moved.fit.B, shifted.B)
        own = shifted.predict_proba(scores.T).T
        expected = own if classes.multilabel else own / own.sum(1, keepdims=True)
        np.testing.assert_allclose(moved.predict_proba(scores), expected, rtol=1e-5)


def test_without_segments_the_fallback_is_shifted():
    calibrator, _ = fitted("none")
    nothing = calibrator.only(np.zeros(12, bool))
    p = nothing.shift_prior(**RATES).predict_proba([0.0, 1.0], [3, 4])
    expected = calibrator.fallback.shift_prior(**RATES).predict_proba([0.0, 1.0])
    np.testing.assert_array_equal(p, expected)


@pytest.mark.parametrize("rate", [0, 1, float("nan"), [0.5] * 11, "half"])
def test_rates_that_are_none_of_these(rate):
    calibrator, _ = fitted("none")
    wrong = "expected shapes" if isinstance(rate, list) else "expected numbers"
    for rates in ({"from_rate": rate, "to_rate": 0.5}, {"from_rate": 0.5, "to_rate": rate}):
        with pytest.raises(ValueError, match=f"_rate: {wrong}"):
            calibrator.shift_prior(**rates)
