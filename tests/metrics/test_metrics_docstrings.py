"""Docstrings of metrics, whose common parts a decorator fills in."""

import inspect
import re

import pytest

from platt_jax import metrics

FUNCTIONS = [name for name in metrics.__all__ if name.islower()]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_docstring_describes_each_argument_and_the_errors(name):
    function = getattr(metrics, name)
    text = inspect.getdoc(function)
    arguments = text.split("\nArgs:\n")[1].split("\n\n")[0]
    assert set(re.findall(r"^    (\w+): ", arguments, re.M)) == set(
        inspect.signature(function).parameters
    )
    assert text.count("\nRaises:\n    ValueError: ") == 1
    assert not re.search(r"\{\w*(rows|bins)\}", text)
