"""Columns of a CSV file, and a copy of the file with more columns.

The plain reader, based on the standard library's csv, defines the meaning of a file and the text of
every error. If pyarrow is installed it reads first, and leaves what it cannot read to the plain
reader. So both give the same columns and errors, and pyarrow only makes reading faster.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from platt_jax.cli.inputs import MISSING, Input
from platt_jax.ids import labels

Parse = Callable[[str], float | str]
Column = NDArray[Any]

_LABELS = {"0": 0, "1": 1, "-1": -1, "+1": 1, "0.0": 0, "1.0": 1, "-1.0": -1, "false": 0, "true": 1}

_MISSING = {word.lower() for word in MISSING}

_ICONV = "convert it: iconv -f {} -t UTF-8 {{path}} > utf8.csv"

# First bytes of other kinds of files, what they are, and how to make CSV of them. A CSV header may
# begin with the letters of Parquet's or zip's mark, but not with the bytes that follow these.
_OTHER_KINDS = (
    (rb"\x1f\x8b", "is compressed twice", "decompress it: gunzip -k {path}"),
    (rb"PAR1\x15", "is a Parquet file, compressed", "decompress it: gunzip -k {path}"),
    (rb"PK\x03\x04", "is a zip archive, or a spreadsheet", "unzip it, or export it as CSV"),
    (rb"\xff\xfe|\xfe\xff", "is UTF-16 text", _ICONV.format("UTF-16")),  # a byte order mark
    (rb"\x00", "is UTF-16 text", _ICONV.format("UTF-16BE")),  # without a mark: a letter's zero byte
    (rb".\x00", "is UTF-16 text", _ICONV.format("UTF-16LE")),
)

_COLUMNS_NAMED = 20
# Other delimiters that files have, as --delimiter takes them in a shell.
_OTHER_DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'", ",": ","}
_DELIMITERS = {",": "a comma", "\t": "a tab"}

# Exceptions from reading a damaged gzip file.
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)

# Half of csv's limit on a field, so that a longer field fills at least one block entirely.
_BLOCK = 1 << 16


class CsvError(ValueError):
    """The file is not valid CSV; the message names the file and the place in it."""


def number(field: str) -> float:
    """A number as read by Python's float, but without underscores; NaN if it is missing."""
    try:
        if "_" not in field:
            return float(field)
    except ValueError:
        if _is_missing(field):
            return math.nan
    comma = re.fullmatch(r"\s*[-+]?[\d.]*,\d+(e[-+]?\d+)?\s*", field, re.IGNORECASE)
    raise ValueError("is not a number" + (": write decimals with a point" if comma else ""))


def label(field: str) -> float:
    """A label: 0/1, -1/1 or true/false in any case; NaN if it is missing."""
    try:
        return _LABELS[field.strip().lower()]
    except KeyError:
        if _is_missing(field):
            return math.nan
    raise ValueError(
        "is not a label (0 and 1, -1 and 1, or true and false; for others see --pos-label)"
    )


def _is_missing(field: str) -> bool:
    return field.strip().lower() in _MISSING


