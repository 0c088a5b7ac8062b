"""Calibrators as ES modules of plain JavaScript."""

import datetime as dt
import json
import math
from itertools import chain
from typing import Any

from platt_jax.export.curves import (
    Exportable,
    ExportedCurves,
    PieceTable,
    column_types,
    curves,
    piece_table,
)
from platt_jax.results.averages import nodes
from platt_jax.results.pieces import polynomial
from platt_jax.results.probabilities import LEAST
from platt_jax.version import __version__

_HEAD = """// P(y=1) of scores, by {what} that platt_jax {version} fitted.

function refused(name, expected, value) {{
  return new TypeError(`${{name}}: expected ${{expected}}, got ${{typeof value}} ${{value}}`);
}}

function number(score) {{
  if (typeof score !== "number") throw refused("score", "a number", score);
  return score;
}}
"""

_SIGMOID = """
/** 1 / (1 + exp(z)), which neither overflows nor rounds small probabilities to 0. */
function sigmoid(z) {
  if (z < 0) return 1 / (1 + Math.exp(z));
  const e = Math.exp(-z);
  return e / (1 + e);
}
"""

_ONE = """
const [A, B] = {fallback};

/** P(y=1) of a score; NaN for NaN. */
export function predict(score) {{
  return sigmoid(A * number(score) + B);
}}
"""

# For each type of ids: the name of a function, which values are ids, and what is expected.
_IDS: dict[type, tuple[str, str, str]] = {
    str: ("text", 'typeof id === "string"', "text"),
    bool: ("truth", 'typeof id === "boolean"', "true or false"),
    float: ("float", 'typeof id === "number"', "a number"),
    int: (
        "integer",
        'Number.isSafeInteger(id) || typeof id === "bigint" || written(id, /^(0|-?[1-9]\\d*)$/)',
        "an integer, beyond 2^53 as BigInt or text",
    ),
    dt.date: ("date", "written(id, /^\\d{4}-\\d\\d-\\d\\d$/)", "a date as text, YYYY-MM-DD"),
    dt.datetime: (
        "time",
        "written(id, /^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.(?!0{6})\\d{6})?$/)",
        "a time as text, YYYY-MM-DDTHH:MM:SS, with six decimals if it has any",
    ),
}

_WRITTEN = """
function written(id, pattern) {
  return typeof id === "string" && pattern.test(id);
}
"""

_ID = """
function {name}(id) {{
  if ({test}) return String(id);
  throw refused("segment", "{expected}", id);
}}
"""

_PLAIN_KEY = """
function key(segment) {{
  return segment === null ? null : {name}(segment);
}}
"""

_KEY_OF_COLUMNS = """
const COLUMNS = [{names}];

function keys(parts) {{
  return parts.map((part, place) => (part === null ? null : COLUMNS[place](part)));
}}

function key(parts) {{
  return JSON.stringify(keys(parts));
}}

function checked(segment) {{
  if (Array.isArray(segment) && segment.length === COLUMNS.length) return segment;
  throw refused("segment", "an array of its columns, " + COLUMNS.length, segment);
}}
"""

_CURVES = """
// {about}
const CURVES = new Map([
{curves}].map(([segment, curve]) => [key(segment), curve]));
const FALLBACK = {fallback};

function curve(segment) {{
  return CURVES.get(key({segment})) ?? FALLBACK;
}}
"""

_NESTED_CURVES = """
// [{names}] of each segment and of each first part of one, and of all others.
const CURVES = new Map([
{curves}].map(([segment, curve]) => [key(segment), curve]));
const FALLBACK = {fallback};

/** The curve of a segment, or else of the longest part of it that is known. */
function curve(segment) {{
  for (let length = checked(segment).length; length > 0; length--) {{
    const found = CURVES.get(key(segment.slice(0, length)));
    if (found !== undefined) return found;
  }}
  return FALLBACK;
}}
"""

