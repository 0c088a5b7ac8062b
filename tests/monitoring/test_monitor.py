"""Monitor: evidence over nights, alarms, merging and files."""

import uuid
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logsumexp, zeta

import platt_jax as pj
from platt_jax import streaming
from platt_jax.monitoring import judging
from platt_jax.monitoring.evidence import (
    ALTERNATIVES,
    SHIFTS,
    SLOPES,
    UNIT,
    JudgedRows,
    night_sums,
)
from platt_jax.monitoring.state import lifted

SEGMENTS = 30


def fitted(rng, segments=SEGMENTS, rows=400, **options):
    ids = np.repeat(np.arange(segments), rows)
    scores = rng.normal(size=len(ids))
    labels = rng.random(len(ids)) < expit(1.5 * scores - 1)
    return pj.fit_segments(scores, labels, ids, **options)


def night(rng, rows=25, shift=0.0, changed=(), segments=SEGMENTS):
    """Rows of each segment; those changed have their log-odds shifted."""
    ids = np.repeat(np.arange(segments), rows)
    scores = rng.normal(size=len(ids))
    log_odds = 1.5 * scores - 1 + np.where(np.isin(ids, changed), shift, 0)
    return scores, rng.random(len(ids)) < expit(log_odds), ids


@pytest.fixture
def calibrator(rng):
    return fitted(rng)


def same(one, other):
    """Whether two monitors have the same bits."""
    a, b = one.table(), other.table()
    order = [np.argsort(x["segment"]) for x in (a, b)]
    return all(
        np.array_equal(a[name][order[0]], b[name][order[1]], equal_nan=a[name].dtype.kind == "f")
        for name in a
    )


def by_loop(calibrator, nights, segment, margin):
    """The log e-value of a segment, from its definition."""
    log_odds = []
    for scores, labels, ids in nights:
        here = ids == segment
        p = calibrator.predict_proba(scores[here], ids[here])
        log_odds.append((np.log(p / (1 - p)), labels[here]))
    place = list(calibrator.keys).index(segment)
    n_pos, n_neg = (float(x[place]) for x in (calibrator.fit.n_pos, calibrator.fit.n_neg))
    pivot = np.log((n_pos + 1) / (n_neg + 1))
    alternatives = [("shift", x) for x in [*SHIFTS, *-SHIFTS]] + [("slope", x) for x in SLOPES]
    terms, weights = [], []
    for start in range(len(nights)):
        weights.append((start + 1) ** -1.2 / zeta(1.2))
        for kind, size in alternatives:
            total = 0.0
            for z, y in log_odds[start:]:
                away = np.full(len(z), size) if kind == "shift" else (size - 1) * (z - pivot)
                null = expit(z + np.sign(away) * margin)
                other = expit(z + np.sign(away) * margin + away)
                total += np.log(np.where(y, other / null, (1 - other) / (1 - null))).sum()
            terms.append(np.log(weights[-1] / len(alternatives)) + total)
    return logsumexp([*terms, np.log(1 - sum(weights))])


@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_evidence_is_that_of_its_definition(rng, calibrator, margin):
    nights = [night(rng, shift=1, changed=[3]) for _ in range(5)]
    monitor = pj.Monitor.start(calibrator, against="predictions", margin=margin)
    highest = dict.fromkeys((0, 3, 17), 0.0)
    for number, rows in enumerate(nights, 1):
        monitor = monitor.update(*rows)
        table = monitor.table()
        for segment in highest:
            line = list(table["segment"]).index(segment)
            expected = by_loop(calibrator, nights[:number], segment, margin)
            assert table["log_e_value"][line] == pytest.approx(expected, abs=1e-5)
            highest[segment] = max(highest[segment], expected)
            assert table["highest"][line] == pytest.approx(highest[segment], abs=1e-5)


def test_a_change_is_found_with_its_night_and_size(rng, calibrator):
    monitor = pj.Monitor.start(calibrator, against="predictions")
    for number in range(1, 26):
        monitor = monitor.update(*night(rng, shift=1.2 * (number > 10), changed=[4, 7]))
    alarms = monitor.alarms()
    assert sorted(alarms["segment"]) == [4, 7]
    assert set(alarms["change"]) == {"higher"}
    assert np.abs(alarms["since"] - 11).max() <= 4
    assert (np.abs(alarms["intercept"] - 1.2) < 3 * alarms["se_intercept"]).all()
    assert alarms["se_intercept"] == pytest.approx(1 / np.sqrt(15 * 25 * 0.18), rel=0.3)
    assert sorted(monitor.alarms(ever=True)["segment"]) == [4, 7]
    assert (alarms["q_value_ever"] >= alarms["q_value"]).all()


