"""PlattCalibratedClassifier: agreement with scikit-learn's, and what that does not do."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn.base")  # "sklearn" is a folder here, too
import sklearn
from data import labels_of
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import (
    GroupKFold,
    LeaveOneOut,
    PredefinedSplit,
    RepeatedStratifiedKFold,
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from test_docs import ROOT

import platt_jax as pj
from platt_jax.sklearn import PlattCalibratedClassifier, TemperatureCalibrator

TEMPERATURE = [] if sklearn.__version__.startswith("1.7.") else ["temperature"]


@pytest.fixture(scope="module")
def problems():
    thirty = make_classification(
        600, 40, n_informative=30, n_classes=30, n_clusters_per_class=1, random_state=0
    )
    return {
        "breast cancer": load_breast_cancer(return_X_y=True),
        "digits": load_digits(return_X_y=True),
        "thirty": thirty,
    }


@pytest.fixture
def binary(rng):
    X = rng.normal(size=(300, 3))
    return X, (X[:, 0] + rng.normal(size=300) > 0.5).astype(int)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def linear():
    return make_pipeline(StandardScaler(), SGDClassifier(random_state=0))


def difference(one, other, X):
    return np.abs(one.predict_proba(X) - other.predict_proba(X)).max()


@pytest.mark.parametrize("ensemble", [True, False])
@pytest.mark.parametrize(
    "method",
    ["sigmoid", *(pytest.param(method, marks=pytest.mark.slow) for method in TEMPERATURE)],
)
@pytest.mark.parametrize("name", ["breast cancer", "digits", "thirty"])
def test_agrees_with_scikit_learn(problems, name, method, ensemble):
    X, y = problems[name]
    # The folds' classifiers are not what is compared; one for all saves fitting 500.
    base = FrozenEstimator(linear().fit(X[::2], y[::2]))
    X, y = X[1::2], y[1::2]
    ours = PlattCalibratedClassifier(base, method=method, ensemble=ensemble, cv=2).fit(X, y)
    theirs = CalibratedClassifierCV(base, method=method, ensemble=ensemble, cv=2).fit(X, y)
    assert difference(ours, theirs, X) < 1e-6
    assert ours.predict(X).tolist() == theirs.predict(X).tolist()
    assert len(ours.calibrators_) == (2 if ensemble else 1)


@pytest.mark.parametrize("ensemble", [True, False, "auto"])
def test_agrees_where_the_base_classifier_is_fitted_with_weights(binary, rng, ensemble):
    X, y = binary
    w = rng.integers(0, 4, len(y)).astype(float)
    ours = PlattCalibratedClassifier(LogisticRegression(), ensemble=ensemble)
    theirs = CalibratedClassifierCV(LogisticRegression(), ensemble=ensemble)
    assert difference(ours.fit(X, y, w), theirs.fit(X, y, w), X) < 1e-6


@pytest.mark.parametrize("method", TEMPERATURE)
@pytest.mark.parametrize("classes", [2, 3])
def test_the_temperature_of_probabilities_agrees(rng, method, classes):
    X, y = make_classification(600, 6, n_informative=4, n_classes=classes, random_state=1)
    for base in (GaussianNB(), KNeighborsClassifier(3)):  # the latter's are 0 and 1, some of them
        ours = PlattCalibratedClassifier(base, method=method, cv=3).fit(X, y)
        theirs = CalibratedClassifierCV(base, method=method, cv=3).fit(X, y)
        assert difference(ours, theirs, X) < 1e-5


@pytest.mark.parametrize("classes", [2, 3])
def test_a_sigmoid_is_fitted_to_the_log_odds_of_probabilities(rng, classes):
    X, y = make_classification(
        300, 6, n_informative=4, n_classes=classes, class_sep=0.3, random_state=1
    )
    base = FrozenEstimator(GaussianNB(var_smoothing=1.0).fit(X, y))
    p = base.predict_proba(X)
    log_odds = np.log(p) - np.log1p(-p)
    assert np.abs(log_odds).max() < 10  # beyond that 1 - p is rounded
    columns = [1] if classes == 2 else [0, 1, 2]
    expected = pj.fit(log_odds.T[columns], y == np.array(columns)[:, None])
    (found,) = PlattCalibratedClassifier(base).fit(X, y).calibrators_
    np.testing.assert_allclose(found.fit.A, expected.A, rtol=1e-6)
    by_logarithm = PlattCalibratedClassifier(base, response_method="predict_log_proba").fit(X, y)
    np.testing.assert_allclose(by_logarithm.calibrators_[0].fit.A, found.fit.A, rtol=1e-6)


def test_the_log_odds_of_a_certain_class_are_those_of_the_others_together():
    from platt_jax.sklearn.scores import _log_odds

    log_proba = np.array([[0.0, -60.0, -61.0], [-700.0, -0.0, -700.0], np.log([0.2, 0.5, 0.3])])
    expected_first = -np.logaddexp(-60.0, -61.0)
    found = _log_odds(log_proba)
    np.testing.assert_allclose(found[0], [expected_first, -60, -61])
    np.testing.assert_allclose(found[1], [-700, 700 - np.log(2), -700])
    np.testing.assert_allclose(np.exp(found[2]), [1 / 4, 1, 3 / 7])


def test_a_named_response_method_is_taken_and_a_missing_one_refused(binary):
    X, y = binary
    both = FrozenEstimator(LogisticRegression().fit(X, y))
    models = [
        PlattCalibratedClassifier(both, response_method=name).fit(X, y)
        for name in ("decision_function", "predict_proba")
    ]
    assert difference(*models, X) < 1e-9  # log-odds of a logistic regression are its decision
    with pytest.raises(ValueError, match="estimator: expected a classifier with predict_proba"):
        PlattCalibratedClassifier(SGDClassifier(), response_method="predict_proba").fit(X, y)


def test_classes_that_a_fold_lacks_have_probability_0_there(rng):
    """Class 2 is all in the first fold, so that its classifier has not seen it."""
    X = rng.normal(size=(90, 2)) + 3 * np.eye(3, 2)[np.arange(90) % 3]
    y = np.array(["a", "b", "c"])[np.arange(90) % 3]
    y[30:][y[30:] == "c"] = "a"
    cv = PredefinedSplit(np.arange(90) // 30)
    model = PlattCalibratedClassifier(LogisticRegression(), cv=cv).fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    lacking, *others = model.calibrated_classifiers_
    assert (lacking.predict_proba(X)[:, 2] == 0).all()
    assert (others[0].predict_proba(X)[:, 2] > 0).all()
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    # Of one calibrator for all folds, class 2 is calibrated by the folds that know it.
    for method in ("sigmoid", "temperature"):
        model = PlattCalibratedClassifier(LogisticRegression(), cv=cv, ensemble=False)
        model.set_params(method=method).fit(X, y)
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
        table = model.table()
        rows = table["rows"] if method == "temperature" else table["n_pos"] + table["n_neg"]
        assert rows.tolist() == ([60] if method == "temperature" else [90, 90, 60])


def test_a_frozen_classifier_may_know_more_classes_than_the_rows(rng):
    X = rng.normal(size=(120, 2)) + 2 * np.eye(3, 2)[np.arange(120) % 3]
    y = np.arange(120) % 3
    base = FrozenEstimator(LogisticRegression().fit(X, y))
    model = PlattCalibratedClassifier(base).fit(X[y < 2], y[y < 2])
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.table()["flags"].tolist()[2] == "ONE_CLASS"


def test_few_rows_of_a_class_are_no_error(rng):
    """scikit-learn refuses classes of fewer rows than folds."""
    X = rng.normal(size=(40, 2))
    y = np.repeat([0, 1], [37, 3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of StratifiedKFold
        model = PlattCalibratedClassifier(LogisticRegression()).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("base", [OneVsRestClassifier(SGDClassifier()), DecisionTreeClassifier()])
@pytest.mark.parametrize("method", ["sigmoid", "temperature"])
def test_multilabel_calibrates_each_label_by_itself(rng, base, method):
    X = rng.normal(size=(200, 3))
    Y = (X + rng.normal(size=(200, 3)) > 0).astype(int)
    base = FrozenEstimator(base.set_params(**seeds(base)).fit(X[:100], Y[:100]))
    model = PlattCalibratedClassifier(base, method=method).fit(X[100:], Y[100:])
    proba = model.predict_proba(X)
    assert proba.shape == Y.shape
    assert (model.predict(X) == (proba > 0.5)).all()
    if method == "sigmoid" and hasattr(base, "decision_function"):
        one = pj.fit(base.decision_function(X[100:])[:, 1], Y[100:, 1])
        np.testing.assert_allclose(model.calibrators_[0].fit.A[1], one.A, rtol=1e-9)
        own = model.calibrators_[0].predict_proba(base.decision_function(X))
        np.testing.assert_array_equal(own, proba)
    labelled = DecisionTreeClassifier()
    assert sklearn.utils.get_tags(PlattCalibratedClassifier(labelled)).classifier_tags.multi_label


def test_the_calibrator_of_two_classes_has_the_probability_of_the_second(rng):
    """It has one column, whose sum is not 1."""
    X = rng.normal(size=(200, 2))
    y = X[:, 0] + rng.normal(size=200) > 0
    base = FrozenEstimator(SGDClassifier(random_state=0).fit(X, y))
    model = PlattCalibratedClassifier(base).fit(X, y)
    (calibrator,) = model.calibrators_
    own = calibrator.predict_proba(base.decision_function(X)[:, None])
    np.testing.assert_array_equal(own[:, 0], model.predict_proba(X)[:, 1])


@pytest.mark.parametrize("number", [2, 3])
def test_another_rate_of_the_classes(rng, number):
    """The odds of each class against the others change by the ratio of the rates' odds."""
    X = rng.normal(size=(300, 2))
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(int) + (number - 2) * (X[:, 1] > 1)
    base = FrozenEstimator(SGDClassifier(random_state=0).fit(X, y))
    model = PlattCalibratedClassifier(base).fit(X, y)
    old, new = (np.full(number, 1 / number), np.linspace(0.1, 0.5, number))
    shifted, plain = model.shift_prior(from_rate=old, to_rate=new), model.predict_proba(X)
    change = np.log(new / (1 - new)) - np.log(old / (1 - old))
    own = model.calibrators_[0].predict_proba
    offset = np.tile(change[1:] if number == 2 else change, (300, 1))
    scores = base.decision_function(X).reshape(300, -1)
    expected = own(scores, offset=offset)
    if number == 2:
        expected = np.column_stack([1 - expected, expected])
        of_second = model.shift_prior(from_rate=old[1], to_rate=new[1]).predict_proba(X)
        np.testing.assert_array_equal(of_second, shifted.predict_proba(X))
    np.testing.assert_allclose(shifted.predict_proba(X), expected, rtol=1e-12)
    np.testing.assert_array_equal(model.predict_proba(X), plain)
    for wrong in (np.full(number + 1, 0.1), 1.5):
        with pytest.raises(ValueError, match="to_rate: expected "):
            model.shift_prior(from_rate=old, to_rate=wrong)


