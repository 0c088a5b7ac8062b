"""The rows of input files, by role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from platt_jax import ids
from platt_jax.cli import csvio, labels, parquet
from platt_jax.cli.inputs import Input


def read_rows(
    inputs: Sequence[Input], columns: Mapping[str, Any], pos_label: str | None = None
) -> dict[str, Any]:
    """The columns of the rows of all files, by role.

    Args:
        inputs: files, all Parquet or all text.
        columns: name of the column of each role (score, label, weight, offset, cluster); a list of
            names for the segment.
        pos_label: label of class 1 as text, if labels are two other values than 0 and 1.

    Returns:
        Arguments of the library's functions, by role. A segment of several columns is a structured
        array, or a pyarrow table. Without files all are empty.

    Raises:
        ValueError: a file is damaged or lacks a column; or Parquet and text files are mixed.
        ImportError: a file is Parquet, and pyarrow is missing.
    """
    if not inputs:
        return dict.fromkeys(columns, np.zeros(0))
    kinds = [source.is_parquet for source in inputs]
    if any(kinds) and not all(kinds):
        raise ValueError(
            f"{inputs[kinds.index(True)].name} is a Parquet file, and "
            f"{inputs[kinds.index(False)].name} is not: expected files of one kind"
        )
    if all(kinds):
        return parquet.read_rows(inputs, columns, pos_label)
    segments = columns.get("segment", [])
    parsers = csvio.PARSERS | ({} if pos_label is None else {"label": str})
    wanted = [(columns[role], parsers[role]) for role in columns if role != "segment"]
    wanted += [(name, str) for name in segments]  # segment 007 is not segment 7
    parts = [csvio.read_columns(source, wanted) for source in inputs]
    read = [np.concatenate(x) for x in zip(*parts, strict=True)]
    found: dict[str, Any] = dict(zip([x for x in columns if x != "segment"], read, strict=False))
    if pos_label is not None:
        texts = np.char.strip(found["label"])
        missing = csvio.are_missing(texts)
        name = columns["label"]
        found["label"] = labels.by_name(texts[~missing], missing, pos_label.strip(), name)
    if segments:
        segment_columns = read[-len(segments) :]
        found["segment"] = (
            segment_columns[0] if len(segments) == 1 else ids.structured(segments, segment_columns)
        )
    return found
