"""Nights that count once, calibrators of other segments, and files that others write."""

import datetime
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import expit

import platt_jax as pj
from platt_jax.cli import main

SEGMENTS = np.array([f"shop {i}" for i in range(6)])


def rows(seed, number=300, shift=0.0, segments=SEGMENTS):
    rng = np.random.default_rng(seed)
    ids = segments[np.arange(number) % len(segments)]
    scores = rng.normal(size=number)
    return scores, rng.random(number) < expit(1.5 * scores - 1 + shift), ids


@pytest.fixture
def calibrator():
    return pj.fit_segments(*rows(0, 3000))


@pytest.fixture
def monitor(calibrator):
    return pj.Monitor.start(calibrator).update(*rows(1), night="monday")


def test_a_night_counts_once(calibrator, monitor):
    with pytest.raises(ValueError, match="expected a night that is not in the monitor, got monday"):
        monitor.update(*rows(1), night="monday")
    with pytest.raises(ValueError, match="got monday"):
        monitor.add(monitor.sums(*rows(1)), night="monday")
    after = monitor.update(*rows(2), night=datetime.date(2026, 1, 2)).update(*rows(3))
    assert (after.night, after.nights) == (3, ("monday", "2026-01-02"))
    with pytest.raises(ValueError, match="got 2026-01-02"):
        after.update(*rows(2), night=np.datetime64("2026-01-02"))
    for bad in ("", 1.5, True, ["a"]):
        with pytest.raises(ValueError, match="night: expected a text, an integer or a date"):
            monitor.update(*rows(2), night=bad)
    assert after.restart(SEGMENTS[:1]).with_calibrator(calibrator).nights == (
        "monday",
        "2026-01-02",
    )


def test_parts_are_of_one_night_and_one_calibrator(calibrator, monitor):
    part = monitor.update(*rows(2), night="tuesday")
    with pytest.raises(ValueError, match=r"names \('monday', 'tuesday'\), got"):
        part.merge(monitor.update(*rows(3), night="wednesday"))
    with pytest.raises(ValueError, match="the same monitor"):
        part.merge(part)
    other = monitor.with_calibrator(pj.fit_segments(*rows(9, 3000)))
    with pytest.raises(ValueError, match="whose last night the same calibrator judged"):
        part.merge(other.update(*rows(3), night="tuesday"))
    assert part.merge(monitor.update(*rows(3), night="tuesday")).table()["rows"].sum() == 900


def test_parts_in_files_keep_their_calibrators_fingerprint(calibrator, monitor, tmp_path):
    other = monitor.with_calibrator(pj.fit_segments(*rows(9, 3000)))
    for name, part in (("a", monitor.update(*rows(2))), ("b", other.update(*rows(3)))):
        part.save(tmp_path / name)
    a, b = (pj.Monitor.load(tmp_path / name, calibrator) for name in "ab")
    with pytest.raises(ValueError, match="another calibrator"):
        a.merge(b)


def test_a_calibrator_of_other_segments_is_refused(calibrator, monitor, tmp_path):
    others = pj.fit_segments(*rows(0, 3000, segments=np.array(["town 1", "town 2"])))
    with pytest.raises(ValueError, match="knows 0 of them, where the one before it knew 6"):
        monitor.with_calibrator(others)
    monitor.save(tmp_path / "m.npz")
    with pytest.raises(ValueError, match="calibrator: expected one of the monitor's segments"):
        pj.Monitor.load(tmp_path / "m.npz", others)
    fewer = pj.fit_segments(*rows(0, 3000, segments=SEGMENTS[:3]))  # half of them is enough
    assert pj.Monitor.load(tmp_path / "m.npz", fewer).night == 1
    grown = pj.update(calibrator, *rows(5, 300, segments=np.append(SEGMENTS, "shop 7")))
    assert monitor.with_calibrator(grown).night == 1


def test_segments_that_no_calibrator_knew_stay_acceptable(calibrator, tmp_path):
    new = np.array(["a", "b", "c"])
    monitor = pj.Monitor.start(calibrator, against="predictions").update(*rows(1, segments=new))
    monitor.save(tmp_path / "m.npz")
    assert pj.Monitor.load(tmp_path / "m.npz", calibrator).night == 1


def test_restarting_an_unknown_segment_is_refused(calibrator):
    monitor = pj.Monitor.start(calibrator).update(*rows(1, segments=SEGMENTS[:3]))
    with pytest.raises(ValueError, match="of its calibrator, got 1 others, the first at 1"):
        monitor.restart(["shop 0", "shop 99"])
    assert len(monitor.restart(["shop 0", "shop 5"]).table()["rows"]) == 2  # shop 5 had no rows


def test_the_monitor_of_a_file_refuses_a_calibrator_of_other_segments(
    calibrator, monitor, tmp_path
):
    path = tmp_path / "m.npz"
    monitor.save(path)
    assert repr(pj.Monitor.load(path, calibrator)) == repr(monitor)
    others = pj.fit_segments(*rows(0, 3000, segments=np.array(["town 1", "town 2"])))
    with pytest.raises(ValueError, match="calibrator: expected one"):
        pj.Monitor.load(path, others)


