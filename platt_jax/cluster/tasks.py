"""What runs in the engine's workers, for one part of the rows."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.caller import Caller
from platt_jax.cluster.segments import PartSegments
from platt_jax.curves import Curve
from platt_jax.distributed.exchange import agree
from platt_jax.distributed.shared_sums import Meeting
from platt_jax.execution.problems import Context
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.hypothesis_tests.triage import triage
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options, Pooling
from platt_jax.population.fitting import fit_by_segment, inner_fits, smoothing
from platt_jax.results.fit import inspected
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.tables import Table, flag_counts, status_counts

_PREDICTED_AT_ONCE = 1 << 22  # rows, because each takes 200 bytes until it is predicted


class EngineColumns(NamedTuple):
    """Names of columns, and the segments that all parts share."""

    score: str
    segment: tuple[str, ...]
    label: str | None = None
    weight: str | None = None
    offset: str | None = None
    large: NDArray[Any] = np.empty(0)  # (L,) ids

    @property
    def used(self) -> list[str]:
        """All of them."""
        numbers = (self.score, self.label, self.weight, self.offset)
        return list(dict.fromkeys([*(x for x in numbers if x is not None), *self.segment]))


def check_columns(schema: pa.Schema, names: EngineColumns) -> None:
    """Check that all columns exist, and that scores are floats."""
    for name in names.used:
        if name not in schema.names:
            raise ValueError(
                f"rows: expected a column {name!r}, got {', '.join(map(repr, schema.names))}"
            )
    type_ = schema.field(names.score).type
    if type_ not in (pa.float32(), pa.float64()):
        raise ValueError(f"score, column {names.score!r}: expected float32 or float64, got {type_}")


class Call(NamedTuple):
    """The arguments of a fit that are the same in all parts."""

    names: EngineColumns
    pos_label: Any
    prior: GaussianPrior | None
    pooling: Pooling
    options: Options
    curve: Curve | None  # None for sigmoids
    one_curve: FittedCurves | None  # of all rows, beside a Curve


class Summary(NamedTuple):
    """What the driver keeps of a part."""

    large: SegmentCalibrator  # of the large segments, in the summary of part 0
    statuses: dict[str, int]
    flags: dict[str, int]
    smoothing: NDArray[np.float64]  # of its segments, see `smoothing`
    shares: NDArray[np.float64] | None  # of its segments, see `Population.shares`


class FittedPart(NamedTuple):
    """The result of a part, as the engine keeps it."""

    calibrator: bytes  # a pickle of the part's SegmentCalibrator
    summary: bytes  # a pickle of its Summary, or of the ValueError that ended the fit


def fit_part(call: Call, table: pa.Table, meeting: Meeting, part: int) -> FittedPart:
    """The fit of one part of the rows. All parts run at the same time, and exchange numbers."""
    caller, names = Caller(), call.names
    try:
        own_rows, share = agree(meeting, lambda: _own_and_share(table, call))
    except ValueError as error:  # the same in all parts
        return FittedPart(b"", pickle.dumps(error))
    dtype = np.dtype(f"f{table.schema.field(names.score).type.bit_width // 8}")
    has_offset = names.offset is not None
    segments = PartSegments(own_rows, share, names.large, dtype, has_offset, meeting, part, caller)
    with inner_fits():  # the driver reports on all parts
        calibrator = fit_by_segment(
            segments, call.prior, None, call.pooling, call.options, False, caller
        )
    if call.curve is not None:
        calibrator = _with_curves(calibrator, own_rows, call, call.curve, caller)
    return FittedPart(pickle.dumps(calibrator), pickle.dumps(_summary(calibrator, names.large)))


def _with_curves(
    calibrator: SegmentCalibrator,
    own: SegmentRows | None,
    call: Call,
    curve: Curve,
    caller: Caller,
) -> SegmentCalibrator:
    """The part's calibrator, predicting by curves of its own segments."""
    curves: Any = call.one_curve
    if calibrator.pooling == "complete":
        curves = curves.only(np.zeros(len(calibrator.keys) + 1, np.int64))
    elif own is not None:
        curves = curve.fit(own.problems, Context(call.options, caller)).joined(curves)
    return replace(calibrator, curves=curves)


