"""Rows in DuckDB, Parquet and SQLite: the answers are those of rows in memory."""

import datetime as dt
import sqlite3
import warnings
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data import labels_of, rows_of
from rows_elsewhere import fit_relation, predict_relation

import platt_jax as pj
from platt_jax import Flag, GaussianPrior, Options, Status, export
from platt_jax.sql import database, engines, queries, relation_rows

COLUMNS = {"score": "f", "label": "y", "segment": "s"}


def made(seed=0, rows=3000, number=30):
    """Columns of segments, among which there are odd ones."""
    rng = np.random.default_rng(seed)
    f, y, s = rows_of(rng, np.sort(rng.integers(0, number, rows)), A=-2, B=0.5)
    y[s == 3] = True  # one class
    f[s == 4] = 2.5  # constant scores
    y[s == 5] = f[s == 5] > 0  # separable
    y[s == 6] = f[s == 6] < 0.3  # reversed
    f[np.flatnonzero(s == 7)[2]] = np.nan
    w = rng.integers(0, 4, rows).astype(float)
    w[s == 8] = 0  # empty
    f[np.flatnonzero(s == 9)[1]], w[np.flatnonzero(s == 9)[1]] = np.inf, 0  # missing, so good
    return {"f": f, "y": y, "s": s, "w": w}


def plain(rows=3000, number=30):
    """Columns without anything odd."""
    rng = np.random.default_rng(0)
    f, s = rng.normal(size=rows), rng.integers(0, number, rows)
    return {"f": f, "y": labels_of(rng, 2 * f - 0.5), "s": s}


def in_duckdb(columns):
    connection = duckdb.connect()
    columns_in_arrow = pa.table(columns)  # noqa: F841 - DuckDB finds it by its name
    connection.execute("CREATE TABLE t AS SELECT * FROM columns_in_arrow")
    return {"relation": connection.table("t")}


OPENED = []  # connections that the test made


@pytest.fixture(autouse=True)
def closed():
    yield
    while OPENED:
        OPENED.pop().close()


def in_sqlite(columns, path=":memory:"):
    connection = sqlite3.connect(path)
    OPENED.append(connection)
    connection.execute(f"CREATE TABLE t ({', '.join(columns)})")
    rows = zip(*(np.asarray(x).tolist() for x in columns.values()), strict=True)
    places = ", ".join("?" for _ in columns)
    connection.executemany(f"INSERT INTO t VALUES ({places})", list(rows))
    return {"relation": "t", "connection": connection}


ENGINES = {"duckdb": in_duckdb, "sqlite": in_sqlite}


@pytest.fixture(params=ENGINES)
def put(request):
    """A function from columns to the arguments that name them in an engine."""
    return ENGINES[request.param]


def assert_equal(found, expected):
    """But for rounding, and what tells how the search went."""
    assert (found.keys == expected.keys).all() and found.keys.dtype == expected.keys.dtype
    unit = np.where(expected.fit.status == Status.EMPTY, 1, expected.fit.standard_errors[..., 0])
    unit = np.where(unit > 0, unit, 1)
    # Where the slope is 0, rounding says whether it is reversed.
    signless = np.where(np.abs(expected.fit.A) < 1e-12 * unit, int(Flag.REVERSED), 0)
    assert ((found.fit.flags | signless) == (expected.fit.flags | signless)).all()
    for name in ("status", "n_pos", "n_neg"):
        assert (getattr(found.fit, name) == getattr(expected.fit, name)).all(), name
    np.testing.assert_allclose(found.fit.A / unit, expected.fit.A / unit, atol=1e-7, rtol=0)
    for name in ("A", "B"):
        of_all = getattr(expected.fallback, name)
        np.testing.assert_allclose(getattr(found.fallback, name), of_all, rtol=1e-9)
    np.testing.assert_allclose(found.fit.nll, expected.fit.nll, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.fit.covariance, expected.fit.covariance, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.fallback_covariance, expected.fallback_covariance, rtol=1e-6)


