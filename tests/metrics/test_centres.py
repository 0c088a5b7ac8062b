"""Calibration of centres: against the definitions, a meta-analysis, and simulated new centres."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import platt_jax as pj
from platt_jax import metrics
from platt_jax.metrics.centre_population import over_centres
from platt_jax.metrics.centres import Centres

# Patients, deaths and expected deaths of the 23 validations of EuroSCORE II that Debray et al.
# (2017, BMJ 356:i6460) review.
EUROSCORE = np.array(
    [
        *((5553, 232, 222), (1027, 28, 46), (1090, 41, 34), (5576, 191, 261)),
        *((23740, 746, 809.59), (3798, 215, 171), (428, 34, 7), (15497, 547, 387)),
        *((933, 90, 105), (11170, 226, 290), (498, 8, 10), (2004, 76, 74), (216, 14, 9)),
        *((1066, 45, 34), (314, 18, 7), (818, 13, 21), (461, 33, 34), (12201, 210, 305)),
        *((1670, 125, 104), (6191, 300, 272), (250, 9, 4), (503, 21, 16), (50588, 1071, 1568)),
    ]
)


def rows_of(rng, centres, rows, rate=0.2, spread=0.4, mean=0.2):
    """Logits, labels and centres, and what is added to each centre's log-odds."""
    sizes = rng.integers(*rows, centres) if isinstance(rows, tuple) else np.full(centres, rows)
    segments = np.repeat(np.arange(centres), sizes)
    logits = rng.normal(float(pj.logit(rate)), 1, len(segments))
    off = mean + spread * rng.normal(size=centres)
    labels = rng.random(len(segments)) < 1 / (1 + np.exp(-logits - off[segments]))
    return logits, labels, segments, off


def line(centres, parameter):
    i = centres.overall["parameter"].tolist().index(parameter)
    return {name: x[i] for name, x in centres.overall.items()}


@pytest.fixture(scope="module")
def large():
    rng = np.random.default_rng(1)
    rows = rows_of(rng, 12, (2_000, 5_000))
    return rows, pj.metrics.summarize_centres(*rows[:3], from_logits=True)


def test_each_centre(large):
    (logits, labels, segments, _), centres = large
    p = 1 / (1 + np.exp(-logits))
    for k in (0, 7):
        own = segments == k
        x, y = logits[own], labels[own]
        np.testing.assert_allclose(centres["ratio"][k], y.sum() / p[own].sum(), rtol=1e-12)
        a, fitted = centres["in_the_large"][k], 1 / (1 + np.exp(-x - centres["in_the_large"][k]))
        np.testing.assert_allclose(fitted.sum(), y.sum(), rtol=1e-9)
        variance = (fitted * (1 - fitted)).sum()
        np.testing.assert_allclose(centres["se_in_the_large"][k], variance**-0.5, rtol=1e-9)
        np.testing.assert_allclose(centres["se_log_ratio"][k], variance**0.5 / y.sum(), rtol=1e-9)
        cox = metrics.cox_calibration(y, x, from_logits=True)
        assert centres["slope"][k] == pytest.approx(float(cox.slope), rel=1e-6)
        assert centres["intercept"][k] == pytest.approx(float(cox.intercept), rel=1e-6)
        assert abs(a - centres["intercept"][k]) > 1e-4  # two numbers
    assert set(centres["status"]) == {"OK"}


@pytest.mark.parametrize("parameter", ["ratio", "in_the_large", "intercept", "slope"])
def test_of_large_centres_it_is_a_meta_analysis(large, parameter):
    _, centres = large
    log = parameter == "ratio"
    y = np.log(centres["ratio"]) if log else centres[parameter]
    errors = centres["se_log_ratio" if log else f"se_{parameter}"]

    def loss(variance):
        w = 1 / (errors**2 + variance)
        return -np.log(w).sum() + np.log(w.sum()) + w @ (y - (w @ y) / w.sum()) ** 2

    spread = (
        minimize_scalar(loss, bounds=(0, 4), method="bounded", options={"xatol": 1e-10}).x ** 0.5
    )
    w = 1 / (errors**2 + spread**2)
    found = line(centres, parameter)
    value, lower, upper = (
        np.log(x) if log else x for x in (found["value"], found["lower"], found["upper"])
    )
    assert abs(value - (w @ y) / w.sum()) < 0.15 * w.sum() ** -0.5
    assert abs(found["standard_deviation"] - spread) < 0.1 * spread + 0.03
    assert upper - lower > 2 * 1.9 * w.sum() ** -0.5
    if parameter in ("intercept", "slope"):
        low, high = found["new_lower"], found["new_upper"]
        assert low < lower and value - low == pytest.approx(high - value, rel=1e-9)