def test_what_has_no_sigmoids_of_classes_is_not_shifted(rng):
    X = rng.normal(size=(90, 2))
    model = PlattCalibratedClassifier(method="temperature").fit(X, np.arange(90) % 3)
    with pytest.raises(ValueError, match="shift_prior: expected calibrators with a sigmoid for"):
        model.shift_prior(0.5, 0.1)


def seeds(estimator):
    return {name: 0 for name in estimator.get_params() if name.endswith("random_state")}


class Margins(ClassifierMixin, BaseEstimator):
    """As the sklearn API of LightGBM answers; its module says that it is that."""

    __module__ = "lightgbm.sklearn"

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X, raw_score=False):
        assert raw_score
        return np.asarray(X)[:, 0]

    def predict_proba(self, X):
        raise AssertionError("the margin is there to be taken")


@pytest.mark.parametrize("outer", [lambda x: x, lambda x: make_pipeline(StandardScaler(), x)])
def test_raw_margins_are_taken_also_at_the_end_of_a_pipeline(binary, outer):
    X, y = binary
    X = StandardScaler().fit_transform(X)
    base = FrozenEstimator(outer(Margins()).fit(X, y))
    model = PlattCalibratedClassifier(base).fit(X, y)
    np.testing.assert_allclose(model.calibrators_[0].fit.A, pj.fit(X[:, 0], y).A)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