def test_every_shift_has_a_finite_error(rng):
    """1 positive of 132 rows where 23 are expected, and shifts far beyond the alternatives."""
    calibrator = fitted(rng, segments=4)
    rows = np.zeros(132), np.arange(132) == 5, np.zeros(132, int)
    rare = replace(
        calibrator.fit, A=calibrator.fit.A * 0, B=calibrator.fit.B * 0 + np.log(109 / 23)
    )
    monitor = pj.Monitor.start(replace(calibrator, fit=rare), against="predictions")
    table = monitor.update(*rows).table()
    assert table["expected"] == pytest.approx(23, rel=0.01)
    assert table["q_value"] < 0.01
    away = table["intercept"] - np.log(1 / 131) + np.log(23 / 109)
    assert np.abs(away) < table["se_intercept"] < 1.5
    for shift in (-6, -3, 3, 6):
        monitor = pj.Monitor.start(calibrator, against="predictions")
        for _ in range(4):
            monitor = monitor.update(
                *night(rng, rows=100, shift=shift, changed=range(4), segments=4)
            )
            table = monitor.table()
            assert (table["change"] == ("higher" if shift > 0 else "lower")).all()
            assert (np.sign(table["intercept"]) == np.sign(shift)).all()
            assert np.isfinite(table["se_intercept"]).all()
        # Beyond the largest alternative, 3, it may be too small.
        away = np.abs(table["intercept"] - shift)
        assert (away <= np.maximum(2.5 * table["se_intercept"], abs(shift) / 3)).all()


def test_a_shift_does_not_contradict_its_change():
    """Rare nights with positives before a change, as of an airline with 16 flights a day."""
    from platt_jax.data import load_flights

    flights = load_flights()
    own = (flights.carrier == "VX") | (flights.carrier == "FL")
    score, late, carrier = (x[own] for x in (flights.score, flights.outcome, flights.carrier))
    day = flights.day[own]
    summer = day < 274
    calibrator = pj.fit_segments(score[summer], late[summer], carrier[summer])
    monitor = pj.Monitor.start(calibrator)
    for today in range(274, 294):
        rows = day == today
        monitor = monitor.update(score[rows], late[rows], carrier[rows])
    table = monitor.table()
    assert (table["segment"][0], table["change"][0], table["since"][0]) == ("VX", "lower", 12)
    assert np.log(20) < table["log_e_value"][0] < 7
    # Since then 1 of 132 flights was late, where 23 are expected.
    since = (carrier == "VX") & (day >= 285) & (day < 294)
    expected = calibrator.predict_proba(score[since], carrier[since]).sum()
    assert (since.sum(), late[since].sum()) == (132, 1)
    odds = (1 / 131) / (expected / (132 - expected))
    away = table["intercept"][0] - np.log(odds)
    assert abs(away) < 1.96 * table["se_intercept"][0]
    assert table["intercept"][0] + 1.96 * table["se_intercept"][0] < 0


@pytest.mark.slow
def test_intervals_of_shifts_hold_them(rng):
    calibrator = fitted(rng, segments=150, rows=4000)
    for shift in (-3, -1, 1, 3):
        monitor = pj.Monitor.start(calibrator, against="predictions")
        for number in range(12):
            monitor = monitor.update(
                *night(rng, 40, shift * (number > 5), changed=range(150), segments=150)
            )
        table = monitor.alarms()
        assert len(table["segment"]) > 100
        away = np.abs(table["intercept"] - shift) / table["se_intercept"]
        assert 0.9 <= (away <= 1.96).mean()


def test_the_size_of_a_change_includes_the_margin(rng, calibrator):
    monitor = pj.Monitor.start(calibrator, against="predictions", margin=0.5)
    monitor = monitor.update(*night(rng, rows=2000, shift=1.4, changed=range(SEGMENTS)))
    found = monitor.table()["intercept"]
    assert found.mean() == pytest.approx(1.4, abs=0.05)  # errors of the fits average out


