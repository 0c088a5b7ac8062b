"""Rates of positives without labels: against EM, and by simulation."""

from itertools import product

import numpy as np
import pytest

import platt_jax as pj
from platt_jax import GaussianPrior


def drawn(rng, segments, rows, rate, distance=1.5):
    """Scores, labels and segments."""
    labels = rng.random((segments, rows)) < rate
    scores = rng.normal(size=labels.shape) + distance * labels
    return scores.ravel(), labels.ravel(), np.repeat(np.arange(segments), rows)


def by_em(proba, base, steps=200_000):
    """Saerens, Latinne & Decaestecker 2002, equation 2.9."""
    rate = base
    for _ in range(steps):
        odds = (1 - proba) * (1 - rate) / (1 - base)
        ahead = proba * rate / base
        before, rate = rate, np.mean(ahead / (ahead + odds))
        if abs(rate - before) < 1e-16:
            break
    return rate


@pytest.mark.parametrize("pooling", ["none", "complete", "partial"])
def test_rates_are_those_of_em(rng, pooling):
    fitted = drawn(rng, 6, 400, 0.3)
    calibrator = pj.fit_segments(*fitted, pooling=pooling)
    scores, _, segments = drawn(rng, 6, 200, np.linspace(0.05, 0.7, 6)[:, None])
    given = {"from_rate": 0.3} if pooling == "partial" else {}
    found = pj.inference.estimate_rates(calibrator, scores, segments, **given)
    assert set(found["status"]) == {"CONVERGED"}
    for place, segment in enumerate(found["segment"]):
        mine = segments == segment
        proba = calibrator.predict_proba(scores[mine], segments[mine])
        np.testing.assert_allclose(
            found["rate"][place], by_em(proba, found["from_rate"][place]), rtol=1e-8
        )
        assert found["rows"][place] == mine.sum()
        np.testing.assert_allclose(found["expected"][place], proba.mean())


def test_the_base_rate_is_the_mean_probability_of_the_rows_fitted(rng):
    fitted = drawn(rng, 5, 60, 0.2)
    for pooling, targets in product(("none", "complete"), ("platt", "none")):
        options = pj.Options(targets=targets)
        calibrator = pj.fit_segments(*fitted, pooling=pooling, options=options)
        found = pj.inference.estimate_rates(calibrator, fitted[0], fitted[2])
        proba = calibrator.predict_proba(fitted[0], fitted[2])
        mean = np.bincount(fitted[2], proba) / 60
        expected = mean if pooling == "none" else np.full(5, proba.mean())
        np.testing.assert_allclose(found["from_rate"], expected, rtol=1e-6)
        if pooling == "none":  # the rows fitted say that nothing has changed
            np.testing.assert_allclose(found["rate"], mean, rtol=1e-6)


@pytest.mark.slow
def test_of_100_intervals_95_hold_the_rate(rng):
    for rows, base, fresh, rate in (
        *((500, 0.5, 5_000, 0.2), (1_000, 0.1, 500, 0.2), (50, 0.3, 200, 0.6)),
        (5_000, 0.01, 2_000, 0.02),
    ):
        calibrator = pj.fit_segments(*drawn(rng, 500, rows, base))
        scores, _, segments = drawn(rng, 500, fresh, rate)
        found = pj.inference.estimate_rates(calibrator, scores, segments)
        held = np.mean((found["lower"] <= rate) & (rate <= found["upper"]))
        assert 0.92 < held < 0.995, (rows, base, held)
        off = found["rate"].mean() - rate
        assert abs(off) < (0.2 if rows > 50 else 0.4) * found["rate"].std(), (rows, base)


def test_ends_of_intervals_and_edges(rng):
    """The likelihood at both ends is equal; without positives the rate is 0."""
    calibrator = pj.fit_segments(*drawn(rng, 3, 1_000, 0.3, distance=4))
    scores, _, segments = drawn(rng, 3, 300, np.array([[0.0], [0.2], [1.0]]), distance=4)
    found = pj.inference.estimate_rates(calibrator, scores, segments, level=0.9)
    assert found["rate"][0] == found["lower"][0] == 0
    assert found["rate"][2] == found["upper"][2] == 1
    assert 0 < found["upper"][0] < 0.05
    assert 0.95 < found["lower"][2] < 1
    proba = calibrator.predict_proba(scores, segments)[segments == 1]
    base = found["from_rate"][1]

    def likelihood(rate):
        return np.log(rate * proba / base + (1 - rate) * (1 - proba) / (1 - base)).sum()

    ends = likelihood(found["lower"][1]), likelihood(found["upper"][1])
    np.testing.assert_allclose(*ends, rtol=1e-9)
    assert ends[0] < likelihood(found["rate"][1])


def test_what_cannot_be_known(rng):
    scores, labels, segments = drawn(rng, 3, 100, 0.4)
    scores[segments == 1] = 0.0  # one score: says nothing of the rate
    calibrator = pj.fit_segments(scores, labels, segments)
    fresh = np.array([0.0, 0.0, np.nan, 1.0, 1.0, -1.0])
    found = pj.inference.estimate_rates(calibrator, fresh, np.array([1, 1, 0, 2, 7, 7]))
    assert found["segment"].tolist() == [0, 1, 2, 7]
    assert found["status"].tolist() == ["NON_FINITE", "CONVERGED", "CONVERGED", "CONVERGED"]
    assert np.isnan(found["rate"]).tolist() == [True, False, False, False]
    assert (found["lower"][1], found["upper"][1]) == (0, 1)
    assert np.isnan(found["lower"][3])  # of a segment that was not fitted
    assert np.isfinite(found["rate"][3])


