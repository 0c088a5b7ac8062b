"""Every function that joins fresh rows with a fit; ``python tests/joined.py --write`` for docs.

The page of the reference is made from the table here, and test_joined.py tries every cell of it.
"""

import re
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
from data import labels_of

import platt_jax as pj
from platt_jax import inference, plots, report

STORED = Path(__file__).parents[1] / "docs" / "reference" / "joined.md"
SEGMENTS = 6
HERE = 3  # the segment of the row that a situation is about


class Answer(NamedTuple):
    """What a function says of each segment, or in one line: a number that matters, and others."""

    ids: list[Any]
    values: Any  # (lines, numbers)


class Call(NamedTuple):
    """Rows for a function, with a calibrator."""

    rows: dict[str, Any]
    given: Any = MappingProxyType({})
    fit: str = ""  # the calibrator's pooling and curve; by default what the function needs
    fitted: Any = None  # the rows of the fit, where these are not the usual ones
    form: Any = dict  # makes arguments of the rows
    held: Any = MappingProxyType({})  # columns of `SegmentRows`, besides the rows
    about: str = ""  # an argument that the function may lack
    ids: Any = np.asarray  # makes ids of the numbers of segments


# --- rows and calibrators -------------------------------------------------------------------------


def world(seed, each=40):
    """Rows of six segments, with scores of the dtype that JAX arrays have."""
    rng = np.random.default_rng(seed)
    segments = np.tile(np.arange(SEGMENTS), each)
    scores = rng.normal(size=len(segments))
    labels = labels_of(rng, 2 * scores + np.linspace(-1, 1, SEGMENTS)[segments]).astype(float)
    return {"scores": scores.astype(np.float32), "labels": labels, "segments": segments}


