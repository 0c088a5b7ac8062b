"""Curves of other packages: ``python -m benchmarks.papers.curve_peers --data DIR``.

A part of `benchmarks.papers.curves`: 300 calibration rows in some of its problems.
It needs venn-abers, betacal, netcal, probmetrics and calibre.
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
_PACKAGES = "venn-abers", "betacal", "netcal", "probmetrics", "calibre"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="the directory of the data sets")
    arguments = parser.parse_args()
    about = machine.describe()
    scored = list(binary(Path(arguments.data), 0, _SETS))
    losses, briers = [], []
    for x in scored:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = probabilities(x.scores[:_ROWS], x.labels[:_ROWS], x.test_scores)
        losses.append({name: log_loss(p, x.test_labels).mean() for name, p in made.items()})
        briers.append({name: np.mean((p - x.test_labels) ** 2) for name, p in made.items()})
    told = {
        "machine": about,
        "packages": {x: metadata.version(x) for x in _PACKAGES},
        "experiments": len(scored),
        "rows": _ROWS,
        "log loss": means(losses),
        "Brier": means(briers),
    }
    _RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told, indent=1))


def means(each: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(float(np.mean([x[name] for x in each])), 5) for name in each[0]}


def probabilities(f: np.ndarray, y: np.ndarray, at: np.ndarray) -> dict[str, np.ndarray]:
    """Of other rows, by our curves and by other packages'."""
    import calibre
    from betacal import BetaCalibration
    from netcal import binning, scaling
    from probmetrics.calibrators import get_calibrator
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
    for kind in ("affine-scaling", "quadratic-scaling", "beta", "ivap"):
        one = get_calibrator(kind)
        one.fit(both, y.astype(int))
        p[f"{kind}: probmetrics"] = one.predict_proba(both_at)[:, 1]
    for kind in (
        calibre.NearlyIsotonicRegression,
        calibre.RelaxedPAVA,
        calibre.ISplineCalibrator,
        calibre.SmoothedIsotonicRegression,
    ):
        one = kind().fit(q, y.astype(float))
        p[f"{kind.__name__}: calibre"] = np.clip(np.ravel(one.transform(q_at)), 0, 1)
    return {name: np.asarray(x, float) for name, x in p.items()}


if __name__ == "__main__":
    main()
