"""The papers' commands in their quick mode, from end to end."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
from data import batch
from scipy.special import expit

import platt_jax as pj

pytestmark = pytest.mark.slow

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn.base")  # "sklearn" is a folder here, too


@pytest.fixture(autouse=True)
def papers(monkeypatch, tmp_path):
    """The package of the papers' commands, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    from benchmarks import papers

    return papers


@pytest.fixture
def run(tmp_path, capsys):
    """Runs a command's quick mode; gives what it wrote, which it also prints."""

    def run(main, name, data):
        main(["--quick", "--data", str(data), "--out", str(tmp_path / "out")])
        text = (tmp_path / "out" / f"{name}-quick.md").read_text()
        assert text in capsys.readouterr().out
        assert (tmp_path / "out" / f"{name}-quick.png").stat().st_size > 10_000
        return text

    return run


def tables(text):
    """The Markdown tables of a text, each as its rows by their first cell."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        if cells:
            found.append({row[0]: row[1:] for row in cells})
    return found


def number(cell):
    return float(cell.split(" ")[0].replace(",", ""))


def made_up_scores(rng, problems, rows):
    labels = (rng.random(rows) < 0.3).astype(np.int8)
    return labels, rng.normal(size=(problems, rows)) + 2.0 * labels


class TestLin2007:
    def test_losses_are_those_of_the_fits(self, run, rng, tmp_path):
        from benchmarks.papers import lin2007

        scores = {}
        for name in ("sonar", "shuttle"):
            labels, scores[name] = made_up_scores(rng, 20, 60)
            np.savez(
                tmp_path / f"lin2007_{name}.npz",
                y=labels,
                scores_cv=scores[name],
                scores_train=2 * scores[name],
            )
        found = tables(run(lin2007.main, "lin2007", tmp_path))
        assert len(found) == 4
        some = pj.fit(scores["shuttle"][::11], labels)
        for table in found[2:]:  # the scale of the scores does not matter to a sigmoid
            assert len(table) == 7
            for name in ("LM, bug fixed", "Newton, fixed sigma", "platt_jax's defaults"):
                assert number(table[name][3]) == pytest.approx(some.nll.mean(), abs=1e-4)
        assert number(found[2]["platt_jax's defaults"][2]) == some.iterations.mean()

    def test_on_the_scores_of_shuttle_newton_is_never_worse(self, real_data):
        from benchmarks.papers import lin2007

        of = real_data("lin2007_shuttle")
        scores, labels = of["scores_cv"][::11], of["y"]
        found = lin2007.run(scores, labels)
        lm, newton = found["LM, bug fixed"], found["Newton, fixed sigma"]
        fit = pj.fit(scores, labels, options=pj.Options.libsvm())
        np.testing.assert_allclose(newton.loss, fit.nll, rtol=1e-12)
        assert newton.converged.all()
        assert np.all(newton.loss <= lm.loss * (1 + 1e-9))
        assert np.any(lm.loss > 1.01 * newton.loss)
        assert lm.overflows.sum() > 0


class TestRueping2004:
    def test_ranks_means_and_tests(self, run, rng, tmp_path):
        from benchmarks.papers import rueping2004, rueping_report

        for name, rows in (("liver", 90), ("promoters", 60)):
            y = np.arange(rows) % 2
            X = rng.normal(size=(rows, 3)) + 1.0 * y[:, None]
            np.savez(tmp_path / f"{name}.npz", X=X.astype(np.float32), y=y.astype(np.int8))
        text = run(rueping2004.main, "rueping2004", tmp_path)
        of_sets, *rest = tables(text)
        assert of_sets["liver"][0] == "90"
        for means, ranks, tests in (rest[:3], rest[3:6]):
            methods = list(rueping_report.METHODS)
            assert list(means)[2:] == methods
            ranked = list(ranks)[2:]
            assert set(methods) - set(ranked) == {"Beta"}
            assert sum(number(ranks[m][0]) for m in ranked) == pytest.approx(36, abs=0.1)
            assert all(0 < number(means[m][0]) < number(means[m][1]) for m in methods)
            assert number(means["Platt"][0]) < 0.25 < number(means["Beta"][0]) + 0.2
            assert all(number(tests[m][i]) == 0 for i, m in enumerate(list(tests)[2:]))

    def test_a_batch_of_folds_is_calibrated_as_each_fold_alone(self, rng, tmp_path):
        from benchmarks.papers import rueping2004, rueping_report

        for name, rows in (("liver", 90), ("promoters", 60)):
            y = (rng.random(rows) < 0.4).astype(np.int8)
            X = rng.normal(size=(rows, 2)) + y[:, None]
            np.savez(tmp_path / f"{name}.npz", X=X.astype(np.float32), y=y)
        scores = rueping2004.train(tmp_path, ("liver", "promoters"), quick=True)
        proba = rueping2004.calibrate(scores)
        kernel, one, fold = 1, 1, 3
        held_out = scores.real[one] & (scores.fold[one] == fold)
        rows = scores.real[one] & ~held_out
        assert (held_out | rows).sum() == 60
        learnt = scores.inner[kernel, one, fold, rows], scores.labels[one, rows]
        at = scores.outer[kernel, one, held_out]
        for m, name in enumerate(rueping_report.METHODS[1:], start=1):
            if name in rueping2004._OTHERS:
                expected = rueping2004._OTHERS[name](*learnt, at)
            else:
                expected = pj.fit(*learnt, curve=rueping2004._CURVES[name]).predict_proba(at)
            np.testing.assert_allclose(
                proba[m, kernel, one, held_out], expected, rtol=1e-6, atol=1e-9, err_msg=name
            )


class TestOldMethods:
    def test_platts_search_takes_the_steps_of_his_pseudo_code(self, rng):
        """A transcription for one row after the other made as many, and met as many logs of 0."""
        from benchmarks.papers.old_methods import levenberg_marquardt

        scores, labels = batch(rng, 20, 48)
        tails = np.sinh(2 * scores)  # that the search overshoots
        for last_target, counts in ((False, [140, 0, 78, 20]), (True, [1522, 0, 0, 5])):
            each = [
                levenberg_marquardt(f, y, last_target=last_target)
                for f, y in zip(tails, labels, strict=True)
            ]
            assert np.sum([x[2:] for x in each], axis=0).tolist() == counts
        fit = pj.fit(scores, labels)
        easy = [levenberg_marquardt(*rows)[:2] for rows in zip(scores, labels, strict=True)]
        np.testing.assert_allclose(easy, np.stack([fit.A, fit.B], axis=1), atol=1e-5)

    def test_scores_between_the_margins_are_probabilities(self):
        from benchmarks.papers.old_methods import clip, pp_clip, softmax

        f, y = np.array([-3.0, -2.0, 0.0, 1.5, 2.0]), np.array([0, 1, 0, 1, 1])
        at = np.array([-9.0, 0.2, 9.0])
        np.testing.assert_allclose(clip(f, y, at), [0, 0.6, 1])
        np.testing.assert_allclose(pp_clip(f, y, at), [0.5, 0.6, 1])
        np.testing.assert_allclose(pp_clip(f / 4, y, at), [0, 0.6, 1])
        np.testing.assert_allclose(softmax(f, y, at)[1], 1 / (1 + np.exp(-0.4)))

    def test_beta_scaling_is_the_best_of_its_curves(self, rng):
        """The best of many sizes, by SciPy's distributions."""
        from benchmarks.papers import old_methods

        def best(member, right):
            mean, share = member.mean(), right.mean()
            size = mean * (1 - mean) / member.var() - 1
            ranks = scipy.stats.beta(mean * size, (1 - mean) * size).cdf(member)
            sizes = np.geomspace(0.1, 1e4, 1000)[:, None]
            p = scipy.stats.beta(share * sizes, (1 - share) * sizes).ppf(ranks)
            return p[np.argmin(np.mean((p - right) ** 2, axis=1))]

        for f, y in zip(*batch(rng, 3, 60), strict=True):
            f = f - 0.7
            p = old_methods.beta_2(f, y, f)
            np.testing.assert_allclose(p, best(expit(2 * f), y), atol=2e-3)
            p, up = old_methods.beta(f, y, f), f > 0
            np.testing.assert_allclose(p[up], best(expit(2 * f[up]), y[up]), atol=2e-3)
            expected = 1 - best(expit(-2 * f[~up]), 1 - y[~up])
            np.testing.assert_allclose(p[~up], expected, atol=2e-3)
        f, right = np.array([2.0, 5.0, 3.0, -1.0]), np.array([1, 1, 1, 0])
        np.testing.assert_allclose(old_methods.beta(f, right, np.array([4.0, -4.0])), [0.8, 1 / 3])

    def test_beta_quantiles_that_scipy_does_not_find(self):
        from benchmarks.papers.old_methods import _beta_quantile

        alpha, beta, ranks = 1.0075512277846355, 0.15780922844819587, np.array([4.5e-18, 0.3])
        found = scipy.stats.beta(alpha, beta).cdf(_beta_quantile(alpha, beta, ranks))
        np.testing.assert_allclose(found, ranks, rtol=1e-9)


