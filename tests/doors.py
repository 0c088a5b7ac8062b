"""Every way to fit by segment, and what each takes; ``python tests/doors.py --write`` for docs.

The page of the reference is made from the table here, and test_doors.py tries every cell of it.
"""

import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from data import labels_of
from jax.sharding import Mesh
from rows_elsewhere import fit_in_processes, fit_relation, fit_stored

import platt_jax as pj
from platt_jax import GaussianPrior, Options

STORED = Path(__file__).parents[1] / "docs" / "reference" / "doors.md"
COLUMNS = ("scores", "labels", "segments", "weights")


def rows(fewest=12, most=28):
    """Scores, labels, ids and weights of a dozen segments of different sizes.

    So few that all of them together are as small a problem: one program is compiled, not two.
    """
    rng = np.random.default_rng(0)
    segments = np.repeat(np.arange(12), rng.integers(fewest, most, 12))
    scores = rng.normal(size=len(segments))
    slope, intercept = rng.normal([1.5, -0.5], 0.5, (12, 2))[segments].T
    labels = labels_of(rng, slope * scores + intercept).astype(int)
    order = rng.permutation(len(segments))
    weights = rng.integers(0, 4, len(segments)).astype(float)
    columns = (scores, labels, segments, weights)
    return dict(zip(COLUMNS, (x[order] for x in columns), strict=True))


def _rows_of_levels():
    """More rows, which tell the spreads of levels."""
    return rows(15, 60)


# --- the doors ------------------------------------------------------------------------------------


def memory(rows, folder, **given):
    return pj.fit_segments(**rows, **given)


def mesh(rows, folder, **given):
    over = Mesh(np.array(jax.devices()[:1]), ("problems",))
    return pj.fit_segments(**rows, mesh=over, **given)


def disk(rows, folder, **given):

    source, names = _table(rows)
    return fit_stored(source, cache=folder / "rows", **names, **given)


def engine(rows, folder, **given):
    import duckdb
    import pyarrow as pa

    source, names = _table(rows)
    return fit_relation(duckdb.connect().from_arrow(pa.table(source)), **names, **given)


def processes(rows, folder, **given):

    return fit_in_processes(**rows, **given)


def cluster(rows, folder, **given):
    import pyarrow as pa

    from platt_jax import cluster

    source, names = _table(rows)
    return cluster.fit_segments(pa.table(source), **names, partitions=1, **given).collect()


def bootstrap(rows, folder, **given):
    made = pj.inference.bootstrap(**rows, replicates=2, **given)
    return pj.SegmentCalibrator(made.keys, made.fit, pj.Sigmoid(np.nan, np.nan))


def update(rows, folder, **given):
    """Of a calibrator of the same options that knows none of these segments."""
    several = rows["segments"].ndim > 1
    other = [(-1, "x")] * 4 if several else np.full(4, -1)
    options = given.get("options", Options())
    earlier = pj.fit_segments([1.0, -1.0, 0.5, 0.0], [1, 0, 0, 1], other, options=options)
    updated = pj.update(earlier, **rows, **given)
    mine = updated.only(~earlier.seen(updated.keys))
    return replace(mine, fallback=pj.Sigmoid(np.nan, np.nan))


DOORS = {
    "memory": memory,
    "mesh": mesh,
    "disk": disk,
    "engine": engine,
    "processes": processes,
    "cluster": cluster,
    "bootstrap": bootstrap,
    "update": update,
}


def _table(rows):
    """Named columns, and which argument names which."""
    table = {name: x for name, x in rows.items() if name != "segments"}
    segments = rows["segments"]
    ids = {"segments": segments}
    if segments.ndim > 1:
        ids = {f"id_{i}": list(column) for i, column in enumerate(segments.T)}
    segment = list(ids) if segments.ndim > 1 else "segments"
    names = {"score": "scores", "label": "labels", "segment": segment}
    if "weights" in rows:
        names["weight"] = "weights"
    if "offset" in rows:
        names["offset"] = "offset"
    return {**table, **ids}, names


# --- the options ----------------------------------------------------------------------------------
# Some without weights, so that their programs are those of other tests.


def as_they_are(rows, folder):
    rows.pop("weights")
    return rows, {}


def weights(rows, folder):
    return rows, {}


def _with_offset(rows):
    rng = np.random.default_rng(1)
    rows["offset"] = 0.5 * rows["scores"] + rng.normal(1, 2, len(rows["scores"]))
    return rows


