import errno
import os
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from data import rows_of
from pyarrow import fs
from rows_elsewhere import fit_stored

import platt_jax as pj
from platt_jax import streaming
from platt_jax.execution import checkpoint as checkpoints
from platt_jax.streaming import grouping, sources

NAMES = {"score": "f", "label": "y", "segment": "s"}


def made_up(rows, segments, seed=1, dtype=np.float32):
    """Rows of segments of very different sizes."""
    rng = np.random.default_rng(seed)
    s = (segments * rng.random(rows) ** 3).astype(np.int64)
    f, y, _ = rows_of(rng, s, A=-1 - np.arange(segments) % 3)
    return f.astype(dtype), y.astype(np.int8), s


def batches_of(columns, rows):
    return [tuple(x[i : i + rows] for x in columns) for i in range(0, len(columns[0]), rows)]


@pytest.fixture
def small(monkeypatch):
    """Blocks, buckets and chunks so small that a few thousand rows fill many."""
    monkeypatch.setattr(sources, "BATCH_ROWS", 1500)
    monkeypatch.setattr(grouping, "BUCKET_ROWS", 1000)
    monkeypatch.setattr(grouping, "_BLOCK_ROWS", 700)


def assert_same(one, other):
    assert one.keys.dtype == other.keys.dtype
    np.testing.assert_array_equal(one.keys, other.keys)
    leaves = [jax.tree.leaves((x.fit, x.fallback, x.fallback_covariance)) for x in (one, other)]
    for x, y in zip(*leaves, strict=True):
        np.testing.assert_array_equal(x, y)
        assert np.asarray(x).dtype == np.asarray(y).dtype


# --- the same fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pooling", "dtype"),
    [
        ("none", np.float32),
        pytest.param("none", np.float64, marks=pytest.mark.slow),
        ("complete", np.float32),
        pytest.param("partial", np.float32, marks=pytest.mark.slow),
    ],
)
def test_a_fit_from_disk_has_the_bits_of_one_in_memory(small, tmp_path, pooling, dtype):
    columns = made_up(8000, 60, dtype=dtype)
    whole = pj.fit_segments(*columns, pooling=pooling)
    stored = fit_stored(batches_of(columns, 900), cache=tmp_path / "rows", pooling=pooling)
    assert_same(stored, whole)
    if pooling == "partial":
        np.testing.assert_array_equal(stored.population.mean, whole.population.mean)


@pytest.mark.slow
def test_oversized_segments_and_all_rows_are_read_for_each_pass(
    small, tmp_path, monkeypatch, sizes
):
    sizes(problem_rows=1 << 14, block_rows=1 << 15)
    f, y, s = made_up(120_000, 5)
    monkeypatch.setattr(sources, "BATCH_ROWS", 30_000)
    rows = streaming.rows((f, y, s), tmp_path / "rows")
    assert (rows.sizes > 1 << 14).any()
    read, reads = rows._read, []
    monkeypatch.setattr(rows, "_read", lambda *args: reads.append(args) or read(*args))
    fit = pj.fit_segments(rows)
    assert_same(fit, pj.fit_segments(f, y, s))
    largest = rows.largest_first[0]
    of_largest = [parts[0].start for parts, _ in reads].count(rows._starts[0])
    assert of_largest > fit.fit.passes[largest] > 1
    assert all(space.reused for _, space in reads)


@pytest.mark.parametrize("of", ["text", "objects", "two columns", "dates"])
def test_ids_of_any_kind_are_numbered_as_in_memory(small, tmp_path, of):
    f, y, s = made_up(5000, 40)
    text = np.array([f"segment {'x' * (i % 7)}{i}" for i in range(40)])[s]
    ids = {
        "text": text,
        "objects": np.array([("a", i) if i % 2 else ("b", i, 0) for i in s.tolist()], object),
        "two columns": np.rec.fromarrays([text, s], names="name,number"),
        "dates": np.datetime64("2026-01-01") + s,
    }[of]
    if of == "objects":
        ids = ids.tolist()
    cache = tmp_path / "rows"
    stored = fit_stored(batches_of((f, y, ids), 777), cache=cache)
    assert_same(stored, pj.fit_segments(f, y, ids))
    np.testing.assert_array_equal(streaming.StoredRows(cache).keys, stored.keys)


