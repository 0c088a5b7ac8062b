"""Curves that depend on the number of rows are told, and nothing is where they do not."""

import warnings

import numpy as np
import pytest
from scipy import stats

import platt_jax as pj
from platt_jax import report
from platt_jax.population import sizes

TOLD = "log-odds depend on how many rows their segments have"


def related(rng, slope=0.0, intercept=0.0, number=200):
    """Rows of segments whose log size has these correlations with slope and intercept."""
    a, b, e = rng.normal(size=(3, number))
    log_size = slope * a + intercept * b + np.sqrt(1 - slope**2 - intercept**2) * e
    each = np.maximum(3, 50 * np.exp(1.2 * log_size)).astype(int)
    segments = np.repeat(np.arange(number), each)
    scores = rng.normal(size=len(segments))
    log_odds = (2.5 + 0.4 * a)[segments] * scores + 0.5 * b[segments]
    return scores, rng.random(len(scores)) < 1 / (1 + np.exp(-log_odds)), segments


def test_the_p_value_is_that_of_least_squares(rng):
    """With known covariances, tests by score, likelihood ratio and Wald agree."""
    with warnings.catch_warnings(action="ignore"):
        calibrator = pj.fit_segments(*related(rng, 0.3, 0.3, 40), pooling="partial")
    population, fit = calibrator.population, calibrator.fit
    x = np.log(fit.n_pos + fit.n_neg)
    normal, right = np.zeros((4, 4)), np.zeros(4)
    for k in range(40):
        precision = population.likelihood_precision[k]
        design = np.hstack([np.eye(2), x[k] * np.eye(2)])
        weight = np.linalg.inv(np.linalg.inv(precision) + population.covariance)
        estimate = np.linalg.solve(precision, population.likelihood_pull[k])
        normal += design.T @ weight @ design
        right += design.T @ weight @ (estimate - population.mean)
    gamma = np.linalg.solve(normal, right)[2:]
    information = np.linalg.inv(np.linalg.inv(normal)[2:, 2:])
    p_value, effect = sizes._tested(population, fit.n_pos + fit.n_neg, np.asarray)
    assert p_value == pytest.approx(stats.chi2.sf(gamma @ information @ gamma, 2), rel=1e-8)
    metric = population.likelihood_precision.sum(0)
    expected = np.sqrt(gamma @ metric @ gamma / metric[1, 1]) * x.std()
    assert effect == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("pair", [(1, 0), (0, 0.8), (0.7, 0.7)])
def test_it_is_told(tmp_path, rng, pair):
    rows = related(rng, *pair)
    with pytest.warns(RuntimeWarning, match=TOLD):
        calibrator = pj.fit_segments(*rows, pooling="partial")
    assert calibrator.events == ("sizes",)
    assert "population: curves depend on the number of rows" in repr(calibrator)
    assert "curves depend on the number of rows" in calibrator._repr_html_()
    report.to_html(tmp_path / "page.html", calibrator, *rows)
    assert "Curves depend on the number of rows" in (tmp_path / "page.html").read_text()
    pj.save(tmp_path / "calibrator", calibrator)
    assert pj.load(tmp_path / "calibrator") == calibrator


def test_it_is_told_of_updates(rng):
    """Of all rows so far: a night whose sizes tell of the intercepts changes the answer."""
    first, night = related(rng), related(rng, 0, 1)
    calibrator = pj.fit_segments(*first, pooling="partial")
    assert calibrator.events == ()
    night = night[0], night[1], night[2] + 200
    with pytest.warns(RuntimeWarning, match=TOLD):
        updated = pj.update(calibrator, *night)
    assert updated.events == ("sizes",)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [10, 25, 200])
def test_nothing_is_told_where_sizes_say_nothing(rng, number):
    assert pj.fit_segments(*related(rng, number=number), pooling="partial").events == ()


@pytest.mark.filterwarnings("error")
def test_nothing_is_told_of_alike_or_few_segments(rng):
    scores, labels, segments = related(rng, 0, 1)
    few = segments < 19
    assert not pj.fit_segments(scores[few], labels[few], segments[few], pooling="partial").events
    alike = np.tile(np.arange(100), len(scores) // 100)
    number = len(alike)
    pj.fit_segments(scores[:number], labels[:number], alike, pooling="partial")


def test_size_classes_mend_it(rng):
    """The smallest segments, by the way that the warning names."""
    a, b = np.full(200, 2.5), rng.normal(size=200) * 0.5
    each = np.maximum(3, 50 * np.exp(2.4 * b)).astype(int)
    segments = np.repeat(np.arange(200), each)
    scores = rng.normal(size=len(segments))
    labels = rng.random(len(segments)) < 1 / (1 + np.exp(-a[segments] * scores - b[segments]))
    classes = np.searchsorted(np.quantile(each, np.linspace(0, 1, 9)[1:-1]), each)
    small = np.flatnonzero(each <= np.quantile(each, 0.25))
    true = 1 / (1 + np.exp(-b[small]))
    with warnings.catch_warnings(action="ignore"):
        partial = pj.fit_segments(scores, labels, segments, pooling="partial")
        nested = pj.fit_segments(
            scores, labels, np.stack([classes[segments], segments], 1), pooling="nested"
        )
    ids = np.stack([classes[small], small], 1)
    off = np.mean(partial.predict_proba(np.zeros(len(small)), small) - true)
    assert off > 0.06
    assert abs(np.mean(nested.predict_proba(np.zeros(len(small)), ids) - true)) < 0.5 * off
