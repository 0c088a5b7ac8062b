"""The curves of a calibrator as plain Python values, for exports of probabilities."""

from collections.abc import Collection, Iterator
from itertools import chain, pairwise, product
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.ids import times
from platt_jax.results.fit import Fit, named_with_part
from platt_jax.results.levels import Part
from platt_jax.results.pieces import Pieces, numbers_used, pieces
from platt_jax.results.segment_calibrator import SegmentCalibrator, parameters, require_sigmoids
from platt_jax.results.sigmoid import Sigmoid

# Calibrators whose probabilities can be exported.
Exportable: TypeAlias = SegmentCalibrator | Sigmoid | Fit


class LevelCurves(NamedTuple):
    """What a level says of segments that were not fitted, as `results.levels.Part`."""

    columns: range  # places of the columns of ids that the values have
    values: list[tuple[Any, ...]]  # the values, tuples of their columns
    parameters: list[tuple[float, ...]]  # the five parameters of each value
    # for crossed levels the parameters of an unseen value; None for nested ones
    unseen: tuple[float, ...] | None


class ExportedCurves(NamedTuple):
    """Sigmoids P(y=1) = 1 / (1 + exp(A score + B)), as `predict_proba` evaluates them.

    With a population (A, B) is normal, and a probability is the mean of the sigmoid. A curve then
    has five parameters: the means of A and B, and their covariance's AA, AB and BB. Other curves
    are in pieces, and the one parameter is the number of the curve.
    """

    # segment ids, ascending: text, numbers, dates; tuples if they have several columns. None for
    # one sigmoid for all rows.
    segments: list[Any] | None
    columns: list[list[Any]]  # the values of each column of the ids, values of levels included
    types: list[set[type]]  # the types of the values of each column
    # the one, two or five parameters of each segment; NaN without a curve (NON_FINITE, EMPTY)
    parameters: list[tuple[float, ...]]
    # the parameters for all other segments; or the parameters of the one sigmoid. With levels, the
    # parameters for a segment of which no value is known.
    fallback: tuple[float, ...]
    # with crossed levels the parameters of the mean curve, to which the effects of values add up;
    # otherwise the fallback
    root: tuple[float, ...]
    levels: list[LevelCurves]  # the levels; empty without any
    pieces: Pieces | None = None  # the curves by number; None for sigmoids
    decides: bool = False  # whether the curves are 1 where a row is accepted, and 0 elsewhere

    @property
    def crossed(self) -> bool:
        """Whether there are levels, and these are crossed."""
        return any(level.unseen is not None for level in self.levels)

    @property
    def averaged(self) -> bool:
        """Whether probabilities are means over a population's (A, B)."""
        return len(self.fallback) > len(SIGMOID)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        if self.pieces is not None:
            return NUMBER
        return NORMAL if self.averaged else SIGMOID


NUMBER = ("curve",)
SIGMOID = "A", "B"
NORMAL = *SIGMOID, "AA", "AB", "BB"


def curves(calibrator: Exportable, *, any_curve: bool = False) -> ExportedCurves:
    """The curves of a SegmentCalibrator, or of one Sigmoid or Fit; sigmoids only, if not any."""
    if isinstance(calibrator, Fit):
        calibrator = calibrator.sigmoid
    if isinstance(calibrator, Sigmoid) and np.ndim(calibrator.A) == 0:
        curve = float(calibrator.A), float(calibrator.B)
        return ExportedCurves(None, [], [], [], curve, curve, [])
    if not isinstance(calibrator, SegmentCalibrator):
        raise ValueError(
            "calibrator: expected a SegmentCalibrator or one sigmoid, got a "
            f"{named_with_part(calibrator)}"
        )
    if not any_curve:
        require_sigmoids(calibrator, "calibrator")
    if calibrator.curves is not None:
        piecewise = calibrator.curves.pieces()
        shift = calibrator.shift
        return _in_pieces(calibrator, piecewise if shift is None else piecewise.lowered(shift))
    return _keyed(calibrator, parameters(calibrator))


