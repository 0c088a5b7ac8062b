"""The public interface changes on purpose only, and its changes show in public_api.txt."""

import inspect

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

import public_api


def test_the_public_interface_is_the_stored_one():
    """Where the change is meant: python tests/public_api.py --write, and a line in CHANGELOG.md."""
    stored = public_api.STORED.read_text(encoding="utf-8")
    assert public_api.described().splitlines() == stored.splitlines()


def test_a_changed_default_or_method_shows(monkeypatch):
    class Changed:
        def predict_proba(self, scores, clip=True): ...

    Changed.__module__ = "platt_jax.changed"
    monkeypatch.setattr("platt_jax.scalers.Softmax", Changed)
    new = set(public_api.described().splitlines())
    assert "    .predict_proba(self, scores, clip=True)" in new


def test_every_public_function_has_types():
    """A function without any is an error wherever a strict type checker sees it called."""
    untyped = []
    for module in public_api.PACKAGES:
        for name in module.__all__:
            thing = getattr(module, name)
            members = [(name, thing)]
            if inspect.isclass(thing):
                members = [
                    (f"{name}.{key}", value.fget if isinstance(value, property) else value)
                    for key, value in vars(thing).items()
                    if key == "__init__" or not key.startswith("_")
                ]
            for path, member in members:
                ours = getattr(member, "__module__", "").startswith("platt_jax")
                if inspect.isfunction(member) and ours and not member.__annotations__:
                    untyped.append(path)
    assert untyped == []