def test_each_kind_of_change_is_named(rng, calibrator):
    def of(log_odds):
        monitor = pj.Monitor.start(calibrator, against="predictions")
        for _ in range(10):
            scores, _, ids = night(rng, rows=200)
            labels = rng.random(len(scores)) < expit(log_odds(scores))
            monitor = monitor.update(scores, labels, ids)
        return monitor.table()["change"].tolist()

    assert set(of(lambda f: 1.5 * f - 2)) == {"lower"}
    assert set(of(lambda f: 0.3 * f - 0.9)) == {"flatter"}
    assert set(of(lambda f: 3.5 * f - 1)) == {"steeper"}
    assert set(of(lambda f: 1.5 * f - 1)) <= {"", "higher", "lower", "steeper", "flatter"}


def test_a_change_within_the_margin_is_none(rng, calibrator):
    monitors = [pj.Monitor.start(calibrator, against="predictions", margin=m) for m in (0, 0.5)]
    for _ in range(10):
        rows = night(rng, rows=500, shift=0.3, changed=range(SEGMENTS))
        monitors = [monitor.update(*rows) for monitor in monitors]
    found = [len(monitor.alarms()["segment"]) for monitor in monitors]
    assert found[0] > 0.8 * SEGMENTS
    assert found[1] == 0


def test_uncertain_fits_are_allowed_for(rng):
    calibrator = fitted(rng, segments=200, rows=20)
    monitors = [pj.Monitor.start(calibrator, against=x) for x in ("fit", "predictions")]
    for _ in range(10):
        rows = night(rng, rows=100, segments=200)
        monitors = [monitor.update(*rows) for monitor in monitors]
    by_fit, by_predictions = (len(monitor.alarms()["segment"]) for monitor in monitors)
    assert by_fit == 0
    assert by_predictions > 50


def test_parts_of_a_night_merge_to_the_whole_exactly(rng, calibrator):
    monitor = pj.Monitor.start(calibrator)
    for _ in range(3):
        monitor = monitor.update(*night(rng))
    rows = night(rng, shift=0.5, changed=[1])
    whole = monitor.update(*rows)
    part = rng.random(len(rows[0])) < 0.3
    halves = [monitor.update(*(x[some] for x in rows)) for some in (part, ~part)]
    assert same(whole, halves[0].merge(halves[1]))
    assert same(whole, halves[1].merge(halves[0]))
    shuffled = rng.permutation(len(rows[0]))
    assert same(whole, monitor.update(*(x[shuffled] for x in rows)))
    after = [
        x.update(*night(np.random.default_rng(1))) for x in (whole, halves[0].merge(halves[1]))
    ]
    assert same(*after)


@pytest.mark.parametrize("kind", ["uuid", "mixed"])
def test_parts_with_ids_that_are_objects_merge(rng, tmp_path, kind):
    ids = [uuid.UUID(int=i) if kind == "uuid" else (i if i % 2 else f"shop {i}") for i in range(4)]
    scores, labels, which = night(rng, rows=50, segments=4)
    segments = [ids[i] for i in which]
    calibrator = pj.fit_segments(scores, labels, segments)
    monitor = pj.Monitor.start(calibrator, against="predictions")
    whole = monitor.update(scores, labels, segments)
    half = np.arange(len(scores)) % 2 == 0
    parts = [
        monitor.update(
            scores[some], labels[some], [x for x, here in zip(segments, some, strict=True) if here]
        )
        for some in (half, ~half)
    ]
    merged = parts[0].merge(parts[1])
    found, expected = (
        dict(zip(table["segment"], table["log_e_value"], strict=True))
        for table in (merged.table(), whole.table())
    )
    assert found == expected
    merged.save(tmp_path / "m.npz")
    assert repr(pj.Monitor.load(tmp_path / "m.npz", calibrator)) == repr(merged)


def in_polars(tables):
    polars = pytest.importorskip("polars")
    return polars.concat([table.to_polars() for table in tables])


def in_pandas(tables):
    pandas = pytest.importorskip("pandas")
    return pandas.concat([table.to_pandas() for table in tables])


def summed_by_duckdb(tables):
    duckdb = pytest.importorskip("duckdb")
    parts = in_pandas(tables)  # noqa: F841 (duckdb finds it by its name)
    columns = [name for name in tables[0] if name != "segment"]
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in columns)
    return duckdb.sql(f"SELECT segment, {sums} FROM parts GROUP BY segment").to_arrow_table()


