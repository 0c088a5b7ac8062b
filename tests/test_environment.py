"""What a bug report needs, and programs kept from one process to the next."""

import os
import subprocess
import sys

import jax
import pytest

import platt_jax as pj
from platt_jax.backend import xla

FIRST_FIT = """
import sys
import platt_jax as pj
from platt_jax.backend import xla
folder = pj.use_compilation_cache(sys.argv[1] if len(sys.argv) > 1 else None)
pj.fit([1.0, 2.0, 3.0], [0, 1, 0])
print(folder)
"""


def run(*arguments, **variables):
    command = [sys.executable, "-c", FIRST_FIT, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | variables
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_programs_are_kept_in_the_folder_and_read_from_it(tmp_path):
    folder = tmp_path / "new" / "folder"
    assert run(str(folder)) == str(folder)
    kept = {path.name: path.stat().st_mtime_ns for path in folder.glob("*-cache")}
    assert any("solve_chunk" in name for name in kept)
    run(str(folder))
    assert kept == {path.name: path.stat().st_mtime_ns for path in folder.glob("*-cache")}


@pytest.mark.slow
def test_the_usual_folder_is_that_of_the_user(tmp_path):
    assert run(XDG_CACHE_HOME=str(tmp_path)) == str(tmp_path / "platt_jax")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    before = jax.config.jax_compilation_cache_dir
    with pytest.raises(OSError, match="file"):
        pj.use_compilation_cache(tmp_path / "file" / "folder")
    assert jax.config.jax_compilation_cache_dir == before


def test_the_configuration_names_versions_devices_and_settings(capsys, monkeypatch):
    monkeypatch.setenv("JAX_OF_THIS_TEST", "on")
    pj.show_config()
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
