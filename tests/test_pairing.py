"""Columns of one call that would pair the wrong rows are refused, by every function of rows."""

import inspect
import re

import numpy as np
import pytest
from public_api import PACKAGES
from sklearn.linear_model import LogisticRegression

import platt_jax as pj
from platt_jax import columns, curves, metrics, plots
from platt_jax.sklearn import PlattCalibratedClassifier, SegmentCalibratedClassifier

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

# Names of arguments that have a value for each row.
OF_ROWS = {"scores", "labels", "proba", "logits", "segments", "weights", "offset", "clusters"}
OF_ROWS |= {"pool", "pool_segments", "reported", "before", "X", "y", "sample_weight"}
NOT_OURS = {"score", "set_fit_request"}  # of scikit-learn's classes


def rows_of(door):
    return [x for x in inspect.signature(door).parameters if x in OF_ROWS]


def doors():
    """Public functions and methods with two or more arguments of rows, by name."""
    found = {}
    for package in (x for x in PACKAGES if x is not curves):
        for name in package.__all__:
            one = getattr(package, name)
            members = {name: one}
            if inspect.isclass(one):
                public = [x for x in dir(one) if not x.startswith("_") and x not in NOT_OURS]
                members = {f"{name}.{x}": getattr(one, x) for x in public} | {name: one.__init__}
            for label, member in members.items():
                if (inspect.isfunction(member) or inspect.ismethod(member)) and len(
                    rows_of(member)
                ) > 1:
                    found[f"{package.__name__}.{label}"] = member
    return found


DOORS = doors()


@pytest.fixture(scope="module")
def objects():
    """An object of each class whose methods do some work before they read rows."""
    scores, labels, segments = [2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "b", "a", "b"]
    fit, X = pj.fit(scores, labels), np.array([[x, i % 2] for i, x in enumerate(scores)])
    alone = PlattCalibratedClassifier(LogisticRegression(), cv=2)
    by_segment = SegmentCalibratedClassifier(LogisticRegression(), 1, cv=2, passthrough=True)
    return {
        "Fit": fit,
        "Sigmoid": fit.sigmoid,
        "SegmentCalibrator": pj.fit_segments(scores, labels, segments),
        "PlattCalibratedClassifier": alone.fit(X, labels),
        "SegmentCalibratedClassifier": by_segment.fit(X, labels),
    }


def called(name, objects, **rows):
    """The door called with these rows and None for all other arguments."""
    parameters = inspect.signature(DOORS[name]).parameters.values()
    given = {x.name: None for x in parameters if x.kind is not x.VAR_KEYWORD}
    if "self" in given:
        given["self"] = objects.get(name.split(".")[-2])
    return DOORS[name](**given | rows)


@pytest.mark.parametrize("name", DOORS)
def test_every_function_refuses_rows_of_two_orders(name, objects):
    first, second = rows_of(DOORS[name])[:2]
    lazy = pl.LazyFrame({"x": [0.0, 1.0]})
    with pytest.raises(ValueError, match=f"{first}, {second}: expected one deferred column"):
        called(name, objects, **{first: lazy, second: lazy.select("x")})
    values = pd.Series([0.5, 0.25])
    with pytest.raises(ValueError, match=f"{first}, {second}: expected pandas objects with one"):
        called(name, objects, **{first: values, second: values[::-1]})


@pytest.mark.parametrize("name", [x for x in DOORS if "weights" in rows_of(DOORS[x])])
def test_another_package_s_word_is_answered_with_ours(name, objects):
    message = "unexpected keyword argument 'sample_weight'; its name here is 'weights'"
    with pytest.raises(TypeError, match=re.escape(message)):
        called(name, objects, sample_weight=[1.0])


def test_words_of_scikit_learn():
    with pytest.raises(TypeError, match=r"fit\(\) .*'y_true'; its name here is 'labels'"):
        pj.fit([0.0, 1.0], y_true=[0, 1])
    with pytest.raises(TypeError, match=r"log_loss\(\) .*'y_prob'; its name here is 'proba'"):
        metrics.log_loss([0, 1], y_prob=[0.1, 0.9])
    with pytest.raises(TypeError, match=r"bootstrap\(\) .*'random_state'; its name here is 'seed'"):
        pj.inference.bootstrap([0.0, 1.0], [0, 1], random_state=0)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'nonsense'$"):
        pj.fit([0.0, 1.0], [0, 1], nonsense=1)


def test_pandas_objects_of_one_order_are_paired(rng):
    """The index may be a filter's, or repeat. Arrays may stand beside them."""
    columns_ = {"f": rng.normal(size=60), "y": rng.integers(0, 2, 60), "s": list("ab" * 30)}
    frame = pd.DataFrame(columns_)
    expected = pj.fit_segments(*(frame[x].to_numpy() for x in "fys"))
    for index in (frame.index, np.arange(60) + 5, np.arange(60) // 2, list("xyz" * 20)):
        some = frame.set_axis(index)
        assert pj.fit_segments(some.f, some.y, some.s) == expected
        assert pj.fit_segments(some.f, frame.y.to_numpy(), some.s) == expected
        assert pj.fit_segments(some.f, pl.Series(frame.y.to_numpy()), some.s) == expected
        assert pj.fit_segments(some.f, some.y.set_axis(index[:]), some.s) == expected


def test_rows_and_a_pool_are_not_paired(rng):
    scores, labels = pd.Series(rng.normal(size=40)), pd.Series(rng.integers(0, 2, 40))
    segments, place = pd.Series(["a"] * 40), np.arange(40) + 40
    calibrator = pj.fit_segments(scores, labels, segments)
    given = calibrator, scores, labels, segments
    pool, of_pool = scores.set_axis(place), segments.set_axis(place)
    found = pj.inference.estimate_means(*given, pool=pool, pool_segments=of_pool)
    assert np.isfinite(found["mean"]).all()
    with pytest.raises(ValueError, match="pool, pool_segments: expected pandas objects with one"):
        pj.inference.estimate_means(*given, pool=pool, pool_segments=segments)


def test_deferred_columns_of_every_library():
    """By the type's package, so that none is imported; each may be given alone."""
    kinds = {
        "dask": "dask.array.core.Array",
        "dask's frames": "dask.dataframe.dask_expr._collection.Series",
        "ibis": "ibis.expr.types.numeric.FloatingColumn",
        "spark": "pyspark.sql.classic.dataframe.DataFrame",
        "spark's pandas": "pyspark.pandas.series.Series",
        "duckdb": "_duckdb.DuckDBPyRelation",
        "narwhals": "narwhals.stable.v1.LazyFrame",
    }
    for path in kinds.values():
        module, _, name = path.rpartition(".")
        column = type(name, (), {"__module__": module, "__array__": lambda *_, **__: [0.0]})()
        with pytest.raises(ValueError, match=f"labels, weights: expected one .* got 2 .*{name}"):
            pj.fit([0.0, 1.0], column, weights=column)


def test_a_decorated_function_keeps_its_signature():
    assert list(inspect.signature(pj.fit).parameters)[:2] == ["scores", "labels"]
    assert plots.sigmoid.__module__ == "platt_jax.plots.sigmoids"
    assert columns.takes_columns(pj.logit).__doc__ == pj.logit.__doc__
