"""Nested and crossed levels through `fit_segments`: recovery, unseen values, doors, bad input."""

import numpy as np
import pytest
from scipy.special import expit

import platt_jax as pj
from platt_jax import export
from platt_jax.population import crossed

BETWEEN_COUNTRIES, BETWEEN_CITIES = np.array([0.3, 0.5]), np.array([0.4, 0.7])
KINDS = pytest.mark.parametrize("kind", ["nested", "crossed"])


def cities(seed, rows, countries=12, each=8):
    """Scores, labels, (country, city), and the true (A, B) by city."""
    rng = np.random.default_rng(seed)
    country = np.repeat(np.arange(countries), each)
    parameters = np.array([1.0, -1.0]) + BETWEEN_CITIES * rng.normal(size=(len(country), 2))
    parameters += (BETWEEN_COUNTRIES * rng.normal(size=(countries, 2)))[country]
    city = np.repeat(np.arange(len(country)), rows)
    scores = rng.normal(size=len(city))
    slope, intercept = parameters[city].T
    labels = rng.random(len(city)) < expit(slope * scores + intercept)
    return scores, labels, np.stack([country[city], city], 1), parameters


UNSEEN = np.array([(0, 0), (0, 9_999), (9_999, 9_999)])


@pytest.fixture(scope="module")
def fitted():
    scores, labels, ids, _ = cities(0, 30)
    return {kind: pj.fit_segments(scores, labels, ids, pooling=kind) for kind in KINDS.args[1]}


