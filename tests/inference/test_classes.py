"""Classes are segments: every tool says of a class what it says of a segment with its pairs."""

from dataclasses import replace

import numpy as np
import pytest

import platt_jax as pj
from platt_jax import ClassRows, Monitor, SegmentRows, export, inference, plots
from platt_jax.report import to_html

NAMES = np.array(["pear", "fig", "apple", "quince"])  # the order of the columns is not theirs


def table_of(seed, rows=400, shift=0.0):
    """Scores (N, 4), whose sharpness differs by class, and class ids."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 4)) * 1.5 - [0.0, 0.5, 1.0, 2.0] + shift
    proba = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    drawn = (rng.random((rows, 1)) > np.cumsum(proba, 1)).sum(1).clip(max=3)
    return z * [1.0, 2.0, 0.5, 1.0], NAMES[drawn]


def pairs(scores, labels):
    """All pairs of a row and a class as rows of segments."""
    names = np.tile(NAMES, len(scores))
    return scores.ravel(), np.repeat(labels, len(NAMES)) == names, names


@pytest.fixture(scope="module", params=["none", "partial", "complete"])
def pooling(request):
    return request.param


@pytest.fixture(scope="module")
def fitted(pooling):
    rows = table_of(0)
    return (
        pj.fit_one_vs_rest(*rows, classes=NAMES, pooling=pooling),
        pj.fit_segments(*pairs(*rows), pooling=pooling),
    )


def close(found, expected, **tolerance):
    np.testing.assert_allclose(found, expected, **{"rtol": 1e-7, "atol": 1e-9} | tolerance)


def test_fits_are_those_of_segments(fitted, pooling):
    classes, segments = fitted
    assert classes.classes.tolist() == NAMES.tolist()
    assert classes.by_class.keys.tolist() == sorted(NAMES)
    assert classes.by_class.pooling == pooling
    for name in NAMES:
        for field in ("A", "B", "n_pos", "n_neg", "covariance"):
            close(getattr(classes[name], field), getattr(segments[name], field))
    assert [classes.fit.A[i] == classes[name].A for i, name in enumerate(NAMES)] == [True] * 4
    assert classes.table()["class"].tolist() == NAMES.tolist()
    errors = dict(zip(*(segments.table()[x] for x in ("segment", "se_A")), strict=True))
    close(classes.table()["se_A"], [errors[name] for name in NAMES])


def test_probabilities_and_bands_are_those_of_segments(fitted):
    classes, segments = fitted
    scores, labels = table_of(1, 50)
    f, _, names = pairs(scores, labels)
    close(
        classes.predict_proba(scores, normalize=False),
        segments.predict_proba(f, names).reshape(-1, 4),
    )
    for found, expected in zip(classes.band(scores), segments.band(f, names), strict=True):
        close(found, expected.reshape(-1, 4))
    offset = np.linspace(-1, 1, 200).reshape(-1, 4)
    close(
        classes.predict_proba(scores, normalize=False, offset=offset),
        segments.predict_proba(f, names, offset=offset.ravel()).reshape(-1, 4),
    )
    p = classes.predict_proba(scores)
    close(p.sum(1), 1)
    own = classes.predict_proba(scores, normalize=False)
    close(p, own / own.sum(1, keepdims=True))


@pytest.mark.slow
def test_rows_of_classes_are_rows_of_segments(rng):
    """Whole, in parts, with weights, offsets and bad values, in columns of any order."""
    scores, labels = table_of(0, 50)
    scores[3, 1] = np.nan
    weights, offset = rng.integers(0, 3, 50).astype(float), rng.normal(size=(50, 4))
    rows = ClassRows(scores, labels, NAMES, weights, offset=offset)
    f, y, names = pairs(scores, labels)
    expected = SegmentRows(f, y, names, np.repeat(weights, 4), offset=offset.ravel())
    assert rows.keys.tolist() == expected.keys.tolist() and len(rows) == len(expected) == 200
    with pytest.warns(RuntimeWarning, match="1 of 4 segments, first in 'fig'"):
        both = pj.fit_segments(rows), pj.fit_segments(expected)
    options = pj.Options(non_finite="omit")
    for found, wanted in (both, [pj.fit_segments(x, options=options) for x in (rows, expected)]):
        close(found.fit.A, wanted.fit.A)
        close([found.fallback.A, found.fallback.B], [wanted.fallback.A, wanted.fallback.B])
    assert repr(rows) == "ClassRows: 50 rows of 4 classes, float64"
    assert rows.digest() == ClassRows(scores, labels, NAMES, weights, offset=offset).digest()
    assert rows.digest() != ClassRows(scores, labels, NAMES, offset=offset).digest()


def test_a_class_is_tested_as_a_segment(fitted):
    classes, segments = fitted
    rows = table_of(2, 300, shift=[0, 0, 1.5, 0])
    days = np.arange(300) % 10
    for given in ({}, {"against": "predictions"}, {"clusters": days, "cluster_sd": 0.3}):
        beside = {**given, **({"clusters": np.repeat(days, 4)} if "clusters" in given else {})}
        found = pj.triage(classes, *rows, **given)
        expected = pj.triage(segments, *pairs(*rows), **beside)
        assert next(iter(found)) == "class"
        assert found["class"].tolist() == expected["segment"].tolist()
        close(found["p_value"], expected["p_value"], rtol=0.05 if "against" in given else 1e-6)


@pytest.mark.slow
def test_an_update_is_that_of_segments(fitted):
    classes, segments = fitted
    rows = table_of(3, 100)
    weights = np.arange(100) % 3
    found = pj.update(classes, *rows, weights=weights, forgetting=0.9, night="one")
    expected = pj.update(
        segments, *pairs(*rows), weights=np.repeat(weights, 4), forgetting=0.9, night="one"
    )
    assert isinstance(found, pj.OneVsRestCalibrator) and found.by_class.nights == ("one",)
    close([found[name].A for name in NAMES], [expected[name].A for name in NAMES], rtol=1e-6)
    with pytest.raises(ValueError, match="'plum' is not among classes"):
        pj.update(classes, rows[0], np.where(rows[1] == "fig", "plum", rows[1]))


@pytest.mark.parametrize(
    "pooling", ["none", pytest.param("partial", marks=pytest.mark.slow)], indirect=True
)
def test_a_monitor_of_classes_is_that_of_segments(fitted, tmp_path):
    classes, segments = fitted
    mine, its = Monitor.start(classes), Monitor.start(segments)
    for night in range(4):
        rows = table_of(10 + night, 200, shift=[0, 0, 0, 1.5])
        mine, its = mine.update(*rows), its.update(*pairs(*rows))
    found, expected = mine.table(), its.table()
    assert found["class"].tolist() == expected["segment"].tolist()
    close(found["log_e_value"], expected["log_e_value"], atol=1e-6)
    mine.save(tmp_path / "m.npz")
    again = Monitor.load(tmp_path / "m.npz", classes)
    assert repr(again) == repr(mine)
    updated = pj.update(classes, *table_of(20))
    assert again.with_calibrator(updated).update(*table_of(21)).night == 5


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["none"], indirect=True)
def test_rows_that_were_fitted_are_those_of_segments(fitted):
    classes, segments = fitted
    rows = table_of(0)
    days = np.arange(400) % 40
    found = inference.robust_covariance(classes, *rows, clusters=days)
    expected = inference.robust_covariance(segments, *pairs(*rows), clusters=np.repeat(days, 4))
    close([found[x].covariance for x in NAMES], [expected[x].covariance for x in NAMES])
    left_out = pj.inference.leave_one_out(classes, *rows)
    close(left_out, pj.inference.leave_one_out(segments, *pairs(*rows)).reshape(-1, 4), rtol=1e-6)
    made = pj.inference.bootstrap(ClassRows(*rows, NAMES), replicates=20, seed=1)
    assert made.keys.tolist() == sorted(NAMES) and made.A.shape == (20, 4)


def test_only_some_classes_and_another_rate(fitted):
    classes, _ = fitted
    scores, _ = table_of(1, 20)
    some = np.array([True, False, True, True])
    kept = classes.only(some)
    assert kept.classes.tolist() == ["pear", "apple", "quince"]
    close(
        kept.predict_proba(scores[:, some], normalize=False),
        classes.predict_proba(scores, normalize=False)[:, some],
    )
    with pytest.raises(ValueError, match=r"where: expected a bool for each of \(4,\) classes"):
        classes.only([0, 1])
    from_rate, to_rate = [0.3, 0.2, 0.2, 0.1], [0.03, 0.2, 0.4, 0.1]
    shifted = classes.shift_prior(from_rate, to_rate)
    logit = [np.log(np.divide(x, 1 - np.array(x))) for x in (from_rate, to_rate)]
    close(classes.fit.B - shifted.fit.B, logit[1] - logit[0])


def test_files_keep_classes_and_their_order(fitted, tmp_path):
    classes, _ = fitted
    pj.save(tmp_path / "c.npz", classes)
    again = pj.load(tmp_path / "c.npz")
    assert again == classes and again.by_class.pooling == classes.by_class.pooling
    scores, _ = table_of(1, 20)
    np.testing.assert_array_equal(again.predict_proba(scores), classes.predict_proba(scores))
    swapped = replace(classes, classes=NAMES[::-1])
    assert swapped != classes


@pytest.mark.parametrize("pooling", ["none"], indirect=True)
def test_a_report_and_the_explorer_show_classes(fitted, tmp_path):
    classes, _ = fitted
    rows = table_of(4, 200)
    to_html(tmp_path / "r.html", classes, *rows)
    to_html(tmp_path / "p.html", classes, *rows, before=np.full((200, 4), 0.25))
    assert "quince" in (tmp_path / "r.html").read_text()
    shown = plots.explore(classes, *rows)
    shown.selected = "fig"


@pytest.mark.slow
def test_partial_pooling_helps_rare_classes():
    """60 classes of alike curves; the rare ones have two or three positives."""
    rng = np.random.default_rng(0)
    slope, rate = 1.5 + 0.2 * rng.normal(size=60), np.linspace(-5, -1, 60)

    def draw(rows):
        scores = rng.normal(size=(rows, 60))
        return scores, rng.random((rows, 60)) < 1 / (1 + np.exp(-slope * scores - rate))

    fitted, fresh = draw(400), draw(4000)
    losses = {
        pooling: pj.metrics.log_loss(
            fresh[1].T.astype(int),
            pj.fit_one_vs_rest(*fitted, pooling=pooling).predict_proba(fresh[0]).T,
        ).mean()
        for pooling in ("none", "partial", "complete")
    }
    assert losses["partial"] < losses["none"] < losses["complete"]


def test_labels_of_several_classes_by_name():
    scores, labels = table_of(0)
    right = np.where(labels[:, None] == NAMES, "yes", "no")
    named = pj.fit_one_vs_rest(scores, right, classes=NAMES, pos_label="yes")
    plain = pj.fit_one_vs_rest(scores, right == "yes", classes=NAMES)
    assert named == plain and named.multilabel
    with pytest.raises(ValueError, match=r"pos_label: expected labels \(N, C\) beside it"):
        pj.fit_one_vs_rest(scores, labels, pos_label="fig")


@pytest.mark.slow
def test_start_prior_and_rows_in_any_order_of_classes():
    scores, labels = table_of(0)
    precision = np.eye(2) * np.array([1.0, 50, 2, 3])[:, None, None]
    prior = pj.GaussianPrior(np.array([[-1.0, 0], [-3, 1], [0, 0], [-1, 2]]), precision)
    whole = pj.fit_one_vs_rest(scores, labels, classes=NAMES, prior=prior)
    order = [2, 0, 3, 1]
    other = pj.fit_one_vs_rest(
        scores[:, order],
        labels,
        classes=NAMES[order],
        prior=pj.GaussianPrior(prior.mean[order], precision[order]),
        start=(whole.fit.A[order], whole.fit.B[order]),
    )
    close(other.fit.A, whole.fit.A[order])
    assert other.fit.passes.max() < whole.fit.passes.min()
    rows = ClassRows(scores, labels, NAMES)
    assert pj.fit_one_vs_rest(rows) == pj.fit_one_vs_rest(scores, labels, classes=NAMES)
    with pytest.raises(ValueError, match="labels: expected none beside ClassRows"):
        pj.fit_one_vs_rest(rows, labels)
    with pytest.raises(ValueError, match="scores: expected ClassRows of the calibrator's classes"):
        pj.triage(other, rows)


def test_what_classes_cannot_do_is_named():
    scores, labels = table_of(0)
    classes = pj.fit_one_vs_rest(scores, labels, classes=NAMES)
    with pytest.raises(ValueError, match="pooling: expected one of"):
        pj.fit_one_vs_rest(scores, labels, classes=NAMES, pooling="nested")
    for call in (
        lambda: pj.triage(classes, scores, labels, labels),
        lambda: pj.update(classes, scores, labels, labels),
        lambda: Monitor.start(classes).update(scores, labels, labels),
    ):
        with pytest.raises(ValueError, match="segments: expected None for a OneVsRestCalibrator"):
            call()
    with pytest.raises(ValueError, match="by_class"):
        pj.inference.estimate_rates(classes, scores, labels)
    with pytest.raises(ValueError, match="by_class"):
        export.to_sql(classes, "score", "class")


def test_no_rows_change_nothing():
    classes = pj.fit_one_vs_rest(*table_of(0), classes=NAMES)
    nothing = np.zeros((0, 4)), NAMES[:0]
    assert len(pj.triage(classes, *nothing)["class"]) == 0
    assert pj.update(classes, *nothing) == classes
    monitor = Monitor.start(classes).update(*nothing, night="a")
    assert monitor.nights == ("a",) and len(monitor.table()["class"]) == 0


def test_a_table_of_classes_is_put_back_in_any_order():
    """Of names whose order is not its own inverse."""
    table = np.arange(12.0).reshape(4, 3)
    rows = ClassRows(table, ["fig", "pear", "apple", "fig"], ["pear", "apple", "fig"])
    np.testing.assert_array_equal(rows.as_table(rows.flatten(table)), table)