def in_memory(columns, given):
    """The calibrator of the same rows and arguments, without an engine."""
    named = {"weights": columns["w"]} if "weight" in given else {}
    named |= {name: x for name, x in given.items() if name != "weight"}
    return pj.fit_segments(columns["f"], columns["y"], columns["s"], **named)


PRIOR = GaussianPrior(np.array([-1.0, 0]), np.eye(2))
PRIORS = GaussianPrior(np.zeros((30, 2)), np.arange(1, 31)[:, None, None] * np.eye(2))
MORE = (
    {"prior": PRIOR},
    {"prior": PRIORS},
    {"start": (-1.0, 0.0), "weight": "w"},
    {"options": Options(targets="none", max_iter=30)},
    {"options": Options(non_finite="omit", monotone=True)},
    {"options": Options(intercept=False)},
    {"options": Options.libsvm()},
)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"weight": "w"},
        {"pooling": "complete"},
        *(pytest.param(given, marks=pytest.mark.slow) for given in MORE),
    ],
    ids=lambda given: ", ".join(map(str, given)) or "plain",
)
@pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing")
def test_answers_are_those_of_rows_in_memory(put, given):
    columns = made()
    expected = in_memory(columns, given)
    found = fit_relation(**put(columns), **COLUMNS, **given)
    assert_equal(found, expected)
    assert "NON_FINITE" in str(expected) or "omit" in str(given) or "complete" in str(given)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing")
@pytest.mark.parametrize(
    "engine, outlier",
    # Rounding at 1e9 is a little coarser where XLA does not optimize.
    [("sqlite", 0.0), pytest.param("duckdb", 1e9, marks=pytest.mark.as_users)],
)
def test_partial_pooling_is_that_of_rows_in_memory(engine, outlier):
    columns = made(rows=900)
    f, y, s = (columns[name] for name in "fys")
    f[0] += outlier
    expected = pj.fit_segments(f, y, s, pooling="partial")
    found = fit_relation(**ENGINES[engine](columns), **COLUMNS, pooling="partial")
    assert (found.fit.status == expected.fit.status).all()
    for name, unit in (
        ("mean", expected.population.mean_errors),
        ("covariance", expected.population.covariance_errors.clip(1e-9)),
        ("posterior_mean", np.sqrt(np.diag(expected.population.covariance))),
        ("shrinkage", 1),
    ):
        off = getattr(found.population, name) - getattr(expected.population, name)
        np.testing.assert_allclose(off / unit, 0, atol=1e-3, err_msg=name)


@pytest.mark.slow
def test_no_population_of_one_segment(put):
    columns = plain(rows=50, number=1)
    with pytest.warns(RuntimeWarning, match="no population to estimate"):
        found = fit_relation(**put(columns), **COLUMNS, pooling="partial")
    with pytest.warns(RuntimeWarning, match="no population to estimate"):
        expected = pj.fit_segments(*(columns[name] for name in "fys"), pooling="partial")
    assert not found.population.estimated
    assert_equal(found, expected)


@pytest.mark.parametrize(
    ("names", "pos_label"), [((0, 7), 7), ((1.5, 2.5), 2.5), (("it's not", "yes"), "yes")]
)
def test_labels_of_two_names(put, names, pos_label):
    columns = plain()
    columns["y"] = np.array(names)[columns["y"].astype(int)]
    found = fit_relation(**put(columns), **COLUMNS, pos_label=pos_label)
    expected = pj.fit_segments(columns["f"], columns["y"] == pos_label, columns["s"])
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-9)
    np.testing.assert_array_equal(found.fit.n_pos, expected.fit.n_pos)


def test_a_third_label_is_refused():
    columns = plain(60)
    columns["y"] = np.array(["yes", "no", "maybe"])[np.arange(60) % 3]
    message = "label, column 'y': expected pos_label='yes' and at most one other value, got 'maybe'"
    with pytest.raises(ValueError, match=message):
        fit_relation(**in_duckdb(columns), **COLUMNS, pos_label="yes")
    with pytest.raises(ValueError, match="pos_label: expected a text or a number, got nan"):
        fit_relation(**in_duckdb(columns), **COLUMNS, pos_label=float("nan"))


