"""What the documentation shows is run: docstring examples, and the README's Python."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import platt_jax
from platt_jax import metrics, scalers

MODULES = [
    module.name
    for module in pkgutil.walk_packages(platt_jax.__path__, "platt_jax.")
    if not module.name.endswith("__main__")
]
README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_public_function_has_an_example():
    public = [platt_jax.fit, platt_jax.fit_segments, platt_jax.fit_one_vs_rest, platt_jax.solve]
    public += [platt_jax.save, platt_jax.Sigmoid]
    public += [getattr(scalers, name) for name in scalers.__all__]
    public += [getattr(metrics, name) for name in metrics.__all__ if name.islower()]
    for one in public:
        assert ">>>" in one.__doc__, one


def test_readme_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    assert len(examples) >= 4
    namespace: dict = {}
    for example in examples:
        exec(compile(example, str(README), "exec"), namespace)
