"""Calibration week by week: ``python -m benchmarks.inference.online --data FOLDER``.

The second half of nycflights, whose scores come from a model of the first. Each week is predicted
by what the weeks before it told, and then learnt. `update` is compared with fits of all weeks so
far, with the first weeks' fit as it was, and with Online Platt Scaling (Gupta & Ramdas 2023,
"Online Platt Scaling with Calibeating", arXiv 2305.00070), which learns row by row.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

import platt_jax as pj
from benchmarks import machine
from benchmarks.inference import command
from platt_jax import metrics

_FIRST_WEEKS = 4


def main() -> None:
    parser = command.options("online")
    parser.add_argument("--data", type=Path, required=True, help="the folder of nycflights.npz")
    args = parser.parse_args()
    found: dict = {"machine": machine.describe()}
    for name in ("carrier", "route", "tailnum"):
        found[name] = by_week(args.data, name)
        print(f"{name}: {json.dumps(found[name], indent=1)}", flush=True)
    command.write(args.out, "online", found)


def by_week(data: Path, name: str) -> dict:
    """Log loss of the weeks after the first, each predicted before it was learnt."""
    with np.load(data / "nycflights.npz") as file:
        later = ~file["is_fit"]
        columns = "score_hgb", "y", f"seg_{name}", "doy"
        scores, labels, segments, day = (file[x][later] for x in columns)
    week = (day - day.min()) // 7
    scores = scores.astype(np.float64)
    rows = [(scores[week == w], labels[week == w], segments[week == w]) for w in range(week.max())]
    found = {}
    for pooling in ("none", "partial"):
        ways = {
            "first weeks": lambda fit, weeks: fit,
            "update": lambda fit, weeks: pj.update(fit, *weeks[-1]),
            "update, forgetting 0.9": lambda fit, weeks: pj.update(fit, *weeks[-1], forgetting=0.9),
            "update, forgetting 0.5": lambda fit, weeks: pj.update(fit, *weeks[-1], forgetting=0.5),
            "fit of all weeks": lambda fit, weeks, pooling=pooling: _fit(weeks, pooling),
        }
        for way, learn in ways.items():
            found[f"{way}, pooling {pooling}"] = _run(rows, pooling, learn)
    for way in ("one for all", "one per segment"):
        at_once, weekly = _online_platt(rows, way)
        found[f"online Platt scaling, {way}"] = {
            "log loss, labels known at once": at_once,
            "log loss, labels known at the week's end": weekly,
        }
    for pooling in ("none", "partial"):
        found[f"update and fit of all weeks, pooling {pooling}"] = _distance(rows, pooling)
    return found


def _run(rows, pooling, learn):
    calibrator = _fit(rows[:_FIRST_WEEKS], pooling)
    proba, seconds = [], 0.0
    for w in range(_FIRST_WEEKS, len(rows)):
        proba.append(calibrator.predict_proba(rows[w][0], rows[w][2]))
        start = time.perf_counter()
        calibrator = learn(calibrator, rows[: w + 1])
        seconds += time.perf_counter() - start
    return {"log loss": _log_loss(rows, proba), "seconds": round(seconds, 2)}


def _fit(rows, pooling):
    return pj.fit_segments(*map(np.concatenate, zip(*rows, strict=True)), pooling=pooling)


def _distance(rows, pooling):
    """Log-odds of the last week by `update` against those of a fit of all weeks before it."""
    updated = _fit(rows[:_FIRST_WEEKS], pooling)
    for week in rows[_FIRST_WEEKS:-1]:
        updated = pj.update(updated, *week)
    full = _fit(rows[:-1], pooling)
    here = np.isin(full.keys, updated.keys)
    assert here.all()
    errors = full.fit.standard_errors
    off = np.stack([updated.fit.A - full.fit.A, updated.fit.B - full.fit.B], -1) / errors
    off = np.abs(off[np.isfinite(off).all(1)])
    return {
        "standard errors apart: median": np.round(np.median(off, 0), 3).tolist(),
        "95 % of segments": np.round(np.quantile(off, 0.95, axis=0), 3).tolist(),
    }


def _online_platt(rows, way):
    """Online Newton steps on (slope, intercept), row by row, with the paper's settings.

    The log loss where each row is predicted with all rows before it, and with those of the weeks
    before its own.
    """
    states: dict = {}
    at_once, weekly = [], []
    for w, (scores, labels, segments) in enumerate(rows):
        keys = segments if way == "one per segment" else np.zeros(len(segments), int)
        week = list(zip(scores.tolist(), labels.tolist(), keys.tolist(), strict=True))
        before = [states.setdefault(key, _State()).predict(f) for f, _, key in week]
        made = [states[key].learn(f, y) for f, y, key in week]
        if w >= _FIRST_WEEKS:
            weekly.append(np.array(before))
            at_once.append(np.array(made))
    return _log_loss(rows, at_once), _log_loss(rows, weekly)


class _State:
    """Slope and intercept of the log-odds, and the sum of the gradients' outer products."""

    GAMMA, RADIUS = 0.1, 100.0

    def __init__(self):
        self.slope, self.intercept = 1.0, 0.0
        self.products = np.eye(2)

    def predict(self, score):
        logit = self.slope * score + self.intercept
        return 1 / (1 + np.exp(-np.clip(logit, -30, 30)))

    def learn(self, score, label):
        """What is predicted for the row before its label is learnt."""
        p = self.predict(score)
        gradient = (p - label) * np.array([score, 1.0])
        self.products += np.outer(gradient, gradient)
        step = np.linalg.solve(self.products, gradient) / self.GAMMA
        moved = np.array([self.slope, self.intercept]) - step
        self.slope, self.intercept = np.clip(moved, -self.RADIUS, self.RADIUS)
        return p


def _log_loss(rows, proba):
    labels = np.concatenate([y for _, y, _ in rows[_FIRST_WEEKS:]])
    return round(float(metrics.log_loss(labels, np.concatenate(proba))), 5)


if __name__ == "__main__":
    main()
