"""Several real processes fit together, over loopback."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROCESS = Path(__file__).parents[1] / "distributed_process.py"


def run_processes(count, what, seconds):
    """What each process wrote, and how it ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", PROCESS]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    begun = [
        subprocess.Popen([*command, str(i), str(count), str(port), what], **pipes)
        for i in range(count)
    ]
    try:
        written = [process.communicate(timeout=seconds)[0] for process in begun]
    finally:
        for process in begun:
            process.kill()
            process.wait()
            process.stdout.close()
    return written, [process.returncode for process in begun]


@pytest.mark.slow
@pytest.mark.parametrize("count, what", [(2, "one fit"), (4, "several fits")])
def test_the_answers_are_those_of_one_process(count, what):
    """Of four processes two have no rows."""
    written, codes = run_processes(count, what, seconds=240)
    assert codes == [0] * count, written
    told = [[x for x in w.splitlines() if x.startswith(("bits", "refused"))] for w in written]
    assert len(told[0]) == 3 and all(x == told[0] for x in told)
    assert "got 7" in told[0][1] and "in process 0" in told[0][1]
    assert "numbers and text" in told[0][2]


@pytest.mark.slow
def test_levels_whose_values_are_in_several_processes():
    """Of three processes one has no rows."""
    written, codes = run_processes(3, "levels", seconds=240)
    assert codes == [0] * 3, written
    told = [[x for x in w.splitlines() if x.startswith("bits")] for w in written]
    assert len(told[0]) == 2 and all(x == told[0] for x in told)


@pytest.mark.slow
@pytest.mark.parametrize("what, message", [("killed", "has ended"), ("stuck", "has said nothing")])
def test_a_lost_process_ends_the_others_in_time(what, message):
    written, codes = run_processes(2, what, seconds=150)
    assert codes[0] != 0 and message in written[0], written[0]


@pytest.mark.slow
@pytest.mark.parametrize("at, killed", [(2, 0), (8, 1), (11, 0)])
def test_a_killed_fit_goes_on_from_its_checkpoint_to_the_same_bits(tmp_path, at, killed):
    directory = tmp_path / "sums"
    written, codes = run_processes(2, f"checkpoint {directory} {at} {killed}", seconds=150)
    assert codes[killed] == -signal.SIGKILL and codes[1 - killed] != 0, written
    assert len(list(directory.iterdir())) == at - 1
    if at == 8:
        written, codes = run_processes(2, f"another {directory}", seconds=150)
        assert codes == [0, 0], written
        for w in written:
            assert "with other rows, options; delete" in w and "with other rows;" in w, written
    written, codes = run_processes(2, f"checkpoint {directory} 0 0", seconds=150)
    assert codes == [0, 0], written
    for w in written:
        resumed, whole = (int(x) for x in w.split("passes ")[1].split()[:2])
        assert resumed + at - 1 == whole > at, written
