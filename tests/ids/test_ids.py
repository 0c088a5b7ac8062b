"""Segment ids of every type and in every container: one rule at the fit, later, and in files."""

import datetime as dt
import uuid
import warnings
from decimal import Decimal

import numpy as np
import pytest
from data import problem
from made_up import same

import platt_jax as pj
import platt_jax.ids.factorize
from platt_jax import ids
from platt_jax.ids.factorize import factorize
from platt_jax.ids.hashing import hashes

pd = pytest.importorskip("pandas")

UTC = dt.UTC
MISSING = {
    "None in a list": ([1, None], "None at row 1"),
    "None among text": (["a", "b", None], "None at row 2"),
    "None in an array": (np.array([None, "a"], object), "None at row 0"),
    "NaN in a list of text": (["x", float("nan")], "NaN at row 1"),
    "NaN in a list": ([1.0, float("nan")], "NaN at row 1"),
    "NaN in an array": (np.array([np.nan, 1]), "NaN at row 0"),
    "NaT in an array": (np.array(["2020", "NaT"], "M8[D]"), "NaT at row 1"),
    "NaT of pandas": ([pd.Timestamp("2020"), pd.NaT], "NaT at row 1"),
    "NA of pandas": (pd.Series([1, None], dtype="Int64"), "(NA|NaN) at row 1"),
    "NA in a list": (["a", pd.NA], "NA at row 1"),
    "text of pandas": (pd.Series(["a", None], dtype="string"), "(NA|NaN) at row 1"),
    "categorical": (pd.Categorical(["a", None]), "a missing one at row 1"),
    "a Series of a categorical": (
        pd.Series(["a", None], dtype="category"),
        "a missing one at row 1",
    ),
    "masked": (np.ma.masked_array([1, 2], [False, True]), "a masked entry at row 1"),
    "in a tuple": ([("DE", 1), ("DE", None)], "None at row 1"),
    "in a DataFrame": (pd.DataFrame({"a": [1, 2], "b": ["x", None]}), "(None|NaN) at row 1"),
}

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # NumPy 2.5 is about to refuse them
    WITHOUT_UNIT = [np.timedelta64(1), np.timedelta64(2)]


@pytest.mark.parametrize("values", [x for x, _ in MISSING.values()], ids=MISSING)
def test_a_missing_id_is_refused_at_the_fit(values):
    message = next(message for x, message in MISSING.values() if x is values)
    labels = np.arange(len(values)) % 2
    with pytest.raises(ValueError, match=f"segments.*: expected ids, got {message}"):
        pj.fit_segments(np.arange(1.0, len(values) + 1), labels, values)


def test_a_missing_id_is_refused_at_predictions(rng):
    by_number = pj.fit_segments(*problem(rng, 20), np.arange(20) % 2)
    by_text = pj.fit_segments(*problem(rng, 20), np.array(["a", "b"] * 10))
    for calibrator in (by_number, by_text):
        for values in ([1, None], np.array([1, np.nan]), pd.Series(["a", None]), [pd.NA, "a"]):
            with pytest.raises(ValueError, match="segments: expected ids, got N"):
                calibrator.predict_proba(np.zeros(2), values)
        with pytest.raises(ValueError, match="segments: expected one per row, got None"):
            calibrator.predict_proba(np.zeros(2), None)


# Two ids each, as someone may hand them over, and as they are found again.
TYPES = {
    "numbers and text": [1, "1"],
    "dates": [dt.date(2020, 1, 2), dt.date(2020, 1, 1)],
    "datetimes": [dt.datetime(2020, 1, 2, 3), dt.datetime(2020, 1, 1)],
    "timestamps": [pd.Timestamp("2020-01-02"), pd.Timestamp("2020-01-01 00:00:00.000000001")],
    "dates and timestamps": [dt.date(2020, 1, 2), pd.Timestamp("2020-01-01")],
    "times with a zone": [dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2020, 1, 2, tzinfo=UTC)],
    "timestamps with a zone": [pd.Timestamp(f"2020-01-0{i}", tz="Europe/Berlin") for i in (1, 2)],
    "durations": [dt.timedelta(1), dt.timedelta(2)],
    "Decimal": [Decimal("0.1"), Decimal("0.2")],
    "UUID": [uuid.UUID(int=2), uuid.UUID(int=1)],
    "large integers": [2**64, 2**64 + 1],
    "unsigned integers": [2**64 - 1, 2**64 - 2],
    "integers and floats": [2**53 + 1, 0.5],
    "booleans": [True, False],
    "bytes": [b"a", b"b"],
    "text that ends in NUL": ["a", "a\0"],
    "very long text": ["a" * 10_000, "b"],
    "tuples": [("DE", 1), ("DE", 2)],
    "tuples of dates": [(dt.date(2020, 1, 1), "a"), (dt.date(2020, 1, 2), "a")],
    "tuples of mixed types": [(1, "a"), ("1", "a")],
    "tuples of two lengths": [("DE",), ("DE", 2)],
    "tuples of one": [("DE",), ("FR",)],
    "numpy scalars": [np.int64(3), np.int64(4)],
}


