"""Promises of exports, reports and predictions in an engine: the calibrator's own answer."""

import tempfile
from pathlib import Path

import numpy as np

from platt_jax import export, report, sql
from platt_jax import triage as run_triage
from platt_jax.hypothesis_tests.verdict import verdict

from . import chance
from .cell import Cell
from .worlds import Rows

MOST = 60  # rows that a loop of Python predicts


def _narrow(made, rows: Rows, pooling: str) -> Rows:
    """Rows whose log-odds deviate by up to 2: wider averages are written down less exactly."""
    if made.population is None or not made.population.estimated:
        return rows
    lower, upper = made.band(rows.scores, rows.ids(pooling))
    return rows.where(chance.half_width(lower, upper) <= 2 * 1.96)


def _to(made, rows: Rows, of_averages: float = 1e-6) -> float:
    """How near; averages over (A, B) as the exports' docstrings say."""
    averaged = made.population is not None and made.population.estimated
    rounding = 1e-9
    if rows.scores.dtype == np.float32:
        # A f and B cancel where scores are far from 0 for their spread.
        eps, B = float(np.finfo(np.float32).eps), np.abs(np.asarray(made.fit.B, float))
        rounding = 1e-5 + eps * np.max(B, where=np.isfinite(B), initial=0) / 4
    return max(rounding, of_averages if averaged else 0)


def json(cell: Cell) -> None:
    rows = cell.world.nights[0]
    for pooling in cell.poolings("none", "complete", "partial", "nested", "crossed"):
        made = cell.bench.fitted(pooling)
        again = export.from_json(export.to_json(made))
        for name in ("predict_proba", "band"):
            one, other = (
                getattr(x, name)(rows.scores, rows.ids(pooling), offset=rows.offset)
                for x in (made, again)
            )
            cell.want_same(one, other, f"{pooling}: {name}")


def python(cell: Cell) -> None:
    rows = cell.world.nights[0]
    some = rows.where(np.arange(len(rows)) < MOST)
    for pooling in cell.poolings("none", "partial", "nested"):
        made = cell.bench.fitted(pooling)
        rows = _narrow(made, some, pooling)
        module: dict = {}
        exec(export.to_python(made), module)
        ids = rows.ids(pooling)
        ids = [tuple(x) for x in ids.tolist()] if ids.ndim > 1 else ids.tolist()
        found = [
            module["predict_proba"](f, s) for f, s in zip(rows.scores.tolist(), ids, strict=True)
        ]
        expected = made.predict_proba(rows.scores, rows.ids(pooling))
        cell.want_same(np.array(found, float), expected, pooling, _to(made, rows))


def in_engine(cell: Cell) -> None:
    """DuckDB: the expression that is exported, and `sql.predict`."""
    import duckdb
    import pyarrow

    rows = cell.world.nights[0]
    some = rows.where(np.arange(len(rows)) < 1_000)
    for pooling in ("none", "partial"):
        made = cell.bench.fitted(pooling)
        rows = _narrow(made, some, pooling)
        expected = np.asarray(made.predict_proba(rows.scores, rows.segments), float)
        columns = {"i": np.arange(len(rows)), "f": rows.scores, "s": rows.segments}
        connection = duckdb.connect()
        connection.register("t", pyarrow.table(columns))
        table = "curves" if len(made.keys) > 100 else None
        written = export.to_sql(made, "f", "s", table=table)
        for statement in written.setup:
            connection.execute(statement)
        query = f"SELECT {written.expression} AS p FROM t {written.join} ORDER BY i"
        engine = connection.execute(query).fetchnumpy()["p"]
        cell.want_same(_filled(engine), expected, f"{pooling}: to_sql", _to(made, rows, 5e-4))
        relation = sql.predict(sql.rows(connection.table("t"), score="f", segment="s"), made, "p")
        engine = relation.order("i").fetchnumpy()["p"]
        cell.want_same(_filled(engine), expected, f"{pooling}: sql.predict", _to(made, rows))


def _filled(column) -> np.ndarray:
    return np.ma.filled(np.ma.asarray(column).astype(float), np.nan)


def onnx(cell: Cell) -> None:
    try:
        import onnxruntime
    except ModuleNotFoundError:  # as for Python 3.15
        return

    for pooling in ("none", "partial"):
        made = cell.bench.fitted(pooling)
        rows = _narrow(made, cell.world.nights[0], pooling)
        if not len(rows):
            continue
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3  # errors
        text = export.to_onnx(made).SerializeToString()
        session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
        ids = rows.segments.astype(object) if rows.segments.dtype.kind == "U" else rows.segments
        given = {"score": rows.scores.astype(float), "segment": ids}
        found = session.run(["probability"], given)[0]
        expected = made.predict_proba(rows.scores, rows.segments)
        cell.want_same(found, expected, pooling, _to(made, rows))


def page(cell: Cell) -> None:
    """The report, and the sentence that it begins with."""
    rows = cell.world.nights[0]
    made = cell.bench.fitted("partial")
    judged = run_triage(made, *rows.data(), offset=rows.offset, against="predictions")
    sentence = verdict(judged, 0.05)
    flagged = int(np.sum(judged["flagged"]))
    cell.want("nan" not in sentence.lower(), sentence)
    cell.want(f"{flagged:,} of" in sentence or not flagged, f"{flagged} flagged: {sentence}")
    if rows.offset is not None:
        return  # a report takes none
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        report.to_html(path, made, *rows.data())
        text = path.read_text(encoding="utf-8")
    cell.want(len(text) > 10_000 and "</html>" in text, "no page")
