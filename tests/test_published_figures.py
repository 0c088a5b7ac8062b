"""The results that are committed, and every figure that is quoted from them."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import machine

    return machine


def read(path):
    return json.loads((RESULTS / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.json")), ids=lambda path: path.stem)
def test_results_carry_the_commit_that_they_were_measured_at(path):
    about = read(path)["machine"]
    assert len(about["commit"]) == 40 and int(about["commit"], 16)
    assert about["uncommitted_changes"] in (False, None)  # None: not known


def test_uncommitted_changes_of_the_code_are_seen(machine, monkeypatch, tmp_path):
    """Of the code: another command's results are not."""
    for folder in ("platt_jax", "benchmarks/results", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "benchmarks" / "machine.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert machine.commit() == {"commit": None, "uncommitted_changes": None}

    def git(*command):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True, capture_output=True)

    for code in (tmp_path / "platt_jax" / "a.py", tmp_path / "benchmarks" / "a.py"):
        code.write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    for other in ("benchmarks/results/a.json", "tests/a.py"):
        (tmp_path / other).write_text("{}")
    found = machine.commit()
    assert len(found["commit"]) == 40
    assert found["uncommitted_changes"] is False
    for code in (tmp_path / "platt_jax" / "a.py", tmp_path / "benchmarks" / "a.py"):
        code.write_text("2")
        assert machine.commit()["uncommitted_changes"] is True
        code.write_text("1")
