"""Every calibrator at every writer: what is written predicts as `predict_proba` does."""

from contextlib import closing
from functools import cache
from itertools import product

import changes
import numpy as np
import pytest
from javascript import predicted
from levelled import levelled
from scipy.special import logit
from sql_engines import InDuckDB, InSQLite
from subjects import CURVES, covariate

import platt_jax as pj
from platt_jax import export
from platt_jax.cli.main import main

pytestmark = pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing:RuntimeWarning")

UNSEEN = 99


@cache
def calibrator(name):
    """A calibrator of the rows of `changes`, by how it was made."""
    rows = changes.original()
    columns = rows.scores, rows.labels, rows.segments
    if name in ("partial", "complete", "none"):
        return pj.fit_segments(*columns, pooling=name)
    if name in ("nested", "crossed"):
        return levelled(name, "integers")
    if name == "covariates":  # the last segment is known by its covariate alone
        few = [column[rows.segments != changes.TARGET] for column in columns]
        told = covariate(rows)
        made = pj.fit_segments(*few, pooling="partial", covariates=told)
        return made.with_segments(told)
    if name == "float32":
        return pj.fit_segments(rows.scores.astype(np.float32), *columns[1:])
    if name == "text ids":
        return pj.fit_segments(*columns[:2], [f"shop '{x}'" for x in rows.segments])
    if name == "shifted":
        return calibrator("none").shift_prior(from_rate=0.4, to_rate=0.1)
    if name == "shifted isotonic":
        return calibrator("isotonic").shift_prior(from_rate=0.4, to_rate=0.1)
    if name == "only":
        return calibrator("partial").only(np.arange(len(calibrator("partial").keys)) % 2 == 0)
    if name == "updated":
        return pj.update(calibrator("partial"), *columns)
    if name == "choose_curve":
        return pj.inference.choose_curve(
            *columns, candidates=("sigmoid", "quadratic", "bins")
        ).calibrator
    return pj.fit_segments(*columns, curve=CURVES[name])


CALIBRATORS = (
    *("none", "partial", "complete", "nested", "crossed", "float32", "text ids", "shifted"),
    *("shifted isotonic", "only", "updated", "choose_curve", "covariates", *CURVES),
)


def averaged(made):
    """Whether its probabilities are averages over curves, for which exports have fewer nodes."""
    return made.predictive() is not None


def questions(made):
    """Scores and ids: ordinary, at ties, far out, NaN; of all segments and unseen ones."""
    near = np.concatenate([changes.original().scores[::7], np.linspace(-3, 3, 21)])
    far = np.array([-1e300, -1e17, -800.0, 0.0, 800.0, 1e17, 1e300])
    scores = np.concatenate([near, far[:0] if averaged(made) else far, [np.nan]])
    keys = made.keys.tolist()
    several = made.keys.dtype.names is not None
    unseen = (UNSEEN, UNSEEN) if several else "other" if isinstance(keys[0], str) else UNSEEN
    ids = [*keys, unseen]
    rows = [(f, key) for key in ids for f in scores.tolist()]
    scores = np.array([f for f, _ in rows])
    segments = np.array([key for _, key in rows], made.keys.dtype if several else None)
    return scores, segments


def answered_by_file(made, scores, segments, folder):
    pj.save(folder / "saved.npz", made)
    return pj.load(folder / "saved.npz").predict_proba(scores, segments)


def answered_by_json(made, scores, segments, folder):
    return export.from_json(export.to_json(made)).predict_proba(scores, segments)


def answered_by_python(made, scores, segments, folder):
    module = {}
    exec(export.to_python(made), module)
    rows = zip(scores.tolist(), segments.tolist(), strict=True)
    return [module["predict_proba"](f, key) for f, key in rows]


def answered_by_javascript(made, scores, segments, folder):
    rows = zip(scores.tolist(), segments.tolist(), strict=True)
    return predicted(export.to_javascript(made), list(rows))


def answered_by_onnx(made, scores, segments, folder):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(export.to_onnx(made).SerializeToString())
    names = segments.dtype.names
    ids = {name: segments[name] for name in names} if names else {"segment": segments}
    given = {name: x.astype(object if x.dtype.kind == "U" else np.int64) for name, x in ids.items()}
    return session.run(["probability"], {"score": scores, **given})[0]


