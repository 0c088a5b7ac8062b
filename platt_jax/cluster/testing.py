"""Triage of fresh rows where they are."""

import pickle
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from platt_jax.cluster.tasks import EngineColumns, id_columns, split_large
from platt_jax.hypothesis_tests.triage import triage
from platt_jax.results.segment_calibrator import SegmentCalibrator

# The columns after the ids, before q-values.
TESTED = [
    pa.field(name, pa.int64() if name == "rows" else pa.float64())
    for name in (
        *("rows", "positives", "expected", "ratio"),
        *(
            "intercept",
            "slope",
            "se_intercept",
            "se_slope",
            "cox_p_value",
            "spiegelhalter_z",
            "p_value",
        ),
    )
]


def triage_part(
    calibrator: bytes,
    table: pa.Table,
    names: EngineColumns,
    large: SegmentCalibrator,
    against: Literal["fit", "predictions"],
) -> pa.Table:
    """The tests of the segments of a part's rows, without q-values.

    Args:
        calibrator: the part's calibrator.
        table: all rows of some segments.
        names: names of columns.
        large: the calibrator of the large segments.
        against: see `triage`.
    """
    small: SegmentCalibrator = pickle.loads(calibrator)
    ids = [table.schema.field(name) for name in names.segment]
    found = [pa.schema([*ids, *TESTED]).empty_table()]
    split = split_large(table, names.segment, large.keys)
    for by, rows in zip((small, large), split, strict=True):
        if rows.num_rows:
            offset = None if names.offset is None else rows[names.offset]
            segments = id_columns(rows, names.segment)
            fresh = rows[names.score], rows[names.label], segments
            made = triage(by, *fresh, offset=offset, against=against).to_arrow()
            keys = made.column_names[: len(names.segment)]
            tested = made.select([*keys, *(field.name for field in TESTED)])
            named = tested.rename_columns([*names.segment, *tested.column_names[len(keys) :]])
            found.append(named.cast(found[0].schema))
    return pa.concat_tables(found)


def with_q_values(
    table: pa.Table, p_values: NDArray[Any], q_values: NDArray[Any], fdr: float
) -> pa.Table:
    """The table with `q_value` and `flagged`, given the p-values of all segments, ascending."""
    p = table["p_value"].to_numpy()
    q = np.full(len(p), np.nan)
    known = ~np.isnan(p)
    q[known] = q_values[np.searchsorted(p_values, p[known])]
    made = table.append_column("q_value", pa.array(q))
    return made.append_column("flagged", pa.array(q <= fdr))