def _own_and_share(table: pa.Table, call: Call) -> tuple[SegmentRows | None, SegmentRows | None]:
    """The rows of the part's own segments, and its share of the large segments' rows."""
    own_rows, share = (
        segment_rows_of(rows, call.names, call.pos_label)
        for rows in split_large(table, call.names.segment, call.names.large)
    )
    return own_rows, share


def segment_rows_of(table: pa.Table, names: EngineColumns, pos_label: Any) -> SegmentRows | None:
    """The rows of a table; None if it has none."""
    if not table.num_rows:
        return None
    label, weight, offset = (
        None if name is None else table[name] for name in (names.label, names.weight, names.offset)
    )
    segments = id_columns(table, names.segment)
    return SegmentRows(
        table[names.score], label, segments, weight, offset=offset, pos_label=pos_label
    )


def split_large(
    table: pa.Table, segment: Sequence[str], large: NDArray[Any]
) -> tuple[pa.Table, pa.Table]:
    """The rows of other segments, and the rows of the large ones."""
    if not len(large) or not table.num_rows:
        return table, table.slice(0, 0)
    is_large = places(table, segment, large) >= 0
    return table.filter(pa.array(~is_large)), table.filter(pa.array(is_large))


def places(table: pa.Table, segment: Sequence[str], keys: NDArray[Any]) -> NDArray[Any]:
    """The places (N,) of the rows' segments among the keys; -1 for others."""
    return get_indexer(keys, read_ids(table, segment), "segment")


def id_columns(table: pa.Table, segment: Sequence[str]) -> Any:
    """The segment ids of the rows, as a column or several."""
    return table[segment[0]] if len(segment) == 1 else table.select(list(segment))


def read_ids(table: pa.Table, segment: Sequence[str]) -> Any:
    """The same as arrays."""
    return ids.read(id_columns(table, segment), "segment")


def _summary(calibrator: SegmentCalibrator, large: NDArray[Any]) -> Summary:
    fit, *_ = inspected(calibrator, any_curve=True)
    is_large = np.zeros(len(calibrator.keys), bool)
    if len(large) and len(calibrator.keys):
        is_large = get_indexer(large, split_columns(calibrator.keys)) >= 0
    return Summary(
        calibrator.only(is_large),
        status_counts(fit.status),
        flag_counts(fit.flags),
        smoothing(fit),
        _shares(calibrator),
    )


def _shares(calibrator: SegmentCalibrator) -> NDArray[np.float64] | None:
    population = calibrator.population
    if population is None or not population.estimated:
        return None
    alone = replace(population, elsewhere=None)
    return alone.shares(np.asarray(calibrator.fit.n_pos + calibrator.fit.n_neg))


def among_all(
    calibrator: SegmentCalibrator, shares: NDArray[np.float64] | None
) -> SegmentCalibrator:
    """The calibrator of some segments, whose population knows the shares of all."""
    population, own_shares = calibrator.population, _shares(calibrator)
    if population is None or own_shares is None or shares is None:
        return calibrator
    return calibrator._replaced(population=replace(population, elsewhere=shares - own_shares))


def typed(schema: pa.Schema, task: Callable[..., pa.Table], *given: Any, **more: Any) -> pa.Table:
    """What a task makes, with exactly these columns."""
    return task(*given, **more).cast(schema)


# The rates from which and to which a calibrator was shifted, one shift after the other.
Shifts = tuple[tuple[float, float], ...]


def loaded(calibrator: bytes, shifts: Shifts) -> SegmentCalibrator:
    """A part's calibrator, shifted: the engine keeps it as it was fitted."""
    fitted: SegmentCalibrator = pickle.loads(calibrator)
    for from_rate, to_rate in shifts:
        fitted = fitted.shift_prior(from_rate, to_rate)
    return fitted


