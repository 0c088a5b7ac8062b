"""SegmentCalibratedClassifier."""

import pickle

import numpy as np
import pytest
from data import labels_of

pytest.importorskip("sklearn.base")  # "sklearn" is a folder here, too
import sklearn
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import platt_jax as pj
from platt_jax.sklearn import SegmentCalibratedClassifier

pd = pytest.importorskip("pandas")


@pytest.fixture
def rows(rng):
    """Segments whose slopes and base rates differ; the classifier does not see them."""
    X = rng.normal(size=(900, 2))
    country = rng.choice(["DE", "FR", "NZ"], 900, p=[0.5, 0.4, 0.1])
    level = np.select([country == "DE", country == "FR"], [-1.0, 1.0], 0.0)
    y = labels_of(rng, 2 * X[:, 0] - level)
    return X, country, np.where(y, "yes", "no")


@pytest.fixture
def frame(rows):
    X, country, _ = rows
    device = np.where(np.arange(900) % 2, "phone", "tablet")
    return pd.DataFrame({"a": X[:, 0], "country": country, "b": X[:, 1], "device": device})


def test_one_sigmoid_for_the_rows_of_each_segment_left_out(rows, frame):
    X, country, y = rows
    model = SegmentCalibratedClassifier(LogisticRegression(), "country", cv=3)
    model.fit(frame.drop(columns="device"), y)
    scores = cross_val_predict(LogisticRegression(), X, y, cv=3, method="decision_function")
    expected = pj.fit_segments(scores, y == "yes", country)
    assert model.calibrator_.keys.tolist() == ["DE", "FR", "NZ"]
    np.testing.assert_allclose(model.calibrator_.fit.A, expected.fit.A, rtol=1e-6)
    final = LogisticRegression().fit(X, y)
    p = model.calibrator_.predict_proba(final.decision_function(X), country)
    found = model.predict_proba(frame.drop(columns="device"))
    np.testing.assert_allclose(found, np.stack([1 - p, p], axis=1), rtol=1e-9)
    assert model.classes_.tolist() == ["no", "yes"]
    likelier = model.predict(frame.drop(columns="device"))
    assert (likelier == np.where(p > 0.5, "yes", "no")).all()
    assert model.table()["segment"].tolist() == ["DE", "FR", "NZ"]


def test_columns_by_name_and_by_position_are_the_same(rows, frame):
    X, _, y = rows
    base = FrozenEstimator(LogisticRegression().fit(frame[["a", "b"]], y))
    with_names = SegmentCalibratedClassifier(base, ["country", "device"]).fit(frame, y)
    base = FrozenEstimator(LogisticRegression().fit(X, y))
    array = frame.to_numpy(dtype=object)
    for segments, what in (([1, 3], array), ([1, -1], array), ((1, 3), array.tolist())):
        by_position = SegmentCalibratedClassifier(base, segments).fit(what, y)
        found = by_position.calibrator_
        assert len(found.keys) == 6 and ("DE", "phone") in found
        np.testing.assert_array_equal(found.fit.A, with_names.calibrator_.fit.A)
        proba = by_position.predict_proba(what)
        np.testing.assert_array_equal(proba, with_names.predict_proba(frame))
    assert with_names.feature_names_in_.tolist() == frame.columns.tolist()
    assert with_names.n_features_in_ == 4


def test_categoricals_and_polars(rows, frame):
    _, _, y = rows
    frame = frame.drop(columns="device")
    expected = SegmentCalibratedClassifier(LogisticRegression(), "country").fit(frame, y)
    categorical = frame.astype({"country": "category"})
    model = SegmentCalibratedClassifier(LogisticRegression(), "country").fit(categorical, y)
    np.testing.assert_array_equal(model.calibrator_.fit.A, expected.calibrator_.fit.A)
    pl = pytest.importorskip("polars")
    columns = {name: frame[name].to_numpy() for name in frame}
    other = pl.DataFrame({**columns, "country": frame["country"].tolist()})
    model = SegmentCalibratedClassifier(LogisticRegression(), "country").fit(other, y)
    np.testing.assert_allclose(model.calibrator_.fit.A, expected.calibrator_.fit.A)
    np.testing.assert_allclose(model.predict_proba(other), expected.predict_proba(frame))
    both = other.with_columns(device=pl.Series(np.arange(900) % 2))
    model = SegmentCalibratedClassifier(LogisticRegression(), ["country", "device"]).fit(both, y)
    assert len(model.calibrator_) == 6


def test_the_base_classifier_may_see_the_segments(rows, frame):
    _, _, y = rows
    frame = frame.drop(columns="device")
    encoded = make_column_transformer((OneHotEncoder(), ["country"]), remainder="passthrough")
    base = make_pipeline(encoded, LogisticRegression())
    model = SegmentCalibratedClassifier(base, "country", passthrough=True).fit(frame, y)
    assert model.estimator_[-1].n_features_in_ == 5
    # A prefit one that knows the column needs it.
    prefit = FrozenEstimator(clone(base).fit(frame, y))
    SegmentCalibratedClassifier(prefit, "country", passthrough=True).fit(frame, y)
    with pytest.raises(ValueError):
        SegmentCalibratedClassifier(prefit, "country").fit(frame, y)


