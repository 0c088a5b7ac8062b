"""Columns out of a CSV file, and a copy of the file with one column more.

The plain reader, on the standard library's csv, decides what a file means and words every error.
Where pyarrow is installed it reads first; whatever it does not take is left to the plain reader, so
that both give the same columns and the same errors, and pyarrow only makes it faster.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Parse = Callable[[str], float | int | str]
Column = NDArray[Any]

LABELS = {"0": 0, "1": 1, "-1": -1, "+1": 1, "0.0": 0, "1.0": 1, "-1.0": -1, "false": 0, "true": 1}

# The name of no file: as a target it stands for standard output.
STDOUT = "-"

_ICONV = "convert it: iconv -f {} -t UTF-8 {{path}} > utf8.csv"

# How files of other kinds begin, what they are, and what makes CSV of them. A header may begin with
# the letters of Parquet's mark or of zip's, but not with the bytes that follow them.
_OTHER_KINDS = (
    (rb"\x1f\x8b", "is gzip-compressed", "decompress it: gunzip -k {path}"),
    (
        rb"PAR1\x15",
        "is a Parquet file",
        "convert it in Python: pandas.read_parquet('{path}').to_csv('in.csv', index=False)",
    ),
    (rb"PK\x03\x04", "is a zip archive, or a spreadsheet", "unzip it, or export it as CSV"),
    (rb"\xff\xfe|\xfe\xff", "is UTF-16 text", _ICONV.format("UTF-16")),  # a byte order mark
    (rb"\x00", "is UTF-16 text", _ICONV.format("UTF-16BE")),  # without one: a letter's zero byte
    (rb".\x00", "is UTF-16 text", _ICONV.format("UTF-16LE")),
)

_COLUMNS_NAMED = 20

# Half of csv's limit for a field: a longer field fills at least one block from end to end.
_BLOCK = 1 << 16


class CsvError(ValueError):
    """A file that is not the CSV expected; says which file, and where in it."""


def number(field: str) -> float:
    """A number as Python's float reads it, but without underscores."""
    try:
        if "_" not in field:
            return float(field)
    except ValueError:
        pass
    raise ValueError("is not a number")


def label(field: str) -> int:
    """A label: 0/1, -1/1 or true/false in any case."""
    try:
        return LABELS[field.strip().lower()]
    except KeyError:
        raise ValueError("is not a label (0 and 1, -1 and 1, or true and false)") from None


def text(field: str) -> str:
    """The field as it stands: segment 007 is not segment 7."""
    return field


# Named, for a column without rows has no values to tell its type by.
_DTYPES: dict[Parse, type] = {number: np.float64, label: np.int64, text: np.str_}


def read_columns(path: str, wanted: Sequence[tuple[str, Parse]]) -> list[Column]:
    """The columns of these names, each parsed by its own parser.

    Args:
        path: A CSV file in UTF-8 with a header line.
        wanted: Name and parser (`number`, `label` or `text`) of each column.

    Raises:
        CsvError: The file is empty or broken, a column is missing, or a field cannot be parsed.
    """
    columns = _read_with_pyarrow(path, wanted)
    return _read_plainly(path, wanted) if columns is None else columns


def copy_with_column(source: str, target: str, name: str, values: Column) -> None:
    """Write the records of `source` to `target`, each with its value as the last field.

    Args:
        source: A CSV file that `read_columns` reads.
        target: Another file, or `STDOUT`.
        name: The new column.
        values: Its values, one per record.

    Raises:
        CsvError: `source` has a column of this name already, or is a pipe.
    """
    if not os.path.isfile(source):
        raise CsvError(f"{source}: is not a regular file, and has to be read twice")
    records = _records(source)
    header = _header(source, records)
    if name in header:
        raise CsvError(f"{source}: has a column {name!r} already")
    # UTF-8 whatever the terminal's encoding is, so that a pipe gets what a file would.
    to_stdout = target == STDOUT
    place = sys.stdout.fileno() if to_stdout else target
    with open(place, "w", newline="", encoding="utf-8", closefd=not to_stdout) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*header, name])
        rows = zip(records, values.tolist(), strict=True)
        writer.writerows([*fields, value] for (_, fields), value in rows)


