"""A calibrator without a segment, as `only` leaves one: all rows are in unseen segments."""

from dataclasses import replace
from uuid import UUID

import explored
import numpy as np
import pytest
from data import rows_of
from javascript import predicted
from rows_elsewhere import predict_relation

import platt_jax as pj
from platt_jax.cli import main
from platt_jax.export import from_json, to_javascript, to_json, to_onnx, to_python, to_sql
from platt_jax.inference import prior_from
from platt_jax.report import to_html

SCORES, LABELS, PLACE = rows_of(0, np.arange(64) % 4, A=-2)
SEGMENTS = {
    "text": np.array(list("abcd"))[PLACE],
    "integers": PLACE,
    "uint64": PLACE.astype(np.uint64),
    "floats": PLACE + 0.5,
    "truth": PLACE < 2,
    "dates": np.array(["2021", "2022", "2023", "2024"], "M8[D]")[PLACE],
    "times": np.array(["2021", "2022", "2023", "2024"], "M8[ns]")[PLACE],
    "bytes": np.array([b"a", b"b", b"c", b"d"])[PLACE],
    "uuids": np.array([UUID(int=int(i)) for i in PLACE], object),
    "columns": np.array([("ab"[i % 2], i) for i in PLACE], [("shop", "U1"), ("year", "i8")]),
}
ALL = pytest.mark.parametrize("kind", SEGMENTS)
NOTHING_KNOWN = pytest.warns(RuntimeWarning, match="not tested, .* their fits say too little")
POOLING = pytest.mark.parametrize("pooling", ["none", "partial"])
# Kinds of ids and pooling have nothing to do with each other.
ALL_ONCE = pytest.mark.parametrize(
    ("kind", "pooling"), [*((kind, "none") for kind in SEGMENTS), ("text", "partial")]
)


def empty(kind="text", pooling="none"):
    """Of a fit of these segments, none."""
    fitted = pj.fit_segments(SCORES, LABELS, SEGMENTS[kind], pooling=pooling)
    return fitted.only(np.zeros(len(fitted), bool))


def rows(kind="text"):
    return SCORES, LABELS, SEGMENTS[kind]


def run(command):
    """The exit status of `platt-jax` followed by these words."""
    return main(command.split())


def assert_same_curves(found, expected):
    assert found.keys.tolist() == expected.keys.tolist()
    for name in ("A", "B", "hessian", "n_pos", "n_neg", "flags", "status"):
        np.testing.assert_allclose(getattr(found.fit, name), getattr(expected.fit, name), 1e-6)


@ALL_ONCE
def test_it_predicts_as_of_unseen_segments(kind, pooling):
    fitted = empty(kind, pooling)
    unseen = fitted.fallback if pooling == "none" else fitted.population
    p = fitted.predict_proba(SCORES, SEGMENTS[kind])
    np.testing.assert_array_equal(p, unseen.predict_proba(SCORES))
    assert not fitted.seen(SEGMENTS[kind]).any()
    lower, upper = fitted.band(SCORES, SEGMENTS[kind])
    assert np.all((lower < p) & (p < upper))
    found = pj.triage(fitted, *rows(kind), against="predictions")
    assert found["rows"].sum() == 64 and np.isfinite(found["p_value"]).all()
    np.testing.assert_allclose(found["expected"].sum(), p.sum())
    if pooling == "none":  # one curve does not tell how far another may be from it
        with NOTHING_KNOWN:
            assert np.isnan(pj.triage(fitted, *rows(kind))["p_value"]).all()
        return
    # The population is as certain as with its segments.
    whole = pj.fit_segments(*rows(kind), pooling=pooling)
    unseen = pj.triage(whole, SCORES, LABELS, np.char.add("un", SEGMENTS[kind]))
    found = pj.triage(fitted, *rows(kind))
    np.testing.assert_allclose(found["p_value"], unseen["p_value"], rtol=1e-9)


