"""Exported calibrators, executed elsewhere, against `predict_proba`."""

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import fields
from datetime import UTC, datetime
from decimal import Decimal
from importlib.resources import files
from uuid import UUID

import numpy as np
import pytest
from data import labels_of
from exported import KINDS, SCORES, assert_close, calibrator, check_sql, keys_of, rows_of
from javascript import answers, predicted
from levelled import levelled
from sql_engines import InDuckDB, InSQLite

import platt_jax as pj
from platt_jax import Sigmoid
from platt_jax.export import from_json, to_javascript, to_json, to_onnx, to_python, to_sql
from platt_jax.ids.indexing import get_indexer

# What the core says of the segment that fails is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing:RuntimeWarning")

# --- JSON -----------------------------------------------------------------------------------------


def assert_same(found, expected):
    assert type(found) is type(expected)
    for field in fields(expected):
        a, b = getattr(found, field.name), getattr(expected, field.name)
        if a is None or hasattr(a, "__dataclass_fields__"):
            assert (a is None) == (b is None)
            if a is not None:
                assert_same(a, b)
        else:
            a, b = np.asarray(a), np.asarray(b)
            assert a.dtype == b.dtype, field.name
            np.testing.assert_array_equal(a, b)


def made(name):
    rng = np.random.default_rng(0)
    f, y = rng.normal(size=(3, 50)), rng.random((3, 50)) < 0.5
    rows = rng.normal(size=900), rng.random(900) < 0.4, rng.integers(0, 9, 900)
    if name in KINDS:
        return calibrator(keys_of(name), failed=True)
    return {
        "sigmoid": lambda: Sigmoid(A=-2.0, B=np.float32(0.1)),
        "fits": lambda: pj.fit(f, y),
        "classes": lambda: pj.fit_one_vs_rest(f.T, rng.integers(0, 3, 50)),
        "float32": lambda: calibrator(keys_of("text"), np.float32),
        "bytes": lambda: calibrator(np.array([b"a", b"\xff"])),
        "uuids": lambda: calibrator(np.array([UUID(int=1), UUID(int=2)], object)),
        "population": lambda: pj.fit_segments(*rows, pooling="partial"),
        "events": lambda: pj.fit_segments(*rows, offset=rows[0] / 2).only(np.arange(9) < 5),
        "nested": lambda: levelled("nested", "mixed"),
        "crossed": lambda: levelled("crossed", "text"),
        "drift": lambda: (
            pj.inference.estimate_drift(pj.fit_segments(*rows, pooling="partial"), *rows).calibrator
        ),
    }[name]()


OTHER_KINDS = [
    *("sigmoid", "fits", "classes", "float32", "bytes", "uuids"),
    *("population", "events", "nested", "crossed", "drift"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*KINDS, *OTHER_KINDS])
