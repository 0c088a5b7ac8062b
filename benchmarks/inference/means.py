"""Coverage of `estimate_means` and `compare_means`: ``python -m benchmarks.inference.means``.

Scores of segments are normal with means that differ, curves have slopes and intercepts that differ
(standard deviations .3 of log slopes and .5). The true mean of a segment is that of its curve over
all scores. Curves: the sigmoid; its 0.97-fold; one whose log-odds rise a quarter as fast above
p = .7; one whose log-odds fall above a score of .7, for which no sigmoid is any good.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.special import expit, logit

import platt_jax as pj
from benchmarks.inference import command

_POOL = 1_000  # rows of a segment without labels
_BEND = logit(0.7)
CURVES = {
    "sigmoid": lambda z, f, slope: expit(z),
    "ceiling": lambda z, f, slope: 0.97 * expit(z),
    "bend": lambda z, f, slope: expit(np.where(z > _BEND, _BEND + (z - _BEND) / 4, z)),
    "fall": lambda z, f, slope: expit(np.where(f > 0.7, z - (slope + 1) * (f - 0.7), z)),
}
_GRID = np.linspace(-6, 6, 2_001)
_MASS = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()


def drawn(rng, curve: str, segments: int, rows: int, base: float):
    """Scores and labels (K, rows) and the true means (K,)."""
    slope = 1.6 * np.exp(0.3 * rng.normal(size=(segments, 1)))
    # The mean of a sigmoid is nearer to 1/2 than the sigmoid of the mean.
    middle = logit(base) * (1.2 if base < 0.5 else 1)
    intercept = middle + 0.5 * rng.normal(size=(segments, 1))
    shift = 0.3 * rng.normal(size=(segments, 1))

    def proba(scores):
        return CURVES[curve](slope * scores + intercept, scores, slope)

    scores = shift + rng.normal(size=(segments, rows))
    return scores, rng.random(scores.shape) < proba(scores), (proba(_GRID + shift) * _MASS).sum(1)


def estimated(rng, curve: str, pooling: str, segments: int, labels: int, base: float):
    """The table of one population, and the true means."""
    f, y, truth = drawn(rng, curve, segments, labels + _POOL, base)
    own, pool = (np.repeat(np.arange(segments), x) for x in (labels, _POOL))
    rows = f[:, :labels].ravel(), y[:, :labels].ravel(), own
    calibrator = pj.fit_segments(*rows, pooling=pooling)
    scores = f[:, labels:].ravel()
    return pj.inference.estimate_means(calibrator, *rows, pool=scores, pool_segments=pool), truth


def measured(rng, curve: str, pooling: str, segments: int, labels: int, base: float, total: int):
    """Coverage in segments with 3 positives and negatives expected, and ratios of widths."""
    tables, truths = zip(
        *(
            estimated(rng, curve, pooling, segments, labels, base)
            for _ in range(max(1, total // segments))
        ),
        strict=True,
    )
    found = {name: np.concatenate([x[name] for x in tables]) for name in tables[0]}
    truth = np.concatenate(truths)
    enough = labels * np.minimum(truth, 1 - truth) >= 3
    used = enough & (found["status"] == "OK")

    def held(lower, upper, some):
        inside = (found[lower] <= truth) & (truth <= found[upper])
        return round(float(inside[some].mean()), 3) if some.any() else None

    def width(lower, upper):
        if not used.any():
            return None
        mine, wilson = (
            (found[b] - found[a])[used]
            for a, b in ((lower, upper), ("labels_lower", "labels_upper"))
        )
        return round(float(np.nanmean(mine) / wilson.mean()), 3)

    return {
        "segments with 3 expected": int(enough.sum()),
        "held": held("lower", "upper", enough),
        "held by labels only": held("labels_lower", "labels_upper", enough),
        "held in all segments": held("lower", "upper", enough | True),
        "few positives": round(float((found["status"] == "FEW_POSITIVES").mean()), 3),
        "width over that of labels only": width("lower", "upper"),
        "the model's width": width("model_lower", "model_upper"),
        "held by the model": held("model_lower", "model_upper", used),
        "power": round(float(np.mean([x["power"].max() for x in tables])), 2),
    }


def _means(total: int):
    cases = [
        (curve, "partial", *rest)
        for curve, *rest in product(CURVES, (20, 200), (10, 30, 100), (0.02, 0.1, 0.5))
    ]
    cases += [
        ("sigmoid", pooling, 60, *rest)
        for pooling, *rest in product(("none", "complete"), (10, 30, 100), (0.1, 0.5))
    ]
    names = "curve", "pooling", "segments", "labels", "base"
    return command.printed(
        {
            **dict(zip(names, case, strict=True)),
            **measured(np.random.default_rng(i), *case, total),
        }
        for i, case in enumerate(cases)
    )


def _differences(total: int):
    """Segments in pairs that have items in common; an item's part of the labels' variance."""
    return command.printed(
        {
            **dict(zip(("items", "base", "shared"), case, strict=True)),
            **compared(np.random.default_rng(i), *case, total),
        }
        for i, case in enumerate(product((10, 30, 100), (0.1, 0.3, 0.5), (0.0, 0.5, 0.9)))
    )


def compared(rng, items: int, base: float, shared: float, total: int):
    """Coverage of differences, and widths over those of differences that know no items.

    A label is 1 where a normal variable is below its quantile; items share a part of its variance.
    """
    from scipy.stats import norm

    segments, held, alone, ratio = 40, [], [], []
    for _ in range(max(1, 2 * total // segments)):
        item = rng.normal(size=items + _POOL)
        latent = np.sqrt(shared) * item + np.sqrt(1 - shared) * rng.normal(
            size=(segments, items + _POOL)
        )
        threshold = norm.ppf(base) + 0.3 * rng.normal(size=(segments, 1))
        y, scores = latent < threshold, -latent + rng.normal(size=latent.shape)
        own, pool = (np.repeat(np.arange(segments), x) for x in (items, _POOL))
        rows = scores[:, :items].ravel(), y[:, :items].ravel(), own
        calibrator = pj.fit_segments(*rows, pooling="partial")
        given = dict(pool=scores[:, items:].ravel(), pool_segments=pool)
        given |= dict(first=np.arange(0, segments, 2), second=np.arange(1, segments, 2))
        ids = dict(items=np.arange(len(own)) % items, pool_items=np.arange(len(pool)) % _POOL)
        truth = norm.cdf(threshold.ravel())
        difference = truth[::2] - truth[1::2]
        rare = np.minimum(truth, 1 - truth)
        enough = items * np.minimum(rare[::2], rare[1::2]) >= 3
        paired = pj.inference.compare_means(calibrator, *rows, **given, **ids)
        apart = pj.inference.compare_means(calibrator, *rows, **given)
        for table, into in ((paired, held), (apart, alone)):
            inside = (table["lower"] <= difference) & (difference <= table["upper"])
            into.extend(inside[enough])
        widths = [x["upper"] - x["lower"] for x in (paired, apart)]
        ratio.extend((widths[0] / widths[1])[enough])
    return {
        "pairs with 3 expected": len(held),
        "held": round(float(np.mean(held)), 3) if held else None,
        "held without items": round(float(np.mean(alone)), 3) if held else None,
        "width over that without items": round(float(np.mean(ratio)), 3) if held else None,
    }


def main() -> None:
    parser = command.options("means")
    parser.add_argument("--total", type=int, default=2_000, help="segments of a case")
    parts = {"means": _means, "differences": _differences}
    command.run_parts(parser, "means", parts, "total")


if __name__ == "__main__":
    main()