@pytest.mark.slow
@pytest.mark.parametrize("coding", [bool, int, float, "minus"])
def test_labels_of_all_codings(put, coding):
    columns = plain(number=2)
    labels = columns["y"] * 2 - 1 if coding == "minus" else columns["y"].astype(coding)
    expected = pj.fit_segments(columns["f"], labels, columns["s"])
    assert_equal(fit_relation(**put(columns | {"y": labels}), **COLUMNS), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        ["b", "a", "it's", 'x"y', "; DROP TABLE t", "ß", ""],
        [3, -1, 2**60],
        [0.5, -1.25],
        [dt.date(2024, 2, 29), dt.date(1999, 1, 1)],
        [dt.datetime(2024, 2, 29, 12, 30, 1), dt.datetime(1999, 1, 1)],
        [True, False],
    ],
    ids=lambda keys: type(keys[0]).__name__,
)
def test_ids_of_any_kind(keys):
    rng = np.random.default_rng(1)
    which = rng.integers(0, len(keys), 600)
    columns = {"f": rng.normal(size=600), "y": rng.random(600) < 0.4}
    columns["s"] = pa.array([keys[i] for i in which])
    placed = in_duckdb(columns)
    found = fit_relation(**placed, **COLUMNS)
    assert_equal(found, pj.fit_segments(columns["f"], columns["y"], columns["s"]))
    rows = predict_relation(**placed, calibrator=found, score="f", segment="s").to_arrow_table()
    expected = found.predict_proba(rows["f"].to_numpy(), rows["s"])
    np.testing.assert_allclose(rows["probability"].to_numpy(), expected, rtol=1e-14)


def test_segments_of_several_columns_and_names_with_quotes(put):
    columns = plain(number=10)
    other = np.random.default_rng(2).choice(["x", "y"], 3000)
    named = {'sc"ore': columns["f"], "la bel": columns["y"], "a;b": columns["s"], "select": other}
    if put is in_sqlite:
        columns_of = {f'"{name.replace(chr(34), chr(34) * 2)}"': x for name, x in named.items()}
        placed = put(columns_of)
    else:
        placed = put(named)
    segment = ["a;b", "select"]
    found = fit_relation(**placed, score='sc"ore', label="la bel", segment=segment)
    ids = np.empty(3000, [("a;b", columns["s"].dtype), ("select", other.dtype)])
    ids["a;b"], ids["select"] = columns["s"], other
    assert_equal(found, pj.fit_segments(columns["f"], columns["y"], ids))
    predicted = predict_relation(
        **placed, calibrator=found, score='sc"ore', segment=segment
    ).fetchall()
    assert len(predicted) == 3000 and len(predicted[0]) == 5


def test_parquet_files(tmp_path):
    columns = made() | {"f": plain()["f"]}
    table = pa.table(columns)
    for i in range(3):
        pq.write_table(table.slice(1000 * i, 1000), tmp_path / f"{i}.parquet")
    found = fit_relation(str(tmp_path / "*.parquet"), **COLUMNS, weight="w")
    weights = columns["w"]
    expected = pj.fit_segments(columns["f"], columns["y"], columns["s"], weights=weights)
    assert_equal(found, expected)


@pytest.mark.parametrize("odd", ["f", "w", "o"])
@pytest.mark.parametrize(
    "how", [{}, {"pooling": "partial"}, {"options": Options(non_finite="omit")}], ids=str
)
def test_nan_in_parquet_files(tmp_path, odd, how):
    """The minimum and the maximum that the files of pyarrow state of a column leave NaN out."""
    columns = made() | {"f": plain()["f"]}
    columns["o"] = 0.1 * columns["f"]
    columns[odd] = np.where(np.arange(3000) % 200 == 7, np.nan, columns[odd])
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of segments whose rows are not finite
        found = fit_relation(
            str(tmp_path / "rows.parquet"), **COLUMNS, weight="w", offset="o", **how
        )
        expected = pj.fit_segments(
            *(columns[x] for x in "fys"), weights=columns["w"], offset=columns["o"], **how
        )
    for name in ("status", "flags", "n_pos", "n_neg"):
        np.testing.assert_array_equal(getattr(found.fit, name), getattr(expected.fit, name))
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-6)


