"""Damage of rows on disk is an error, whichever way they are read."""

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from data import rows_of
from rows_elsewhere import fit_stored

import platt_jax as pj
from platt_jax import streaming
from platt_jax.passes.packing import Space
from platt_jax.results.archive import write_archive
from platt_jax.streaming import checked_files, grouping, sources

BLOCK = 256


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of 8,000 rows with all columns, in several buckets and 32 blocks."""
    monkeypatch.setattr(checked_files, "BLOCK_ROWS", BLOCK)
    monkeypatch.setattr(checked_files, "_BLOCKS_READ_TOGETHER", 3)
    monkeypatch.setattr(sources, "BATCH_ROWS", 1500)
    monkeypatch.setattr(grouping, "BUCKET_ROWS", 1000)
    rng = np.random.default_rng(1)
    s = (40 * rng.random(8000) ** 3).astype(np.int64)
    f, y, _ = rows_of(rng, s, A=-1 - np.arange(40) % 3)
    w, offset = (rng.random(8000).astype(np.float32) for _ in range(2))
    streaming.rows((f.astype(np.float32), y, s, w, offset), tmp_path / "rows")
    return tmp_path / "rows"


def change(path, first, content):
    with open(path, "r+b") as file:
        file.seek(first)
        file.write(content)


def flip(path, first, bit):
    (before,) = path.read_bytes()[first : first + 1]
    change(path, first, bytes([before ^ 1 << bit]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scores", "labels", "weights", "offset"])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_flipped_bit_is_an_error_that_names_file_and_block(cache, name, place):
    size, rows = (cache / name).stat().st_size, len(streaming.StoredRows(cache))
    width = 1 if name == "labels" else 4
    byte = {"first": 0, "middle": width * (5 * BLOCK + 17), "last": size - 1}[place]
    flip(cache / name, byte, bit=3)
    block = byte // (width * BLOCK)
    assert rows <= size // width and block == {"first": 0, "middle": 5}.get(place, block)
    message = rf"cache: {cache / name} is damaged: block {block} \(rows {block * BLOCK:,} to .*"
    for pooling in ("none", "complete"):
        with pytest.raises(ValueError, match=message + f"delete {cache}"):
            fit_stored(streaming.StoredRows(cache), pooling=pooling)


@pytest.mark.slow
def test_zeros_are_an_error(cache):
    change(cache / "scores", 4 * 1000, bytes(4 * 1000))
    with pytest.raises(ValueError, match=r"scores is damaged: block 3 \(rows 768 to 1,023\)"):
        pj.fit_segments(streaming.StoredRows(cache))


@pytest.mark.slow
def test_each_fit_checks_anew(cache):
    rows = streaming.StoredRows(cache)
    before = pj.fit_segments(rows)
    flip(cache / "scores", 5000, bit=6)
    for _ in range(2):
        with pytest.raises(ValueError, match="scores is damaged: block 4"):
            pj.fit_segments(rows)
    with pytest.raises(ValueError, match="scores is damaged"):
        pj.inference.bootstrap(rows, replicates=2)
    with pytest.raises(ValueError, match="scores is damaged"):
        rows.sampled_scores(100)
    flip(cache / "scores", 5000, bit=6)
    np.testing.assert_array_equal(pj.fit_segments(rows).fit.A, before.fit.A)


def test_a_call_checks_each_block_once(cache, monkeypatch):
    compare, compared = checked_files.CheckedFile._compare, []

    def counted(self, rows, first):
        compared.extend((self.path.name, first + i) for i in range(-(-len(rows) // BLOCK)))
        compare(self, rows, first)

    monkeypatch.setattr(checked_files.CheckedFile, "_compare", counted)
    rows = streaming.StoredRows(cache)
    of_call = rows.for_one_call()
    of_call.all(slice(0, 5 * BLOCK), Space(5 * BLOCK))
    assert set(compared) == {(name, i) for name in rows._files for i in range(5)}
    of_call.all(slice(10, 4 * BLOCK), Space(5 * BLOCK))
    of_call.pooled.take(slice(0, 1), slice(0, BLOCK), Space(BLOCK))
    assert len(compared) == 4 * 5
    of_call.all(slice(2 * BLOCK, 6 * BLOCK), Space(5 * BLOCK))
    assert set(compared) == {(name, i) for name in rows._files for i in range(6)}
    for again in (rows, rows.for_one_call()):
        compared.clear()
        again.all(slice(BLOCK, 2 * BLOCK), Space(BLOCK))
        assert set(compared) == {(name, 1) for name in rows._files}


def test_any_stretch_is_that_of_the_file(cache):
    rows, rng = streaming.StoredRows(cache), np.random.default_rng(2)
    dtypes = {"scores": np.float32, "labels": np.int8, "weights": np.float32, "offset": np.float32}
    whole = {name: np.fromfile(cache / name, dtype) for name, dtype in dtypes.items()}
    ends = [*rng.integers(0, rows.length, (100, 2)), (0, rows.length), (BLOCK, 2 * BLOCK)]
    ends += [(7, 9), (BLOCK - 1, BLOCK + 1), (BLOCK, BLOCK + 1), (BLOCK - 1, BLOCK), (9, 9)]
    ends += [(rows.length - 1, rows.length), (3 * BLOCK + 1, rows.length)]
    for kind in (rows, rows.for_one_call()):
        for first, last in map(sorted, ends):
            found = kind.all(slice(first, last), Space(last - first))
            for name, column in whole.items():
                np.testing.assert_array_equal(getattr(found, name), column[first:last])


def test_the_checksum_is_that_of_xxhash(cache):
    xxhash = pytest.importorskip("xxhash")
    with np.load(cache / "rows.npz") as manifest:
        found = manifest["checksums_labels"]
    content = (cache / "labels").read_bytes()
    blocks = [content[i : i + BLOCK] for i in range(0, len(content), BLOCK)]
    assert found.tolist() == [xxhash.xxh3_64_intdigest(block) for block in blocks]


def test_a_damaged_manifest_is_refused_or_says_the_same(cache):
    path = cache / "rows.npz"
    whole, before, refused = path.read_bytes(), pickle.dumps(vars(streaming.StoredRows(cache))), 0
    for place in np.linspace(0, len(whole) - 1, 200).astype(int).tolist():
        path.write_bytes(whole)
        flip(path, place, bit=1)
        try:
            found = streaming.StoredRows(cache)
        except ValueError as error:
            refused += 1
            assert "delete" in str(error)
        else:  # such as the time in the header of a member
            assert pickle.dumps(vars(found)) == before
    assert refused > 150


def test_a_cache_without_checksums_is_refused(cache):
    with np.load(cache / "rows.npz") as manifest:
        arrays = dict(manifest)
    header = {**json.loads(str(arrays.pop("header"))), "format": "platt-jax rows 1"}
    of_rows = {name: x for name, x in arrays.items() if not name.startswith("checksums")}
    write_archive(cache / "rows.npz", header, of_rows)
    with pytest.raises(ValueError, match=f"another version of platt_jax made it: delete {cache}"):
        streaming.StoredRows(cache)


def test_a_missing_xxhash_is_named_before_the_rows_are_read(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)

    def batches():
        raise AssertionError
        yield

    with pytest.raises(ImportError, match=r"xxhash: pip install 'platt-jax\[streaming\]'"):
        streaming.rows(batches(), tmp_path / "rows")
    assert not list(Path(tmp_path).iterdir())