@pytest.mark.parametrize("classes", [2, 3])
def test_boosters_are_calibrated_by_their_margins(library, classes):
    module = pytest.importorskip(library)
    X, y = make_classification(300, 6, n_informative=4, n_classes=classes, random_state=1)
    X = X.astype(np.float32)
    made, raw = {
        "lightgbm": ("LGBMClassifier", dict(raw_score=True)),
        "xgboost": ("XGBClassifier", dict(output_margin=True)),
        "catboost": ("CatBoostClassifier", dict(prediction_type="RawFormulaVal")),
    }[library]
    quiet = dict(verbosity=-1) if library == "lightgbm" else {}
    quiet = dict(verbose=False, allow_writing_files=False) if library == "catboost" else quiet
    booster = getattr(module, made)(n_estimators=5, **quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries
        booster.fit(X[:150], y[:150])
        base = FrozenEstimator(booster)
        model = PlattCalibratedClassifier(base).fit(X[150:], y[150:])
        margins = np.asarray(booster.predict(X[150:], **raw), float)
    targets = y[150:] == np.arange(classes)[-(classes if classes > 2 else 1) :, None]
    expected = pj.fit(np.atleast_2d(margins.T), targets)
    np.testing.assert_allclose(model.calibrators_[0].fit.A, expected.A, rtol=1e-6)


def test_groups_need_no_routing(binary):
    X, y = binary
    groups = np.arange(len(y)) % 7
    cv = GroupKFold(3)
    ours = PlattCalibratedClassifier(LogisticRegression(), cv=cv).fit(X, y, groups=groups)
    splits = list(cv.split(X, y, groups))
    theirs = CalibratedClassifierCV(LogisticRegression(), cv=splits).fit(X, y)
    assert difference(ours, theirs, X) < 1e-6


def test_metadata_is_routed(binary, routing, rng):
    X, y = binary
    w, groups = rng.random(len(y)), np.arange(len(y)) % 7
    arguments = dict(
        estimator=LogisticRegression().set_fit_request(sample_weight=True), cv=GroupKFold(3)
    )
    given = dict(sample_weight=w, groups=groups)
    ours = PlattCalibratedClassifier(**arguments).fit(X, y, **given)
    theirs = CalibratedClassifierCV(**arguments).fit(X, y, **given)
    assert difference(ours, theirs, X) < 1e-6
    # From the outside in: the groups are asked for by the splitters alone.
    inner = PlattCalibratedClassifier(**arguments).set_fit_request(sample_weight=True)
    inner.set_score_request(sample_weight=True)
    found = cross_validate(inner, X, y, params=given, cv=GroupKFold(3), error_score="raise")
    assert np.isfinite(found["test_score"]).all()
    with pytest.raises(TypeError, match="unknown"):
        PlattCalibratedClassifier(**arguments).fit(X, y, unknown=w)


def test_the_default_classifier_takes_weights_when_routed(binary, routing, rng):
    X, y = binary
    w = rng.random(len(y))
    ours, theirs = PlattCalibratedClassifier(), CalibratedClassifierCV()
    theirs.fit(X, y, sample_weight=w)
    assert difference(ours.fit(X, y, sample_weight=w), theirs, X) < 1e-6


def test_weights_that_the_base_classifier_cannot_take_calibrate_only(binary):
    X, y = binary
    message = "sample_weight: fit of KNeighborsClassifier takes none"
    with pytest.warns(UserWarning, match=message) as said:
        PlattCalibratedClassifier(KNeighborsClassifier()).fit(X, y, np.ones(len(y)))
    assert said[0].filename == __file__
    base = FrozenEstimator(LogisticRegression().fit(X, y))
    w = np.arange(len(y)) % 3
    model = PlattCalibratedClassifier(base).fit(X, y, w)
    expected = pj.fit(base.decision_function(X), y, weights=w)
    np.testing.assert_allclose(model.calibrators_[0].fit.A, expected.A)


@pytest.mark.filterwarnings("ignore:Since FrozenEstimator does not appear to accept sample_weight")
@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
def test_negative_weights_are_refused(binary, method):
    X, y = binary
    model = PlattCalibratedClassifier(
        FrozenEstimator(LogisticRegression().fit(X, y)), method=method
    )
    with pytest.raises(ValueError, match="sample_weight: expected >= 0, got -1"):
        model.fit(X, y, np.where(np.arange(len(y)) == 3, -1, 1))


def test_fit_parameters_reach_the_base_classifier(binary):
    X, y = binary
    w = np.arange(len(y)) % 3
    base = make_pipeline(LogisticRegression())
    model = PlattCalibratedClassifier(base, cv=3).fit(X, y, logisticregression__sample_weight=w)
    train, _ = next(iter(model._splits(model._rows(X, y, None), {})))
    expected = LogisticRegression().fit(X[train], y[train], w[train])
    first = model.calibrated_classifiers_[0].estimator[-1]
    np.testing.assert_array_equal(first.coef_, expected.coef_)


def test_rows_left_out_more_than_once_or_never_are_no_error(binary):
    """cross_val_predict, which scikit-learn goes by, takes partitions alone.

    What is left out twice weighs a half each time, not as two rows.
    """
    X, y = binary
    splits = [(np.arange(100), np.arange(100, 250)), (np.arange(200, 300), np.arange(50, 200))]
    model = PlattCalibratedClassifier(LogisticRegression(), cv=splits, ensemble=False).fit(X, y)
    assert model.table()["n_pos"][0] + model.table()["n_neg"][0] == 200
    whole = pj.sklearn.SegmentCalibratedClassifier(LogisticRegression(), segments=0, cv=splits)
    X = np.column_stack([np.arange(len(y)) % 2, X])
    fit = whole.fit(X, y).calibrator_.fit
    assert fit.n_pos.sum() + fit.n_neg.sum() == 200


def test_repeats_of_a_cross_validation_are_no_new_rows(binary):
    X, y = binary
    errors, chosen = [], []
    for repeats in (1, 10):
        cv = RepeatedStratifiedKFold(n_splits=3, n_repeats=repeats, random_state=0)
        given = dict(estimator=LogisticRegression(), cv=cv, ensemble=False)
        table = PlattCalibratedClassifier(**given).fit(X, y).table()
        errors.append(table["se_A"][0])
        assert table["n_pos"][0] + table["n_neg"][0] == pytest.approx(len(y))
        chosen.append(PlattCalibratedClassifier(method="auto", **given).fit(X, y).method_)
    assert errors[1] == pytest.approx(errors[0], rel=0.1)
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize("ensemble", [True, False])
def test_the_choice_of_a_method_counts_each_row_once(ensemble):
    """The same splits nine times say no more of the methods than once."""
    for seed in (0, 5):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=300)
        y = labels_of(rng, x + 0.25 * x * x - 0.3)
        halves = np.arange(150), np.arange(150, 300)
        given = dict(estimator=LogisticRegression(), method="auto", ensemble=ensemble)
        once, often = (
            PlattCalibratedClassifier(cv=[halves, halves[::-1]] * k, **given).fit(x[:, None], y)
            for k in (1, 9)
        )
        assert once.method_ == often.method_


