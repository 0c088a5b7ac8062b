"""The page's table of all problems, worst first."""

import base64
import json
import math
import zlib
from typing import Any

import numpy as np

from platt_jax.ids.factorize import Integers
from platt_jax.plots import names
from platt_jax.report.dots import dots
from platt_jax.report.rows import Judged, Predicted
from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.tables import Table, flag_names
from platt_jax.status import Status

# Maximum number of lines; more would make the page slow to open and to send.
MOST = 10_000
_LONGEST_NAME = 120
# Status of a segment that was not fitted.
UNSEEN = "UNSEEN"

COLUMNS = {
    "segment": "The id; … where it is longer than 120 characters.",
    "curve": (
        "The segment's sigmoid, with the observed rates of up to three bins of its rows. All have "
        "the same axes, with the middle 98 % of the scores."
    ),
    "rows": "The number of rows of the report.",
    "positives": "How many of them are of class 1.",
    "expected": "The sum of the probabilities predicted for them.",
    "O/E": "Observed over expected: positives divided by expected.",
    "excess": "Positives minus expected.",
    "q-value": (
        "The smallest false discovery rate at which triage rejects the predictions for these rows."
    ),
    "A": "The parameter A of P(y=1) = 1 / (1 + exp(A f + B)), where f is the score.",
    "B": "The parameter B of the same formula.",
    "fitted rows": "The (weighted) number of rows of the fit.",
    "status": "How the fit ended; UNSEEN where the segment was not fitted.",
    "flags": "What is noteworthy about the rows of the fit.",
    "shrinkage": "From 0, the segment's own rows alone, to 1, the population alone.",
}


def columns(calibrator: SegmentCalibrator) -> list[str]:
    """The names of the table's columns."""
    return [name for name in COLUMNS if name != "shrinkage" or calibrator.population is not None]


def total(calibrator: SegmentCalibrator, judged: Judged) -> int:
    """The number of segments, fitted or in the rows."""
    return len(calibrator.keys) + int(np.count_nonzero(judged.place < 0))


def window(predicted: Predicted) -> list[float]:
    """The axes of the curves: the ends of the scores, and the highest probability."""
    usable = predicted.usable
    if not usable.any():
        return [-1, 1, 1]
    low, high = np.quantile(predicted.scores[usable], [0.01, 0.99])
    high = high if high > low else low + 1
    rare = np.quantile(predicted.after[usable], 0.99)
    return [float(f"{x:.4g}") for x in (low, high, min(1, 2 * rare))]


def lines(
    calibrator: SegmentCalibrator, predicted: Predicted, judged: Judged
) -> list[dict[str, Any]]:
    """A line for each of the worst segments, by names of columns.

    Failed fits come first, then the segments of the rows in the order of triage, and last segments
    without rows, flagged ones first. What is not known is None.
    """
    order, place = _worst_first(calibrator, judged)
    order = order[:MOST]
    usable = predicted.usable
    scores, labels = predicted.scores[usable], predicted.labels[usable]
    rates = dots(scores, labels, predicted.segments[usable], len(judged.keys))
    made = []
    for i in order.tolist():
        line = _of_fit(calibrator, int(place[i]))
        if i < len(judged.keys):
            line |= {"segment": name(judged.keys[i]), "curve": rates[i]} | _of_rows(judged.table, i)
        else:
            nothing = {"rows": 0, "positives": 0, "expected": 0, "excess": 0}
            line |= {"segment": name(calibrator.keys[place[i]]), "curve": []} | nothing
        made.append({column: line.get(column) for column in columns(calibrator)})
    return made


def others(calibrator: SegmentCalibrator, judged: Judged) -> str:
    """The ids of the segments without a line, for searches: JSON, deflated, as base64.

    They are sorted, which makes them small.
    """
    order, place = _worst_first(calibrator, judged)
    number = len(judged.keys)
    rest = order[MOST:]
    keys = [judged.keys[i] if i < number else calibrator.keys[place[i]] for i in rest.tolist()]
    texts = json.dumps(sorted(map(name, keys)), separators=(",", ":"))
    return base64.b64encode(zlib.compress(texts.encode(), 9)).decode() if keys else ""


def _worst_first(calibrator: SegmentCalibrator, judged: Judged) -> tuple[Integers, Integers]:
    """The order of the lines, and each segment's place among the fits, -1 if it was not fitted.

    Segments are numbered from those judged on; fitted ones without rows come after these.
    """
    fit, number = calibrator.fit, len(judged.keys)
    without = np.setdiff1d(np.arange(len(calibrator.keys)), judged.place)
    place = np.concatenate([judged.place, without])
    seen = place >= 0
    failed = seen & (np.append(fit.status, Status.CONVERGED)[place] != Status.CONVERGED)
    rank = np.minimum(np.arange(len(place)), number)
    flags = np.where(seen, np.append(fit.flags, 0)[place], 0)
    return np.lexsort((-flags, rank, ~failed)), place


def _of_fit(calibrator: SegmentCalibrator, place: int) -> dict[str, Any]:
    if place < 0:
        return {"status": UNSEEN, "flags": ""}
    fit = calibrator.fit
    line = {
        "status": Status(int(fit.status[place])).name,
        "flags": flag_names(int(fit.flags[place])).replace("|", ", "),
        "fitted rows": _rounded(float(fit.n_pos[place]) + float(fit.n_neg[place])),
        "A": _rounded(fit.A[place]),
        "B": _rounded(fit.B[place]),
    }
    if calibrator.population is not None:
        line["shrinkage"] = _rounded(calibrator.population.shrinkage[place])
    return line


def _of_rows(table: Table, i: int) -> dict[str, Any]:
    rows, positives, expected, q = (
        table[x][i] for x in ("rows", "positives", "expected", "q_value")
    )
    return {
        "rows": _rounded(rows),
        "positives": _rounded(positives),
        "expected": _rounded(expected),
        "O/E": _rounded(positives / expected) if expected > 0 else None,
        "excess": _rounded(positives - expected),
        "q-value": _rounded(q),
    }


def name(key: Any) -> str:
    """A segment's id as text, shortened if it is very long."""
    text = names.text(key)
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"


def as_json(values: Any) -> str:
    """JSON for a script element, with < escaped because it could end the element."""
    return json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _rounded(value: Any) -> float | None:
    """A number rounded to four digits; None if it is not finite."""
    value = float(value)
    if not math.isfinite(value):
        return None
    if value.is_integer() and abs(value) < 2**53:
        return int(value)
    return float(f"{value:.4g}")
