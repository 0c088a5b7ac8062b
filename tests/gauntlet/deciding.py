"""Promises of thresholds, gates and certification."""

import numpy as np
from scipy.special import expit

import platt_jax as pj

from . import chance
from .cell import Cell
from .judging import FEW

STATES = {"OK", "UNREACHED", "EXCEEDED", "NOT_MONOTONE", "NON_FINITE"}
GATES = {"OK", "UNREACHED", "REVERSED", "TOO_FEW", "NON_FINITE"}
MOST = 0.15  # share of violating gates, for which the issue is honest at 20 labels
RARE = 1e-5  # a rate at which no group of a few hundred worlds violates


def thresholds(cell: Cell) -> None:
    """Predictions reach the probability there; where there is none, no score's prediction does."""
    night = cell.world.nights[0]
    for pooling in cell.poolings("none", "partial", "nested", "crossed"):
        made = cell.bench.fitted(pooling)
        rows = night.where(np.arange(len(night)) < 500)
        ids, scores = rows.ids(pooling), np.asarray(rows.scores, np.float64)
        offset = None if rows.offset is None else np.asarray(rows.offset, np.float64)
        seen = np.asarray(made.predict_proba(scores, ids, offset=offset), float)
        for p in (0.02, 0.5, 0.95):
            table = made.threshold_table(p, ids, offset=offset)
            at, state = table["threshold"], table["status"]
            what = f"{pooling}, {p:g}"
            cell.want(set(state) <= STATES - {"NOT_MONOTONE"}, f"{what}: {set(state)}")
            cell.want(((state == "OK") == np.isfinite(at)).all(), f"{what}: status and number")
            cell.want((np.isnan(seen) == (state == "NON_FINITE")).all(), f"{what}: NaN")
            ok = np.flatnonzero(state == "OK")
            mine = None if offset is None else offset[ok]
            if len(ok):
                q = np.asarray(made.predict_proba(at[ok], ids[ok], offset=mine), float)
                # Scores far from 0 are known to so many digits only.
                steep = np.abs(_slopes(made, ids[ok])) * np.abs(at[ok])
                off = np.abs(q - p) > 1e-7 + 1e-15 * (steep if np.isfinite(steep).all() else 1e9)
                cell.want(not off.any(), f"{what}: {off.sum()} predictions are not there")
            for name, sign in (("UNREACHED", 1), ("EXCEEDED", -1)):
                other = sign * (seen - p)[state == name]
                cell.want(not (other > 1e-6).any(), f"{what}: {name}, but a row has it")
            cell.want_order(table["lower"], at, table["upper"], what) if len(ok) == len(
                at
            ) else None
            banded = made.threshold(p, ids, level=0.9, offset=offset)
            far = np.isfinite(banded)
            if far.any():
                mine = None if offset is None else offset[far]
                low, _ = made.band(banded[far], ids[far], 0.9, offset=mine)
                cell.want_same(low, np.full(far.sum(), p), f"{what}: band", 1e-5)


def _slopes(made, ids) -> np.ndarray:
    """The change of A f by f at the segments of rows; inf if they were not fitted."""
    known = made.seen(ids)
    found = np.full(len(ids), np.inf)
    if known.any() and made.keys.dtype.names is None:
        found[known] = np.asarray(made.fit.A, float)[np.searchsorted(made.keys, ids[known])]
    return found


def threshold_of_classes(cell: Cell) -> None:
    """Each class's own probability is reached."""
    scores, labels = cell.world.classes
    made = pj.fit_one_vs_rest(scores, labels, classes=np.arange(scores.shape[1]))
    at = made.threshold(0.3)
    table = made.threshold_table(0.3)
    cell.want_same(table["threshold"], at, "table")
    known = np.isfinite(at)
    p = np.asarray(made.predict_proba(np.where(known, at, 0.0)[None], normalize=False), float)[0]
    cell.want_same(p[known], np.full(known.sum(), 0.3), "probability", 1e-6)