def classes(seed, rows=240):
    """Rows of three classes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % 3
    scores = rng.normal(size=(rows, 3)) + 1.5 * np.eye(3)[labels]
    return {"scores": scores.astype(np.float32), "labels": labels}


def some(rows, which):
    return {name: x[which] for name, x in rows.items()}


def columns_of(segments):
    """Ids of two columns, in the order of the numbers."""
    letters = np.array(["a", "b"], object)[segments % 2]
    return np.stack([(segments // 2).astype(object), letters], -1)


_fits: dict[Any, Any] = {}
_answers: dict[Any, Any] = {}


def _bits(rows):
    """What tells these rows from others."""
    return [(column, x.tobytes(), str(x[:12])) for column, x in (rows or {}).items()]


def calibrator_of(name, call):
    """The calibrator for a call of a function, fitted once."""
    rows = call.fitted
    if call.fit == "classes":
        rows = classes(0)
    elif rows is None and name in OF_THE_FIT:
        columns = () if name == "estimate_means" else ("weights", "offset")
        beside = {**call.given, **call.held}
        rows = call.rows | {x: beside[x] for x in columns if x in beside}
    elif rows is None:
        rows = world(0) | {"segments": call.ids(world(0)["segments"])}
    how = call.fit
    if not how or how.startswith(" "):
        how = ("partial" if name == "estimate_drift" else "none") + how
    if (key := (how, *_bits(rows))) not in _fits:
        with warnings.catch_warnings(action="ignore"):
            _fits[key] = _fitted(how, rows)
    return _fits[key]


def _fitted(how, rows):
    if how == "classes":
        return pj.fit_one_vs_rest(**rows)
    pooling, _, more = how.partition(" ")
    if more in ("quadratic", "isotonic"):
        return pj.fit_segments(**rows, pooling=pooling, curve=more)
    made = pj.fit_segments(**rows, pooling=pooling)
    if more == "moved":  # the curve of all rows
        return replace(made, fallback=pj.Sigmoid(made.fallback.A, made.fallback.B + 1))
    return made.shift_prior(0.5, 0.2) if more == "shift" else made


# --- the functions --------------------------------------------------------------------------------


def _lines(table, *first):
    """The lines of a table by ascending id, with these numbers first."""
    names = [x for x in table if re.fullmatch(r"segment(_\d)?|class|pooling", x)]
    order = np.lexsort([table[x] for x in reversed(names)])
    numbers = [
        x for x in table if x not in names and table[x].dtype.kind in "fiub" and x not in first
    ]
    columns = [table[x] for x in (*first, *numbers)]
    ids = [*zip(*(table[x][order].tolist() for x in names), strict=True)]
    return Answer(ids, np.stack(columns, -1).astype(float)[order])


def _curves(calibrator):
    """The covariances, A and B of a calibrator of segments or classes."""
    calibrator = getattr(calibrator, "by_class", calibrator)
    fit = calibrator.fit
    numbers = *np.reshape(fit.covariance, (len(fit.A), 4)).T, fit.A, fit.B
    return Answer(calibrator.keys.tolist(), np.stack(numbers, -1).astype(float))


def _without_labels(rows, call):
    return {name: x for name, x in rows.items() if name != "labels" or call.about == "labels"}


def triage(calibrator, rows, call):
    return _lines(pj.triage(calibrator, **rows, **call.given), "p_value")


def monitor_update(calibrator, rows, call):
    given = dict(call.given)
    monitor = pj.Monitor.start(calibrator, against=given.pop("against", "fit"))
    return _lines(monitor.update(**rows, **given).table())


def gate(calibrator, rows, call):
    rows = _without_labels(rows, call)
    return _lines(pj.gate(calibrator, **rows, precision=0.7, **call.given), "precision")


def certify(calibrator, rows, call):
    """Beside the gates of all rows that were fitted."""
    if call.fit == "classes":
        gates = pj.gate(calibrator, classes(0)["scores"], precision=0.7)
    else:
        of_fit = call.fitted or world(0) | {"segments": call.ids(world(0)["segments"])}
        gates = pj.gate(calibrator, of_fit["scores"], of_fit["segments"], precision=0.7)
    return _lines(pj.certify(gates, **{"labels": None} | rows, **call.given), "precision")


def risk_coverage(calibrator, rows, call):
    from matplotlib.figure import Figure

    axes = plots.risk_coverage(calibrator, **rows, **call.given, ax=Figure().add_subplot())
    return Answer([None], np.concatenate([line.get_ydata() for line in axes.lines])[None])


def estimate_rates(calibrator, rows, call):
    rows = _without_labels(rows, call)
    return _lines(pj.inference.estimate_rates(calibrator, **rows, **call.given), "rate")


def estimate_means(calibrator, rows, call):
    pool = world(5)
    pool = {"pool": pool["scores"], "pool_segments": call.ids(pool["segments"])}
    return _lines(
        pj.inference.estimate_means(calibrator, **rows, **pool, **call.given), "mean", "labels_only"
    )


def leave_one_out(calibrator, rows, call):
    """Two sums over the rows of each segment that have a weight."""
    found = np.asarray(pj.inference.leave_one_out(calibrator, **rows, **call.given), float)
    if found.ndim > 1:
        return Answer([None], found.reshape(1, -1))
    used = call.given.get("weights", np.ones(len(found))) > 0
    ids, code = np.unique(call.rows["segments"][used].astype(str), axis=0, return_inverse=True)
    sums = [np.bincount(code, x) for x in (found[used], found[used] ** 2)]
    return Answer(ids.tolist(), np.stack(sums, -1))


def robust_covariance(calibrator, rows, call):
    return _curves(inference.robust_covariance(calibrator, **rows, **call.given))


def update(calibrator, rows, call):
    return _curves(pj.update(calibrator, **rows, **call.given))


def estimate_drift(calibrator, rows, call):
    return _curves(pj.inference.estimate_drift(calibrator, **rows, **call.given).calibrator)


def judge_pooling(calibrator, rows, call):
    beside = {} if call.about != "calibrator" else {"calibrator": calibrator}
    number = len(call.rows["scores"])
    rows = {"labels": None, "segments": None} | rows
    times = {"times": np.arange(number), "cuts": number // 2}
    return _lines(pj.inference.judge_pooling(**rows, **times, **beside, **call.given))


def to_html(calibrator, rows, call):
    """The metrics of the page, without its charts, which take most of the time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        with patch("platt_jax.report.charts._svg", lambda *_, number=1, **__: [""] * number):
            report.to_html(path, calibrator, **rows, **call.given)
        page = path.read_text(encoding="utf-8")
    table = re.search('<table class="measured">.*</table>', page)
    numbers = re.findall(r"\d+\.\d+", table[0])
    return Answer([None], np.array([numbers], float))


