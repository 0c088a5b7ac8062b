"""Pooling where differences between segments do not last, and what helps.

``python -m benchmarks.inference.drift --data FOLDER`` needs the evaluation data.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.special import expit

import platt_jax as pj
from benchmarks.inference import command
from platt_jax import metrics

# Days of the year: the scores are of the first half of 2013, the rows of the second.
_CUTS = {"third quarter, then the fourth": [273], "months": [244, 274, 305, 335]}
_HALVES = (182, 228, 273, 366)
_SEGMENTS = ("carrier", "dest", "flight", "route", "tailnum")

# Segments and rows of each in a period; the mean and the spread of (A, B).
_USUAL, _RARE = ((-1.5, 0.5), (0.7, 0.5)), ((-1.0, 5.0), (0.3, 1.0))
_ZIPF = np.maximum(1, 20_000 // np.arange(1, 501))
_WORLDS = {
    "2000 segments of 10 rows": (np.full(2000, 10), *_USUAL, 10),
    "500 segments of 50 rows": (np.full(500, 50), *_USUAL, 10),
    "500 segments of 40 to 20000 rows": (_ZIPF, *_USUAL, 10),
    "20 segments of 500 rows": (np.full(20, 500), *_USUAL, 40),
    "20 segments of 50 rows": (np.full(20, 50), *_USUAL, 40),
    "5 segments of 50 rows": (np.full(5, 50), *_USUAL, 100),
    "3000 segments of 3 rows, 1 % positive": (np.full(3000, 3), *_RARE, 10),
    "3000 segments of 10 rows, 1 % positive": (np.full(3000, 10), *_RARE, 10),
    "1000 segments of 30 rows, 1 % positive": (np.full(1000, 30), *_RARE, 10),
}
_LASTING = (1.0, 0.5, 0.0)
_SHIFT = 0.4  # the standard deviation of a period's common shift, where there is one


def main() -> None:
    parser = command.options("drift")
    parser.add_argument("--data", type=Path, help="the folder of nycflights.npz")
    command.run_parts(parser, "drift", _PARTS, "data")


def flights(data):
    """Log loss of the rows after a day, by each way to pool those before it."""
    found = {}
    for name in _SEGMENTS:
        rows = _flights(data, name)
        found[name] = {}
        for title, cuts in _CUTS.items():
            judged = pj.inference.judge_pooling(*rows, cuts)
            found[name][title] = [
                {
                    "first day judged": int(line["cut"]),
                    "pooling": str(line["pooling"]),
                    "log loss": _rounded(line["log_loss"]),
                    "above complete": _rounded(line["difference"]),
                    "standard error": _rounded(line["standard_error"]),
                }
                for line in _lines(judged)
            ]
    return found


def halves(data):
    """What lasts from the third quarter's first half to its second, and what it says of the fourth.

    Once as of a period as long as the halves, and once as far ahead as the fourth is by days.
    """
    found = {}
    for name in _SEGMENTS:
        scores, labels, segments, days = _flights(data, name)
        *both, later = ((days >= start) & (days < end) for start, end in pairwise(_HALVES))
        first, second = ((scores[x], labels[x], segments[x]) for x in both)
        fitted = pj.fit_segments(*first, pooling="partial")
        middles = [days[x].mean() for x in (*both, later)]
        far = (middles[2] - middles[1]) / (middles[1] - middles[0])
        found[name] = {}
        for ahead in (1.0, far):
            drift = pj.inference.estimate_drift(fitted, *second, ahead=ahead)
            proba = drift.calibrator.predict_proba(scores[later], segments[later])
            found[name][f"log loss, {ahead:.2f} ahead"] = _rounded(
                metrics.log_loss(labels[later], proba)
            )
        found[name]["share that lasts"] = _rounded(drift.lasting)
        found[name]["standard error"] = _rounded(drift.lasting_error)
    return found


def forgetting(data):
    """Log loss of the fourth quarter, where the third is learnt half by half.

    The first half is fitted with pooling="partial"; `update` adds the second.
    """
    found = {}
    for name in _SEGMENTS:
        scores, labels, segments, days = _flights(data, name)
        first, second, later = ((days >= start) & (days < end) for start, end in pairwise(_HALVES))
        fitted = pj.fit_segments(scores[first], labels[first], segments[first], pooling="partial")
        found[name] = {}
        for forgetting in (1.0, 0.9, 0.5, 0.25, 0.1):
            updated = pj.update(
                fitted, scores[second], labels[second], segments[second], forgetting=forgetting
            )
            proba = updated.predict_proba(scores[later], segments[later])
            found[name][f"forgetting {forgetting}"] = _rounded(
                metrics.log_loss(labels[later], proba)
            )
    return found


def worlds(_):
    """Excess log loss of a third period, and what share is said to last, where it is known.

    Means over simulated worlds. The loss is that above the true probabilities'; a segment weighs in
    it as its rows did when fitted.
    """
    found = {}
    for name, (sizes, mean, spread, number) in _WORLDS.items():
        for lasting in _LASTING:
            for shift in (0.0, _SHIFT):
                if shift and lasting != 0.5:
                    continue
                title = f"{name}, {lasting:g} lasts" + (", common shifts" if shift else "")
                each = [_world(s, sizes, mean, spread, lasting, shift) for s in range(number)]
                found[title] = _summary([x for x in each if x is not None], number)
    return found


def _summary(each, number):
    losses, drifts = zip(*each, strict=True)
    shares = np.array([x.lasting for x in drifts])
    return {
        "worlds": number,
        "with two populations": len(each),
        **{name: _rounded(np.mean([x[name] for x in losses])) for name in losses[0]},
        "share that lasts: median": _rounded(np.median(shares)),
        "5 % and 95 %": _rounded(np.quantile(shares, [0.05, 0.95])),
        "standard error: median": _rounded(np.median([x.lasting_error for x in drifts])),
    }


def _world(seed, sizes, mean, spread, lasting, shift):
    rng = np.random.default_rng(seed)
    K = len(sizes)
    judged = np.maximum(sizes, 100_000 // K)
    periods, of_segment = [], rng.normal(size=(K, 2))
    for period, rows in enumerate((sizes, sizes, judged)):
        if period:
            new = rng.normal(size=(K, 2))
            of_segment = lasting * of_segment + np.sqrt(1 - lasting**2) * new
        theta = np.array(mean) + of_segment * spread + [0, shift * rng.normal()]
        which = np.repeat(np.arange(K), rows)
        scores = rng.normal(size=len(which))
        truth = expit(-(theta[which, 0] * scores + theta[which, 1]))
        periods.append((scores, rng.random(len(which)) < truth, which, truth))
    *earlier, (scores, _, which, truth) = periods
    both = [np.concatenate(x) for x in zip(*earlier, strict=True)][:3]
    fits = [pj.fit_segments(*x[:3], pooling="partial") for x in earlier]
    if not all(x.population.estimated for x in fits):
        return None
    drift = pj.inference.estimate_drift(fits[0], *earlier[1][:3])
    calibrators = {x: pj.fit_segments(*both, pooling=x) for x in ("complete", "partial")}
    calibrators["drift"] = drift.calibrator
    weight = (sizes / judged)[which]

    def excess(p):
        loss = truth * np.log(truth / p) + (1 - truth) * np.log((1 - truth) / (1 - p))
        return np.average(loss, weights=weight)

    return {name: excess(x.predict_proba(scores, which)) for name, x in calibrators.items()}, drift


def _flights(data, name):
    """Scores, labels, segments and days of the second half of the year."""
    with np.load(data / "nycflights.npz") as file:
        later = ~file["is_fit"]
        columns = (file[x][later] for x in ("score_hgb", "y", f"seg_{name}", "doy"))
        scores, *others = columns
    return scores.astype(np.float64), *others


def _lines(table):
    for values in zip(*table.values(), strict=True):
        yield dict(zip(table, values, strict=True))


def _rounded(values):
    return np.round(np.asarray(values, float), 5).tolist()


_PARTS = {f.__name__: f for f in (flights, halves, forgetting, worlds)}

if __name__ == "__main__":
    main()
