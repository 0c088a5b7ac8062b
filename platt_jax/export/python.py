"""Calibrators as modules of plain Python."""

import datetime as dt
from typing import Any

from platt_jax.export.curves import (
    Exportable,
    ExportedCurves,
    PieceTable,
    curves,
    piece_table,
)
from platt_jax.results.averages import nodes
from platt_jax.results.pieces import polynomial
from platt_jax.results.probabilities import LEAST
from platt_jax.version import __version__

_HEAD = '''"""P(y=1) of scores, by {what} that platt_jax {version} fitted."""

{imports}import datetime
import math

nan, inf = math.nan, math.inf

'''

_SIGMOID = """
def sigmoid(z):
    \"\"\"1 / (1 + exp(z)), which neither overflows nor rounds small probabilities to 0.\"\"\"
    if z >= 0:
        e = math.exp(-z)
        return e / (1 + e)
    return 1 / (1 + math.exp(z)) if z < 0 else nan
"""

_ONE = '''
A, B = {fallback}


def predict_proba(score):
    """P(y=1) of a score; NaN for NaN."""
    return sigmoid(A * float(score) + B)
'''

_CURVES = """
# ({names}) of each segment, and of all others.
CURVES = {{
{curves}}}
FALLBACK = {fallback}
"""

_NESTED_CURVES = '''
# ({names}) of each segment and of each first part of one, and of all others.
CURVES = {{
{curves}}}
FALLBACK = {fallback}


def curve(segment):
    """The curve of a segment, or else of the longest part of it that is known."""
    parts = (segment[:length] for length in range(len(segment), 0, -1))
    return next((CURVES[part] for part in parts if part in CURVES), FALLBACK)
'''

_CROSSED_CURVES = '''
# ({names}) of each segment.
CURVES = {{
{curves}}}
# All others have the sum of the mean and of an effect for each column: of a value or of others.
MEAN = {root}
EFFECTS = [
{effects}]


def curve(segment):
    """The curve of a segment; of others the sum of what is known."""
    if segment in CURVES:
        return CURVES[segment]
    each = zip(segment, EFFECTS, strict=True)
    effects = [values.get(value, others) for value, (values, others) in each]
    return [sum(numbers) for numbers in zip(MEAN, *effects, strict=True)]
'''

_BY_SEGMENT = '''

def predict_proba(score, segment):
    """P(y=1) of a score in a segment{tuple_note}; NaN for NaN, and without a curve."""
    score = float(score)
    {names} = {curve}
'''

_OF_ONE = "    return sigmoid(A * score + B)\n"

_MEAN = """    z, variance = A * score + B, score * (AA * score + 2 * AB) + BB
    deviation = math.sqrt(variance) if variance > 0 else 0.0
    return sum(weight * sigmoid(z + node * deviation) for node, weight in NODES)
"""

_NODES = """
# The mean over a normal distribution: how many standard deviations off, and the weight.
NODES = {nodes}
"""

_PIECES = '''
# Of each segment, and of all others: the scores at which its pieces end, and the pieces:
# ({names}).
CURVES = {{
{curves}}}
FALLBACK = {fallback}


def predict_proba(score, segment):
    """P(y=1) of a score in a segment{tuple_note}; NaN for NaN, and without a curve."""
    score = float(score)
    if score != score:
        return nan
    ends, pieces = CURVES.get(segment, FALLBACK)
    score = max(-1e300, min(score, 1e300))
    {names} = pieces[bisect.bisect_right(ends, score)]
    value = {value}
{result}'''

_BEND = " + bend * math.log1p(math.exp(-abs(score)))"

_FROM_LOG_ODDS = "    {if_}return sigmoid(-value)\n"

_FROM_PROBABILITY = "    return value\n"

_WITH_ODDS = """    p = max({least}, min(value, 1 - {least}))
    return value if value != value else p * odds / (p * odds + (1 - p))
"""

_TYPES = (str, bytes, bool, int, float, dt.date, dt.datetime)


