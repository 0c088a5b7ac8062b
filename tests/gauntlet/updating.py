"""Promises of updates and of drift."""

import numpy as np

import platt_jax as pj

from . import chance
from .cell import Cell
from .fits import first_of_each
from .worlds import Rows


def _in_range(cell: Cell, proba, rows: Rows, what: str) -> None:
    """Positives predicted on rows just seen: within four deviations and a fifth of those seen.

    Of at least one positive: earlier rows leave some where the new ones have none.
    """
    proba = np.asarray(proba, float)
    seen, predicted = float(rows.labels.sum()), float(np.nansum(proba))
    rare = min(seen, len(rows) - seen)
    slack = 4 * np.sqrt(max(rare, 1)) + 0.2 * rare + 3
    cell.want(
        abs(predicted - seen) <= slack,
        f"{what}: {predicted:.1f} predicted of {seen:.0f} in {len(rows)} rows just seen",
    )


def update(pooling: str):
    def check(cell: Cell) -> None:
        world = cell.world
        if not cell.poolings(pooling):
            return
        made, (night, _, fresh) = cell.bench.fitted(pooling), world.nights
        after = pj.update(made, *night.data(pooling), offset=night.offset)
        proba = after.predict_proba(night.scores, night.ids(pooling), offset=night.offset)
        proba = cell.want_probabilities(proba)
        if world.plain and pooling not in ("none", "complete"):
            _in_range(cell, proba, night, "updated")
        if world.plain and world.normal:
            # Segments alone may lose by more rows: a fit of a few separates their classes. What an
            # update can promise is the fit of all rows.
            other, what = made, "before the update"
            if pooling == "none":
                other, what = cell.bench.fit(world.fitted.followed_by(night), "none"), "a refit"
            before, now = (
                x.predict_proba(fresh.scores, fresh.ids(pooling), offset=fresh.offset)
                for x in (other, after)
            )
            known = fresh.seen & np.isfinite(np.asarray(before, float))
            if known.any():
                given = (
                    np.asarray(x)[known] for x in (now, before, fresh.log_odds, fresh.segments)
                )
                found = chance.worse(*given, len(night))
                cell.want(found is None, f"worse than {what}: {found}")
        _bands_in_order(cell, after, night, pooling)

    return check


def _bands_in_order(cell: Cell, made, rows: Rows, pooling: str) -> None:
    rows = first_of_each(rows)
    lower, upper = made.band(rows.scores, rows.ids(pooling), offset=rows.offset)
    cell.want(not (np.asarray(lower) > np.asarray(upper)).any(), "bands upside down")


def five_updates(cell: Cell) -> None:
    """Five in a row: of three nights, after which predictions add up, and of curves that walk."""
    world = cell.world
    for pooling in cell.poolings("none", "partial", "nested"):
        made = cell.bench.fitted(pooling)
        for nights, same in ((world.nights, True), (world.periods[:2], False)):
            for night in nights:
                made = pj.update(made, *night.data(pooling), offset=night.offset, forgetting=0.9)
            proba = made.predict_proba(night.scores, night.ids(pooling), offset=night.offset)
            proba = cell.want_probabilities(proba, pooling)
            if same and world.plain and pooling != "none":
                _in_range(cell, proba, night, f"{pooling}, nights")


def drift(cell: Cell) -> None:
    """Two periods, with and without drift, and what is predicted for the third."""
    world = cell.world
    made = cell.bench.fitted("partial")
    for name, (now, then) in {
        "nothing changed": world.nights[:2],
        "curves walk": world.periods[:2],
    }.items():
        with cell.refusing("calibrator", "scores: expected segments of which"):
            found = pj.inference.estimate_drift(made, *now.data(), offset=now.offset)
            lasting = float(found.lasting)
            # It leaves [0, 1] by chance only; its error needs some twenty segments. Segments far
            # from a normal population differ by more than their posterior means say: by above 1.
            error = chance.SIGMAS * float(found.lasting_error)
            if cell.settled and len(made.keys) >= 30:
                within = -error <= lasting and (lasting <= 1 + error or not world.normal)
                cell.want(within, f"{name}: lasting {lasting:.3g}, error {found.lasting_error:.3g}")
            proba = found.calibrator.predict_proba(then.scores, then.segments, offset=then.offset)
            proba = cell.want_probabilities(proba, name)
            _bands_in_order(cell, found.calibrator, then, "partial")
            if world.plain and world.normal:
                other = cell.bench.fit(now, "complete")
                one = other.predict_proba(then.scores, then.segments, offset=then.offset)
                worse = chance.worse(proba, one, then.log_odds, then.segments, len(now))
                cell.want(worse is None, f"{name}: worse than one curve for all: {worse}")


def judge_pooling(cell: Cell) -> None:
    world = cell.world
    nights = world.nights
    scores, labels, segments = (
        np.concatenate(x) for x in zip(*(x.data() for x in nights), strict=True)
    )
    offset = None if nights[0].offset is None else np.concatenate([x.offset for x in nights])
    times = np.repeat(np.arange(len(nights)), [len(x) for x in nights])
    judged = pj.inference.judge_pooling(scores, labels, segments, times, [2], offset=offset)
    by_name = dict(zip(judged["pooling"].tolist(), range(len(judged["pooling"])), strict=True))
    cell.want({"complete", "partial", "none"} <= set(by_name), f"methods {sorted(by_name)}")
    for name in ("log_loss", "difference"):
        cell.want(np.isfinite(judged[name]).all(), f"{name} is not finite")
    cell.want(judged["difference"][by_name["complete"]] == 0, "complete differs from itself")
    cell.want((judged["log_loss"] >= 0).all(), "a negative log loss")
    # Labels that are never known are of rows that are not fitted, and those known at once change
    # nothing.
    at_once = pj.inference.judge_pooling(
        scores, labels, segments, times, [2], offset=offset, available=times
    )
    for name in ("pooling", "rows", "log_loss", "difference"):
        same = np.array_equal(at_once[name], judged[name])
        cell.want(same, f"labels that are known at once: another {name}")
    never = times < 2
    never &= np.random.default_rng(world.seed).random(len(times)) < 0.3
    if (never | (times == 2)).all():
        return
    late = pj.inference.judge_pooling(
        *(scores, labels, segments, times, [2]),
        **dict(offset=offset, available=np.where(never, np.nan, times)),
    )
    kept = ~never
    fewer = None if offset is None else offset[kept]
    without = pj.inference.judge_pooling(
        scores[kept], labels[kept], segments[kept], times[kept], [2], offset=fewer
    )
    for name in ("pooling", "rows", "log_loss"):
        same = np.array_equal(late[name], without[name])
        cell.want(same, f"labels that are never known: another {name}")