def gates(cell: Cell) -> None:
    """Numbers in their ranges, rows that are accepted, few that violate, and certification."""
    world = cell.world
    night = world.nights[0]
    if night.offset is not None or not len(night):
        return
    for pooling in cell.poolings("none", "partial", "nested"):
        made, ids = cell.bench.fitted(pooling), night.ids(pooling)
        for side, target in (("positive", 0.7), ("negative", 0.9), ("both", 0.8)):
            table = pj.gate(made, night.scores, ids, precision=target, side=side)
            what = f"{pooling}, {side}"
            _numbers(cell, table, target, what)
            proof = pj.certify(table, night.scores, night.labels, ids)
            _certified(cell, table, proof, what)
            if pooling == "nested" or side == "both":
                continue
            accepted = np.rint(table["share"] * table["rows"]).astype(int)
            ok = table["status"] == "OK"
            cell.want((accepted[ok] == proof["rows"][ok]).all(), f"{what}: share and threshold")
            sure = pooling == "none" or (world.normal and len(made.keys) >= FEW)
            if world.plain and sure and not world.sure:
                _few_violate(cell, table, night, target, what)


def _numbers(cell: Cell, table, target: float, what: str) -> None:
    state = table["status"]
    cell.want(set(state) <= GATES, f"{what}: {set(state)}")
    ok = state == "OK"
    for name in ("precision", "standard_error", "lower"):
        cell.want((np.isfinite(table[name]) == ok).all(), f"{what}: {name} and status")
    cell.want((np.isfinite(table["threshold"]) == ok).all(), f"{what}: threshold and status")
    share = table["share"]
    cell.want(((share >= 0) & (share <= 1) & ((share > 0) == ok)).all(), f"{what}: share")
    cell.want((table["lower"][ok] >= target).all(), f"{what}: lower is below the target")
    cell.want((table["lower"] <= table["precision"])[ok].all(), f"{what}: lower above precision")


def _certified(cell: Cell, table, proof, what: str) -> None:
    p, q = proof["p_value"], proof["q_value"]
    cell.want(((p >= 0) & (p <= 1) | np.isnan(p)).all(), f"{what}: a p-value outside [0, 1]")
    cell.want(not (q < p - 1e-12).any(), f"{what}: a q-value below its p-value")
    cell.want((proof["right"] <= proof["rows"]).all(), f"{what}: more right than rows")
    chosen = proof["flagged"]
    has_rows = proof["rows"] > 0
    cell.want((np.isfinite(proof["lower"]) == has_rows).all(), f"{what}: bounds and rows")
    above = proof["lower"] - proof["target"]
    cell.want((above[chosen] >= -1e-9).all(), f"{what}: a certified bound below the target")
    others = above[has_rows & ~chosen]
    cell.want((others < 1e-9).all(), f"{what}: the bound of another is not below the target")
    cell.want(not (chosen & (table["status"] != "OK")).any(), f"{what}: certified without a gate")


def exact_gates(cell: Cell) -> None:
    """Gates by labels violate as often as their level says; groups that cover, never at RARE."""
    night = cell.world.nights[0]
    if not len(night) or night.offset is not None:
        return
    made, p = cell.bench.fitted("none"), expit(night.log_odds)
    both = pj.gate(
        made, night.scores, night.segments, precision=0.6, side="both", labels=night.labels
    )
    shares = [both["share"][both["side"] == x] for x in ("positive", "negative")]
    cell.want((sum(shares) < 1 + 1e-12).all(), "rows that are taken as both classes")
    for side, target in (("positive", 0.6), ("negative", 0.8)):
        table = pj.gate(
            *(made, night.scores, night.segments),
            **dict(precision=target, level=0.95, side=side, labels=night.labels),
        )
        cell.want(set(table["status"]) <= GATES, f"{side}: {set(table['status'])}")
        _accepts_what_it_says(cell, table, night, side)
        enough = int((table["status"] != "TOO_FEW").sum())
        violating = int(_violating(table, night, target).sum())
        if enough and not cell.world.clustered:
            many = chance.too_many(violating, enough, 0.05)
            cell.want(not many, f"{side}: {violating} of {enough} violate")
        group = night.columns[:, 0]
        gates = pj.gate(made, night.scores, night.segments, precision=target, side=side)
        _, first, owner = np.unique(night.segments, return_index=True, return_inverse=True)
        proof = pj.certify(
            *(gates, night.scores, night.labels, night.segments),
            **dict(fdr=RARE, levels={"group": group[first]}),
        )
        _certified_groups(cell, gates, proof, side)
        _copies_are_clusters(cell, gates, night, {"group": group[first]}, proof, side)
        if cell.world.clustered:
            continue
        threshold = gates["threshold"][owner]
        up = side == "positive"
        accepted = night.scores >= threshold if up else night.scores <= threshold
        accepted &= (gates["status"] == "OK")[owner]
        right = p if up else 1 - p
        by_level = {"all": np.zeros(len(owner), int), "group": group, "segment": night.segments}
        for level, ids in by_level.items():
            lines = proof["flagged"] & (proof["level"] == level)
            covers = lines & np.isin(np.arange(len(lines)), _covering(proof))
            names = [0] if level == "all" else proof[level][covers]
            for name in names if covers.any() else ():
                mean = right[accepted & (ids == name)].mean()
                cell.want(mean >= target, f"{side}: {level} {name} covers at {mean:.3g}")