def test_cloned_pickled_and_copied(binary):
    X, y = binary
    model = PlattCalibratedClassifier(LogisticRegression(), options=pj.Options(monotone=True))
    assert clone(model).options == model.options
    assert {x.options for x in model.fit(X, y).calibrators_} == {model.options}
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))


def test_calibrators_are_results_that_can_be_inspected_and_saved(binary, tmp_path):
    X, y = binary
    model = PlattCalibratedClassifier(LogisticRegression(), cv=3).fit(X, np.where(y, "yes", "no"))
    table = model.table()
    assert table["member"].tolist() == [0, 1, 2] and table["class"].tolist() == ["yes"] * 3
    assert set(table["status"]) == {"CONVERGED"} and (table["se_A"] > 0).all()
    pj.save(tmp_path / "one.npz", model.calibrators_[0])
    assert pj.load(tmp_path / "one.npz") == model.calibrators_[0]


def test_feature_names_are_kept_with_pandas_inside_and_outside(binary):
    pd = pytest.importorskip("pandas")
    X, y = binary
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=np.arange(len(y)) + 1000)
    base = make_pipeline(StandardScaler(), LogisticRegression()).set_output(transform="pandas")
    model = PlattCalibratedClassifier(base, cv=3).fit(frame, pd.Series(y, index=frame.index))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"] and model.n_features_in_ == 3
    inner = model.calibrated_classifiers_[0].estimator[-1]
    assert inner.feature_names_in_.tolist() == ["a", "b", "c"]
    plain = PlattCalibratedClassifier(clone(base), cv=3).fit(X, y)
    found, expected = model.predict_proba(frame), plain.predict_proba(X)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        model.predict_proba(frame[["b", "a", "c"]])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (dict(method="spline"), "method: expected one of"),
        (dict(logits="no"), "logits: expected one of"),
        (dict(ensemble="yes"), "ensemble: expected one of"),
        (dict(multiclass="crammer"), "multiclass: expected one of"),
        (dict(response_method="predict"), "response_method: expected one of"),
        (dict(multiclass="coupling", method="temperature"), "coupling.*sigmoid"),
        (dict(multiclass="coupling", method="auto"), "coupling.*sigmoid"),
        (dict(multiclass="coupling"), "coupling.*SVC and NuSVC"),
        (dict(cv=LeaveOneOut()), "LeaveOneOut.*ensemble=False"),
        (dict(options="libsvm"), "options"),
    ],
)
def test_parameters_are_refused_by_name(binary, parameters, message):
    with pytest.raises(ValueError, match=message):
        PlattCalibratedClassifier(LogisticRegression(), **parameters).fit(*binary)