def are_missing(fields: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Which texts are missing values."""
    distinct, code = np.unique(fields, return_inverse=True)
    return np.array([_is_missing(word) for word in distinct.tolist()], bool)[code]


def labels_by_name(
    values: Any, missing: NDArray[np.bool_], pos_label: Any, column: str
) -> NDArray[Any]:
    """(N,) 1 where a label is `pos_label`, 0 where it is the one other value, NaN where missing.

    `values` are the labels that are not missing (N,), `column` is their name for messages.
    """
    try:
        coded = labels.labels_by_name(values, pos_label, 1)
    except ValueError as error:
        raise ValueError(f"column {column!r}: {error}") from None
    if not missing.any():
        return coded.astype(np.int64)
    full = np.full(len(missing), np.nan)
    full[~missing] = coded
    return full


def read_columns(source: Input, wanted: Sequence[tuple[str, Parse]]) -> list[Column]:
    """The named columns of a file with a header, each read by its `number`, `label` or `str`."""
    columns = _read_with_pyarrow(source, wanted)
    return _read_plainly(source, wanted) if columns is None else columns


def copy_with_columns(
    source: Input, target: BinaryIO, names: Sequence[str], values: Column
) -> None:
    """Write the records of `source` in UTF-8, each with its row of `values` (N, C) at the end."""
    if not os.path.isfile(source.path):
        raise CsvError(f"{source.name}: is not a regular file, and has to be read twice")
    records = _records(source)
    header = _header(source, records)
    refuse_taken(source, names, header)
    rows = zip(records, values.tolist(), strict=True)
    with _writer(target, source.delimiter) as writer:
        writer.writerow([*header, *names])
        writer.writerows([*fields, *added] for (_, fields), added in rows)


def refuse_taken(source: Input, names: Sequence[str], there: Sequence[str]) -> None:
    """Refuse names of new columns that columns of `source` have."""
    for name in names:
        if name in there:
            raise CsvError(f"{source.name}: has a column {name!r} already: see --name")


def write_table(table: Mapping[str, Column], target: BinaryIO) -> None:
    """Write columns of equal length as CSV, with a header line."""
    with _writer(target, ",") as writer:
        writer.writerow(table)
        writer.writerows(zip(*(column.tolist() for column in table.values()), strict=True))


@contextmanager
def _writer(target: BinaryIO, delimiter: str) -> Iterator[Any]:
    text = io.TextIOWrapper(target, "utf-8", newline="")
    # Before Python 3.13 a writer quotes only the characters of its own line end. A carriage return
    # in a field, which readers take for the end of the record, needs quotes, too.
    lines = SimpleNamespace(write=lambda line: text.write(line[:-2] + "\n"))
    yield csv.writer(lines, lineterminator="\r\n", delimiter=delimiter)
    text.flush()
    text.detach()  # the file is the caller's to close


def columns_there(names: Sequence[str]) -> str:
    """The columns of a file for a message, shortened if there are many."""
    listed = ", ".join(map(repr, names[:_COLUMNS_NAMED]))
    extra = len(names) - _COLUMNS_NAMED
    return listed if extra <= 0 else f"{listed} and {extra:,} more"


def _records(source: Input) -> Iterator[tuple[int, list[str]]]:
    """Each record, including the header, with its first line number; blank lines are skipped."""
    try:
        with source.open() as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
            _refuse_other_kinds(file.peek(8), source.name)
            yield from _records_of(text, source)
    except _DAMAGED:
        raise CsvError(f"{source.name}: is a damaged gzip file") from None


def _refuse_other_kinds(start: bytes, name: str) -> None:
    for mark, what, remedy in _OTHER_KINDS:
        if re.match(mark, start, re.DOTALL):
            raise CsvError(f"{name}: {what}, not UTF-8 text: {remedy.format(path=name)}")


def _records_of(text: io.TextIOWrapper, source: Input) -> Iterator[tuple[int, list[str]]]:
    name = source.name
    reader = csv.reader(text, strict=True, delimiter=source.delimiter)
    width = None
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise CsvError(f"{name}, line {line}: {error}") from error
        except UnicodeDecodeError as error:
            raise CsvError(
                f"{name}: is not UTF-8 text ({error.reason}): convert it, as by iconv"
            ) from error
        if not fields:
            continue
        if width is None:
            width = len(fields)
        if len(fields) != width:
            raise CsvError(
                f"{name}, line {line}: has {len(fields)} fields where the header has {width}"
            )
        yield line, fields


def _header(source: Input, records: Iterator[tuple[int, list[str]]]) -> list[str]:
    try:
        return next(records)[1]
    except StopIteration:
        raise CsvError(f"{source.name}: is empty, expected a header line and rows") from None


def _place(source: Input, header: list[str], name: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    if name in header:
        raise CsvError(f"{source.name}: has {header.count(name)} columns {name!r}")
    listed = columns_there(header)
    if len(header) == 1:
        listed += f" (is that one column? {_DELIMITERS.get(source.delimiter, 'a delimiter')}"
        delimiter = next((x for x in _OTHER_DELIMITERS if x in header[0]), None)
        listed += (
            f" separates fields; try --delimiter {_OTHER_DELIMITERS[delimiter]})"
            if delimiter
            else (" separates fields; for another see --delimiter)")
        )
    raise CsvError(f"{source.name}: has no column {name!r}, but {listed}")


def _read_plainly(source: Input, wanted: Sequence[tuple[str, Parse]]) -> list[Column]:
    records = _records(source)
    header = _header(source, records)
    readers = [(_place(source, header, name), parse) for name, parse in wanted]
    columns: list[list[float | str]] = [[] for _ in wanted]
    for line, fields in records:
        for (index, parse), column in zip(readers, columns, strict=True):
            try:
                column.append(parse(fields[index]))
            except ValueError as error:
                where = f"{source.name}, line {line}, column {header[index]!r}"
                raise CsvError(f"{where}: {fields[index]!r} {error}") from None
    return [_column(values, parse) for values, (_, parse) in zip(columns, wanted, strict=True)]


def _column(values: Sequence[float | str], parse: Parse) -> Column:
    """Values as an array; labels are integers if none is missing."""
    # Explicit dtypes, because a column without rows has no values to infer one from.
    column: Column = np.array(values, np.str_ if parse is str else np.float64)
    as_integers = parse is label and not np.isnan(column).any()
    return column.astype(np.int64) if as_integers else column


def _read_with_pyarrow(source: Input, wanted: Sequence[tuple[str, Parse]]) -> list[Column] | None:
    """The columns; or None if the plain reader must read them, or raise the error."""
    try:
        import pyarrow
        from pyarrow import csv as arrow_csv
    except ImportError:
        return None
    coded = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    types = {name: pyarrow.float64() if parse is number else coded for name, parse in wanted}
    if len(types) < len(wanted) or not _is_simple(source):
        return None
    header = _header(source, _records(source))
    if any(header.count(name) != 1 for name in types):
        return None
    try:
        with source.open() as file:
            table = arrow_csv.read_csv(
                file,
                parse_options=arrow_csv.ParseOptions(delimiter=source.delimiter),
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=list(types),
                    column_types=types,
                    null_values=[x for word in MISSING for x in (word, word.lower(), word.upper())],
                ),
            )
        columns = []
        for name, parse in wanted:
            if parse is number:
                column = _floats(table[name])
                # pyarrow reads nan(1) as a number; Python does not.
                if np.count_nonzero(np.isnan(column)) > table[name].null_count:
                    return None
                columns.append(column)
            else:
                coded = table[name].combine_chunks()
                distinct = _column([parse(word) for word in coded.dictionary.to_pylist()], parse)
                columns.append(distinct[np.from_dlpack(coded.indices)])
    except ValueError:  # base class of pyarrow's own errors
        return None
    return columns


def _floats(column: Any) -> Column:
    """A pyarrow column of numbers, with nulls as NaN.

    pyarrow's own `to_numpy` imports pandas, if that is installed, which takes longer than reading.
    """
    return column.to_numpy() if column.null_count else np.from_dlpack(column.combine_chunks())


def _is_simple(source: Input) -> bool:
    """Whether a file can be read twice and holds nothing on which the two readers may differ.

    pyarrow accepts input that strict csv rejects: a quote that is never closed, a field longer than
    csv's limit, bytes that are not UTF-8 in a column that is not read.
    """
    if not os.path.getsize(source.path):  # empty, or a pipe
        return False
    decoder, delimiter = codecs.getincrementaldecoder("utf-8")(), source.delimiter.encode()
    try:
        with source.open() as file:
            while block := file.read(_BLOCK):
                long_field = len(block) == _BLOCK and not (delimiter in block or b"\n" in block)
                if b'"' in block or long_field:
                    return False
                decoder.decode(block, final=len(block) < _BLOCK)
    except (UnicodeDecodeError, *_DAMAGED):
        return False
    return True