@pytest.mark.parametrize("pair", TYPES.values(), ids=TYPES)
def test_ids_of_any_type_are_told_apart_found_and_saved(rng, tmp_path, pair):
    scores, labels = problem(rng, 40)
    which = rng.permutation(np.arange(40) % 2)
    rows = [pair[i] for i in which]
    objects = np.empty(40, object)
    objects[:] = rows
    expected = pj.fit_segments(scores, labels, which)
    for values in (rows, objects, pd.Series(rows, dtype=object)):
        calibrator = pj.fit_segments(scores, labels, values)
        assert len(calibrator) == 2
        own = [calibrator[one].A for one in pair]
        np.testing.assert_allclose(own, expected.fit.A)
        assert all(one in calibrator for one in pair)
        pj.save(tmp_path / "file.npz", calibrator)
        loaded = pj.load(tmp_path / "file.npz")
        assert loaded == calibrator and repr(loaded) == repr(calibrator)
        assert len(calibrator.table().to_pandas()) == 2 and "CONVERGED" in calibrator._repr_html_()
        for one in (calibrator, loaded):
            np.testing.assert_allclose(
                one.predict_proba(scores, values), expected.predict_proba(scores, which)
            )


def test_what_no_file_could_hold_is_refused_before_the_fit():
    for value in (frozenset("a"), object(), int, 1j * np.ones(1)[0]):
        values = np.array([value, "a"], object)
        with pytest.raises(ValueError, match=r"segments: .*a file can hold .*convert them to text"):
            pj.fit_segments([0.0, 1.0], [0, 1], values)


def several_columns(rng):
    """Ids of 30 combinations: as codes, and in each container of several columns."""
    country, device = rng.integers(0, 10, 600), rng.integers(0, 3, 600)
    names = np.array([f"country {i}" for i in range(10)])[country]
    both = pd.DataFrame({"country": names, "device": device})
    return country * 3 + device, {
        "tuples": list(zip(names.tolist(), device.tolist(), strict=True)),
        "lists": [[a, b] for a, b in zip(names.tolist(), device.tolist(), strict=True)],
        "an array of integers": np.stack([country, device], axis=1),
        "an array of text": np.stack([names, device.astype(str)], axis=1),
        "an array of objects": both.to_numpy(),
        "a DataFrame": both,
        "a DataFrame of categories": both.astype("category"),
        "a MultiIndex": pd.MultiIndex.from_frame(both),
        "a structured array": both.to_records(index=False, column_dtypes={"country": "U12"}),
    }


def test_ids_of_several_columns(rng, tmp_path):
    scores, labels = problem(rng, 600)
    codes, containers = several_columns(rng)
    expected = pj.fit_segments(scores, labels, codes)
    proba = expected.predict_proba(scores, codes)
    for kind, values in containers.items():
        calibrator = pj.fit_segments(scores, labels, values)
        assert calibrator.keys.shape == (30,) and len(calibrator.keys.dtype) == 2, kind
        np.testing.assert_array_equal(calibrator.fit.A, expected.fit.A)
        np.testing.assert_array_equal(calibrator.predict_proba(scores, values), proba)
        np.testing.assert_array_equal(
            calibrator.predict_proba(scores[:30], calibrator.keys)[:1],
            calibrator[tuple(calibrator.keys[0].tolist())].predict_proba(scores[:1]),
        )
        pj.save(tmp_path / "file.npz", calibrator)
        assert same(pj.load(tmp_path / "file.npz"), calibrator)