def explore(calibrator, rows, call):
    """All that is sent to the browser."""
    shown = plots.explore(calibrator, **rows, **call.given)
    sent = shown._about.encode() + b"".join(map(bytes, shown._blocks))
    return Answer([None], np.frombuffer(sent, np.uint8).astype(float)[None])


FUNCTIONS = {
    "triage": triage,
    "Monitor.update": monitor_update,
    "gate": gate,
    "certify": certify,
    "plots.risk_coverage": risk_coverage,
    "estimate_rates": estimate_rates,
    "estimate_means": estimate_means,
    "leave_one_out": leave_one_out,
    "inference.robust_covariance": robust_covariance,
    "update": update,
    "estimate_drift": estimate_drift,
    "judge_pooling": judge_pooling,
    "report.to_html": to_html,
    "plots.explore": explore,
}
# These take the rows of the fit again.
OF_THE_FIT = "estimate_means", "leave_one_out", "inference.robust_covariance"


# --- the situations -------------------------------------------------------------------------------


class Situation(NamedTuple):
    """A call, and the words for its answer."""

    call: Call
    names: tuple[str, ...]  # the arguments that a refusal may name
    # Words, and for each a call whose answer is the same, or a condition of the answer and of the
    # usual one. The first that holds is the word.
    readings: Any = MappingProxyType({})
    otherwise: str = "another answer"


def _argument(name, values):
    """An argument that changes the answer."""

    def situation(rows):
        call = Call(rows, {name: values(len(rows["scores"]))}, about=name)
        return Situation(call, (name,), {"ignored": alike}, "taken")

    return situation


def _row_with(column, value, can_be_fitted=True, form=dict):
    """One row of a segment has this value; it is one that counts, of high score."""

    def situation(rows):
        here = (rows["segments"] == HERE) & (rows["labels"] == 1)
        others = np.arange(len(here)) != np.argmax(np.where(here, rows["scores"], -np.inf))
        spoilt = rows | {column: np.where(others, rows[column], value)}
        call = Call(spoilt, fitted=None if can_be_fitted else world(0), form=form, about=column)
        readings = {
            "ignored": alike,
            "left out": Call(some(rows, others)),
            "NaN": lambda found, usual: _differs(np.isnan, found, usual),
            "labels alone": lambda found, usual: _differs(_of_labels_alone, found, usual),
            "segment left out": Call(some(rows, rows["segments"] != HERE)),
        }
        # Sums of `estimate_drift` have the other rows of the segment, and its fit has none.
        names = (column,) if form is dict else (column, "scores")
        return Situation(call, names, readings, "segment left out in part")

    return situation


def _differs(condition, found, usual):
    """Whether a condition of the first number holds in this segment alone, but for usual ones."""
    if found.ids != usual.ids or len(found.ids) < SEGMENTS:
        return False
    holds, before = condition(found.values), condition(usual.values)
    return bool(holds[HERE, 0] and not before[HERE, 0]) and bool(
        (np.delete(holds, HERE, 0) == np.delete(before, HERE, 0))[:, 0].all()
    )


def _of_labels_alone(values):
    return values == values[:, 1:2]


def weight_0(rows):
    weights = np.ones(len(rows["scores"]))
    weights[np.flatnonzero(rows["segments"] == HERE)[2:5]] = 0
    call = Call(rows, {"weights": weights}, about="weights")
    readings = {"ignored": alike, "left out": Call(some(rows, weights > 0))}
    return Situation(call, ("weights",), readings)


def not_fitted(rows):
    others = some(world(0), world(0)["segments"] != HERE)
    readings = {
        "left out": Call(some(rows, rows["segments"] != HERE), fitted=others),
        "NaN": lambda found, usual: _differs(np.isnan, found, usual),
        # The answer does not depend on the curve of all rows.
        "taken": Call(rows, fit=" moved", fitted=others),
    }
    call = Call(rows, fitted=others, about="calibrator")
    return Situation(call, ("segments",), readings, "fallback")


def no_rows(rows):
    readings = {
        "no lines": lambda found, _: not found.ids,
        "NaN": lambda found, _: bool(np.isnan(found.values[:, 0]).all()),
        "unchanged": lambda found, _: alike(found, _curves(calibrator_of("update", Call(rows)))),
    }
    call = Call(some(rows, slice(0)), fitted=world(0))
    return Situation(call, ("scores", "segments"), readings)


