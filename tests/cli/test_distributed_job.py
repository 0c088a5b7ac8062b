"""`platt-jax fit --distributed`: the how-to's job script, under a simulated scheduler."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from data import rows_of

import platt_jax as pj

HOW_TO = Path(__file__).parents[2] / "docs/howto/hosts.md"
# What srun tells each process, as far as JAX asks; ends as the worst of them does.
SRUN = """#!/bin/bash
for ((i = 0; i < SLURM_NTASKS; i++)); do
    SLURM_STEP_NODELIST=127.0.0.1 SLURM_PROCID=$i SLURM_LOCALID=$i "$@" & echo $! >> pids
done
worst=0
for pid in $(cat pids); do
    wait $pid; status=$?
    ((status > worst)) && worst=$status
done
exit $worst
"""

pytestmark = pytest.mark.slow


def rows():
    rng = np.random.default_rng(0)
    f, y, s = rows_of(rng, rng.integers(0, 20, 3000).astype(str), A=-1)
    return f, y.astype(int), s


@pytest.fixture
def job(tmp_path):
    """Starts the job script with so many processes, in a directory with two files of rows."""
    for i in range(2):
        lines = zip(*(x[i::2].tolist() for x in rows()), strict=True)
        content = "".join(f"{f!r},{y},{s}\n" for f, y, s in lines)
        (tmp_path / f"rows-{i}.csv").write_text("f,y,shop\n" + content)
    (script,) = re.findall(r"```bash\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    command = f'#!/bin/bash\nexec {sys.executable} -m platt_jax "$@"\n'
    for name, content in (("srun", SRUN), ("platt-jax", command)):
        (bin_ / name).write_text(content)
        (bin_ / name).chmod(stat.S_IRWXU)

    def start(processes, options=""):
        (tmp_path / "job.sh").write_text(script.replace("--out", f"{options} --out"))
        (tmp_path / "pids").unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "SLURM_JOB_ID": free_job_number(),
            "SLURM_NTASKS": str(processes),
        }
        return subprocess.Popen(
            ["bash", "job.sh"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def free_job_number():
    """One for which JAX takes a port that is free: one of the last 4,096."""
    for number in np.random.default_rng().permutation(4096).tolist():
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", 65536 - 4096 + number))
            except OSError:
                continue
            return str(number)
    raise AssertionError("no port is free")


def ended(process, seconds=150):
    try:
        return process.communicate(timeout=seconds)[0]
    finally:
        process.kill()


def pids(directory, count):
    for _ in range(300):
        file = directory / "pids"
        found = file.read_text().split() if file.exists() else []
        if len(found) == count:
            return [int(x) for x in found]
        time.sleep(0.1)
    raise AssertionError(f"{count} processes did not start")


def once_read(path):
    """A pipe, opened for writing as soon as a process opens it for reading."""
    for _ in range(600):
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.1)
    raise AssertionError("no process reads it")


def test_the_job_script_fits_what_one_process_does(job, tmp_path):
    """Of three processes one has no file."""
    process = job(3)
    written = ended(process)
    assert process.returncode == 0, written
    assert written.count("saved to calibrator.npz") == 1
    found = pj.load(tmp_path / "calibrator.npz")
    expected = pj.fit_segments(*rows(), pooling="partial")
    assert (found.keys == expected.keys).all() and found.pooling == "partial"
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-4)
    assert not (tmp_path / "sums").exists()


def test_a_job_without_pooling(job, tmp_path):
    process = job(2, "--pooling none")
    written = ended(process)
    assert process.returncode == 0, written
    found = pj.load(tmp_path / "calibrator.npz")
    expected = pj.fit_segments(*rows())
    assert found.pooling == "none"
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-9)


def test_bad_rows_of_one_process_end_all(job, tmp_path):
    with (tmp_path / "rows-1.csv").open("a") as file:
        file.write("0.5,7,a\n")
    process = job(2)
    written = ended(process)
    assert "rows-1.csv, line 1502, column 'y': '7' is not a label" in written
    assert "a process has ended" in written and process.returncode == 4, written


def test_a_cancelled_job_ends(job, tmp_path):
    (tmp_path / "rows-0.csv").unlink()
    os.mkfifo(tmp_path / "rows-0.csv")  # the first process waits for its rows, the second for it
    process = job(2)
    started = pids(tmp_path, 2)
    opened = once_read(tmp_path / "rows-0.csv")
    time.sleep(3)  # for the second
    assert process.poll() is None
    for pid in started:
        os.kill(pid, signal.SIGTERM)
    written = ended(process, seconds=10)
    os.close(opened)
    assert process.returncode == 128 + signal.SIGTERM, written


def test_without_a_launcher_it_says_so(tmp_path):
    (tmp_path / "in.csv").write_text("f,y,s\n1,0,a\n")
    words = "fit in.csv --distributed --score f --label y --segment s --out c.npz"
    done = subprocess.run(
        [sys.executable, "-m", "platt_jax", *words.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "--distributed: expected to be started by srun" in done.stderr
