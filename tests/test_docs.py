"""What the documentation shows is run: docstring examples, and the README's Python."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import platt_jax

MODULES = [m.name for m in pkgutil.iter_modules(platt_jax.__path__) if m.name != "__main__"]
README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(f"platt_jax.{name}")
    assert doctest.testmod(module).failed == 0


def test_every_public_function_has_an_example():
    for name in ("fit", "fit_segments", "fit_one_vs_rest", "solve", "save", "Sigmoid"):
        assert ">>>" in getattr(platt_jax, name).__doc__, name


def test_readme_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    assert len(examples) >= 4
    namespace: dict = {}
    for example in examples:
        exec(compile(example, str(README), "exec"), namespace)
