"""Every kind of rows at every function over rows: it works, or is refused by its name."""

import re
from functools import cache

import jax
import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax import distributed, inference, metrics, plots, report

N, CLASSES = 120, ["cat", "dog"]
RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=N)
LABELS = labels_of(RNG, SCORES).astype(int)
SEGMENTS = np.minimum(np.arange(N) % 6, 3)  # the last is the largest
TABLE = np.stack([SCORES, -SCORES], 1), np.where(LABELS, *CLASSES)


def frame():
    pa = pytest.importorskip("pyarrow")
    return pa.table({"score": SCORES, "label": LABELS, "segment": SEGMENTS})


NAMES = {"score": "score", "label": "label", "segment": "segment"}


def stored(folder):
    from platt_jax import streaming

    return streaming.rows((SCORES, LABELS, SEGMENTS), folder / "rows")


def relation(folder):
    duckdb = pytest.importorskip("duckdb")
    from platt_jax import sql

    return sql.rows(duckdb.connect().from_arrow(frame()), **NAMES)


KINDS = {
    "SegmentRows": lambda folder: pj.SegmentRows(SCORES, LABELS, SEGMENTS),
    "StoredRows": stored,
    "ClassRows": lambda folder: pj.ClassRows(*TABLE),
    "RelationRows": relation,
    "ProcessRows": lambda folder: distributed.rows(SCORES, LABELS, SEGMENTS),
    "SiteRows": lambda folder: distributed.site_rows(SCORES, LABELS, SEGMENTS, min_cell=1),
    "Table": lambda folder: frame(),
    "DataFrame": lambda folder: frame().to_pandas(),
}


@cache
def by_segment():
    return pj.fit_segments(SCORES, LABELS, SEGMENTS)


@cache
def pooled():
    # Of segments that differ, so that there is a population.
    levels = 4 * (SEGMENTS - 1)
    labels = labels_of(np.random.default_rng(1), SCORES + levels)
    return pj.fit_segments(SCORES, labels, SEGMENTS, pooling="partial")


@cache
def by_class():
    return pj.fit_one_vs_rest(*TABLE)


def gates(calibrator):
    rows = (TABLE[0],) if calibrator is by_class() else (SCORES, SEGMENTS)
    return pj.gate(calibrator, *rows)


def sql_predict(rows, folder):
    from platt_jax import sql

    return sql.predict(rows, by_segment())


def sql_monitor_sums(rows, folder):
    from platt_jax import sql

    return sql.monitor_sums(rows, pj.Monitor.start(by_segment(), against="predictions"))


def cluster_fit(rows, folder):
    from platt_jax import cluster

    return cluster.fit_segments(rows, **NAMES, partitions=1)


def html(calibrator):
    return lambda rows, folder: report.to_html(folder / "page.html", calibrator(), rows)


def compared(rows):
    others = {"pool": SCORES, "pool_segments": SEGMENTS, "first": SEGMENTS[:1]}
    return pj.inference.compare_means(by_segment(), rows, None, None, second=SEGMENTS[:1], **others)


def explore(calibrator):
    return lambda rows, _: plots.explore(calibrator(), rows)


