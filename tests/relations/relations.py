"""The relations: two changes of rows after which an answer is the same."""

from typing import NamedTuple

import changes
import numpy as np


class Relation(NamedTuple):
    """Rows after one change and rows after another have the same answer.

    Attributes:
        left, right: the changes.
        to: how near the answers are, in absolute terms and relative ones; 0 means the same bits.
        alone: it is a relation between segments that are fitted alone.
        weighted: it needs weights of all rows.
    """

    left: object
    right: object = changes.as_it_is
    to: float = 0.0
    alone: bool = False
    weighted: bool = False


# What two searches for one optimum may differ by, and the digits that sums of another order lose.
ROUNDING = 2e-7
RELATIONS = {
    "rows permuted": Relation(changes.permuted, to=ROUNDING),
    "segments renamed": Relation(changes.renamed, to=ROUNDING),
    "ids with gaps": Relation(changes.with_gaps, to=ROUNDING),
    "a segment dropped": Relation(changes.dropped, alone=True),
    "half of the segments": Relation(changes.halved, alone=True),
    "weights of a segment x 1e300": Relation(changes.heavy, alone=True),
    "a segment not finite": Relation(changes.not_finite, changes.dropped),
    "scores x 1.4": Relation(changes.scaled(1.4), to=ROUNDING),
    "scores x 1e4": Relation(changes.scaled(1e4), to=ROUNDING),
    "scores x 1e-4": Relation(changes.scaled(1e-4), to=ROUNDING),
    "scores + 1e3": Relation(changes.scaled(1.0, 1e3), to=ROUNDING),
    "mirrored": Relation(changes.mirrored, to=ROUNDING),
    "weight 2 is the row twice": Relation(changes.repeated, to=ROUNDING, weighted=True),
    "weight 0 is no row": Relation(changes.with_ballast, to=ROUNDING, weighted=True),
    "float32": Relation(changes.single, to=2e-3),
}


def compare(left, right, of_left, of_right, to):
    """The quantities that differ, each with by how much."""
    mirrored = (left.scale < 0) != (right.scale < 0)
    off = []
    for name, quantity in of_left.items():
        of_one_class = mirrored and quantity.kind in ("sided", "score")
        if of_one_class or (to and quantity.kind == "drawn"):
            continue
        one, two = (_canonical(q, rows) for q, rows in ((quantity, left), (of_right[name], right)))
        if mirrored and quantity.kind == "probability":
            one = {key: 1 - x for key, x in one.items()}
        shared = [key for key in one if key in two]
        told = _difference([one[key] for key in shared], [two[key] for key in shared], to)
        if told or not shared:
            off.append(f"{name}: {told or 'nothing to compare'}")
    return off


def _canonical(quantity, rows):
    """{row or segment before the change: value, in the units before}."""
    values = np.asarray(quantity.values)
    if quantity.kind == "score":
        values = (values - rows.shift) / rows.scale
    if quantity.by == "all":
        return dict(enumerate(np.atleast_1d(values)))
    if quantity.by == "row":
        kept = rows.is_kept(rows.segments) & (rows.origin >= 0)
        return dict(zip(rows.origin[kept].tolist(), values[kept], strict=True))
    keys = np.asarray(quantity.keys)
    kept = rows.is_kept(keys)
    names = [rows.names[key] for key in keys[kept].tolist()]
    return dict(zip(names, values[kept], strict=True))


def _difference(one, two, to):
    """By how much values differ, in words; empty if they do not."""
    one, two = np.array(one), np.array(two)
    if one.dtype.kind in "UO":
        return "" if (one == two).all() else f"{one[one != two][:3]} for {two[one != two][:3]}"
    one, two = one.astype(float), two.astype(float)
    same = (one == two) | (np.isnan(one) & np.isnan(two))
    with np.errstate(invalid="ignore"):
        off = np.abs(one - two)
        same |= off <= to * (1 + np.abs(two))
    if same.all():
        return ""
    worst = np.argmax(np.where(same, -1, np.nan_to_num(off, nan=np.inf)))
    return f"{(~same).sum()} of {len(one)}, such as {one[worst]:.9g} for {two[worst]:.9g}"