class PieceTable(NamedTuple):
    """Curves in pieces for modules that find a score's piece by bisection."""

    numbers: list[str]  # names of the numbers of `Pieces` that its polynomials have
    names: list[str]  # names of the columns of a piece
    # of each segment: the scores at which its pieces end, and the columns of its pieces
    curves: list[tuple[tuple[float, ...], tuple[tuple[Any, ...], ...]]]
    fallback: tuple[tuple[float, ...], tuple[tuple[Any, ...], ...]]
    has_log_odds: bool  # whether some values are log-odds, not probabilities
    mixed: bool  # whether values are both; pieces then have is_log_odds
    shifted: bool  # whether probabilities have other odds; pieces then have them


def piece_table(found: ExportedCurves, pieces: Pieces) -> PieceTable:
    """The pieces of each segment, and of all others."""
    numbers = numbers_used(pieces)
    mixed, shifted = len(np.unique(pieces.is_log_odds)) > 1, bool((pieces.odds != 1).any())
    names = [*numbers, *["is_log_odds"] * mixed, *["odds"] * shifted]
    columns = [getattr(pieces, name).tolist() for name in names]
    starts, rows = pieces.start.tolist(), list(zip(*columns, strict=True))
    bounds = np.searchsorted(pieces.curve, np.arange(len(found.segments or []) + 2)).tolist()
    *segment_curves, fallback = (
        (tuple(starts[first + 1 : end]), tuple(rows[first:end])) for first, end in pairwise(bounds)
    )
    has_log_odds = bool(pieces.is_log_odds.any())
    return PieceTable(numbers, names, segment_curves, fallback, has_log_odds, mixed, shifted)


class Reached(NamedTuple):
    """Where the scores of each segment, and last of others, reach a probability."""

    at: NDArray[np.float64]  # (K + 1,) as `threshold`
    falls: NDArray[np.bool_]  # (K + 1,) whether lower scores are more probable
    status: NDArray[np.str_]  # (K + 1,) as in `threshold_table`


def reached(calibrator: Any, probability: float) -> Reached:
    """The thresholds of segments, and last the threshold of segments that were not fitted."""
    validation.require_fraction(probability, "threshold")
    if not isinstance(calibrator, SegmentCalibrator) or not len(calibrator.keys):
        of_segments = isinstance(calibrator, SegmentCalibrator)
        kind = "one without segments" if of_segments else f"a {named_with_part(calibrator)}"
        raise ValueError(f"threshold: expected a SegmentCalibrator with segments, got {kind}")
    if calibrator.by_level is not None:
        raise ValueError("threshold: expected None for a calibrator with levels")
    unseen = calibrator.only(np.zeros(len(calibrator.keys), bool))
    tables = (
        calibrator.threshold_table(probability),
        unseen.threshold_table(probability, calibrator.keys[:1]),
    )
    threshold, direction, status = (
        np.concatenate([table[name] for table in tables])
        for name in ("threshold", "direction", "status")
    )
    return Reached(threshold, direction == "below", status)


def decisions(calibrator: Any, probability: float) -> ExportedCurves:
    """Steps to 1 where the scores of a segment reach a probability, by `threshold`."""
    threshold, falls, _ = reached(calibrator, probability)
    infinite = np.isinf(threshold)
    start = np.where(infinite, np.nan, np.where(falls, np.nextafter(threshold, np.inf), threshold))
    before = np.where(infinite, (threshold > 0) == falls, falls)
    values = np.where(np.isnan(threshold), np.nan, [before, ~falls])
    starts = np.stack([np.full(len(threshold), -np.inf), start], 1)
    steps = pieces(np.arange(len(threshold))[:, None], starts, values.T)
    return _in_pieces(calibrator, steps)._replace(decides=True)


def _in_pieces(calibrator: SegmentCalibrator, found: Pieces) -> ExportedCurves:
    """Curves in pieces for the segments of a calibrator, and last for others."""
    numbers = np.arange(len(calibrator.keys) + 1.0)
    return _keyed(calibrator, numbers[:, None])._replace(pieces=found)


