"""Columns of pandas, polars, pyarrow and DuckDB, and arrays of devices, where arrays are taken."""

import datetime as dt
import sys
from decimal import Decimal

import jax.numpy as jnp
import numpy as np
import pytest
from data import problem

import platt_jax as pj
from platt_jax import columns, ids, metrics, plots, validation
from platt_jax.results.tables import Table

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
pytest.importorskip("narwhals")

N = 60


def pandas_arrow(values):
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values)))


def chunked(values):
    return pa.chunked_array([pa.array(values[:25]), pa.array(values[25:])])


# A list of N values, None for a missing one, as a column.
CONTAINERS = {
    "pandas": pd.Series,
    "pandas, nullable": lambda values: pd.Series(values).convert_dtypes(),
    "pandas on Arrow": pandas_arrow,
    "polars": pl.Series,
    "pyarrow": pa.array,
    "pyarrow, chunked": chunked,
}
# Of these, only one is taken in a call.
DEFERRED = {
    "DuckDB": lambda values: duckdb.from_arrow(pa.table({"x": pa.array(values)})),
    "polars, lazy": lambda values: pl.LazyFrame({"x": values}),
}


@pytest.fixture(params=(CONTAINERS | DEFERRED).values(), ids=CONTAINERS | DEFERRED)
def column(request):
    return request.param


@pytest.fixture
def rows(rng):
    """Scores, labels, weights and segments of N rows, as NumPy arrays."""
    scores, labels = problem(rng, N)
    return scores, labels, rng.integers(1, 4, N), np.array(["b", "a", "ccc"])[np.arange(N) % 3]


@pytest.mark.slow
@pytest.mark.parametrize("column", CONTAINERS.values(), ids=CONTAINERS)
def test_columns_are_taken_wherever_arrays_are(rows, column):
    scores, labels, weights, segments = rows
    f, y, w, s = (column(x.tolist()) for x in rows)
    fit = pj.fit(scores, labels, weights=weights)
    assert pj.fit(f, y, weights=w) == fit
    np.testing.assert_array_equal(fit.predict_proba(f), fit.predict_proba(scores))
    calibrator = pj.fit_segments(scores, labels, segments, weights=weights)
    assert pj.fit_segments(f, y, s, weights=w) == calibrator
    assert pj.fit_segments(pj.SegmentRows(f, y, s, w)) == calibrator
    proba = calibrator.predict_proba(scores, segments)
    np.testing.assert_array_equal(calibrator.predict_proba(f, s), proba)
    np.testing.assert_array_equal(calibrator.band(f, s), calibrator.band(scores, segments))
    loss = metrics.log_loss(labels, proba, weights=weights)
    assert metrics.log_loss(y, column(proba.tolist()), weights=w) == loss
    curve = pj.fit(f, y, weights=w, curve="isotonic")
    assert curve == pj.fit(scores, labels, weights=weights, curve="isotonic")
    decision = np.stack([scores, -scores, scores**2], 1)
    assert pj.fit_one_vs_rest(decision, s) == pj.fit_one_vs_rest(decision, segments)
    assert pj.solve(f, y, weights=w) == pj.solve(scores, labels, weights=weights)


@pytest.mark.parametrize("column", DEFERRED.values(), ids=DEFERRED)
def test_a_deferred_column_is_taken_beside_arrays(rows, column):
    scores, labels, weights, segments = rows
    given = {"scores": scores, "labels": labels, "segments": segments, "weights": weights}
    calibrator = pj.fit_segments(**given)
    for name, values in given.items():
        assert pj.fit_segments(**given | {name: column(values.tolist())}) == calibrator
    proba = calibrator.predict_proba(scores, segments)
    for f, s in ((column(scores.tolist()), segments), (scores, column(segments.tolist()))):
        np.testing.assert_array_equal(calibrator.predict_proba(f, s), proba)