@pytest.mark.parametrize("table", [None, "parameters"])
@pytest.mark.parametrize("threshold", [None, 0.5])
@pytest.mark.parametrize("how", [{}, {"pooling": "partial"}, {"curve": "isotonic"}])
def test_exports_give_null_for_nan_in_parquet_files(tmp_path, table, threshold, how):
    columns = plain(number=5)
    calibrator = pj.fit_segments(*(columns[x] for x in "fys"), **how)
    columns["f"] = np.where(np.arange(3000) % 200 == 7, np.nan, columns["f"])
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    written = export.to_sql(calibrator, "f", "s", table=table, threshold=threshold)
    connection = duckdb.connect()
    for statement in written.setup:
        connection.execute(statement)
    rows = f"'{tmp_path / 'rows.parquet'}' {written.join}"
    found = connection.execute(f"SELECT f, {written.expression} FROM {rows}").fetchall()
    assert len(found) == 3000
    assert all((p is None) == np.isnan(f) for f, p in found)


def test_predictions_of_odd_scores_and_unseen_segments(put):
    calibrator = pj.fit_segments([2.0, -1, 1, 0], [1, 0, 1, 0], ["a", "a", "b", "b"])
    scores = [0.3, 1e9, -1e9, np.inf, -np.inf, None, 5e2, 0.0]
    ids = ["a", "b", "a", "b", "unseen", "a", "a", None]
    rows = {"f": pa.array(scores), "s": pa.array(ids)}
    if put is in_sqlite:
        rows = {name: np.array(x.to_pylist(), object) for name, x in rows.items()}
    found = predict_relation(**put(rows), calibrator=calibrator, score="f", segment="s", name="p")
    by_score = {(f, s): p for f, s, p in found.fetchall()}
    assert by_score[None, "a"] is None
    for f, s in zip(scores, ids, strict=True):
        if f is not None:
            expected = calibrator.predict_proba([f], ["unseen" if s is None else s])[0]
            np.testing.assert_allclose(by_score[f, s], expected, rtol=1e-13, atol=1e-304)


def test_a_nan_is_predicted_where_the_score_or_the_fit_is_nan():
    calibrator = pj.fit_segments([2.0, -1, 1, 0], [1, 0, 1, 0], ["a", "a", "b", "b"])
    with pytest.warns(RuntimeWarning, match="NaN, infinite"):
        bad = pj.fit_segments([2.0, -1, np.nan, 0], [1, 0, 1, 0], ["a", "a", "b", "b"])
    rows = in_duckdb({"f": [np.nan, 1.0], "s": ["a", "b"]})
    column = partial(predict_relation, **rows, score="f", segment="s", name="p")
    assert np.isnan(column(calibrator=calibrator).fetchnumpy()["p"]).tolist() == [True, False]
    assert np.isnan(column(calibrator=bad).fetchnumpy()["p"]).all()


def test_an_engine_is_a_class_and_its_name_in_one_table(monkeypatch):
    class Wrapped:
        """A relation of another library: its type is of this file."""

        def __init__(self, relation):
            self.relation = relation

    class Another:
        """Only what `QueryEngine` declares."""

        def __init__(self, wrapped):
            engine = engines.DuckDB(wrapped.relation)
            self.run, self.columns, self.extended = engine.run, engine.columns, engine.extended
            self.held = engine.held

    rows = in_duckdb(plain())["relation"]
    with pytest.raises(ValueError, match="relation of DuckDB or SparkSQL, a Parquet path"):
        fit_relation(Wrapped(rows), **COLUMNS)
    monkeypatch.setitem(relation_rows._ENGINES, Wrapped.__module__.partition(".")[0], Another)
    assert fit_relation(Wrapped(rows), **COLUMNS) == fit_relation(rows, **COLUMNS)
    with pytest.raises(ValueError, match="relation of DuckDB or SparkSQL or Another"):
        fit_relation(3, **COLUMNS)