def test_json_keeps_everything_and_follows_its_schema(name):
    import jsonschema

    saved = made(name)
    text = to_json(saved)
    assert_same(from_json(text), saved)
    schema = json.loads((files("platt_jax.export") / "calibrator.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize(
    "ids",
    [
        np.array([2**53 - 1, 2**53, 2**53 + 1]),
        np.array([2**53, 2**53 + 1, 2**64 - 1], np.uint64),
        np.array(["2026-11-29", "2026-11-29T00:00:00.000000001"], "M8[ns]"),
    ],
    ids=["int64", "uint64", "times"],
)
def test_integers_in_json_are_exact_for_readers_that_compute_in_double(ids):
    fitted = calibrator(ids)
    text = to_json(fitted)
    keys = json.loads(text, parse_int=float)["arrays"]["keys"]  # as JavaScript and R read it
    assert len(set(keys)) == len(fitted.keys)
    assert_same(from_json(text), fitted)
    with pytest.raises(ValueError, match="text: not a calibrator"):
        from_json(text.replace('"keys": ["', '"keys": ["x'))


def _changed(text, **members):
    return json.dumps({**json.loads(text), **members})


def test_json_that_is_no_calibrator_is_refused():
    text = to_json(calibrator(keys_of("text")))
    whole = json.loads(text)
    for wrong in (
        "",
        "[]",
        text[:-1],
        "{}",
        "[" * 100_000,
        _changed(text, format="other"),
        _changed(text, version=0),
        _changed(text, kind="Scaler"),
        _changed(text, arrays={**whole["arrays"], "A": [1.0]}),
        _changed(text, arrays={**whole["arrays"], "A": ["Nan"] * 8}),
        _changed(text, arrays={k: v for k, v in whole["arrays"].items() if k != "B"}),
        _changed(text, arrays={**whole["arrays"], "status": [0.5] * 8}),
        _changed(text, types={**whole["types"], "A": "O"}),
        _changed(text, types={**whole["types"], "A": "<i8"}),
    ):
        with pytest.raises(ValueError, match="text: not a calibrator that platt_jax saved, or dam"):
            from_json(wrong)
    with pytest.raises(ValueError, match="by a newer platt_jax as version 99"):
        from_json(_changed(text, version=99))
    with pytest.raises(ValueError, match="calibrator: expected one of"):
        to_json("calibrator")


# --- Python ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_python_module_predicts_what_the_calibrator_does(kind):
    fitted = calibrator(keys_of(kind), failed=True)
    module = {}
    exec(to_python(fitted), module)
    rows, expected = rows_of(fitted, kind)
    assert np.isnan(expected).any()
    found = [module["predict_proba"](f, segment) for f, segment in rows]
    assert_close(found, expected)
    seen = rows[0][1]
    assert np.isnan(module["predict_proba"](np.nan, seen))
    assert [module["predict_proba"](f, seen) for f in (np.inf, -np.inf)] == [1.0, 0.0]


@pytest.mark.parametrize("curve", ["sigmoid", "isotonic", "quadratic"])
@pytest.mark.parametrize("number", [np.float32, np.int8, Decimal])
def test_the_python_module_computes_in_double_whatever_the_score_is(curve, number, rng):
    """NumPy computes a float32 times a Python float in float32, and Decimal times it not at all."""
    scores, segments = 1000 + rng.normal(size=300), np.repeat([0, 1, 2], 100)
    labels = rng.random(300) < 1 / (1 + np.exp(1000 - scores))
    fitted = pj.fit_segments(scores, labels, segments, curve=curve)
    one = pj.fit(scores, labels)
    for made, more in ((fitted, (1,)), (one, ())) if curve == "sigmoid" else ((fitted, (1,)),):
        module = {}
        exec(to_python(made), module)
        score = number(100) if number is np.int8 else number(1000.1)
        found = module["predict_proba"](score, *more)
        expected = made.predict_proba([float(score)], *([x] for x in more))[0]
        assert type(found) is float
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_the_python_module_needs_nothing_else(tmp_path):
    (tmp_path / "served.py").write_text(to_python(pj.fit([2.0, -1, 1, 0], [1, 0, 1, 0])))
    code = "import sys, served; print(served.predict_proba(0.5), 'numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    p, numpy = done.stdout.split()
    assert float(p) == pytest.approx(pj.fit([2.0, -1, 1, 0], [1, 0, 1, 0]).predict_proba([0.5])[0])
    assert numpy == "False"


# --- JavaScript -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, "times", "wide"])
def test_the_javascript_module_predicts_what_the_calibrator_does(kind):
    more = {
        "times": np.array(["2024-02-29T01:02:03", "2025-01-01T00:00:00.000004"], "M8[us]"),
        "wide": np.array([-(2**60) - 1, 2**53 - 1, 2**53, 2**53 + 1]),
    }
    if kind in more:
        fitted = calibrator(more[kind], failed=True)
        rows = [(f, key) for key in fitted.keys.tolist() for f in SCORES.tolist()]
        expected = fitted.predict_proba(*(np.array(x) for x in zip(*rows, strict=True)))
    else:
        fitted = calibrator(keys_of(kind), failed=True)
        rows, expected = rows_of(fitted, kind)
    module = to_javascript(fitted)
    assert np.isnan(expected).any()
    seen = rows[0][1]
    *found, nan, high, low = predicted(
        module, [*rows, *((f, seen) for f in (np.nan, np.inf, -np.inf))]
    )
    assert_close(found, expected)
    assert np.isnan(nan) and (high, low) == (1.0, 0.0)


def test_the_javascript_module_has_no_times_with_a_zone():
    zone = np.array([datetime(2020, 1, 1 + i, tzinfo=UTC) for i in range(3)], object)
    with pytest.raises(ValueError, match="times without a time zone, got times with one"):
        to_javascript(calibrator(zone))


def test_the_javascript_module_takes_no_id_for_another():
    """Each mistake is an error; null and ids that were not fitted have the fallback."""
    integers = to_javascript(calibrator(np.array([0, 7, 2**60])))
    of_7, as_text, wide, wide_text, unseen, null = answers(
        integers, [(0.5, x) for x in (7, "7", 2**60, str(2**60), 3, None)]
    )
    assert of_7 == as_text and wide == wide_text and unseen == null
    assert len({of_7, wide, unseen}) == 3
    for wrong in ([0.5], [0.5, 2.0**60], [0.5, 3.5], [0.5, "07"], [0.5, True], [0.5, [7]]):
        assert answers(integers, [wrong])[0].startswith("TypeError: segment: expected an integer")
    for wrong in ([None, 7], ["0.5", 7], []):
        assert "TypeError: s" in answers(integers, [wrong])[0]
    texts = to_javascript(calibrator(np.array(["7", "</script>"])))
    assert "</script>" not in texts
    assert answers(texts, [(0.5, 7)])[0].startswith("TypeError: segment: expected text, got number")
    both = to_javascript(calibrator(keys_of("columns")))
    for wrong in ("a", ["a"], ["a", 1, 2]):
        expected = "TypeError: segment: expected an array of its columns, 2"
        assert answers(both, [(0.5, wrong)])[0].startswith(expected)
    dates = to_javascript(calibrator(keys_of("dates")))
    wrong = "2024-02-29T00:00:00.000Z"
    assert answers(dates, [(0.5, wrong)])[0].startswith("TypeError: segment: expected a date as")


# --- SQL ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [InDuckDB, InSQLite])
@pytest.mark.parametrize("table", [None, "sig moids"])
@pytest.mark.parametrize("kind", KINDS)
def test_sql_predicts_what_the_calibrator_does(kind, table, engine):
    run = engine()
    with closing(run.connection):
        check_sql(run, kind, table)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [InDuckDB, InSQLite])