TABLES = "Table", "DataFrame"
OF_SEGMENTS, OF_CLASSES = ("SegmentRows", "StoredRows"), ("ClassRows",)
# Calls by the functions' names, and the kinds that they take.
WITHOUT_CALIBRATOR = {
    "fit": (lambda r, _: pj.fit(r, None), ()),
    "fit_segments": (
        lambda r, _: pj.fit_segments(r),
        (*OF_SEGMENTS, *OF_CLASSES, "RelationRows", "ProcessRows", "SiteRows"),
    ),
    "fit_one_vs_rest": (lambda r, _: pj.fit_one_vs_rest(r), OF_CLASSES),
    "bootstrap": (
        lambda r, _: pj.inference.bootstrap(r, replicates=2),
        (*OF_SEGMENTS, *OF_CLASSES),
    ),
    "profile_spreads": (lambda r, _: pj.inference.profile_spreads(r), (*OF_SEGMENTS, *OF_CLASSES)),
    "metrics.by_segment": (
        lambda r, _: metrics.by_segment(metrics.roc_auc, r),
        (*OF_SEGMENTS, *OF_CLASSES),
    ),
    "sql.predict": (sql_predict, ("RelationRows",)),
    "sql.monitor_sums": (sql_monitor_sums, ("RelationRows",)),
    "cluster.fit_segments": (cluster_fit, TABLES),
}
WITH_SEGMENTS = {
    "predict_proba": (lambda r, _: by_segment().predict_proba(r), ()),
    "band": (lambda r, _: by_segment().band(r), ()),
    "triage": (lambda r, _: pj.triage(by_segment(), r), OF_SEGMENTS),
    "update": (lambda r, _: pj.update(by_segment(), r), OF_SEGMENTS),
    "Monitor.update": (lambda r, _: pj.Monitor.start(by_segment()).update(r), OF_SEGMENTS),
    "leave_one_out": (lambda r, _: pj.inference.leave_one_out(by_segment(), r), ()),
    "robust_covariance": (lambda r, _: inference.robust_covariance(by_segment(), r), OF_SEGMENTS),
    "estimate_rates": (lambda r, _: pj.inference.estimate_rates(by_segment(), r), OF_SEGMENTS),
    "estimate_means": (
        lambda r, _: pj.inference.estimate_means(by_segment(), r, pool=r),
        OF_SEGMENTS,
    ),
    "compare_means": (lambda r, _: compared(r), ()),
    "estimate_drift": (lambda r, _: pj.inference.estimate_drift(pooled(), r), OF_SEGMENTS),
    "gate": (lambda r, _: pj.gate(by_segment(), r), OF_SEGMENTS),
    "certify": (lambda r, _: pj.certify(gates(by_segment()), r, None), OF_SEGMENTS),
    "plots.explore": (explore(by_segment), OF_SEGMENTS),
    "report.to_html": (html(by_segment), OF_SEGMENTS),
}
WITH_CLASSES = {
    "predict_proba": (lambda r, _: by_class().predict_proba(r), ()),
    "triage": (lambda r, _: pj.triage(by_class(), r), OF_CLASSES),
    "update": (lambda r, _: pj.update(by_class(), r), OF_CLASSES),
    "Monitor.update": (lambda r, _: pj.Monitor.start(by_class()).update(r), OF_CLASSES),
    "leave_one_out": (lambda r, _: pj.inference.leave_one_out(by_class(), r), OF_CLASSES),
    "robust_covariance": (lambda r, _: inference.robust_covariance(by_class(), r), OF_CLASSES),
    "gate": (lambda r, _: pj.gate(by_class(), r), OF_CLASSES),
    "certify": (lambda r, _: pj.certify(gates(by_class()), r, None), OF_CLASSES),
    "plots.explore": (explore(by_class), OF_CLASSES),
    "plots.risk_coverage": (lambda rows, _: plots.risk_coverage(by_class(), rows), OF_CLASSES),
    "report.to_html": (html(by_class), OF_CLASSES),
}
GROUPS = {"": WITHOUT_CALIBRATOR, "segments": WITH_SEGMENTS, "classes": WITH_CLASSES}
CELLS = {
    " ".join(filter(None, (name, beside, kind))): (call, kind, kind in taken)
    for beside, functions in GROUPS.items()
    for name, (call, taken) in functions.items()
    for kind in KINDS
    # ClassRows are rows of segments, whose ids are the classes.
    if not (beside == "segments" and kind == "ClassRows" and taken)
    # The columns of a table are problems, or classes.
    and not (
        kind in TABLES
        and (beside, name) in (("", "fit"), ("classes", "predict_proba"), ("classes", "gate"))
    )
}
REFUSED = {name: cell[:2] for name, cell in CELLS.items() if not cell[2]}
TAKEN = {name: cell[:2] for name, cell in CELLS.items() if cell[2]}


@pytest.mark.parametrize(("call", "kind"), REFUSED.values(), ids=REFUSED)
def test_a_function_refuses_other_rows_by_their_name(call, kind, tmp_path):
    rows = KINDS[kind](tmp_path)
    with pytest.raises(ValueError, match=f"^(scores|labels|rows): expected .* {kind}") as refused:
        call(rows, tmp_path)
    if kind not in TABLES:
        assert f"got {kind}, rows for {rows._taken_by}" in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(("call", "kind"), TAKEN.values(), ids=TAKEN)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_function_takes_rows(call, kind, tmp_path):
    call(KINDS[kind](tmp_path), tmp_path)


