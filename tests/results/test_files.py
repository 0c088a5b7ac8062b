"""Saving and loading: the same calibrator, or a ValueError and nothing else."""

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from data import problem
from made_up import same

import platt_jax as pj
from platt_jax import SegmentCalibrator, Sigmoid
from platt_jax.export import from_json, to_json


def calibrators(rng):
    scores, labels = problem(rng, 60)
    ids = rng.integers(0, 4, 60)
    columns = rng.normal(size=(60, 3)).astype(np.float32)
    return [
        Sigmoid(np.array(-1.5, np.float32), np.array(0.25, np.float32)),
        pj.fit(scores, labels),
        pj.fit(np.stack([scores, -scores]), labels),
        pj.fit_segments(scores, labels, ids),
        pj.fit_segments(scores.astype(np.float32), labels, np.array(["a", "ä", "ccc", ""])[ids]),
        pj.fit_one_vs_rest(columns, np.arange(60) % 3),
    ]


def test_round_trip_keeps_every_bit(rng, tmp_path):
    for one in calibrators(rng):
        path = tmp_path / "calibrator"  # no ending is added
        pj.save(path, one)
        other = pj.load(str(path))
        assert same(one, other)
        assert repr(other) == repr(one)
        assert os.listdir(tmp_path) == ["calibrator"]