def answered_by_sql(engine, table):
    def answer(made, scores, segments, folder):
        several = segments.dtype.names is not None
        run = engine()
        known = [None if np.isnan(f) else f for f in scores.tolist()]
        ids = segments.tolist() if several else [(key,) for key in segments.tolist()]
        names = ["first", "second"] if several else ["s"]
        with closing(run.connection):
            rows = [(i, f, *key) for i, (f, key) in enumerate(zip(known, ids, strict=True))]
            run.table(rows, ["i", "f", *names])
            column = names if several else "s"
            written = export.to_sql(made, "f", column, dialect=run.dialect, table=table)
            for statement in written.setup:
                run(statement)
            found = run(f"SELECT i, {written.expression} FROM t {written.join} ORDER BY i")
        return [np.nan if p is None else p for _, p in found]

    return answer


def _table(scores, segments):
    """An Arrow table of rows, and the names of its columns of ids."""
    import pyarrow as pa

    ids = {"s": segments}
    if segments.dtype.names:
        ids = {f"s{i}": segments[name] for i, name in enumerate(segments.dtype.names)}
    return pa.table({"i": np.arange(len(scores)), "f": scores, **ids}), list(ids)


def answered_in_the_engine(made, scores, segments, folder):
    duckdb = pytest.importorskip("duckdb")
    from platt_jax import sql

    table, ids = _table(scores, segments)
    with closing(duckdb.connect()) as connection:
        rows = sql.rows(connection.from_arrow(table), score="f", segment=ids)
        found = sql.predict(rows, made).order("i").fetchall()
    return [np.nan if row[-1] is None else row[-1] for row in found]


def answered_in_the_shell(made, scores, segments, folder):
    parquet = pytest.importorskip("pyarrow.parquet")
    table, ids = _table(scores, segments)
    calibrator, rows, out = (folder / x for x in ("saved.npz", "rows.parquet", "out.parquet"))
    pj.save(calibrator, made)
    parquet.write_table(table, rows)
    columns = [option for name in ids for option in ("--segment", name)]
    command = ["apply", rows, "--calibrator", calibrator, "--score", "f", *columns, "--out", out]
    assert main([str(word) for word in command]) == 0
    return parquet.read_table(out)["probability"].to_numpy()


WRITERS = {
    "save, load": answered_by_file,
    "JSON": answered_by_json,
    "Python": answered_by_python,
    "JavaScript": answered_by_javascript,
    "ONNX": answered_by_onnx,
    "SQL expression": answered_by_sql(InDuckDB, None),
    "SQL table": answered_by_sql(InDuckDB, "cur ves"),
    "SQLite table": answered_by_sql(InSQLite, "cur ves"),
    "sql.predict": answered_in_the_engine,
    "platt-jax apply": answered_in_the_shell,
}
# The default run has a calibrator of each kind of curve.
FEW = "partial", "crossed", "text ids", "shifted isotonic", "quadratic", "bins"
CELLS = [
    pytest.param(name, writer, marks=[] if name in FEW else [pytest.mark.slow])
    for name, writer in product(CALIBRATORS, WRITERS)
]


@pytest.mark.parametrize(("name", "writer"), CELLS)
def test_what_is_written_predicts_the_same(name, writer, tmp_path):
    made = calibrator(name)
    scores, segments = questions(made)
    expected = made.predict_proba(scores, segments)
    found = np.asarray(WRITERS[writer](made, scores, segments, tmp_path), float)
    assert np.isnan(found[np.isnan(scores)]).all()
    to = 1e-6 if expected.dtype == np.float32 else 1e-11
    errors = np.full(len(expected), 1e-300)
    if averaged(made) and writer not in ("save, load", "JSON", "platt-jax apply"):
        lower, upper = (logit(p) for p in made.band(scores, segments))
        errors = documented_errors(writer, (upper - lower) / (2 * 1.959964))
    known = np.isfinite(expected)
    assert (np.abs(found - expected)[known] <= (errors + to * expected)[known]).all()


def documented_errors(writer, deviations):
    """Of the mean over curves, by the standard deviation of the log-odds (docs/howto/export.md)."""
    in_sql = "SQL" in writer
    of = {1: 2e-6, 2: 5e-4, 3: 4e-3} if in_sql else {2: 1e-7, 3: 6e-6, 5: 5e-4}
    limits = np.array(list(of))
    place = np.searchsorted(limits, deviations)
    return np.array([*of.values(), np.inf])[place]