@pytest.mark.parametrize("table", [None, "sig moids"])
@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_a_view_is_replaced_the_second_night(pooling, table, engine):
    """By another calibrator, whose table has other columns."""
    run = engine()
    shops = np.arange(300) % 5
    f, y = np.random.default_rng(0).normal(size=300), np.arange(300) % 3 == 0
    nights = (
        pj.fit_segments(f, y, shops),
        pj.fit_segments(f, ~y, shops.astype(str), pooling=pooling),
    )
    with closing(run.connection):
        for fitted, of_night in zip(nights, (shops, shops.astype(str)), strict=True):
            # They have a probability of their own.
            rows = zip(f.tolist(), of_night.tolist(), [0.5] * len(f), strict=True)
            run.table(list(rows), ["f", "the shop", "probability"])
            made = to_sql(
                *(fitted, "f", "the shop"),
                dialect=run.dialect,
                table=table,
                view="tonight's",
                rows="t",
            )
            for statement in made.setup:
                run(statement)
            found = run('SELECT f, "the shop", probability FROM "tonight\'s"')
            expected = fitted.predict_proba(f, of_night)
            np.testing.assert_allclose([p for *_, p in found], expected, rtol=0, atol=2e-6)
            assert [row[:2] for row in found] == list(zip(f, of_night, strict=True))
            run.drop("t")