@pytest.mark.filterwarnings("ignore:segments. .* but Platt's targets:RuntimeWarning")
def test_float32_scores_far_from_0_have_errors(rng):
    """Where rounding leaves a sum of the covariance's terms unknown, it is no negative variance."""
    scores, labels, segments = drawn(rng, 40, 10, 0.9)
    scores = (1e-4 + 1e-6 * scores).astype(np.float32)
    calibrator = pj.fit_segments(scores, labels, segments)
    found = pj.inference.estimate_rates(calibrator, scores, segments)
    assert (found["se_rate"] > 0).all() and (found["lower"] < found["upper"]).all()


def test_a_base_rate_that_the_calibrator_cannot_know_is_asked_for(tmp_path, rng):
    """Its rows are of several rates, or a prior moved the sum of their probabilities."""
    rows = drawn(rng, 4, 200, 0.2)
    calibrator = pj.fit_segments(*rows)
    prior = GaussianPrior([-3.0, 0.0], np.eye(2) * 50)
    later = drawn(rng, 4, 200, 0.5)
    for made, why in (
        (pj.fit_segments(*rows, prior=prior), "prior"),
        (pj.fit_segments(*rows, pooling="partial").at_mode(), "prior"),
        (pj.fit_segments(*rows, offset=rows[0] / 2), "offset"),
        (pj.update(calibrator, *later, offset=later[0] / 2), "offset"),
        (pj.update(calibrator, *later, drift=0.5), "drift"),
        (pj.update(calibrator.shift_prior(0.2, 0.5), *later), "shifted rows"),
    ):
        assert made.events == (why,)
        pj.save(tmp_path / "made", made)
        loaded = pj.load(tmp_path / "made")
        assert loaded == made
        with pytest.raises(ValueError, match=f"from_rate: .* with '{why}' in its events"):
            pj.inference.estimate_rates(loaded.only(np.arange(4) < 2), rows[0], rows[2])
        pj.inference.estimate_rates(made, rows[0], rows[2], from_rate=0.2)
    assert pj.update(calibrator, *later).events == ()
    with pytest.raises(ValueError, match="calibrator without numbers of rows"):
        table = pj.SegmentCalibrator.from_table([0], [-1.0], [0.5])
        pj.inference.estimate_rates(table, rows[0], rows[2] * 0)
    classes = pj.fit_one_vs_rest(
        rows[0].reshape(-1, 2), rows[1][::2], prior=prior, offset=np.zeros((len(rows[0]) // 2, 2))
    )
    assert classes.by_class.events == ("prior", "offset")


def test_one_curve_with_a_shift_for_each_segment_has_a_base_rate_for_each(rng):
    rows = drawn(rng, 2, 400, 0.2)
    scores, _, segments = drawn(rng, 2, 3000, 0.5)
    one = pj.fit_segments(*rows, pooling="complete")
    both = pj.inference.estimate_rates(one.shift_prior(0.2, [0.02, 0.8]), scores, segments)
    for segment, rate in enumerate([0.02, 0.8]):
        alone = pj.inference.estimate_rates(one.shift_prior(0.2, rate), scores, segments)
        for name in ("from_rate", "rate", "se_rate", "lower", "upper"):
            assert both[name][segment] == pytest.approx(alone[name][segment], rel=1e-9)


@pytest.mark.parametrize("pooling", ["none", "complete"])
def test_the_base_rate_of_all_rows_is_not_that_of_some_segments(pooling, rng):
    rows = drawn(rng, 4, 200, 0.2)
    some = pj.fit_segments(*rows, pooling=pooling).only(np.arange(4) < 2)
    assert some.events == ("only",) and some.only(np.ones(2, bool)) == some
    unseen = np.full(len(rows[0]), 9)
    with pytest.raises(ValueError, match=r"from_rate: .* with .only. in its events"):
        pj.inference.estimate_rates(some, rows[0], unseen)
    pj.inference.estimate_rates(some, rows[0], unseen, from_rate=0.2)
    if pooling == "none":  # a segment that is left has its own
        here = rows[2] < 2
        pj.inference.estimate_rates(some, rows[0][here], rows[2][here])


def test_arguments(rng):
    rows = drawn(rng, 4, 50, 0.4)
    calibrator = pj.fit_segments(*rows, pooling="partial")
    with pytest.raises(
        ValueError,
        match=r"expected shares of positives for .*'partial': one number, or .*mean probability",
    ):
        pj.inference.estimate_rates(calibrator, rows[0], rows[2])
    for bad in (0.0, [0.1, 0.2], 1.5):
        with pytest.raises(ValueError, match="from_rate: expected a number between 0 and 1"):
            pj.inference.estimate_rates(calibrator, rows[0], rows[2], from_rate=bad)
    with pytest.raises(ValueError, match="calibrator"):
        pj.inference.estimate_rates(GaussianPrior, rows[0], rows[2])


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("as_list", [False, True])
def test_no_rows_are_an_empty_table(columns, as_list):
    """Before, NumPy's error for the smallest of no numbers, unless the ids were text."""
    rng = np.random.default_rng(0)
    shops = np.arange(400)[:, None] // [40, 20] % [5, 20]
    shops = shops if columns == 2 else shops[:, 0]
    calibrator = pj.fit_segments(rng.normal(size=400), rng.random(400) < 0.4, shops)
    none = [] if as_list else shops[:0]
    table = pj.inference.estimate_rates(calibrator, [], none)
    assert len(table["rate"]) == len(table["status"]) == 0
    some = pj.inference.estimate_rates(calibrator, [0.5], shops[:1])
    assert list(table) == list(some)
