"""Promises of triage and monitors: no alarm where nothing changed, one where all is wrong."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import expit

import platt_jax as pj

from . import chance
from .cell import Cell
from .worlds import Rows

FDR = 0.05
FEW = 20  # segments: of fewer, a population says little
CLEAR = 100.0  # nats by which labels contradict a prediction: e^-100 is no chance
KNOWN = 0.3  # error of log-odds with which a prediction is known
# Probability of a curve outside a band of 1 - 1e-8, which is 5.73 standard errors, if its variance
# is 4.5 times the band's. A band is of an average over populations, and the widest that the rows
# allow may be that much wider: `platt_jax.triage`.
WIDEST = 3.5e-3


def triage(against: str):
    def check(cell: Cell) -> None:
        world = cell.world
        night = world.nights[0]
        rows = night.where(night.seen)
        if not len(rows):
            return
        calibrators = {x: cell.bench.fitted(x) for x in ("none", "partial")}
        if against == "predictions":
            calibrators = {"true": cell.bench.true(), "partial": calibrators["partial"]}
        for name, made in calibrators.items():
            found = pj.triage(made, *rows.data(), offset=rows.offset, against=against)
            _numbers(cell, found, name, all_tested=against == "predictions")
            right = name != "partial" or (against == "fit" and world.normal)
            if right and not world.clustered:
                silent(cell, found["q_value"], name)
            _flipped(cell, made, rows, name, against)
            _sure(cell, made, name, against)

    return check


def _numbers(cell: Cell, found, name: str, all_tested: bool) -> None:
    p, q = (np.asarray(found[x], float) for x in ("p_value", "q_value"))
    cell.want(not (np.isnan(p) & np.asarray(found["flagged"])).any(), f"{name}: NaN is flagged")
    cell.want(((p >= 0) & (p <= 1) | np.isnan(p)).all(), f"{name}: a p-value outside [0, 1]")
    cell.want((q >= p - 1e-9)[~np.isnan(p)].all(), f"{name}: a q-value below its p-value")
    cell.want(not (all_tested and np.isnan(p).any()), f"{name}: {np.isnan(p).sum()} not tested")
    for x in ("intercept", "slope"):
        alone = np.isfinite(found[x]) & ~np.isfinite(found[f"se_{x}"])
        cell.want(not alone.any(), f"{name}: {alone.sum()} of {x} without error")


def silent(cell: Cell, q_values, name: str) -> None:
    """Where nothing has changed."""
    q = np.asarray(q_values, float)
    tested = int(np.isfinite(q).sum())
    flagged, never = (int((q <= fdr).sum()) for fdr in (FDR, chance.NEVER))
    if tested:
        most = chance.most_alarms(tested, FDR)
        cell.want(flagged <= most, f"{name}: {flagged} of {tested} alarms, nothing changed")
    cell.want(not never, f"{name}: {never} alarms at a rate of 1e-6, nothing changed")


def _contradicted(made, rows: Rows) -> np.ndarray:
    """The ids of segments whose flipped labels are sure to contradict a curve that is known."""
    given = {"offset": rows.offset}
    p = np.asarray(made.predict_proba(rows.scores, rows.segments, **given), float)
    lower, upper = made.band(rows.scores, rows.segments, **given)
    keys, owner = np.unique(rows.segments, return_inverse=True)
    z = rows.log_odds
    nats = np.bincount(owner, (2 * expit(z) - 1) * z)
    near = (chance.half_width(lower, upper) <= 1.96 * KNOWN) & (np.abs(p - expit(z)) < 0.1)
    all_near = np.bincount(owner, ~near) == 0
    return keys[(nats > CLEAR) & all_near & (np.bincount(owner) >= 20)]


def _flipped(cell: Cell, made, rows: Rows, name: str, against: str) -> None:
    """Every label of some segments is wrong."""
    wrong = _contradicted(made, rows)
    if not len(wrong):
        return
    labels = np.where(np.isin(rows.segments, wrong), 1 - rows.labels, rows.labels)
    rows = replace(rows, labels=labels)
    found = pj.triage(made, *rows.data(), offset=rows.offset, against=against)
    skipped = np.isnan(found["p_value"]) & (name == "partial") & _says_little(cell, made)
    missed = np.isin(found["segment"], wrong) & ~found["flagged"] & ~skipped
    cell.want(
        not missed.any(),
        f"{name}: {missed.sum()} of {len(wrong)} with all labels flipped are not flagged",
    )


def _says_little(cell: Cell, made) -> bool:
    """Whether a population is of a handful of segments, or most are of one or two rows.

    Of many segments a handful may have most rows, by Kish's effective number. A segment that
    depends on such a population is not tested against the fit: triage and Monitor warn of it.
    """
    rows = np.unique(cell.world.fitted.segments, return_counts=True)[1]
    return rows.sum() ** 2 / (rows**2).sum() < FEW or np.median(rows) <= 2


def _sure(cell: Cell, made, name: str, against: str) -> None:
    """Predictions near 0 or 1, of which half are wrong."""
    world = cell.world
    for far in (12.0, 40.0):
        k = int(np.argmax(np.abs(np.asarray(made.fit.A)) * (np.asarray(made.fit.status) == 0)))
        A, B = (float(np.asarray(x)[k]) for x in (made.fit.A, made.fit.B))
        if not abs(A) * world.scale > 0.05:
            return
        scores = np.full(200, -(B + far) / A).astype(world.fitted.scores.dtype)
        ids = np.repeat(made.keys[k], 200)
        p = np.asarray(made.predict_proba(scores, ids), float)
        # A curve that the fit allows by 1e-8 does not explain the labels.
        lower, _ = made.band(scores, ids, 1 - 1e-8)
        if against == "fit" and not (np.asarray(lower) > 0.99).all():
            continue
        if not (p > 0.99).all():
            continue
        found = pj.triage(made, scores, np.arange(200) % 2, ids, against=against)
        value = float(found["p_value"][0])
        if np.isnan(value) and name == "partial" and _says_little(cell, made):
            continue
        most = WIDEST if name == "partial" and against == "fit" else 1e-4
        cell.want(
            value < most, f"{name}: log-odds {far:g}, half of 200 labels wrong: p {value:.2g}"
        )


def monitor(against: str):
    def check(cell: Cell) -> None:
        world = cell.world
        for name in ("none", "partial") if against == "fit" else ("true",):
            made = cell.bench.true() if name == "true" else cell.bench.fitted(name)
            watch = pj.Monitor.start(made, against=against)
            for night in world.nights:
                rows = night.where(night.seen)
                watch = watch.update(*rows.data(), offset=rows.offset)
            table = watch.table()
            monitored(cell, table, name)
            if not world.clustered and (name != "partial" or world.normal):
                silent(cell, table["q_value_ever"], name)
                silent(cell, table["q_value"], name)
            wrong = set()
            for night in world.nights:
                rows = night.where(night.seen)
                here = set(_contradicted(made, rows).tolist())
                wrong = here if not wrong else wrong & here
            for night in world.nights:
                rows = night.where(np.isin(night.segments, list(wrong)) & night.seen)
                if len(rows):
                    watch = watch.update(
                        rows.scores, 1 - rows.labels, rows.segments, offset=rows.offset
                    )
            if name == "partial" and _says_little(cell, made):
                wrong = set()
            missed = wrong - set(watch.alarms()["segment"].tolist())
            cell.want(not missed, f"{name}: {len(missed)} of {len(wrong)} flipped without an alarm")
            monitored(cell, watch.table(), f"{name}, flipped")

    return check


def monitored(cell: Cell, table, name: str) -> None:
    alone = np.isfinite(table["intercept"]) & ~np.isfinite(table["se_intercept"])
    cell.want(not alone.any(), f"{name}: {alone.sum()} shifts with a number and no error")
    sign = (table["change"] == "higher") * 1.0 - (table["change"] == "lower")
    sure = (sign != 0) & (table["log_e_value"] >= np.log(20)) & np.isfinite(table["intercept"])
    off = sure & (sign * table["intercept"] <= 1.96 * table["se_intercept"])
    cell.want(not off.any(), f"{name}: {off.sum()} shifts contradict their change")
    cell.want((table["positives"] <= table["rows"]).all(), f"{name}: more positives than rows")
    for x in ("expected", "q_value", "log_e_value", "highest"):
        cell.want(np.isfinite(table[x]).all(), f"{name}: {x} is not finite")
    cell.want((table["expected"] <= table["rows"] + 1e-6).all(), f"{name}: expected above rows")


def monitor_parts(cell: Cell) -> None:
    """Parts of a night, its sums and a file: the same monitor, to the bit."""
    world = cell.world
    start = pj.Monitor.start(cell.bench.fitted("none"))
    night = world.nights[0]
    whole = start.update(*night.data(), offset=night.offset)
    odd = np.arange(len(night)) % 2 == 1
    parts = [night.where(x) for x in (odd, ~odd)]
    if min(map(len, parts)):
        one, other = (start.update(*x.data(), offset=x.offset) for x in parts)
        _same_monitor(cell, whole, one.merge(other), "merged parts")
    added = start.add(start.sums(*night.data(), offset=night.offset))
    _same_monitor(cell, whole, added, "added sums")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "monitor.npz"
        whole.save(path)
        _same_monitor(cell, whole, pj.Monitor.load(path, whole.calibrator), "a file")
    first = whole.table()["segment"][:1]
    rest = whole.restart(first)
    cell.want(not np.isin(rest.table()["segment"], first).any(), "restart keeps a line")


def _same_monitor(cell: Cell, mine, other, what: str) -> None:
    one, two = mine.table(), other.table()
    for name in ("rows", "positives", "expected", "log_e_value", "q_value", "intercept"):
        cell.want_same(one[name], two[name], f"{what}: {name}")


def late_labels(cell: Cell) -> None:
    """A share of the positives is not known yet, and the monitor is told which share."""
    world = cell.world
    if world.clustered:
        return
    rng = np.random.default_rng(world.seed)
    watch = pj.Monitor.start(cell.bench.true(), against="predictions")
    for night in world.nights:
        rows = night.where(night.seen)
        known = rows.labels * (rng.random(len(rows)) < world.reported)
        watch = watch.update(
            rows.scores, known, rows.segments, offset=rows.offset, reported=world.reported
        )
    table = watch.table()
    monitored(cell, table, "late")
    silent(cell, table["q_value_ever"], "late")