def test_a_null_is_a_nan(rows, column):
    scores, labels, weights, _ = rows

    def with_null(values):
        return column([None, *values.tolist()[1:]])

    omit = pj.Options(non_finite="omit")
    cases = [
        (with_null(scores), labels, None),
        (with_null(np.arange(N)), labels, None),
        (scores, with_null(labels), None),
        (scores, labels, with_null(weights)),
    ]
    if column is not pd.Series:  # which keeps Python's objects of these
        cases.append((scores, with_null(labels.astype(bool)), None))
    for f, y, w in cases:
        with pytest.warns(RuntimeWarning, match="NaN, infinite or overflowing numbers in 1 of 1"):
            assert pj.fit(f, y, weights=w).status == pj.Status.NON_FINITE
    expected = pj.fit(scores[1:], labels[1:])
    for f, y, _ in (cases[0], *cases[2:3], *cases[4:]):
        omitted = pj.fit(f, y, options=omit)
        assert omitted.n_pos + omitted.n_neg == N - 1
        np.testing.assert_allclose(omitted.A, expected.A, rtol=1e-12)


def test_a_null_among_segments_is_refused(rows, column):
    scores, labels, _, segments = rows
    numbers = np.arange(N) % 3
    days = np.arange("2020-01-01", "2020-03-01", dtype="M8[D]").astype("M8[us]").astype(object)
    for ids_ in (segments.tolist(), numbers.tolist(), days.tolist()):
        values = column([ids_[0], None, *ids_[2:]])
        message = "segments.*: expected ids, got (None|NaN|NaT|NA) at row 1; leave such rows out"
        with pytest.raises(ValueError, match=message):
            pj.fit_segments(scores, labels, values)


CODED = {
    "pandas": lambda text: pd.Series(text, dtype="category"),
    "pandas on Arrow": lambda text: pandas_arrow(text.astype(object)).astype(
        pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))
    ),
    "polars": lambda text: pl.Series(text).cast(pl.Categorical),
    "polars, Enum": lambda text: pl.Series(text).cast(pl.Enum(["zz", *np.unique(text), "yy"])),
    "pyarrow": lambda text: pa.array(text).dictionary_encode(),
    "pyarrow, chunked": lambda text: pa.chunked_array(
        [pa.array(text[:20]).dictionary_encode(), pa.array(text[20:]).dictionary_encode()]
    ),
    "pandas, text": pd.Series,
    "polars, text": pl.Series,
    "pyarrow, text": pa.array,
}


@pytest.mark.parametrize("coded", CODED.values(), ids=CODED)
def test_categories_and_text_stay_codes(rows, coded):
    scores, labels, _, segments = rows
    values = coded(segments)
    read = ids.read(values)
    assert isinstance(read, ids.Coded) and read.values.dtype.kind == "U"
    assert columns.dictionary(values) is not None  # no Python object per row
    calibrator = pj.fit_segments(scores, labels, segments)
    assert pj.fit_segments(scores, labels, values) == calibrator
    swapped = coded(segments[::-1])
    np.testing.assert_array_equal(
        calibrator.predict_proba(scores, swapped), calibrator.predict_proba(scores, segments[::-1])
    )
    with pytest.raises(ValueError, match="segments: expected ids of the kind of int64"):
        pj.fit_segments(scores, labels, np.arange(N) % 2).predict_proba(scores, values)


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(["a", None], dtype="category"),
        pl.Series(["a", None]).cast(pl.Categorical),
        pl.Series(["a", None]).cast(pl.Enum(["a"])),
        pa.array(["a", None]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
    ],
    ids=lambda values: type(values).__module__,
)
def test_categories_that_miss_one(values):
    with pytest.raises(ValueError, match=r"segments: expected ids, got .* at row 1; leave such"):
        pj.fit_segments([0.0, 1.0], [0, 1], values)