def test_files_that_are_no_calibrators(rng, tmp_path):
    path = tmp_path / "file.npz"
    pj.save(path, pj.fit(*problem(rng, 20)))
    whole = path.read_bytes()
    with np.load(path) as file:
        arrays = dict(file)

    def rewritten(**changes):
        merged = {**arrays, **changes}
        np.savez(path, **{name: array for name, array in merged.items() if array is not None})
        return path.read_bytes()

    def header(**changes):
        fields = {"format": "platt_jax calibrator", "version": 1, "kind": "Fit", **changes}
        return np.array(str(fields).replace("'", '"'))

    for content, message in (
        (b"", "not a calibrator"),
        (b"score,label\n1,0\n", "not a calibrator"),
        (whole[: len(whole) // 2], "not a calibrator"),
        (whole[:-1], "not a calibrator"),
        (rewritten(A=None), "not a calibrator"),
        (rewritten(header=None), "not a calibrator"),
        (rewritten(header=header(format="another")), "not a calibrator"),
        (rewritten(header=header(kind="Ensemble")), "not a calibrator"),
        (rewritten(header=header(version=99)), "by a newer platt_jax as version 99"),
        (rewritten(A=np.array([{}], object)), "not a calibrator"),
        (rewritten(header=header(version="1")), "not a calibrator"),
        (rewritten(B=np.zeros(3)), "not a calibrator"),
        (rewritten(A=np.array("text")), "not a calibrator"),
        (rewritten(status=np.array(0.5)), "not a calibrator"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"file.npz: .*{message}"):
            pj.load(path)
    with pytest.raises(FileNotFoundError):
        pj.load(tmp_path / "missing.npz")


def test_nothing_is_executed_by_loading(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    np.savez(tmp_path / "trap.npz", header=np.array([Trap()], object))
    with pytest.raises(ValueError, match="not a calibrator"):
        pj.load(tmp_path / "trap.npz")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "dtype", ["c16", "?", "M8[D]", "m8[25s]", "f4", "S3", ">i4", ">U4", "u1", "U0"]
)
def test_keys_of_every_plain_type(rng, tmp_path, dtype):
    one = pj.fit_segments(*problem(rng, 30), (np.arange(30) % 2).astype("i8").astype(dtype))
    pj.save(tmp_path / "file.npz", one)
    assert same(pj.load(tmp_path / "file.npz"), one)


def test_sigmoids_made_by_hand(tmp_path):
    """Integers and half floats become what a fit would have given; arrays may lie in any order."""
    for one, expected in (
        (Sigmoid(-2, 1), Sigmoid(np.float64(-2), np.float64(1))),
        (Sigmoid(np.float16(-2), np.float16(1)), Sigmoid(np.float32(-2), np.float32(1))),
        (Sigmoid([1, 2.5], [3, 4]), Sigmoid(np.array([1, 2.5]), np.array([3.0, 4.0]))),
        (Sigmoid(np.zeros((0, 2)), np.zeros((0, 2))),) * 2,
        (Sigmoid(*np.arange(12.0).reshape(2, 2, 3).swapaxes(1, 2)),) * 2,
    ):
        pj.save(tmp_path / "file.npz", one)
        loaded = pj.load(tmp_path / "file.npz")
        assert type(loaded.A) is type(loaded.B) is np.ndarray
        assert same(loaded, expected)


def test_a_file_from_a_machine_of_the_other_byte_order(tmp_path):
    one = Sigmoid(np.array([1.5, 2.5]), np.array([-3.0, 4.0]))
    pj.save(tmp_path / "file.npz", one)
    with np.load(tmp_path / "file.npz") as file:
        arrays = {name: array.astype(array.dtype.newbyteorder()) for name, array in file.items()}
    np.savez(tmp_path / "file.npz", **arrays)
    assert same(pj.load(tmp_path / "file.npz"), one)


def test_what_cannot_be_saved(rng, tmp_path):
    path = tmp_path / "file.npz"
    path.write_text("precious")
    scores, labels = problem(rng, 4)
    good = pj.fit_segments(scores, labels, [1, 2, 1, 2])
    for bad, message in (
        (replace(good, keys=np.array([1, frozenset()], object)), "keys: .* a frozenset"),
        ({}, "calibrator: expected one"),
        (Sigmoid(np.zeros(2), 1.0), r"B: expected floating numbers of shape \(2,\), got float64"),
        (Sigmoid("a", "b"), "A: expected numbers, got dtype <U1"),
        (SegmentCalibrator(good.keys[::-1], good.fit, good.fallback), "keys: expected distinct"),
        (SegmentCalibrator(good.keys[:1], good.fit, good.fallback), "A: expected floating"),
        (SegmentCalibrator(good.keys[None], good.fit, good.fallback), "keys: expected a flat"),
        (replace(good.fit, status=good.fit.status + 9), "status: expected 0 to"),
        (replace(good.fit, status=good.fit.A), "status: expected integers"),
    ):
        with pytest.raises(ValueError, match=message):
            pj.save(path, bad)
    assert path.read_text() == "precious"
    with pytest.raises(FileNotFoundError, match="no such directory"):
        pj.save(tmp_path / "missing" / "file.npz", Sigmoid(-1.0, 0.0))
    with pytest.raises(ValueError, match="expected a file"):
        pj.save(tmp_path, Sigmoid(-1.0, 0.0))
    assert os.listdir(tmp_path) == ["file.npz"]


def test_a_symbolic_link_to_itself_is_replaced(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "link")
    pj.save(tmp_path / "link", Sigmoid(-1.0, 0.0))
    assert pj.load(tmp_path / "link").A == -1


def test_paths_that_are_none(tmp_path):
    """An integer would be taken for an open file, and closed."""
    with open(tmp_path / "file", "w+b") as file:
        for path in (file.fileno(), file, None, [str(tmp_path)]):
            with pytest.raises(ValueError, match="path: expected a str or a Path, got "):
                pj.save(path, Sigmoid(-1.0, 0.0))
            with pytest.raises(ValueError, match="path: expected a str or a Path, got "):
                pj.load(path)
        assert file.read() == b""
    pj.save(os.fsencode(tmp_path / "file"), Sigmoid(-1.0, 0.0))
    assert pj.load(os.fsencode(tmp_path / "file")).A == -1


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    pj.save(tmp_path / "link", Sigmoid(-1.0, 0.0))
    assert (tmp_path / "link").is_symlink() and zipfile.is_zipfile(tmp_path / "target")


def test_the_file_is_plain_arrays(rng, tmp_path):
    """Other programs may read it: one .npz, no pickle."""
    pj.save(tmp_path / "file.npz", pj.fit(*problem(rng, 20)))
    code = f"import numpy; f = numpy.load({str(tmp_path / 'file.npz')!r}); print(float(f['A']))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(out.stdout) == pj.load(tmp_path / "file.npz").A


def test_the_kind_of_labels_of_classes(rng, tmp_path):
    labels = rng.integers(0, 3, 200)
    scores = rng.normal(size=(200, 3)) + 2 * np.eye(3)[labels]
    path = tmp_path / "classes.npz"
    for given, sums in ((labels, True), (np.eye(3)[labels], False)):
        calibrator = pj.fit_one_vs_rest(scores, given)
        pj.save(path, calibrator)
        for again in (pj.load(path), from_json(to_json(calibrator))):
            assert again == calibrator and again.multilabel is not sums
            proba = again.predict_proba(scores)
            np.testing.assert_array_equal(proba, calibrator.predict_proba(scores))
            assert np.allclose(proba.sum(1), 1) is sums


@pytest.mark.slow
def test_a_file_says_what_made_it(rng, tmp_path):
    path = tmp_path / "file.npz"
    scores, labels = problem(rng, 60)
    options = pj.Options(targets="none", tol=1e-9)
    given = {"weights": np.full(60, 2.0), "pooling": "partial", "options": options}
    calibrator = pj.fit_segments(scores, labels, np.arange(60) % 3, **given)
    pj.save(path, calibrator)
    with np.load(path) as file:
        header = json.loads(file["header"].item())
    assert header["format"] == "platt_jax calibrator" and header["version"] == 1
    assert header["package"] == pj.__version__ and header["pooling"] == "partial"
    assert header["options"] == {"targets": "none", "tol": 1e-9} and header["rows"] == 120
    assert pj.load(path).options == options


def test_a_file_whose_numbers_were_changed_is_refused(rng, tmp_path):
    path = tmp_path / "file.npz"
    scores, labels = problem(rng, 60)
    pj.save(path, pj.fit_segments(scores, labels, np.arange(60) % 3, pooling="partial"))
    with np.load(path) as file:
        arrays = dict(file)
    for name in ("A", "covariance", "fallback_B", "population_posterior_mean"):
        changed = arrays[name].copy()
        changed.flat[0] += 1e-9
        np.savez(path, **arrays | {name: changed})
        with pytest.raises(ValueError, match="damaged"):
            pj.load(path)
    np.savez(path, **arrays)
    pj.load(path)


def test_nan_of_either_sign_is_the_same(tmp_path):
    one = Sigmoid(np.array([-np.nan, 1.0]), np.array([np.nan, 2.0]))
    pj.save(tmp_path / "file.npz", one)
    assert same(pj.load(tmp_path / "file.npz"), one)
    assert from_json(to_json(one)) == one


@pytest.mark.parametrize("pooling", ["none", "complete"])
@pytest.mark.parametrize("segments", [1, 5])
def test_the_kind_of_pooling_is_stored(rng, tmp_path, pooling, segments):
    """Also of one segment, whose curve is that of all rows in any case."""
    calibrator = pj.fit_segments(*problem(rng, 60), np.arange(60) % segments, pooling=pooling)
    pj.save(tmp_path / "file.npz", calibrator)
    assert pj.load(tmp_path / "file.npz").pooling == calibrator.pooling == pooling
