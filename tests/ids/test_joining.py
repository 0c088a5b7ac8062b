"""Ids of several arrays become those of one: none is merged, none becomes another."""

import datetime as dt
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows_elsewhere import fit_stored, predict_relation

import platt_jax as pj
from platt_jax import ids
from platt_jax.distributed import exchange
from platt_jax.ids.indexing import get_indexer

pd = pytest.importorskip("pandas")

BIG = 2**53
DAYS = np.array(["2020-01-01", "9999-12-31"], "M8[D]")
NANOSECONDS = np.array(["2020-01-01T00:00:00.5", "1816-03-29T05:56:08.066277376"], "M8[ns]")


def objects(*values):
    return np.fromiter(values, object, len(values))


# Arrays, the dtype of all their ids, and these.
JOINED = {
    "signed and unsigned": (
        [np.array([BIG, BIG + 1]), np.array([BIG, 2**63 - 1], np.uint64)],
        np.int64,
        [BIG, BIG + 1, BIG, 2**63 - 1],
    ),
    "large unsigned": (
        [np.array([BIG + 1]), np.array([2**64 - 1], np.uint64)],
        np.uint64,
        [BIG + 1, 2**64 - 1],
    ),
    "negative and large": (
        [np.array([-1, BIG + 1]), np.array([2**64 - 1], np.uint64)],
        object,
        [-1, BIG + 1, 2**64 - 1],
    ),
    "none beside": ([np.array([BIG + 1]), np.zeros(0)], np.int64, [BIG + 1]),
    "none before": ([np.zeros(0, "U3"), np.array([1])], np.int64, [1]),
    "none at all": ([np.zeros(0, "U3"), np.zeros(0)], "U3", []),
    "whole floats": ([np.array([1]), np.array([2.0, -0.0])], np.int64, [1, 2, 0]),
    "fractions": ([np.array([1]), np.array([0.5])], np.float64, [1, 0.5]),
    "a fraction and a large one": (
        [np.array([BIG + 1]), np.array([0.5])],
        object,
        [BIG + 1, 0.5],
    ),
    "infinite": ([np.array([1]), np.array([np.inf])], np.float64, [1, np.inf]),
    "a float beyond integers": (
        [np.array([2**63 - 1]), np.array([2.0**63])],
        np.uint64,
        [2**63 - 1, 2**63],
    ),
    "floats": ([np.float32([0.1]), np.array([0.1])], np.float64, [float(np.float32(0.1)), 0.1]),
    "booleans": ([np.array([True]), np.array([2])], np.int64, [1, 2]),
    "text": ([np.array(["a"]), np.array(["long"])], "U4", ["a", "long"]),
    "bytes": ([np.array([b"a"]), np.array([b"long"])], "S4", [b"a", b"long"]),
    "numbers and text": ([np.array([1]), np.array(["1"])], object, [1, "1"]),
    "objects": ([objects(1, "1"), np.array([2.5])], object, [1, "1", 2.5]),
    "tuples of two lengths": (
        [objects(("a",), ("a", 1)), np.array([("b", 2)], [("x", "U1"), ("y", int)])],
        object,
        [("a",), ("a", 1), ("b", 2)],
    ),
    "days and seconds": (
        [DAYS[:1], np.array(["2020-01-01T01"], "M8[s]")],
        "M8[s]",
        [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 1)],
    ),
    "far days": (
        [DAYS, NANOSECONDS[:1]],
        "M8[us]",
        [
            dt.datetime(2020, 1, 1),
            dt.datetime(9999, 12, 31),
            dt.datetime(2020, 1, 1, 0, 0, 0, 500000),
        ],
    ),
    "dates of Python beside days": (
        [objects(dt.date(2020, 1, 1), dt.datetime(2020, 1, 1)), DAYS[1:]],
        object,
        [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), dt.date(9999, 12, 31)],
    ),
    "durations": (
        [np.array([300_000], "m8[D]"), np.array([5 * 10**9], "m8[ns]")],
        "m8[us]",
        [dt.timedelta(300_000), dt.timedelta(seconds=5)],
    ),
    "columns": (
        [
            np.array([("a", BIG + 1)], [("x", "U1"), ("y", np.int64)]),
            np.array([(BIG, "long")], [("y", np.uint64), ("x", "U4")]),
        ],
        [("x", "U4"), ("y", np.int64)],
        [("a", BIG + 1), ("long", BIG)],
    ),
    "columns of other names": (
        [np.array([("a", 1)], [("x", "U1"), ("y", int)]), np.array([("b", 2.0)], "U1,f8")],
        [("x", "U1"), ("y", np.int64)],
        [("a", 1), ("b", 2)],
    ),
}


