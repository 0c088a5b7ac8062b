"""Populations whose mean follows covariates of the segments."""

import time

import numpy as np
import pytest
from scipy.special import expit

import platt_jax as pj
from platt_jax.population import regression
from platt_jax.population.gaussians import normals
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.population_prior import MEAN_PRECISION
from platt_jax.status import Status

SEGMENTS = 80


def drawn(seed):
    """Covariates (K, 2), of which the first explains half of the intercepts' variance; rows."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(SEGMENTS, 2))
    B = np.sqrt(0.5) * (z[:, 0] + rng.normal(size=SEGMENTS))
    A = -1.5 + 0.4 * rng.normal(size=SEGMENTS)
    which = np.repeat(np.arange(SEGMENTS), np.maximum(1, rng.poisson(20, SEGMENTS)))
    scores = rng.normal(size=len(which))
    labels = rng.random(len(which)) < expit(-(A[which] * scores + B[which]))
    return z, (scores, labels, which)


def fitted(rows, covariates, **more):
    return pj.fit_segments(*rows, pooling="partial", covariates=covariates, **more)


@pytest.fixture(scope="module")
def known():
    z, rows = drawn(0)
    return z, rows, fitted(rows, z)


def test_it_is_a_population_of_what_the_covariates_leave(known):
    """With their effects as the offset of each row, plain pooling finds the same."""
    _, (scores, labels, which), calibrator = known
    population = calibrator.population
    effects = population.covariates.effects()
    assert population.status == Status.CONVERGED
    A, B = effects[which].T
    rest = pj.fit_segments(scores, labels, which, pooling="partial", offset=-(A * scores + B))
    errors = rest.population.mean_errors
    assert np.abs((population.mean - rest.population.mean) / errors).max() < 0.2
    off = np.abs(population.covariance - rest.population.covariance)
    assert (off / rest.population.covariance_errors).max() < 0.1
    for i, name in enumerate("AB"):
        own = np.sqrt(rest.population.posterior_covariance[:, i, i])
        moved = getattr(rest.fit, name) + effects[:, i]
        assert np.abs((getattr(calibrator.fit, name) - moved) / own).max() < 0.1


def test_coefficients_are_the_most_probable_ones(known):
    """The gradient of the log posterior density by brute force, to a tenth of a standard error."""
    z, (scores, labels, which), calibrator = known
    population = calibrator.population
    axis, weight = np.polynomial.hermite_e.hermegauss(24)
    u = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    log_weight = np.log(np.outer(weight, weight).ravel())
    x = z - population.covariates.center
    # Nodes are at the posteriors under the estimate.
    factor = np.linalg.cholesky(population.posterior_covariance)
    nodes = population.posterior_mean[:, None] + np.einsum("kij,gj->kgi", factor, u)
    A, B = nodes[which].transpose(2, 0, 1)
    log_odds = -(A * scores[:, None] + B)
    each = np.where(labels[:, None], -np.logaddexp(0, -log_odds), -np.logaddexp(0, log_odds))
    own = np.zeros(nodes.shape[:2])
    np.add.at(own, which, each)
    own += log_weight + (u**2).sum(1) / 2
    precision = np.linalg.inv(population.covariance)

    def log_density(coefficients):
        off = nodes - (population.mean + x @ coefficients)[:, None]
        square = np.einsum("kgi,ij,kgj->kg", off, precision, off)
        found = np.logaddexp.reduce(own - square / 2, 1).sum()
        # The prior is of coefficients for a standard deviation, in the coordinates of the scores.
        scaled = coefficients * z.std(0)[:, None]
        return found - np.sum(scaled**2) / (2 * 1.5**2)

    best, step = population.covariates.coefficients, 1e-3
    errors = np.sqrt(np.diag(population.covariates.covariance))[2:].reshape(2, 2)
    for i in np.ndindex(2, 2):
        more, less = best.copy(), best.copy()
        more[i] += step
        less[i] -= step
        values = log_density(more), log_density(best), log_density(less)
        slope, bend = (values[0] - values[2]) / 2 / step, (2 * values[1] - values[0] - values[2])
        error = step / np.sqrt(bend)
        assert abs(slope * error) < 0.15
        np.testing.assert_allclose(errors[i], error, rtol=0.15)


def test_a_step_is_generalized_least_squares(rng):
    """From anywhere to the maximum, where likelihoods are normal; with its covariance."""
    factors = rng.normal(size=(6, 2, 2))
    precision = factors @ np.swapaxes(factors, 1, 2)
    means, z, center = rng.normal(size=(6, 2)), rng.normal(size=(6, 2)), np.array([-1.0, 2.0])
    S, at = np.array([[0.5, 0.1], [0.1, 0.8]]), rng.normal(size=(3, 2))
    own = Likelihoods.from_arrays(precision, np.einsum("kij,kj->ki", precision, means))
    left = regression.displaced(own, -(z @ at[1:]))  # less the effects
    step = regression._step(z, left, normals(at[0], S), center, at[1:], own.total)
    information = MEAN_PRECISION * np.eye(6)
    pull = MEAN_PRECISION * np.append(center, np.zeros(4))
    for x, P, mean in zip(np.column_stack([np.ones(6), z]), precision, means, strict=True):
        D = np.kron(x, np.eye(2))
        W = np.linalg.inv(np.linalg.inv(P) + S)
        information, pull = information + D.T @ W @ D, pull + D.T @ W @ mean
    expected = np.linalg.solve(information, pull).reshape(3, 2)
    np.testing.assert_allclose(at + step.by, expected, rtol=1e-9)
    np.testing.assert_allclose(step.covariance, np.linalg.inv(information), rtol=1e-9, atol=1e-12)
    off = (expected - at).ravel()
    assert step.decrement == pytest.approx(np.sqrt(off @ information @ off), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows, intercept, kind", [(5, 0, "normal"), (20, 0, "heavy tails"), (100, 3.8, "normal")]
)
def test_curves_are_nearer_to_the_truth_and_bands_cover(rows, intercept, kind):
    """Of 200 segments a covariate explains half of the intercepts' variance."""
    from benchmarks.inference.covariates import World, judged

    found = judged(World(200, rows, 1, 0.5, intercept, kind), 6)
    for of in ("", "new segments, "):
        assert found[f"{of}with: excess log loss"] < 0.95 * found[f"{of}without: excess log loss"]
        assert 0.9 < found[f"{of}with: covered"] < 0.98


