"""The methods of PlattCalibratedClassifier beside the sigmoid, and scikit-learn's interface."""

import numpy as np
import pytest

pytest.importorskip("sklearn.base")  # "sklearn" is a folder here, too
import sklearn
import sklearn.calibration
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import PredefinedSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import platt_jax as pj
from platt_jax.sklearn import PlattCalibratedClassifier

CURVES = ["quadratic", "beta", "isotonic", "venn_abers"]


class Rounded(GaussianNB):
    """Probabilities that are equal, or further apart than scikit-learn's ties."""

    def predict_proba(self, X):
        return super().predict_proba(X).round(12)


class Narrow(GaussianNB):
    def predict_proba(self, X):
        return super().predict_proba(X).round(4).astype(np.float32)


class OwnScores(ClassifierMixin, BaseEstimator):
    """Scores that are the columns of X."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X

    def predict(self, X):
        return self.classes_[X.argmax(1)]


class DecidingByLogOdds(GaussianNB):
    def decision_function(self, X):
        p = self.predict_proba(X)
        odds = np.log(p) - np.log1p(-p)
        return odds[:, 1] if len(self.classes_) == 2 else odds


class Scores(ClassifierMixin, BaseEstimator):
    """Its decision function is the first column."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return np.asarray(X)[:, 0]

    def predict(self, X):  # scikit-learn asks whether there is one
        raise AssertionError


class Probabilities(ClassifierMixin, BaseEstimator):
    """Its probabilities are 1 / (1 + exp(-f)) of the first column."""

    fit, predict = Scores.fit, Scores.predict

    def predict_proba(self, X):
        p = 1 / (1 + np.exp(-np.asarray(X)[:, 0]))
        return np.stack([1 - p, p], axis=1)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:900], y[:900]


@pytest.fixture
def binary(rng):
    X = rng.normal(size=(300, 2)) * 2
    return X, (X[:, 0] + 2 * rng.normal(size=300) > 0.5).astype(int)


def difference(one, other, X):
    return np.abs(one.predict_proba(X) - other.predict_proba(X)).max()


@pytest.mark.filterwarnings("ignore:Since FrozenEstimator does not appear to accept sample_weight")
@pytest.mark.parametrize("ensemble", [True, False])
@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize(
    ("base", "most"),
    [(SGDClassifier(random_state=0), 1e-12), (Rounded(), 1e-12), (Narrow(), 1e-6)],
)
def test_isotonic_curves_are_scikit_learns(digits, base, most, classes, ensemble):
    """Ties included: most probabilities of GaussianNB are rounded to 0 or 1."""
    X, y = digits
    y = y if classes > 2 else y > 4
    base = FrozenEstimator(base.fit(X[::2], y[::2]))
    w = np.arange(len(y[1::2])) % 3.0
    arguments = dict(method="isotonic", ensemble=ensemble, cv=2)
    ours = PlattCalibratedClassifier(base, **arguments).fit(X[1::2], y[1::2], w)
    theirs = CalibratedClassifierCV(base, **arguments).fit(X[1::2], y[1::2], w)
    assert difference(ours, theirs, X) < most


@pytest.mark.parametrize(("kind", "unit"), [(np.float32, 1e-7), (np.float64, 1e-16)])
def test_isotonic_curves_tell_small_scores_apart(kind, unit):
    """scikit-learn takes scores for equal that differ by less than 1e-6, or 1e-15 in float64."""
    X, y = (np.arange(1, 10) * unit).astype(kind)[:, None], np.arange(9) > 4
    model = PlattCalibratedClassifier(FrozenEstimator(Scores().fit(X, y)), method="isotonic")
    assert model.fit(X, y).predict_proba(X)[:, 1].tolist() == y.tolist()