def test_labels_of_two_names_are_so_in_all_batches(small, tmp_path):
    f, y, s = made_up(4000, 30)[:3]
    named = np.where(y > 0, "yes", "no")
    batches = [(f[i : i + 900], named[i : i + 900], s[i : i + 900]) for i in range(0, 4000, 900)]
    rows = streaming.rows(batches, tmp_path / "rows", pos_label="yes", key="1")
    assert_same(pj.fit_segments(rows), pj.fit_segments(f, y, s))
    with pytest.raises(ValueError, match="pos_label was 'yes', is 'no'"):
        streaming.rows(batches, tmp_path / "rows", pos_label="no", key="1")
    batches[2][1][batches[2][1] == "no"] = "may"
    message = "batch 2.*pos_label='yes' and at most one other value in all batches, got 'may', 'no'"
    with pytest.raises(ValueError, match=message):
        streaming.rows(batches, tmp_path / "others", pos_label="yes")


@pytest.mark.slow
def test_weights_bad_labels_and_rows_that_are_not_finite(small, tmp_path):
    f, y, s = made_up(5000, 40)
    y = y.astype(float)
    f[17], y[4000] = np.inf, np.nan
    w = np.random.default_rng(2).integers(0, 3, 5000).astype(np.float32)
    with pytest.warns(RuntimeWarning, match="1 of 40 segments"):
        whole = pj.fit_segments(f, y, s, weights=w)
    with pytest.warns(RuntimeWarning, match="1 of 40 segments"):
        stored = fit_stored(batches_of((f, y, s, w), 999), cache=tmp_path / "rows")
    assert_same(stored, whole)


@pytest.mark.slow
def test_stored_rows_are_taken_wherever_segment_rows_are(small, tmp_path):
    columns = made_up(6000, 20)
    rows, stored = pj.SegmentRows(*columns), streaming.rows(columns, tmp_path / "rows")
    assert len(stored) == 6000 and "6,000 rows of 20 segments, float32" in repr(stored)
    one, other = (pj.inference.bootstrap(x, replicates=3) for x in (rows, stored))
    np.testing.assert_array_equal(one.A, other.A)
    calibrator = pj.fit_segments(rows)
    assert_same(pj.update(calibrator, stored), pj.update(calibrator, rows))
    assert_same(pj.fit_segments(stored), calibrator)
    one, other = (pj.triage(calibrator, x) for x in (rows, stored))
    np.testing.assert_array_equal(one["p_value"], other["p_value"])


def test_a_chunk_is_read_over_the_gaps_between_segments(small, tmp_path):
    stored = streaming.rows(made_up(6000, 20), tmp_path / "rows")
    rows = pj.SegmentRows(*made_up(6000, 20))
    space = pj.passes.packing.Space(6000)
    for one, other in zip(
        *(x.take(slice(0, 20), slice(None), space)[:2] for x in (rows, stored)), strict=True
    ):
        np.testing.assert_array_equal(one[:6000], other[:6000])


# --- sources --------------------------------------------------------------------------------------


@pytest.fixture
def parquet(tmp_path):
    """A directory of two files."""
    columns = made_up(4000, 30)
    for i, (f, y, s) in enumerate(batches_of(columns, 2000)):
        folder = tmp_path / "source"
        folder.mkdir(exist_ok=True)
        table = pa.table({"other": s, "y": y, "f": f, "s": s, "t": s.astype(str)})
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=300)
    return folder, columns