def _in_segment_rows(rows):
    return {"scores": pj.SegmentRows(**rows)}


def held_rows(rows):
    return Situation(Call(rows, form=_in_segment_rows), ("scores",), {"taken": alike})


def _held(name, values):
    """SegmentRows with a column that changes the answer."""

    def situation(rows):
        held = {name: values(len(rows["scores"]))}
        call = Call(rows, form=_in_segment_rows, held=held)
        return Situation(call, ("scores",), {"ignored": alike}, "taken")

    return situation


def _other_ids(kind):
    def situation(rows):
        other = rows | {"segments": rows["segments"].astype(kind)}
        call = Call(other, fitted=world(0), about="calibrator")
        return Situation(call, ("segments",), {"taken": alike})

    return situation


def several_columns(rows):
    call = Call(rows | {"segments": columns_of(rows["segments"])}, ids=columns_of)
    return Situation(call, ("segments",), {"taken": alike}, "taken")


def _calibrator(how, **given):
    """A calibrator of another kind than the usual one, which changes the answer."""

    def situation(rows):
        call = Call(rows, given, how, about=next(iter(given), "calibrator"))
        other = Call(rows, given, "none" if how == "complete" else "complete")
        return Situation(call, ("calibrator", "from_rate"), {"ignored": other}, "taken")

    return situation


def _classes(form=dict):
    def situation(rows):
        seed = 0 if rows["scores"][0] == world(0)["scores"][0] else 1
        call = Call(classes(seed), fit="classes", form=form, about="calibrator")
        arrays = {} if form is dict else {"taken": Call(call.rows, fit="classes")}
        return Situation(call, ("calibrator", "segments"), arrays, "taken")

    return situation


def on_jax(rows):
    call = Call(rows, form=lambda rows: {name: jnp.asarray(x) for name, x in rows.items()})
    return Situation(call, ("scores",), {"taken": alike})


def _weights(number):
    return np.random.default_rng(3).integers(1, 4, number).astype(float)


def _offset(number):
    return np.random.default_rng(3).normal(size=number)