def test_columns_are_found_by_name_or_position_and_unseen_ones_take_the_fallback(rng):
    scores, labels = problem(rng, 600)
    _, containers = several_columns(rng)
    frame = containers["a DataFrame"]
    calibrator = pj.fit_segments(scores, labels, frame)
    assert calibrator.keys.dtype.names == ("country", "device")
    table = calibrator.table()
    assert list(table)[:3] == ["country", "device", "A"] and table["device"].shape == (30,)
    proba = calibrator.predict_proba(scores, frame)
    swapped = calibrator.predict_proba(scores, frame[["device", "country"]])
    np.testing.assert_array_equal(swapped, proba)
    np.testing.assert_array_equal(calibrator.predict_proba(scores, containers["tuples"]), proba)
    one = ("country 3", 1)
    np.testing.assert_array_equal(
        calibrator.predict_proba(scores[:5], one), calibrator[one].predict_proba(scores[:5])
    )
    fallback = calibrator.fallback.predict_proba(scores[:3])
    unseen = [("country 3", 7), ("nowhere", 1), ("nowhere", 7)]
    np.testing.assert_allclose(calibrator.predict_proba(scores[:3], unseen), fallback)
    with pytest.raises(ValueError, match=r"expected ids of the columns .*'device'.*got one id per"):
        calibrator.predict_proba(scores, frame["country"])
    with pytest.raises(ValueError, match="column 'device': expected ids of the kind of int64"):
        calibrator.predict_proba(scores[:1], [("country 3", "1")])
    plain = pj.fit_segments(scores, labels, frame["country"])
    with pytest.raises(ValueError, match="expected one id per row, as fitted, got 2 columns"):
        plain.predict_proba(scores, frame)


def test_ids_that_a_result_lists_are_found_in_it(rng, tmp_path):
    scores, labels = problem(rng, 600)
    _, containers = several_columns(rng)
    frame = containers["a DataFrame"].assign(
        day=np.datetime64("2020-01-01T00:00:00.000000001") + rng.integers(0, 2, 600)
    )
    for values in (frame, containers["tuples"], [("a",), ("b",)] * 300, ["x", 1] * 300):
        calibrator = pj.fit_segments(scores, labels, values)
        pj.save(tmp_path / "file.npz", calibrator)
        for one in (calibrator, pj.load(tmp_path / "file.npz")):
            assert all(key in one for key in one)
            assert [one[key].A for key in one] == calibrator.fit.A.tolist()
            own = one.fit.sigmoid.predict_proba(np.zeros((len(one), 1)))[:, 0]
            np.testing.assert_allclose(one.predict_proba(np.zeros(len(one)), list(one)), own)


def test_no_rows_have_ids_of_any_kind(rng):
    scores, labels = problem(rng, 600)
    _, containers = several_columns(rng)
    several = pj.fit_segments(scores, labels, containers["a DataFrame"])
    for calibrator in (several, pj.fit_segments(scores, labels, ["a", "b"] * 300)):
        for none in ([], np.zeros(0), pd.Series([]), containers["a DataFrame"][:0]):
            assert calibrator.predict_proba([], none).shape == (0,)


def test_tables_of_pyarrow_are_several_columns(rng):
    pyarrow = pytest.importorskip("pyarrow")
    scores, labels = problem(rng, 600)
    frame = several_columns(rng)[1]["a DataFrame"]
    calibrator = pj.fit_segments(scores, labels, frame)
    table = pyarrow.table({name: frame[name].to_numpy() for name in frame})
    assert pj.fit_segments(scores, labels, table) == calibrator
    one = pj.fit_segments(scores, labels, table.select(["country"]))
    assert one == pj.fit_segments(scores, labels, frame["country"])


def test_columns_that_are_none(rng):
    """A column of tuples made a file that could not be read."""
    scores, labels = problem(rng, 4)
    tuples = pd.DataFrame({"a": [("DE", 1), ("DE", 2)] * 2, "b": [1, 2, 3, 4]})
    with pytest.raises(ValueError, match="segments, column 'a': expected one id per row"):
        pj.fit_segments(scores, labels, tuples)
    with pytest.raises(ValueError, match="expected columns of distinct names, none empty"):
        pj.fit_segments(scores, labels, tuples.rename(columns={"a": ""}))
    records = np.array([("a", 1), ("b", 2)] * 2, [("x", "U1"), ("y", int)])
    masked = np.ma.masked_array(records, [(False, False), (False, True)] * 2)
    with pytest.raises(ValueError, match=r"segments, column 'y': .*got a masked entry at row 1"):
        pj.fit_segments(scores, labels, masked)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ([np.timedelta64(1, "Y"), np.timedelta64(1, "D")], "got a timedelta64; convert"),
        (WITHOUT_UNIT, "segments: expected hashable ids"),
    ],
)
def test_durations_that_no_file_could_hold(rng, pair, message):
    with pytest.raises(ValueError, match=f"segments: .*{message.removeprefix('segments: ')}"):
        pj.fit_segments(*problem(rng, 4), pair * 2)


