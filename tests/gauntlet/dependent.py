"""Promises about rows that depend on each other, named nights, and calibrators at another rate."""

import numpy as np
from scipy.special import logit

import platt_jax as pj

from . import chance
from .cell import Cell
from .judging import monitored, silent
from .worlds import Rows


def _together(nights: tuple[Rows, ...]) -> Rows:
    """Rows of all nights, each night a day; of segments that were fitted."""
    columns = {}
    for name in vars(nights[0]):
        parts = [getattr(x, name) for x in nights]
        columns[name] = None if parts[0] is None else np.concatenate(parts)
    columns["days"] = np.repeat(np.arange(len(nights)), [len(x) for x in nights])
    rows = Rows(**columns)
    return rows.where(rows.seen)


def triage_of_days(cell: Cell) -> None:
    """Shocks of days, which triage is told of, are no changes."""
    world = cell.world
    rows = _together(world.nights)
    for name, against in (("none", "fit"), ("true", "predictions")):
        made = cell.bench.true() if name == "true" else cell.bench.fitted(name)
        given = {"offset": rows.offset, "clusters": rows.days}
        found = pj.triage(made, *rows.data(), against=against, **given)
        # A fit of dependent rows, or by weights that count no rows, is less certain than it says.
        if against == "predictions" or (world.counts and not world.clustered):
            silent(cell, found["q_value"], name)


def monitor_of_nights(cell: Cell) -> None:
    """Shocks of nights, which the monitor is told of; and the same night twice."""
    world = cell.world
    watch = pj.Monitor.start(cell.bench.true(), against="predictions", night_sd=0.6)
    for i, night in enumerate(world.nights):
        rows = night.where(night.seen)
        watch = watch.update(*rows.data(), offset=rows.offset, night=i)
    table = watch.table()
    monitored(cell, table, "nights")
    silent(cell, table["q_value_ever"], "nights")
    try:
        watch.update(*rows.data(), offset=rows.offset, night=i)
    except ValueError as error:
        cell.want(str(error).startswith("night"), f"a night twice: {error}")
    else:
        cell.want(False, "a night counts twice")


def update_with_drift(cell: Cell) -> None:
    """Periods of curves that walk by 0.5; and the same night twice."""
    world = cell.world
    for pooling in ("none", "partial"):
        made = cell.bench.fitted(pooling)
        for i, period in enumerate(world.periods):
            before = made
            given = {"offset": period.offset, "night": i}
            made = pj.update(made, *period.data(), drift=0.5, **given)
        proba = made.predict_proba(period.scores, period.segments, offset=period.offset)
        cell.want_probabilities(proba, pooling)
        lower, upper = made.band(period.scores, period.segments, offset=period.offset)
        cell.want(
            not (np.asarray(lower) > np.asarray(upper)).any(), f"{pooling}: bands upside down"
        )
        if world.plain and world.normal:
            old = before.predict_proba(period.scores, period.segments, offset=period.offset)
            known = np.isfinite(np.asarray(old, float)) & period.seen
            if known.any():
                arrays = proba, old, period.log_odds, period.segments
                given = (np.asarray(x)[known] for x in arrays)
                worse = chance.worse(*given, len(period))
                cell.want(worse is None, f"{pooling}: worse than before: {worse}")
        try:
            pj.update(made, *period.data(), offset=period.offset, night=i)
        except ValueError as error:
            cell.want(str(error).startswith("night"), f"{pooling}: a night twice: {error}")
        else:
            cell.want(False, f"{pooling}: a night counts twice")


def another_rate(cell: Cell) -> None:
    """Every calibrator moves to another rate, and back; one curve's odds by the same factor."""
    rows = cell.world.nights[0]
    for pooling in cell.poolings("none", "complete", "partial", "nested", "crossed"):
        made = cell.bench.fitted(pooling)
        there = made.shift_prior(from_rate=0.2, to_rate=0.05)
        p, q, again = (
            np.asarray(x.predict_proba(rows.scores, rows.ids(pooling), offset=rows.offset), float)
            for x in (made, there, there.shift_prior(from_rate=0.05, to_rate=0.2))
        )
        cell.want((q <= p + 1e-9)[np.isfinite(p)].all(), f"{pooling}: a rarer class, likelier")
        to = 1e-3 if rows.scores.dtype == np.float32 else 1e-6
        cell.want_same(again, p, f"{pooling}: there and back", to)
        if pooling in ("none", "complete"):
            middle = (np.minimum(p, q) > 1e-6) & (np.maximum(p, q) < 1 - 1e-6)
            moved = logit(q[middle]) - logit(p[middle])
            expected = np.full(len(moved), logit(0.05) - logit(0.2))
            cell.want_same(moved, expected, f"{pooling}: odds", 100 * to)
        none = there.predict_proba(rows.scores[:1], rows.ids(pooling)[:1])
        cell.want_probabilities(none, f"{pooling}: moved")
    scores, labels = cell.world.classes
    classes = pj.fit_one_vs_rest(scores, labels, classes=range(scores.shape[1]))
    there = classes.shift_prior(from_rate=0.2, to_rate=0.05)
    cell.want_probabilities(there.predict_proba(scores, normalize=False), "classes, moved")
    again = there.shift_prior(from_rate=0.05, to_rate=0.2)
    both = (np.asarray(x.predict_proba(scores), float) for x in (again, classes))
    cell.want_same(*both, "classes: there and back", 1e-3 if scores.dtype == np.float32 else 1e-6)