@pytest.mark.slow
def test_spreads_of_both_levels_are_found():
    """On average of five worlds; standard errors are a third of the tolerance."""
    found = []
    for seed in range(5):
        scores, labels, ids, _ = cities(seed, 30, countries=40, each=10)
        levels = pj.fit_segments(scores, labels, ids, pooling="nested").levels
        assert levels["values"].tolist() == [40, 400]
        assert levels["rows_per_value"].tolist() == [300, 30]
        assert levels["share"].sum() == pytest.approx(1)
        found.append([levels["slope_sd"], levels["intercept_sd"]])
    truth = np.stack([BETWEEN_COUNTRIES, BETWEEN_CITIES], 1)
    np.testing.assert_allclose(np.mean(found, 0), truth, rtol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rows"), [("nested", 3), ("crossed", 30)])
def test_bands_hold_the_truth(kind, rows):
    """Seen cities, unseen cities of seen countries, and unseen countries."""
    held = {"seen": [], "new city": [], "new country": []}
    for seed in range(4):
        scores, labels, ids, parameters = cities(seed, rows, countries=40, each=12)
        known = (ids[:, 0] < 30) & (ids[:, 1] % 12 < 8)
        calibrator = pj.fit_segments(scores[known], labels[known], ids[known], pooling=kind)
        each = np.stack([np.arange(480) // 12, np.arange(480)], 1)
        for score in (-1.0, 1.0):
            lower, upper = calibrator.band(np.full(480, score), each)
            truth = expit(parameters @ [score, 1])
            inside = (lower <= truth) & (truth <= upper)
            seen, of_seen = calibrator.seen(each), each[:, 0] < 30
            held["seen"].append(inside[seen].mean())
            held["new city"].append(inside[of_seen & ~seen].mean())
            held["new country"].append(inside[~of_seen].mean())
    for shares in held.values():
        assert 0.9 < np.mean(shares) < 0.99


def test_predictions_of_partial_cities_beat_those_of_one_level():
    """Excess log loss over the truth, with 5 rows a city, also for new cities."""
    losses = {"nested": [], "partial": []}
    for seed in range(4):
        scores, labels, ids, parameters = cities(seed, 5, countries=40, each=12)
        known = ids[:, 1] % 12 < 10
        test = np.repeat(np.stack([np.arange(480) // 12, np.arange(480)], 1), 20, axis=0)
        at = np.tile(np.linspace(-2, 2, 20), 480)
        p = expit(parameters[test[:, 1], 0] * at + parameters[test[:, 1], 1])
        for pooling, found in losses.items():
            train = scores[known], labels[known], ids[known]
            q = pj.fit_segments(*train, pooling=pooling).predict_proba(at, test)
            found.append(np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))))
    assert np.mean(losses["nested"]) < 0.97 * np.mean(losses["partial"])


def test_a_unique_last_column_makes_crossed_levels_nested(fitted):
    """Both are then the same model, solved in two ways."""
    nested, crossed = fitted["nested"], fitted["crossed"]
    for name in ("slope_sd", "intercept_sd", "share"):
        np.testing.assert_allclose(nested.levels[name], crossed.levels[name], rtol=1e-6)
    of_nested, of_crossed = nested.population, crossed.population
    np.testing.assert_allclose(of_nested.posterior_mean, of_crossed.posterior_mean, rtol=1e-5)
    spreads = of_nested.posterior_covariance, of_crossed.posterior_covariance
    np.testing.assert_allclose(*spreads, rtol=1e-5, atol=1e-8)


def test_crossed_columns_may_come_in_any_order(fitted):
    """Also where one determines the other, but not the other way round."""
    scores, labels, ids, _ = cities(0, 30)
    turned = pj.fit_segments(scores, labels, ids[:, ::-1], pooling="crossed")
    expected = fitted["crossed"].predict_proba([0.5] * 3, UNSEEN)
    np.testing.assert_allclose(turned.predict_proba([0.5] * 3, UNSEEN[:, ::-1]), expected, 1e-9)


@KINDS
def test_what_is_unseen_gets_the_levels_that_are_known(kind, fitted):
    calibrator = fitted[kind]
    lower, upper = calibrator.band([0.0] * 3, UNSEEN)
    assert (np.diff(upper - lower) > 0).all()
    of_country = [calibrator.predict_proba([0.0], [(country, 9_999)])[0] for country in range(12)]
    means = calibrator.population.posterior_mean[:, 1].reshape(12, 8).mean(1)
    assert np.corrcoef(of_country, expit(-means))[0, 1] > 0.95
    dropped = calibrator.only(np.arange(len(calibrator)) != 0).predict_proba([0.0], [(0, 0)])[0]
    if kind == "nested":
        np.testing.assert_allclose(dropped, of_country[0], rtol=1e-12)
    else:  # the values are still known, but not how their errors are related
        np.testing.assert_allclose(dropped, calibrator.predict_proba([0.0], [(0, 0)])[0], rtol=0.02)


@KINDS
def test_a_line_for_each_level(kind, fitted):
    calibrator, table = fitted[kind], fitted[kind].levels
    _, _, _, *lines = repr(calibrator).splitlines()
    for line, name, values, slope, intercept in zip(
        lines, *(table[x] for x in ("level", "values", "slope_sd", "intercept_sd")), strict=True
    ):
        assert line.startswith(f"  level {name}: {values} values, ")
        assert f"{slope:.3g} of the slope, {intercept:.3g} of the intercept" in line
        assert line.strip().replace(">", "&gt;") in calibrator._repr_html_()
    assert len(repr(calibrator.at_mode()).splitlines()) == 3


@pytest.mark.slow
@KINDS
def test_results_do_not_depend_on_order_units_containers_or_dtype(kind, fitted, rng):
    scores, labels, ids, _ = cities(0, 30)
    expected = fitted[kind].predict_proba([0.5] * 3, UNSEEN)

    def found(scores, labels, ids, at=0.5, unseen=UNSEEN):
        calibrator = pj.fit_segments(scores, labels, ids, pooling=kind)
        return calibrator.predict_proba([at] * 3, unseen)

    order = rng.permutation(len(scores))
    np.testing.assert_allclose(found(scores[order], labels[order], ids[order]), expected, 1e-9)
    np.testing.assert_allclose(found(1e3 * scores + 7, labels, ids, 507.0), expected, 1e-9)
    text = [[(f"c{a}", f"k{b}") for a, b in some] for some in (ids.tolist(), UNSEEN.tolist())]
    np.testing.assert_allclose(found(scores, labels, text[0], unseen=text[1]), expected, 1e-9)
    single = found(scores.astype(np.float32), labels, ids)
    np.testing.assert_allclose(single, expected, 1e-3)


@KINDS
def test_files_and_json_have_the_levels(kind, fitted, tmp_path):
    calibrator = fitted[kind]
    pj.save(tmp_path / "levels.npz", calibrator)
    for loaded in (pj.load(tmp_path / "levels.npz"), export.from_json(export.to_json(calibrator))):
        assert loaded == calibrator
        expected = calibrator.predict_proba([0.5] * 3, UNSEEN)
        np.testing.assert_array_equal(loaded.predict_proba([0.5] * 3, UNSEEN), expected)
        assert loaded.pooling == kind


@pytest.mark.parametrize(
    "changed",
    [
        {"level0_mean": None},
        {"level1_covariance": np.zeros((3, 2, 2))},
        {"level0_share": np.array(1)},
        {"level1_keys_1": np.zeros(96)},
        {"levels_mean": np.zeros(3)},
    ],
)
def test_a_file_with_damaged_levels_is_refused(changed, fitted, tmp_path):
    path = tmp_path / "levels.npz"
    pj.save(path, fitted["nested"])
    with np.load(path) as file:
        arrays = dict(file) | changed
    np.savez(path, **{name: x for name, x in arrays.items() if x is not None})
    with pytest.raises(ValueError, match="not a calibrator"):
        pj.load(path)


@KINDS
def test_weeks_of_updates_come_to_the_fit_of_all_rows(kind, rng):
    scores, labels, ids, _ = cities(1, 60)
    week = rng.integers(0, 4, len(scores))
    known = (week == 0) & (ids[:, 1] != 5)  # a city that comes later
    calibrator = pj.fit_segments(scores[known], labels[known], ids[known], pooling=kind)
    for now in (1, 2, 3):
        some = week == now
        calibrator = pj.update(calibrator, scores[some], labels[some], ids[some])
    together = known | (week > 0)
    refit = pj.fit_segments(scores[together], labels[together], ids[together], pooling=kind)
    np.testing.assert_array_equal(calibrator.keys, refit.keys)
    assert calibrator.pooling == kind
    for name in ("slope_sd", "intercept_sd"):
        off = calibrator.levels[name] - refit.levels[name]
        assert (np.abs(off) < 0.4 * refit.levels[f"se_{name}"]).all()
    theirs = refit.population
    errors = np.sqrt(np.diagonal(theirs.posterior_covariance, axis1=1, axis2=2))
    off = (calibrator.population.posterior_mean - theirs.posterior_mean) / errors
    assert np.abs(off).mean() < 0.15


@KINDS
def test_rows_of_one_class_in_a_level_leave_everything_finite(kind):
    scores, labels, ids, _ = cities(2, 10)
    labels = labels & (ids[:, 0] > 2)
    calibrator = pj.fit_segments(scores, labels, ids, pooling=kind)
    assert all(np.isfinite(x).all() for x in list(calibrator.levels.values())[1:])
    assert np.isfinite(calibrator.predict_proba([0.0] * 3, UNSEEN)).all()


@KINDS
def test_a_bad_row_costs_its_own_segment_only(kind):
    scores, labels, ids, _ = cities(2, 10)
    scores[5] = np.nan
    with pytest.warns(RuntimeWarning, match="1 of 96 segments"):
        calibrator = pj.fit_segments(scores, labels, ids, pooling=kind)
    p = calibrator.predict_proba(np.zeros(96), calibrator.keys)
    assert np.isnan(p).tolist() == [True] + [False] * 95


@KINDS
def test_one_class_alone_leaves_nothing_to_estimate(kind):
    scores, _, ids, _ = cities(2, 10)
    with pytest.warns(RuntimeWarning, match="no population to estimate"):
        calibrator = pj.fit_segments(scores, np.zeros(len(scores)), ids, pooling=kind)
    assert calibrator.pooling == "complete" and calibrator.levels is None
    assert not calibrator.population.estimated


@KINDS
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([[0, 1, 2, 3]], 'one column; for one column use pooling="partial"'),
        ([[0, 0, 0, 0], [0, 1, 2, 3]], "one value in column"),
        ([[0, 1, 2, 3], [4, 5, 6, 7]], "determine each other"),
    ],
)
def test_levels_that_cannot_be_told_apart_are_refused(kind, columns, message):
    ids = np.array(columns).T if len(columns) > 1 else np.array(columns[0])
    with pytest.raises(ValueError, match=f"segments: .*{message}"):
        pj.fit_segments([1.0, -1.0, 0.5, 0.0], [1, 0, 0, 1], ids, pooling=kind)


@KINDS
def test_options_that_a_population_replaces_are_refused(kind):
    rows = [1.0, -1.0, 0.5, 0.0], [1, 0, 0, 1], [(0, 0), (0, 1), (1, 2), (1, 3)]
    prior = pj.GaussianPrior(np.zeros(2), np.eye(2))
    with pytest.raises(ValueError, match="prior: expected None"):
        pj.fit_segments(*rows, pooling=kind, prior=prior)
    with pytest.raises(ValueError, match="start: expected None"):
        pj.fit_segments(*rows, pooling=kind, start=(0, 0))
    with pytest.raises(ValueError, match="intercept"):
        pj.fit_segments(*rows, pooling=kind, options=pj.Options(intercept=False))


def test_few_rows_end_somewhere():
    for kind in KINDS.args[1]:
        rows = [1.0, -1.0, 0.5, 0.0], [1, 0, 0, 1], [(0, 0), (0, 1), (1, 2), (1, 3)]
        calibrator = pj.fit_segments(*rows, pooling=kind)
        assert np.isfinite(calibrator.predict_proba([0.0] * 3, UNSEEN)).all()


@KINDS
def test_triage_flags_a_new_city_that_is_unlike_its_country(kind, fitted, rng):
    """Against what the levels know of it; cities that have not changed are not flagged."""
    _, _, _, parameters = cities(0, 30)
    parameters = np.vstack([parameters, [1.0, -1.0], [1.0, 6.0]])
    city = np.repeat(np.arange(98), 60)
    country = np.append(np.arange(96) // 8, [3, 3])[city]
    scores = rng.normal(size=len(city))
    slope, intercept = parameters[city].T
    labels = rng.random(len(city)) < expit(slope * scores + intercept)
    judged = pj.triage(fitted[kind], scores, labels, np.stack([country, city], 1))
    assert judged["segment_1"][judged["flagged"]].tolist() == [97]


# The answers of glmer(y ~ f + (1 + f | a) + (1 + f | b), family = binomial) of R's lme4 1.1-31:
# intercept and slope, and for each level the standard deviations of both.
LME4 = {
    "nested": ([-0.37327847, 0.85555039], [0.56195468, 0.42502055], [0.64153196, 0.31373226]),
    "crossed": (
        [-0.55839737, 1.18592956],
        [0.7602685969, 0.5231525231],
        [0.5558050164, 0.3494957809],
    ),
}


@pytest.mark.parametrize("kind", ["nested", "crossed"])
def test_lme4_has_the_same_answers(kind):
    rng = np.random.default_rng(0)
    for made in ("nested", "crossed"):  # one after the other, as the rows for lme4 were drawn
        if made == "nested":
            a, b = np.repeat(np.arange(15), 8 * 40), np.repeat(np.arange(15 * 8), 40)
        else:
            a, b = np.divmod(np.repeat(np.arange(25 * 25), 8), 25)
        of_a = rng.normal(size=(a.max() + 1, 2)) * [0.5, 0.7]
        of_b = rng.normal(size=(b.max() + 1, 2)) * [0.4, 0.6]
        f = rng.normal(size=len(a))
        z = (1 + of_a[a, 0] + of_b[b, 0]) * f + (-0.5 + of_a[a, 1] + of_b[b, 1])
        y = rng.random(len(a)) < 1 / (1 + np.exp(-z))
        if made == kind:
            break
    calibrator = pj.fit_segments(f, y, np.column_stack([a, b]), pooling=kind)
    mean, *deviations = LME4[kind]
    np.testing.assert_allclose(-calibrator.population.mean[::-1], mean, atol=0.003)
    levels = calibrator.levels
    for i, theirs in enumerate(deviations):
        # Ours is the restricted likelihood, theirs the likelihood, by Laplace's approximation.
        to_theirs = np.sqrt(1 - 1 / levels["values"][i])
        for name, expected in zip(("intercept_sd", "slope_sd"), theirs, strict=True):
            off = levels[name][i] * to_theirs - expected
            assert abs(off) < 0.2 * levels[f"se_{name}"][i]
            assert abs(off) < 0.04 * expected


def test_means_that_do_not_settle_are_heard(monkeypatch):
    """Of two large levels, whose means are fitted in turn."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 12, (3000, 2))
    scores, labels = rng.normal(size=3000), rng.random(3000) < 0.4
    monkeypatch.setattr(crossed, "_MOST_DENSE", 5)
    settled = pj.fit_segments(scores, labels, ids, pooling="crossed")
    assert settled.population.status in (pj.Status.CONVERGED, pj.Status.BOUNDARY)
    monkeypatch.setattr(crossed, "_MOST_SWEEPS", 1)
    monkeypatch.setattr(crossed, "_SETTLED", 1e-9)
    with pytest.warns(RuntimeWarning, match="pooling: the search .* did not converge"):
        found = pj.fit_segments(scores, labels, ids, pooling="crossed")
    assert found.population.status == pj.Status.MAX_ITERATIONS
