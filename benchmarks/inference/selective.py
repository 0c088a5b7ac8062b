"""Labels that not all rows get: ``python -m benchmarks.inference.selective``.

200 segments whose curves are known, first fitted to 200 rows each with all labels.

- ``accepted``: twelve nights of 50 rows in a segment follow. Of each night, rows get their label if
  the probability is at least one half, as where only these are acted upon; or also one in twenty of
  the others; or all. The calibrator is updated each night. Intercepts stay, or drift by a standard
  deviation of .1 a night, which `update` is told.
- ``by_class``: half of the labels of one class are missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import platt_jax as pj
from benchmarks.inference import command
from benchmarks.inference.gates import TARGET, Population

_WORLDS = 10
_NIGHTS = 12
_DRIFT = 0.1  # standard deviation of intercepts, a night
_OTHERS = {"all": 1.0, "accepted": 0.0, "accepted, and 5 % of the others": 0.05}


def main() -> None:
    # Segments with higher intercepts have more rows that are accepted.
    warnings.filterwarnings("ignore", "pooling: log-odds depend on how many rows")
    command.run_parts(command.options("selective"), "selective", _PARTS)


def accepted() -> dict[str, dict[str, float]]:
    """Means over worlds after the last night, by what changes and which rows get labels."""
    return {
        f"{what}, {labels}": _mean(_after_nights(seed, drift, share) for seed in range(_WORLDS))
        for what, drift in (("nothing changes", 0.0), ("drift", _DRIFT))
        for labels, share in _OTHERS.items()
    }


def by_class() -> dict[str, dict[str, float]]:
    """Means over worlds, by the class whose labels are missing, as fitted and shifted."""
    found = {}
    for lost in ("positives", "negatives"):
        each = [_without_half(seed, lost == "positives") for seed in range(_WORLDS)]
        found[f"half of the {lost}"] = _mean(x for x, _ in each)
        found[f"half of the {lost}, shifted"] = _mean(x for _, x in each)
    return found


def _after_nights(seed: int, drift: float, others: float) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    population = Population.drawn(rng)
    calibrator = pj.fit_segments(*population.rows(rng, 200), pooling="partial")
    for _ in range(_NIGHTS):
        moved = population.intercept + rng.normal(0, drift, len(population.intercept))
        population = population._replace(intercept=moved)
        scores, labels, which = population.rows(rng, 50)
        seen = calibrator.predict_proba(scores, which) >= 0.5
        seen |= rng.random(len(seen)) < others
        calibrator = pj.update(calibrator, scores[seen], labels[seen], which[seen], drift=drift)
    return _judged(rng, population, calibrator)


def _without_half(seed: int, of_positives: bool) -> tuple[dict[str, float], dict[str, float]]:
    rng = np.random.default_rng(seed)
    population = Population.drawn(rng)
    scores, labels, which = population.rows(rng, 200)
    seen = (labels != of_positives) | (rng.random(len(labels)) < 0.5)
    fitted = pj.fit_segments(scores[seen], labels[seen], which[seen], pooling="partial")
    shifted = fitted.shift_prior(labels[seen].mean(), labels.mean())
    return _judged(rng, population, fitted), _judged(rng, population, shifted)


def _judged(
    rng: np.random.Generator, population: Population, calibrator: pj.SegmentCalibrator
) -> dict[str, float]:
    """Excess log loss of all rows and of accepted ones, and the share of gates that violate."""
    scores, _, which = population.rows(rng, 1_000)
    true, proba = population.proba(scores, which), calibrator.predict_proba(scores, which)
    excess = true * np.log(true / proba) + (1 - true) * np.log((1 - true) / (1 - proba))
    gates = pj.gate(calibrator, scores, which, precision=TARGET)
    precision, share = population.at(gates["threshold"])
    return {
        "excess log loss": float(excess.mean()),
        "of accepted rows": float(excess[proba >= 0.5].mean()),
        "predicted less true": float((proba - true).mean()),
        "gates that violate": float((precision < TARGET).sum() / np.isfinite(precision).sum()),
        "rows behind gates": float(share.mean()),
    }


def _mean(each: Any) -> dict[str, float]:
    each = list(each)
    return {name: round(float(np.mean([x[name] for x in each])), 4) for name in each[0]}


_PARTS: dict[str, Callable[[], dict[str, Any]]] = {"accepted": accepted, "by_class": by_class}

if __name__ == "__main__":
    main()