def test_pooling_and_unseen_segments(rng):
    shops = rng.integers(0, 100, 1000)
    X = np.column_stack([rng.normal(size=1000), shops])
    y = labels_of(rng, 2 * X[:, 0] + rng.normal(size=100)[shops])
    base = FrozenEstimator(LogisticRegression().fit(X[:, :1], y))
    models = {
        pooling: SegmentCalibratedClassifier(base, 1, pooling=pooling).fit(X, y)
        for pooling in ("none", "partial", "complete")
    }
    scores = base.decision_function(X[:, :1])
    for pooling, model in models.items():
        expected = pj.fit_segments(scores, y, X[:, 1], pooling=pooling)
        np.testing.assert_array_equal(model.calibrator_.fit.A, expected.fit.A)
        unseen = model.predict_proba([[0.5, 1000.0]])[0, 1]
        f = base.decision_function([[0.5]])
        assert unseen == pytest.approx(expected.predict_proba(f, [1000.0])[0])
    assert models["partial"].calibrator_.shrinkage.shape == (100,)


def test_another_rate_of_the_second_class(rows, frame):
    _, _, y = rows
    X = frame.drop(columns="device")
    model = SegmentCalibratedClassifier(LogisticRegression(), "country", pooling="partial")
    before = model.fit(X, y).predict_proba(X)
    shifted = model.shift_prior(from_rate=0.5, to_rate=0.1)
    offset = np.full(len(X), np.log(0.1 / 0.9))
    expected = model.predict_proba(X, offset=offset)
    np.testing.assert_allclose(shifted.predict_proba(X), expected, rtol=1e-12)
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize("pooling", ["nested", "crossed"])
def test_levels_of_several_columns(rng, pooling):
    land = rng.integers(0, 8, 800)
    X = np.column_stack([rng.normal(size=800), land, rng.integers(0, 5, 800)])
    y = labels_of(rng, X[:, 0] + rng.normal(size=8)[land])
    base = FrozenEstimator(LogisticRegression().fit(X[:, :1], y))
    model = SegmentCalibratedClassifier(base, [1, 2], pooling=pooling).fit(X, y)
    expected = pj.fit_segments(base.decision_function(X[:, :1]), y, X[:, 1:], pooling=pooling)
    assert model.calibrator_ == expected
    rows = [[0.5, 3.0, 99.0], [0.5, 99.0, 99.0]]
    p = expected.predict_proba(base.decision_function([[0.5], [0.5]]), np.array(rows)[:, 1:])
    np.testing.assert_array_equal(model.predict_proba(rows)[:, 1], p)
    assert abs(p[0] - p[1]) > 0.01
    with pytest.raises(ValueError, match=f'several columns with pooling="{pooling}", got one'):
        SegmentCalibratedClassifier(base, 1, pooling=pooling).fit(X[:, :2], y)


def test_weights_groups_and_splits(rows, frame):
    X, country, y = rows
    frame = frame.drop(columns="device")
    w, groups = np.arange(900) % 3, np.arange(900) % 7
    base = LogisticRegression()
    cv = GroupKFold(3)
    model = SegmentCalibratedClassifier(base, "country", cv=cv)
    model.fit(frame, y, sample_weight=w, groups=groups)
    scores = np.empty(900)
    for train, test in cv.split(X, y, groups):
        scores[test] = clone(base).fit(X[train], y[train], w[train]).decision_function(X[test])
    expected = pj.fit_segments(scores, y == "yes", country, weights=w)
    np.testing.assert_allclose(model.calibrator_.fit.A, expected.fit.A, rtol=1e-6)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = SegmentCalibratedClassifier(
            clone(base).set_fit_request(sample_weight=True), "country", cv=cv
        ).fit(frame, y, sample_weight=w, groups=groups)
    np.testing.assert_array_equal(routed.calibrator_.fit.A, model.calibrator_.fit.A)
    # Rows keep their segments whatever the order of the splits.
    shuffled = KFold(4, shuffle=True, random_state=0)
    model = SegmentCalibratedClassifier(base, "country", cv=shuffled).fit(frame, y)
    counts = model.table()["n_pos"] + model.table()["n_neg"]
    assert counts.tolist() == [np.sum(country == x) for x in ("DE", "FR", "NZ")]


def test_pickled(rows, frame):
    _, _, y = rows
    frame = frame.drop(columns="device")
    model = SegmentCalibratedClassifier(LogisticRegression(), "country").fit(frame, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(frame), model.predict_proba(frame))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (dict(segments="city"), "segments: no column 'city' in X; it has"),
        (dict(segments=7), "segments: expected the name of a column"),
        (dict(segments=None), "segments: expected the name of a column"),
        (dict(segments="country", pooling="some"), "pooling"),
        (dict(segments="country", response_method="predict"), "response_method"),
        (dict(segments="country", options=1), "options"),
    ],
)
def test_parameters_are_refused_by_name(rows, frame, parameters, message):
    _, _, y = rows
    with pytest.raises(ValueError, match=message):
        SegmentCalibratedClassifier(LogisticRegression(), **parameters).fit(frame, y)


def test_input_is_refused_by_name(rows, frame):
    _, _, y = rows
    model = SegmentCalibratedClassifier(LogisticRegression(), "country")
    frame = frame.drop(columns="device")
    with pytest.raises(ValueError, match="y: expected labels of two classes"):
        model.fit(frame, np.arange(900) % 3)
    with pytest.raises(
        ValueError, match=r"segments, column 'country': expected ids, got .* at row 3"
    ):
        model.fit(frame.assign(country=frame["country"].where(np.arange(900) != 3, None)), y)
    with pytest.raises(ValueError, match="a minimum of 2 is required"):
        model.fit(frame[["country"]], y)