_CROSSED_CURVES = """
// [{names}] of each segment.
const CURVES = new Map([
{curves}].map(([segment, curve]) => [key(segment), curve]));
// All others have the sum of the mean and of an effect for each column: of a value or of others.
const MEAN = {root};
const EFFECTS = [
{effects}].map(([values, others], place) => [
  new Map(values.map(([value, effect]) => [COLUMNS[place](value), effect])), others,
]);

/** The curve of a segment; of others the sum of what is known. */
function curve(segment) {{
  const found = CURVES.get(key(checked(segment)));
  if (found !== undefined) return found;
  const effects = keys(segment).map((id, place) => EFFECTS[place][0].get(id) ?? EFFECTS[place][1]);
  return effects.reduce((sum, effect) => sum.map((x, i) => x + effect[i]), MEAN);
}}
"""

_BY_SEGMENT = """
/** P(y=1) of a score in a segment{note}; NaN for NaN, and without a curve. */
export function predict(score, segment) {{
  const [{names}] = curve(segment);
  number(score);
"""

_OF_ONE = """  return sigmoid(A * score + B);
}
"""

_NODES = """
// The mean over a normal distribution: how many standard deviations off, and the weight.
const NODES = {nodes};
"""

_MEAN = """  const z = A * score + B, variance = score * (AA * score + 2 * AB) + BB;
  const deviation = variance > 0 ? Math.sqrt(variance) : 0;
  return NODES.reduce((p, [node, weight]) => p + weight * sigmoid(z + node * deviation), 0);
}
"""

_PIECES = """
/** P(y=1) of a score in a segment{note}; NaN for NaN, and without a curve. */
export function predict(score, segment) {{
  const [ends, pieces] = curve(segment);
  score = Math.max(-1e300, Math.min(number(score), 1e300));
  let first = 0;
  for (let last = ends.length; first < last; ) {{
    const middle = (first + last) >> 1;
    if (score < ends[middle]) last = middle;
    else first = middle + 1;
  }}
  const [{names}] = pieces[first];
  const value = {value};
{result}}}
"""

_BEND = " + bend * Math.log1p(Math.exp(-Math.abs(score)))"

_FROM_LOG_ODDS = "  {if_}return sigmoid(-value);\n"

# A constant piece has a value for NaN, too.
_FROM_PROBABILITY = "  return Number.isNaN(score) ? NaN : value;\n"

_WITH_ODDS = """  if (Number.isNaN(score)) return NaN;
  const p = Math.max({least}, Math.min(value, 1 - {least}));
  return (p * odds) / (p * odds + (1 - p));
"""

# The largest integer that a number of JavaScript has and no other integer rounds to.
_EXACT = 2**53 - 1


def to_javascript(calibrator: Exportable) -> str:
    """A calibrator as the text of an ES module that needs nothing else.

    The module's function is `predict(score, segment)`, or `predict(score)` for one sigmoid. It
    takes one score, a number, and returns one probability, equal to `predict_proba` here within
    rounding, with the exceptions that `to_python` names. Ids are JavaScript's text, numbers,
    and truth values; integers beyond 2^53 are BigInt or text, dates and times text in ISO's
    form, and segments of several columns arrays. An id of another type is a TypeError, and null is
    a segment that was not fitted.

    Args:
        calibrator: a SegmentCalibrator with any curves, a Sigmoid or a Fit of one problem.

    Returns:
        The text, in ASCII.

    Raises:
        ValueError: calibrator is not as above, or has segments that are not text, truth values,
            numbers, dates or times without a time zone, one type a column.

    Example:
        >>> from platt_jax import Sigmoid
        >>> module = to_javascript(Sigmoid(A=-2.0, B=1.0))
        >>> print(module[module.index("const [A, B]") :])
        const [A, B] = [-2.0, 1.0];
        <BLANKLINE>
        /** P(y=1) of a score; NaN for NaN. */
        export function predict(score) {
          return sigmoid(A * number(score) + B);
        }
        <BLANKLINE>
    """
    export = curves(calibrator, any_curve=True)
    table = None if export.pieces is None else piece_table(export, export.pieces)
    head = _HEAD.format(version=__version__, what="sigmoids" if table is None else "curves")
    head += _SIGMOID * (table is None or table.has_log_odds)
    if export.segments is None:
        return head + _ONE.format(fallback=_literal(export.fallback))
    head += _ids(export)
    note = ", an array of its columns" if len(export.types) > 1 else ""
    if table is not None:
        return head + _by_pieces(export, table, note)
    names = ", ".join(export.names)
    head += _curves(export, names) + _NODES.format(nodes=_literal(nodes())) * export.averaged
    return (
        head + _BY_SEGMENT.format(names=names, note=note) + (_MEAN if export.averaged else _OF_ONE)
    )