def test_parquet_by_file_directory_list_and_pattern(small, tmp_path, parquet):
    folder, columns = parquet
    whole = pj.fit_segments(*columns)
    sources = [folder, sorted(folder.iterdir()), f"{folder}/*.parquet"]
    for number, source in enumerate(sources):
        cache = tmp_path / f"rows{number}"
        assert_same(fit_stored(source, **NAMES, cache=cache), whole)
    pattern = f"{folder}/**/**/?.parquet"
    assert len(streaming.rows(pattern, tmp_path / "once", **NAMES)) == 4000
    (folder / "_temporary").mkdir()
    (folder / "_temporary" / "2.parquet").write_text("not finished")
    for cache, pattern in (("whole", f"{folder}*"), ("nested", f"{tmp_path}/**/source")):
        assert len(streaming.rows(pattern, tmp_path / cache, **NAMES)) == 4000
    (folder / "_temporary" / "2.parquet").unlink()
    assert len(streaming.rows(f"{folder}/**", tmp_path / "twice", **NAMES)) == 4000
    first = streaming.rows(str(folder / "0.parquet"), tmp_path / "first", **NAMES)
    assert len(first) == 2000
    together = {**NAMES, "segment": ["s", "t"]}
    both = streaming.rows(folder, tmp_path / "both", **together)
    assert both.keys.dtype.names == ("s", "t") and len(both.keys) == len(whole.keys)


def test_mappings_memory_maps_and_tables(small, tmp_path):
    columns = made_up(4000, 30)
    for name, column in zip("fys", columns, strict=True):
        np.save(tmp_path / f"{name}.npy", column)
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "fys"}
    whole = pj.fit_segments(*columns)
    tables = [pa.table(dict(zip("fys", x, strict=True))) for x in batches_of(columns, 700)]
    frames = [x.to_pandas() for x in tables]
    for number, source in enumerate([mapped, tables, frames]):
        cache = tmp_path / f"rows{number}"
        assert_same(fit_stored(source, **NAMES, cache=cache), whole)
    once = (x for x in batches_of(columns, 700))
    assert_same(fit_stored(once, cache=tmp_path / "once"), whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f, y, s: (f, np.where(y == 1, 7, y), s), "batch 2, .*labels: expected bool"),
        (lambda f, y, s: (f, np.where(y == 1, 1, -1), s), "batch 2, .*0 and -1"),
        (lambda f, y, s: (f, y, np.where(s == 3, np.nan, s)), "batch 2, .*got NaN at row"),
        (lambda f, y, s: (f, y, s.astype(str)), "batch 2, .*numbers.*text|batch 2, .*one type"),
        (lambda f, y, s: (f, y, s[1:]), "batch 2, .*segments: expected one id per score"),
        (lambda f, y, s: (f.astype(float), y, s), "batch 2, .*one dtype in all"),
        (lambda f, y, s: (f, y, s, np.ones_like(f)), "batch 2, .*weights: expected them in all"),
        (lambda f, y, s: (f, y), "columns in batch 2"),
        (lambda f, y, s: "text", "got a str in batch 2"),
        (lambda f, y, s: {"f": f, "y": y}, "segment|score"),
    ],
)
def test_a_bad_batch_is_named_and_nothing_is_left(small, tmp_path, change, message):
    batches = batches_of(made_up(4000, 30), 1000)
    batches[2] = change(*batches[2])
    with pytest.raises(ValueError, match=message):
        streaming.rows(batches, tmp_path / "rows")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("y", [2, 0, 1, 1], "rows from 0 on of .*label 'y'.*labels: expected bool"),
        ("s", [None, 1, 1, 1], "rows from 0 on of .*segment 's'.*got NaN at row 0"),
        ("s", [None, "a", "b", "b"], "rows from 0 on of .*segment 's'.*got None at row 0"),
        ("f", ["a", "b", "c", "d"], "rows from 0 on of .*score 'f'.*scores: expected numbers"),
    ],
)
def test_a_bad_column_of_a_file_is_named(tmp_path, column, values, message):
    columns = {"f": [1.0, 2, 3, 4], "y": [1, 0, 1, 0], "s": [1, 1, 2, 2], column: values}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=message):
        streaming.rows(tmp_path / "a.parquet", tmp_path / "rows", **NAMES)


