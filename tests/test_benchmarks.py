import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("optimistix")
pytest.importorskip("sklearn.base")  # "sklearn" is a folder here, too
if shutil.which("g++") is None:
    pytest.skip("needs g++", allow_module_level=True)

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_benchmark_runs_and_all_contenders_reach_the_same_loss(tmp_path):
    workloads = ["1000x1000", "ragged", "weighted"]
    command = [sys.executable, "-m", "benchmarks", "--quick", "--repeats", "2"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path), "--only", *workloads, "--dtypes", "float64"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.json")
    found = json.loads(path.read_text())
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["versions"]["jax"]
    assert [result["workload"] for result in found["results"]] == workloads
    for result in found["results"]:
        figures = {figure["contender"]: figure for figure in result["figures"]}
        assert {"appendix3", "limit", "platt_jax solve", "platt_jax"} <= set(figures)
        assert all(figure["seconds"] > 0 for figure in figures.values())
        for name in ("limit", "platt_jax solve", "platt_jax"):
            assert figures[name]["short"] == 0
            assert figures[name]["excess_loss"] < 1e-6
        assert figures["appendix3"]["short"] == figures["appendix3"]["excused"]
        assert f"{result['workload']} float64" in done.stdout


@pytest.mark.slow
def test_a_solve_is_taken_apart(tmp_path):
    command = [sys.executable, "-m", "benchmarks.floor", "--quick", "--repeats", "2"]
    subprocess.run([*command, "--out", str(tmp_path), "--only", "ragged"], cwd=ROOT, check=True)
    (path,) = tmp_path.glob("floor-*.json")
    parts = json.loads(path.read_text())["ns_per_row"]
    assert [part["dtype"] for part in parts] == ["float64", "float32"]
    assert all(part["passes"] > 2 and part["first"] > 0 for part in parts)


@pytest.mark.slow
def test_a_contender_short_of_the_optimum_is_an_error_before_any_time_is_told():
    from dataclasses import replace

    import numpy as np

    from benchmarks.measure import measure
    from benchmarks.peers import contenders
    from benchmarks.workloads import catalogue

    at = catalogue(quick=True)["20000x100"](np.float64)
    limit = next(c for c in contenders() if c.name == "limit")

    def a_little_off(at):
        run = limit.prepare(at)
        return replace(run, answer=lambda out: {**out, "B": out["B"] + 0.01})

    wrong = replace(limit, name="wrong", prepare=a_little_off)
    with pytest.raises(RuntimeError, match="wrong: 500 of 500 losses too high"):
        measure(at, [limit, wrong], repeats=1)
    (figures,) = measure(at, [limit], repeats=1, tries=1)
    assert (figures.kind, figures.short, figures.limit_ratio) == ("solve", 0, 1)


def test_what_the_host_disturbed_is_taken_again(monkeypatch):
    from benchmarks import clock

    monkeypatch.setattr(clock, "_WAIT_S", 0)
    lost = 0.0

    def tries(*losses):
        """A sample of tries of which each loses so much, and is numbered from 0."""
        number = iter(range(len(losses)))

        def take():
            nonlocal lost
            one = next(number)
            lost += losses[one]
            return one

        return take

    monkeypatch.setattr(clock, "_stolen", lambda: lost)
    assert clock.least_disturbed(tries(0)) == (0, 0)
    assert clock.least_disturbed(tries(3, 1, 0)) == (2, 0)
    assert clock.least_disturbed(tries(3e9, 1e3, 2e9, 4e9, 5e9))[0] == 1
    assert clock.least_disturbed(tries(3e9), tries=1)[0] == 0


def test_the_clock_reads_what_the_kernel_says(monkeypatch, tmp_path):
    from benchmarks import clock

    monkeypatch.setattr(clock, "_STAT", tmp_path / "stat")
    assert clock._stolen() == 0
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7 800 9 10\ncpu0 1 2 3 4 5 6 7 800 9 10\n")
    assert clock._stolen() == 800 / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_nights_that_are_killed_lose_nothing(tmp_path):
    command = [sys.executable, "-m", "benchmarks.nightly", "--nights", "2", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    found = json.loads((tmp_path / "nightly.json").read_text())
    assert found["checked"]["files, all whole and the same"] == 15


@pytest.mark.slow
def test_every_call_of_rows_is_timed_beside_a_fit(tmp_path):
    from benchmarks import rooms

    path = tmp_path / "rooms.json"
    names = list(rooms.CALLS | rooms.FLAT_CALLS)[::5]  # all compile for minutes
    command = [sys.executable, "-m", "benchmarks.rooms", "--quick", "--out", str(path)]
    subprocess.run([*command, "--only", *names], cwd=ROOT, check=True)
    found = json.loads(path.read_text())["results"]
    assert list(found) == names
    assert all(x["seconds"] > 0 for of in found.values() for x in of.values())


@pytest.mark.slow
def test_every_call_takes_no_more_memory_than_is_recorded():
    """Within a tenth, and three bytes a row: what all calls share varies by some megabytes.

    The record is the most of three processes on an idle machine; here the least of three is asked.
    """
    from benchmarks import memory

    recorded = json.loads((ROOT / "benchmarks" / "results" / "memory.json").read_text())
    of = recorded["results"][0]
    most = {name: 1.1 * x + 3 for name, x in of["bytes per row"].items() if x is not None}
    above = most
    for _ in range(3):
        # A busy machine takes several times as long as the one of the record.
        found = memory.of_each(above, of["rows"], of["segments"], longest=300)
        above = {x: found[x] for x in above if found[x] is None or found[x] > most[x]}
    assert {x: (bytes_, most[x]) for x, bytes_ in above.items()} == {}