@pytest.mark.parametrize(
    "kind", ["SegmentRows", "ClassRows", "RelationRows", "ProcessRows", "SiteRows"]
)
def test_messages_name_the_functions_that_take_rows(kind, tmp_path):
    text = KINDS[kind](tmp_path)._taken_by
    beside = {"SegmentRows": "segments", "ClassRows": "classes"}.get(kind, "")
    functions = WITHOUT_CALIBRATOR | GROUPS[beside]
    taken = {name for name, (_, kinds) in functions.items() if kind in kinds}
    if kind == "ClassRows":  # as rows of segments
        taken -= {"fit_segments", "bootstrap", "profile_spreads", "metrics.by_segment"}
    named = re.split(r" and, with a \w+, | and |, ", re.sub(r" \(.*\)", "", text))
    assert set(named) == taken


def assert_close(found, expected):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if np.asarray(other).dtype.kind in "fc":
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("ids", [SEGMENTS, list(zip(SEGMENTS.tolist(), "xy" * 60, strict=True))])
def test_rows_give_the_results_of_their_arrays(ids, tmp_path):
    weights, offset = RNG.integers(0, 3, N), RNG.normal(size=N)
    more = {"weights": weights, "offset": offset}
    calibrator = pj.fit_segments(SCORES, LABELS, ids, **more)
    found = inference.robust_covariance(calibrator, pj.SegmentRows(SCORES, LABELS, ids, **more))
    expected = inference.robust_covariance(calibrator, SCORES, LABELS, ids, **more)
    assert_close(found.fit.covariance, expected.fit.covariance)
    assert_close(found.fallback_covariance, expected.fallback_covariance)

    rows = pj.SegmentRows(SCORES, LABELS, ids, weights)
    found = metrics.by_segment(metrics.cox_calibration, rows, from_logits=True)
    given = LABELS, SCORES, ids
    options = {"weights": weights, "from_logits": True}
    assert_close(found, metrics.by_segment(metrics.cox_calibration, *given, **options))

    calibrator, rows = pj.fit_segments(SCORES, LABELS, ids), pj.SegmentRows(SCORES, LABELS, ids)
    found, expected = (
        pj.inference.estimate_rates(calibrator, rows),
        pj.inference.estimate_rates(calibrator, SCORES, ids),
    )
    assert_close(dict(found), dict(expected))
    report.to_html(tmp_path / "rows.html", calibrator, rows)
    report.to_html(tmp_path / "arrays.html", calibrator, SCORES, LABELS, ids)
    assert (tmp_path / "rows.html").read_bytes() == (tmp_path / "arrays.html").read_bytes()


def test_weights_are_refused_where_they_would_be_ignored(tmp_path):
    rows = pj.ClassRows(*TABLE, weights=np.ones(N))
    calls = {name: WITH_CLASSES[name][0] for name in ("triage", "Monitor.update", "report.to_html")}
    for call in calls.values():
        with pytest.raises(ValueError, match="scores: expected ClassRows without weights"):
            call(rows, tmp_path)
    rows = pj.SegmentRows(SCORES, LABELS, SEGMENTS, offset=SCORES)
    for name in ("estimate_rates", "report.to_html"):
        with pytest.raises(ValueError, match="scores: expected SegmentRows without offset"):
            WITH_SEGMENTS[name][0](rows, tmp_path)
    with pytest.raises(ValueError, match="before: expected none beside SegmentRows"):
        rows = pj.SegmentRows(SCORES, LABELS, SEGMENTS)
        report.to_html(tmp_path / "page.html", by_segment(), rows, before=np.full(N, 0.5))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_missing_label_of_a_class_is_a_row_that_is_not_finite():
    scores = RNG.normal(size=(N, 2))
    labels = labels_of(RNG, scores).astype(float)
    labels[5, 1] = np.nan
    classes = pj.fit_one_vs_rest(scores, labels, classes=CLASSES)
    left_out = pj.inference.leave_one_out(classes, scores, labels)
    assert np.isnan(left_out[:, 1]).all() and np.isfinite(left_out[:, 0]).all()
    tested = pj.triage(classes, scores, labels, non_finite="omit")
    assert dict(zip(tested["class"], tested["rows"], strict=True)) == {"cat": N, "dog": N - 1}