@pytest.mark.slow
@pytest.mark.parametrize("segments, covariates", [(5, 3), (20, 10), (200, 2)])
def test_covariates_that_say_nothing_cost_no_certainty(segments, covariates):
    """With coefficients taken for known, bands of new segments cover .75 in the first two."""
    from benchmarks.inference.covariates import World, judged

    found = judged(World(segments, 30, covariates), 20)
    assert found["with: covered"] > 0.92
    assert found["new segments, with: covered"] > 0.92
    assert found["p-values below .05"] < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("pair", [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_the_number_of_rows_explains_small_segments(pair):
    """Of the quarter with the fewest rows: bands cover, and predictions are not off."""
    from benchmarks.inference.sizes import _WAYS, _remedied

    each = np.mean([_remedied(seed, pair) for seed in range(6)], 0)
    covered, off, _ = each[_WAYS.index("rows as covariate")]
    assert covered > 0.92
    assert abs(off) < 0.01


def test_the_unit_and_the_order_of_covariates_do_not_matter(known):
    z, rows, calibrator = known
    points, which = np.linspace(-3, 3, SEGMENTS), np.arange(SEGMENTS)
    expected = calibrator.predict_proba(points, which)
    for other in (z * [1e6, -1e-6] + [3.0, 5.0], z[:, ::-1], np.float32(z).astype(float)):
        found = fitted(rows, other)
        np.testing.assert_allclose(found.predict_proba(points, which), expected, rtol=1e-4)
    order = np.random.default_rng(0).permutation(SEGMENTS)
    table = {"segment": order, "a": z[order, 0], "b": z[order, 1]}
    assert np.array_equal(fitted(rows, table).predict_proba(points, which), expected)


def test_any_category_may_be_the_first(known):
    z, (scores, labels, which), _ = known
    groups = np.digitize(z[:, 0], [-0.5, 0.5])
    made = []
    for names in (("low", "middle", "high"), ("c", "b", "a")):
        table = {"segment": np.arange(SEGMENTS), "group": np.array(names)[groups]}
        calibrator = fitted((scores, labels, which), table)
        made.append(calibrator.predict_proba(scores, which))
        table = calibrator.population.coefficients
        assert table["covariate"].tolist() == [f"group={x}" for x in sorted(names)[1:]]
    np.testing.assert_allclose(*made, atol=5e-3)  # the prior of the coefficients differs


def test_rows_are_the_logarithm_of_their_number(known):
    _, rows, _ = known
    number = np.bincount(rows[2])
    one, other = fitted(rows, "rows"), fitted(rows, {"segment": np.arange(80), "n": np.log(number)})
    assert np.array_equal(one.fit.A, other.fit.A)
    assert one.population.coefficients["covariate"].tolist() == ["log(rows)"]


def test_left_out_rows_are_predicted_by_fits_of_the_others(known):
    """Each under the prior of its own segment, whose mean follows the covariates."""
    _, (scores, labels, which), calibrator = known
    found = pj.inference.leave_one_out(calibrator, scores, labels, which)
    population = calibrator.population
    precision = np.linalg.inv(population.covariance)
    for row in (0, 400, 1200):
        k = which[row]
        mine = (which == k) & (np.arange(len(which)) != row)
        prior = pj.GaussianPrior(population.means[k], precision)
        options = pj.Options(targets="none")
        alone = pj.fit(scores[mine], labels[mine], prior=prior, options=options)
        whole = calibrator[int(k)]
        # As predict_proba, whose mean is off the mode, and whose covariance is wider.
        mode = -(alone.A * scores[row] + alone.B), -(whole.A * scores[row] + whole.B)
        moved = expit(np.log(found[row] / (1 - found[row])))
        before = calibrator.predict_proba(scores[[row]], [k])[0]
        change = np.log(moved / (1 - moved)) - np.log(before / (1 - before))
        assert abs(change - (mode[0] - mode[1])) < 0.05 + 0.2 * abs(change)


def test_new_segments_are_predicted_by_their_covariates(known):
    _, _, calibrator = known
    population, covariates = calibrator.population, calibrator.population.covariates
    new = {"segment": [900, 901, 5], "x0": [2.0, -2.0, 0.0], "x1": [0.0, 0.0, 0.0], "y": [*"abc"]}
    more = calibrator.with_segments(new)
    assert len(more) == SEGMENTS + 2
    assert more[900].n_pos == 0
    expected = population.predictive_mean + covariates.effects(np.array([[2.0, 0.0]]))
    np.testing.assert_allclose(more.population.posterior_mean[-2], expected[0])
    ids = [900, 901, 7]
    proba = more.predict_proba([0.0, 0.0, 0.0], ids)
    given = calibrator.predict_proba([0.0, 0.0, 0.0], ids, covariates=new)
    assert np.array_equal(proba, given)
    assert proba[0] < 0.4 < 0.6 < proba[1]
    # Nothing is known of a segment without covariates: between, and less certain.
    unknown = calibrator.predict_proba([0.0], 900)
    assert proba[0] < unknown[0] < proba[1]
    (wide,), (narrow,) = (np.diff(x.band([0.0], 900), axis=0)[0] for x in (calibrator, more))
    assert wide > narrow
    # A segment like all others has the covariance of a residual.
    middle = {"segment": [999], "x0": covariates.center[:1], "x1": covariates.center[1:]}
    own = calibrator.with_segments(middle).population.posterior_covariance[-1]
    np.testing.assert_allclose(
        own, population.predictive_covariance - covariates.spread, atol=1e-12
    )


def test_it_is_kept_in_files_and_after_changes(known, tmp_path):
    z, _, calibrator = known
    pj.save(tmp_path / "c", calibrator)
    loaded = pj.load(tmp_path / "c")
    assert loaded == calibrator
    assert loaded.population.coefficients.keys() == calibrator.population.coefficients.keys()
    some = calibrator.only(np.arange(SEGMENTS) < 10)
    np.testing.assert_array_equal(some.population.covariates.values, z[:10])
    back = some.with_segments({"segment": [70], "x0": z[[70], 0], "x1": z[[70], 1]})
    assert 70 in back
    moved = back.shift_prior(0.5, 0.1)
    expected = back.predict_proba([0.0], 70) / (1 - back.predict_proba([0.0], 70))
    found = moved.at_mode().predict_proba([0.0], 70)
    assert abs(np.log(found / (1 - found) / expected * 9)[0]) < 0.3
    assert np.abs(moved.unshifted().fit.B - back.fit.B).max() < 1e-12


def test_new_rows_are_learnt_with_the_coefficients(known):
    z, (scores, labels, which), whole = known
    first = np.random.default_rng(1).random(len(which)) < 0.5
    half = fitted((scores[first], labels[first], which[first]), z)
    later = pj.update(half, scores[~first], labels[~first], which[~first])
    errors = np.sqrt(np.diag(whole.population.covariates.covariance))[2:].reshape(2, 2)
    coefficients = [x.population.covariates.coefficients for x in (later, whole)]
    assert np.abs((coefficients[0] - coefficients[1]) / errors).max() < 0.5
    own = np.sqrt(whole.population.posterior_covariance[:, 1, 1])
    assert np.abs((later.fit.B - whole.fit.B) / own).max() < 0.5
    with pytest.raises(ValueError, match="with_segments"):
        pj.update(half, [1.0, 0.0], [1, 0], [900, 900])
    new = half.with_segments({"segment": [900], "x0": [1.0], "x1": [0.0]})
    assert pj.update(new, [1.0, 0.0], [1, 0], [900, 900])[900].n_pos == 1
    by_rows = fitted((scores[first], labels[first], which[first]), "rows")
    assert 900 in pj.update(by_rows, [1.0, 0.0], [1, 0], [900, 900])
    with pytest.raises(ValueError, match="drift"):
        pj.update(half, scores, labels, which, drift=0.1)
    with pytest.raises(ValueError, match="without covariates"):
        pj.inference.estimate_drift(half, scores, labels, which)


def test_tables_of_any_kind(known):
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    z, (scores, labels, which), _ = known
    names = np.array([f"shop {i}" for i in range(SEGMENTS)])
    rows = scores, labels, names[which]
    kind = np.where(z[:, 1] > 0, "own", "franchise")
    frame = pd.DataFrame({"size": z[:, 0], "kind": kind, "new": z[:, 0] > 1}, index=names)
    made = [
        fitted(rows, table)
        for table in (
            frame,
            frame.astype({"kind": "category", "size": "Float64"}).sample(frac=1, random_state=0),
            frame.reset_index(names="segment"),
            pl.from_pandas(frame.reset_index(names="segment")),
            pl.from_pandas(frame.reset_index(names="segment")).to_arrow(),
            frame.reset_index(names="segment").to_dict("list"),
        )
    ]
    assert all(x == made[0] for x in made)
    names = made[0].population.coefficients["covariate"].tolist()
    assert names == ["size", "kind=own", "new"]
    assert "covariates: size, kind=own, new" in repr(made[0].population)


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda t: {**t, "segment": t["segment"] + 1}, "a line for each segment, got none for 1"),
        (lambda t: {**t, "segment": t["segment"] // 2}, "several for 0"),
        (lambda t: {"x": t["x"]}, "a column 'segment' of ids"),
        (lambda t: {"segment": t["segment"]}, "columns beside the ids, got none"),
        (
            lambda t: {**t, "x": np.where(t["segment"] == 7, np.nan, 0)},
            "finite numbers below 1e100, got nan for",
        ),
        (lambda t: {**t, "x": [None, *"ab" * 40][:80]}, "None"),
        (lambda t: t["x"], r"got shape \(80,\)"),
        (lambda t: np.ones((3, 2)), "a line for each of 80 segments, got 3"),
        (lambda t: "size", 'a table by segment or "rows", got'),
        (lambda t: {**t, "x": t["x"] * 1e100}, "finite numbers below 1e100"),
        (lambda t: {**t, "x": t["x"].astype(object)}, "dtype object of float; convert to float"),
        (lambda t: {**t, "x": t["x"].astype("M8[s]")}, "expected numbers, got"),
        (lambda t: {**t, "x": t["x"][1:]}, r"expected 80 values, got shape \(79,\)"),
        (lambda t: {"segment": t["segment"], "log(rows)": t["x"]}, "another name than"),
    ],
)
def test_refused(known, change, told):
    table = {"segment": np.arange(SEGMENTS), "x": known[0][:, 0]}
    with pytest.raises(ValueError, match=f"covariates.*{told}"):
        fitted(known[1], change(table))


def test_it_is_for_partial_pooling_alone(known):
    z, rows, calibrator = known
    for pooling in ("none", "complete"):
        with pytest.raises(ValueError, match="covariates: expected None beside pooling="):
            pj.fit_segments(*rows, pooling=pooling, covariates=z)
    with pytest.raises(ValueError, match="a table of covariates, got none"):
        pj.fit_segments(*rows, pooling="partial").with_segments({"segment": [1], "x": [1.0]})
    with pytest.raises(ValueError, match="numbers of rows"):
        fitted(rows, "rows").with_segments({"segment": [900], "log(rows)": [1.0]})
    with pytest.raises(ValueError, match="a column 'x1'"):
        calibrator.with_segments({"segment": [900], "x0": [1.0]})


def test_float32(known):
    z, (scores, labels, which), calibrator = known
    single = fitted((np.float32(scores), labels, which), z)
    assert single.fit.A.dtype == np.float32
    assert np.abs(single.fit.B - calibrator.fit.B).max() < 1e-3


def test_segments_without_rows_say_nothing(known):
    """Neither of the coefficients nor of what unseen segments may be."""
    z, (scores, labels, which), calibrator = known
    far = [*z, [100.0, -50.0]]
    given = np.append(scores, 0.3), np.append(labels, True), np.append(which, SEGMENTS)
    left = fitted(given, np.array(far), weights=np.append(np.ones(len(which)), 0.0))
    ids = np.arange(SEGMENTS + 2) + (np.arange(SEGMENTS + 2) >= SEGMENTS)  # 80 has no rows
    points = np.linspace(-2, 2, len(ids))
    expected, found = (x.predict_proba(points, ids) for x in (calibrator, left))
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    added = calibrator.with_segments({"segment": [900], "x0": [1e3], "x1": [0.0]})
    row = [0.3], [1], [which[0]]
    both = [pj.update(x, *row).predict_proba(points, ids) for x in (calibrator, added)]
    np.testing.assert_allclose(*both, rtol=1e-8)


def test_categories_are_those_of_segments_that_were_fitted(known):
    pd = pytest.importorskip("pandas")
    _, rows, _ = known
    grade = np.arange(SEGMENTS + 1) % 3 + 2
    grade[-1] = 1
    table = pd.DataFrame({"segment": np.arange(SEGMENTS + 1), "grade": pd.Categorical(grade)})
    calibrator = fitted(rows, table)
    assert calibrator.population.coefficients["covariate"].tolist() == ["grade=3", "grade=4"]
    with pytest.raises(
        ValueError, match=r"column 'grade': expected one of .* got 1 for segment 80"
    ):
        calibrator.with_segments(table)


@pytest.mark.parametrize("covariates", [1, 8])
def test_unchanged_segments_are_not_flagged_nor_gated_too_low(covariates):
    """Seen ones, and new ones of which nothing, or only the covariates are known."""
    rng = np.random.default_rng(3)

    def world(segments, rows, first):
        z = rng.normal(size=(segments, covariates))
        B = 0.4 + 1.5 * z[:, 0] + 0.3 * rng.normal(size=segments)
        A = -1.2 + 0.3 * z[:, 0] + 0.1 * rng.normal(size=segments)
        which = np.repeat(np.arange(segments), rows)
        scores = 1.5 * rng.normal(size=len(which))
        true = expit(-(A[which] * scores + B[which]))
        return z, true, (scores, rng.random(len(which)) < true, first + which)

    z, _, rows = world(60, 60, 0)
    new_z, true, new = world(200, 100, 1000)
    calibrator = fitted(rows, z)
    table = {f"x{i}": x for i, x in enumerate(new_z.T)} | {"segment": 1000 + np.arange(200)}
    for known in (calibrator, calibrator.with_segments(table)):
        lines = pj.triage(known, *new)
        assert lines["flagged"].sum() == 0
        tested = ~np.isnan(lines["p_value"])
        assert tested.all()
        assert np.mean(lines["p_value"] < 0.05) < 0.08
        gates = pj.gate(known, new[0], new[2], precision=0.9)
        at = dict(zip(gates["segment"].tolist(), gates["threshold"], strict=True))
        accepted = new[0] >= np.array([at[x] for x in new[2].tolist()])
        number = np.bincount(new[2] - 1000, accepted)
        right = np.bincount(new[2] - 1000, accepted * true) / np.maximum(number, 1)
        assert np.sum((right < 0.9) & (number > 0)) <= 0.1 * np.count_nonzero(number)
    fresh = rows[0], rng.random(len(rows[0])) < 0.5, rows[2]
    assert pj.triage(calibrator, *fresh)["flagged"].any()


def test_columns_that_say_nothing_new_change_no_test(known):
    """Equal covariates, and one that is given again, are no more segments."""
    z, rows, _ = known
    few = tuple(x[rows[2] < 12] for x in rows)
    fresh = few[0], few[1] ^ (few[2] == 3), few[2]
    p_values = []
    for more in (np.empty((12, 0)), np.ones((12, 4)), z[:12, [0, 0]]):
        calibrator = fitted(few, np.column_stack([z[:12, 0], more]))
        p_values.append(pj.triage(calibrator, *fresh)["p_value"])
    assert np.isfinite(p_values[0]).any()
    np.testing.assert_allclose(p_values[1], p_values[0], rtol=1e-6)
    np.testing.assert_allclose(p_values[2], p_values[0], rtol=0.1)  # the coefficients' prior


@pytest.mark.slow
def test_many_categories_take_no_minutes():
    """Times of ten categories and of none; sums of pairs took thirty times as long."""
    rng = np.random.default_rng(0)
    which, kind = np.repeat(np.arange(20_000), 5), rng.integers(0, 10, 20_000)
    scores = rng.normal(size=len(which))
    labels = rng.random(len(which)) < expit(1.5 * scores + 0.2 * kind[which])
    table = {"segment": np.arange(20_000), "kind": kind.astype(str)}
    seconds = []
    for covariates in (None, table):
        each = []
        for _ in range(3):
            begin = time.perf_counter()
            fitted((scores, labels, which), covariates)
            each.append(time.perf_counter() - begin)
        seconds.append(min(each))
    assert seconds[1] < 8 * seconds[0]


def test_a_far_segment_does_not_move_the_others(known):
    """Its effect would be unbounded: it alone tells the coefficient."""
    _, rows, _ = known
    far = np.zeros((SEGMENTS, 1))
    far[7] = 1
    points, which = np.tile(np.linspace(-2, 2, 5), SEGMENTS), np.repeat(np.arange(SEGMENTS), 5)
    others = which != 7
    for labels in (rows[1], np.where(rows[2] == 7, True, rows[1])):
        alone = fitted(tuple(x[rows[2] != 7] for x in (rows[0], labels, rows[2])), None)
        both = fitted((rows[0], labels, rows[2]), far)
        found, expected = (x.predict_proba(points, which)[others] for x in (both, alone))
        assert np.abs(found - expected).max() < 0.02


def test_an_index_of_segments_is_none_of_rows():
    """Also where there are as many segments as rows; columns of one table must agree."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    names = np.array([f"s{i}" for i in range(40)])
    rows = pd.DataFrame({"f": rng.normal(size=40), "y": np.arange(40) % 2, "s": names})
    frame = pd.DataFrame({"x": rng.normal(size=40)}, index=names)
    made = fitted((rows["f"], rows["y"], rows["s"]), frame)
    table = {"segment": pd.Series(names), "x": pd.Series(frame["x"].to_numpy())}
    assert fitted((rows["f"], rows["y"], rows["s"]), table) == made
    with pytest.raises(ValueError, match="pandas objects with one index"):
        fitted((rows["f"], rows["y"], rows["s"]), table | {"x": frame["x"]})


def test_covariates_that_are_all_equal_leave_the_population_as_it_is():
    rng = np.random.default_rng(3)
    which = np.repeat(np.arange(100), 3)
    scores = rng.integers(98, 103, 300).astype(float)
    labels = rng.random(300) < expit(15 * (scores - 100) + rng.normal(0, 5, 100)[which])
    plain = pj.fit_segments(scores, labels, which, pooling="partial")
    found = fitted((scores, labels, which), "rows")
    np.testing.assert_allclose(found.population.covariance, plain.population.covariance, rtol=1e-9)
    np.testing.assert_allclose(found.fit.B, plain.fit.B, rtol=1e-9)


def test_a_masked_number_is_missing(known):
    z, rows, _ = known
    hidden = np.where(np.arange(SEGMENTS) == 3, -999.0, z[:, 0])
    masked = np.ma.masked_array(hidden, hidden == -999)
    table = {"segment": np.arange(SEGMENTS), "x0": masked, "x1": z[:, 1]}
    with pytest.raises(ValueError, match=r"column 'x0': expected finite.* for segment 3"):
        fitted(rows, table)


def test_a_segment_that_is_left_out_says_nothing_of_the_covariates():
    z, (scores, labels, which) = drawn(1)
    coded = np.where(which == 5, 1e4 * scores, scores)  # in another unit
    others = which != 5
    answers = []
    for value in (z[5, 0], -9999.0):
        given = np.where(np.arange(SEGMENTS)[:, None] == 5, [value, z[5, 1]], z)
        with pytest.warns(RuntimeWarning, match="scores lie over 100 times as far out"):
            made = fitted((coded, labels, which), given)
        assert made.population.left_out(made.fit.flags).tolist() == (np.arange(80) == 5).tolist()
        answers.append(made.predict_proba(scores[others], which[others]))
    np.testing.assert_allclose(*answers, rtol=1e-4)  # the searches end within their tolerance


def test_flags_of_segments_that_had_no_rows_are_of_the_new_ones(known):
    _, _, calibrator = known
    names = [x.name for x in calibrator.population.covariates.columns]
    table = {"segment": [900, 901], **{name: [0.0, 1.0] for name in names}}
    rows = [1.0, 2, 3, -1, -2, 5, 5, 5], [1, 1, 1, 0, 0, 1, 0, 1], [900] * 5 + [901] * 3
    updated = pj.update(calibrator.with_segments(table), *rows)
    assert updated.table()["flags"][-2:].tolist() == ["SEPARABLE", "CONSTANT_SCORES"]