@pytest.mark.parametrize("parts, dtype, expected", JOINED.values(), ids=JOINED)
def test_ids_of_several_arrays_in_one(parts, dtype, expected):
    joined = ids.join(parts)
    assert joined.dtype == np.dtype(dtype)
    assert joined.tolist() == expected


@pytest.mark.parametrize(
    "parts, message",
    [
        (
            [DAYS, NANOSECONDS],
            r"segments: expected ids that fit one unit.*datetime64\[D\] and datetime",
        ),
        ([np.array([1], "m8[M]"), np.array([30], "m8[D]")], "segments: .* fit one unit"),
        ([np.array(["a"]), np.array([1], "m8[D]")], "segments: .*a file can hold"),
        ([objects("a"), NANOSECONDS], "segments: .*a file can hold"),
    ],
)
def test_ids_that_no_array_holds_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        ids.join(parts)


PER_SECOND = {"D": Fraction(1, 86_400), "s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_times_of_any_units_are_joined_and_found_exactly(data):
    """Seconds as fractions are the truth."""
    parts, truth = [], []
    for _ in range(2):
        unit = data.draw(st.sampled_from(list(PER_SECOND)))
        size = data.draw(st.sampled_from([10, 10**6, 2**62]))
        counts = data.draw(st.lists(st.integers(-size, size), min_size=1, max_size=4, unique=True))
        if data.draw(st.booleans()) and unit != "D":
            counts = sorted({86_400 * PER_SECOND[unit] * (x % 1000) for x in counts})
        parts.append(np.sort(np.array(counts, "i8").view(f"M8[{unit}]")))
        truth.append([Fraction(int(x)) / PER_SECOND[unit] for x in parts[-1].view("i8")])
    places = [truth[0].index(x) if x in truth[0] else -1 for x in truth[1]]
    assert get_indexer(parts[0], parts[1]).tolist() == places
    try:
        joined = ids.join(parts)
    except ValueError:
        assert len({part.dtype for part in parts}) == 2
        return
    unit = np.datetime_data(joined.dtype)[0]
    assert [Fraction(int(x)) / PER_SECOND[unit] for x in joined.view("i8")] == truth[0] + truth[1]


numbers = st.sampled_from([0, 1, -1, BIG - 1, BIG, BIG + 1, 2**63 - 1, 2**63, 2**64 - 1])


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_numbers_of_any_types_are_joined_exactly(data):
    parts = []
    for _ in range(3):
        dtype = np.dtype(data.draw(st.sampled_from(["i1", "i4", "i8", "u1", "u8", "f4", "f8"])))
        values = data.draw(st.lists(numbers, max_size=4))
        if dtype.kind in "iu":
            ends = np.iinfo(dtype)
            values = [x for x in values if ends.min <= x <= ends.max]
        else:
            values += data.draw(st.sampled_from([[], [0.5]]))
        parts.append(np.array(values, dtype))
    joined = ids.join(parts)
    given_ids = [x for part in parts for x in part.tolist()]
    assert joined.tolist() == given_ids
    whole = all(x == int(x) and -(2**63) <= x < 2**63 for x in given_ids)
    of_integers = any(part.dtype.kind in "iu" and len(part) for part in parts)
    assert not (whole and of_integers) or joined.dtype.kind in "iu"


def test_an_update_merges_no_keys():
    rows = [0.5, 1.0, -0.3, 2.0], [1, 0, 0, 1]
    before = pj.fit_segments(*rows, np.array([BIG, BIG, BIG + 1, BIG + 1]))
    for other in (np.uint64, np.int64):
        after = pj.update(before, [0.5, 1.0], [1, 0], np.array([BIG, BIG + 1], other))
        assert after.keys.dtype == np.int64 and after.keys.tolist() == [BIG, BIG + 1]
        assert after.fit.n_pos.tolist() == [2, 1]
    after = pj.update(before, [0.5, 1.0], [1, 0], np.array([BIG, 2**64 - 1], np.uint64))
    assert after.keys.tolist() == [BIG, BIG + 1, 2**64 - 1]
    assert after[BIG + 1] == pj.update(before, [0.5], [1], [7])[BIG + 1]
    small = pj.update(pj.fit_segments(*rows, [1, 1, 2, 2]), [0.5], [1], np.array([3.0]))
    assert small.keys.dtype == np.int64


def test_an_update_keeps_dates_that_another_unit_does_not_reach(tmp_path):
    rows = [0.5, 1.0, -0.3, 2.0], [1, 0, 0, 1]
    before = pj.fit_segments(*rows, DAYS.repeat(2))
    after = pj.update(
        before, [0.5, 1.0], [1, 0], pd.to_datetime(["2020-01-01 00:00", "2021-01-01 12:00"])
    )
    assert after.keys.tolist() == [
        dt.datetime(2020, 1, 1),
        dt.datetime(2021, 1, 1, 12),
        dt.datetime(9999, 12, 31),
    ]
    assert after[dt.date(9999, 12, 31)].A == before[dt.date(9999, 12, 31)].A
    with pytest.raises(ValueError, match="segments: expected ids that fit one unit of time"):
        pj.update(before, [0.5, 1.0], [1, 0], NANOSECONDS)


def test_dates_are_found_exactly_in_keys_of_another_unit():
    rows = [0.5, 1.0, -0.3, 2.0], [1, 0, 0, 1]
    of_nanoseconds = np.array(["1715-06-13T00:25:26.290448384", "2020-01-01"], "M8[ns]")
    calibrator = pj.fit_segments(*rows, of_nanoseconds.repeat(2))
    far = np.array(["2300-01-01", "2020-01-01", "9999-12-31"], "M8[D]")
    assert calibrator.seen(far).tolist() == [False, True, False]
    by_day = pj.fit_segments(*rows, np.array(["2020-01-01", "2300-01-01"], "M8[D]").repeat(2))
    found = by_day.seen(np.append(of_nanoseconds, of_nanoseconds + np.timedelta64(1, "ns")))
    assert found.tolist() == [False, True, False, False]
    durations = pj.fit_segments(*rows, np.array([-(2**63) + 1, 10**9], "m8[ns]").repeat(2))
    seconds = np.array([1, 2**63 // 10**9 + 1, 2**62], "m8[s]")
    assert durations.seen(seconds).tolist() == [True, False, False]
    for other in (np.array([1], "m8[M]"), [np.timedelta64(400, "Y")]):
        with pytest.raises(ValueError, match="expected ids of the kind of timedelta64"):
            durations.seen(other)


def test_tuples_with_times_of_nanoseconds_are_found_among_tuples_of_several_lengths():
    rows = [0.5, 1.0, -0.3, 2.0], [1, 0, 0, 1]
    calibrator = pj.fit_segments(*rows, [("a", dt.datetime(2020, 1, 1)), ("b",)] * 2)
    day = np.datetime64("2020-01-01", "ns")
    assert calibrator.seen([("a", day), ("b", day)]).tolist() == [True, False]


MIDNIGHT = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1)


@pytest.mark.parametrize("time", [MIDNIGHT[1], pd.Timestamp("2020"), np.datetime64("2020", "s")])
def test_a_date_and_its_midnight_are_two_ids(tmp_path, time):
    scores, labels = np.arange(8.0), np.array([0, 1, 1, 0, 1, 0, 1, 1])
    for values in ([MIDNIGHT[0], time] * 4, [(1, MIDNIGHT[0]), (1, time)] * 4):
        calibrator = pj.fit_segments(scores, labels, values)
        expected = pj.fit_segments(scores, labels, [0, 1] * 4)
        np.testing.assert_array_equal(calibrator.fit.A, expected.fit.A)
        assert [calibrator[x].A for x in values[:2]] == expected.fit.A.tolist()
        pj.save(tmp_path / "file.npz", calibrator)
        assert pj.load(tmp_path / "file.npz") == calibrator
        found = calibrator.predict_proba(scores, values)
        np.testing.assert_array_equal(found, expected.predict_proba(scores, [0, 1] * 4))


def test_arrays_of_days_have_midnights_and_are_found_by_both():
    rows = [0.5, 1.0, -0.3, 2.0], [1, 0, 0, 1]
    by_day = pj.fit_segments(*rows, [dt.date(2020, 1, 1), dt.date(2020, 1, 2)] * 2)
    assert by_day.keys.dtype == "M8[D]"
    times = [*MIDNIGHT, dt.datetime(2020, 1, 1, 1), dt.date(9999, 12, 31)]
    assert by_day.seen(times).tolist() == [True, True, False, False]
    assert [by_day.seen([x])[0] for x in times] == [True, True, False, False]
    apart = pj.fit_segments(*rows, [*MIDNIGHT] * 2)
    for unit, key in (("D", MIDNIGHT[0]), ("ns", MIDNIGHT[1])):
        where = get_indexer(apart.keys, np.array(["2020-01-01", "2020-01-02"], f"M8[{unit}]"))
        assert apart.keys[where[0]] == key and where[1] == -1
    both = [dt.datetime(2020, 1, 1), np.datetime64("2020-01-01", "s"), dt.date(2020, 1, 2)]
    assert len(pj.fit_segments(*rows, [*both, both[0]])) == 2


def test_streaming_keeps_dates_of_other_units(tmp_path):
    scores, labels = np.linspace(-1, 1, 8), [0, 1] * 4
    batches = [
        (scores, labels, DAYS.repeat(4)),
        (scores, labels, NANOSECONDS[:1].repeat(8)),
    ]
    found = fit_stored(batches, cache=tmp_path / "rows")
    assert found.keys.dtype == "M8[us]" and found.fit.n_pos.tolist() == [2, 4, 2]
    assert found.keys.astype("M8[D]").tolist()[-1] == dt.date(9999, 12, 31)
    months = [(scores, labels, np.array([1] * 8, f"m8[{unit}]")) for unit in ("M", "D")]
    with pytest.raises(ValueError, match=r"batch 1.*ids of the kind of timedelta64\[M\]"):
        fit_stored(months, cache=tmp_path / "months")


class Gathered:
    """Processes that have these keys."""

    def __init__(self, parts):
        self._sent = [exchange.to_bytes(part) for part in parts]

    def gather_bytes(self, _):
        return self._sent


@pytest.mark.parametrize(
    "parts, expected",
    [
        ([np.array([BIG, BIG + 1]), np.array([BIG], np.uint64), None], [BIG, BIG + 1]),
        ([DAYS, NANOSECONDS[:1]], JOINED["far days"][2][::2] + JOINED["far days"][2][1:2]),
        (
            [
                np.array([("a", 1, MIDNIGHT[1])], [("x", "U1"), ("y", "O"), ("z", "M8[ns]")]),
                np.array([("a", 1, MIDNIGHT[1])], [("x", "U1"), ("y", "i8"), ("z", "M8[s]")]),
            ],
            [("a", 1, MIDNIGHT[1])],
        ),
    ],
)
def test_processes_agree_on_all_their_keys(parts, expected):
    found = exchange.keys_of_all(Gathered(parts), parts[0])
    assert ids.as_objects(found).tolist() == expected


def test_tables_of_other_libraries_merge_no_ids():
    duckdb = pytest.importorskip("duckdb")

    rows = duckdb.sql("SELECT 0.5::DOUBLE f, TIMESTAMP '2020-01-01' s")
    for pair in ([*MIDNIGHT], [0.5, BIG + 1]):
        calibrator = pj.fit_segments([0.5, 1.0, -0.3, 2.0], [1, 0, 0, 1], pair * 2)
        for convert in (calibrator.table().to_arrow, calibrator.table().to_polars):
            with pytest.raises(ValueError, match=r"column .segment.: .* has no type"):
                convert()
        with pytest.raises(ValueError, match="calibrator: expected segments of one type"):
            predict_relation(rows, calibrator, score="f", segment="s")
    of_lists = pj.fit_segments([0.5, 1.0, -0.3, 2.0], [1, 0, 0, 1], [("a",), ("b", "c")] * 2)
    assert of_lists.table().to_polars()["segment"].to_list() == [["a"], ["b", "c"]]
