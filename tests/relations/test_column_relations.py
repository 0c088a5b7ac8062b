"""Columns of a call from libraries whose columns know more than an order, at every function."""

import tempfile
import warnings

import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax import inference, metrics, plots, streaming

N = 120
RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=N)
COLUMNS = {
    "scores": SCORES,
    "labels": labels_of(RNG, 1.5 * SCORES).astype(int),
    "segments": np.arange(N) % 4,
    "weights": RNG.integers(1, 4, N).astype(float),
    "offset": RNG.normal(0, 0.1, N),
    "clusters": np.arange(N) % 30,
    "proba": 1 / (1 + np.exp(-SCORES)),
    "times": np.arange(N),
}


def fitted(pooling="none", **columns):
    given = {name: COLUMNS[name] for name in ("scores", "labels", "segments")} | columns
    return pj.fit_segments(**given, pooling=pooling)


def of_calibrator(function, *names, **given):
    return names, lambda **columns: function(fitted(), **columns, **given)


def values(answer):
    """The numbers of an answer."""
    if isinstance(answer, pj.inference.CurveChoice):
        answer = answer.calibrator
    if isinstance(answer, pj.inference.Bootstrap):
        answer = answer.fit
    if isinstance(answer, metrics.MulticalibrationError):
        answer = answer.groups
    if callable(getattr(answer, "table", None)):
        answer = answer.table()
    if callable(getattr(answer, "values", None)):
        answer = [np.asarray(x) for x in answer.values()]
    return answer


def streamed(source, **names):
    """The fit of rows that are read in batches."""
    with tempfile.TemporaryDirectory() as folder:
        return pj.fit_segments(streaming.rows(source, f"{folder}/rows", key="one", **names))


NAMES = "score", "label", "segment"
_ROWS = "scores", "labels", "segments"
_PREDICTED = "labels", "proba", "weights"
FUNCTIONS = {
    "fit": (("scores", "labels", "weights", "offset"), pj.fit),
    "fit_segments": ((*_ROWS, "weights", "offset"), pj.fit_segments),
    "SegmentRows": ((*_ROWS, "weights"), lambda **x: pj.fit_segments(pj.SegmentRows(**x))),
    "choose_curve": ((*_ROWS, "weights"), pj.inference.choose_curve),
    "judge_pooling": ((*_ROWS, "times"), lambda **x: pj.inference.judge_pooling(**x, cuts=[60])),
    "profile_spreads": ((*_ROWS, "weights"), pj.inference.profile_spreads),
    "bootstrap": (
        (*_ROWS, "weights", "clusters"),
        lambda **x: pj.inference.bootstrap(**x, replicates=2),
    ),
    "predict_proba": of_calibrator(
        pj.SegmentCalibrator.predict_proba, "scores", "segments", "offset"
    ),
    "band": of_calibrator(pj.SegmentCalibrator.band, "scores", "segments"),
    "triage": of_calibrator(pj.triage, *_ROWS, "offset", "clusters"),
    "update": of_calibrator(pj.update, *_ROWS, "weights"),
    "Monitor": (_ROWS, lambda **x: pj.Monitor.start(fitted()).update(**x)),
    "gate": of_calibrator(pj.gate, "scores", "segments", "weights"),
    "certify": (_ROWS, lambda **x: pj.certify(pj.gate(fitted(), SCORES, COLUMNS["segments"]), **x)),
    "estimate_rates": of_calibrator(pj.inference.estimate_rates, "scores", "segments"),
    "estimate_means": of_calibrator(
        pj.inference.estimate_means, *_ROWS, pool=SCORES, pool_segments=COLUMNS["segments"]
    ),
    "leave_one_out": of_calibrator(pj.inference.leave_one_out, *_ROWS),
    "robust_covariance": of_calibrator(inference.robust_covariance, *_ROWS, "clusters"),
    "summarize_centres": (("proba", "labels", "segments", "weights"), pj.metrics.summarize_centres),
    "by_segment": (
        ("labels", "proba", "segments", "weights"),
        lambda **x: metrics.by_segment(metrics.log_loss, **x),
    ),
    **{
        name: (_PREDICTED, getattr(metrics, name))
        for name in ("log_loss", "expected_calibration_error", "reliability_curve", "net_benefit")
    },
    "roc_auc": (("labels", "scores", "weights"), metrics.roc_auc),
    "field_calibration_error": (
        ("labels", "proba", "segments", "weights"),
        metrics.field_calibration_error,
    ),
    "multicalibration_error": (
        ("labels", "proba", "segments", "weights"),
        lambda **x: metrics.multicalibration_error(**x, replicates=2),
    ),
    "plots.reliability_diagram": (
        _PREDICTED,
        lambda **x: pytest.importorskip("matplotlib") and plots.reliability_diagram(**x) and 0,
    ),
    "models by name": (
        ("labels", "proba"),
        lambda labels, proba: (
            pytest.importorskip("matplotlib")
            and plots.reliability_diagram(labels, {"model": proba})
            and 0
        ),
    ),
    "lists of columns": (
        ("scores", "labels"),
        lambda scores, labels: pj.fit([scores, scores], [labels, labels]),
    ),
    "batches of tuples": (_ROWS, lambda **x: streamed([tuple(x.values())])),
    "batches by name": (_ROWS, lambda **x: streamed([x], **dict(zip(NAMES, _ROWS, strict=True)))),
    "streamed arrays": (_ROWS, lambda **x: streamed(x, **dict(zip(NAMES, _ROWS, strict=True)))),
}


