"""Rows in files on any file system, in datasets, and in tables of Delta and Iceberg."""

import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from data import rows_of
from rows_elsewhere import fit_stored

import platt_jax as pj
from platt_jax import streaming
from platt_jax.streaming import sources

NAMES = {"score": "f", "label": "y", "segment": "s"}


def table_of(rows=3000, segments=12):
    rng = np.random.default_rng(3)
    s = np.sort(rng.integers(0, segments, rows))
    f, y, _ = rows_of(rng, s, A=-1 - np.arange(segments) % 3)
    text = np.array([f"ø/{i % 4}=" for i in range(segments)])[s]
    return pa.table({"f": f.astype(np.float32), "y": y.astype(np.int8), "s": s, "t": text})


def fit_of(table, *segment):
    f, y, *ids = (table[name].to_numpy(zero_copy_only=False) for name in ("f", "y", *segment))
    return pj.fit_segments(f, y, ids[0])


def assert_same(one, other):
    np.testing.assert_array_equal(one.keys, other.keys)
    np.testing.assert_array_equal(one.fit.A, other.fit.A)
    np.testing.assert_array_equal(one.fallback.A, other.fallback.A)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(sources, "BATCH_ROWS", 700)


# --- Hive partitions ------------------------------------------------------------------------------


@pytest.fixture
def partitioned(tmp_path):
    """A folder with the columns s and t in the names of its directories."""
    ds.write_dataset(
        table_of(), tmp_path / "hive", format="parquet", partitioning=["s", "t"],
        partitioning_flavor="hive",
    )  # fmt: skip
    return tmp_path / "hive"


@pytest.mark.slow
def test_a_column_of_directories_is_the_segment(small, tmp_path, partitioned):
    whole = table_of().sort_by([("s", "ascending")])
    number = fit_stored(partitioned, **NAMES, cache=tmp_path / "s")
    assert number.keys.dtype == np.int64
    assert sorted(number.keys.tolist()) == list(range(12))
    one = fit_of(whole, "s")
    np.testing.assert_allclose(number.fit.A, one.fit.A, rtol=1e-4)
    np.testing.assert_array_equal(number.fit.n_pos, one.fit.n_pos)
    text = fit_stored(
        f"{partitioned}/*/*/*.parquet", **{**NAMES, "segment": "t"}, cache=tmp_path / "t"
    )
    assert text.keys.tolist() == [f"ø/{i}=" for i in range(4)]
    np.testing.assert_array_equal(text.fit.n_pos, fit_of(whole, "t").fit.n_pos)
    both = fit_stored(partitioned, **{**NAMES, "segment": ["s", "t"]}, cache=tmp_path / "both")
    assert both.keys.dtype.names == ("s", "t")
    np.testing.assert_array_equal(both.fit.n_neg, one.fit.n_neg)


def test_a_label_may_be_of_a_directory(tmp_path):
    ds.write_dataset(
        table_of(), tmp_path / "hive", format="parquet", partitioning=["y"],
        partitioning_flavor="hive",
    )  # fmt: skip
    fit = fit_stored(tmp_path / "hive", **NAMES, cache=tmp_path / "rows").fit
    one = fit_of(table_of(), "s").fit
    np.testing.assert_array_equal(fit.n_pos, one.n_pos)
    np.testing.assert_array_equal(fit.n_neg, one.n_neg)


def test_numbers_with_leading_zeros_are_text_and_files_come_before_directories(tmp_path):
    for code in ("007", "08"):
        folder = tmp_path / f"code={code}" / "s=9"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"f": [1.0, 2], "y": [0, 1], "s": [3, 4]}), folder / "x.parquet")
    rows = streaming.rows(tmp_path, tmp_path / "c1", **{**NAMES, "segment": "code"})
    assert rows.keys.tolist() == ["007", "08"]
    rows = streaming.rows(tmp_path / "code=08", tmp_path / "c2", **NAMES)
    assert rows.keys.tolist() == [3, 4]