@ALL_ONCE
def test_its_tables_and_files_are_empty_and_whole(kind, pooling, tmp_path):
    fitted = empty(kind, pooling)
    assert repr(fitted).splitlines()[1:] == ["  status: none", "  flags:  none"]
    assert "0 sigmoids" in fitted._repr_html_()
    table = fitted.table()
    assert {len(column) for column in table.values()} == {0}
    assert table.to_pandas().shape == table.to_polars().shape == table.to_arrow().shape
    fitted.fit.raise_if_failed()
    pj.save(tmp_path / "empty.npz", fitted)
    for read in (pj.load(tmp_path / "empty.npz"), from_json(to_json(fitted))):
        assert read == fitted
        assert read.keys.dtype == fitted.keys.dtype
        assert read.fit.hessian.shape == (0, 2, 2)
    assert len(fitted.only(np.zeros(0, bool))) == 0


def test_a_population_without_segments_says_nothing_of_its_segments():
    words = repr(empty(pooling="partial").population)
    assert words.startswith("Population of 0 segments") and "shrinkage" not in words


@pytest.mark.slow
@ALL_ONCE
def test_an_update_starts_from_nothing_or_from_the_population(kind, pooling):
    fitted = empty(kind, pooling)
    updated = pj.update(fitted, *rows(kind))
    if pooling == "none":
        assert_same_curves(updated, pj.fit_segments(*rows(kind)))
    else:
        expected = pj.fit_segments(
            *rows(kind),
            prior=updated.population.prior,
            options=pj.Options(targets="none"),
        )
        np.testing.assert_array_equal(updated.keys, expected.keys)
        np.testing.assert_allclose(updated.fit.hessian, expected.fit.hessian, rtol=1e-4)
        np.testing.assert_allclose(updated.fit.A, expected.fit.A, rtol=1e-3)


@pytest.mark.slow
@POOLING
def test_an_update_with_rows_of_no_weight_keeps_it_usable(pooling):
    fitted = empty(pooling=pooling)
    updated = pj.update(fitted, *rows(), weights=np.zeros(64))
    assert set(updated.fit.status) <= {pj.Status.EMPTY, pj.Status.CONVERGED}
    np.testing.assert_array_equal(updated.fallback, fitted.fallback)
    assert not updated.fit.n_pos.any()


@POOLING
def test_priors_from_it_know_nothing_of_any_segment(pooling):
    fitted = empty(pooling=pooling)
    assert prior_from(fitted).mean.shape == (0, 2)
    prior = prior_from(fitted, ["a", "z"])
    if pooling == "none":
        np.testing.assert_array_equal(prior.precision, np.zeros((2, 2, 2)))
    else:
        expected = fitted.population.prior
        np.testing.assert_allclose(prior.mean, [expected.mean] * 2)
        np.testing.assert_allclose(prior.precision, [expected.precision] * 2)


# --- exports --------------------------------------------------------------------------------------


@ALL
def test_exports_have_the_fallback_or_say_why_not(kind):
    fitted = replace(empty(kind, "partial"), population=None)
    expected = fitted.fallback.predict_proba(SCORES)
    module = {}
    exec(to_python(fitted), module)
    found = [module["predict_proba"](f, "unseen") for f in SCORES.tolist()]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    if kind in ("bytes", "uuids"):
        with pytest.raises(ValueError, match="segments: expected text, truth values, numbers"):
            to_javascript(fitted)
    else:
        unseen = [None, None] if kind == "columns" else None
        found = predicted(to_javascript(fitted), [(f, unseen) for f in SCORES.tolist()])
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    if kind in ("text", "integers", "uint64", "columns"):
        assert len(to_onnx(fitted).SerializeToString())
    else:
        with pytest.raises(ValueError, match="expected segments of text or integers"):
            to_onnx(fitted)


@pytest.mark.parametrize("kind", ["text", "integers"])
def test_onnx_predicts_by_the_fallback(kind):
    runtime = pytest.importorskip("onnxruntime")
    fitted = empty(kind)
    model = to_onnx(fitted).SerializeToString()
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    # The first are what a key that there must be could be taken for.
    segments = np.array(["", "a"], object) if kind == "text" else np.array([0, 1])
    (p,) = session.run(["probability"], {"score": np.array([0.5, 0.5]), "segment": segments})
    np.testing.assert_allclose(p, fitted.fallback.predict_proba([0.5, 0.5]), rtol=1e-12)


