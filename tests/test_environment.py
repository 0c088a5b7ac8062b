"""What a bug report needs, and programs kept from one process to the next."""

import io
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import platt_jax as pj
from platt_jax.backend import stored_programs, xla

FIRST_FIT = """
import hashlib, sys
import jax, numpy as np
import platt_jax as pj
before = dict(jax.config.values)
if len(sys.argv) > 1:
    pj.environment.use_compilation_cache(None if sys.argv[1] == "none" else sys.argv[1])
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **named: compiled.append(event) if "backend_compile" in event else None
)
rng = np.random.default_rng(0)
f, s = rng.normal(size=400), np.arange(400) % 20
y = rng.random(400) < 1 / (1 + np.exp(-f))
bits = hashlib.sha256()
for pooling in ("none", "partial"):
    fitted = pj.fit_segments(f, y, s, pooling=pooling)
    bits.update(fitted.fit.A.tobytes() + fitted.fit.covariance.tobytes())
    bits.update(fitted.predict_proba(f, s).tobytes())
assert dict(jax.config.values) == before
print(len(compiled), bits.hexdigest())
"""


@pytest.fixture(scope="module")
def uncached():
    """The bits of fits that are compiled."""
    return run(PLATT_JAX_CACHE="off")[1]


def run(*arguments, **variables):
    """The number of programs that XLA compiled, and a digest of the bits of two fits."""
    command = [sys.executable, "-c", FIRST_FIT, *arguments]
    others = "JAX_COMPILATION_CACHE_DIR", "PLATT_JAX_CACHE"
    usual = {x: os.environ[x] for x in os.environ if x not in others}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=usual | variables
    )
    assert not done.stderr
    number, bits = done.stdout.split()
    return int(number), bits


@pytest.mark.slow
def test_programs_are_kept_and_read_to_the_same_bits(tmp_path, uncached):
    folder = tmp_path / "new" / "folder"
    compiled, bits = run(str(folder))
    assert compiled > 3 and bits == uncached
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    assert kept and all(path.suffix == ".program" for path in kept)
    assert run(str(folder)) == (0, uncached)
    assert {path: path.read_bytes() for path in folder.iterdir()} == kept
    # Damaged, cut off and empty files, and those of another version, are compiled again.
    for number, (path, content) in enumerate(kept.items()):
        harmed = [content[:-1] + b"?", content[: len(content) // 2], b"", b"PK\x03\x04" + content]
        path.write_bytes(harmed[number % 4])
    assert run(str(folder)) == (compiled, uncached)
    assert run(str(folder)) == (0, uncached)


@pytest.mark.slow
def test_the_usual_folder_is_that_of_the_user(tmp_path, uncached):
    compiled, bits = run(XDG_CACHE_HOME=str(tmp_path))
    assert compiled and bits == uncached
    assert list((tmp_path / "platt_jax").glob("*.program"))
    assert (tmp_path / "platt_jax").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
@pytest.mark.parametrize("how", ["variable", "call", "others may write", "no folder", "JAX's"])
def test_nothing_is_kept(how, tmp_path, uncached):
    folder, variables, arguments = tmp_path / "platt_jax", {}, []
    if how == "variable":
        variables = {"PLATT_JAX_CACHE": "off"}
    elif how == "call":
        arguments = ["none"]
    elif how == "others may write":
        folder.mkdir()
        folder.chmod(0o777)
    elif how == "JAX's":  # whose executables cannot be written again
        variables = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "other")}
    else:
        folder.touch()
    assert run(*arguments, XDG_CACHE_HOME=str(tmp_path), **variables)[1] == uncached
    assert not list(tmp_path.rglob("*.program"))


@pytest.mark.slow
def test_two_processes_may_fill_one_folder(tmp_path, uncached):
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(run, [str(tmp_path / "folder")] * 2))
    assert [bits for _, bits in both] == [uncached] * 2
    assert run(str(tmp_path / "folder")) == (0, uncached)


def test_the_programs_used_least_recently_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_programs, "_MOST_BYTES", 1000)
    for number in range(6):
        stored_programs._keep(tmp_path / f"{number}.program", bytes(300))
        os.utime(tmp_path / f"{number}.program", (number, 9 - number if number > 3 else number))
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["3", "4", "5"]