def to_python(calibrator: Exportable) -> str:
    """A calibrator as the text of a Python module that needs only Python.

    The module's function is `predict_proba(score, segment)`, or `predict_proba(score)` for one
    sigmoid. It takes one score, any number that `float` takes, and returns one probability, equal
    to `predict_proba` here within rounding. With a population the error is at most 1e-7 where the
    standard deviation of the log-odds is up to 2, 6e-6 up to 3, and 5e-4 up to 5. Unlike
    `predict_proba` here, it is NaN for an infinite score where A is 0, and with a population for
    scores whose squares overflow.

    Args:
        calibrator: a SegmentCalibrator with any curves, a Sigmoid or a Fit of one problem.

    Returns:
        The text. Segments of several columns are tuples. With levels, a column of a segment may
        have any other value, such as None, too.

    Raises:
        ValueError: calibrator is not as above, or has segments that are not text, numbers, dates or
            times without a time zone.

    Example:
        >>> from platt_jax import Sigmoid
        >>> module = {}
        >>> exec(to_python(Sigmoid(A=-2.0, B=1.0)), module)
        >>> round(module["predict_proba"](0.5), 3)
        0.5
    """
    export = curves(calibrator, any_curve=True)
    if export.pieces is not None:
        return _by_pieces(export, piece_table(export, export.pieces))
    head = _HEAD.format(version=__version__, what="sigmoids", imports="") + _SIGMOID
    if export.segments is None:
        return head + _ONE.format(fallback=export.fallback)
    names = ", ".join(export.names)
    text = _curves(export, names) + _BY_SEGMENT.format(
        names=names,
        tuple_note=_tuple_note(export),
        curve="curve(segment)" if export.levels else "CURVES.get(segment, FALLBACK)",
    )
    if not export.averaged:
        return head + text + _OF_ONE
    return head + _NODES.format(nodes=nodes()) + text + _MEAN


def _tuple_note(found: ExportedCurves) -> str:
    return ", a tuple of its columns" if len(found.types) > 1 else ""


def _by_pieces(found: ExportedCurves, table: PieceTable) -> str:
    result = _FROM_LOG_ODDS.format(if_="if is_log_odds:\n        " if table.mixed else "")
    result *= table.has_log_odds
    if table.mixed or not table.has_log_odds:
        result += _WITH_ODDS.format(least=LEAST) if table.shifted else _FROM_PROBABILITY
    head = _HEAD.format(version=__version__, what="curves", imports="import bisect\n")
    return (
        head
        + _SIGMOID * table.has_log_odds
        + _PIECES.format(
            names=", ".join(table.names) + "," * (len(table.names) == 1),
            curves=_lines(found.segments or [], table.curves),
            fallback=table.fallback,
            tuple_note=_tuple_note(found),
            value=polynomial({name: name for name in table.numbers}, "score")
            + _BEND * ("bend" in table.numbers),
            result=result,
        )
    )


def _curves(found: ExportedCurves, names: str) -> str:
    """The part of the module that finds the parameters of a segment."""
    segment_lines = _lines(found.segments or [], found.parameters)
    if not found.crossed:
        part_lines = (_lines(level.values, level.parameters) for level in reversed(found.levels))
        text = _NESTED_CURVES if found.levels else _CURVES
        curves = "".join([segment_lines, *part_lines])
        return text.format(names=names, curves=curves, fallback=found.fallback)
    effects = "".join(
        "    ({\n"
        + _lines([x for (x,) in level.values], level.parameters, 8)
        + f"    }}, {level.unseen}),\n"
        for level in found.levels
    )
    return _CROSSED_CURVES.format(
        names=names, curves=segment_lines, root=found.root, effects=effects
    )


def _lines(keys: list[Any], parameters: list[tuple[Any, ...]], indent: int = 4) -> str:
    pairs = zip(map(_text, keys), parameters, strict=True)
    return "".join(f"{' ' * indent}{key}: {numbers!r},\n" for key, numbers in pairs)


def _text(segment: Any) -> str:
    for part in segment if isinstance(segment, tuple) else (segment,):
        if type(part) not in _TYPES or getattr(part, "tzinfo", None) is not None:
            raise ValueError(
                "segments: expected text, numbers, dates or times without a time zone, got "
                f"{part!r}"
            )
    return ascii(segment)