class TestPlatt1999:
    def test_errors_and_scores(self, run, rng, tmp_path):
        from benchmarks.papers import platt1999, platt_report

        data = make_platt_data(rng, tmp_path)
        text = run(platt1999.main, "platt1999", tmp_path)
        figures, tests = tables(text)
        assert list(figures)[2:] == ["Reuters linear", "Adult linear", "Adult quadratic"]
        test = data["fold"] == -1
        f, y = data["scores"].astype(np.float64), data["y"]
        fit = pj.fit(f[~test], y[~test])
        proba = fit.sigmoid.predict_proba(f[test])
        raw, sigmoid = (f[test] > 0) != y[test], (proba > 0.5) != y[test]
        row = figures["Adult linear"]
        assert number(row[2]) == raw.sum()
        assert number(row[3]) == sigmoid.sum()
        by_hand = -np.log(np.where(y[test] == 1, proba, 1 - proba)).sum()
        assert number(row[5]) == pytest.approx(by_hand, abs=0.51)
        assert number(tests["Adult linear"][0]) == pytest.approx(
            platt_report._mcnemar(raw, sigmoid), rel=0.1
        )
        # The columns say more than the score, and the likelihood sees them all.
        assert number(row[6]) < number(row[5])

    def test_mcnemar_is_the_sign_test_of_the_rows_on_which_they_differ(self):
        from benchmarks.papers import platt_report

        a = np.array([True] * 9 + [False] * 3 + [True] * 5)
        b = np.array([False] * 9 + [True] * 3 + [True] * 5)
        # 12 rows differ, 3 one way: twice the share of the 2^12 sequences with at most 3 heads.
        assert platt_report._mcnemar(a, b) == pytest.approx(2 * (1 + 12 + 66 + 220) / 2**12)
        assert platt_report._mcnemar(a, a) == 1