def made(name, columns):
    _, function = FUNCTIONS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return values(function(**columns))


def assert_equal(found, expected, in_order=True):
    """To the bit; of rows in another order the same values, but for rounding."""
    if isinstance(expected, list | tuple):
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other, in_order)
        return
    found, expected = np.asarray(found), np.asarray(expected)
    if in_order or found.dtype.kind not in "fiu":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(np.sort(found, 0), np.sort(expected, 0), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_indices_that_agree_are_no_matter(name):
    pd = pytest.importorskip("pandas")
    names, _ = FUNCTIONS[name]
    index = RNG.permutation(N) + 7
    arrays = {column: COLUMNS[column] for column in names}
    series = {column: pd.Series(x, index) for column, x in arrays.items()}
    assert_equal(made(name, series), made(name, arrays))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_indices_that_disagree_are_refused(name):
    pd = pytest.importorskip("pandas")
    names, _ = FUNCTIONS[name]
    for other in names[1:]:
        series = {column: pd.Series(COLUMNS[column]) for column in names}
        series[other] = series[other].sample(frac=1, random_state=0)
        with pytest.raises(ValueError, match=rf"{other}.*reset_index|reset_index.*{other}"):
            made(name, series)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_named_as_classes_in_another_order_are_refused(library):
    frame = pytest.importorskip(library).DataFrame
    names, logits = ["a", "b", "c"], RNG.normal(size=(N, 3))
    labels = np.array(names)[(logits + RNG.gumbel(size=(N, 3))).argmax(1)]
    proba = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    by_class, softmax = pj.fit_one_vs_rest(logits, labels), pj.fit_multiclass(logits, labels)
    functions = {
        "fit_one_vs_rest": lambda x: pj.fit_one_vs_rest(x, labels).fit.A,
        "ClassRows": lambda x: pj.ClassRows(x, labels, classes=names).classes,
        "fit_multiclass": lambda x: pj.fit_multiclass(x, labels).slopes,
        "OneVsRestCalibrator": by_class.predict_proba,
        "triage": lambda x: pj.triage(by_class, x, labels)["p_value"],
        "MulticlassCalibrator": softmax.predict_proba,
        "metrics": lambda x: metrics.multiclass_log_loss(labels, x).value,
    }
    for name, function in functions.items():
        given = proba if name == "metrics" else logits
        for words in (names, ["x", "y", "z"]):
            table = frame(dict(zip(words, given.T, strict=True)))
            np.testing.assert_array_equal(function(table), function(given), err_msg=name)
        with pytest.raises(ValueError, match="expected columns in the order of the classes"):
            function(frame(dict(zip(names, given.T, strict=True)))[["c", "a", "b"]])


def test_columns_of_narwhals_have_the_indices_of_pandas():
    pd, nw = pytest.importorskip("pandas"), pytest.importorskip("narwhals")
    scores, labels = (pd.Series(COLUMNS[name]) for name in ("scores", "labels"))
    one, other = (nw.from_native(x, series_only=True) for x in (scores, labels.iloc[::-1]))
    with pytest.raises(ValueError, match="reset_index"):
        pj.fit(one, other)
    np.testing.assert_array_equal(
        pj.fit(one, nw.from_native(labels, series_only=True)).A, pj.fit(scores, labels).A
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_columns_of_one_lazy_frame_stay_side_by_side(name):
    """Polars computes a lazy frame anew each time, in any order: all together, or refused.

    An answer by row comes in the order of that time.
    """
    pl = pytest.importorskip("polars")
    names, _ = FUNCTIONS[name]
    arrays = {column: COLUMNS[column] for column in names}
    frame = pl.LazyFrame({"key": np.arange(N), **arrays})
    joined = frame.join(pl.LazyFrame({"key": RNG.permutation(N)}), on="key")
    lazy = {column: joined.select(column) for column in names}
    try:
        found = made(name, lazy)
    except ValueError as error:
        assert "collect" in str(error)
        return
    assert_equal(found, made(name, arrays), in_order=False)
