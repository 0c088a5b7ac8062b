"""The public interface changes on purpose only, and its changes show in public_api.txt."""

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
