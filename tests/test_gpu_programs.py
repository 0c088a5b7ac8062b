"""The reader of compiled programs, on text of XLA's form; and the script that measures on a GPU."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TEXT = """HloModule jit_f

%fused_gather (p.0: f32[1000,8], p.1: s32[10]) -> f32[10,8] {
  %p.0 = f32[1000,8]{1,0} parameter(0)
  %bitcast.1 = f32[8000]{0} bitcast(%p.0)
  %p.1 = s32[10]{0} parameter(1)
  ROOT %gather.1 = f32[10,8]{1,0} gather(%bitcast.1, %p.1), offset_dims={1}
}

%fused_sum (p.2: f32[1000,8], p.3: pred[1000,8]) -> (f32[1000], f32[1000]) {
  %p.2 = f32[1000,8]{1,0} parameter(0)
  %p.3 = pred[1000,8]{1,0} parameter(1)
  %select.1 = f32[1000,8]{1,0} select(%p.3, %p.2, %p.2)
  ROOT %reduce.1 = (f32[1000]{0}, f32[1000]{0}) reduce(%select.1, %p.2), dimensions={1}
}

%body (x: (s32[], f32[1000,8])) -> (s32[], f32[1000,8]) {
  %x = (s32[], f32[1000,8]{1,0}) parameter(0)
  %f = f32[1000,8]{1,0} get-tuple-element(%x), index=1
  %mask = pred[1000,8]{1,0} fusion(%f), kind=kLoop, calls=%fused_mask
  %sums = (f32[1000]{0}, f32[1000]{0}) fusion(%f, %mask), kind=kInput, calls=%fused_sum
  ROOT %next = (s32[], f32[1000,8]{1,0}) tuple(%i, %f)
}

%fused_mask (p.4: f32[1000,8]) -> pred[1000,8] {
  %p.4 = f32[1000,8]{1,0} parameter(0)
  ROOT %lt = pred[1000,8]{1,0} compare(%p.4, %p.4), direction=LT
}

ENTRY %main (a: f32[1000,8], b: s32[10]) -> f32[10,8] {
  %a = f32[1000,8]{1,0} parameter(0)
  %b = s32[10]{0} parameter(1)
  %copy.1 = s32[10]{0} copy(%b)
  %while.1 = (s32[], f32[1000,8]{1,0}) while(%start), condition=%test, body=%body
  ROOT %picked = f32[10,8]{1,0} fusion(%a, %copy.1), kind=kLoop, calls=%fused_gather
}
"""
SCORES, MASK = 4 * 8_000, 8_000


@pytest.fixture
def programs():
    from benchmarks.gpu import programs

    return programs


@pytest.fixture
def compiled():
    from benchmarks.gpu import compiled

    return compiled


@pytest.fixture
def entry():
    from benchmarks.gpu import entries

    return entries.Entry(None, (), {}, rows=8_000)


@pytest.fixture
def record(compiled):
    return json.loads(compiled.RECORD.read_text())["programs"]


@pytest.fixture
def program(programs):
    computations, entry = programs._parsed(TEXT)
    return programs.Program(computations, entry, ["kCommandBuffer"], 0, 0, spills=False)


def test_a_gather_reads_what_it_takes_and_a_loop_is_apart(program):
    copy, picked = program.kernels("main")
    assert copy == ("copy.1", "copy", 2 * 40)
    assert picked == ("picked", "fusion", 4 * 80 + 4 * 80 + 40)
    assert program.loops("main") == ["body"] and program.loops("body") == []


def test_a_kernel_reads_an_operand_once(program):
    mask, sums = program.kernels("body")
    assert mask.bytes == SCORES + MASK
    assert sums.bytes == SCORES + MASK + 2 * 4_000


def test_a_description_counts_the_kernels_of_the_rows_size(program, compiled, entry):
    about = compiled.described(program, entry)
    assert about["pass"] == {
        "kernels": 2,
        "kernels of the rows' size": 2,
        "bytes per row": 11.0,
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"thunks": ["kCommandBuffer", "kWhile"]}, "one command buffer"),
        ({"entry": "body"}, "has 0 loops"),
    ],
)
def test_a_broken_rule_is_named(program, programs, compiled, entry, change, said):
    assert compiled.broken_rules(program, entry) == []
    other = programs.Program(**{**vars(program), **change})
    assert any(said in rule for rule in compiled.broken_rules(other, entry))


def test_what_is_worse_than_recorded_is_named(compiled):
    before = {"bytes per row": 10.0, "spills registers": 0, "pass": {"kernels": 2}}
    assert compiled.worse({**before, "bytes per row": 10.4}, before) == []
    now = {"bytes per row": 10.6, "spills registers": 1, "pass": {"kernels": 3}}
    assert compiled.worse(now, before) == [
        "bytes per row: 10.6, recorded 10.0",
        "spills registers: 1, recorded 0",
        "in a pass, kernels: 3, recorded 2",
    ]


def test_the_record_keeps_the_rules(record, compiled):
    assert {name.rpartition(", ")[2] for name in record} == {"float32", "float64"}
    for name, program in record.items():
        few = "pass" not in program and program["kernels"] <= compiled._LAUNCHED_ALONE
        assert program["launches"] == 1 or few or "devices" in name
        assert (
            program.get("pass", {"kernels of the rows' size": 0})["kernels of the rows' size"] <= 6
        )


def test_no_pass_over_tiles_writes_arrays_of_the_rows_size(record):
    """Of 5 bytes a row; a pass over a segment's tile rows also adds up those."""
    once = record["solve 100,000 x 1,000, float32"]
    assert once["pass"]["bytes per row"] < 6 and once["temporary bytes per row"] < 1
    ragged = record["fit_segments, about 1,000 rows each, float32"]
    assert ragged["pass"]["bytes per row"] < 12 and ragged["temporary bytes per row"] < 1.2 * 5