def test_names_of_views_and_tables():
    fitted = calibrator(keys_of("text"))
    for names in ({"view": "v"}, {"rows": "t"}, {"view": "", "rows": "t"}):
        with pytest.raises(ValueError, match="view, rows: expected the names of a view and of its"):
            to_sql(fitted, "f", "s", **names)
    # A statement that drops a table would drop the rows.
    for names in (
        {"table": "t", "view": "v", "rows": "t"},
        {"table": "T", "view": "v", "rows": "main.t"},
        {"view": "t", "rows": "t"},
        {"table": "v", "view": "v", "rows": "t"},
    ):
        with pytest.raises(ValueError, match="view, rows, table: expected different names, got "):
            to_sql(fitted, "f", "s", **names)
    for score, segment in (("probability", "s"), ("f", "Probability")):
        with pytest.raises(ValueError, match="score, segment: expected other names than 'probabil"):
            to_sql(fitted, score, segment, view="v", rows="t")
    with pytest.raises(ValueError, match="table: expected the name of a table, got ''"):
        to_sql(fitted, "f", "s", table="")


def test_text_that_no_encoding_holds_is_named():
    fitted = calibrator(np.array(["a", "\ud800"], object))
    for export in (lambda: to_sql(fitted, "f", "s"), lambda: to_onnx(fitted)):
        with pytest.raises(ValueError, match=r"segments: expected text that UTF-8 .*'\\ud800'"):
            export()
    module = {}
    exec(to_python(fitted), module)
    found = module["predict_proba"](0.5, "\ud800")
    assert_close([found], fitted.predict_proba([0.5], ["\ud800"]))


def test_complex_ids_are_no_json():
    with pytest.raises(ValueError, match="keys: expected ids that JSON can hold, got complex128"):
        to_json(calibrator(np.array([1j, 2.0])))


def test_sql_of_a_population_is_long_and_refused_sooner(rng):
    ids = np.repeat(np.arange(150), 20)
    scores = rng.normal(size=3_000)
    labels = rng.random(3_000) < 1 / (1 + np.exp(-2 * scores))
    pooled = pj.fit_segments(scores, labels, ids, pooling="partial")
    for number, dialect in ((150, "duckdb"), (40, "clickhouse")):
        some = pooled.only(np.arange(150) < number)
        with pytest.raises(ValueError, match=f"a table to make for {number} .* bytes, more than"):
            to_sql(some, "f", "s", dialect=dialect)
        assert len(to_sql(some, "f", "s", dialect=dialect, table="curves").expression) < 20_000
    assert (
        len(to_sql(pooled.only(np.arange(150) < 25), "f", "s", dialect="clickhouse").expression)
        > 1e5
    )
    unpooled = pj.fit_segments(scores, labels, ids)
    assert to_sql(unpooled, "f", "s", dialect="clickhouse").setup == ()


def test_sql_of_null_and_of_many_segments():
    run = InDuckDB()
    many = calibrator(np.arange(1200))
    with pytest.raises(ValueError, match="table: expected the name of a table to make for 1,200"):
        to_sql(many, "f", "s")
    made = to_sql(many, "f", "s", table="curves")
    assert len(made.setup) == 5
    for statement in made.setup:
        run(statement)
    query = f"SELECT {made.expression} FROM (SELECT NULL AS f, 3 AS s UNION ALL SELECT 1, NULL) t"
    (null,), (of_fallback,) = run(f"{query} {made.join} ORDER BY f NULLS FIRST")
    assert null is None
    assert of_fallback == pytest.approx(many.fallback.predict_proba([1.0])[0], rel=1e-12)


WIDE = {
    "unsigned": (np.array([3, 2**63, 2**64 - 1], np.uint64), "UBIGINT"),
    "of 128 bits": (np.array([5, -(2**127), 1 - 2**127, 2**127 - 1], object), "HUGEINT"),
    "of columns": (
        np.array([("a", 2**63), ("a", 2**63 + 1)], [("shop", "U1"), ("i", "u8")]),
        "UBIGINT",
    ),
}