@pytest.fixture
def asked(monkeypatch):
    """What is asked of an engine: each query, and with how many points it is joined."""
    found = []
    for engine in (engines.DuckDB, database.Database):

        def counted(self, query, points=None, run=engine.run):
            found.append((query, None if points is None else points.num_rows))
            return run(self, query, points)

        monkeypatch.setattr(engine, "run", counted)
    return found


def test_later_passes_read_open_segments_and_no_other_columns(asked):
    columns = plain(rows=20_000, number=300)
    placed = in_duckdb(columns | {"unused": np.zeros(20_000)})
    fit_relation(**placed, **COLUMNS)
    assert len(asked) <= 7
    assert asked[1][1] == 300
    assert asked[-2][1] < 300  # the last of the search; then comes that of the loss
    read = [query.split("FROM platt_jax_rows")[0] for query, _ in asked]
    assert not any("*" in text for text in read)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("score", "segment"),
    [("hgb", "carrier"), ("nb", "dest"), ("svm", "route"), ("hgb", "tailnum"), ("nb", "flight")],
)
def test_flights_take_eight_passes(real_data, asked, score, segment):
    data = real_data("nycflights")
    columns = {"f": data[f"score_{score}"], "y": data["y"], "s": data[f"seg_{segment}"]}
    found = fit_relation(**in_duckdb(columns), **COLUMNS)
    assert found.fit.converged.all()
    assert len(asked) <= 8


# What the scores of a segment are made of, and whether the moments take a query for it.
MOVED = {
    "shifted": (lambda f: f + 1000, False),
    "scaled": (lambda f: 1e-9 * f, False),
    "far": (lambda f: 1e-3 * f + 1e9, True),
    "large": (lambda f: 1e200 * f, True),
    "tiny": (lambda f: 1e-200 * f, True),
    "large and constant": (lambda f: np.full_like(f, 1e200), True),
    "far, but one": (lambda f: np.where(np.arange(len(f)) == 7, -1e120, f), True),
    "tiny, but one": (lambda f: np.where(np.arange(len(f)) == 7, 1e-120, f), True),
    "far, with an outlier": (lambda f: np.where(np.arange(len(f)) == 7, 90, f) + 1e6, True),
    "constant": (lambda f: np.full_like(f, 1 / 3), False),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MOVED)
def test_moments_of_scores_of_any_size(put, asked, case):
    """Every other case has weights, which multiply what is added up."""
    moved, queried = MOVED[case]
    weight = "w" if list(MOVED).index(case) % 2 else None
    columns = plain(number=10)
    columns["w"] = np.random.default_rng(1).exponential(size=3000)
    own = columns["s"] == 4
    columns["f"][own] = moved(columns["f"][own])
    of_rows = columns["f"], columns["y"], columns["s"]
    expected = pj.fit_segments(*of_rows, weights=columns["w"] if weight else None)
    found = fit_relation(**put(columns), **COLUMNS, weight=weight)
    of_moments = [points for query, points in asked if "first_pos" in query and points]
    assert of_moments == [1] * queried
    assert (found.fit.status == expected.fit.status).all()
    assert (found.fit.flags == expected.fit.flags).all()
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-7)
    assert found.fit.passes[4] == expected.fit.passes[4]


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5, 2.5e7])
def test_an_outlier_is_flagged_wherever_the_scores_lie(offset):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        f, rows = rng.normal(size=20_000), 20_000
        f[0] = 300 * (0.8 + 0.1 * seed)  # its share is 0.74 at the least, 0.92 at the most
        f += offset
        columns = {"f": f, "y": rng.random(rows) < 0.5, "s": np.zeros(rows, int)}
        expected = pj.fit_segments(columns["f"], columns["y"], columns["s"])
        found = fit_relation(**in_duckdb(columns), **COLUMNS)
        assert found.fit.flags == expected.fit.flags