def test_nulls_in_dictionaries_of_several_chunks_are_no_values(rng):
    """NumPy reads them as values that other rows have."""
    scores, labels = rng.normal(size=6), np.array([0, 1, 0, 1, 0, 1])
    coded = pa.chunked_array([pa.array(["a", None, "b"]).dictionary_encode()] * 2)
    for segments in (coded, pa.table({"one": coded}), pa.table({"one": coded, "other": coded})):
        with pytest.raises(ValueError, match="expected ids, got None at row 1"):
            pj.fit_segments(scores, labels, segments)
    numbers = pa.chunked_array([pa.array([1, None, 0]).dictionary_encode()] * 2)
    with pytest.warns(RuntimeWarning, match="NaN"):
        assert pj.fit(scores, numbers).status == pj.Status.NON_FINITE
    with pytest.warns(RuntimeWarning, match="NaN"):
        assert pj.fit(numbers, labels).status == pj.Status.NON_FINITE


def test_a_table_is_shown_as_one():
    calibrator = pj.fit_segments([2.0, -1, 1, 0] * 20, [1, 0, 0, 1] * 20, np.arange(80) // 4)
    table = calibrator.table()
    head, *rows, last = repr(table).splitlines()
    assert head.split()[:3] == ["segment", "A", "B"] and len(rows) == 10
    assert rows[3].split()[0] == "3" and len({len(line) for line in (head, *rows)}) == 1
    assert last == "20 rows; to_pandas(), to_polars() and to_arrow() have all"
    assert table._repr_html_().count("<tr>") == 11 and "and 10 more" in table._repr_html_()


def test_a_null_in_a_dictionary_counts_where_a_row_has_it():
    dictionary = pa.array(["a", None, "b"])
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 2, 0]), dictionary)
    assert list(pj.fit_segments([0.0, 1.0, 2.0], [0, 1, 1], unused)) == ["a", "b"]
    with pytest.raises(ValueError, match="segments: expected ids, got None at row 2"):
        used = pa.DictionaryArray.from_arrays(pa.array([0, 2, 1]), dictionary)
        pj.fit_segments([0.0, 1.0, 2.0], [0, 1, 1], used)


def test_a_dictionary_may_name_a_value_twice_or_not_at_all(rows):
    scores, labels, _, segments = rows
    expected = pj.fit_segments(scores, labels, segments)
    codes = np.array([3, 0, 1])[np.arange(N) % 3]
    codes[:30] = np.array([2, 0, 1])[np.arange(30) % 3]
    values = pa.DictionaryArray.from_arrays(codes, ["a", "ccc", "b", "b", "of no row"])
    calibrator = pj.fit_segments(scores, labels, values)
    assert calibrator.fit == expected.fit and list(calibrator) == list(expected)


def test_categories_of_other_values_than_text(rows):
    scores, labels, *_ = rows
    days = np.arange("2020-01-01", "2020-01-04", dtype="M8[D]")[np.arange(N) % 3]
    for values in (days, np.arange(N) % 3, (np.arange(N) % 3) / 4):
        expected = pj.fit_segments(scores, labels, values)
        assert pj.fit_segments(scores, labels, pa.array(values).dictionary_encode()) == expected


def test_categories_that_columns_share(rows):
    """The codes of polars are places in a list of all columns' categories."""
    scores, labels, _, segments = rows
    others = pl.Series([f"other {i}" for i in range(1000)]).cast(pl.Categorical)
    values = pl.Series(segments).cast(pl.Categorical)
    assert sorted(ids.read(values).values.tolist()) == ["a", "b", "ccc"] and len(others) == 1000
    assert pj.fit_segments(scores, labels, values) == pj.fit_segments(scores, labels, segments)
    empty = values.head(0)
    assert pj.fit_segments(scores, labels, segments).predict_proba([], empty).shape == (0,)


