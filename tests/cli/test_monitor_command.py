"""`platt-jax monitor`: nights in files, and the exit status."""

import csv
import json

import numpy as np
import pytest
from scipy.special import expit

import platt_jax as pj
from platt_jax.cli import main

COLUMNS = "--calibrator c.npz --score f --label y --segment shop"


def run(command):
    """The exit status of `platt-jax` followed by these words."""
    return main(command.split())


def rows(seed, each=100, moved=0.0):
    """Scores, labels and shops; the log-odds of shop b are moved."""
    rng = np.random.default_rng(seed)
    shops = np.repeat(["a", "b", "c"], each)
    scores = rng.normal(size=len(shops))
    log_odds = 2 * scores - 1 + np.where(shops == "b", moved, 0)
    return scores, (rng.random(len(shops)) < expit(log_odds)).astype(int), shops


def written(name, *columns, header=("f", "y", "shop")):
    with open(name, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(zip(*(column.tolist() for column in columns), strict=True))


@pytest.fixture
def calibrator(in_tmp, capsys):
    fitted = pj.fit_segments(*rows(0, 2000))
    pj.save("c.npz", fitted)
    for night in range(1, 5):
        written(f"{night}.csv", *rows(night, moved=2.5))
    written("right.csv", *rows(9))
    return fitted


def test_nights_add_up_until_there_is_an_alarm(in_tmp, calibrator, capsys):
    statuses = [run(f"monitor state.npz {night}.csv {COLUMNS} --fdr 1e-3") for night in (1, 2, 3)]
    assert statuses[-1] == 5
    out, err = capsys.readouterr()
    assert "state.npz does not exist: a new monitor" in err
    assert err.count("\n") == 1
    assert "night 3: alarms now for 1 of 3 segments, at a false discovery rate of 0.001" in out
    expected = pj.Monitor.start(calibrator)
    for night in (1, 2, 3):
        expected = expected.update(*rows(night, moved=2.5))
    found = pj.Monitor.load("state.npz", calibrator)
    assert repr(found) == repr(expected)
    assert found.table()["log_e_value"].tolist() == expected.table()["log_e_value"].tolist()
    assert run(f"monitor state.npz right.csv {COLUMNS} --restart b --json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == dict(
        night=4,
        segments=3,
        alarms=0,
        fdr=0.05,
        against="fit",
        margin=0.1,
        night_sd=0.0,
        out="state.npz",
    )


def test_no_alarm_ends_with_0(in_tmp, calibrator, capsys):
    assert run(f"monitor s.npz right.csv {COLUMNS}") == 0
    assert "alarms now for 0 of 3 segments" in capsys.readouterr().out


def test_another_output_leaves_the_state(in_tmp, calibrator, capsys):
    run(f"monitor 1.npz 1.csv {COLUMNS}")
    before = (in_tmp / "1.npz").read_bytes()
    for _ in range(2):
        status = run(f"monitor 1.npz 2.csv {COLUMNS} --out 2.npz --table all.csv --ever")
        assert status in (0, 5)
        assert (in_tmp / "1.npz").read_bytes() == before
        assert pj.Monitor.load("2.npz", calibrator).night == 2
    with open("all.csv") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 3
    assert lines[0]["segment"] == "b"
    assert "alarms so far" in capsys.readouterr().out


def test_options_of_the_monitor(in_tmp, calibrator, capsys):
    assert run(f"monitor s.npz 1.csv {COLUMNS} --against predictions --margin 0.3") in (0, 5)
    found = pj.Monitor.load("s.npz", calibrator)
    assert (found.against, found.margin) == ("predictions", 0.3)
    assert run(f"monitor s.npz 2.csv {COLUMNS}") in (0, 5)
    capsys.readouterr()
    for option, message in (
        ("--margin 0.1", "--margin: s.npz has 0.3, got 0.1; it cannot be changed"),
        ("--against fit", "--against: s.npz has predictions, got fit"),
        ("--reported 1.5", "reported: expected shares above 0 and up to 1"),
        ("--out 2.csv", "2.csv: would overwrite the file that is being read"),
        ("--table s.npz", "s.npz: would overwrite"),
        ("--out t.npz --table s.npz", "s.npz: would overwrite"),
        ("--restart axyz", "--restart: expected segments of the monitor, got axyz"),
    ):
        assert run(f"monitor s.npz 2.csv {COLUMNS} {option}") == 2
        assert message in capsys.readouterr().err
    assert run(f"monitor c.npz 2.csv {COLUMNS} --out x.npz") == 2
    assert "c.npz: not a monitor that platt_jax saved" in capsys.readouterr().err


def test_a_night_that_was_run_is_refused(in_tmp, calibrator, capsys):
    assert run(f"monitor s.npz 1.csv {COLUMNS} --night 2026-01-01 --night-sd 0.5") in (0, 5)
    before = (in_tmp / "s.npz").read_bytes()
    assert run(f"monitor s.npz 1.csv {COLUMNS} --night 2026-01-01") == 2
    assert "expected a night that is not in the monitor, got 2026-01-01" in capsys.readouterr().err
    assert run(f"monitor s.npz 1.csv {COLUMNS} --night 2026-01-02 --night-sd 0.4") == 2
    assert "--night-sd: s.npz has 0.5, got 0.4" in capsys.readouterr().err
    assert (in_tmp / "s.npz").read_bytes() == before
    assert run(f"monitor s.npz 2.csv {COLUMNS} --night 2026-01-02") in (0, 5)
    found = pj.Monitor.load("s.npz", calibrator)
    assert found.nights == ("2026-01-01", "2026-01-02")
    assert (found.night, found.night_sd) == (2, 0.5)


def test_a_calibrator_of_other_segments_is_refused(in_tmp, calibrator, capsys):
    assert run(f"monitor s.npz 1.csv {COLUMNS}") in (0, 5)
    before = (in_tmp / "s.npz").read_bytes()
    scores, labels, shops = rows(0, 2000)
    others = np.where(shops == "a", shops, np.char.add("town ", shops))
    pj.save("other.npz", pj.fit_segments(scores, labels, others))
    assert run(f"monitor s.npz 2.csv {COLUMNS.replace('c.npz', 'other.npz')}") == 2
    assert "calibrator: expected one of the monitor's segments" in capsys.readouterr().err
    assert (in_tmp / "s.npz").read_bytes() == before


def test_late_labels(in_tmp, calibrator, capsys):
    rng = np.random.default_rng(5)
    scores, labels, shops = rows(5, 1000)
    written("late.csv", scores, labels * (rng.random(len(labels)) < 0.4), shops)
    assert run(f"monitor s.npz late.csv {COLUMNS}") == 5
    assert run(f"monitor t.npz late.csv {COLUMNS} --reported 0.4") == 0
