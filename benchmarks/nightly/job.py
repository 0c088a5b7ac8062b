"""One night: ``python -m benchmarks.nightly.job FOLDER NIGHT``.

FOLDER/rows has the rows of each night, ``rows/003.npz``. The night makes, one after the other, the
files of FOLDER/003: what yesterday's calibrator says of tonight's rows, which it has not seen
(``triage.csv``, ``monitor.npz``, ``report.html``), then tonight's calibrator and what is served
from it. A file is whole or not there, so that a night that was stopped is made again by the same
command: it goes on with the first file that is missing. FOLDER/log.jsonl has a line for each thing
that happened.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import platt_jax as pj
from platt_jax import SegmentCalibrator, export
from platt_jax.environment import use_compilation_cache
from platt_jax.report import to_html

# Rows of a month ago count a little less than half.
_FORGETTING = 0.975


def main() -> None:
    folder, night = Path(sys.argv[1]), int(sys.argv[2])
    use_compilation_cache(folder / "compiled")
    Night(folder, night).run()


class Night:
    """The files of one night, in the order in which they are made."""

    def __init__(self, folder: Path, night: int):
        self.folder, self.night = folder, night
        self.place = folder / f"{night:03d}"
        self.scores, self.labels, self.routes = _rows(folder, night)

    def run(self) -> None:
        """Make what is missing."""
        self.place.mkdir(exist_ok=True)
        for left in self.place.glob(".*.partial"):  # of a night that was killed
            left.unlink()
        steps: dict[str, Callable[[Path], dict]] = {
            "triage.csv": self.triage,
            "monitor.npz": self.monitor,
            "report.html": self.report,
            "calibrator.npz": self.fit,
            "calibrator.sql": self.export,
            "served.csv": self.apply,
        }
        if self.night == 0:  # there is no calibrator of yesterday
            del steps["triage.csv"], steps["monitor.npz"], steps["report.html"]
        there = [name for name in steps if (self.place / name).exists()]
        self.log("begin", rows=len(self.scores), found=there)
        for name, step in steps.items():
            if name not in there:
                began = time.perf_counter()
                about = step(self.place / name)
                self.log(name, seconds=round(time.perf_counter() - began, 3), **about)
        self.log("end")

    def yesterday(self) -> SegmentCalibrator:
        return pj.load(self.folder / f"{self.night - 1:03d}" / "calibrator.npz")

    def triage(self, path: Path) -> dict:
        """Which routes have changed, by tonight's rows?"""
        table = pj.triage(self.yesterday(), self.scores, self.labels, self.routes)
        _write_csv(path, list(table), *table.values())
        flagged = table["segment"][table["flagged"]].tolist()
        return {"segments": len(table["segment"]), "flagged": flagged}

    def monitor(self, path: Path) -> dict:
        """Which routes have been off for some nights, as each night's calibrator saw them?"""
        before = self.folder / f"{self.night - 1:03d}" / path.name
        if self.night == 1:
            monitor = pj.Monitor.start(self.yesterday())
        else:
            monitor = pj.Monitor.load(before, self.yesterday())
        monitor = monitor.update(self.scores, self.labels, self.routes)
        monitor.save(path)
        return {"nights": monitor.night, "alarms": monitor.alarms()["segment"].tolist()}

    def report(self, path: Path) -> dict:
        to_html(path, self.yesterday(), self.scores, self.labels, self.routes)
        return {"bytes": path.stat().st_size}

    def fit(self, path: Path) -> dict:
        """Yesterday's posterior is tonight's prior."""
        rows = self.scores, self.labels, self.routes
        if self.night == 0:
            calibrator = pj.fit_segments(*rows)
        else:
            calibrator = pj.update(self.yesterday(), *rows, forgetting=_FORGETTING)
        pj.save(path, calibrator)
        return {"segments": len(calibrator), "converged": int(calibrator.fit.converged.sum())}

    def export(self, path: Path) -> dict:
        calibrator = pj.load(self.place / "calibrator.npz")
        made = export.to_sql(calibrator, "score", "route", dialect="sqlite", table="sigmoids")
        query = f"SELECT *, {made.expression} AS p FROM flights {made.join}"
        _write(path, ";\n".join([*made.setup, query, ""]).encode())
        return {"segments": len(calibrator)}

    def apply(self, path: Path) -> dict:
        """Tomorrow's flights, where they are known."""
        calibrator = pj.load(self.place / "calibrator.npz")
        if not _file(self.folder, self.night + 1).exists():
            scores, routes = self.scores[:0], self.routes[:0]
        else:
            scores, _, routes = _rows(self.folder, self.night + 1)
        p = calibrator.predict_proba(scores, routes)
        _write_csv(path, ["score", "route", "probability"], scores, routes, p)
        return {"rows": len(p), "unseen": int((~calibrator.seen(routes)).sum())}

    def log(self, what: str, **about) -> None:
        """One line, written at once: a process that is killed writes it whole or not."""
        line = json.dumps(
            {"night": self.night, "time": round(time.time(), 3), "what": what, **about}
        )
        with open(self.folder / "log.jsonl", "ab", buffering=0) as file:
            file.write(f"{line}\n".encode())


def _file(folder: Path, night: int) -> Path:
    return folder / "rows" / f"{night:03d}.npz"


def _rows(folder: Path, night: int):
    with np.load(_file(folder, night)) as rows:
        return rows["score"], rows["late"], rows["route"]


def _write_csv(path: Path, header, *columns) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*(column.tolist() for column in columns), strict=True))
    _write(path, text.getvalue().encode())


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    unfinished = path.with_name(f".{path.name}.partial")
    with open(unfinished, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


if __name__ == "__main__":
    main()