TABLES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "pyarrow, batch": pa.record_batch,
    "DuckDB": lambda named: duckdb.from_arrow(pa.table(named)),
    "polars, lazy": pl.LazyFrame,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_segments_of_several_columns(rows, table):
    scores, labels, _, segments = rows
    device = np.arange(N) % 2
    named = {"country": segments, "device": device}
    expected = pj.fit_segments(scores, labels, pd.DataFrame(named))
    assert pj.fit_segments(scores, labels, table(named)) == expected
    swapped = table({"device": device, "country": segments})
    np.testing.assert_array_equal(
        expected.predict_proba(scores, swapped), expected.predict_proba(scores, table(named))
    )
    one = pj.fit_segments(scores, labels, table({"country": segments}))
    assert one == pj.fit_segments(scores, labels, segments)
    missing = table({"country": [None, *segments[1:].tolist()], "device": device})
    with pytest.raises(ValueError, match=r"segments, column 'country': .* got (None|NaN) at row 0"):
        pj.fit_segments(scores, labels, missing)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_tables_of_a_column_per_class(rows, table):
    scores, _, _, segments = rows
    decision = {name: scores * i for i, name in enumerate("abc")}
    expected = pj.fit_one_vs_rest(np.stack(list(decision.values()), 1), segments)
    assert pj.fit_one_vs_rest(table(decision), segments) == expected


def test_dates_and_times(rows):
    scores, labels, *_ = rows
    hours = np.arange("2020-01-01", "2020-01-04", dtype="M8[h]")[np.arange(N) % 3]
    for unit, kind in (("D", pa.date32()), ("us", pa.timestamp("us")), ("ns", pa.timestamp("ns"))):
        array = pa.array(hours.astype(f"M8[{unit}]"), kind)
        expected = pj.fit_segments(scores, labels, hours.astype(f"M8[{unit}]"))
        for values in (array, pl.Series(array), pandas_arrow(array)):
            calibrator = pj.fit_segments(scores, labels, values)
            np.testing.assert_array_equal(calibrator.keys, expected.keys)
            assert calibrator.fit == expected.fit


def test_times_with_a_zone_are_none_without(rows):
    """NumPy's reading of them has no zone, and so pandas' were found in none of the others."""
    scores, labels, *_ = rows
    hours = pd.Series(pd.date_range("2020-01-01", periods=3, tz="Europe/Berlin"))[np.arange(N) % 3]
    expected = pj.fit_segments(scores, labels, hours)
    array = pa.array(hours)
    for values in (array, pl.Series(array), pandas_arrow(array)):
        assert pj.fit_segments(scores, labels, values) == expected
        with pytest.raises(ValueError, match="times with a time zone"):
            pj.fit_segments(scores, labels, hours.dt.tz_localize(None)).predict_proba(
                scores, values
            )


def test_decimals_are_numbers(rows):
    scores, labels, *_ = rows
    decimals = [round(Decimal(x), 3) for x in scores.tolist()]
    expected = pj.fit(np.array(decimals, float), labels)
    relation = duckdb.from_arrow(pa.table({"x": pa.array(decimals)}))
    for values in (pa.array(decimals), pl.Series(decimals), pandas_arrow(decimals), relation):
        assert pj.fit(values, labels) == expected
    kinds = ("decimal32", 9), ("decimal64", 18), ("decimal128", 38), ("decimal256", 76)
    for name, digits in kinds:
        if hasattr(pa, name):  # the short ones from pyarrow 19 on
            column = pa.array(decimals, getattr(pa, name)(digits, 3))
            for values in (column, pa.chunked_array([column]), pandas_arrow(column)):
                assert pj.fit(values, labels) == expected
            with_null = pa.array([None, *decimals[1:]], column.type)
            omitted = pj.fit(with_null, labels, options=pj.Options(non_finite="omit"))
            assert omitted == pj.fit(np.array(decimals[1:], float), labels[1:])


