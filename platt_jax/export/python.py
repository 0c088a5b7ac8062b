"""A calibrator as a module of plain Python."""

import datetime as dt
from typing import Any

from platt_jax import __version__
from platt_jax.export.curves import Exportable, curves

_HEAD = '''"""P(y=1) of scores, by sigmoids that platt_jax {version} fitted."""

import datetime
import math

nan, inf = math.nan, math.inf

'''

_PROBABILITY = """
    z = A * score + B
    if z >= 0:
        e = math.exp(-z)
        return e / (1 + e)
    return 1 / (1 + math.exp(z)) if z < 0 else nan
"""

_ONE = (
    '''
A, B = {fallback}


def predict_proba(score):
    """P(y=1) of a score; NaN for NaN."""'''
    + _PROBABILITY
)

_BY_SEGMENT = (
    '''
# (A, B) of each segment, and of all others.
SIGMOIDS = {{
{sigmoids}}}
FALLBACK = {fallback}


def predict_proba(score, segment):
    """P(y=1) of a score in a segment{of_columns}; NaN for NaN, and without a curve."""
    A, B = SIGMOIDS.get(segment, FALLBACK)'''
    + _PROBABILITY
)

_TYPES = (str, bytes, bool, int, float, dt.date, dt.datetime)


def to_python(calibrator: Exportable) -> str:
    """A calibrator as the text of a Python module, which needs nothing but Python.

    Its function `predict_proba(score, segment)`, or `predict_proba(score)` of one sigmoid, takes
    one score and returns one probability: to rounding, that of `predict_proba` here.

    Args:
        calibrator: a SegmentCalibrator without a population, a Sigmoid or a Fit of one problem.

    Returns:
        The text. Segments of several columns are tuples.

    Raises:
        ValueError: something else, or segments that are not text, numbers, dates or times
            without a time zone.

    Example:
        >>> from platt_jax import Sigmoid
        >>> module = {}
        >>> exec(to_python(Sigmoid(A=-2.0, B=1.0)), module)
        >>> round(module["predict_proba"](0.5), 3)
        0.5
    """
    found = curves(calibrator)
    head = _HEAD.format(version=__version__)
    if found.segments is None:
        return head + _ONE.format(fallback=found.fallback)
    sigmoids = "".join(
        f"    {_text(segment)}: ({A!r}, {B!r}),\n"
        for segment, A, B in zip(found.segments, found.A, found.B, strict=True)
    )
    of_columns = ", a tuple of its columns" if len(found.types) > 1 else ""
    return head + _BY_SEGMENT.format(
        sigmoids=sigmoids, fallback=found.fallback, of_columns=of_columns
    )


def _text(segment: Any) -> str:
    for part in segment if isinstance(segment, tuple) else (segment,):
        if type(part) not in _TYPES or getattr(part, "tzinfo", None) is not None:
            raise ValueError(
                "segments: expected text, numbers, dates or times without a time zone, got "
                f"{part!r}"
            )
    return ascii(segment)