@pytest.mark.parametrize("table", [None, "curves"])
@pytest.mark.parametrize("keys, type_", WIDE.values(), ids=WIDE)
def test_sql_of_integers_that_no_bigint_holds(keys, type_, table):
    fitted = calibrator(keys)
    segment = ["shop", "i"] if keys.dtype.names else "i"
    made = to_sql(fitted, "f", segment, table=table)
    ids = fitted.keys.tolist()
    run = InDuckDB()
    with closing(run.connection):
        run(f"CREATE TABLE t (f DOUBLE, i {type_}, shop TEXT)")
        for key in ids:
            shop, i = key if isinstance(key, tuple) else ("", key)
            run(f"INSERT INTO t VALUES (0.5, {i}, '{shop}')")
        for statement in made.setup:
            run(statement)
        found = run(f"SELECT i, {made.expression} FROM t {made.join}")
    assert_close(
        [p for _, p in sorted(found)], fitted.predict_proba(np.full(len(ids), 0.5), fitted.keys)
    )
    for dialect in ("sqlite", "postgres"):
        with pytest.raises(ValueError, match="expected integers of 64 bits, which BIGINT columns"):
            to_sql(fitted, "f", segment, table=table, dialect=dialect)


def test_integers_that_nothing_holds_are_named():
    for key, bits in ((2**63 + 1, 64), (-(2**63) - 1, 64), (2**127 + 1, 128)):
        fitted = calibrator(np.array([key, 3], object))
        with pytest.raises(ValueError, match=rf"of 64 bits, which ONNX's .*, got {key}; fit such"):
            to_onnx(fitted)
        if bits > 64:
            with pytest.raises(ValueError, match=rf"of 128 bits, which HUGEINT .*, got {key};"):
                to_sql(fitted, "f", "s")
    for key in (2**63 - 1, -(2**63)):
        to_onnx(calibrator(np.array([key, 3], object)))


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("infinite", [np.inf, -np.inf])
def test_sql_has_no_literal_for_infinity(infinite, columns):
    keys = np.array([0.5, infinite])
    if columns:
        keys = np.array([("a", 0.5), ("a", infinite)], [("s", "U1"), ("x", "f8")])
    fitted, segment = calibrator(keys), ["s", "x"] if columns else "x"
    for table in (None, "curves"):
        with pytest.raises(ValueError, match=f"ids that SQL has a literal for, got {infinite};"):
            to_sql(fitted, "f", segment, table=table)
    others = fitted.only(~np.isinf(keys["x"] if columns else keys)[np.argsort(keys)])
    assert len(others) == 1
    assert "WHEN" in to_sql(others, "f", segment).expression


INEXACT_TIMES = {
    "nanoseconds": np.datetime64("2024", "ns") + np.array([1, 2], "m8[ns]"),
    "one of them": np.datetime64("2024", "ns") + np.array([0, 1], "m8[ns]"),
    "durations": np.array([1, 2], "m8[ns]"),
    "far dates": np.array(["20000-01-01", "2024-01-01"], "M8[D]"),
    "of columns": np.array(
        [("a", np.datetime64(1, "ns")), ("a", np.datetime64(2, "ns"))],
        [("shop", "U1"), ("t", "M8[ns]")],
    ),
}


@pytest.mark.parametrize("keys", INEXACT_TIMES.values(), ids=INEXACT_TIMES)
def test_times_that_python_does_not_hold_are_not_rounded(keys):
    """Two times that only nanoseconds tell apart are two segments everywhere, or refused."""
    fitted = calibrator(keys)
    segment = ["shop", "t"] if keys.dtype.names else "t"
    assert from_json(to_json(fitted)) == fitted
    with pytest.raises(ValueError, match=r"dates or times .*, got .*(date|timedelta)"):
        to_python(fitted)
    with pytest.raises(ValueError, match=r"truth values or dates.*, got .*(date|timedelta)"):
        to_sql(fitted, "f", segment)
    with pytest.raises(ValueError, match="text or integers, one type a column, got"):
        to_onnx(fitted)


def test_nanoseconds_that_are_whole_microseconds_are_pythons_times():
    keys = np.array(["2024-02-29T01:02:03.000004", "2025-01-01"], "M8[ns]")
    fitted = calibrator(keys)
    module = {}
    exec(to_python(fitted), module)
    found = [module["predict_proba"](0.5, t) for t in keys.astype("M8[us]").tolist()]
    assert_close(found, fitted.predict_proba([0.5, 0.5], keys))