def _ids(found: ExportedCurves) -> str:
    """The part of the module that reads ids."""
    expected = "segments: expected text, truth values, numbers, dates or times without a time zone"
    types = column_types(found, _IDS, expected, 64, "the modules")
    if any(getattr(part, "tzinfo", None) for part in chain(*found.columns)):
        raise ValueError(f"{expected}, got times with one")
    ids = "".join(
        _ID.format(name=name, test=test, expected=expected)
        for name, test, expected in (_IDS[type_] for type_ in dict.fromkeys(types))
    )
    ids = _WRITTEN * ("written(" in ids) + ids
    names = [_IDS[type_][0] for type_ in types]
    if len(names) == 1:
        return ids + _PLAIN_KEY.format(name=names[0])
    return ids + _KEY_OF_COLUMNS.format(names=", ".join(names))


def _curves(found: ExportedCurves, names: str) -> str:
    """The part of the module that finds the parameters of a segment."""
    segments = found.segments or []
    lines, fallback = _lines(segments, found.parameters), _literal(found.fallback)
    if not found.levels:
        about = f"[{names}] of each segment, and of all others."
        return _plain_curves(found, about, lines, fallback)
    if not found.crossed:
        parts = (_lines(level.values, level.parameters) for level in reversed(found.levels))
        return _NESTED_CURVES.format(
            names=names, curves="".join([lines, *parts]), fallback=fallback
        )
    effects = "".join(
        f"  [[\n{_lines([x for (x,) in level.values], level.parameters, 4)}"
        f"  ], {_literal(level.unseen)}],\n"
        for level in found.levels
    )
    root = _literal(found.root)
    return _CROSSED_CURVES.format(names=names, curves=lines, root=root, effects=effects)


def _plain_curves(found: ExportedCurves, about: str, lines: str, fallback: str) -> str:
    segment = "checked(segment)" if len(found.types) > 1 else "segment"
    return _CURVES.format(about=about, curves=lines, fallback=fallback, segment=segment)


def _by_pieces(found: ExportedCurves, table: PieceTable, note: str) -> str:
    result = _FROM_LOG_ODDS.format(if_="if (is_log_odds) " if table.mixed else "")
    result *= table.has_log_odds
    if table.mixed or not table.has_log_odds:
        result += _WITH_ODDS.format(least=LEAST) if table.shifted else _FROM_PROBABILITY
    about = (
        "Of each segment, and of all others: the scores at which its pieces end, and the pieces:\n"
        f"// [{', '.join(table.names)}]."
    )
    lines = _lines(found.segments or [], table.curves)
    value = polynomial({name: name for name in table.numbers}, "score")
    return _plain_curves(found, about, lines, _literal(table.fallback)) + _PIECES.format(
        note=note,
        names=", ".join(table.names),
        value=value + _BEND * ("bend" in table.numbers),
        result=result,
    )


def _lines(keys: list[Any], parameters: list[tuple[Any, ...]], indent: int = 2) -> str:
    pairs = zip(keys, parameters, strict=True)
    return "".join(f"{' ' * indent}{_literal(pair)},\n" for pair in pairs)


def _literal(value: Any) -> str:
    """A value as JavaScript writes it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, str | bool):
        # "</script>" would end a script in a page.
        return json.dumps(value).replace("<", "\\u003c")
    if isinstance(value, dt.date):
        return f'"{value.isoformat()}"'
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "-Infinity" if value < 0 else "Infinity"
    return f"{value}n" if isinstance(value, int) and abs(value) > _EXACT else repr(value)