@ALL
@pytest.mark.parametrize("table", [None, "curves"])
def test_sql_has_the_fallback_or_says_why_not(kind, table):
    duckdb = pytest.importorskip("duckdb")
    pa = pytest.importorskip("pyarrow")
    fitted = empty(kind)
    segment = ["shop", "year"] if kind == "columns" else "s"
    if kind in ("times", "bytes", "uuids"):
        with pytest.raises(ValueError, match="segments: expected text, numbers, truth values or"):
            to_sql(fitted, "f", segment, table=table)
        return
    made = to_sql(fitted, "f", segment, table=table)
    assert len(made.setup) == (0 if table is None else 2)
    ids = SEGMENTS[kind]
    columns = {"s": ids} if kind != "columns" else {name: ids[name] for name in ids.dtype.names}
    with duckdb.connect() as connection:
        connection.register("t", pa.table({"f": SCORES, **columns}))
        for statement in made.setup:
            connection.execute(statement)
        found = connection.execute(f"SELECT f, {made.expression} FROM t {made.join}").fetchall()
    f, p = np.array(found).T
    np.testing.assert_allclose(p, fitted.fallback.predict_proba(f), rtol=1e-12)


@pytest.mark.parametrize("kind", sorted(set(SEGMENTS) - {"bytes", "uuids", "columns"}))
def test_a_query_predicts_by_the_fallback(kind):
    duckdb = pytest.importorskip("duckdb")
    pa = pytest.importorskip("pyarrow")

    fitted = empty(kind)
    with duckdb.connect() as connection:
        relation = connection.from_arrow(pa.table({"f": SCORES, "s": SEGMENTS[kind]}))
        predicted = predict_relation(relation, fitted, score="f", segment="s", name="p")
        f, p = np.array([(row[0], row[2]) for row in predicted.fetchall()]).T
    np.testing.assert_allclose(p, fitted.fallback.predict_proba(f), rtol=1e-12)


# --- what is seen ---------------------------------------------------------------------------------


@pytest.mark.slow
@ALL_ONCE
def test_a_report_of_it_has_the_segments_of_the_rows(kind, pooling, tmp_path):
    pytest.importorskip("matplotlib")
    fitted = empty(kind, pooling)
    to_html(tmp_path / "page.html", fitted, *rows(kind))
    statuses = explored.of_page(tmp_path / "page.html")["status"]
    assert statuses.tolist() == ["UNSEEN"] * len(np.unique(SEGMENTS[kind]))


def test_plots_of_it_say_that_there_is_none():
    pytest.importorskip("matplotlib")
    from platt_jax import plots

    fitted, pooled = empty(), empty(pooling="partial")
    for plot, message in (
        (lambda: plots.parameter_map(fitted), "fits: expected problems with parameters, got none"),
        (lambda: plots.slope_funnel(fitted), "fits: expected problems with a slope, got none"),
        (lambda: plots.shrinkage(pooled), "calibrator: expected segments with rows, got none"),
        (lambda: plots.shrinkage(pooled, fitted), "calibrator: expected segments with rows, got"),
        (
            lambda: plots.segment_sigmoids(fitted, *rows(), chosen=["a"]),
            "chosen: 'a' was not among the segments fitted",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            plot()


@pytest.mark.slow
def test_the_command_line_says_that_no_segment_is_left(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fitted = empty()
    pj.save("empty.npz", fitted)
    lines = [f"{f!r},{int(y)},{s}" for f, y, s in zip(SCORES.tolist(), *rows()[1:], strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["f,y,s", *lines]) + "\n")
    assert run("apply rows.csv --calibrator empty.npz --score f --segment s --out p.csv") == 0
    said = capsys.readouterr()
    assert "the calibrator has no segment: all rows are predicted as of an unseen one" in said.err
    assert "none of the" not in said.err
    assert "of these 64 in segments that were not fitted" in said.out
    written = (tmp_path / "p.csv").read_text().splitlines()[1:]
    p = [float(line.rsplit(",", 1)[1]) for line in written]
    np.testing.assert_allclose(p, fitted.fallback.predict_proba(SCORES))
    columns = "--score f --label y --segment s"
    for command in (
        f"triage rows.csv --calibrator empty.npz {columns} --out table.csv --against predictions",
        f"update rows.csv --calibrator empty.npz {columns} --out updated.npz",
        f"report rows.csv --calibrator empty.npz {columns} --out page.html",
        "export empty.npz --to sql --score f --segment s --out curves.sql",
        "export empty.npz --to json --out curves.json",
    ):
        assert run(command) == 0, command
    assert_same_curves(pj.load("updated.npz"), pj.fit_segments(*rows()))
