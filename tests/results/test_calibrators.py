"""Results as users meet them: predictions, pytrees, tables and reprs."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from data import problem

import platt_jax as pj
from platt_jax import Sigmoid


def test_predictions_are_exact_in_the_tails(dtype, x64):
    scores = np.array([-1e30, -800, -90, -1, 0, 1, 30, 80, 800, 1e30], dtype)
    for array in (np.asarray, jnp.asarray):
        sigmoid = Sigmoid(array(dtype(-1)), array(dtype(0.5)))
        p = sigmoid.predict_proba(array(scores))
        assert type(p) is type(array(scores)) and p.dtype == dtype
        with mpmath.workdps(40):
            exact = [float(1 / (1 + mpmath.exp(-mpmath.mpf(float(f)) + 0.5))) for f in scores]
        eps, tiny = np.finfo(dtype).eps, np.finfo(dtype).tiny
        np.testing.assert_allclose(p, exact, rtol=100 * eps, atol=tiny)
        assert np.all((0 <= p) & (p <= 1)) and np.all(np.diff(p) >= 0)
        logs = sigmoid.log_proba(array(scores))
        with mpmath.workdps(800):
            exact = [float(-mpmath.log1p(mpmath.exp(0.5 - mpmath.mpf(float(f))))) for f in scores]
        np.testing.assert_allclose(logs, exact, rtol=4 * eps, atol=tiny)
        np.testing.assert_allclose(sigmoid.logit(array(scores)), scores - dtype(0.5), rtol=eps)
    assert (sigmoid.slope, sigmoid.intercept) == (1, -0.5)


def test_log_odds_of_probabilities(dtype):
    p = np.array([0, 1e-300, 1e-13, 1e-12, 0.2, 0.5, 0.999, 1, np.nan], dtype)
    found = pj.logit(p)
    assert found.dtype == dtype
    with mpmath.workdps(40):
        inside = [
            min(max(mpmath.mpf(float(x)), mpmath.mpf(1e-12)), 1 - mpmath.mpf(1e-12)) for x in p
        ]
        exact = [float(mpmath.log(x / (1 - x))) for x in inside[:-1]]
    np.testing.assert_allclose(found[:-1], exact, rtol=1e-5)  # 1 - 1e-12 itself is rounded
    np.testing.assert_allclose(found[1:-2], exact[1:-1], rtol=4 * np.finfo(dtype).eps)
    assert np.isnan(found[-1])


def test_log_odds_of_other_containers_and_shapes():
    pd = pytest.importorskip("pandas")
    expected = np.log([1 / 9, 1, 9])
    for values in ([0.1, 0.5, 0.9], pd.Series([0.1, 0.5, 0.9]), jnp.array([0.1, 0.5, 0.9])):
        np.testing.assert_allclose(pj.logit(values), expected, atol=1e-6)
    assert pj.logit([[0.5], [0.5]]).tolist() == [[0], [0]]
    assert pj.logit(0.5) == 0 and pj.logit([0, 1]).dtype == np.float64 and len(pj.logit([])) == 0


@pytest.mark.parametrize("odd", [1.5, -1e-9, np.inf, -np.inf])
def test_log_odds_of_what_is_no_probability(odd):
    with pytest.raises(ValueError, match=rf"probabilities: expected .* in \[0, 1\], got {odd}"):
        pj.logit([0.5, np.nan, odd])


def test_predictions_broadcast():
    batch = Sigmoid(np.array([-1.0, -2.0]), np.array([0.0, 1.0]))
    assert batch.predict_proba(np.zeros((2, 5))).shape == (2, 5)
    assert batch.predict_proba(np.zeros(5)).shape == (2, 5)
    assert batch.predict_proba(0.0).shape == (2,)
    assert Sigmoid(-1.0, 0.0).predict_proba(np.zeros((3, 4))).shape == (3, 4)
    assert Sigmoid(-2.0, 1.0).predict_proba(0.5) == 0.5
    np.testing.assert_allclose(batch.predict_proba([3, 1]), batch.predict_proba([3.0, 1.0]))


def test_results_are_pytrees(rng):
    scores, labels = problem(rng, 40)
    fit = pj.fit(np.stack([scores, scores + 1]), labels)
    first = jax.tree.map(lambda x: x[0], fit)
    assert np.shape(first.A) == () and first.hessian.shape == (2, 2)
    predict = jax.jit(lambda sigmoid, f: sigmoid.predict_proba(f))
    got = predict(first.sigmoid, jnp.asarray(scores))
    np.testing.assert_allclose(got, first.sigmoid.predict_proba(scores), rtol=1e-5)
    prior = pj.GaussianPrior(np.zeros(2), np.eye(2))
    assert len(jax.tree.leaves(prior)) == 2


def test_repr_says_in_three_lines_what_was_fitted_and_what_failed(rng):
    scores, labels = problem(rng, 1200)
    scores[5] = np.nan
    with pytest.warns(RuntimeWarning):
        calibrator = pj.fit_segments(scores, labels, np.repeat(np.arange(400), 3))
    lines = repr(calibrator).splitlines()
    assert lines[0] == "SegmentCalibrator: 400 sigmoids from 1,199 rows in all, float64"
    assert lines[1] == "  status: 399 CONVERGED, 1 NON_FINITE"
    assert lines[2].startswith("  flags:  ") and "ONE_CLASS" in lines[2] and len(lines) == 3
    html = calibrator._repr_html_()
    assert html.count("<tr>") == 11 and "NON_FINITE" in html and "and 390 more" in html
    one = pj.fit(scores[:3], [0, 1, 0], weights=[0.5, 1, 2.25])
    assert repr(one).startswith("Fit: 1 sigmoid from 3.75 (weighted) rows in all")


def test_html_escapes_keys(rng):
    scores, labels = problem(rng, 4)
    html = pj.fit_segments(scores, labels, ["<b>", "<b>", "&", "&"])._repr_html_()
    assert "&lt;b&gt;" in html and "<td><b></td>" not in html


def test_table(rng):
    scores, labels = problem(rng, 90)
    calibrator = pj.fit_segments(scores, labels, np.repeat(["a", "b", "c"], 30))
    table = calibrator.table()
    names = ["segment", "A", "B", "se_A", "se_B", "status", "flags", "n_pos", "n_neg", "nll"]
    assert list(table) == [*names, "iterations"]
    assert all(isinstance(c, np.ndarray) and c.shape == (3,) for c in table.values())
    np.testing.assert_array_equal(table["se_A"], calibrator.fit.standard_errors[:, 0])
    assert table["status"].tolist() == ["CONVERGED"] * 3
    both = pj.fit([[1.0, 1.0, 1.0]], [1, 1, 1]).table()
    assert both["flags"].tolist() == ["ONE_CLASS|CONSTANT_SCORES"]
    assert pj.fit(scores.reshape(3, 2, 15), labels[:15]).table()["problem"].tolist()[3] == (1, 1)


def test_table_to_pandas(rng):
    pandas = pytest.importorskip("pandas")
    frame = pj.fit(*problem(rng, 20)).table().to_pandas()
    assert isinstance(frame, pandas.DataFrame) and frame.shape == (1, 11)


def test_a_missing_guest_is_named_with_its_extra(rng, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    scores, labels = problem(rng, 20)
    with pytest.raises(ImportError, match=r"pip install 'platt-jax\[pandas\]'"):
        pj.fit(scores, labels).table().to_pandas()
    with pytest.raises(ImportError, match=r"pip install 'platt-jax\[progress\]'"):
        pj.fit(scores, labels, progress=True)


def test_results_are_equal_by_value(rng):
    scores, labels = problem(rng, 40)
    other = scores + labels
    columns = np.stack([scores, -scores], 1)
    makers = {
        "sigmoid": lambda f: pj.fit(f, labels).sigmoid,
        "fit": lambda f: pj.fit(np.stack([f, f]), labels),
        "segments": lambda f: pj.fit_segments(f, labels, np.arange(40) % 3),
        "classes": lambda f: pj.fit_one_vs_rest(columns + f[:, None], labels),
        "JAX": lambda f: pj.solve(f, labels),
    }
    for make in makers.values():
        one, same, another = make(scores), make(scores), make(other)
        assert one == same
        assert one != another and one != 1 and one is not None
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)
    assert makers["fit"](scores) != makers["sigmoid"](scores)
    scores[0] = np.nan
    with pytest.warns(RuntimeWarning):
        assert makers["fit"](scores) == makers["fit"](scores)


def test_one_vs_rest_counts_its_rows_once(rng):
    classes = rng.integers(0, 10, 500)
    scores = rng.normal(size=(500, 10)) + np.eye(10)[classes]
    scores[3, 4] = np.nan
    with pytest.warns(RuntimeWarning, match="1 of 10 classes, first in 4: "):
        calibrator = pj.fit_one_vs_rest(scores, classes)
    assert repr(calibrator).splitlines()[0].endswith("10 sigmoids from 500 rows in all, float64")
    assert "10 sigmoids from 500 rows in all" in calibrator._repr_html_()


def test_columns_are_called_as_the_attributes_of_a_fit(rng):
    """`flags` too, which hides behind an attribute of a DataFrame; no other name does."""
    pandas = pytest.importorskip("pandas")
    fit = pj.fit(*problem(rng, 20))
    table = fit.table()
    others = {"problem", "se_A", "se_B"}
    assert [name for name in table if name not in others and not hasattr(fit, name)] == []
    frame = table.to_pandas()
    assert [name for name in frame if hasattr(pandas.DataFrame, name)] == ["flags"]
    assert len(frame[frame["flags"] != ""]) == len(frame.query('flags != ""')) == 0


def test_a_fit_predicts_as_its_sigmoid(rng):
    scores, labels = problem(rng, 40)
    fit = pj.fit(np.stack([scores, -scores]), labels)
    np.testing.assert_array_equal(fit.predict_proba(scores), fit.sigmoid.predict_proba(scores))


def test_flags_and_statuses_are_made_of_numpys_integers(rng):
    fit = pj.fit(np.zeros((2, 3)), [1, 1, 1])
    assert pj.Flag(fit.flags[0]) == pj.Flag.ONE_CLASS | pj.Flag.CONSTANT_SCORES
    assert pj.Flag(np.int64(0)) == pj.Flag(0) and pj.Status(fit.status[0]) is pj.Status.CONVERGED
    for bad in ("a", np.float64(1.5)):
        with pytest.raises(ValueError, match="not a valid Flag"):
            pj.Flag(bad)


def test_host_predictions_say_what_to_do_inside_jit(rng):
    scores, labels = problem(rng, 40)
    by_segment = pj.fit_segments(scores, labels, np.arange(40) % 2)
    by_class = pj.fit_one_vs_rest(np.stack([scores, -scores], 1), labels)
    for predict, argument in (
        (lambda f: by_segment.predict_proba(f, np.zeros(40, int)), scores),
        (lambda ids: by_segment.predict_proba(scores, ids), np.zeros(40, int)),
        (by_class.predict_proba, np.zeros((3, 2))),
    ):
        with pytest.raises(ValueError, match="got a traced"):
            jax.jit(predict)(argument)
    assert jax.jit(by_segment.fit.sigmoid.predict_proba)(np.zeros((2, 5))).shape == (2, 5)


def mostly_small(rng):
    """Scores, labels and segments of two large segments, a small one and one that fails."""
    segments = np.repeat(["a", "b", "few", "nan"], [100, 100, 3, 20])
    scores, labels = problem(rng, len(segments))
    return np.where(segments == "nan", np.nan, scores), labels, segments


@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_segments_that_are_left_out_are_unseen_ones(rng, tmp_path, pooling):
    scores, labels, segments = mostly_small(rng)
    with pytest.warns(RuntimeWarning, match="in 1 of 4 segments"):
        calibrator = pj.fit_segments(scores, labels, segments, pooling=pooling)
    fit = calibrator.fit
    kept = calibrator.only((fit.n_pos + fit.n_neg >= 50) & fit.converged)
    assert list(kept) == ["a", "b"] and kept["b"] == calibrator["b"]
    f = np.linspace(-2, 2, 4)
    here = ["a", "b", "few", "nan"]
    proba = kept.predict_proba(f, here)
    np.testing.assert_array_equal(proba[:2], calibrator.predict_proba(f[:2], here[:2]))
    unseen = calibrator.predict_proba(f[2:], ["x", "y"])
    np.testing.assert_array_equal(proba[2:], unseen)
    assert np.isfinite(proba).all()
    pj.save(tmp_path / "file.npz", kept)
    loaded = pj.load(tmp_path / "file.npz")
    assert loaded == kept
    np.testing.assert_array_equal(loaded.predict_proba(f, here), proba)
    np.testing.assert_array_equal(loaded.band(f, here), kept.band(f, here))
    assert calibrator.only(np.ones(4, bool)) == calibrator


@pytest.mark.parametrize(
    "ids",
    [["a", "b"], [1, 2], [("a", 1), ("b", 2)], ["a", 1]],
    ids=["text", "integers", "columns", "objects"],
)
def test_a_calibrator_of_no_segments_is_its_fallback(rng, tmp_path, ids):
    scores, labels = problem(rng, 40)
    calibrator = pj.fit_segments(scores, labels, ids * 20)
    none = calibrator.only(np.zeros(2, bool))
    pj.save(tmp_path / "file.npz", none)
    for one in (none, pj.load(tmp_path / "file.npz")):
        assert len(one) == 0 and ids[0] not in one and one == none
        proba = one.predict_proba(scores, ids * 20)
        np.testing.assert_array_equal(proba, calibrator.fallback.predict_proba(scores))
        assert len(one.table()["A"]) == 0 and "0 sigmoids" in repr(one) and one._repr_html_()
        assert one.raise_if_failed() is one


def test_seen_tells_rows_of_fitted_segments_from_others():
    calibrator = pj.fit_segments([1.0, 2.0, 3.0], [0, 1, 0], [7, 7, 9])
    assert calibrator.seen([9, 8, 7, 9]).tolist() == [True, False, True, True]
    with pytest.raises(ValueError, match="segments"):
        calibrator.seen(["7"])


def test_only_takes_a_bool_per_segment(rng):
    calibrator = pj.fit_segments(*problem(rng, 40), np.arange(40) % 2)
    for where in ([0, 1], [True], True, ["a", "b"]):
        with pytest.raises(ValueError, match="where: expected a bool for each of"):
            calibrator.only(where)


@pytest.mark.slow
def test_standard_errors_are_those_of_the_posteriors():
    """At a boundary, a population taken as known makes fits sure of what they do not know.

    The population's spread of slopes is next to 0, as the estimate of 8 segments often is, and the
    true spread is a quarter of the slope.
    """
    off = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        slopes = 1.2 + 0.3 * rng.normal(size=8)
        segments = np.repeat(np.arange(8), 300)
        scores = rng.integers(0, 2, 2400).astype(float)
        labels = rng.random(2400) < 1 / (1 + np.exp(-slopes[segments] * scores - 1.3))
        calibrator = pj.fit_segments(scores, labels, segments, pooling="partial")
        population, table = calibrator.population, calibrator.table()
        variances = population.posterior_covariance[:, [0, 1], [0, 1]]
        for errors in (calibrator.fit.standard_errors, np.stack([table["se_A"], table["se_B"]], 1)):
            np.testing.assert_allclose(errors, np.sqrt(variances))
        np.testing.assert_array_equal(calibrator[3].covariance, calibrator.fit.covariance[3])
        updated = pj.update(calibrator, scores[:90], labels[:90], segments[:90])
        variances_now = updated.population.posterior_covariance[:, [0, 1], [0, 1]]
        np.testing.assert_allclose(updated.fit.standard_errors**2, variances_now)
        fit = calibrator.at_mode().fit  # takes the population as known
        np.testing.assert_allclose(fit.covariance @ fit.hessian - np.eye(2), 0, atol=1e-9)
        if population.covariance[0, 0] < 1e-3:
            off.append((-population.posterior_mean[:, 0] - slopes) / table["se_A"])
    assert len(off) >= 4
    assert 0.7 < np.sqrt(np.mean(np.square(off))) < 1.4
