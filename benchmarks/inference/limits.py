"""Where results are less than they say: ``python -m benchmarks.inference.limits``.

Bands of partially pooled segments with few rows or rare positives, probabilities where no normal
population describes the segments, and intervals of `estimate_rates` where no sigmoid is the true
curve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit

import platt_jax as pj
from benchmarks.inference import command
from benchmarks.inference.populations import World, probability, rows

_POINTS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])  # scores at which bands are looked at


def main() -> None:
    command.run_parts(command.options("limits"), "limits", _PARTS)


# --- bands of partially pooled segments -----------------------------------------------------------


def bands() -> dict[str, Any]:
    """Shares of 95 % bands that hold the truth at five scores, for seen and unseen segments."""
    third, percent = World(1, 0.4, -1, 0.7), World(1, 0.3, -5, 0.8)
    cells = {
        f"30 %, {number} segments of {each} rows": (third, number, each)
        for number, each in ((200, 3), (200, 5), (200, 10), (200, 50), (1000, 5))
    }
    cells |= {
        f"1 %, {number} segments of {each} rows": (percent, number, each)
        for number, each in ((200, 3), (1000, 3), (1000, 10), (200, 100))
    }
    return {name: _covered(*cell) for name, cell in cells.items()}


def _covered(world: World, number: int, each: int, worlds: int = 60) -> dict[str, Any]:
    shares = []
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        parameters = world.parameters(rng, number + 50)
        calibrator = pj.fit_segments(*rows(rng, parameters[:number], each), pooling="partial")
        if not calibrator.population.estimated:
            continue
        which, points = (
            x.ravel() for x in np.meshgrid(np.arange(number + 50), _POINTS, indexing="ij")
        )
        lower, upper = calibrator.band(points, which)
        truth = probability(parameters, points, which)
        held = ((lower <= truth) & (truth <= upper)).reshape(-1, len(_POINTS)).mean(1)
        shares.append([held[:number].mean(), held[number:].mean()])
    found = {"worlds": len(shares)}
    for name, x in zip(("seen", "unseen"), np.transpose(shares), strict=True):
        found |= {name: round(float(x.mean()), 3)}
        found |= {f"{name}, standard error": round(float(x.std() / np.sqrt(len(x))), 3)}
    return found


# --- segments that are far from all others --------------------------------------------------------


def moved() -> dict[str, Any]:
    """What partial pooling loses to one curve where a few intercepts are moved by 12."""
    return {
        f"{share:.0%} of 1000 segments of {each} rows, slope {slope:g}": _moved(share, each, slope)
        for slope in (1.0, 5.0, 70.0)
        for share in (0.05, 0.15)
        for each in (3, 30)
    }


def _moved(share: float, each: int, slope: float, number: int = 1000) -> dict[str, Any]:
    """The mean of excess log losses, in nats a fresh row: partial pooling's less one curve's."""
    apart = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        moves = np.where(rng.random(number) < share, rng.choice([-12.0, 12.0], number), 0)
        which = np.repeat(np.arange(number), each)

        def log_odds(scores: np.ndarray) -> np.ndarray:
            return slope * scores + moves[which]  # noqa: B023 (called in this round only)

        scores, fresh = (np.clip(rng.normal(size=len(which)), -0.7, 0.7) for _ in range(2))
        labels, chance = rng.random(len(which)) < expit(log_odds(scores)), expit(log_odds(fresh))
        losses = []
        for pooling in ("partial", "complete"):
            calibrator = pj.fit_segments(scores, labels, which, pooling=pooling)
            p = np.clip(calibrator.predict_proba(fresh, which), 1e-15, 1 - 1e-15)
            losses.append(-(chance * np.log(p) + (1 - chance) * np.log1p(-p)).mean())
        apart.append(losses[0] - losses[1])
    return {
        "nats a row": round(float(np.mean(apart)), 4),
        "standard error": round(float(np.std(apart) / np.sqrt(len(apart))), 4),
        "largest": round(float(np.max(apart)), 4),
    }


# --- rates where no sigmoid is right --------------------------------------------------------------

# Scores of class 0 and of class 1. The log-odds are linear in the first only.
_Drawn = Callable[[np.random.Generator, np.ndarray], np.ndarray]
_SCORES: dict[str, _Drawn] = {
    "a sigmoid": lambda rng, labels: rng.normal(size=labels.shape) + 1.5 * labels,
    "class 1 spreads 1.5 times as far": lambda rng, labels: (
        rng.normal(size=labels.shape) * (1 + 0.5 * labels) + 1.5 * labels
    ),
    "heavy tails": lambda rng, labels: rng.standard_t(3, labels.shape) + 1.5 * labels,
}


def rates() -> dict[str, Any]:
    """Shares of 95 % intervals that hold the rate: half of the fitted rows are positive."""
    return {
        f"{name}, {fitted} rows fitted, {fresh} fresh, rate {rate}": _rates(
            draw, fitted, fresh, rate
        )
        for name, draw in _SCORES.items()
        for fitted, fresh in ((1_000, 1_000), (10_000, 1_000), (10_000, 10_000))
        for rate in (0.5, 0.1)
    }


def _rates(
    draw: _Drawn, fitted: int, fresh: int, rate: float, segments: int = 100
) -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def drawn(number: int, share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        labels = rng.random((segments, number)) < share
        which = np.repeat(np.arange(segments), number)
        return draw(rng, labels).ravel(), labels.ravel(), which

    calibrator = pj.fit_segments(*drawn(fitted, 0.5))
    scores, _, which = drawn(fresh, rate)
    found = pj.inference.estimate_rates(calibrator, scores, which)
    held = (found["lower"] <= rate) & (rate <= found["upper"])
    return {
        "held": round(float(held.mean()), 3),
        "mean rate": round(float(found["rate"].mean()), 3),
        "standard deviation": round(float(found["rate"].std()), 3),
    }


_PARTS: dict[str, Callable[[], dict[str, Any]]] = {"bands": bands, "moved": moved, "rates": rates}

if __name__ == "__main__":
    main()