@pytest.mark.parametrize("put_together", [in_pandas, in_polars, summed_by_duckdb])
def test_sums_of_parts_make_the_night(rng, calibrator, put_together):
    monitor = pj.Monitor.start(calibrator).update(*night(rng))
    rows = night(rng)
    parts = np.array_split(rng.permutation(len(rows[0])), 3)
    sums = [monitor.sums(*(x[part] for x in rows)) for part in parts]
    assert same(monitor.update(*rows), monitor.add(put_together(sums)))
    assert same(monitor.update(*rows), monitor.add(monitor.sums(*rows)))


def test_sums_of_segments_of_several_columns(rng):
    ids = np.stack([np.arange(400) % 3, np.arange(400) % 2], axis=1)
    rows = rng.normal(size=400), rng.random(400) < 0.5, ids
    monitor = pj.Monitor.start(pj.fit_segments(*rows), against="predictions")
    whole, added = monitor.update(*rows), monitor.add(monitor.sums(*rows))
    assert repr(whole.table()) == repr(added.table())


def test_other_sums_are_refused(rng, calibrator):
    monitor = pj.Monitor.start(calibrator)
    sums = monitor.sums(*night(rng))
    with pytest.raises(ValueError, match="got none named 'rows'"):
        monitor.add({name: x for name, x in sums.items() if name != "rows"})
    with pytest.raises(ValueError, match="expected integers in column 'log_ratio_3'"):
        monitor.add({**sums, "log_ratio_3": sums["log_ratio_3"] + 0.5})
    with pytest.raises(ValueError, match="expected integers in column 'rows'"):
        monitor.add({**sums, "rows": sums["rows"].astype(np.float32)})
    with pytest.raises(ValueError, match="positives from 0 to rows"):
        monitor.add({**sums, "positives": sums["rows"] + 1})
    with pytest.raises(ValueError, match="segments"):
        monitor.add({**sums, "segment": sums["segment"].astype(str)})
    with pytest.raises(ValueError, match="expected a table, got a NoneType"):
        monitor.add(None)
    with pytest.raises(ValueError, match="a column of segments"):
        monitor.add({name: x for name, x in sums.items() if name != "segment"})


def test_segments_do_not_depend_on_the_company(rng, calibrator):
    alone = pj.Monitor.start(calibrator)
    together = pj.Monitor.start(calibrator)
    for _ in range(3):
        rows = night(rng)
        together = together.update(*rows)
        alone = alone.update(*(x[rows[2] == 5] for x in rows))
    lines = [x.table() for x in (alone, together)]
    for name in ("rows", "expected", "log_e_value", "highest", "since"):
        mine = lines[1][name][lines[1]["segment"] == 5]
        assert (lines[0][name] == mine).all()


def test_merging_takes_the_segments_of_both(rng, calibrator):
    one, other = pj.Monitor.start(calibrator), pj.Monitor.start(calibrator)
    both = one
    for _ in range(2):
        rows = night(rng)
        left = rows[2] < 10
        both = both.update(*rows)
        one = one.update(*(x[left] for x in rows))
        other = other.update(*(x[~left] for x in rows))
    assert same(both, one.merge(other))
    assert same(both, other.merge(one))


def test_merging_refuses_another_past(rng, calibrator):
    one = pj.Monitor.start(calibrator).update(*night(rng))
    other = pj.Monitor.start(calibrator).update(*night(rng))
    with pytest.raises(ValueError, match="another past of segment 0"):
        one.update(*night(rng)).merge(other.update(*night(rng)))
    with pytest.raises(ValueError, match="night 1, got 2"):
        one.merge(one.update(*night(rng)))
    with pytest.raises(ValueError, match=r"margin 0\.1, got 0\.2"):
        one.merge(pj.Monitor.start(calibrator, margin=0.2).update(*night(rng)))


def test_segments_may_appear_and_miss_nights(rng, calibrator):
    monitor = pj.Monitor.start(calibrator, against="predictions")
    reference = monitor
    for number in range(4):
        rows = night(rng)
        here = rows[2] != 8 if number in (0, 2) else np.ones(len(rows[2]), bool)
        monitor = monitor.update(*(x[here] for x in rows))
        if number in (1, 3):
            reference = reference.update(*rows)
    tables = [x.table() for x in (monitor, reference)]
    line, other = (list(x["segment"]).index(8) for x in tables)
    assert tables[0]["nights"][line] == 2
    assert tables[0]["log_e_value"][line] == tables[1]["log_e_value"][other]
    unseen = monitor.update(np.zeros(5), np.ones(5), np.full(5, 99))
    assert unseen.table()["rows"][list(unseen.table()["segment"]).index(99)] == 5