@pytest.mark.parametrize("how", ["engine", "connection"])
def test_sqlalchemy(tmp_path, how):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    columns = plain(rows=300, number=3)
    in_sqlite(columns, tmp_path / "rows.db")["connection"].commit()
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/rows.db")
    opened = engine if how == "engine" else engine.connect()
    found = fit_relation("t", connection=opened, **COLUMNS)
    assert_equal(found, in_memory(columns, {}))
    arguments = {"score": "f", "segment": "s", "connection": opened}
    assert len(predict_relation("t", found, **arguments).fetchall()) == 300
    if how == "connection":
        opened.close()
    engine.dispose()


def test_tables_and_transactions_of_the_user_are_left_alone(tmp_path):
    path = tmp_path / "rows.db"
    connection = in_sqlite(plain(rows=300, number=3), path)["connection"]
    connection.execute("CREATE TABLE platt_jax_points (x)")
    connection.commit()
    calibrator = fit_relation("t", connection=connection, **COLUMNS)
    arguments = {"score": "f", "segment": "s", "connection": connection}
    one = predict_relation("t", calibrator, **arguments)
    first = one.fetchone()
    other = predict_relation("t", calibrator, **arguments)
    assert other.fetchone() == first and len(one.fetchall()) == len(other.fetchall()) == 299
    assert connection.execute("SELECT * FROM platt_jax_points").fetchall() == []
    assert not connection.in_transaction
    OPENED.append(sqlite3.connect(path, timeout=0.1))
    OPENED[-1].execute("INSERT INTO t VALUES (0.5, 1, 2)")
    OPENED[-1].commit()


@pytest.mark.parametrize("name", ["r[1].parquet", "r*.parquet", "r?.parquet"])
def test_a_file_whose_name_looks_like_a_pattern(tmp_path, name):
    columns = plain(rows=300, number=3)
    for path, rows in ((name, 300), ("r1.parquet", 50), ("r22.parquet", 60)):
        part = {key: np.asarray(x)[:rows] for key, x in columns.items()}
        pq.write_table(pa.table(part), tmp_path / path)
    found = fit_relation(str(tmp_path / name), **COLUMNS)
    assert (found.fit.n_pos + found.fit.n_neg).sum() == 300


def test_a_relation_that_changes_is_refused(monkeypatch):
    columns = plain()
    connection = in_sqlite(columns)["connection"]
    derivatives = queries.derivatives

    def after_a_row_more(*arguments):
        connection.execute("INSERT INTO t VALUES (1.0, 1, 0)")
        return derivatives(*arguments)

    monkeypatch.setattr(queries, "derivatives", after_a_row_more)
    with pytest.raises(ValueError, match="relation: expected the same rows in every pass"):
        fit_relation("t", connection=connection, **COLUMNS)