def offset(rows, folder):
    return _with_offset(rows), {}


def offset_partial(rows, folder):
    return _with_offset(rows), {"pooling": "partial"}


def offset_complete(rows, folder):
    return _with_offset(rows), {"pooling": "complete"}


def offset_flag(rows, folder):
    _with_offset(rows)["offset"][np.flatnonzero(rows["segments"] == 3)[2]] = np.nan
    return rows, {}


def offset_omit(rows, folder):
    return offset_flag(rows, folder)[0], {"options": Options(non_finite="omit")}


def one_prior(rows, folder):
    rows.pop("weights")
    return rows, {"prior": GaussianPrior(np.array([-1.0, 0.0]), np.eye(2))}


def prior_of_each(rows, folder):
    rows.pop("weights")
    mean = np.stack([np.linspace(-2, 0, 12), np.linspace(-1, 1, 12)], -1)
    return rows, {"prior": GaussianPrior(mean, np.tile(np.eye(2), (12, 1, 1)))}


def start(rows, folder):
    rows.pop("weights")
    return rows, {"start": (-1.0, 0.0)}


def partial(rows, folder):
    return rows, {"pooling": "partial"}


def complete(rows, folder):
    return rows, {"pooling": "complete"}


def covariates(rows, folder):
    table = {"segment": np.arange(12), "size": np.linspace(-1, 1, 12), "kind": [*"abcabc"] * 2}
    return rows, {"pooling": "partial", "covariates": table}


def number_of_rows(rows, folder):
    return rows, {"pooling": "partial", "covariates": "rows"}


def _with_nan(rows):
    rows["scores"][np.flatnonzero(rows["segments"] == 3)[2]] = np.nan
    return rows


def flag(rows, folder):
    return _with_nan(rows), {"options": Options(non_finite="flag")}


def raises(rows, folder):
    return _with_nan(rows), {"options": Options(non_finite="raise")}


def omit(rows, folder):
    return _with_nan(rows), {"options": Options(non_finite="omit")}


def monotone(rows, folder):
    rows.pop("weights")
    rows["labels"][rows["segments"] == 5] ^= 1
    return rows, {"options": Options(monotone=True)}


def intercept(rows, folder):
    rows.pop("weights")
    return rows, {"options": Options(intercept=False)}


def progress(rows, folder):
    return rows, {"progress": _heard.append}


def checkpoint(rows, folder):
    return rows, {"checkpoint": folder / "checkpoint"}