def test_restart_forgets_a_segment(rng, calibrator):
    monitor = pj.Monitor.start(calibrator, against="predictions")
    for _ in range(6):
        monitor = monitor.update(*night(rng, shift=2, changed=[2]))
    assert monitor.alarms()["segment"].tolist() == [2]
    again = monitor.restart([2])
    assert len(again.alarms()["segment"]) == 0
    assert 2 not in again.table()["segment"]
    assert len(again.table()["segment"]) == SEGMENTS - 1
    assert again.update(*night(rng)).table()["nights"].min() == 1


def test_another_calibrator_judges_only_later_nights(rng, calibrator):
    monitor = pj.Monitor.start(calibrator, against="predictions").update(*night(rng))
    shifted = night(rng, rows=400, shift=1.5, changed=range(SEGMENTS))
    after = monitor.with_calibrator(pj.fit_segments(*shifted))
    assert same(monitor, after)
    rows = night(rng, shift=1.5, changed=range(SEGMENTS))
    old, new = (x.update(*rows).table()["log_e_value"].max() for x in (monitor, after))
    assert new < old


def test_reported_shares_make_up_for_late_labels(rng, calibrator):
    monitor = pj.Monitor.start(calibrator, against="predictions")
    ignoring = monitor
    for _ in range(10):
        scores, labels, ids = night(rng, rows=100)
        share = np.where(ids % 2, 0.5, 0.8)
        known = labels & (rng.random(len(ids)) < share)
        monitor = monitor.update(scores, known, ids, reported=share)
        ignoring = ignoring.update(scores, known, ids)
    assert len(monitor.alarms()["segment"]) == 0
    assert len(ignoring.alarms()["segment"]) > SEGMENTS / 2
    table = monitor.table()
    assert table["expected"] == pytest.approx(table["positives"], rel=0.3)
    whole = pj.Monitor.start(calibrator).update(scores, labels, ids)
    one = pj.Monitor.start(calibrator).update(scores, labels, ids, reported=1.0)
    gap = np.abs(np.sort(whole.table()["log_e_value"]) - np.sort(one.table()["log_e_value"]))
    assert gap.max() < 1e-5


