"""Curves of other packages: ``python -m benchmarks.papers.curve_peers --data DIR``.

A part of `benchmarks.papers.curves`: 300 calibration rows in some of its problems.
It needs venn-abers, betacal and netcal.
"""

from __future__ import annotations

import argparse
import json
import warnings
from importlib import metadata
from pathlib import Path

import numpy as np

import platt_jax as pj
from benchmarks import machine
from benchmarks.papers.curve_sets import binary
from benchmarks.papers.curves import log_loss

_RESULTS = Path(__file__).parents[1] / "results" / "papers" / "curve_peers.json"
_SETS = (
    "digits, 5 to 9",
    "optdigits, odd",
    "optdigits, 8",
    "covertype, lodgepole",
    "covertype, high",
)
_ROWS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="the directory of the data sets")
    arguments = parser.parse_args()
    about = machine.describe()
    scored = list(binary(Path(arguments.data), 0, _SETS))
    losses = []
    for x in scored:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            losses.append(of_all(x.scores[:_ROWS], x.labels[:_ROWS], x.test_scores, x.test_labels))
    told = {
        "machine": about,
        "packages": {x: metadata.version(x) for x in ("venn-abers", "betacal", "netcal")},
        "experiments": len(scored),
        "rows": _ROWS,
        "log loss": {
            name: round(float(np.mean([x[name] for x in losses])), 5) for name in losses[0]
        },
    }
    _RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told, indent=1))


def of_all(f: np.ndarray, y: np.ndarray, at: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The log loss on other rows of our curves and of other packages'."""
    from betacal import BetaCalibration
    from netcal import binning, scaling
    from venn_abers import VennAbers

    q, q_at = (1 / (1 + np.exp(-x)) for x in (f, at))
    both, both_at = (np.stack([1 - x, x], 1) for x in (q, q_at))
    p = {
        name: pj.fit(f, y, curve=name).predict_proba(at)
        for name in ("sigmoid", "quadratic", "beta", "isotonic", "venn_abers")
    }
    p["beta: betacal"] = BetaCalibration().fit(q, y).predict(q_at)
    theirs = VennAbers()
    theirs.fit(both, y.astype(int))
    p["venn_abers: venn-abers"] = theirs.predict_proba(both_at)[0][:, 1]
    for name, kind in (
        ("logistic: netcal", scaling.LogisticCalibration),
        ("beta: netcal", scaling.BetaCalibration),
        ("isotonic: netcal", binning.IsotonicRegression),
    ):
        one = kind()
        one.fit(q, y.astype(int))
        p[name] = np.ravel(one.transform(q_at))
    return {name: float(log_loss(x, labels).mean()) for name, x in p.items()}


if __name__ == "__main__":
    main()