def test_columns_with_names_of_the_table_keep_both(rng):
    frame = pd.DataFrame({"A": [1, 2] * 10, "status": ["x"] * 20})
    table = pj.fit_segments(*problem(rng, 20), frame).table()
    assert list(table)[:3] == ["segment_A", "segment_status", "A"]
    assert table["segment_A"].tolist() == [1, 2] and table["status"].tolist() == ["CONVERGED"] * 2


def test_more_combinations_than_a_table_has_room_for(rng):
    columns = rng.integers(0, 10**6, (3000, 4))
    rows = ids.read(np.concatenate([columns, columns]))
    from platt_jax.ids.factorize import factorize
    from platt_jax.ids.indexing import get_indexer

    numbers = factorize(rows)
    keys = numbers.named(np.arange(numbers.numbers))
    np.testing.assert_array_equal(keys, np.unique(keys))
    found = get_indexer(keys, rows)
    np.testing.assert_array_equal(
        np.stack([keys[x] for x in keys.dtype.names], 1)[found[:3000]], columns
    )


def test_columns_whose_combinations_are_more_than_integers(rng):
    """Of nine columns with 256 ids each the first one went with the 65th bit."""
    from platt_jax.ids.indexing import get_indexer

    columns = np.stack([rng.permutation(256) for _ in range(9)], 1)
    keys = ids.structured([f"c{i}" for i in range(9)], list(columns.T))
    assert get_indexer(keys, ids.read(columns)).tolist() == list(range(256))
    for column in range(9):
        others = columns.copy()
        others[:, column] = np.roll(others[:, column], 1)
        assert (get_indexer(keys, ids.read(others)) == -1).all()


def test_ids_are_found_by_value_and_refused_where_none_could_be_equal(rng):
    scores, labels = problem(rng, 40)
    by_number = pj.fit_segments(scores, labels, np.arange(40) % 2)
    first, second = (by_number[i].predict_proba(scores[0]) for i in (0, 1))
    for values in ([1.0], [True], np.array([1], np.uint8), [Decimal(1)], np.float32([1])):
        assert by_number.predict_proba(scores[:1], values) == second
    assert by_number.predict_proba(scores[:1], [-0.0]) == first
    fallback = by_number.fallback.predict_proba(scores[0])
    for values in ([2.0], [2**70], [1e300], [-1]):
        assert by_number.predict_proba(scores[:1], values) == pytest.approx(fallback)
    for value in (1.5, -0.3, "1", b"1", dt.date(2020, 1, 1), (1, 2), np.timedelta64(1, "D")):
        with pytest.raises(ValueError, match="segments: expected "):
            by_number.predict_proba(scores[:1], [value])
        assert value not in by_number

    days = np.array(["2020-01-01", "2020-01-02"], "M8[D]")
    by_day = pj.fit_segments(scores, labels, days[np.arange(40) % 2])
    for value in (dt.date(2020, 1, 2), dt.datetime(2020, 1, 2), pd.Timestamp("2020-01-02")):
        for values in ([value], pd.Series([value]), pd.Series([value], dtype=object), value):
            assert by_day.predict_proba(scores[:1], values) == second
    for values in (["2020-01-02"], [18263], [dt.datetime(2020, 1, 2, tzinfo=UTC)]):
        with pytest.raises(ValueError, match="segments: expected ids of the kind of datetime64"):
            by_day.predict_proba(scores[:1], values)

    by_float = pj.fit_segments(scores, labels, np.array([0.5, 2.0**53])[np.arange(40) % 2])
    assert 2**53 in by_float and 2**53 + 1 not in by_float and 0 not in by_float


def test_results_by_id_are_mappings(rng):
    scores, labels = problem(rng, 40)
    calibrator = pj.fit_segments(scores, labels, np.array(["b", "a"] * 20))
    assert len(calibrator) == 2 and list(calibrator) == ["a", "b"]
    assert "a" in calibrator and "c" not in calibrator and 1 not in calibrator
    assert isinstance(calibrator["a"], pj.Fit) and calibrator["a"].A == calibrator.fit.A[0]
    with pytest.raises(KeyError, match="segment 'c' was not fitted"):
        calibrator["c"]
    classes = np.arange(40) % 3
    columns = rng.normal(size=(40, 3)) + np.eye(3)[classes]
    one = pj.fit_one_vs_rest(columns, classes + 5)
    assert len(one) == 3 and 6 in one and 8 not in one and one[7].A == one.fit.A[2]
    shuffled = pj.fit_one_vs_rest(columns[:, [2, 0, 1]], classes + 5, classes=[7, 5, 6])
    assert shuffled[5].A == one[5].A and list(shuffled) == [7, 5, 6]
    mixed = pj.fit_one_vs_rest(columns, [["x", 1, "1"][i] for i in classes], classes=["x", 1, "1"])
    np.testing.assert_array_equal(mixed.fit.A, one.fit.A)


