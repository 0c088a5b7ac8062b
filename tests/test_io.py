"""Saving and loading: the same calibrator, or a ValueError and nothing else."""

import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from reference import problem

import platt_jax as pj
from platt_jax import OneVsRestCalibrator, SegmentCalibrator, Sigmoid


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


def leaves(calibrator):
    if isinstance(calibrator, SegmentCalibrator):
        yield calibrator.keys
        yield from leaves(calibrator.fallback)
        yield from leaves(calibrator.fit)
    elif isinstance(calibrator, OneVsRestCalibrator):
        yield calibrator.classes
        yield from leaves(calibrator.fit)
    else:
        yield from vars(calibrator).values()


def test_round_trip_keeps_every_bit(rng, tmp_path):
    for one in calibrators(rng):
        path = tmp_path / "calibrator"  # no ending is added
        pj.save(path, one)
        other = pj.load(str(path))
        assert type(other) is type(one)
        for a, b in zip(leaves(one), leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)
            assert np.asarray(a).dtype == b.dtype and np.shape(a) == b.shape
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
        fields = {"format": "platt-jax calibrator", "version": 1, "kind": "Fit", **changes}
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
        (rewritten(header=header(version=2)), "by a newer platt_jax as version 2"),
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


def test_what_cannot_be_saved(rng, tmp_path):
    path = tmp_path / "file.npz"
    path.write_text("precious")
    scores, labels = problem(rng, 4)
    mixed = pj.fit_segments(scores, labels, np.array([1, "b", 1, "b"], object))
    for bad, message in ((mixed, "keys: only numbers and text"), ({}, "calibrator: expected one")):
        with pytest.raises(ValueError, match=message):
            pj.save(path, bad)
    assert path.read_text() == "precious"
    with pytest.raises(FileNotFoundError, match="no such directory"):
        pj.save(tmp_path / "missing" / "file.npz", Sigmoid(-1.0, 0.0))
    with pytest.raises(ValueError, match="expected a file"):
        pj.save(tmp_path, Sigmoid(-1.0, 0.0))
    assert os.listdir(tmp_path) == ["file.npz"]


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