# --- ONNX -----------------------------------------------------------------------------------------


def run_onnx(model, **inputs):
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(["logit", "probability"], inputs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "integers"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_onnx_predicts_what_the_calibrator_does(kind, dtype):
    fitted = calibrator(keys_of(kind), dtype, failed=True)
    rows, _ = rows_of(fitted, kind)
    scores = np.array([f for f, _ in rows], dtype)
    segments = np.array([s for _, s in rows], np.int64 if kind == "integers" else object)
    expected = fitted.predict_proba(scores.astype(float), segments)
    model = to_onnx(fitted, dtype=np.dtype(dtype).name)
    logit, p = run_onnx(model, score=scores, segment=segments)
    assert logit.dtype == p.dtype == np.float64
    scores = scores.astype(float)
    place = [next((i for i, k in enumerate(fitted.keys) if k == s), -1) for _, s in rows]
    A = np.append(fitted.fit.A, fitted.fallback.A).astype(float)[place]
    B = np.append(fitted.fit.B, fitted.fallback.B).astype(float)[place]
    np.testing.assert_allclose(logit, -(A * scores + B), rtol=1e-12, atol=1e-300)
    assert_close(p, expected)


def test_onnx_of_ids_of_two_columns():
    fitted = calibrator(keys_of("columns"), failed=True)
    rows, expected = rows_of(fitted, "columns")
    shops, years = zip(*(s for _, s in rows), strict=True)
    scores = np.array([f for f, _ in rows])
    columns = {"segment_0": np.array(shops, object), "segment_1": np.array(years, np.int64)}
    _, p = run_onnx(to_onnx(fitted), score=scores, **columns)
    assert_close(p, expected)


@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_onnx_behind_a_model_whose_outputs_have_two_axes(pooling, rng):
    """Classifiers of ONNX give (N, 1): each row has one curve, not all rows' curves."""
    onnx = pytest.importorskip("onnx")
    scores, segments = rng.normal(size=300), rng.integers(0, 5, 300)
    fitted = pj.fit_segments(scores, rng.random(300) < 0.5, segments, pooling=pooling)
    served = to_onnx(fitted)
    kinds = {"score": onnx.TensorProto.DOUBLE, "segment": onnx.TensorProto.INT64}
    tensor = onnx.helper.make_tensor_value_info
    before = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Identity", [f"{x}_in"], [f"{x}_out"]) for x in kinds],
            "classifier",
            [tensor(f"{x}_in", kind, ["N", 1]) for x, kind in kinds.items()],
            [tensor(f"{x}_out", kind, ["N", 1]) for x, kind in kinds.items()],
        ),
        ir_version=served.ir_version,
        opset_imports=served.opset_import,
    )
    both = onnx.compose.merge_models(before, served, [(f"{x}_out", x) for x in kinds])
    _, p = run_onnx(both, score_in=scores[:, None], segment_in=segments[:, None])
    np.testing.assert_allclose(p, fitted.predict_proba(scores, segments), atol=1e-7)