def test_what_is_refused_is_named_with_its_column():
    numbers, text = [0.0, 1.0], ["x", "y"]
    for make in (lambda name, x: pd.Series(x, name=name), pl.Series):
        for call in (
            lambda bad: pj.fit(bad, [0, 1]),
            lambda bad: pj.fit([0.0, 1.0], [0, 1], weights=bad),
            lambda bad: pj.fit([0.0, 1.0], bad),
        ):
            with pytest.raises(ValueError, match=r"(scores|weights|labels), column 'clicks': ex"):
                call(make("clicks", text))
        with pytest.raises(ValueError, match=r"labels, column 'clicks': expected .*, got 3"):
            pj.fit(numbers, make("clicks", [1, 3]))
        with pytest.raises(ValueError, match="segments, column 'shop': expected ids, got N"):
            pj.fit_segments(numbers, [0, 1], make("shop", ["a", None]))
        with pytest.raises(ValueError, match="segments, column 'shop': expected ids of the kind"):
            pj.fit_segments(numbers, [0, 1], [1, 2]).predict_proba(numbers, make("shop", text))


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_table_of_one_column_is_no_column(table):
    scores, labels, one = [0.0, 1.0, 2.0], [0, 1, 0], table({"x": [0.0, 1.0, 0.0]})
    calibrator = pj.fit_segments(scores, labels, labels)
    for name, call in {
        "scores": lambda: pj.fit(one, labels),
        "scores ": lambda: pj.fit_segments(one, labels, labels),
        "scores  ": lambda: calibrator.predict_proba(one, labels),
        "labels": lambda: pj.fit(scores, one),
        "labels ": lambda: pj.fit_segments(scores, one, labels),
        "labels  ": lambda: pj.fit(scores, table({"x": ["a", "b", "a"]}), pos_label="a"),
        "labels   ": lambda: metrics.brier_score(one, [0.5, 0.2, 0.1]),
        "weights": lambda: pj.fit(scores, labels, weights=one),
        "proba": lambda: metrics.brier_score(labels, one),
        "proba ": lambda: plots.reliability_diagram(labels, one),
        "scores   ": lambda: plots.sigmoid(pj.fit(scores, labels), one, labels),
        "labels    ": lambda: pj.fit_one_vs_rest(np.eye(3), one),
        "weights ": lambda: pj.fit_one_vs_rest(np.eye(3), [0, 1, 2], weights=one),
        "scores    ": lambda: pj.solve(one, labels),
        "weights  ": lambda: pj.solve(scores, labels, weights=one),
    }.items():
        message = rf"pass {name.strip()}.ravel\(\), for a table its column$"
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_table_of_one_column_is_no_classifier_of_classes(table):
    with pytest.raises(ValueError, match=r"expected 1 class, one per .*; for one binary score see"):
        pj.fit_one_vs_rest(table({"x": [0.0, 1.0, 0.0]}), [0, 1, 0])


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([1, 2, 0, 3], dtype=pl.Int128),
        pl.Series(["1", "2", "0", "3"]).cast(pl.Decimal(9, 2)),
        pa.array([Decimal(x) for x in (1, 2, 0, 3)]),
        pd.Series([1, 2, 0, 3], dtype="Int64"),
    ],
    ids=["Int128", "Decimal", "arrow's decimals", "Int64"],
)
def test_solve_reads_the_columns_that_fit_reads(column):
    numbers, labels = np.array([1.0, 2.0, 0.0, 3.0]), [1, 0, 0, 1]
    expected = pj.solve(numbers, labels, weights=numbers)
    found = pj.solve(column, labels, weights=column)
    np.testing.assert_array_equal([found.A, found.B], [expected.A, expected.B])
    assert found.A.dtype == expected.A.dtype


@pytest.mark.parametrize(
    "values, message",
    [
        (pd.Series([("a", 1), ("b", 2)]), r"tuple such as \('a', 1\)"),
        (pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]), r"tuple such as \('a', 1\)"),
        (pl.Series([[1.0], [0.0]]), r"ndarray such as array\(\[1.\]\)"),
        (np.array([1.0, {"x": 1}], object), "dict such as {'x': 1}"),
        (np.array([[1.0, "a"]], object), "text such as 'a'; convert it to float"),
    ],
)
def test_objects_for_numbers_are_called_by_their_type(values, message):
    with pytest.raises(ValueError, match=f"scores: expected numbers, got dtype object: {message}"):
        pj.fit(values, [0, 1])
    with pytest.raises(ValueError, match=f"scores: expected numbers, got dtype object: {message}"):
        pj.solve(values, [0, 1])


