"""Whatever bytes come: `load` and the CSV door answer by a whole result or by a ValueError.

The examples are the same in every run.
"""

import contextlib
import functools
import io
import json
import math
import tempfile
import time
import timeit
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_up import calibrators, same

import platt_jax as pj
from platt_jax.cli import csvio
from platt_jax.cli.inputs import Input

pytestmark = pytest.mark.slow


def examples(number):
    return settings(
        max_examples=number,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


# --- load --------------------------------------------------------------------------------------


def use(calibrator):
    """Everything that a whole calibrator can do."""
    repr(calibrator)
    if isinstance(calibrator, pj.Sigmoid):
        calibrator.predict_proba(np.zeros((*calibrator.A.shape, 2)))
        return
    calibrator.table(), calibrator._repr_html_()
    if isinstance(calibrator, pj.Fit):
        use(calibrator.sigmoid)
    elif isinstance(calibrator, pj.SegmentCalibrator):
        calibrator.predict_proba(np.zeros(len(calibrator.keys)), calibrator.keys)
    else:
        calibrator.predict_proba(np.zeros((2, len(calibrator.classes))))


def whole_or_refused(path, content):
    """The calibrator in these bytes, in full working order, or None."""
    path.write_bytes(content)
    calibrator = None

    def read():
        nonlocal calibrator
        with contextlib.suppress(ValueError):
            calibrator = pj.load(path)

    # Of this thread, and without collections of garbage, which take a second among many objects.
    assert timeit.timeit(read, timer=time.thread_time, number=1) < 1
    if calibrator is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that overflow
        use(calibrator)
    pj.save(path, calibrator)
    assert same(pj.load(path), calibrator)
    return calibrator


@functools.cache
def saved(kind):
    """A calibrator and the bytes of its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.npz"
        pj.save(path, calibrators()[kind])
        return calibrators()[kind], path.read_bytes()


KINDS = st.sampled_from(sorted(calibrators()))
BYTES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"\xff" * 8, b"\0" * 8]
    ),
)
EDITS = st.lists(
    st.tuples(st.integers(0), st.integers(0, 12), BYTES, st.booleans()), min_size=1, max_size=4
)


@examples(1500)
@given(kind=KINDS, edits=EDITS)
def test_load_of_edited_files(tmp_path, kind, edits):
    """What is not refused is what was saved: no edit gets past the checksums."""
    calibrator, content = saved(kind)
    for place, removed, inserted, from_the_end in edits:
        place %= len(content) + 1
        place = len(content) - place if from_the_end else place
        content = content[:place] + inserted + content[place + removed :]
    found = whole_or_refused(tmp_path / "file.npz", content)
    assert found is None or same(found, calibrator)


DTYPES = [
    "<f8",
    "<f4",
    ">f8",
    "<f2",
    "<i4",
    "|i1",
    "<u8",
    "|b1",
    "<c8",
    "<U2",
    ">U1",
    "|S3",
    "<M8[D]",
]
SHAPES = [(), (1,), (2,), (3,), (0,), (2, 2), (2, 0), (1, 2, 2), (2, 2, 2)]


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 13),  # of which array
        st.none() | st.sampled_from(DTYPES),  # None leaves it as it is
        st.none() | st.sampled_from(SHAPES),
        st.binary(min_size=1, max_size=8) | st.sampled_from([b"a\0\0\0", b"\xff"]),
    ),
    max_size=2,
)


def changed(array, dtype, shape, some):
    """Of another type, another shape or neither, with some bytes over and over."""
    dtype = array.dtype if dtype is None else np.dtype(dtype)
    shape = array.shape if shape is None else shape
    size = dtype.itemsize * math.prod(shape)
    return np.ndarray(shape, dtype, buffer=(some * size)[:size] or b"\0")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
HEADERS = st.dictionaries(st.sampled_from(["format", "version", "kind"]), JSON, max_size=1)


@examples(1000)
@given(kind=KINDS, header=HEADERS | st.just({}), changes=CHANGES)
def test_load_of_other_arrays(tmp_path, kind, header, changes):
    """The archive is sound, but what is in it need not belong together."""
    with np.load(io.BytesIO(saved(kind)[1])) as file:
        members = dict(file)
    members["header"] = np.array(json.dumps({**json.loads(str(members["header"])), **header}))
    for place, *change in changes:
        name = sorted(members)[place % len(members)]
        members[name] = changed(members[name], *change)
    content = io.BytesIO()
    np.savez(content, **members)
    whole_or_refused(tmp_path / "file.npz", content.getvalue())


@examples(500)
@given(content=st.binary(max_size=300))
def test_load_of_any_bytes(tmp_path, content):
    assert whole_or_refused(tmp_path / "file.npz", content) is None


# --- CSV ---------------------------------------------------------------------------------------

NUMBERS = ["1", "-2.5e3", "nan", "inf", " 3 ", "", "NA", "1_0", "0x1p3", "1e400", "nan(1)", "+1"]
LABELS = ["0", "1", "-1", "true", "FALSE", "1.0", "", "yes", "nan", " 1 ", "+1", "2"]
TEXTS = ["", "007", "7", "NA", "é", "😀", '"a, b"', '"say ""x"""', '"', "\0", "\ufeff", "null"]
FIELDS = {"f": NUMBERS, "y": LABELS, "id": TEXTS}
WANTED = [("f", csvio.number), ("y", csvio.label), ("id", str)]
BREAKS = ["\n", "\r\n", "\r", "\n\n", "", " \n", ",\n"]


@st.composite
def csv_files(draw):
    """Files that are nearly right, in many ways."""
    more = draw(st.sampled_from([[], ["x"], ["x"], ["f"]]))
    header = draw(st.permutations(["f", "y", "id", *more]))
    lines = [",".join(header)]
    for _ in range(draw(st.integers(0, 5))):
        row = draw(st.sampled_from(["good", "good", "odd", "shuffled"]))
        choices = [FIELDS.get(name, TEXTS)[: 5 if row == "good" else None] for name in header]
        fields = [draw(st.sampled_from(some)) for some in choices]
        lines.append(",".join(draw(st.permutations(fields)) if row == "shuffled" else fields))
    if draw(st.booleans()):
        joined = "\n".join(lines) + "\n"
    else:
        joined = "".join(line + draw(st.sampled_from(BREAKS)) for line in lines)
    content = joined.encode()
    if draw(st.integers(0, 4)) == 0:
        place = draw(st.integers(0, len(content)))
        content = content[:place] + draw(st.binary(max_size=3)) + content[place:]
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + content


def named(path):
    return Input(str(path), str(path))


def columns_or_refused(read, source):
    """Types and bits of the columns, or what was said instead."""
    try:
        return [(column.dtype, column.tobytes()) for column in read(source, WANTED)]
    except csvio.CsvError as error:
        return str(error)


@examples(1000)
@given(content=csv_files() | st.binary(max_size=60))
def test_csv_readers_agree_on_any_file(tmp_path, content):
    pytest.importorskip("pyarrow")
    path = tmp_path / "in.csv"
    path.write_bytes(content)
    plain = columns_or_refused(csvio._read_plainly, named(path))
    assert columns_or_refused(csvio.read_columns, named(path)) == plain


@examples(500)
@given(content=csv_files())
def test_a_copy_has_one_column_more(tmp_path, content):
    """Whatever could be read can be copied, and the copy says the same."""
    source, target = named(tmp_path / "in.csv"), named(tmp_path / "out.csv")
    (tmp_path / "in.csv").write_bytes(content)
    columns = columns_or_refused(csvio.read_columns, source)
    if isinstance(columns, str):
        return
    rows = len(csvio.read_columns(source, WANTED)[0])
    values = np.arange(rows) / 3
    with open(target.path, "wb") as file:
        csvio.copy_with_columns(source, file, ["p"], values[:, None])
    assert columns_or_refused(csvio.read_columns, target) == columns
    (copied,) = csvio.read_columns(target, [("p", csvio.number)])
    assert copied.tolist() == values.tolist()