def test_a_fold_of_one_class_is_refused(binary):
    X, y = binary
    cv = PredefinedSplit(y)
    with pytest.raises(ValueError, match="two classes or more wherever the estimator is fitted"):
        PlattCalibratedClassifier(DecisionTreeClassifier(), cv=cv).fit(X, y)


def test_tiny_folds_are_not_taken_for_one_hot_labels(rng):
    X = rng.normal(size=(15, 2))
    PlattCalibratedClassifier(LogisticRegression()).fit(X, np.arange(15) % 3)  # warnings are errors


@pytest.mark.parametrize("method", ["sigmoid", "temperature"])
def test_a_reversed_classifier_is_answered_by_the_base_rate_alone(binary, method):
    X, y = binary
    base = FrozenEstimator(LogisticRegression().fit(X, 1 - y))
    options = pj.Options(monotone=True)
    model = PlattCalibratedClassifier(base, method=method, options=options).fit(X, y)
    assert np.ptp(model.predict_proba(X)[:, 1]) < 1e-12


def test_the_temperature_of_three_classes(rng):
    """Logits multiplied by 5 have that temperature; the sign of a reversed classifier has none."""
    logits = rng.normal(size=(4000, 3))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = (rng.random((4000, 1)) > p.cumsum(axis=1)).sum(axis=1)
    from platt_jax.sklearn.temperature import fit_temperature

    found = fit_temperature(5 * logits, codes)
    assert abs(found.temperature - 5) < 4 * 25 * found.standard_error
    assert repr(found).startswith("TemperatureCalibrator(temperature=")
    weights = rng.integers(0, 3, 4000)
    rows = np.repeat(np.arange(4000), weights)
    one, other = fit_temperature(logits, codes, weights), fit_temperature(logits[rows], codes[rows])
    np.testing.assert_allclose(one.inverse_temperature, other.inverse_temperature, rtol=1e-12)
    scaled = fit_temperature(1e200 * logits, codes)
    np.testing.assert_allclose(scaled.temperature, 1e200 * found.temperature / 5, rtol=1e-9)
    reverse = fit_temperature(-logits, codes)
    assert reverse.temperature == np.inf and reverse.status == pj.Status.CONVERGED
    right = fit_temperature(logits, logits.argmax(axis=1))
    assert right.status == pj.Status.CONVERGED  # with Platt's targets
    assert right.predict_proba(logits).max(axis=1).min() > 0.5
    with pytest.warns(RuntimeWarning, match="temperature: scores that are not finite"):
        nothing = fit_temperature(np.full((2, 3), np.nan), np.arange(2))
    assert nothing.status == pj.Status.NON_FINITE
    assert fit_temperature(logits[:2], np.array([-1, -1])).status == pj.Status.EMPTY
    assert isinstance(found, TemperatureCalibrator)


def test_is_not_imported_by_platt_jax_and_says_what_it_needs():
    program = (
        "import sys, platt_jax\n"
        "assert 'sklearn' not in sys.modules and 'platt_jax.sklearn' not in sys.modules\n"
        "sys.modules['sklearn'] = None\n"
        "import platt_jax.sklearn\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert "ImportError: platt_jax.sklearn needs scikit-learn: pip install" in done.stderr


def test_the_old_word_for_a_fitted_classifier_is_answered_with_the_new(binary):
    X, y = binary
    with pytest.raises(ValueError, match=r"cv: expected a number .*FrozenEstimator\(classifier\)"):
        PlattCalibratedClassifier(LogisticRegression().fit(X, y), cv="prefit").fit(X, y)