def test_a_row_that_all_isotonic_curves_give_0_is_of_each_class_alike(rng):
    X = rng.normal(size=(90, 3)) + 20 * np.eye(3)[np.arange(90) % 3]
    base = FrozenEstimator(LogisticRegression().fit(X, np.arange(90) % 3))
    model = PlattCalibratedClassifier(base, method="isotonic").fit(X, np.arange(90) % 3)
    model.calibrated_classifiers_[0].estimator.estimator.decision_function = lambda X: X
    np.testing.assert_allclose(model.predict_proba(np.full((1, 3), -1e3)), 1 / 3)


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("logits", [True, False])
def test_the_sigmoid_of_probabilities_as_scikit_learn_has_it_and_will(digits, logits, classes):
    """Its pull request #34313 replaces probabilities by log-odds, which it knows as decisions."""
    X, y = digits
    X = X + np.random.default_rng(0).normal(size=X.shape) * 9
    y = y if classes > 2 else y > 4
    has_changed = hasattr(sklearn.calibration, "_ensure_logits")
    if has_changed and not logits:
        pytest.skip("this scikit-learn fits log-odds")
    base, inside = (
        FrozenEstimator(kind(var_smoothing=1.0).fit(X[::2], y[::2]))
        for kind in (GaussianNB, DecidingByLogOdds if logits and not has_changed else GaussianNB)
    )
    ours = PlattCalibratedClassifier(base, logits=logits).fit(X[1::2], y[1::2])
    theirs = CalibratedClassifierCV(inside).fit(X[1::2], y[1::2])
    assert difference(ours, theirs, X) < 1e-5


@pytest.mark.parametrize("classes", [2, 10])
def test_probabilities_before_decisions_as_scikit_learn_will(digits, classes):
    """The other half of #34313: of a classifier with both methods the probabilities are calibrated.

    They are `response_method="predict_proba"` here, in log-odds by `logits=True`.
    """
    X, y = digits
    X = X + np.random.default_rng(0).normal(size=X.shape) * 9
    y = y if classes > 2 else y > 4
    base = LogisticRegression(C=1e-4, max_iter=1000).fit(X[::2], y[::2])
    p = base.predict_proba(X[1::2])
    ours = PlattCalibratedClassifier(FrozenEstimator(base), response_method="predict_proba")
    found = ours.fit(X[1::2], y[1::2]).predict_proba(X[1::2])
    log_odds = np.log(p) - np.log1p(-p)
    if classes == 2:
        expected = pj.fit(log_odds[:, 1], y[1::2]).sigmoid.predict_proba(log_odds[:, 1])
        np.testing.assert_allclose(found[:, 1], expected, atol=1e-9)
    else:
        expected = pj.fit_one_vs_rest(log_odds, y[1::2]).predict_proba(log_odds)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    decisions = PlattCalibratedClassifier(FrozenEstimator(base)).fit(X[1::2], y[1::2])
    same = np.abs(decisions.predict_proba(X[1::2]) - found).max() < 1e-6
    assert same == (classes == 2)  # two classes: decisions are the log-odds