def test_what_is_no_source_is_refused(tmp_path, parquet):
    cache, (folder, columns) = tmp_path / "rows", parquet
    (tmp_path / "empty").mkdir()
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    pq.write_table(pa.table({"f": [1.0], "y": [1], "s": [1]}), tmp_path / "delta" / "old.parquet")
    (tmp_path / "text.parquet").write_text("no")
    for source, names, message in [
        (5, {}, "source: expected Parquet files, a dataset, arrays or batches, got a int"),
        ([], {}, "source: expected rows to fit, got none"),
        ([(np.zeros(0), [], [])], {}, "source: expected rows to fit, got none"),
        (tmp_path / "empty", NAMES, "has none"),
        (tmp_path / "delta", NAMES, "is a Delta table, .*give deltalake"),
        (str(tmp_path / "n*.parquet"), NAMES, "source: expected Parquet files, none match"),
        (tmp_path / "text.parquet", NAMES, "not a Parquet file"),
        (folder, {}, "score: expected the name of a column"),
        (folder, {**NAMES, "segment": "q"}, "expected a column 'q' in .*there are"),
        ({"f": columns[0]}, NAMES, "source: expected a column 'y', there are"),
        ((columns[0], columns[1], columns[2][1:]), {}, "segments: expected one per score"),
        ((columns[0], columns[1]), {}, "source: expected arrays"),
    ]:
        with pytest.raises(ValueError, match=message):
            streaming.rows(source, cache, **names)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        streaming.rows(tmp_path / "nowhere", cache, **NAMES)
    assert not cache.exists()


# --- the cache ------------------------------------------------------------------------------------


def test_a_cache_is_taken_again_until_the_source_changes(small, tmp_path, parquet, monkeypatch):
    folder, _ = parquet
    cache = tmp_path / "rows"
    made = streaming.rows(folder, cache, **NAMES)
    with monkeypatch.context() as patch:
        patch.delattr(grouping, "_spill")
        again = streaming.rows(folder, cache, **NAMES)
    assert again.identity == made.identity
    with pytest.raises(ValueError, match="segment was s, is t"):
        streaming.rows(folder, cache, **{**NAMES, "segment": "t"})
    os.utime(folder / "1.parquet", (1, 1))
    with pytest.raises(ValueError, match=r"another source: .*1\.parquet was .*, is .*delete"):
        streaming.rows(folder, cache, **NAMES)