def predict_part(
    calibrator: bytes,
    table: pa.Table,
    shifts: Shifts,
    names: EngineColumns,
    large: SegmentCalibrator,
    out: str,
) -> pa.Table:
    """The rows with a column `out` of probabilities; a part's rows, and any rows of large segments.

    `large` is the calibrator of the large segments, shifted; `shifts` are as in `loaded`.
    """
    fitted = loaded(calibrator, shifts)
    probas = [np.empty(0, fitted._dtype)]
    for first in range(0, table.num_rows, _PREDICTED_AT_ONCE):
        rows = table.slice(first, _PREDICTED_AT_ONCE)
        probas.append(_predicted(rows, fitted, names, large))
    return table.append_column(out, pa.array(np.concatenate(probas).astype(np.float64)))


def _predicted(
    table: pa.Table, own: SegmentCalibrator, names: EngineColumns, large: SegmentCalibrator
) -> NDArray[Any]:
    proba = np.empty(table.num_rows, own._dtype)
    is_large = np.zeros(table.num_rows, bool)
    if len(large.keys):
        is_large = places(table, names.segment, large.keys) >= 0
    for mask, by in ((~is_large, own), (is_large, large)):
        if mask.any():
            rows = table.filter(pa.array(mask))
            offset = None if names.offset is None else rows[names.offset]
            segments = id_columns(rows, names.segment)
            proba[mask] = by.predict_proba(rows[names.score], segments, offset=offset)
    return proba


def table_part(calibrator: bytes, shifts: Shifts, segment: Sequence[str]) -> pa.Table:
    """A row for each segment of a part."""
    fitted = loaded(calibrator, shifts)
    table = fitted.table()
    columns: dict[str, Any] = dict(zip(segment, list(table.values())[: len(segment)], strict=True))
    columns |= {name: table[name] for name in list(table)[len(segment) :]}
    if fitted.curves is None:
        columns["cov_AB"] = np.ascontiguousarray(fitted.fit.covariance[:, 0, 1])
    if fitted.shrinkage is not None:
        columns["shrinkage"] = fitted.shrinkage
    return Table(columns).to_arrow()


# The columns of `triage_part` after the ids.
TESTED = [
    pa.field("rows", pa.int64()),
    *(
        pa.field(name, pa.float64())
        for name in (
            *("positives", "expected", "ratio", "intercept", "slope", "se_intercept", "se_slope"),
            *("cox_p_value", "spiegelhalter_z", "p_value"),
        )
    ),
]


def triage_part(
    calibrator: bytes,
    table: pa.Table,
    shifts: Shifts,
    names: EngineColumns,
    large: SegmentCalibrator,
    shares: NDArray[np.float64] | None,
    against: Literal["fit", "predictions"],
) -> pa.Table:
    """The tests of the segments of a part's rows, without q-values; `shifts` are as in `loaded`.

    `shares` are those of the segments of all parts.
    """
    small, large = (among_all(x, shares) for x in (loaded(calibrator, shifts), large))
    id_fields = [table.schema.field(name) for name in names.segment]
    tables = [pa.schema([*id_fields, *TESTED]).empty_table()]
    split = split_large(table, names.segment, large.keys)
    for by, rows in zip((small, large), split, strict=True):
        if rows.num_rows:
            offset = None if names.offset is None else rows[names.offset]
            segments = id_columns(rows, names.segment)
            fresh = rows[names.score], rows[names.label], segments
            triaged = triage(by, *fresh, offset=offset, against=against).to_arrow()
            keys = triaged.column_names[: len(names.segment)]
            tested = triaged.select([*keys, *(field.name for field in TESTED)])
            named = tested.rename_columns([*names.segment, *tested.column_names[len(keys) :]])
            tables.append(named.cast(tables[0].schema))
    return pa.concat_tables(tables)


def with_q_values(
    table: pa.Table, p_values: NDArray[Any], q_values: NDArray[Any], fdr: float
) -> pa.Table:
    """The table with `q_value` and `flagged`, given the p-values of all segments, ascending."""
    p = table["p_value"].to_numpy()
    q = np.full(len(p), np.nan)
    valid = ~np.isnan(p)
    q[valid] = q_values[np.searchsorted(p_values, p[valid])]
    extended = table.append_column("q_value", pa.array(q))
    return extended.append_column("flagged", pa.array(q <= fdr))