def make_platt_data(rng, folder):
    topics, documents = 6, 400
    is_test = np.arange(documents) % 4 == 0
    belongs = (rng.random((documents, topics)) < 0.3).astype(np.int8)
    scores = rng.normal(size=belongs.shape) + 2.0 * belongs - 1.5
    scores[~is_test, -1] = np.nan
    np.savez(folder / "reuters_modapte.npz", is_test=is_test, topics=belongs, svm_scores=scores)
    rows, columns = 900, 12
    X = rng.random((rows, columns)) < 0.3
    y = (rng.random(rows) < expit(2.0 * X[:, 0] + 2.0 * X[:, 1] * X[:, 2] - 1.5)).astype(np.int8)
    f = (X[:, 0] + 0.5 * rng.normal(size=rows) - 1).astype(np.float32)
    fold = np.where(np.arange(rows) < 600, np.arange(rows) % 3, -1).astype(np.int8)
    indptr = np.concatenate([[0], np.cumsum(X.sum(axis=1))])
    np.savez(folder / "a9a.npz", y=y, indptr=indptr, indices=np.nonzero(X)[1].astype(np.uint8))
    np.savez(folder / "platt1999_scores.npz", adult_linear=f, adult_quad=f, adult_fold=fold)
    return {"fold": fold, "scores": f, "y": y}


class TestKernelMachines:
    def test_the_quadratic_columns_have_the_quadratic_kernel(self, rng):
        from scipy.sparse import csr_array

        from benchmarks.papers.kernel_machines import quadratic_features

        X = (rng.random((30, 8)) < 0.4).astype(np.float64)
        X[3] = 0
        Z = quadratic_features(csr_array(X), 5)
        np.testing.assert_allclose((Z @ Z.T).toarray() + 1, (X @ X.T / 5 + 1) ** 2)

    def test_kernel_logistic_regression_is_at_its_optimum(self, rng):
        from benchmarks.papers.kernel_machines import RBFLogisticRegression

        y = (rng.random(80) < 0.5).astype(int)
        X = rng.normal(size=(80, 2)) + y[:, None]
        fitted = RBFLogisticRegression(3.0, 0.5).fit(X, y)
        p = expit(fitted.decision_function(X))
        # Where the gradient is 0, every row's coefficient is C times its residual.
        np.testing.assert_allclose(fitted.alpha_, 3.0 * (y - p), atol=1e-2)
        assert abs(np.sum(y - p)) < 1e-2


class TestSets:
    def test_a_set_that_is_no_file_comes_from_openml(self, monkeypatch, tmp_path):
        from benchmarks.papers import sets

        def fetch(name, **options):
            assert (name, options["version"]) == ("mushroom", 1)
            return SimpleNamespace(
                data=np.array([[0, 7.5], [2, 1.5], [0, 0.5]], object),
                target=np.array(["p", "e", "p"], object),
                feature_names=["odor", "size"],
                categories={"odor": ["a", "b", "c"]},
            )

        monkeypatch.setattr(sets, "fetch_openml", fetch)
        X, y = sets.features(tmp_path, "mushroom")
        assert y.tolist() == [1, 0, 1]
        assert X.tolist() == [[7.5, 1, 0], [1.5, 0, 1], [0.5, 1, 0]]

    def test_what_is_kept_is_made_once_and_anew_for_other_input(self):
        from benchmarks.papers import report

        calls = []

        def make():
            calls.append(1)
            return {"x": np.arange(3)}

        for of in (1.0, 1.0, 2.0):
            assert report.kept("test", (np.array([of]), "rule"), make)["x"].tolist() == [0, 1, 2]
        assert len(calls) == 2