BAD = {
    "no such column": ({"score": "g"}, "score: expected one of the columns"),
    "text for scores": ({"score": "text"}, "score, column 'text': expected numbers, got string"),
    "text for labels": ({"label": "text"}, "label, column 'text': expected numbers, got string"),
    "labels": ({"label": "f"}, r"label, column 'f': expected bool, \{0, 1\} or \{-1, \+1\}, got"),
    "two codings": ({"label": "both"}, "label, column 'both': expected one of the codings"),
    "weights": ({"weight": "f"}, "weight, column 'f': expected >= 0, got -"),
    "a segment twice": ({"segment": ["s", "s"]}, "segment: expected different columns"),
    "no segments": ({"segment": []}, "segment: expected at least one column"),
    "missing ids": ({"segment": "some"}, "segment, column 'some': expected ids, got NULL in 1 row"),
    "pooling": ({"pooling": "some"}, "pooling: expected"),
    "a dialect": ({"dialect": "sqlite"}, "connection, dialect: expected only beside the name"),
    "a relation": ({"relation": 3}, "relation: expected a relation of DuckDB"),
    "no files": ({"relation": "nowhere/*.parquet"}, "relation: no Parquet files at"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    changed, message = BAD[case]
    columns = plain(rows=50) | {"text": ["x"] * 50, "both": [0, -1] * 25}
    columns |= {"f": np.linspace(-1, 1, 50), "some": [None, *range(49)]}
    with pytest.raises(ValueError, match=message):
        fit_relation(**in_duckdb(columns) | COLUMNS | changed)


def test_bad_tables_of_connections():
    placed = in_sqlite({"f": ["x"], "y": [1], "s": [1]})
    with pytest.raises(ValueError, match="score, column 'f': expected numbers, got string"):
        fit_relation(**placed, **COLUMNS)
    with pytest.raises(ValueError, match="dialect: expected one that sqlglot knows"):
        fit_relation(**placed, **COLUMNS, dialect="klingon")
    with pytest.raises(ValueError, match="connection: expected one of Python's database interface"):
        fit_relation("t", connection=3, **COLUMNS)
    with pytest.raises(ValueError, match="label: expected the name of a column, got None"):
        fit_relation(duckdb.sql("SELECT 1.0 f, 1 s"), score="f", segment="s")
    with pytest.raises(ValueError, match="relation: expected rows to fit, got none"):
        fit_relation(duckdb.sql("SELECT 1.0 f, 1 y, 1 s LIMIT 0"), **COLUMNS)


def test_an_engine_predicts_the_mean_over_a_population(put):
    columns = plain(rows=300)
    pooled = pj.fit_segments(columns["f"], columns["y"], columns["s"], pooling="partial")
    rows = {"f": np.r_[columns["f"], 0.5, -0.5], "s": np.r_[columns["s"], -1, 10_000]}
    found = predict_relation(**put(rows), calibrator=pooled, score="f", segment="s").fetchall()
    scores, segments, predicted = map(np.array, zip(*found, strict=True))
    np.testing.assert_allclose(predicted, pooled.predict_proba(scores, segments), rtol=1e-7)


def test_what_an_engine_does_not_predict():
    columns = plain()
    plain_one = pj.fit_segments(columns["f"], columns["y"], columns["s"])
    for name in "yY":  # an engine takes both for one
        with pytest.raises(ValueError, match=f"name: expected a new column's name, '{name}' is"):
            predict_relation(
                **in_duckdb(columns), calibrator=plain_one, score="f", segment="s", name=name
            )
    hostile = columns | {"Platt_jax_z": columns["f"]}
    with pytest.raises(ValueError, match="rows: expected no column whose name begins with 'platt"):
        predict_relation(**in_duckdb(hostile), calibrator=plain_one, score="f", segment="s")
    names = ("platt_z", "platt_s", "platt_rows", "platt_value")
    odd = columns | {x: np.full(len(columns["f"]), 9.0) for x in names}
    for more in ({"pooling": "partial"}, {"curve": "isotonic"}):
        made = pj.fit_segments(columns["f"], columns["y"], columns["s"], **more)
        found, expected = (
            predict_relation(**in_duckdb(x), calibrator=made, score="f", segment="s")
            .project("probability")
            .fetchall()
            for x in (odd, columns)
        )
        np.testing.assert_array_equal(found, expected)
    text = columns | {"s": columns["s"].astype(str)}
    with pytest.raises(ValueError, match="segment, column 's': expected ids of the kind that was"):
        predict_relation(**in_duckdb(text), calibrator=plain_one, score="f", segment="s")
    with pytest.raises(ValueError, match="segment: expected 1 columns"):
        predict_relation(
            **in_duckdb(columns),
            calibrator=plain_one,
            score="f",
            segment=["s", "y"],
        )


@pytest.mark.parametrize("segment", [None, [], ""])
def test_rows_without_a_segment_are_refused(segment):
    with pytest.raises(ValueError, match="segment: expected at least one column, got"):
        pj.sql.rows(duckdb.sql("SELECT 1.0 AS f, 1 AS y"), score="f", label="y", segment=segment)


def test_a_relation_in_place_of_rows_is_refused():
    relation = duckdb.sql("SELECT 1.0 AS f, 1 AS y, 1 AS s")
    calibrator = pj.fit_segments([1.0, 0.0], [1, 0], [1, 1])
    for call, second in (
        (pj.sql.predict, calibrator),
        (pj.sql.monitor_sums, pj.Monitor.start(calibrator)),
    ):
        with pytest.raises(ValueError, match=r"rows: expected the result of platt_jax\.sql\.rows"):
            call(relation, second)