@pytest.mark.parametrize(
    "opset, ir_version, pooling",
    [(19, None, "none"), ({"": 21, "ai.onnx.ml": 4}, 10, "partial"), (20, None, "nested")],
)
def test_onnx_of_later_versions(opset, ir_version, pooling, rng):
    scores, ids = rng.normal(size=600), rng.integers(0, 5, 600)
    columns = {"segment_0": ids // 2, "segment_1": ids}
    segments = np.stack([*columns.values()], 1) if pooling == "nested" else ids
    fitted = pj.fit_segments(scores, rng.random(600) < 0.5, segments, pooling=pooling)
    model = to_onnx(fitted, opset=opset, ir_version=ir_version)
    versions = {x.domain: x.version for x in model.opset_import}
    asked = opset if isinstance(opset, dict) else {"": opset}
    assert versions == {"ai.onnx.ml": 3} | asked
    assert model.ir_version == (ir_version or 9)
    inputs = columns if pooling == "nested" else {"segment": ids}
    _, p = run_onnx(model, score=scores, **inputs)
    np.testing.assert_allclose(p, fitted.predict_proba(scores, segments), atol=1e-7)


@pytest.mark.parametrize(
    "options, name",
    [
        ({"opset": 17}, "opset"),
        ({"opset": 999}, "opset"),
        ({"opset": {"": 18, "com.example": 1}}, "opset"),
        ({"opset": {"ai.onnx.ml": 1}}, "opset"),
        ({"opset": 21, "ir_version": 8}, "ir_version"),
    ],
)
def test_onnx_of_versions_that_do_not_hold_it(options, name):
    pytest.importorskip("onnx")
    with pytest.raises(ValueError, match=f"{name}: expected "):
        to_onnx(Sigmoid(A=-2.0, B=1.0), **options)


def test_onnx_of_one_sigmoid(dtype):
    """Scores of float32, as most models of ONNX give them, are computed in float64 as well."""
    scores = np.array([0.1, np.nan, 1.0], dtype)
    _, p = run_onnx(to_onnx(Sigmoid(A=-2.0, B=1.0), dtype=dtype.__name__), score=scores)
    expected = Sigmoid(-2.0, 1.0).predict_proba(scores.astype(float))
    np.testing.assert_allclose(p, expected, rtol=1e-12)
    with pytest.raises(ValueError, match="dtype: expected "):
        to_onnx(Sigmoid(A=-2.0, B=1.0), dtype="float16")


# --- probabilities of any size --------------------------------------------------------------------


def by_json(sigmoid, scores):
    """By the formula that the schema gives, as a reader in any language has it."""
    arrays = json.loads(to_json(sigmoid))["arrays"]
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(arrays["A"] * scores + arrays["B"]))


def by_python(sigmoid, scores):
    module = {}
    exec(to_python(sigmoid), module)
    return [module["predict_proba"](f) for f in scores.tolist()]


def by_sql(sigmoid, scores, engine):
    run = engine()
    with closing(run.connection):
        run.table(list(enumerate(scores.tolist())), ["i", "f"])
        p = to_sql(sigmoid, "f", dialect=run.dialect).expression
        return [p for _, p in run(f"SELECT i, {p} FROM t ORDER BY i")]


def by_javascript(sigmoid, scores):
    return predicted(to_javascript(sigmoid), [(f,) for f in scores.tolist()])


WAYS = {
    "JSON": by_json,
    "Python": by_python,
    "JavaScript": by_javascript,
    "DuckDB": lambda *given: by_sql(*given, InDuckDB),
    "SQLite": lambda *given: by_sql(*given, InSQLite),
    "ONNX": lambda sigmoid, scores: run_onnx(to_onnx(sigmoid), score=scores)[1],
}


@pytest.mark.parametrize("way", WAYS)
def test_small_probabilities_are_exact(way):
    """To twelve digits down to 1e-300, against 50 digits; below they may be 0."""
    mpmath = pytest.importorskip("mpmath")
    sigmoid = Sigmoid(A=-2.0, B=0.5)
    logits = np.concatenate([np.arange(-800, 801, 12.5), [-36.7, -37.5, -690, 1e5, -1e5]])
    scores = (logits + 0.5) / 2
    with mpmath.workdps(50):
        exact = [1 / (1 + mpmath.exp(-2 * mpmath.mpf(f) + 0.5)) for f in scores.tolist()]
        exact = np.array([float(p) for p in exact])
    found = np.array(WAYS[way](sigmoid, scores), float)
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(found, sigmoid.predict_proba(scores), rtol=1e-12, atol=1e-300)


# --- with a population: means over it -------------------------------------------------------------


@pytest.fixture(scope="module", params=["partial", "drift"])
def pooled(request):
    """Shops of few rows, and rows of them and of a shop that was not fitted."""
    rng = np.random.default_rng(0)
    shops = rng.integers(0, 40, 400)
    f = rng.normal(size=400)
    y = labels_of(rng, f - 2.5 + rng.normal(size=40)[shops])
    fitted = pj.fit_segments(f, y, shops, pooling="partial")
    if request.param == "drift":
        fitted = pj.inference.estimate_drift(fitted, f, y, shops).calibrator
    rows = np.r_[f[:90], -3.0, 0.0, 3.0, -800.0, 800.0], np.r_[shops[:90], -1, -1, 7, 7, 7]
    return fitted, *rows