def _records(path: str) -> Iterator[tuple[int, list[str]]]:
    """Each record, header included, and the line that it starts on; blank lines are no records."""
    with open(path, "rb") as file:
        start = file.peek(8)
        for mark, what, remedy in _OTHER_KINDS:
            if re.match(mark, start, re.DOTALL):
                raise CsvError(f"{path}: {what}, not UTF-8 text: {remedy.format(path=path)}")
        reader = csv.reader(io.TextIOWrapper(file, "utf-8-sig", newline=""), strict=True)
        width = None
        while True:
            line = reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise CsvError(f"{path}, line {line}: {error}") from error
            except UnicodeDecodeError as error:
                raise CsvError(
                    f"{path}: is not UTF-8 text ({error.reason}): convert it, as by iconv"
                ) from error
            if not fields:
                continue
            if width is None:
                width = len(fields)
            if len(fields) != width:
                raise CsvError(
                    f"{path}, line {line}: has {len(fields)} fields where the header has {width}"
                )
            yield line, fields


def _header(path: str, records: Iterator[tuple[int, list[str]]]) -> list[str]:
    try:
        return next(records)[1]
    except StopIteration:
        raise CsvError(f"{path}: is empty, expected a header line and rows") from None


def _place(path: str, header: list[str], name: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    if name in header:
        raise CsvError(f"{path}: has {header.count(name)} columns {name!r}")
    there = ", ".join(map(repr, header[:_COLUMNS_NAMED]))
    if len(header) > _COLUMNS_NAMED:
        there += f" and {len(header) - _COLUMNS_NAMED:,} more"
    elif len(header) == 1:
        there += " (is that one column? a comma separates fields)"
    raise CsvError(f"{path}: has no column {name!r}, but {there}")


def _read_plainly(path: str, wanted: Sequence[tuple[str, Parse]]) -> list[Column]:
    records = _records(path)
    header = _header(path, records)
    places = [(_place(path, header, name), parse) for name, parse in wanted]
    columns: list[list[float | int | str]] = [[] for _ in wanted]
    for line, fields in records:
        for (place, parse), column in zip(places, columns, strict=True):
            try:
                column.append(parse(fields[place]))
            except ValueError as error:
                where = f"{path}, line {line}, column {header[place]!r}"
                raise CsvError(f"{where}: {fields[place]!r} {error}") from None
    return [
        np.array(values, _DTYPES[parse]) for values, (_, parse) in zip(columns, wanted, strict=True)
    ]


def _read_with_pyarrow(path: str, wanted: Sequence[tuple[str, Parse]]) -> list[Column] | None:
    """The columns, or None for the plain reader to read them or to say what is wrong."""
    try:
        import pyarrow
        from pyarrow import csv as arrow_csv
    except ImportError:
        return None
    coded = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    types = {name: pyarrow.float64() if parse is number else coded for name, parse in wanted}
    if len(types) < len(wanted) or not _is_simple(path):
        return None
    header = _header(path, _records(path))
    if any(header.count(name) != 1 for name in types):
        return None
    try:
        with open(path, "rb") as file:
            table = arrow_csv.read_csv(
                file,
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=list(types), column_types=types
                ),
            )
        columns = []
        for name, parse in wanted:
            column = table[name].combine_chunks()
            if parse is number:
                columns.append(column.to_numpy())
            else:
                words = column.dictionary.to_pylist()
                distinct: Column = np.array([parse(word) for word in words], _DTYPES[parse])
                columns.append(distinct[column.indices.to_numpy()])
    except ValueError:  # pyarrow's own errors are of this kind
        return None
    # To pyarrow, NA is a null and nan(1) a number. To Python neither is a number.
    numbers = [column for column in columns if column.dtype == np.float64]
    return None if any(np.isnan(column).any() for column in numbers) else columns


def _is_simple(path: str) -> bool:
    """Whether a file can be read twice and has nothing on which the two readers may differ.

    pyarrow lets pass what strict csv does not: a quote that is never closed, a field longer than
    csv's limit, bytes that are not UTF-8 in a column that is not asked for.
    """
    if not os.path.getsize(path):  # empty, or a pipe
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            if b'"' in block or (len(block) == _BLOCK and not (b"," in block or b"\n" in block)):
                return False
            try:
                decoder.decode(block, final=len(block) < _BLOCK)
            except UnicodeDecodeError:
                return False
    return True