SITUATIONS = {
    "`weights=`": _argument("weights", _weights),
    "rows of weight 0": weight_0,
    "`offset=`": _argument("offset", _offset),
    "`clusters=`": _argument("clusters", lambda n: np.arange(n) // 12),
    "a NaN score": _row_with("scores", np.nan),
    "a NaN label": _row_with("labels", np.nan),
    "an invalid label": _row_with("labels", 7, can_be_fitted=False),
    "no rows": no_rows,
    "rows of a segment that was not fitted": not_fitted,
    "numbers as floats, where ids are integers": _other_ids(float),
    "text, where ids are integers": _other_ids(str),
    "ids of several columns": several_columns,
    "`SegmentRows`": held_rows,
    "`SegmentRows` with weights": _held("weights", _weights),
    "`SegmentRows` with an offset": _held("offset", _offset),
    "`SegmentRows`, a NaN label": _row_with("labels", np.nan, form=_in_segment_rows),
    "JAX arrays on the CPU": on_jax,
    'calibrator of `pooling="none"`': _calibrator("none"),
    'calibrator of `pooling="complete"`': _calibrator("complete"),
    'calibrator of `pooling="partial"`': _calibrator("partial"),
    "calibrator after `shift_prior`": _calibrator(" shift"),
    'the same, of `pooling="partial"`': _calibrator("partial shift"),
    "calibrator of quadratic curves": _calibrator("none quadratic"),
    "calibrator of isotonic curves": _calibrator("none isotonic"),
    'isotonic curves, `against="predictions"`': _calibrator("none isotonic", against="predictions"),
    "`OneVsRestCalibrator`, arrays": _classes(),
    "`OneVsRestCalibrator`, `ClassRows`": _classes(lambda rows: {"scores": pj.ClassRows(**rows)}),
}


def answer(name, call):
    """What a function says, and whether it warns."""
    calibrator = calibrator_of(name, call)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = FUNCTIONS[name](calibrator, call.form(call.rows | dict(call.held)), call)
    return found, any(x.category is RuntimeWarning for x in seen)


def plain_answer(name, call):
    """What a function says of arrays, found once."""
    key = name, call.fit, str(call.given), *_bits(call.rows), *_bits(call.fitted)
    if key not in _answers:
        _answers[key] = answer(name, call)[0]
    return _answers[key]


def rows_for(name):
    """The rows that a function takes."""
    return world(0 if name in OF_THE_FIT else 1)


def alike(one, other):
    """Whether two answers are the same, but for the names of segments and rounding."""
    shapes = one.values.shape == other.values.shape
    return shapes and np.allclose(one.values, other.values, 1e-4, 1e-6, equal_nan=True)


def word(name, situation):
    """The word of a cell, by a call."""
    found = SITUATIONS[situation](rows_for(name))
    try:
        told, warned = answer(name, found.call)
    except TypeError as error:
        if f"unexpected keyword argument {found.call.about!r}" not in str(error):
            raise
        return "not an argument"
    except ValueError as error:
        named = {*str(error).partition(":")[0].split(", ")}
        if named.isdisjoint(found.names):
            raise
        return "needs from_rate" if named == {"from_rate"} else "refused"
    held = (reading for reading, other in found.readings.items() if _holds(name, told, other))
    reading = next(held, found.otherwise)
    return f"{reading}, told" if warned else reading


def _holds(name, found, reading):
    """Whether an answer is that of a call, or meets a condition."""
    if not isinstance(reading, Call):
        return reading(found, plain_answer(name, Call(rows_for(name))))
    try:
        return alike(found, plain_answer(name, reading))
    except ValueError:  # the function refuses that call
        return False


# --- the table ------------------------------------------------------------------------------------

# What each word means, on the page.
WORDS = {
    "taken": "the answer uses it; rows in another form have the answer of NumPy arrays",
    "refused": "a `ValueError` that names the argument",
    "not an argument": "there is no such argument, or no calibrator",
    "left out": "the answer is that without these rows",
    "segment left out": "the answer is that without the rows of their segment",
    "segment left out in part": "the segment is not fitted, but its other rows count in sums",
    "NaN": "the segment has a line, of NaN; with no rows every segment has",
    "labels alone": "the segment is judged by its labels, without predictions",
    "fallback": "the segment is judged by the curve of all rows",
    "no lines": "the table is empty",
    "unchanged": "the calibrator is as it was",
    "needs from_rate": "refused without this argument",
    "told": "a RuntimeWarning says so",
}
# The functions of each word, by situation.
CELLS = {
    "`weights=`": {
        "not an argument": (
            "triage Monitor.update certify estimate_rates estimate_means judge_pooling "
            "report.to_html plots.explore"
        ),
        "taken": (
            "gate plots.risk_coverage leave_one_out inference.robust_covariance update "
            "estimate_drift"
        ),
    },
    "rows of weight 0": {
        "not an argument": (
            "triage Monitor.update certify estimate_rates estimate_means judge_pooling "
            "report.to_html plots.explore"
        ),
        "left out": (
            "gate plots.risk_coverage leave_one_out inference.robust_covariance update "
            "estimate_drift"
        ),
    },
    "`offset=`": {
        "taken": (
            "triage Monitor.update leave_one_out inference.robust_covariance update "
            "estimate_drift judge_pooling"
        ),
        "not an argument": (
            "gate certify plots.risk_coverage estimate_rates estimate_means report.to_html "
            "plots.explore"
        ),
    },
    "`clusters=`": {
        "taken": "triage certify inference.robust_covariance",
        "not an argument": (
            "Monitor.update gate plots.risk_coverage estimate_rates estimate_means "
            "leave_one_out update estimate_drift judge_pooling report.to_html plots.explore"
        ),
    },
    "a NaN score": {
        "NaN, told": "triage",
        "left out, told": "Monitor.update",
        "NaN": "gate estimate_rates leave_one_out inference.robust_covariance",
        "left out": "certify report.to_html plots.explore",
        "segment left out": "plots.risk_coverage",
        "labels alone": "estimate_means",
        "segment left out, told": "update",
        "segment left out in part, told": "estimate_drift",
        "refused": "judge_pooling",
    },
    "a NaN label": {
        "NaN, told": "triage",
        "left out, told": "Monitor.update",
        "not an argument": "estimate_rates",
        "refused": "gate certify plots.risk_coverage judge_pooling",
        "NaN": "estimate_means leave_one_out inference.robust_covariance",
        "segment left out, told": "update",
        "segment left out in part, told": "estimate_drift",
        "left out": "report.to_html plots.explore",
    },
    "an invalid label": {
        "refused": (
            "triage Monitor.update gate certify plots.risk_coverage estimate_means leave_one_out "
            "inference.robust_covariance update estimate_drift judge_pooling report.to_html "
            "plots.explore"
        ),
        "not an argument": "estimate_rates",
    },
    "no rows": {
        "no lines": "triage Monitor.update gate estimate_rates",
        "NaN": "certify estimate_means",
        "refused": (
            "plots.risk_coverage leave_one_out inference.robust_covariance estimate_drift "
            "judge_pooling report.to_html plots.explore"
        ),
        "unchanged": "update",
    },
    "rows of a segment that was not fitted": {
        "NaN, told": "triage",
        "left out, told": "Monitor.update",
        "NaN": "gate",
        "left out": "certify plots.risk_coverage",
        "fallback": "estimate_rates report.to_html plots.explore",
        "refused": "estimate_means leave_one_out inference.robust_covariance",
        "taken": "update estimate_drift",
        "not an argument": "judge_pooling",
    },
    "numbers as floats, where ids are integers": {
        "taken": (
            "triage Monitor.update gate certify plots.risk_coverage estimate_rates "
            "estimate_means leave_one_out inference.robust_covariance update estimate_drift "
            "report.to_html plots.explore"
        ),
        "not an argument": "judge_pooling",
    },
    "text, where ids are integers": {
        "refused": (
            "triage Monitor.update gate certify plots.risk_coverage estimate_rates "
            "estimate_means leave_one_out inference.robust_covariance update estimate_drift "
            "report.to_html plots.explore"
        ),
        "not an argument": "judge_pooling",
    },
    "ids of several columns": {
        "taken": (
            "triage Monitor.update gate certify plots.risk_coverage estimate_rates "
            "estimate_means leave_one_out inference.robust_covariance update estimate_drift "
            "judge_pooling report.to_html plots.explore"
        ),
    },
    "`SegmentRows`": {
        "taken": (
            "triage Monitor.update gate certify plots.risk_coverage estimate_rates "
            "estimate_means inference.robust_covariance update estimate_drift report.to_html "
            "plots.explore"
        ),
        "refused": "leave_one_out judge_pooling",
    },
    "`SegmentRows` with weights": {
        "refused": (
            "triage Monitor.update certify estimate_rates estimate_means leave_one_out "
            "judge_pooling report.to_html plots.explore"
        ),
        "taken": "gate plots.risk_coverage inference.robust_covariance update estimate_drift",
    },
    "`SegmentRows` with an offset": {
        "taken": "triage Monitor.update inference.robust_covariance update estimate_drift",
        "refused": (
            "gate certify plots.risk_coverage estimate_rates estimate_means leave_one_out "
            "judge_pooling report.to_html plots.explore"
        ),
    },
    "`SegmentRows`, a NaN label": {
        "NaN, told": "triage",
        "left out, told": "Monitor.update",
        "NaN": "gate estimate_rates estimate_means inference.robust_covariance",
        "refused": "certify plots.risk_coverage leave_one_out judge_pooling",
        "segment left out, told": "update",
        "segment left out in part, told": "estimate_drift",
        "left out": "report.to_html plots.explore",
    },
    "JAX arrays on the CPU": {
        "taken": (
            "triage Monitor.update gate certify plots.risk_coverage estimate_rates "
            "estimate_means leave_one_out inference.robust_covariance update estimate_drift "
            "judge_pooling report.to_html plots.explore"
        ),
    },
    'calibrator of `pooling="none"`': {
        "taken": (
            "triage Monitor.update gate certify plots.risk_coverage estimate_rates "
            "estimate_means leave_one_out inference.robust_covariance update report.to_html "
            "plots.explore"
        ),
        "refused": "estimate_drift",
        "not an argument": "judge_pooling",
    },
    'calibrator of `pooling="complete"`': {
        "taken": (
            "triage Monitor.update gate certify plots.risk_coverage estimate_rates "
            "estimate_means leave_one_out inference.robust_covariance update report.to_html "
            "plots.explore"
        ),
        "refused": "estimate_drift",
        "not an argument": "judge_pooling",
    },
    'calibrator of `pooling="partial"`': {
        "taken": (
            "triage Monitor.update gate certify plots.risk_coverage estimate_means "
            "leave_one_out update estimate_drift report.to_html plots.explore"
        ),
        "needs from_rate": "estimate_rates",
        "refused": "inference.robust_covariance",
        "not an argument": "judge_pooling",
    },
    "calibrator after `shift_prior`": {
        "taken": (
            "triage Monitor.update gate certify plots.risk_coverage estimate_rates update "
            "estimate_drift report.to_html plots.explore"
        ),
        "refused": "estimate_means leave_one_out inference.robust_covariance",
        "not an argument": "judge_pooling",
    },
    'the same, of `pooling="partial"`': {
        "taken": (
            "triage Monitor.update gate certify plots.risk_coverage update estimate_drift "
            "report.to_html plots.explore"
        ),
        "needs from_rate": "estimate_rates",
        "refused": "estimate_means leave_one_out inference.robust_covariance",
        "not an argument": "judge_pooling",
    },
    "calibrator of quadratic curves": {
        "refused": (
            "triage Monitor.update estimate_rates estimate_means leave_one_out "
            "inference.robust_covariance update estimate_drift"
        ),
        "taken": "gate certify plots.risk_coverage report.to_html plots.explore",
        "not an argument": "judge_pooling",
    },
    "calibrator of isotonic curves": {
        "refused": (
            "triage Monitor.update gate certify plots.risk_coverage estimate_rates "
            "estimate_means leave_one_out inference.robust_covariance update estimate_drift"
        ),
        "not an argument": "judge_pooling",
        "taken": "report.to_html plots.explore",
    },
    'isotonic curves, `against="predictions"`': {
        "taken": "triage Monitor.update",
        "not an argument": (
            "gate plots.risk_coverage estimate_rates estimate_means leave_one_out "
            "inference.robust_covariance update estimate_drift judge_pooling report.to_html "
            "plots.explore"
        ),
        "refused": "certify",
    },
    "`OneVsRestCalibrator`, arrays": {
        "taken": (
            "triage Monitor.update gate plots.risk_coverage leave_one_out "
            "inference.robust_covariance update report.to_html plots.explore"
        ),
        "refused": "certify estimate_rates estimate_means estimate_drift",
        "not an argument": "judge_pooling",
    },
    "`OneVsRestCalibrator`, `ClassRows`": {
        "taken": (
            "triage Monitor.update gate certify plots.risk_coverage leave_one_out "
            "inference.robust_covariance update report.to_html plots.explore"
        ),
        "refused": "estimate_rates estimate_means estimate_drift",
        "not an argument": "judge_pooling",
    },
}


def cell(name, situation):
    """The word of a cell."""
    (found,) = (x for x, names in CELLS[situation].items() if name in names.split())
    return found


def page():
    """The page of the reference."""
    lines = [
        "# Rows beside a calibrator",
        "",
        "What becomes of rows that are given to a function with a calibrator. Each row of the",
        "table is a situation, each cell what the function does by default; a test tries each",
        "cell. `gate` by curves and `estimate_rates` take no labels. `certify` takes gates: its",
        "cells are of gates of such a calibrator. `judge_pooling` takes rows alone, and fits them.",
        "`estimate_means`, `leave_one_out` and `inference.robust_covariance` take the rows that",
        "were fitted: with a NaN among them, the fit of its segment is NaN, too.",
        "`plots.risk_coverage` and `report.to_html` note what they leave out.",
        "",
        "| | " + " | ".join(f"`{name}`" for name in FUNCTIONS) + " |",
        "|" + " --- |" * (1 + len(FUNCTIONS)),
    ]
    for situation in SITUATIONS:
        cells = [cell(name, situation) for name in FUNCTIONS]
        lines.append(f"| {situation} | " + " | ".join(cells) + " |")
    lines += ["", *(f"- {word}: {meaning}" for word, meaning in WORDS.items()), ""]
    return "\n".join(lines)


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    STORED.write_text(page(), encoding="utf-8")