def test_rows_on_disk_are_read_some_segments_at_a_time(rng, calibrator, tmp_path, monkeypatch):
    scores, labels, ids = night(rng)
    whole = pj.Monitor.start(calibrator).update(scores, labels, ids)
    monkeypatch.setattr(judging, "_READ_AT_ONCE", 2 * len(ids) // SEGMENTS)
    rows, read = streaming.rows((scores, labels, ids), tmp_path / "rows"), []
    take = streaming.StoredRows.take

    def noted(self, problems, part, space):
        read.append(space.length)
        return take(self, problems, part, space)

    monkeypatch.setattr(streaming.StoredRows, "take", noted)
    assert same(pj.Monitor.start(calibrator).update(rows), whole)
    assert sum(read) == len(ids) and max(read) <= 2 * len(ids) // SEGMENTS


def test_offsets_and_segment_rows(rng, calibrator):
    scores, labels, ids = night(rng)
    offset = rng.normal(size=len(ids))
    start = pj.Monitor.start(calibrator)
    one = start.update(scores, labels, ids, offset=offset)
    other = start.update(pj.SegmentRows(scores, labels, ids, offset=offset))
    assert same(one, other)
    A, B = (getattr(calibrator.fit, name)[ids] for name in "AB")
    expected = np.bincount(ids, expit(-(A * scores + B) + offset))
    table = one.table()
    assert table["expected"][np.argsort(table["segment"])] == pytest.approx(expected, rel=1e-5)


def test_rows_that_cannot_be_judged(rng, calibrator):
    scores, labels, ids = night(rng)
    scores[ids == 3] = np.nan
    scores[0] = np.inf
    start = pj.Monitor.start(calibrator)
    with pytest.warns(RuntimeWarning, match="26 rows of 2 segments, .*not judged"):
        monitor = start.update(scores, labels, ids)
    table = monitor.table()
    assert 3 not in table["segment"]
    assert table["rows"].sum() == len(ids) - 26
    with pytest.raises(ValueError, match="scores, labels, offset: expected finite"):
        start.update(scores, labels, ids, non_finite="raise")
    with pytest.warns(RuntimeWarning, match="1 of 1 segment not judged"):
        nothing = start.update(np.zeros(3), np.ones(3), np.full(3, 77))
    assert len(nothing.table()["segment"]) == 0


@pytest.mark.parametrize("pooling", ["none", "partial"])
@pytest.mark.parametrize("factor", [100.0, 1e4, 1e9])
def test_scores_of_another_unit_are_told_where_margins_hide_them(rng, pooling, factor):
    monitor = pj.Monitor.start(fitted(rng, pooling=pooling))
    scores, *others = night(rng)
    with pytest.warns(RuntimeWarning, match="rows of 30 of 30 segments.* unit of the fit"):
        monitor.update(scores * factor, *others)


def test_one_segment_of_another_unit_is_told(rng):
    scores, labels, ids = night(rng, rows=30)
    scores[ids == 7] *= 1e4
    with pytest.warns(RuntimeWarning, match="rows of 1 of 30 segments, the largest 7: "):
        pj.Monitor.start(fitted(rng)).update(scores, labels, ids)


def test_wide_margins_of_a_few_rows_are_not_told(rng):
    scores, *others = night(rng, rows=40)
    scores[::40] *= 30.0
    pj.Monitor.start(fitted(rng)).update(scores, *others)


def test_infinite_offsets_are_not_judged(calibrator):
    monitor = pj.Monitor.start(calibrator, against="predictions")
    rows = [1.0, 2.0], [0, 1], [0, 0]
    with pytest.warns(RuntimeWarning, match="1 row of 1 segment,"):
        assert monitor.update(*rows, offset=[np.inf, 0]).table()["rows"] == [1]
    with pytest.raises(ValueError, match="expected finite"):
        monitor.update(*rows, offset=[np.inf, 0], non_finite="raise")


def test_a_night_in_which_nothing_can_be_judged(calibrator):
    monitor = pj.Monitor.start(calibrator)
    with pytest.warns(RuntimeWarning, match="not judged"):
        sums = monitor.sums([np.nan], [1], [0])
    after = monitor.add(sums)
    assert after.night == 1
    assert len(after.table()["segment"]) == 0


def test_predictions_that_are_0_or_1_to_rounding(calibrator):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for score in (-1e3, 1e3):
            monitor = pj.Monitor.start(calibrator, against="predictions")
            monitor = monitor.update([score] * 3, [0, 0, 1], [0, 0, 0])
            assert monitor.alarms()["segment"].tolist() == [0]  # a label contradicts certainty


def test_expectations_of_very_rare_events_stay_below_1():
    """Rounding must not add up to evidence over a billion rows."""
    p, rows = 1e-7, 10**9
    judged = [one_row_sums(np.log(p / (1 - p)), label) for label in (False, True)]
    negative, positive = (night.log_ratios[0].astype(float) * UNIT for night in judged)
    expected = (1 - p) * np.exp(negative) + p * np.exp(positive)
    assert (np.log(expected) * rows <= 1e-3).all()


def one_row_sums(log_odds, label):
    columns = np.array([log_odds]), np.zeros(1), np.array([label]), np.zeros(1, int)
    return night_sums(JudgedRows(*columns, pivot=np.array([0.0])))[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.update([1.0], [1], [0], reported=0.0), "reported: expected shares above 0"),
        (lambda m: m.update([1.0], [1], [0], reported=[1.0, 0.5]), "reported"),
        (lambda m: m.update([1.0], [1]), "segments: expected one per row"),
        (lambda m: m.update([1.0], [1], ["a"]), "segments"),
        (lambda m: m.update([1.0], [1], [0], non_finite="flag"), "non_finite: expected one of"),
        (lambda m: m.alarms(fdr=5), "fdr: expected a number in"),
        (lambda m: m.with_calibrator(3), "calibrator"),
        (lambda m: m.merge(None), "other: expected a Monitor, got a NoneType"),
        (lambda m: m.update(1.0, [1], [0], reported=0.5), "scores"),
        (lambda m: pj.Monitor.start(m.calibrator, margin=-1), "margin: expected a number >= 0"),
        (lambda m: pj.Monitor.start(m.calibrator, against="x"), "against: expected one of"),
        (lambda m: pj.Monitor.start(m.calibrator.fit), "calibrator"),
        (
            lambda m: m.update(pj.SegmentRows([1.0], [1], [0], weights=[2.0])),
            "scores: expected SegmentRows without weights",
        ),
    ],
)
def test_errors_name_the_argument(calibrator, call, message):
    with pytest.raises(ValueError, match=message):
        call(pj.Monitor.start(calibrator))