def deviations(fitted, scores, shops):
    """The standard deviations of the log-odds."""
    *_, AA, AB, BB = fitted.predictive()[get_indexer(fitted.keys, shops, "shops")].T
    return np.sqrt(AA * scores**2 + 2 * AB * scores + BB)


def assert_means(fitted, scores, shops, found, **tolerance):
    expected = fitted.predict_proba(scores, shops)
    of_mode = fitted.at_mode().predict_proba(scores, shops)
    near = deviations(fitted, scores, shops) <= 2
    assert np.max(np.abs(of_mode / expected - 1)[near]) > 0.05
    np.testing.assert_allclose(np.array(found, float)[near], expected[near], **tolerance)
    assert np.isfinite(np.array(found, float)).all()


def test_modules_have_the_mean_over_a_population(pooled):
    fitted, scores, shops = pooled
    module = {}
    exec(to_python(fitted), module)
    found = map(module["predict_proba"], scores.tolist(), shops.tolist())
    assert_means(*pooled, list(found), rtol=1e-7)
    rows = list(zip(scores.tolist(), shops.tolist(), strict=True))
    assert_means(*pooled, predicted(to_javascript(fitted), rows), rtol=1e-7)


def test_onnx_has_the_mean_over_a_population(pooled):
    fitted, scores, shops = pooled
    _, found = run_onnx(to_onnx(fitted), score=scores, segment=shops)
    assert_means(*pooled, found, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [InDuckDB, InSQLite])
@pytest.mark.parametrize("table", [None, "curves"])
def test_sql_has_the_mean_over_a_population(pooled, engine, table):
    fitted, scores, shops = pooled
    run = engine()
    with closing(run.connection):
        rows = zip(range(len(shops)), scores.tolist(), shops.tolist(), strict=True)
        run.table(list(rows), ["i", "f", "s"])
        made = to_sql(fitted, "f", "s", dialect=run.dialect, table=table)
        for statement in made.setup:
            run(statement)
        found = run(f"SELECT i, {made.expression} AS p FROM t {made.join} ORDER BY i")
        assert_means(*pooled, [p for _, p in found], atol=1e-4)


# --- what cannot be exported ----------------------------------------------------------------------


def test_what_cannot_be_exported_is_refused():
    fitted = calibrator(keys_of("text"))
    rng = np.random.default_rng(0)
    for export in (to_python, to_javascript, to_onnx, lambda x: to_sql(x, "f", "s")):
        with pytest.raises(ValueError, match="a SegmentCalibrator or one sigmoid, got a"):
            export(pj.fit(rng.normal(size=(2, 9)), np.arange(9) % 2))
    for wrong, message in (
        ({"segment": None}, "segment: expected 1 column, as the calibrator's, got None"),
        ({"segment": ["a", "b"]}, r"expected 1 column, as the calibrator's, got \['a', 'b'\]"),
        ({"dialect": "cobol"}, "dialect: expected one that sqlglot knows, got 'cobol'"),
    ):
        with pytest.raises(ValueError, match=message):
            to_sql(fitted, **{"score": "f", "segment": "s", **wrong})
    with pytest.raises(ValueError, match="table: expected None for one sigmoid"):
        to_sql(Sigmoid(-1.0, 0.0), "f", table="t")
    uuids = calibrator(np.array([UUID(int=1), UUID(int=2)], object))
    for export in (to_python, to_javascript, to_onnx, lambda x: to_sql(x, "f", "s")):
        with pytest.raises(ValueError, match=r"expected (segments of|text, )"):
            export(uuids)


def test_without_onnx_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "platt_jax.export.onnx_graph", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'platt-jax\[onnx\]'"):
        to_onnx(Sigmoid(-1.0, 0.0))
