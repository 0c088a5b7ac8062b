"""The names of `platt_jax` are imported when they are used, and all tools see them before."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import platt_jax

ROOT = Path(__file__).parents[1]


def imported_by(code):
    """The modules that a new process has after this code."""
    report = f"{code}\nimport sys; print(*sys.modules, file=sys.__stdout__)"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, cwd=ROOT, text=True)
    assert not done.returncode, done.stderr
    return set(done.stdout.split())


def test_an_import_of_the_package_imports_nothing_else():
    mine = {x for x in imported_by("import platt_jax") if x.partition(".")[0] == "platt_jax"}
    assert mine == {"platt_jax", "platt_jax.version"}


def test_the_command_line_refuses_and_helps_without_numpy_and_jax():
    code = """
import contextlib, io
from platt_jax.cli import main

for words, status in (
    (["--help"], 0), (["fit", "--help"], 0), (["--version"], 0), (["fit", "--pooling", "all"], 2),
    (["apply", "a.csv", "--calibrator", "c.npz", "--score", "f", "--out", "-", "--colour"], 2),
):
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main(words)
    except SystemExit as exit:
        assert exit.code == status, words
    else:
        raise AssertionError(words)
"""
    assert not {"numpy", "jax", "jaxlib"} & imported_by(code)


def test_a_fit_imports_no_other_room():
    fitted = "import platt_jax as pj; pj.fit([5.0, -4.0, 1.0], [1, 0, 0])"
    found = imported_by(fitted)
    rooms = "curves decisions hypothesis_tests inference metrics monitoring multiclass plots"
    assert "platt_jax.api" in found and not {f"platt_jax.{x}" for x in rooms.split()} & found
    assert not {"platt_jax.updating", "platt_jax.population.quadrature"} & found
    assert not {x for x in found if "pallas" in x}


def test_the_table_has_what_type_checkers_see():
    tree = ast.parse(Path(platt_jax.__file__).read_text(encoding="utf-8"))
    (branch,) = (x for x in tree.body if isinstance(x, ast.If))
    seen = {alias.asname: x.module for x in branch.body for alias in x.names}
    assert all(alias.asname == alias.name for x in branch.body for alias in x.names)
    rooms = {name for name, module in seen.items() if module == "platt_jax"}
    assert rooms <= set(dir(platt_jax)) and seen.keys() - rooms == set(platt_jax.__all__)
    for name, module in seen.items():
        assert getattr(platt_jax, name) is getattr(importlib.import_module(module), name)


def test_tools_see_all_names():
    rooms = {"curves", "distributed", "environment", "export", "inference"}
    rooms |= {"metrics", "plots", "report"}
    seen = set(dir(platt_jax))
    assert seen > {*platt_jax.__all__, *rooms, "streaming", "__version__"}
    assert seen <= dict(inspect.getmembers(platt_jax)).keys()
    everything = {}
    exec("from platt_jax import *", everything)
    assert {x: everything[x] for x in platt_jax.__all__} == {
        x: getattr(platt_jax, x) for x in platt_jax.__all__
    }


def test_the_top_is_small_and_a_name_of_a_room_is_found_there_but_not_listed():
    assert len(platt_jax.__all__) <= 24
    for name in ("bootstrap", "estimate_rates", "Drift"):
        assert getattr(platt_jax, name) is getattr(platt_jax.inference, name)
        assert name not in dir(platt_jax)
    assert platt_jax.show_config is platt_jax.environment.show_config


def test_an_unknown_name_is_refused_as_by_other_modules():
    with pytest.raises(AttributeError, match=r"module 'platt_jax' has no attribute 'fitt'") as bad:
        platt_jax.fitt  # noqa: B018
    # From these Python finds near names.
    assert (bad.value.name, bad.value.obj) == ("fitt", platt_jax)
    with pytest.raises(ImportError, match="cannot import name 'fitt'"):
        from platt_jax import fitt  # noqa: F401