@pytest.mark.parametrize(
    "labels", [pd.Series([("a", 1), ("b", 2)]), pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])]
)
def test_labels_that_are_tuples_of_pandas_are_named(labels):
    message = r"got dtype object: tuples; if each is a label, .*: pos_label=\('b', 2\)"
    with pytest.raises(ValueError, match=message):
        pj.fit([0.0, 1.0], labels)
    assert pj.fit([0.0, 1.0], labels, pos_label=("b", 2)).n_pos == 1
    with pytest.raises(ValueError, match=r"labels: expected bool, .*, got dtype object"):
        pj.fit([0.0, 1.0], np.array([], object))


def test_columns_of_128_bits():
    wide = pl.Series("f", [1, 2, None, 3], dtype=pl.Int128)
    labels = pl.Series([0, 1, 0, 1], dtype=pl.Int128)
    omit = pj.Options(non_finite="omit")
    expected = pj.fit([1.0, 2.0, np.nan, 3.0], [0, 1, 0, 1], options=omit)
    assert pj.fit(wide, labels, options=omit) == expected
    assert pj.fit_one_vs_rest(
        pl.DataFrame({"a": labels, "b": [0.5, 1.5, 2.5, 0.0]}), [0, 1, 0, 1]
    ) == pj.fit_one_vs_rest(np.c_[[0.0, 1, 0, 1], [0.5, 1.5, 2.5, 0.0]], [0, 1, 0, 1])
    ids = pl.Series([2**100, 2**100 + 1, 1, 1], dtype=pl.Int128)
    calibrator = pj.fit_segments(np.arange(4.0), labels, ids)
    assert calibrator.keys.tolist() == [1, 2**100, 2**100 + 1]
    assert calibrator.seen(ids).all()
    for table in (pl.DataFrame({"a": labels}), pl.DataFrame({"a": labels, "b": labels})):
        assert len(pj.fit_segments(np.arange(4.0), labels, table)) == 2
    with pytest.raises(ValueError, match="segments, column 'f': expected ids, got None at row 2"):
        pj.fit_segments(np.arange(4.0), labels, wide)


@pytest.mark.parametrize(
    "text", [pd.Series(["1", None]), pd.Series(["1", "2"]), pl.Series(["1", None]), ["1", 2.0]]
)
def test_text_for_numbers_is_called_text(text):
    message = "expected numbers, got dtype .*: text such as '1'; convert it to float, with NaN"
    with pytest.raises(ValueError, match=f"scores: {message}"):
        pj.fit(text, [0, 1])
    with pytest.raises(ValueError, match=f"weights: {message}"):
        pj.fit([0.0, 1.0], [0, 1], weights=text)
    with pytest.raises(ValueError, match=f"scores: {message}"):
        pj.solve(text, [0, 1])


def test_without_narwhals(rows, monkeypatch):
    """Only what NumPy cannot read by itself needs it."""
    monkeypatch.setitem(sys.modules, "narwhals", None)
    scores, labels, _, segments = rows
    expected = pj.fit_segments(scores, labels, segments)
    for column in (pd.Series, pl.Series, pa.array):
        assert pj.fit_segments(column(scores), column(labels), column(segments)) == expected
    with pytest.raises(ValueError, match=r"labels: expected .* with None in it; convert to"):
        pj.fit([0.0, 1.0], pl.Series([True, None]))
    message = r"a DuckDBPyRelation needs narwhals: pip install 'platt-jax\[tables\]'"
    with pytest.raises(ImportError, match=message):
        pj.fit(duckdb.sql("select 1"), labels)
    with pytest.raises(ImportError, match="a LazyFrame needs narwhals"):
        expected.predict_proba(scores, pl.LazyFrame({"x": segments}))


