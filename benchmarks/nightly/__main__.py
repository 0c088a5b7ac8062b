"""Twenty nights of flights, killed at random: ``python -m benchmarks.nightly``.

Every night is a process of its own (`job`), which is killed after a random time, by SIGKILL, about
as often as not; then the same command is given again. In the end every file is there and whole,
and the last calibrator is that of nights that nothing stopped, to the bit.
"""

from __future__ import annotations

import argparse
import csv
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np

import platt_jax as pj
from benchmarks import machine
from platt_jax.data import load_flights

_ATTEMPTS = 50


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nightly", description=__doc__)
    parser.add_argument("--nights", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep the files there")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results")
    args = parser.parse_args()
    found: dict = {"machine": machine.describe()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        found["killed"] = run(folder / "killed", args.nights, np.random.default_rng(args.seed))
        found["undisturbed"] = run(folder / "undisturbed", args.nights, None)
        found["checked"] = check(folder, args.nights)
    print(json.dumps(found, indent=1))
    (args.out / "nightly.json").write_text(json.dumps(found, indent=1) + "\n")


def run(folder: Path, nights: int, random) -> dict:
    """All nights; with `random` each is killed now and then."""
    _arrive(folder / "rows", nights)
    kills, seconds = 0, []
    for night in range(nights + 1):
        for _ in range(_ATTEMPTS):
            command = [sys.executable, "-m", "benchmarks.nightly.job", str(folder), str(night)]
            began = time.perf_counter()
            process = subprocess.Popen(command)
            # Up to twice as long as a night takes: about half of the attempts end by themselves.
            limit = None if random is None else random.uniform(0, 12)
            try:
                if process.wait(limit):
                    raise RuntimeError(f"night {night} ended with {process.returncode}")
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
        else:
            raise RuntimeError(f"night {night} was killed {_ATTEMPTS} times")
        seconds.append(round(time.perf_counter() - began, 2))
    return {"nights": nights, "kills": kills, "seconds of the last attempt": seconds}


def _arrive(rows: Path, nights: int) -> None:
    """Night 0 has all flights before the last days, each other night those of one day."""
    rows.mkdir(parents=True)
    flights = load_flights()
    last = flights.day.max()
    for night in range(nights + 1):
        here = flights.day <= last - nights if night == 0 else flights.day == last - nights + night
        np.savez(
            rows / f"{night:03d}.npz",
            score=flights.score[here],
            late=flights.outcome[here],
            route=flights.route[here],
        )


def check(folder: Path, nights: int) -> dict:
    """That nothing is lost: every file is whole, and the same as if nothing had been killed.

    Raises:
        AssertionError: something is.
    """
    files = 0
    for night in range(nights + 1):
        killed, whole = (folder / name / f"{night:03d}" for name in ("killed", "undisturbed"))
        names = sorted(path.name for path in whole.iterdir())
        assert sorted(path.name for path in killed.iterdir()) == names, (night, names)
        assert len(names) == (3 if night == 0 else 6)
        files += len(names)
        for name in names:
            if name == "calibrator.npz":
                a, b = (pj.load(place / name) for place in (killed, whole))
                for pair in ((a.keys, b.keys), (a.fit.A, b.fit.A), (a.fit.hessian, b.fit.hessian)):
                    np.testing.assert_array_equal(*pair)
            elif name == "monitor.npz":
                a, b = (
                    pj.Monitor.load(place / name, pj.load(place / "calibrator.npz"))
                    for place in (killed, whole)
                )
                assert repr(a.table()) == repr(b.table()), (night, name)
            elif name != "report.html":  # which says when it was made
                assert (killed / name).read_bytes() == (whole / name).read_bytes(), (night, name)
            else:
                assert (killed / name).read_text().rstrip().endswith("</html>")
    _check_served(folder / "killed", nights)
    log = [json.loads(line) for line in (folder / "killed" / "log.jsonl").read_text().splitlines()]
    begun = [line for line in log if line["what"] == "begin"]
    # A night that is killed after its last line is begun, and ends, once more.
    ended = dict.fromkeys(line["night"] for line in log if line["what"] == "end")
    assert list(ended) == list(range(nights + 1))
    resumed = [line for line in begun if line["found"]]
    flagged = {line["night"]: line["flagged"] for line in log if line.get("flagged")}
    return {
        "files, all whole and the same": files,
        "nights begun, as the log has it": len(begun),
        "of them resumed with files there": len(resumed),
        "flagged routes by night": flagged,
    }


def _check_served(folder: Path, nights: int) -> None:
    """The exported SQL gives what was served."""
    night = folder / f"{nights - 1:03d}"
    with (night / "served.csv").open(newline="") as file:
        served = list(csv.DictReader(file))
    *setup, query = (night / "calibrator.sql").read_text().rstrip(";\n").split(";\n")
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in setup:
            connection.execute(statement)
        connection.execute("CREATE TABLE flights (score, route)")
        rows = [(float(row["score"]), row["route"]) for row in served]
        connection.executemany("INSERT INTO flights VALUES (?, ?)", rows)
        by_sql = [row[-1] for row in connection.execute(query)]
    probabilities = [float(row["probability"]) for row in served]
    # Served by float32 arithmetic, as the scores and the calibrator are.
    np.testing.assert_allclose(by_sql, probabilities, rtol=1e-5)
    assert len(served) > 500


if __name__ == "__main__":
    main()
