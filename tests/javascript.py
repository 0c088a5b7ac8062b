"""Runs exported ES modules by Node."""

import json
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

_RUN = """
import { predict } from "./exported.mjs";
import { readFileSync } from "node:fs";

// Numbers that JSON lacks, and BigInt, are objects of one text.
const revive = (_, x) =>
  x?.asNumber ? Number(x.asNumber) : x?.asBigInt ? BigInt(x.asBigInt) : x;
const answer = (row) => {
  try {
    return String(predict(...row));
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
};
console.log(JSON.stringify(JSON.parse(readFileSync("rows.json", "utf8"), revive).map(answer)));
"""


def answers(module, rows):
    """The text of each answer, or of its error; a row has the arguments of `predict`."""
    if not (node := shutil.which("node")):
        pytest.skip("needs Node")
    with TemporaryDirectory() as folder:
        Path(folder, "exported.mjs").write_text(module, encoding="ascii")
        Path(folder, "run.mjs").write_text(_RUN)
        Path(folder, "rows.json").write_text(json.dumps([[_sent(x) for x in row] for row in rows]))
        done = subprocess.run([node, "run.mjs"], cwd=folder, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def predicted(module, rows):
    """The probabilities."""
    return [float(x) for x in answers(module, rows)]


def _sent(value):
    if isinstance(value, list | tuple):
        return [_sent(x) for x in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, float):
        return {"asNumber": "NaN" if np.isnan(value) else repr(value).replace("inf", "Infinity")}
    if isinstance(value, int) and abs(value) >= 2**53:
        return {"asBigInt": str(value)}
    return value