def test_narwhals_is_imported_for_no_array(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals", None)
    scores, labels, weights, segments = rows
    pj.fit_segments(pd.Series(scores), pd.Series(labels), pd.Series(segments), weights=weights)
    pj.fit_segments(scores, labels, np.array(["a", 1] * (N // 2), object))


def test_columns_and_arrays_of_a_cpu_are_not_copied(rng):
    scores = rng.normal(size=1000)
    for values in (jnp.asarray(scores, np.float32), pl.Series(scores), pa.array(scores)):
        assert np.shares_memory(validation.floating(values, "scores"), np.asarray(values))
    column = pd.Series(scores)
    assert np.shares_memory(validation.floating(column, "scores"), column.to_numpy())


def test_tensors_of_torch(rows):
    torch = pytest.importorskip("torch")
    scores, labels, *_ = rows
    f = torch.tensor(scores)
    assert np.shares_memory(validation.floating(f, "scores"), f.numpy())
    f.requires_grad_()
    assert np.shares_memory(validation.floating(f, "scores"), f.detach().numpy())
    numbers = np.arange(N) % 3
    expected = pj.fit_segments(scores, labels, numbers)
    assert pj.fit_segments(f, torch.tensor(labels), torch.tensor(numbers)) == expected


class OnDevice:
    """An array of a GPU, which NumPy may not read: as cupy and torch have them."""

    def __init__(self, array):
        self._array, self.dtype, self.ndim = array, array.dtype, array.ndim

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __len__(self):
        return len(self._array)


class OfCupy(OnDevice):
    def get(self):
        return self._array


OfCupy.__module__ = "cupy"


class OfTorch(OnDevice):
    def detach(self):
        return self

    def cpu(self):
        return self._array


@pytest.mark.parametrize("kind", [OfCupy, OfTorch])
def test_arrays_of_a_device(rows, kind):
    scores, labels, weights, _ = rows
    segments = np.arange(N) % 3
    arrays = (kind(x) for x in (scores, labels, segments))
    calibrator = pj.fit_segments(*arrays, weights=kind(weights))
    assert calibrator == pj.fit_segments(scores, labels, segments, weights=weights)
    np.testing.assert_array_equal(
        calibrator.predict_proba(kind(scores), kind(segments)),
        calibrator.predict_proba(scores, segments),
    )


def test_labels_by_name(rows, column):
    scores, labels, weights, segments = rows
    names = np.array(["no", "yes"])[labels]
    expected = pj.fit_segments(scores, labels, segments)
    for values in (names, names.tolist(), names.astype(object), column(names.tolist())):
        assert pj.fit_segments(scores, values, segments, pos_label="yes") == expected
        assert pj.fit(scores, values, weights=weights, pos_label="yes") == pj.fit(
            scores, labels, weights=weights
        )
        rows_ = pj.SegmentRows(scores, values, segments, pos_label="yes")
        assert pj.fit_segments(rows_) == expected
        with pytest.raises(ValueError, match="pos_label: expected none beside SegmentRows"):
            pj.fit_segments(rows_, pos_label="yes")
    numbers = column((3 - labels).tolist())
    assert pj.fit_segments(scores, numbers, segments, pos_label=2) == expected
    coded = pd.Series(names, dtype="category")
    assert pj.fit_segments(scores, coded, segments, pos_label="yes") == expected


def test_labels_by_name_of_many_problems(rows):
    scores, labels, *_ = rows
    both = np.stack([labels, 1 - labels])
    scores = np.stack([scores, scores])
    names = np.array(["n", "y"])[both]
    expected = pj.fit(scores, both)
    for values in (names, names.tolist(), pd.DataFrame(names)):
        assert pj.fit(scores, values, pos_label="y") == expected


def test_labels_of_one_name_are_of_one_class():
    none = pj.fit([0.0, 1.0, 2.0], ["no"] * 3, pos_label="yes")
    assert none.n_pos == 0 and none.n_neg == 3
    assert pj.fit([0.0, 1.0, 2.0], ["yes"] * 3, pos_label="yes").n_neg == 0


def test_labels_that_pos_label_does_not_name():
    message = r"labels: expected pos_label='Yes' and at most one other value, got 'no', 'yes'"
    with pytest.raises(ValueError, match=message):
        pj.fit([0.0, 1.0], ["no", "yes"], pos_label="Yes")
    with pytest.raises(ValueError, match=r"labels, column 'y': .*, 'd', 'e', \.\.\."):
        pj.fit(np.arange(6.0), pd.Series(list("abcdef"), name="y"), pos_label="a")
    with pytest.raises(ValueError, match=r"labels.*: expected ids, got None at row 1; leave"):
        pj.fit([0.0, 1.0], ["no", None], pos_label="no")
    for call in (pj.fit, lambda f, y: pj.fit_segments(f, y, [1, 1])):
        with pytest.raises(ValueError, match="fit_segments, the positive label: pos_label='yes'"):
            call([0.0, 1.0], ["no", "yes"])


def test_tables_go_out_to_each_library(rows):
    scores, labels, _, segments = rows
    made = pj.fit_segments(scores, labels, segments).table()
    for table in (made.to_pandas(), made.to_polars(), made.to_arrow()):
        names = getattr(table, "column_names", table.columns)
        assert list(names) == list(made)
        for name, column in made.items():
            np.testing.assert_array_equal(np.asarray(table[name]), column)


TIMES = ["M8[Y]", "M8[M]", "M8[D]", "M8[h]", "M8[25s]", "M8[s]", "M8[2us]", "M8[ns]"]


@pytest.mark.parametrize("dtype", [*TIMES, "m8[D]", "m8[s]", "m8[us]", ">i4", ">f4", "S3", "?"])
def test_ids_of_every_plain_type_go_out(dtype):
    """Units of time that a library lacks were refused, or taken for others: 25 s for 1 s."""
    column = np.array([3, 1], "i8").astype(dtype)
    table = Table(x=column)
    exact = column.astype(f"{dtype[:2]}[ns]") if dtype[1:2] == "8" else column
    for values in (table.to_polars()["x"], table.to_arrow()["x"]):
        values = np.asarray(values)
        assert (values.astype(exact.dtype) == exact).all()


def test_ids_that_are_objects_go_out_where_a_column_can_hold_them():
    made = pj.fit_segments([0.0, 1.0], [0, 1], [dt.date(2020, 1, 2), dt.date(2020, 1, 1)]).table()
    tuples = np.empty(2, object)
    tuples[:] = [Decimal("0.1"), Decimal("0.25")]
    for table in (made, Table(x=tuples)):
        name, column = next(iter(table.items()))
        assert table.to_polars()[name].to_list() == column.tolist()
        assert table.to_arrow()[name].to_pylist() == column.tolist()
    mixed = pj.fit_segments([0.0, 1.0], [0, 1], [1, "1"]).table()
    for convert in (mixed.to_polars, mixed.to_arrow):
        with pytest.raises(ValueError, match=r"column 'segment': .* has no type .*astype\(str\)"):
            convert()
    mixed["segment"] = mixed["segment"].astype(str)
    assert mixed.to_polars()["segment"].to_list() == ["1", "1"]


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_a_library_that_is_missing_is_named(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    table = Table(x=np.zeros(1))
    with pytest.raises(ImportError, match=f"needs {library}: pip install {library}"):
        {"polars": table.to_polars, "pyarrow": table.to_arrow}[library]()


@pytest.mark.parametrize("coded", CODED.values(), ids=CODED)
def test_text_that_numpy_would_cut_stays_apart(coded):
    """NumPy drops the NUL characters that end a text."""
    text = np.array(["a", "a\0", "b"] * 10, object)
    calibrator = pj.fit_segments(np.arange(30.0), np.arange(30) % 2, coded(text))
    assert list(calibrator) == ["a", "a\0", "b"]
