"""Several real processes fit together, over loopback."""

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from platt_jax.curves.fitting import read
from platt_jax.distributed.call import described, require_same_call
from platt_jax.options import Options

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
def test_the_answers_are_those_of_one_process():
    """Of three processes one has no rows."""
    written, codes = run_processes(3, "fits", seconds=240)
    assert codes == [0] * 3, written
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
@pytest.mark.parametrize("at, killed", [(2, 0), (8, 1)])
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


SAME = "expected the same in all processes, got"
HASH = "numbers with hash [0-9a-f]{16}"
# The messages for the calls of `calls_that_differ`, and for another version of the package.
DIFFERENCES = [
    rf"options.max_iter: {SAME} 100 \(processes 0, 2\) and 2 \(process 1\); "
    rf"options.targets: {SAME} 'platt' \(processes 0, 2\) and 'none' \(process 1\)",
    rf"prior: {SAME} {HASH} \(process 0\) and None \(processes 1, 2\)",
    rf"prior: {SAME} {HASH} \(processes 0, 1\) and {HASH} \(process 2\)",
    rf"start: {SAME} None \(processes 0, 2\) and {HASH} \(process 1\)",
    rf"pooling: {SAME} 'none' \(processes 0, 2\) and 'partial' \(process 1\)",
    rf"checkpoint: {SAME} None \(processes 0, 2\) and a directory \(process 1\)",
    rf"checkpoint: {SAME} a directory \(process 0\) and None \(processes 1, 2\)",
    rf"pos_label: {SAME} 1 \(processes 0, 1\) and 0 \(process 2\)",
    rf"weights: {SAME} an array \(process 0\) and None \(process 1\)",
    rf"offset: {SAME} None \(process 0\) and an array \(process 1\)",
    r"pooling: expected one of .*, got '(partly){300}' \(in process 2\)",
    r"options: expected an Options, got NoneType \(in process 0\)",
    r"progress: expected True, False or a function .*, got 'bar' \(in process 1\)",
    r"prior: expected numbers, got dtype .* \(in process 1\)",
    rf"version of platt_jax: {SAME} '.*' \(processes 0, 2\) and '0.0.1' \(process 1\); "
    rf"options.monotone: {SAME} True \(process 0\) and False \(processes 1, 2\)",
]


@pytest.mark.slow
def test_calls_that_differ_are_refused_by_all_processes(tmp_path):
    """Of three processes one has no rows."""
    written, codes = run_processes(3, f"differing {tmp_path / 'sums'}", seconds=150)
    assert codes == [0] * 3, written
    told = [[x for x in w.splitlines() if x.startswith("refused")] for w in written]
    assert told[0] == told[1] == told[2]
    for line, expected in zip(told[0], DIFFERENCES, strict=True):
        assert re.fullmatch(f"refused {expected}", line), line


class OtherCalls:
    """An exchange with processes that called with these texts."""

    def __init__(self, *calls):
        self.calls = calls

    def gather_bytes(self, mine):
        return [mine, *(mine[:1] + json.dumps(x).encode() for x in self.calls)]


def test_shifts_are_told_apart_from_sigmoids():
    texts = [described("fit_segments", x) for x in (Options(), read("shift", "none", Options())[1])]
    with pytest.raises(ValueError, match=rf"^options.slope: {SAME} True .*0\) and False .*1\)$"):
        require_same_call(OtherCalls(texts[1]), lambda: texts[0])


def test_a_message_lists_few_processes_and_few_values():
    mine = {"function": "'fit_segments'", "prior": None}
    exchange = OtherCalls(*[{"function": "'fit'", "prior": str(i)} for i in range(20)])
    with pytest.raises(ValueError) as raised:
        require_same_call(exchange, lambda: mine)
    assert str(raised.value) == (
        f"function: {SAME} 'fit_segments' (process 0) and 'fit' (processes 1, 2, 3, 4, 5, 6, 7, 8, "
        f"...); prior: {SAME} 0 (process 1) and 1 (process 2) and 2 (process 3) and 3 (process 4) "
        "and 16 others"
    )
    require_same_call(OtherCalls({"prior": "1"}, {"prior": "1"}), lambda: mine | {"function": None})
