"""What several files say of a release is the same in all of them."""

import re
import tomllib
from pathlib import Path

import platt_jax

ROOT = Path(__file__).parents[1]


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_and_the_changelog_are_of_this_version():
    citation, changelog = text_of("CITATION.cff"), text_of("CHANGELOG.md")
    (cited,) = re.findall(r"^version: (\S+)$", citation, re.M)
    version, when = re.search(r"^## (\S+) - (\S+)$", changelog, re.M).groups()
    assert cited == version == platt_jax.__version__
    assert re.findall(r"^date-released: (\S+)$", citation, re.M) in ([when], [])
    assert "date-released" in citation or when == "unreleased"


def test_every_supported_python_is_named_and_tested():
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    workflow = text_of(".github/workflows/ci.yml")
    assert project["requires-python"] == f">={named[0]}"
    assert set(re.findall(r'python: "(3\.\d+)"', workflow)) == set(named)
    assert re.search(r'PYTHON: "(.*)"', workflow)[1] == named[0]
    policy = text_of("docs/development/api_policy.md")
    assert f"| Python | {named[0]} |" in policy and f"{named[0]} to {named[-1]}" in policy


def test_the_workflow_runs_every_step():
    """Of the command that decides on a change."""
    workflow = text_of(".github/workflows/ci.yml")
    steps = re.findall(r"^(?:python |nice -n 19 )?(\.ci/\S+)", text_of(".ci/run"), re.M)
    assert len(steps) == 7 and [step for step in steps if step not in workflow] == []
    assert set(re.findall(r"needs: \[(.*)\]", workflow)[0].split(", ")) == set(
        re.findall(r"^  (\w+):$", workflow.split("\njobs:")[1], re.M)
    ) - {"passed"}