@pytest.mark.parametrize("kind", [str, float, lambda i: f"shop {i}"])
def test_saved_monitors_go_on_as_before(rng, tmp_path, kind):
    ids = np.array([kind(i) for i in range(SEGMENTS)])
    scores, labels, which = night(rng, rows=100)
    calibrator = pj.fit_segments(scores, labels, ids[which])
    monitor = pj.Monitor.start(calibrator, against="predictions", margin=0.2)
    for _ in range(3):
        scores, labels, which = night(rng)
        monitor = monitor.update(scores, labels, ids[which])
    monitor.save(tmp_path / "monitor.npz")
    loaded = pj.Monitor.load(tmp_path / "monitor.npz", calibrator)
    assert repr(loaded) == repr(monitor)
    assert (loaded.night, loaded.margin, loaded.against) == (3, 0.2, "predictions")
    scores, labels, which = night(rng)
    assert same(*(x.update(scores, labels, ids[which]) for x in (loaded, monitor)))


def test_damaged_files_are_refused(rng, tmp_path, calibrator):
    path = tmp_path / "monitor.npz"
    monitor = pj.Monitor.start(calibrator).update(*night(rng))
    pj.save(path, calibrator)
    with pytest.raises(ValueError, match="not a monitor that platt_jax saved"):
        pj.Monitor.load(path, calibrator)
    monitor.save(path)
    with pytest.raises(ValueError, match="not a calibrator"):
        pj.load(path)
    with np.load(path) as file:
        arrays = dict(file)
    for name, bad in (("log_sums", np.nan), ("tonight_rows", None), ("since", 0.5)):
        changed = dict(arrays)
        changed[name] = arrays[name][:-1] if bad is None else arrays[name] + bad
        np.savez(path, **changed)
        with pytest.raises(ValueError, match="damaged"):
            pj.Monitor.load(path, calibrator)
    for name, bad in (("nights", -9), ("log_sums", np.inf), ("tonight_rows", -(10**6))):
        np.savez(path, **(arrays | {name: np.full_like(arrays[name], bad)}))
        with pytest.raises(ValueError, match="damaged"):
            pj.Monitor.load(path, calibrator)
    arrays["header"] = np.array(str(arrays["header"]).replace('"version": 1', '"version": 9'))
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="a monitor of version 9"):
        pj.Monitor.load(path, calibrator)


def test_a_segment_takes_at_most_64_numbers(rng, tmp_path, calibrator):
    path = tmp_path / "monitor.npz"
    pj.Monitor.start(calibrator).update(*night(rng)).save(path)
    with np.load(path) as file:
        numbers = sum(x.size for name, x in file.items() if name not in ("header", "keys"))
    assert numbers == SEGMENTS * (3 * ALTERNATIVES + 10)
    assert numbers <= SEGMENTS * 64


def test_lifted_maxima_are_e_values():
    # The adjuster A is valid if the integral of A(m) / m^2 from 1 on is at most 1. With L = log m
    # it is the integral of A exp(-L).
    L = np.linspace(1e-6, 4000, 8_000_001)
    integral = np.trapezoid(np.exp(lifted(L) - L), L)
    assert integral == pytest.approx(1, abs=1e-3)
    assert integral <= 1
    near = lifted(np.array([9.9e-4, 1.01e-3]))
    assert np.diff(near)[0] == pytest.approx(2e-5 / 3, rel=0.1)
    assert (np.diff(lifted(np.linspace(0, 50, 1000))) > 0).all()


def test_alarms_of_nothing(calibrator):
    monitor = pj.Monitor.start(calibrator)
    assert len(monitor.alarms()["segment"]) == 0
    assert len(monitor.table()["segment"]) == 0
    assert repr(monitor).startswith("Monitor: night 0, 0 rows of 0 segments;")


def test_nothing_is_warned_of_in_ordinary_use(rng, calibrator):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor = pj.Monitor.start(calibrator)
        for _ in range(3):
            monitor = monitor.update(*night(rng))
            monitor.table()
            repr(monitor)