def test_a_missing_value_or_column_of_a_directory_is_named(tmp_path):
    for name in ("s=__HIVE_DEFAULT_PARTITION__", "s=1"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"f": [1.0, 2], "y": [0, 1]}), tmp_path / name / "x.parquet")
    with pytest.raises(ValueError, match=r"rows from 0 on of .*__HIVE_.*got None at row 0"):
        streaming.rows(tmp_path, tmp_path / "rows", **NAMES)
    pq.write_table(pa.table({"f": [1.0, 2], "y": [0, 1]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"expected a column 's' in .*x\.parquet, there are \['f"):
        streaming.rows(tmp_path, tmp_path / "rows", **NAMES)


# --- URIs -----------------------------------------------------------------------------------------


def test_a_uri_of_a_local_file_is_the_file(small, tmp_path):
    whole = table_of()
    for i in range(3):
        (tmp_path / "source" / f"part={i}").mkdir(parents=True)
        pq.write_table(
            whole[1000 * i : 1000 * (i + 1)], tmp_path / "source" / f"part={i}/a.parquet"
        )
    uri, one = (tmp_path / "source").as_uri(), fit_of(whole, "s")
    lists = [f"{uri}/part={i}/a.parquet" for i in range(3)]
    for i, source in enumerate((uri, f"{uri}/", f"{uri}/*/?.parquet", f"{uri}/**/a.*", lists)):
        cache = tmp_path / f"rows{i}"
        assert_same(fit_stored(source, **NAMES, cache=cache), one)
        streaming.rows(source, cache, **NAMES)
    os.utime(tmp_path / "source/part=1/a.parquet", (1, 1))
    with pytest.raises(ValueError, match=r"another source: file:///.*part=1/a\.parquet was"):
        streaming.rows(uri, tmp_path / "rows0", **NAMES)
    with pytest.raises(ValueError, match=r"none match file:///.*/q\*"):
        streaming.rows(f"{uri}/q*", tmp_path / "none", **NAMES)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        streaming.rows(f"{uri}/nowhere", tmp_path / "none", **NAMES)


def test_a_uri_that_pyarrow_does_not_know_is_read_by_fsspec(small, tmp_path):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    memory = fsspec.filesystem("memory")
    whole = table_of()
    for i in range(2):
        with memory.open(f"/rows/{i}/a.parquet", "wb") as file:
            pq.write_table(whole[1500 * i : 1500 * (i + 1)], file)
    for i, source in enumerate(("memory://rows", "memory://rows/*/a.parquet")):
        fit = fit_stored(source, **NAMES, cache=tmp_path / f"rows{i}")
        assert_same(fit, fit_of(whole, "s"))
    streaming.rows("memory://rows", tmp_path / "rows0", **NAMES)
    memory.pipe_file("/rows/1/a.parquet", memory.cat_file("/rows/0/a.parquet"))
    with pytest.raises(ValueError, match=r"another source: memory:///rows/1/a.parquet was"):
        streaming.rows("memory://rows", tmp_path / "rows0", **NAMES)


@pytest.mark.parametrize("installed", [True, False])
def test_a_uri_of_no_file_system_is_named_without_its_password(tmp_path, monkeypatch, installed):
    if not installed:
        monkeypatch.setitem(sys.modules, "fsspec", None)
    else:
        pytest.importorskip("fsspec", reason="fsspec is not installed")
    with pytest.raises(ValueError, match="source: no file system opens moon://rows/a: ") as error:
        streaming.rows("moon://me:secret@rows/a?token=secret", tmp_path / "rows", **NAMES)
    assert ("fsspec: " if installed else "pip install fsspec") in str(error.value)
    assert "secret" not in str(error.value)


@pytest.fixture(scope="module")
def bucket():
    """A pattern for URIs below a bucket of a local S3 server, and its file system."""
    moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    from pyarrow import fs

    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    uri = f"s3://me:secret@rows{{}}?scheme=http&endpoint_override={host}:{port}"
    uri += "&allow_bucket_creation=true&region=us-east-1"
    filesystem, _ = fs.FileSystem.from_uri(uri.format(""))
    filesystem.create_dir("rows")
    yield uri, filesystem
    server.stop()


@pytest.mark.slow
def test_rows_in_s3(small, tmp_path, bucket):
    uri, filesystem = bucket
    whole = table_of()
    ds.write_dataset(
        whole, "rows/hive", filesystem=filesystem, format="parquet", partitioning=["s"],
        partitioning_flavor="hive",
    )  # fmt: skip
    one = fit_of(whole, "s")
    for i, path in enumerate(("/hive", "/hive/*/*.parquet", "/hi**/*.parquet")):
        fit = fit_stored(uri.format(path), **NAMES, cache=tmp_path / f"rows{i}")
        np.testing.assert_array_equal(fit.keys, one.keys)
        np.testing.assert_array_equal(fit.fit.n_pos, one.fit.n_pos)
    cache = tmp_path / "rows0"
    again = streaming.rows(uri.format("/hive"), cache, **NAMES)
    assert again.identity == streaming.StoredRows(cache).identity
    assert "secret" not in str(again.fingerprint)
    with pytest.raises(
        ValueError, match=r"expected a column 'q' in s3://rows/hive/s=0/part-0"
    ) as e:
        streaming.rows(uri.format("/hive"), tmp_path / "q", **{**NAMES, "segment": "q"})
    assert "secret" not in str(e.value)
    pq.write_table(whole[:10].drop(["s"]), "rows/hive/s=3/part-0.parquet", filesystem=filesystem)
    with pytest.raises(ValueError, match=r"source: s3://rows/hive/s=3/part-0\.parquet was"):
        streaming.rows(uri.format("/hive"), cache, **NAMES)
    with pytest.raises(FileNotFoundError, match="nothing"):
        streaming.rows(uri.format("/nothing"), tmp_path / "nothing", **NAMES)


# --- datasets -------------------------------------------------------------------------------------


def test_a_dataset_is_read_in_its_order(small, tmp_path, partitioned):
    dataset = ds.dataset(partitioned, partitioning="hive")
    fit = fit_stored(dataset, **NAMES, cache=tmp_path / "rows")
    assert_same(fit, fit_of(dataset.to_table(), "s"))
    reports = []
    streaming.rows(dataset, tmp_path / "told", **NAMES, progress=reports.append)
    assert reports[0].stage == "reading rows" and reports[-1].rows_done == 6000
    with pytest.raises(ValueError, match=r"expected a column 'q' in the dataset, there are \['f'"):
        streaming.rows(dataset, tmp_path / "q", **{**NAMES, "segment": "q"})
    with pytest.raises(ValueError, match="score: expected the name of a column"):
        streaming.rows(dataset, tmp_path / "q")
    again = ds.dataset(partitioned, partitioning="hive")
    streaming.rows(again, tmp_path / "rows", **NAMES)
    with pytest.raises(ValueError, match="another source: expressions of the files was"):
        streaming.rows(ds.dataset(partitioned, schema=dataset.schema), tmp_path / "rows", **NAMES)
    os.utime(next(partitioned.rglob("*.parquet")), (1, 1))
    with pytest.raises(ValueError, match=r"another source: .*part-0\.parquet was"):
        streaming.rows(again, tmp_path / "rows", **NAMES)


def test_rows_of_a_filtered_dataset_are_known_by_a_key(small, tmp_path, partitioned):
    dataset = ds.dataset(partitioned, partitioning="hive")
    few = dataset.filter(ds.field("s") < 5)
    rows = streaming.rows(few, tmp_path / "rows", **NAMES, key="few")
    assert rows.keys.tolist() == [0, 1, 2, 3, 4]
    streaming.rows(few, tmp_path / "rows", **NAMES, key="few")
    with pytest.raises(ValueError, match="key was few, is fewer"):
        streaming.rows(few, tmp_path / "rows", **NAMES, key="fewer")
    with pytest.raises(ValueError, match=r"has rows already, .*key="):
        streaming.rows(few, tmp_path / "rows", **NAMES)


def test_a_dataset_of_any_format(small, tmp_path):
    from pyarrow import csv, feather

    whole = table_of()
    feather.write_feather(whole, tmp_path / "a.feather")
    csv.write_csv(whole, tmp_path / "a.csv")
    in_csv = ds.dataset(tmp_path / "a.csv", format="csv", schema=whole.schema)
    for i, dataset in enumerate(
        (ds.dataset(tmp_path / "a.feather", format="feather"), ds.dataset(whole), in_csv)
    ):
        fit = fit_stored(dataset, **NAMES, cache=tmp_path / f"rows{i}")
        assert_same(fit, fit_of(whole, "s"))


def test_a_snapshot_of_a_delta_table(small, tmp_path):
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    whole, path = table_of(), str(tmp_path / "table")
    deltalake.write_deltalake(path, whole[:2000], partition_by=["s"])
    deltalake.write_deltalake(path, whole[2000:], mode="append")
    deltalake.DeltaTable(path).delete("s = 3")
    snapshots = [deltalake.DeltaTable(path, version=i).to_pyarrow_dataset() for i in range(3)]
    numbers = [2000, 3000, 3000 - int((whole["s"].to_numpy() == 3).sum())]
    for i, (snapshot, number) in enumerate(zip(snapshots, numbers, strict=True)):
        fit = fit_stored(snapshot, **NAMES, cache=tmp_path / f"rows{i}")
        assert_same(fit, fit_of(snapshot.to_table(), "s"))
        assert fit.fit.n_pos.sum() + fit.fit.n_neg.sum() == number
        again = deltalake.DeltaTable(path, version=i).to_pyarrow_dataset()
        streaming.rows(again, tmp_path / f"rows{i}", **NAMES)
    with pytest.raises(ValueError, match="another source"):
        streaming.rows(snapshots[1], tmp_path / "rows0", **NAMES)
    with pytest.raises(
        ValueError, match="is a Delta table, expected plain Parquet files; give delt"
    ):
        streaming.rows(path, tmp_path / "rows", **NAMES)


def test_a_snapshot_of_an_iceberg_table(small, tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog", reason="pyiceberg is not installed")
    catalog = catalogs.load_catalog(
        "here", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri()
    )
    whole = table_of()
    catalog.create_namespace("of")
    table = catalog.create_table("of.rows", whole.schema)
    table.append(whole[:2000])
    first = table.current_snapshot().snapshot_id
    table.append(whole[2000:])
    for i, (scan, rows) in enumerate(((table.scan(snapshot_id=first), 2000), (table.scan(), 3000))):
        reader = scan.to_arrow_batch_reader()
        made = streaming.rows(reader, tmp_path / f"rows{i}", **NAMES, key=f"snapshot {i}")
        assert len(made) == rows
    with pytest.raises(ValueError, match=r"is an Iceberg table, .*to_arrow_batch_reader"):
        streaming.rows(table.location(), tmp_path / "rows", **NAMES)
