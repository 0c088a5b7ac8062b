"""Curves that depend on the number of rows: ``python -m benchmarks.inference.sizes``.

200 segments of about 50 rows, 3 to some thousands, whose slopes and intercepts correlate with the
logarithm of their size. How often is `fit_segments(pooling="partial")` warned of it, how far off
are its smallest segments, and do `covariates="rows"` or `pooling="nested"` with size classes help?
And the same of rows sampled by their labels, whose numbers tell of the intercepts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import platt_jax as pj
from benchmarks.inference import command
from benchmarks.inference.populations import World, probability

_WORLD = World(2.5, 0.4, 0, 0.5)
_POINTS = np.linspace(-2, 2, 41)
# Correlations of log size with the slope and with the intercept.
_RELATED = (0.0, 0.0), (0.5, 0.0), (0.7, 0.0), (1.0, 0.0), (0.0, 0.5), (0.0, 0.7), (0.0, 1.0)
_CLASSES = 8
_KEPT = 0.02  # share of the negatives


def main() -> None:
    command.run_parts(command.options("sizes"), "sizes", _PARTS)


def level() -> dict[str, float]:
    """The share of worlds that are warned of, though their sizes say nothing of their curves."""
    cells = {
        f"{kind}, {segments} segments of about {rows} rows, intercept {b}": (
            _WORLD._replace(kind=kind, b=b),
            segments,
            rows,
        )
        for kind in ("normal", "heavy tails", "two clusters")
        for segments, rows in ((20, 50), (200, 50), (200, 4))
        for b in (0, -4)
    }
    return {name: _warned(*cell, worlds=300) for name, cell in cells.items()}


def power() -> dict[str, float]:
    """The share of worlds that are warned of, by the correlations."""
    return {
        f"{pair}, intercept {b}": _warned(_WORLD._replace(b=b), 200, 50, pair, worlds=40)
        for pair in _RELATED[1:]
        for b in (0, -4)
    }


def remedy() -> dict[str, dict[str, list[float]]]:
    """Means of ten worlds, of the quarter of the segments with the fewest rows.

    Coverage of 95 % bands, predicted less true probability, and excess log loss.
    """
    found = {}
    for pair in _RELATED:
        each = np.mean([_remedied(seed, pair) for seed in range(10)], 0).round(4).tolist()
        found[str(pair)] = dict(zip(_WAYS[:3], each, strict=True))
    return found


def sampled() -> dict[str, Any]:
    """Predicted over true positives after `shift_prior`, and in both halves by kept rows.

    Of 200 segments of 300 rows all positives are kept, and one negative in fifty.
    """
    found = [_sampled(seed) for seed in range(10)]
    return {
        "warned": float(np.mean([warned for warned, _ in found])),
        **dict(zip(_WAYS, np.mean([x for _, x in found], 0).round(3).tolist(), strict=True)),
    }


_WAYS = "partial", "nested, with size classes", "rows as covariate", "partial, of all rows"


def _sampled(seed: int) -> tuple[bool, list[list[float]]]:
    rng = np.random.default_rng(seed)
    world = World(1.5, 0.3, -5.5, 0.8)
    which = np.repeat(np.arange(200), 300)
    scores = rng.normal(size=len(which))
    true = probability(world.parameters(rng, 200), scores, which)
    labels = rng.random(len(which)) < true
    kept = labels | (rng.random(len(which)) < _KEPT)
    sizes = np.bincount(which[kept], minlength=200)
    few = np.isin(which, np.argsort(sizes)[:100])
    ids = np.stack([_size_class(sizes)[which], which], 1)
    shift = {"from_rate": 0.5, "to_rate": _KEPT / (1 + _KEPT)}
    partial, warned = _fitted(scores[kept], labels[kept], which[kept], "partial")
    nested, _ = _fitted(scores[kept], labels[kept], ids[kept], "nested")
    by_rows, _ = _fitted(scores[kept], labels[kept], which[kept], "partial", "rows")
    whole, _ = _fitted(scores, labels, which, "partial")
    found = []
    for calibrator, at in (
        (partial.shift_prior(**shift), which),
        (nested.shift_prior(**shift), ids),
        (by_rows.shift_prior(**shift), which),
        (whole, which),
    ):
        proba = calibrator.predict_proba(scores, at)
        found.append([proba[x].sum() / true[x].sum() for x in (slice(None), few, ~few)])
    return warned, found


def _fitted(
    scores: Any, labels: Any, segments: Any, pooling: Any, covariates: str | None = None
) -> tuple[pj.SegmentCalibrator, bool]:
    """The calibrator of scores, labels, segments and pooling, and whether the call warned."""
    rows = scores, labels, segments
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        calibrator = pj.fit_segments(*rows, pooling=pooling, covariates=covariates)
    return calibrator, any("how many rows their segments have" in str(x.message) for x in said)


def _size_class(sizes: np.ndarray) -> np.ndarray:
    return np.searchsorted(np.quantile(sizes, np.linspace(0, 1, _CLASSES + 1)[1:-1]), sizes)


def _drawn(
    rng: np.random.Generator, world: World, segments: int, rows: int, pair: tuple[float, float]
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The parameters of segments, and their rows; log size correlates so with the parameters."""
    parameters = world.parameters(rng, segments)
    unit = (parameters - [world.a, world.b]) / [world.spread_a, world.spread_b]
    log_size = unit @ pair + np.sqrt(1 - np.dot(pair, pair)) * rng.normal(size=segments)
    sizes = np.maximum(3, (rows * np.exp(1.2 * log_size)).astype(int))
    which = np.repeat(np.arange(segments), sizes)
    scores = rng.normal(size=len(which))
    return parameters, (
        scores,
        rng.random(len(which)) < probability(parameters, scores, which),
        which,
    )


def _warned(
    world: World,
    segments: int,
    rows: int,
    pair: tuple[float, float] = (0.0, 0.0),
    *,
    worlds: int,
) -> float:
    found = []
    for seed in range(worlds):
        _, drawn = _drawn(np.random.default_rng(seed), world, segments, rows, pair)
        found.append(_fitted(*drawn, "partial")[1])
    return float(np.mean(found).round(4))


def _remedied(seed: int, pair: tuple[float, float]) -> list[tuple[float, float, float]]:
    parameters, (scores, labels, which) = _drawn(np.random.default_rng(seed), _WORLD, 200, 50, pair)
    sizes = np.bincount(which)
    classes = _size_class(sizes)
    small = np.flatnonzero(sizes <= np.quantile(sizes, 0.25))
    seen, points = small.repeat(len(_POINTS)), np.tile(_POINTS, len(small))
    true = probability(parameters, points, seen)
    share = np.exp(-(points**2) / 2)  # of scores
    found = []
    for pooling, covariates in (("partial", None), ("nested", None), ("partial", "rows")):
        ids, at = which, seen
        if pooling == "nested":
            ids, at = (np.stack([classes[x], x], 1) for x in (which, seen))
        calibrator, _ = _fitted(scores, labels, ids, pooling, covariates)
        proba = calibrator.predict_proba(points, at)
        lower, upper = calibrator.band(points, at)
        excess = true * np.log(true / proba) + (1 - true) * np.log((1 - true) / (1 - proba))
        values = (lower <= true) & (true <= upper), proba - true, excess
        found.append(tuple(np.average(x, weights=share) for x in values))
    return found


_PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "level": level,
    "power": power,
    "remedy": remedy,
    "sampled": sampled,
}

if __name__ == "__main__":
    main()