@pytest.mark.slow
@pytest.mark.parametrize("method", CURVES)
@pytest.mark.parametrize("classes", [2, 10])
def test_the_curves_are_those_of_fit_one_vs_rest(digits, method, classes):
    X, y = digits
    y = y if classes > 2 else (y > 4).astype(int)
    base = FrozenEstimator(SGDClassifier(random_state=0, alpha=10.0).fit(X[::2], y[::2]))
    X, y = X[1::2], y[1::2]
    w = 1.0 + np.arange(len(y)) % 2
    model = PlattCalibratedClassifier(base, method=method).fit(X, y, w)
    scores = base.decision_function(X).reshape(len(y), -1)
    labels = y if classes > 2 else y[:, None]
    expected = pj.fit_one_vs_rest(scores, labels, weights=w, curve=method).predict_proba(scores)
    found = model.predict_proba(X)
    np.testing.assert_allclose(found if classes > 2 else found[:, 1:], expected, rtol=1e-9)
    (calibrator,) = model.calibrators_
    assert calibrator.by_class.curves.label == method and len(model.table()["status"]) == len(
        scores.T
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", CURVES)
def test_curves_of_classes_that_a_fold_lacks(rng, method):
    X = rng.normal(size=(90, 2)) + 2 * np.eye(3, 2)[np.arange(90) % 3]
    y = np.array(["a", "b", "c"])[np.arange(90) % 3]
    y[30:][y[30:] == "c"] = "a"
    cv = PredefinedSplit(np.arange(90) // 30)
    model = PlattCalibratedClassifier(LogisticRegression(), method=method, cv=cv).fit(X, y)
    assert (model.calibrated_classifiers_[0].predict_proba(X)[:, 2] == 0).all()
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    one = PlattCalibratedClassifier(LogisticRegression(), method=method, cv=cv, ensemble=False)
    np.testing.assert_allclose(one.fit(X, y).predict_proba(X).sum(axis=1), 1)
    (calibrator,) = one.calibrators_
    table = calibrator.by_class.table()
    assert (table["n_pos"] + table["n_neg"]).tolist() == [90, 90, 60]


@pytest.mark.parametrize("method", [*CURVES, "auto"])
def test_curves_of_separate_labels(rng, method):
    X = rng.normal(size=(300, 3))
    Y = (X + rng.normal(size=(300, 3)) > 0).astype(int)
    base = FrozenEstimator(
        DecisionTreeClassifier(max_depth=4, random_state=0).fit(X[:150], Y[:150])
    )
    model = PlattCalibratedClassifier(base, method=method).fit(X[150:], Y[150:])
    assert model.predict_proba(X).shape == Y.shape
    if method == "isotonic":
        alone = FrozenEstimator(Second(base))
        one = CalibratedClassifierCV(alone, method="isotonic").fit(X[150:], Y[150:, 1])
        expected = one.predict_proba(X)[:, 1]
        np.testing.assert_allclose(model.predict_proba(X)[:, 1], expected, atol=1e-12)


class Second(ClassifierMixin, BaseEstimator):
    """The second label of a multilabel classifier."""

    classes_ = np.arange(2)

    def __init__(self, inner):
        self.inner = inner
        self.fitted_ = True

    def fit(self, X, y):
        return self

    predict = Scores.predict

    def predict_proba(self, X):
        return self.inner.predict_proba(X)[1]


@pytest.mark.slow
def test_an_offset_is_added_to_curves_of_log_odds_and_refused_by_others(binary, rng):
    X, y = (x[:200] for x in binary)
    offset = rng.normal(size=len(y))
    base = FrozenEstimator(Scores().fit(X, y))
    model = PlattCalibratedClassifier(base, method="quadratic").fit(X, y, offset=offset)
    expected = pj.fit_one_vs_rest(X[:, :1], y[:, None], offset=offset[:, None], curve="quadratic")
    np.testing.assert_allclose(
        model.predict_proba(X, offset=offset)[:, 1:],
        expected.predict_proba(X[:, :1], offset=offset[:, None]),
        rtol=1e-9,
    )
    with pytest.raises(ValueError, match="offset: expected None beside curve=Isotonic"):
        PlattCalibratedClassifier(base, method="isotonic").fit(X, y, offset=offset)
    assert PlattCalibratedClassifier(base, method="auto").fit(X, y, offset=offset).method_


def test_curves_are_shifted_and_saved(binary, tmp_path):
    X, y = binary
    model = PlattCalibratedClassifier(Scores(), method="quadratic", cv=2).fit(X, y)
    p, q = model.calibrated_classifiers_[0].predict_proba(X).T[1], 0
    q = model.shift_prior(0.5, 0.1).calibrated_classifiers_[0].predict_proba(X).T[1]
    np.testing.assert_allclose(q / (1 - q), p / (1 - p) / 9, rtol=1e-9)
    pj.save(tmp_path / "one.npz", model.calibrators_[0])
    assert pj.load(tmp_path / "one.npz") == model.calibrators_[0]


# --- the choice of a method -----------------------------------------------------------------------


def drawn(rng, log_odds):
    f = rng.normal(size=3000) * 2
    return f[:, None], rng.random(3000) < 1 / (1 + np.exp(-log_odds(f)))


@pytest.mark.parametrize(
    ("log_odds", "expected"),
    [
        (lambda f: 1.5 * f - 0.5, {"sigmoid"}),
        (lambda f: 0.7 * f**2 - 2, {"quadratic"}),
        (lambda f: np.where(f > 0, 3 * f, 0.1 * f), {"beta", "quadratic", "venn_abers"}),
    ],
)
def test_auto_takes_another_curve_than_the_sigmoid_only_where_that_is_wrong(
    rng, log_odds, expected
):
    X, y = drawn(rng, log_odds)
    base = FrozenEstimator(Scores().fit(X, y))
    chosen = PlattCalibratedClassifier(base, method="auto").fit(X, y)
    assert chosen.method_ in expected
    named = PlattCalibratedClassifier(base, method=chosen.method_).fit(X, y)
    np.testing.assert_array_equal(chosen.predict_proba(X), named.predict_proba(X))


def test_auto_takes_one_temperature_where_the_logits_have_one(rng):
    """Logits with a common disturbance of each row say nothing of a class against the rest."""
    logits = rng.normal(size=(3000, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = (rng.random((3000, 1)) > p.cumsum(axis=1)).sum(axis=1)
    X = 3 * (logits + 5 * rng.normal(size=(3000, 1)))
    base = Scores().fit(X, y)
    base.decision_function = lambda X: X
    model = PlattCalibratedClassifier(FrozenEstimator(base), method="auto").fit(X, y)
    assert model.method_ == "temperature"


def test_auto_counts_weights_as_rows(rng):
    """Rows of weight 0, which a quadratic curve would suit, do not count."""
    X, y = drawn(rng, lambda f: 1.5 * f)
    Z, z = drawn(rng, lambda f: 0.7 * f**2 - 2)
    X, y = np.concatenate([X, Z]), np.concatenate([y, z])
    model = PlattCalibratedClassifier(FrozenEstimator(Scores().fit(X, y)), method="auto")
    assert model.fit(X, y, np.repeat([1.0, 0.0], 3000)).method_ == "sigmoid"
    assert model.fit(X, y, np.repeat([0.0, 1.0], 3000)).method_ == "quadratic"


# --- scikit-learn's attributes --------------------------------------------------------------------


@pytest.mark.parametrize("base", [Scores(), Probabilities()])
def test_calibrators_have_the_parameters_that_scikit_learn_shows(binary, base):
    X, y = binary
    base = FrozenEstimator(base.fit(X, y))
    for method, names in (("sigmoid", ["a_", "b_"]), ("temperature", ["beta_"]), ("isotonic", [])):
        if method == "temperature" and sklearn.__version__.startswith("1.7."):
            continue
        ours = PlattCalibratedClassifier(base, method=method, logits=False).fit(X, y)
        theirs = CalibratedClassifierCV(base, method=method).fit(X, y)
        ((mine,), (other,)) = (x.calibrated_classifiers_[0].calibrators for x in (ours, theirs))
        for name in names:
            np.testing.assert_allclose(getattr(mine, name), getattr(other, name), rtol=1e-4)
        if method != "temperature":
            f = np.linspace(0, 1, 20)
            np.testing.assert_allclose(mine.predict(f), other.predict(f), rtol=1e-4)


def test_a_temperature_without_a_number_is_told_of(rng):
    """A class 1e4 below the largest score is no option: probabilities were NaN without a word."""
    X = rng.normal(size=(400, 3))
    y = (X + rng.gumbel(size=X.shape)).argmax(1)
    X[0], y[0] = [0, 1e7, 0], 0
    base = FrozenEstimator(OwnScores().fit(X, y))
    with pytest.warns(RuntimeWarning, match='probabilities are NaN. method="sigmoid"'):
        PlattCalibratedClassifier(base, method="temperature").fit(X, y)


def test_a_temperature_of_several_classes_is_one_calibrator(digits):
    X, y = digits
    base = FrozenEstimator(GaussianNB(var_smoothing=0.1).fit(X, y))
    model = PlattCalibratedClassifier(base, method="temperature").fit(X, y)
    (found,) = model.calibrated_classifiers_[0].calibrators
    assert found.beta_ == model.calibrators_[0].inverse_temperature
    logits = np.log(np.maximum(base.predict_proba(X), 1e-12))
    np.testing.assert_allclose(found.predict(logits), model.predict_proba(X), rtol=1e-6)
    assert (
        len(PlattCalibratedClassifier(base).fit(X, y).calibrated_classifiers_[0].calibrators) == 10
    )