def test_the_page_quotes_what_was_measured():
    page = (ROOT / "docs" / "howto" / "gpu.md").read_text()
    now, before = (
        json.loads(
            (ROOT / "benchmarks" / "results" / f"gpu-nvidia-h200-2026-11-27{x}.json").read_text()
        )
        for x in ("", "-first")
    )
    seconds = [x for x in now["whole calls"].values() if x < 1e3]
    seconds += [x for name, x in before["whole calls"].items() if "segments" in name]
    rooms = "predict_proba", "predict_proba, partial pooling", "band", "log_loss", "roc_auc"
    milliseconds = [1e3 * now["rooms"][x] for x in rooms] + [1e3 * before["rooms"]["predict_proba"]]
    for peer in now["peers"].values():
        milliseconds.append(1e3 * peer["fit, arrays on the device"])
        assert f"{peer['ratio']:.0f} times" in page
    for size in ("100,000 x 1,000, float32", "12,500 x 8,000, float32"):
        ways = now["without kernels"][size]
        milliseconds += [ways["by the kernel"], ways["by XLA's operations"]]
        assert ways["largest difference"] < 5e-6 and ways["equal statuses"]
    quoted = [(x, "s") for x in seconds if x != now["whole calls"]["fit, arrays on the device"]]
    for value, unit in quoted + [(x, "ms") for x in milliseconds]:
        assert re.search(rf"\b{value:.2g} {unit}\b", page), (value, unit)


@pytest.mark.slow
def test_the_measurements_on_any_device(tmp_path):
    steps = ["agreement", "bits", "programs", "choices", "whole calls"]
    command = [sys.executable, "-m", "benchmarks.gpu.measured", "--small", "--out", str(tmp_path)]
    done = subprocess.run([*command, "--only", *steps], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("gpu-*.json")
    found = json.loads(path.read_text())
    assert not [step for step in steps if isinstance(found[step], str)], found
    assert all(found["bits"].values())
    assert found["agreement"]["float64"]["largest difference"] < 1e-6
