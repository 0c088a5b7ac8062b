"""The public interface changes on purpose only, and its changes show in public_api.txt."""

import inspect

import pytest

pytest.importorskip("sklearn.base")  # "sklearn" is a folder here, too
pytest.importorskip("matplotlib")

import public_api

import platt_jax


def test_the_public_interface_is_the_stored_one():
    """Where the change is meant: python tests/public_api.py --write, and a line in CHANGELOG.md."""
    stored = public_api.STORED.read_text(encoding="utf-8")
    assert public_api.described().splitlines() == stored.splitlines()


def test_a_changed_default_or_method_shows(monkeypatch):
    class Changed:
        def predict_proba(self, scores, clip=True): ...

    Changed.__module__ = "platt_jax.changed"
    monkeypatch.setattr("platt_jax.Sigmoid", Changed)
    new = set(public_api.described().splitlines())
    assert "    .predict_proba(self, scores, clip=True)" in new


def test_every_public_function_has_an_example():
    # What these do is done to the whole process, or printed.
    others = {platt_jax.environment.show_config, platt_jax.environment.use_compilation_cache}
    for package in public_api.PACKAGES:
        for name in package.__all__:
            one = getattr(package, name)
            if inspect.isfunction(one) and one not in others:
                assert ">>>" in one.__doc__, one
    kinds = [getattr(platt_jax.curves, name) for name in platt_jax.curves.__all__]
    for one in (platt_jax.Sigmoid, *kinds):
        assert ">>>" in one.__doc__ or one is platt_jax.curves.Curve, one