@pytest.mark.slow
def test_published_validations():
    """By restricted maximum likelihood: 1.11 (0.90 to 1.36), and 0.43 to 2.86 for a new study."""
    n, deaths, expected = EUROSCORE.T
    p, labels = np.repeat(expected / n, 2), np.tile([1, 0], len(n))
    weights = np.stack([deaths, n - deaths], 1).ravel()
    centres = pj.metrics.summarize_centres(p, labels, np.repeat(np.arange(23), 2), weights=weights)
    # metamisc's error of the log of O:E.
    np.testing.assert_allclose(centres["se_log_ratio"], np.sqrt(1 / deaths - 1 / n), rtol=1e-9)
    found = line(centres, "ratio")
    reached = [found[x] for x in ("value", "lower", "upper", "new_lower", "new_upper")]
    np.testing.assert_allclose(reached, [1.1076, 0.8999, 1.3632, 0.4295, 2.8561], rtol=0.025)
    np.testing.assert_allclose(found["standard_deviation"], 0.4444, rtol=0.025)


@pytest.mark.slow
def test_statuses_and_centres_that_do_not_count(rng):
    logits, labels, segments, _ = rows_of(rng, 7, 200)
    labels[segments == 1] = False
    labels[segments == 2] = logits[segments == 2] > -1.4
    few = np.flatnonzero(labels & (segments == 3))[4:]
    labels[few] = False
    logits[np.flatnonzero(segments == 4)[0]] = np.nan
    weights = np.where(segments == 5, 0.0, 1.0)
    made = pj.metrics.summarize_centres(logits, labels, segments, weights=weights, from_logits=True)
    expected = ["OK", "ONE_CLASS", "SEPARABLE", "FEW_EVENTS", "NON_FINITE", "EMPTY", "OK"]
    assert made["status"].tolist() == expected
    assert made["ratio"][1] == 0 and np.isnan(made["in_the_large"][1])
    assert np.isnan(made["slope"][[1, 2, 4, 5]]).all() and np.isnan(made["rows"][[4, 5]]).all()
    assert made.overall["segments"].tolist() == [5] * 4
    kept = ~np.isin(segments, [4, 5])
    alone = pj.metrics.summarize_centres(
        *(x[kept] for x in (logits, labels, segments)), from_logits=True
    )
    for name, column in alone.overall.items():
        np.testing.assert_array_equal(column, made.overall[name])


def test_a_centre_without_positives_says_that_it_has_few(rng):
    logits, labels, segments, _ = rows_of(rng, 12, 100, rate=0.05)
    labels[segments == 3] = False
    with_it = pj.metrics.summarize_centres(logits, labels, segments, from_logits=True)
    others = segments != 3
    without = pj.metrics.summarize_centres(
        *(x[others] for x in (logits, labels, segments)), from_logits=True
    )
    for parameter in ("ratio", "in_the_large"):
        assert line(with_it, parameter)["value"] < line(without, parameter)["value"]


