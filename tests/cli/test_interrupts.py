"""Ctrl-C at random moments: of the command line, and as Jupyter interrupts a cell."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import platt_jax as pj

pytestmark = pytest.mark.slow

COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore it
from platt_jax.cli import run
print("started", flush=True)
run()
"""
ROWS = "--score f --label y --segment shop"
COMMANDS = (
    f"fit rows.csv {ROWS} --out out.npz",
    "apply rows.csv --calibrator c.npz --score f --segment shop --out out.csv",
    f"triage rows.csv --calibrator c.npz {ROWS} --out out.csv",
)
TRIES = 7  # of each


@pytest.fixture
def folder(tmp_path):
    """Rows of 2,000 shops, and their calibrator."""
    rng = np.random.default_rng(0)
    shop, f = np.arange(100_000) % 2000, rng.normal(size=100_000)
    y = (rng.random(100_000) < 1 / (1 + np.exp(1 - f))).astype(int)
    lines = (f"{a!r},{b},s{c}\n" for a, b, c in zip(f.tolist(), y, shop, strict=True))
    (tmp_path / "rows.csv").write_text("f,y,shop\n" + "".join(lines))
    shops = np.char.add("s", shop.astype(str))
    pj.save(tmp_path / "c.npz", pj.fit_segments(f, y, shops, pooling="partial"))
    return tmp_path


def started(folder, command):
    """The process of a command without stored programs, once its imports are done."""
    env = {name: x for name, x in os.environ.items() if "COMPILATION_CACHE" not in name}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    words = [sys.executable, "-c", COMMAND, *command.split()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(words, cwd=folder, env=env, text=True, **pipes)
    assert process.stdout.readline() == "started\n"
    return process


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_with_one_line_and_writes_nothing(folder, command):
    with started(folder, command) as process:
        begun = time.monotonic()
        process.communicate(timeout=300)
        seconds = time.monotonic() - begun
    assert process.returncode == 0
    before = set(os.listdir(folder))
    out = folder / command.split()[-1]
    out.unlink()
    before -= {out.name}
    draw, ends = random.Random(0), []
    for _ in range(TRIES):
        with started(folder, command) as process:
            time.sleep(draw.uniform(0, 0.7 * seconds))
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=120)
        ends.append(process.returncode)
        if process.returncode == 0:  # done before
            out.unlink()
            continue
        assert process.returncode == 130, err
        assert err.splitlines()[-1] == "platt-jax: stopped by Ctrl-C" and "Fatal" not in err
        assert set(os.listdir(folder)) == before
    assert ends.count(130) > TRIES / 2


FIT = """
import numpy as np, jax, platt_jax as pj
rng = np.random.default_rng(0)
f, ids = rng.normal(size=100_000), np.arange(100_000) % 2000
y = rng.random(100_000) < 1 / (1 + np.exp(1 - f))
def fitted():
    return pj.fit_segments(f, y, ids, pooling="partial")
before = fitted()
"""
LOOP = """
while True:
    jax.clear_caches()  # so that it compiles, and computes, and compiles
    fitted()
"""


def test_a_notebook_works_on_after_an_interrupt():
    manager = pytest.importorskip("jupyter_client.manager")
    kernel, client = manager.start_new_kernel(kernel_name="python3")
    try:
        assert run_cell(client, FIT)["status"] == "ok"
        draw = random.Random(0)
        for _ in range(6):
            # What comes soon after a cell's error is aborted otherwise, the next cell here.
            cell = client.execute(LOOP, stop_on_error=False)
            interrupted = None
            while interrupted is None:  # JAX's callback of garbage collection loses a few
                time.sleep(draw.uniform(0.2, 3))
                kernel.interrupt_kernel()
                interrupted = reply(client, cell, 20)
            assert interrupted["ename"] == "KeyboardInterrupt"
            assert run_cell(client, "assert fitted() == before")["status"] == "ok"
    finally:
        client.stop_channels()
        kernel.shutdown_kernel()


def run_cell(client, code):
    return reply(client, client.execute(code), 120)


def reply(client, cell, seconds):
    """What the kernel answers to a cell; None if it says nothing."""
    import queue

    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            message = client.get_shell_msg(timeout=left)
        except queue.Empty:
            return None
        if message["parent_header"]["msg_id"] == cell:
            return message["content"]
    return None