def several_columns(rows, folder):
    letters = np.array(list("abc"))[rows["segments"] % 3]
    rows["segments"] = np.stack([(rows["segments"] // 3).astype(object), letters], -1)
    return rows, {}


def nested(rows, folder):
    return several_columns(_rows_of_levels(), folder)[0], {"pooling": "nested"}


def crossed(rows, folder):
    return several_columns(_rows_of_levels(), folder)[0], {"pooling": "crossed"}


def pos_label(rows, folder):
    rows["labels"] = np.where(rows["labels"] > 0, "yes", "no")
    return rows, {"pos_label": "yes"}


def trials(rows, folder):
    rows.pop("weights")
    rows["labels"] = np.random.default_rng(2).binomial(5, 0.2 + 0.6 * rows["labels"])
    return rows, {"trials": 5}


def soft(rows, folder):
    rows, _ = trials(rows, folder)
    rows["labels"] = rows["labels"] / 5
    return rows, {"soft": True}


_heard = []
OPTIONS = {
    "(no weights)": as_they_are,
    "weights": weights,
    "offset": offset,
    'offset, pooling="partial"': offset_partial,
    'offset, pooling="complete"': offset_complete,
    'offset, non_finite="flag"': offset_flag,
    'offset, non_finite="omit"': offset_omit,
    "prior (one)": one_prior,
    "prior (K)": prior_of_each,
    "start": start,
    'pooling="partial"': partial,
    'pooling="complete"': complete,
    "covariates": covariates,
    'covariates="rows"': number_of_rows,
    'non_finite="flag"': flag,
    'non_finite="raise"': raises,
    'non_finite="omit"': omit,
    "monotone": monotone,
    "intercept=False": intercept,
    "progress": progress,
    "checkpoint": checkpoint,
    "ids of several columns": several_columns,
    'ids of several columns, pooling="nested"': nested,
    'ids of several columns, pooling="crossed"': crossed,
    "pos_label": pos_label,
    "trials": trials,
    "soft": soft,
}

# --- what is not offered, and why -----------------------------------------------------------------

_SHORT = "such a fit takes seconds: make it again"
_PLATT = "it replicates fits by themselves"
_EARLIER = "the earlier fits are the prior"
_LABELS = "bring the rows together first: `SegmentRows(..., pos_label=)`"
_SHARES = (
    "make two rows of each, with shares as weights: the curve is nearly the same, errors "
    "lack the dispersion"
)
NOT_OFFERED = {
    ("checkpoint", "memory"): _SHORT,
    ("checkpoint", "mesh"): _SHORT,
    ("checkpoint", "engine"): "store the rows on disk first, or make it again",
    ("checkpoint", "bootstrap"): _SHORT,
    ("checkpoint", "update"): _SHORT,
    ("checkpoint", "cluster"): "the engine runs a task that died again",
    ("progress", "cluster"): "the engine shows its tasks",
    ("start", "cluster"): "the result stays in the tasks: each fit starts from the rows",
    ("prior (K)", "cluster"): "only tasks know which segments they have",
    ('ids of several columns, pooling="nested"', "cluster"): "a level's values meet in no task",
    ('ids of several columns, pooling="crossed"', "cluster"): "a level's values meet in no task",
    ("start", "bootstrap"): "replicates start at the original fits",
    ('pooling="partial"', "bootstrap"): _PLATT,
    ('pooling="complete"', "bootstrap"): _PLATT,
    ('offset, pooling="partial"', "bootstrap"): _PLATT,
    ('offset, pooling="complete"', "bootstrap"): _PLATT,
    ("prior (one)", "update"): _EARLIER,
    ("prior (K)", "update"): _EARLIER,
    ("start", "update"): "the search starts at the earlier fits",
    ('pooling="partial"', "update"): "pooling is the calibrator's",
    ('pooling="complete"', "update"): "pooling is the calibrator's",
    ('offset, pooling="partial"', "update"): "pooling is the calibrator's",
    ('offset, pooling="complete"', "update"): "pooling is the calibrator's",
    ('ids of several columns, pooling="nested"', "bootstrap"): _PLATT,
    ('ids of several columns, pooling="crossed"', "bootstrap"): _PLATT,
    ('ids of several columns, pooling="nested"', "update"): "pooling is the calibrator's",
    ('ids of several columns, pooling="crossed"', "update"): "pooling is the calibrator's",
    **{
        (option, door): why
        for option in ("covariates", 'covariates="rows"')
        for door, why in (
            ("cluster", "bring the rows together first, as `sql.rows` or `streaming.rows`"),
            ("bootstrap", _PLATT),
            ("update", "the calibrator's are used"),
        )
    },
    ("pos_label", "bootstrap"): _LABELS,
    ("pos_label", "update"): _LABELS,
    **{
        (option, door): _SHARES
        for option in ("trials", "soft")
        for door in ("disk", "engine", "processes", "cluster", "bootstrap", "update")
    },
}


def page():
    """The page of the reference."""
    reasons = list(dict.fromkeys(NOT_OFFERED.values()))
    lines = [
        "# Doors and options",
        "",
        "The same fit by segment has several doors: rows in memory, over a mesh of devices",
        "(`mesh=`), on disk (`platt_jax.streaming`), in an engine (`platt_jax.sql`), in several",
        "processes (`platt_jax.distributed`), in the tasks of Spark, Dask or Ray",
        "(`platt_jax.cluster`), by `bootstrap` and by `update`. Where a cell says yes, the door",
        "gives the answer of rows in memory; a test tries each cell. A number is the reason why an",
        "option is not offered there.",
        "",
        "| | " + " | ".join(DOORS) + " |",
        "|" + " --- |" * (1 + len(DOORS)),
    ]
    for option in OPTIONS:
        reason = [NOT_OFFERED.get((option, door)) for door in DOORS]
        cells = ["yes" if x is None else f"{reasons.index(x) + 1}" for x in reason]
        lines.append(f"| {option} | " + " | ".join(cells) + " |")
    lines += ["", *(f"{i}. {reason}" for i, reason in enumerate(reasons, 1)), ""]
    return "\n".join(lines)


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    STORED.write_text(page(), encoding="utf-8")
