"""multiclass="coupling": LIBSVM's probabilities of several classes."""

import re
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn.base")  # "sklearn" is a folder here, too
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import PredefinedSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, NuSVC
from test_docs import ROOT

import platt_jax as pj
from platt_jax.sklearn import PlattCalibratedClassifier, couple, coupling

PAGE = ROOT / "docs" / "leaving_svc_probability.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
DIGITS = load_digits(return_X_y=True)


def libsvm_multiclass_probability(r):
    """svm.cpp's multiclass_probability, line by line, for one row; r[i, j] = P(i | i or j)."""
    k = len(r)
    max_iter, eps = max(100, k), 0.005 / k
    p, Q = np.full(k, 1 / k), np.zeros((k, k))
    for t in range(k):
        for j in range(k):
            if j != t:
                Q[t, t] += r[j, t] * r[j, t]
                Q[t, j] = -r[j, t] * r[t, j]
    for _ in range(max_iter):
        Qp = Q @ p
        pQp = p @ Qp
        if np.abs(Qp - pQp).max() < eps:
            break
        for t in range(k):
            diff = (-Qp[t] + pQp) / Q[t, t]
            p[t] += diff
            pQp = (pQp + diff * (diff * Q[t, t] + 2 * Qp[t])) / (1 + diff) / (1 + diff)
            for j in range(k):
                Qp[j] = (Qp[j] + diff * Q[t, j]) / (1 + diff)
                p[j] /= 1 + diff
    return p


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_couples_as_libsvms_code_does(rng, classes):
    pairs = rng.random((40, classes * (classes - 1) // 2))
    pairs[0], pairs[1] = 0, 1
    found = couple(pairs)
    for row, p in zip(pairs, found, strict=True):
        r = np.zeros((classes, classes))
        i, j = np.triu_indices(classes, 1)
        r[i, j] = np.clip(row, 1e-7, 1 - 1e-7)
        r[j, i] = 1 - r[i, j]
        expected = libsvm_multiclass_probability(r) if classes > 2 else [r[0, 1], r[1, 0]]
        np.testing.assert_allclose(p, expected, rtol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_rows_do_not_depend_on_each_other(rng, monkeypatch):
    pairs = rng.random((50, 10))
    together = couple(pairs)
    monkeypatch.setattr("platt_jax.sklearn.coupling._ENTRIES_AT_ONCE", 60)
    np.testing.assert_array_equal(couple(pairs), together)
    pairs[3, 2] = np.nan
    lost = np.isnan(couple(pairs)).all(axis=1)
    assert np.flatnonzero(lost).tolist() == [3]


@pytest.mark.parametrize("shape", [(3,), (3, 0), (3, 4)])
def test_columns_that_are_no_pairs_are_refused(shape):
    with pytest.raises(ValueError, match=r"pairwise: expected shape \(N, C \(C - 1\) / 2\)"):
        couple(np.full(shape, 0.5))


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_equals_libsvm_given_its_own_A_and_B(classes):
    X, y = DIGITS
    X, y = X[y < classes][:200], y[y < classes][:200]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # deprecated in scikit-learn 1.9
            svc = SVC(probability=True, decision_function_shape="ovo", random_state=0)
            svc.fit(X[::2], y[::2])
            expected, A, B = svc.predict_proba(X), svc.probA_, svc.probB_
    except TypeError:
        pytest.skip("this scikit-learn has no SVC(probability=True)")
    f = svc.decision_function(X)
    f = -f[:, None] if classes == 2 else f
    with np.errstate(over="ignore"):
        pairs = 1 / (1 + np.exp(A * f + B))
    found = couple(pairs)
    if classes == 2:
        # scikit-learn's copy of LIBSVM has the loop run for two classes, too; LIBSVM no longer.
        np.testing.assert_allclose(found, np.hstack([pairs, 1 - pairs]))
        found = np.array(
            [libsvm_multiclass_probability(np.array([[0, p], [1 - p, 0]])) for p in pairs[:, 0]]
        )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_each_pair_is_fitted_to_its_own_rows_and_coupled(rng):
    X, y = DIGITS
    svc = SVC(decision_function_shape="ovo").fit(X[:300], y[:300])
    w = rng.integers(0, 3, 300).astype(float)
    model = PlattCalibratedClassifier(FrozenEstimator(svc), multiclass="coupling")
    model.fit(X[300:600], y[300:600], w)
    f = svc.decision_function(X[300:600])
    table = model.table()
    assert list(zip(table["class"], table["versus"], strict=True))[:2] == [(0, 1), (0, 2)]
    for k, (i, j) in enumerate(zip(*np.triu_indices(10, 1), strict=True)):
        mine = np.isin(y[300:600], [i, j])
        one = pj.fit(f[mine, k], y[300:600][mine] == i, weights=w[mine])
        np.testing.assert_allclose([table["A"][k], table["B"][k]], [one.A, one.B], rtol=1e-9)
    sigmoid = pj.Sigmoid(table["A"], table["B"])
    pairs = sigmoid.predict_proba(svc.decision_function(X[600:]).T).T
    np.testing.assert_allclose(model.predict_proba(X[600:]), couple(pairs), rtol=1e-12)


@pytest.mark.parametrize("svc", [SVC(), NuSVC(nu=0.1), make_pipeline(StandardScaler(), SVC())])
@pytest.mark.parametrize("ensemble", [True, False])
def test_classifiers_and_pipelines_stay_as_they_are(svc, ensemble):
    X, y = DIGITS
    model = PlattCalibratedClassifier(svc, multiclass="coupling", cv=3, ensemble=ensemble)
    model.fit(X[:500], y[:500])
    inner = model.calibrated_classifiers_[0].estimator
    assert inner.decision_function(X[:5]).shape == (5, 10)  # "ovr", as it was
    proba = model.predict_proba(X[500:])
    assert (model.predict(X[500:]) == inner.predict(X[500:])).mean() > 0.85
    np.testing.assert_allclose(proba.sum(axis=1), 1)


def test_two_classes_couple_to_their_one_sigmoid():
    X, y = load_breast_cancer(return_X_y=True)
    base = FrozenEstimator(SVC().fit(X[::2], y[::2]))
    coupled = PlattCalibratedClassifier(base, multiclass="coupling").fit(X, y)
    plain = PlattCalibratedClassifier(base).fit(X, y)
    np.testing.assert_allclose(coupled.predict_proba(X), plain.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("ensemble", [True, False])
def test_folds_without_a_class(ensemble):
    """Of class 2 all rows, and of class 1 none, are left out in the second fold."""
    X, y = DIGITS[0][:180], DIGITS[1][:180] % 3
    fold = np.arange(180) % 2
    fold[y == 2] = 1
    fold[y == 1] = 0
    model = PlattCalibratedClassifier(
        SVC(), multiclass="coupling", cv=PredefinedSplit(fold), ensemble=ensemble
    ).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    if ensemble:
        first, second = model.calibrated_classifiers_
        # The first is tested on classes 0 and 1, and fitted on 0 and 2, the second the reverse.
        assert (first.predict_proba(X)[:, 1] == 0).all()
        assert (second.predict_proba(X)[:, 2] == 0).all()


def test_a_pair_without_rows_says_one_half():
    X, y = DIGITS[0][:300], DIGITS[1][:300] % 3
    model = PlattCalibratedClassifier(FrozenEstimator(SVC().fit(X, y)), multiclass="coupling")
    model.fit(X[y == 0], y[y == 0])
    assert model.table()["status"].tolist() == ["CONVERGED", "CONVERGED", "EMPTY"]
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba[:, 1] > 0, True)


def test_svc_probability_has_a_replacement_as_good():
    """The folds are other than LIBSVM's, whose own are drawn at random, so figures differ a bit."""
    X, y = DIGITS
    model = PlattCalibratedClassifier(
        SVC(), multiclass="coupling", ensemble=False, cv=StratifiedKFold(5)
    ).fit(X[:600], y[:600])
    loss = -np.log(model.predict_proba(X[600:])[np.arange(len(y) - 600), y[600:]]).mean()
    assert loss < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_for_those_who_leave_runs_by_itself(example):
    exec(compile(example, str(PAGE), "exec"), {"__name__": "__main__"})


def test_a_coupling_that_does_not_converge_is_heard(monkeypatch):
    monkeypatch.setattr(coupling, "_TOL", 0.0)
    with pytest.warns(RuntimeWarning, match=r"pairwise: .* of 2 rows did not converge"):
        proba = couple([[0.999, 0.001, 0.999], [0.5, 0.5, 0.5]])
    np.testing.assert_allclose(proba.sum(1), 1)
