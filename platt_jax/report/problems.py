"""The page's table of all problems, worst first."""

import json
import math
from typing import Any

import numpy as np

from platt_jax.report.rows import Judged
from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.tables import flag_names
from platt_jax.status import Status

# Maximum number of lines; more would make the page slow to open and to send.
MOST = 10_000
_LONGEST_NAME = 120
# Status of a segment that was not fitted.
UNSEEN = "UNSEEN"

COLUMNS = {
    "segment": "The id; … where it is longer than 120 characters.",
    "status": "How the fit ended; UNSEEN where the segment was not fitted.",
    "flags": "What is noteworthy about the rows of the fit.",
    "fitted rows": "The (weighted) number of rows of the fit.",
    "A": "The parameter A of P(y=1) = 1 / (1 + exp(A f + B)), where f is the score.",
    "B": "The parameter B of the same formula.",
    "rows": "The number of rows of the report.",
    "positives": "How many of them are of class 1.",
    "expected": "The sum of the probabilities predicted for them.",
    "q-value": (
        "The smallest false discovery rate at which triage rejects the predictions for these rows."
    ),
    "shrinkage": "From 0, the segment's own rows alone, to 1, the population alone.",
}


def columns(calibrator: SegmentCalibrator) -> list[str]:
    """The names of the table's columns."""
    return [name for name in COLUMNS if name != "shrinkage" or calibrator.population is not None]


def total(calibrator: SegmentCalibrator, judged: Judged) -> int:
    """The number of segments, fitted or in the rows."""
    return len(calibrator.keys) + int(np.count_nonzero(judged.place < 0))


def lines(calibrator: SegmentCalibrator, judged: Judged) -> list[list[Any]]:
    """A line for each of the worst segments, with the values of `columns`.

    Failed fits come first, then the segments of the rows in the order of triage, and last segments
    without rows, flagged ones first.
    """
    fit, number = calibrator.fit, len(judged.keys)
    without = np.setdiff1d(np.arange(len(calibrator.keys)), judged.place)
    place = np.concatenate([judged.place, without])
    seen = place >= 0
    failed = seen & (np.append(fit.status, Status.CONVERGED)[place] != Status.CONVERGED)
    rank = np.minimum(np.arange(len(place)), number)
    flags = np.where(seen, np.append(fit.flags, 0)[place], 0)
    worst = np.lexsort((-flags, rank, ~failed))[:MOST]
    fitted_rows = np.asarray(fit.n_pos, float) + fit.n_neg
    of_rows = [judged.table[name] for name in ("rows", "positives", "expected", "q_value")]
    of_fit = [fitted_rows, fit.A, fit.B]
    made: list[list[Any]] = []
    for i in worst.tolist():
        k = place[i]
        line: list[Any] = [name(judged.keys[i] if i < number else calibrator.keys[k])]
        if k < 0:
            line += [UNSEEN, "", None, None, None]
        else:
            flagged = flag_names(int(fit.flags[k])).replace("|", ", ")
            line += [Status(int(fit.status[k])).name, flagged]
            line += [_rounded(column[k]) for column in of_fit]
        line += [_rounded(column[i]) for column in of_rows] if i < number else [0, 0, 0, None]
        if calibrator.population is not None:
            line.append(None if k < 0 else _rounded(calibrator.population.shrinkage[k]))
        made.append(line)
    return made


def name(key: Any) -> str:
    """A segment's id as text, shortened if it is very long."""
    parts = key.tolist() if isinstance(key, np.void) else key
    text = ", ".join(map(str, parts)) if isinstance(parts, tuple) else str(key)
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