def test_what_cannot_be_written_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", refuse)
    stored_programs._keep(tmp_path / "a.program", bytes(300))
    assert not list(tmp_path.iterdir())


def refuse(*_):
    raise OSError("no space left on device")


class Other:
    """A stream of a program that logs what is written."""

    def write(self, text):
        raise AssertionError(text)


CLOSED = io.StringIO()
CLOSED.close()


@pytest.mark.parametrize("stream", [None, Other(), CLOSED])
def test_a_stream_that_is_no_terminal_is_told_nothing(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    with stored_programs._told_at_a_terminal():
        pass


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Programs are kept in a new folder."""
    monkeypatch.setattr(stored_programs, "folder", lambda: tmp_path)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


def test_columns_in_a_file_are_arrays_of_their_own_length(kept):
    zeros = xla.jit(jax.numpy.zeros_like)  # a function of a package that is part of the key
    columns = np.memmap(kept / "column", np.float32, "w+", shape=7)
    for length in (3, 4):
        np.testing.assert_array_equal(zeros(np.array(columns[:length])), np.zeros(length))
        np.testing.assert_array_equal(zeros(columns[:length]), np.zeros(length))
    assert len(list(kept.glob("*.program"))) == 2


def test_programs_of_code_without_sources_are_not_kept(kept, monkeypatch):
    """As in an archive: another version of the code would read them."""
    read = stored_programs._surroundings.__wrapped__
    monkeypatch.setattr(stored_programs, "_surroundings", read)
    monkeypatch.setattr(stored_programs, "__file__", str(kept / "backend" / "stored_programs.py"))
    np.testing.assert_array_equal(xla.jit(jax.numpy.zeros_like)(np.ones(5)), np.zeros(5))
    assert not list(kept.iterdir())


class Shown(io.StringIO):
    """What is written to it is shown to a user."""

    def isatty(self):
        return True


class InNotebook(io.StringIO):
    __module__ = "ipykernel.iostream"


@pytest.mark.parametrize("stream, lines", [(Shown, 1), (InNotebook, 1), (io.StringIO, 0)])
def test_two_seconds_of_compiling_are_told_once_and_not_in_a_log(monkeypatch, stream, lines):
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.setattr(stored_programs, "_untold", threading.Lock())
    monkeypatch.setattr(stored_programs, "_compiling", 0.0)
    monkeypatch.setattr(stored_programs, "_SILENT", 0.1)

    def compiled(seconds):
        with stored_programs._told_at_a_terminal():
            time.sleep(seconds)
        return sys.stderr.getvalue().count("compiling, once for this version")

    assert compiled(0.0) == 0
    monkeypatch.setattr(stored_programs, "_compiling", 0.09)  # of earlier programs
    assert compiled(0.05) == lines
    with ThreadPoolExecutor(2) as pool:  # side by side
        assert list(pool.map(compiled, [0.05] * 2)) == [lines] * 2


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        pj.environment.use_compilation_cache(tmp_path / "file" / "folder")


@pytest.mark.skipif(sys.platform == "win32", reason="has other permissions")
def test_a_folder_in_which_others_may_write_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(ValueError, match="path: expected a folder in which only you may write"):
        pj.environment.use_compilation_cache(tmp_path)


def test_the_configuration_names_versions_devices_and_settings(capsys, monkeypatch):
    monkeypatch.setenv("JAX_OF_THIS_TEST", "on")
    pj.environment.show_config()
    shown = dict(
        line.split(maxsplit=1)
        for line in capsys.readouterr().out.splitlines()[1:]
        if line[-1] != ":"
    )
    assert shown["jax"] == jax.__version__
    assert shown["platt-jax"] == pj.__version__
    assert shown["devices"] == ", ".join(map(str, jax.devices()))
    assert shown["JAX_OF_THIS_TEST"] == "on"
    assert shown["sums"] == xla.sums_status()
    assert shown["kernels"] == (xla.kernel_compiler() or "none")
