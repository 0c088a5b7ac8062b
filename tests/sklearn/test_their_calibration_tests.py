"""scikit-learn's own tests of calibration, with PlattCalibratedClassifier in place of theirs."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from test_docs import ROOT

pytest.importorskip("sklearn.base")  # "sklearn" is a folder here, too
import sklearn

# Tests that fail by design, each with the reason.
EXCEPTIONS = {
    "test_calibration_cv_nfold": "classes of fewer rows than folds are no error here, and the "
    "message that refuses LeaveOneOut says what to do instead",
}

# In a process of its own, whose only plugin puts our class into their module.
PROGRAM = """
import json, sys
import pytest
from platt_jax.sklearn import PlattCalibratedClassifier

class Ours:
    outcomes = {}

    def pytest_collection_modifyitems(self, items):
        for item in items:
            item.module.CalibratedClassifierCV = PlattCalibratedClassifier

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.failed:
            self.outcomes[report.nodeid.split("::")[-1]] = report.outcome

where, *options = sys.argv[1:]
pytest.main(["--pyargs", "sklearn.tests.test_calibration", *options], plugins=[Ours()])
json.dump(Ours.outcomes, open(where, "w"))
"""


@pytest.mark.slow
def test_their_tests_of_calibration_pass(tmp_path):
    if importlib.util.find_spec("sklearn.tests.test_calibration") is None:
        pytest.skip("scikit-learn is installed without its tests")
    if sklearn.__version__.startswith("1.7."):
        pytest.skip('these tests take cv="prefit", which later versions do not have')
    options = ["-q", "-W", "ignore", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    # They try other arrays than NumPy's only if this is set.
    env = {name: value for name, value in os.environ.items() if name != "SCIPY_ARRAY_API"}
    env["PYTHONPATH"] = str(ROOT)
    outcomes = tmp_path / "outcomes.json"
    command = [sys.executable, "-c", PROGRAM, str(outcomes), *options]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    found = json.loads(outcomes.read_text())
    failed = {name for name, outcome in found.items() if outcome == "failed"}
    assert failed == set(EXCEPTIONS), done.stdout[-10_000:]
    assert list(found.values()).count("passed") > 80  # 112 of scikit-learn 1.9