def test_other_content_of_the_same_size_and_time_is_another_source(small, tmp_path, parquet):
    folder, _ = parquet
    path = folder / "1.parquet"
    inside = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    sources = {"files": folder, "dataset": ds.dataset("/", filesystem=inside)}
    for cache, source in sources.items():
        streaming.rows(source, tmp_path / cache, **NAMES)
    before, content = os.stat(path), path.read_bytes()
    for number, replaced in enumerate((False, True)):  # in place, and by another file
        target = folder / "new" if replaced else path
        target.write_bytes(content[:100] + bytes([number]) + content[101:])
        os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
        os.replace(target, path)
        now = os.stat(path)
        assert (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        for cache, source in sources.items():
            with pytest.raises(ValueError, match=r"another source: .*1\.parquet was .*, is "):
                streaming.rows(source, tmp_path / cache, **NAMES)


def test_one_changed_row_makes_arrays_another_source(small, tmp_path):
    f, y, s = made_up(400_000, 30)
    streaming.rows((f, y, s), tmp_path / "rows")
    for column, changed in ((f, f[1_500] + 1), (y, 1 - y[1_500]), (s, 7)):
        before = column[1_500]
        column[1_500] = changed
        with pytest.raises(ValueError, match=r"(scores|labels|segments) was .*, is "):
            streaming.rows((f, y, s), tmp_path / "rows")
        column[1_500] = before
    streaming.rows((f, y, s), tmp_path / "rows")


def test_arrays_are_known_by_their_rows_and_batches_by_their_key(small, tmp_path):
    f, y, s = made_up(4000, 30)
    made = streaming.rows((f, y, s), tmp_path / "rows")
    assert streaming.rows((f, y, s), tmp_path / "rows").identity == made.identity
    with pytest.raises(ValueError, match=r"scores was .*, is "):
        streaming.rows((f + 1, y, s), tmp_path / "rows")
    batches = batches_of((f, y, s), 1000)
    streaming.rows(batches, tmp_path / "batches")
    with pytest.raises(ValueError, match=r"has rows already.*key="):
        streaming.rows(batches, tmp_path / "batches")
    streaming.rows(batches, tmp_path / "keyed", key="monday")
    assert len(streaming.rows(batches, tmp_path / "keyed", key="monday")) == 4000
    with pytest.raises(ValueError, match="key was monday, is tuesday"):
        streaming.rows(batches, tmp_path / "keyed", key="tuesday")


def test_other_directories_and_damaged_caches_are_refused(small, tmp_path):
    columns = made_up(4000, 30)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    with pytest.raises(ValueError, match="cache: expected a new or empty directory"):
        streaming.rows(columns, tmp_path / "mine")
    with pytest.raises(ValueError, match=r"cache: expected a directory that streaming\.rows wrote"):
        streaming.StoredRows(tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    rows = streaming.rows(columns, tmp_path / "empty")
    with open(tmp_path / "empty" / "scores", "r+b") as file:
        file.truncate(100)
    with pytest.raises(ValueError, match="scores is missing or damaged: delete"):
        streaming.rows(columns, tmp_path / "empty")
    with pytest.raises(OSError, match="bytes are missing"):
        pj.fit_segments(rows)
    (tmp_path / "empty" / "rows.npz").write_bytes(b"PK nothing")
    with pytest.raises(
        ValueError, match="is damaged, or another version of platt_jax made it: delete"
    ):
        streaming.StoredRows(tmp_path / "empty")


def test_a_file_that_changes_while_it_is_read_is_an_error(small, tmp_path, parquet, monkeypatch):
    folder, _ = parquet
    group = grouping._partition

    def meanwhile(*args):
        os.utime(folder / "0.parquet", (1, 1))
        return group(*args)

    monkeypatch.setattr(grouping, "_partition", meanwhile)
    with pytest.raises(ValueError, match=r"source: changed while it was read: .*0\.parquet was"):
        streaming.rows(folder, tmp_path / "rows", **NAMES)
    assert [x.name for x in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("writes", [1, 5, 20])
def test_a_full_disk_is_an_error_and_leaves_nothing(small, tmp_path, monkeypatch, writes):
    write, left = grouping._write, iter(range(writes))

    def full(*args):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*args)

    monkeypatch.setattr(grouping, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        streaming.rows(made_up(4000, 30), tmp_path / "rows")
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_is_an_error(small, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(OSError, match="Permission denied"):
        streaming.rows(made_up(4000, 30), tmp_path / "rows")
    assert not list(tmp_path.iterdir())


def test_two_that_store_the_same_rows_at_once_share_them(small, tmp_path):
    columns, made = made_up(6_000, 30), []

    def store():
        made.append(streaming.rows(columns, tmp_path / "rows"))

    threads = [threading.Thread(target=store) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({rows.identity for rows in made}) == 1
    assert [x.name for x in tmp_path.iterdir()] == ["rows"]
    assert_same(pj.fit_segments(made[0]), pj.fit_segments(*columns))


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_is_not(small, tmp_path):
    columns, seen = made_up(4000, 30), []
    left = tmp_path / ".rows-0123.partial"
    left.mkdir()

    def batches():
        for batch in batches_of(columns, 1000):
            seen.append(sorted(x.name for x in tmp_path.iterdir()))
            yield batch
            if len(seen) == 1:
                streaming.rows(columns, tmp_path / "rows", key="same")

    with pytest.raises(ValueError, match=r"cache: .* is of another source"):
        streaming.rows(batches(), tmp_path / "rows", key="same")
    assert len(seen) == 4 and len(seen[0]) == 1 and seen[0] != [left.name]
    assert "rows" in seen[1] and seen[0][0] in seen[1]
    assert [x.name for x in tmp_path.iterdir()] == ["rows"]


# --- checkpoints and progress ---------------------------------------------------------------------


class Stop(Exception):
    pass


def stopped_after(chunks):
    """A listener that stops the fit after so many chunks."""
    reports = []

    def listen(report):
        if report.stage == "fit":
            reports.append(report)
            if len(reports) == chunks:
                raise Stop

    return listen


@pytest.mark.slow
def test_a_stopped_fit_goes_on_from_its_checkpoint_to_the_same_bits(small, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "_SECONDS", 0)
    monkeypatch.setattr(checkpoints, "_PART_OF_TIME", np.inf)
    columns = made_up(1_500_000, 3000)
    monkeypatch.setattr(sources, "BATCH_ROWS", 1 << 19)
    monkeypatch.setattr(grouping, "BUCKET_ROWS", 1 << 20)
    rows = streaming.rows(columns, tmp_path / "rows")
    path = tmp_path / "fits.npz"
    whole = pj.fit_segments(*columns)
    with pytest.raises(Stop):
        fit_stored(rows, checkpoint=path, progress=stopped_after(2))
    assert path.exists()
    reports = []
    fit = fit_stored(rows, checkpoint=path, progress=reports.append)
    assert 0 < reports[0].problems_done < 3000 and not path.exists()
    assert_same(fit, whole)


def test_a_checkpoint_of_another_call_is_refused(small, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "_SECONDS", 0)
    columns = made_up(4000, 30)
    rows = streaming.rows(columns, tmp_path / "rows")
    path = tmp_path / "fits.npz"

    def fit(rows, **kwargs):
        return fit_stored(rows, checkpoint=path, **kwargs)

    with pytest.raises(Stop):
        fit(rows, progress=stopped_after(1))
    with pytest.raises(ValueError, match="with other options; delete"):
        fit(rows, options=pj.Options(max_iter=7))
    prior = pj.GaussianPrior(np.zeros(2), np.eye(2))
    with pytest.raises(ValueError, match="with other prior, start; delete"):
        fit(rows, prior=prior, start=(0.0, 1.0))
    other = streaming.rows(columns, tmp_path / "others")
    with pytest.raises(ValueError, match="with other rows; delete"):
        fit(other)
    for pooling in ("partial", "nested", "crossed"):
        with pytest.raises(ValueError, match=f'checkpoint: expected None with pooling="{pooling}"'):
            fit(rows, pooling=pooling)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is not a checkpoint written by platt_jax, or is damaged"):
        fit(rows)
    with pytest.raises(FileNotFoundError, match="no such directory"):
        fit_stored(rows, checkpoint=tmp_path / "no" / "fits.npz")


def test_progress_tells_the_stages_and_the_time_left(small, tmp_path):
    reports = []
    fit_stored(made_up(4000, 30), cache=tmp_path / "rows", progress=reports.append)
    last = {report.stage: report for report in reports}
    assert list(last) == ["reading rows", "grouping rows", "fit"]
    assert last["reading rows"].rows_done == 4000 and last["grouping rows"].rows_done == 8000
    assert reports[0].seconds_left > 0 and last["fit"].seconds_left == 0


def test_arguments_are_checked_before_any_work(tmp_path):
    rows = streaming.rows(made_up(100, 3), tmp_path / "rows")
    for file in (tmp_path / "rows").iterdir():
        file.unlink()  # so that a read would be an error
    with pytest.raises(ValueError, match="pooling: expected one of"):
        pj.fit_segments(rows, pooling="all")
    with pytest.raises(ValueError, match="labels: expected none beside StoredRows"):
        pj.fit_segments(rows, [0, 1])


_FIT = """
import sys
import numpy as np
import platt_jax as pj
from platt_jax import streaming
from platt_jax.execution import checkpoint
checkpoint._SECONDS = 0
random = np.random.default_rng(1)
n = 6_000_000
s = (20_000 * random.random(n) ** 2).astype(np.int32)
f = random.normal(size=n).astype(np.float32)
y = random.random(n) < 1 / (1 + np.exp(-f))
print("ready", flush=True)
made = pj.fit_segments(streaming.rows((f, y, s), sys.argv[1], checkpoint=sys.argv[2]))
np.savez(sys.argv[3], A=made.fit.A, B=made.fit.B, keys=made.keys, fallback=made.fallback.A)
whole = pj.fit_segments(f, y, s)
np.testing.assert_array_equal(made.fit.A, whole.fit.A)
np.testing.assert_array_equal(made.fit.hessian, whole.fit.hessian)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 3.0])
def test_a_killed_process_leaves_what_the_next_one_goes_on_with(tmp_path, seconds):
    arguments = [
        sys.executable,
        "-c",
        _FIT,
        *(str(tmp_path / x) for x in ("rows", "at", "out.npz")),
    ]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "out.npz").exists() and not (tmp_path / "at").exists()