def _copies_are_clusters(cell: Cell, gates, night, levels, proof, what: str) -> None:
    """Copies of rows certify nothing that the rows do not."""
    scores, labels, ids, row = (
        np.repeat(x, 4) for x in (night.scores, night.labels, night.segments, np.arange(len(night)))
    )
    copies = pj.certify(gates, scores, labels, ids, fdr=RARE, levels=levels, clusters=row)
    cell.want((copies["clusters"] == proof["rows"]).all(), f"{what}, copies: clusters")
    cell.want((copies["rows"] == 4 * proof["rows"]).all(), f"{what}, copies: rows")
    less = copies["p_value"] < proof["p_value"] * (1 - 1e-9)
    cell.want(not less.any(), f"{what}, copies: {less.sum()} smaller p-values")
    more = copies["flagged"] & ~proof["flagged"]
    cell.want(not more.any(), f"{what}, copies: {more.sum()} more are certified")


def _accepts_what_it_says(cell: Cell, table, night, side: str) -> None:
    """Shares and precisions are those of the rows from the threshold on."""
    for k, line in enumerate(table["segment"]):
        mine, at = night.segments == line, table["threshold"][k]
        from_there = night.scores >= at if side == "positive" else night.scores <= at
        inside = mine & from_there & (table["status"][k] == "OK")
        share = inside.sum() / mine.sum()
        cell.want(abs(share - table["share"][k]) < 1e-12, f"{side}, {line}: share {share:.3g}")
        if inside.any():
            precision = np.mean(night.labels[inside] == (side == "positive"))
            off = abs(precision - table["precision"][k])
            cell.want(off < 1e-12, f"{side}, {line}: precision is off by {off:.1g}")


def _covering(proof) -> np.ndarray:
    """Lines of certified groups that cover a segment."""
    single = np.flatnonzero(proof["level"] == "segment")
    found = []
    for line in single:
        by = proof["certified_by"][line]
        if by == "segment":
            found.append(line)
        elif by:
            same = proof["level"] == by
            if by == "group":
                same &= proof["group"] == proof["group"][line]
            found.append(np.flatnonzero(same)[0])
    return np.unique(found).astype(int)


def _certified_groups(cell: Cell, gates, proof, what: str) -> None:
    """Numbers in their ranges; a group has the rows of its segments; the finest level covers."""
    _certified(cell, {"status": proof["status"]}, proof, what)
    single = proof["level"] == "segment"
    cell.want(single.sum() == len(gates), f"{what}: lines")
    for name in ("rows", "right"):
        whole = proof[name][single].sum()
        for level in ("all", "group"):
            cell.want(proof[name][proof["level"] == level].sum() == whole, f"{what}: {name}")
    certified = proof["flagged"] & (proof["rows"] > 0)
    own = proof["certified_by"] == proof["level"]
    cell.want((certified == own).all(), f"{what}: certified, and covered by another level")


def _violating(table, night, target: float) -> np.ndarray:
    """Which gates accept rows whose true mean probability is below the target."""
    p = expit(night.log_odds)
    found = np.zeros(len(table["segment"]), bool)
    for k, t, side, state, i in zip(
        *(table[x] for x in ("segment", "threshold", "side", "status")),
        range(len(found)),
        strict=True,
    ):
        up = side == "positive"
        mine = (night.segments == k) & (night.scores >= t if up else night.scores <= t)
        found[i] = state == "OK" and np.mean(p[mine] if up else 1 - p[mine]) < target
    return found


def _few_violate(cell: Cell, table, night, target: float, what: str) -> None:
    """The true mean probability of the accepted rows, by segment."""
    gated = int((table["status"] == "OK").sum())
    violating = int(_violating(table, night, target).sum())
    if gated:
        cell.want(
            not chance.too_many(violating, gated, MOST), f"{what}: {violating} of {gated} violate"
        )