def test_a_hash_that_two_texts_share_merges_nothing(monkeypatch):
    monkeypatch.setattr(platt_jax.ids.factorize, "_HASH_FACTOR", np.uint64(0))
    values = np.array(["a" * 20, "b" * 20, "a" * 20])
    found = platt_jax.ids.factorize.factorize(values)
    assert found.of(slice(None)).tolist() == [0, 1, 0]
    assert found.named(np.arange(2)).tolist() == ["a" * 20, "b" * 20]


def _objects(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


_HOUR_EAST = dt.timezone(dt.timedelta(hours=1))
EQUAL_IDS = {
    "integers": [np.array([1], kind) for kind in ("i1", "i8", "u8", "f4", "f8", "c16", "?")]
    + [np.array([1], np.longdouble), _objects(True), _objects(Decimal("1.00"))],
    "fractions": [np.array([0.5]), np.array([0.5], "f2"), _objects(Decimal("0.50"))],
    "zeros": [np.array([0]), np.array([-0.0]), _objects(Decimal("-0.0"))],
    "large integers": [np.array([2**63], "u8"), np.array([2.0**63]), _objects(Decimal(2**63))],
    "larger ones": [_objects(2**70 + 1), _objects(Decimal(2**70 + 1))],
    "decimals": [_objects(Decimal("0.1")), _objects(Decimal("0.100"))],
    "huge decimals": [_objects(Decimal("1E+999999")), _objects(Decimal("10E+999998"))],
    "infinities": [np.array([np.inf]), _objects(Decimal("Infinity"))],
    "dates": [np.array(["2020-01-01"], f"M8[{unit}]") for unit in ("Y", "M", "D", "s", "us", "ns")]
    + [_objects(dt.date(2020, 1, 1)), np.array(["2020-01-01"], "M8[12h]")],
    "times": [np.array(["1950-03-01T12:30"], f"M8[{unit}]") for unit in ("m", "s", "ns")]
    + [_objects(dt.datetime(1950, 3, 1, 12, 30))],
    "years far away": [np.array(["-20000"], "M8[Y]"), np.array(["-20000-01-01"], "M8[s]")],
    "times with a time zone": [
        _objects(dt.datetime(2020, 1, 1, 1, tzinfo=_HOUR_EAST)),
        _objects(dt.datetime(2020, 1, 1, tzinfo=UTC)),
    ],
    "durations": [np.array([48], "m8[h]"), np.array([2], "m8[D]"), _objects(dt.timedelta(2))],
    "months": [np.array([2], "m8[Y]"), np.array([24], "m8[M]")],
    "tuples": [
        np.array([(1, "a")], [("x", "i8"), ("y", "U1")]),
        np.array([(1.0, "a")], [("z", "f4"), ("y", "U3")]),
        _objects((True, "a")),
    ],
}


@pytest.mark.parametrize("equal", EQUAL_IDS.values(), ids=EQUAL_IDS)
def test_equal_ids_have_equal_hashes(equal):
    assert len({hashes(keys)[0] for keys in equal}) == 1


def test_other_ids_have_other_hashes():
    different = [keys[0] for keys in EQUAL_IDS.values()]
    different += [_objects("1"), _objects(b"1"), np.array([-1]), np.array([-2])]
    found = {int(hashes(keys)[0]) for keys in different}
    assert len(found) == len(different)
    # What replicates and p-values of segments were drawn with before, they still are.
    assert hashes(np.array(["shop"]))[0] == 12871717382946222603
    assert hashes(np.array([7]))[0] == 9407870976149377255
    assert hashes(np.array([(3, "a")], "i8,U1"))[0] == 12410325013023751702


@pytest.mark.parametrize("length", [1, 9])
def test_characters_with_the_same_low_byte_are_two(length):
    ids = np.array(["A" * length, "\u0141" * length] * 3)
    rows = factorize(ids)
    assert rows.named(rows.of(slice(None))).tolist() == ids.tolist()