def _keyed(calibrator: SegmentCalibrator, each: NDArray[np.float64]) -> ExportedCurves:
    """The curves with these parameters (K + 1, P), the last for segments that were not fitted."""
    *segment_parameters, fallback = map(tuple, each.tolist())
    fields = ids.fields(calibrator.keys)
    columns = list(map(_values, fields))
    plain = calibrator.keys.dtype.names is None
    segments = columns[0] if plain else list(zip(*columns, strict=True))
    root, levels = fallback, []
    if calibrator.by_level is not None:
        root_parameters, parts = calibrator.by_level.parts()
        root, levels = tuple(root_parameters.tolist()), list(map(_level, parts))
    for level in levels:
        for index, values in zip(level.columns, zip(*level.values, strict=True), strict=True):
            columns[index] = [*columns[index], *values]
    types = [
        set(map(type, column)) or {_type(x.dtype)}
        for column, x in zip(columns, fields, strict=True)
    ]
    return ExportedCurves(segments, columns, types, segment_parameters, fallback, root, levels)


def _level(part: Part) -> LevelCurves:
    values = list(zip(*map(_values, ids.fields(part.keys)), strict=True))
    unseen = None if part.unseen is None else tuple(part.unseen.tolist())
    return LevelCurves(part.columns, values, list(map(tuple, part.normal.tolist())), unseen)


def number_of_cases(found: ExportedCurves) -> int:
    """The number of segments and of `other_cases`."""
    sizes = [len(level.values) for level in found.levels]
    cases = prod(size + 1 for size in sizes) - 1 if found.crossed else sum(sizes)
    return len(found.segments or []) + cases


def other_cases(found: ExportedCurves) -> Iterator[tuple[dict[int, Any], tuple[float, ...]]]:
    """What is known of segments that were not fitted, by levels.

    Yields the values of some columns, by the columns' places, and the parameters of all segments
    that have these values and were in no case before.
    """
    if not found.crossed:
        for level in reversed(found.levels):
            for values, numbers in zip(level.values, level.parameters, strict=True):
                yield dict(zip(level.columns, values, strict=True)), numbers
        return
    fitted = set(found.segments or [])
    choices = [
        [*zip(level.values, level.parameters, strict=True), ((), level.unseen)]
        for level in found.levels
    ]
    # Combinations of most known values come first.
    for case in sorted(product(*choices), key=lambda case: sum(not values for values, _ in case)):
        case_values = {column: values[0] for column, (values, _) in enumerate(case) if values}
        if case_values and tuple(case_values.values()) not in fitted:
            yield case_values, tuple(map(sum, zip(found.root, *(x for _, x in case), strict=True)))


def column_types(
    found: ExportedCurves, allowed: Collection[type], expected: str, bits: int, where: str
) -> list[type]:
    """The one type that the values of each column of ids have, among the `allowed` ones.

    Integers have at most so many bits, including the sign. For messages `expected` says what is
    expected, and `where` what has integers of this size.
    """
    for types in found.types:
        if len(types) > 1 or not types <= set(allowed):
            raise ValueError(
                f"{expected}, one type a column, got "
                + " and ".join(sorted(type_.__name__ for type_ in types))
            )
    for part in chain(*found.columns):
        if is_wider(part, bits):
            raise ValueError(
                f"segments: expected integers of {bits} bits, which {where} have, got {part}; "
                "fit such ids as text"
            )
        if isinstance(part, str) and any("\ud800" <= character <= "\udfff" for character in part):
            raise ValueError(
                f"segments: expected text that UTF-8 can hold, got {part!r}; leave it out by "
                "calibrator.only(...)"
            )
    return [next(iter(types)) for types in found.types]


def is_wider(part: Any, bits: int) -> bool:
    """Whether a value is an integer that does not fit in this number of bits."""
    return type(part) is int and not -(1 << bits - 1) <= part < 1 << bits - 1


def _type(dtype: np.dtype[Any]) -> type:
    """The type that values of this dtype have, for a column without any."""
    return object if dtype.kind == "O" else type(_values(np.zeros(1, dtype))[0])


def _values(column: NDArray[Any]) -> list[Any]:
    """A column as Python values; times that Python's types cannot hold exactly stay NumPy's."""
    return times.to_python(column) if column.dtype.kind in "mM" else column.tolist()