def test_one_centre_and_ids_of_several_columns(rng):
    logits, labels, segments, _ = rows_of(rng, 4, 100)
    one = pj.metrics.summarize_centres(logits, labels, np.zeros(400, int), from_logits=True)
    assert one["status"].tolist() == ["OK"] and one.overall["segments"].tolist() == [1] * 4
    for name in ("ratio", "in_the_large", "intercept", "slope"):
        own = line(one, name)
        assert own["value"] == one[name][0]
        ends = [one[f"ratio_{end}"][0] for end in ("lower", "upper")]
        if name != "ratio":
            ends = own["value"] + 1.959964 * one[f"se_{name}"][0] * np.array([-1, 1])
        np.testing.assert_allclose([own["lower"], own["upper"]], ends, rtol=1e-6)
        assert np.isnan([own[x] for x in ("standard_deviation", "new_lower", "within")]).all()
    ids = np.stack([segments // 2, segments % 2], 1)
    several = pj.metrics.summarize_centres(1 / (1 + np.exp(-logits)), labels, ids)
    assert list(several)[2] == "rows" and isinstance(several, Centres)
    assert len(several.to_pandas()) == 4 and "in_the_large" in repr(several.overall)


def test_weights_count_rows(rng):
    logits, labels, segments, _ = rows_of(rng, 5, 80)
    w = rng.integers(0, 3, 400)
    weighted = pj.metrics.summarize_centres(logits, labels, segments, weights=w, from_logits=True)
    rows = (np.repeat(x, w) for x in (logits, labels, segments))
    repeated = pj.metrics.summarize_centres(*rows, from_logits=True)
    for name in set(weighted) - {"status"}:
        np.testing.assert_allclose(weighted[name], repeated[name], rtol=1e-5)
    for name in set(weighted.overall) - {"parameter"}:
        np.testing.assert_allclose(weighted.overall[name], repeated.overall[name], rtol=1e-3)


def test_errors_allow_for_clusters(rng):
    logits, labels, segments, _ = rows_of(rng, 8, 60)
    visits = np.arange(480) // 3 % 20  # patients of three rows, numbered in each centre
    labels = labels[visits * 3 + 60 * segments]  # who have one label
    given = dict(from_logits=True)
    plain = pj.metrics.summarize_centres(logits, labels, segments, **given)
    found = pj.metrics.summarize_centres(logits, labels, segments, clusters=visits, **given)
    squares, independent = 0.0, 0.0
    for k in range(8):
        own = segments == k
        p = 1 / (1 + np.exp(-logits[own] - plain["in_the_large"][k]))
        off = np.bincount(visits[own], labels[own] - p)
        squares += 20 / 19 * (off**2).sum()
        independent += (p * (1 - p)).sum()
    assert 1.5 < squares / independent < 4
    np.testing.assert_allclose(found.design_effect, squares / independent, rtol=1e-9)
    root = np.sqrt(found.design_effect)
    for name in ("se_log_ratio", "se_in_the_large", "se_intercept", "se_slope"):
        np.testing.assert_allclose(found[name], root * plain[name], rtol=1e-12)
    for name in ("rows", "positives", "ratio", "in_the_large", "slope"):
        np.testing.assert_array_equal(found[name], plain[name])
    fewer = pj.metrics.summarize_centres(
        logits, labels, segments, weights=np.full(480, 1 / found.design_effect), **given
    )
    for name in list(found.overall)[1:]:
        np.testing.assert_allclose(found.overall[name], fewer.overall[name], rtol=1e-6)
    # Ids in each centre, or of all centres; single rows are no clusters.
    everywhere = pj.metrics.summarize_centres(
        logits,
        labels,
        segments,
        clusters=[f"{i}, {j}" for i, j in zip(segments, visits, strict=True)],
        **given,
    )
    np.testing.assert_allclose(everywhere.design_effect, found.design_effect, rtol=1e-12)
    assert (
        pj.metrics.summarize_centres([0.2, 0.7], [0, 1], ["a", "b"], clusters=[1, 1]).design_effect
        == 1
    )


@pytest.mark.parametrize("ids", ["one", "segments"])
def test_a_single_cluster_of_a_centre_leaves_errors_unknown(rng, ids):
    logits, labels, segments, _ = rows_of(rng, 3, 60)
    clusters = np.zeros(180, int) if ids == "one" else segments
    plain = pj.metrics.summarize_centres(logits, labels, segments, from_logits=True)
    with pytest.warns(RuntimeWarning, match="clusters: expected several in a centre"):
        found = pj.metrics.summarize_centres(
            logits, labels, segments, clusters=clusters, from_logits=True
        )
    assert np.isnan(found.design_effect)
    for name in ("se_log_ratio", "se_in_the_large", "se_slope", "ratio_lower"):
        assert np.isnan(found[name]).all()
    np.testing.assert_array_equal(found["slope"], plain["slope"])
    assert np.isnan(found.overall["value"]).all()


def test_what_is_refused():
    rows = [0.1, 0.4], [0, 1], [1, 2]
    for call, message in (
        (
            lambda: pj.metrics.summarize_centres(rows[0], rows[1], None),
            "segments: expected one per row",
        ),
        (
            lambda: pj.metrics.summarize_centres(pj.SegmentRows(*rows), None, None),
            "^proba: expected an",
        ),
        (
            lambda: pj.metrics.summarize_centres(*rows, tolerance=-1),
            "tolerance: expected a number >= 0",
        ),
        (lambda: pj.metrics.summarize_centres(*rows, level=0), "level: expected"),
        (
            lambda: pj.metrics.summarize_centres([2.0, 0.1], *rows[1:]),
            "proba: expected probabilities",
        ),
        (lambda: pj.metrics.summarize_centres([[0.1, 0.4]], *rows[1:]), "proba: expected"),
        (lambda: pj.metrics.summarize_centres([0.1, 0.4], [0, 2], [1, 2]), "labels: expected"),
        (lambda: pj.metrics.summarize_centres([], [], []), "proba: expected rows, got none"),
        (
            lambda: pj.metrics.summarize_centres(*rows, clusters=[1]),
            "clusters: expected one id per row",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "rate", "spread"), [(10, 0.02, 0.5), (30, 0.5, 0.5)])
def test_prediction_intervals_hold_new_centres(number, rate, spread):
    rng = np.random.default_rng(7)
    held, of_means = [], []
    for _ in range(40):
        *rows, _ = rows_of(rng, number, (50, 501), rate, spread)
        found = line(pj.metrics.summarize_centres(*rows, from_logits=True), "in_the_large")
        new = 0.2 + spread * rng.normal(size=500)
        held.append(((found["new_lower"] <= new) & (new <= found["new_upper"])).mean())
        of_means.append(found["lower"] <= 0.2 <= found["upper"])
    assert 0.9 < np.mean(held) < 0.99 and np.mean(of_means) > 0.85


def test_the_error_of_the_mean_is_without_that_of_a_new_centre():
    spread, mean, excess = np.diag([0.2, 0.3]), np.diag([0.05, 0.04]), np.diag([0.1, 0.2])
    population = SimpleNamespace(
        covariance=spread,
        mean_covariance=mean,
        predictive_covariance=spread + excess + mean + excess / 9,
        predictive_mean=np.zeros(2),
        shrinkage=np.zeros(9),
    )
    found = over_centres(population, np.eye(2))
    np.testing.assert_allclose(found.error**2, np.diag(mean + excess / 9))


@pytest.mark.parametrize("label", [0, 1])
def test_centres_of_one_class_have_no_slope_and_say_no_word_of_pooling(rng, label):
    proba, centres = rng.uniform(0.01, 0.1, 300), np.repeat(np.arange(10), 30)
    overall = pj.metrics.summarize_centres(proba, np.full(300, label), centres).overall
    assert np.isnan(overall["value"][2:]).all()


def test_centres_of_one_probability_have_no_slope(rng):
    centres = np.repeat(np.arange(10), 30)
    overall = pj.metrics.summarize_centres(
        np.full(300, 0.3), rng.random(300) < 0.3, centres
    ).overall
    assert np.isfinite(overall["value"][:2]).all() and np.isnan(overall["value"][2:]).all()


def test_ids_that_no_row_has_are_no_centres(rng):
    pd = pytest.importorskip("pandas")
    proba, labels, which = rng.uniform(0.1, 0.9, 300), rng.random(300) < 0.5, np.arange(300) % 3
    expected = pj.metrics.summarize_centres(proba, labels, which)
    few = pd.Categorical.from_codes(which * 2, ["a", "b", "c", "d", "e"])
    for ids, keys in ((10 * which, [0, 10, 20]), (few, ["a", "c", "e"])):
        found = pj.metrics.summarize_centres(proba, labels, ids)
        assert found["segment"].tolist() == keys
        assert found["status"].tolist() == expected["status"].tolist()
        np.testing.assert_allclose(found["slope"], expected["slope"])