def test_a_file_that_another_has_replaced_is_left_alone(calibrator, monitor, tmp_path):
    path = tmp_path / "m.npz"
    monitor.save(path)
    mine, others = (pj.Monitor.load(path, calibrator).update(*rows(x)) for x in (2, 3))
    others.save(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"m\.npz: has changed since it was read"):
        mine.save(path)
    with pytest.raises(ValueError, match="has changed"):
        monitor.update(*rows(2)).save(path)
    with pytest.raises(ValueError, match=r"m\.npz: expected no file"):
        mine.save(path, new=True)
    assert path.read_bytes() == before
    mine.save(tmp_path / "other.npz", new=True)
    others.update(*rows(4)).save(path)  # its own file, twice
    others.update(*rows(5)).save(path)
    path.unlink()
    with pytest.raises(ValueError, match="has changed"):
        others.save(path)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["other.npz"]


def test_a_file_that_is_being_saved_is_left_alone(monitor, tmp_path):
    (tmp_path / ".m.npz.lock").touch()
    with pytest.raises(ValueError, match=r"another process is saving it.* remove .*m\.npz\.lock"):
        monitor.save(tmp_path / "m.npz")
    assert [x.name for x in tmp_path.iterdir()] == [".m.npz.lock"]


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True])
def test_processes_on_one_file_lose_no_night(calibrator, monitor, in_tmp, begun):
    pj.save("c.npz", calibrator)
    if begun:
        monitor.save("m.npz")
    for night in range(4):
        f, y, s = rows(night)
        lines = (f"{a},{int(b)},{c}\n" for a, b, c in zip(f, y, s, strict=True))
        (in_tmp / f"{night}.csv").write_text("f,y,s\n" + "".join(lines))
    columns = "--calibrator c.npz --score f --label y --segment s"
    commands = [f"monitor m.npz {x}.csv {columns} --night {x}".split() for x in range(4)]
    program = [sys.executable, "-m", "platt_jax"]
    jobs = [subprocess.Popen(program + x, stderr=subprocess.PIPE, text=True) for x in commands]
    said = [job.communicate(timeout=200)[1] for job in jobs]
    statuses = [job.returncode for job in jobs]
    saved = [str(x) for x in range(4) if statuses[x] == 0]
    assert saved
    for status, text in zip(statuses, said, strict=True):
        assert status == 0 or (status == 2 and "m.npz: " in text)
    found = pj.Monitor.load("m.npz", calibrator)
    assert sorted(set(found.nights) - {"monday"}) == saved
    assert found.night == len(saved) + begun
    for night, command in enumerate(commands):  # the rest one by one
        assert main(command) == (2 if str(night) in saved else 0)
    found = pj.Monitor.load("m.npz", calibrator)
    assert sorted(set(found.nights) - {"monday"}) == list("0123")
    assert found.table()["rows"].sum() == 1200 + 300 * begun


EMPTY = np.empty(0)


@pytest.mark.parametrize("night_sd", [0, 0.5])
def test_a_night_without_rows_is_a_night(monitor, calibrator, night_sd):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    monitor = pj.Monitor.start(calibrator, night_sd=night_sd).update(*rows(1))
    frame = pandas.DataFrame({"f": [1.0], "y": [True], "s": ["shop 0"]})[:0]
    table = pyarrow.Table.from_pandas(frame)
    for columns in (
        (EMPTY, EMPTY.astype(bool), SEGMENTS[:0]),
        ([], [], []),
        (frame["f"], frame["y"], frame["s"]),
        (table["f"], table["y"], table["s"]),
    ):
        after = monitor.update(*columns, night="quiet", reported=None)
        assert (after.night, after.nights) == (2, ("quiet",))
        assert repr(after.table()) == repr(monitor.table())
        sums = monitor.sums(*columns)
        whole = monitor.sums(*rows(2))
        assert list(sums) == list(whole)
        assert [len(x) for x in sums.values()] == [0] * len([*sums])
        assert [x.dtype for x in sums.values()] == [x.dtype for x in whole.values()]
        assert repr(monitor.add(sums, night="quiet")) == repr(after)
        together = pandas.concat([sums.to_pandas(), whole.to_pandas(), sums.to_pandas()])
        assert repr(monitor.add(together).table()) == repr(monitor.update(*rows(2)).table())
        assert repr(after.merge(monitor.update(*rows(2), night="quiet")).table()) == repr(
            monitor.update(*rows(2)).table()
        )
    first = pj.Monitor.start(calibrator, night_sd=night_sd).update([], [], [])
    assert first.update(*rows(1)).table()["nights"].max() == 1
    with pytest.raises(ValueError, match="scores"):
        monitor.update([], [1], ["shop 0"])
