"""What covariates of segments gain and cost: ``python -m benchmarks.inference.covariates``.

Segments of a few rows each, whose intercepts follow the first of some covariates. How near are
curves to the true ones with and without the covariates, do bands cover, and what is said of new
segments? And the same where the covariates say nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

import platt_jax as pj
from benchmarks.inference import command

_NEW = 100  # segments that were not fitted
_POINTS = np.linspace(-2, 2, 11)


class World(NamedTuple):
    """Segments whose intercepts follow a covariate."""

    segments: int
    rows: int  # of a segment, on average
    covariates: int
    share: float = 0.0  # of the variance of the intercepts that the first covariate explains
    intercept: float = 0.0
    kind: str = "normal"


def main() -> None:
    command.run_parts(command.options("covariates"), "covariates", _PARTS)


def explained() -> dict[str, dict[str, float]]:
    """Where a covariate explains half of the variance of the intercepts."""
    worlds = {
        "5 rows": World(200, 5, 1, 0.5),
        "20 rows": World(200, 20, 1, 0.5),
        "100 rows, 3 % positive": World(200, 100, 1, 0.5, 3.8),
        "20 rows, heavy tails": World(200, 20, 1, 0.5, kind="heavy tails"),
        "20 rows, two clusters": World(200, 20, 1, 0.5, kind="two clusters"),
    }
    return {name: judged(world, 10) for name, world in worlds.items()}


def nothing() -> dict[str, dict[str, float]]:
    """Where covariates say nothing."""
    numbers = (200, 2), (20, 10), (5, 3), (5, 1), (3, 1), (2, 1)
    return {
        f"{segments} segments, {covariates}": judged(World(segments, 30, covariates), 40)
        for segments, covariates in numbers
    }


def judged(world: World, seeds: int) -> dict[str, float]:
    """Means of some worlds: excess log loss and coverage of 95 % bands."""
    found = [_judged(world, seed) for seed in range(seeds)]
    p_values = np.concatenate([p_values for _, p_values in found])
    means = np.mean([values for values, _ in found], 0).round(4).tolist()
    return dict(zip(_NAMES, means, strict=True)) | {
        "p-values below .05": float(np.mean(p_values < 0.05).round(3))
    }


_NAMES = (
    *("without: excess log loss", "without: covered"),
    *("with: excess log loss", "with: covered"),
    *("new segments, without: excess log loss", "new segments, without: covered"),
    *("new segments, with: excess log loss", "new segments, with: covered"),
)


def _judged(world: World, seed: int) -> tuple[list[float], np.ndarray]:
    rng = np.random.default_rng(seed)
    z, true = _drawn(rng, world, world.segments)
    new_z, new_true = _drawn(rng, world, _NEW)
    which = np.repeat(np.arange(world.segments), np.maximum(1, rng.poisson(world.rows, len(z))))
    scores = rng.normal(size=len(which))
    labels = rng.random(len(which)) < _probability(true[which], scores)
    new = 10**6 + np.arange(_NEW)
    table = {f"x{i}": new_z[:, i] for i in range(world.covariates)} | {"segment": new}
    with warnings.catch_warnings(action="ignore"):
        both = [
            pj.fit_segments(scores, labels, which, pooling="partial", covariates=x)
            for x in (None, z)
        ]
    seen = np.arange(world.segments), true
    of_new = new, new_true
    found = [*_accuracy(both[0], *seen), *_accuracy(both[1], *seen)]
    found += [*_accuracy(both[0], *of_new), *_accuracy(both[1].with_segments(table), *of_new)]
    coefficients: Any = both[1].population.coefficients
    return found, coefficients["p_value"]


def _drawn(rng: np.random.Generator, world: World, segments: int) -> tuple[np.ndarray, np.ndarray]:
    """Covariates (K, P), and the parameters (K, 2)."""
    z = rng.normal(size=(segments, world.covariates))
    own = rng.normal(size=segments)
    if world.kind == "heavy tails":
        own = rng.standard_t(3, segments) / np.sqrt(3)
    elif world.kind == "two clusters":
        own = (rng.choice([-1, 1], segments) + 0.3 * own) / np.sqrt(1.09)
    B = np.sqrt(world.share) * z[:, 0] + np.sqrt(1 - world.share) * own
    return z, np.stack([-1.5 + 0.4 * rng.normal(size=segments), world.intercept + B], -1)


def _probability(parameters: np.ndarray, scores: np.ndarray) -> np.ndarray:
    A, B = parameters.T
    return expit(-(A * scores + B))


def _accuracy(calibrator: Any, keys: np.ndarray, parameters: np.ndarray) -> tuple[float, float]:
    """Excess log loss, by the density of the scores, and coverage of bands."""
    points, which = np.tile(_POINTS, len(keys)), np.repeat(np.arange(len(keys)), len(_POINTS))
    true = _probability(parameters[which], points)
    proba = calibrator.predict_proba(points, keys[which])
    lower, upper = calibrator.band(points, keys[which])
    share = np.exp(-(points**2) / 2)
    excess = true * np.log(true / proba) + (1 - true) * np.log((1 - true) / (1 - proba))
    return tuple(np.average(x, weights=share) for x in (excess, (lower <= true) & (true <= upper)))


_PARTS: dict[str, Callable[[], dict[str, Any]]] = {"explained": explained, "nothing": nothing}

if __name__ == "__main__":
    main()
