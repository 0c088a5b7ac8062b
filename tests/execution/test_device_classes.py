"""Fits by class of arrays on a GPU: those of the host's arrays, without a copy of rows to it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import accelerated, assert_rows_stay, assert_same_fit, outcome

import platt_jax as pj

pytestmark = pytest.mark.slow  # compiles many programs

NAMES = np.array([7, -3, 12])


@pytest.fixture(autouse=True)
def on_accelerator(monkeypatch):
    """JAX arrays are taken for arrays on an accelerator."""
    with accelerated(monkeypatch, np.float32):
        yield


@pytest.fixture
def rows(rng):
    """Scores (N, 3) and the column of each row's class."""
    which = rng.integers(0, 3, 400)
    return (rng.normal(size=(400, 3)) + np.eye(3)[which]).astype(np.float32), which


def assert_same(found, expected):
    """The same classes and fits; those found are JAX arrays."""
    np.testing.assert_array_equal(found.classes, expected.classes)
    np.testing.assert_array_equal(found.by_class.keys, expected.by_class.keys)
    assert found.multilabel == expected.multilabel
    assert_same_fit(found.fit, expected.fit, np.float32)


def test_class_ids(monkeypatch, rows):
    scores, which = rows
    there, labels = jnp.asarray(scores), NAMES[which]
    for classes in (None, NAMES):
        expected = pj.fit_one_vs_rest(scores, labels, classes=classes)
        for y in (jnp.asarray(labels), labels):
            assert_same(pj.fit_one_vs_rest(there, y, classes=classes), expected)
    texts = np.array(["b", "c", "a"])[which]
    assert_same(pj.fit_one_vs_rest(there, texts), pj.fit_one_vs_rest(scores, texts))

    def job(f, y):
        return pj.fit_one_vs_rest(f, y, classes=NAMES).fit.A

    many = (jnp.asarray(np.concatenate([x] * 10)) for x in (scores, labels))
    assert_rows_stay(monkeypatch, job, list(many), 3_999)


def test_several_labels(rows):
    scores, which = rows
    labels = np.eye(3, dtype=bool)[which] | (np.arange(400) % 5 == 0)[:, None]
    weights, offset = np.arange(400) % 3, np.linspace(-1, 1, 1200).reshape(400, 3)
    more = dict(weights=weights, offset=offset.astype(np.float32), classes=NAMES)
    expected = pj.fit_one_vs_rest(scores, labels, **more)
    for place in (jnp.asarray, np.asarray):
        there = {name: place(x) for name, x in more.items() if name != "classes"}
        found = pj.fit_one_vs_rest(jnp.asarray(scores), place(labels), classes=NAMES, **there)
        assert_same(found, expected)
    held = pj.ClassRows(*map(jnp.asarray, (scores, labels)), NAMES)
    assert repr(held).startswith("ClassRows: 400 rows of 3 classes, float32, on ")
    assert_same(pj.fit_one_vs_rest(held), pj.fit_one_vs_rest(scores, labels, classes=NAMES))
    pairs = held.pairs()
    for x, y in zip(pairs[:3], pj.ClassRows(scores, labels, NAMES).pairs()[:3], strict=True):
        np.testing.assert_array_equal(x, y)


def test_pooling(rows):
    scores, which = rows
    found = pj.fit_one_vs_rest(*map(jnp.asarray, rows), pooling="complete")
    assert_same(found, pj.fit_one_vs_rest(scores, which, pooling="complete"))


def test_other_curves_copy_rows(rows):
    scores, which = rows
    with jax.transfer_guard_device_to_host("allow"):
        found = pj.fit_one_vs_rest(*map(jnp.asarray, rows), curve="isotonic")
    expected = pj.fit_one_vs_rest(scores, which, curve="isotonic")
    np.testing.assert_array_equal(found.predict_proba(scores), expected.predict_proba(scores))
    with pytest.raises(ValueError, match="scores: expected arrays in memory beside curve"):
        pj.fit_one_vs_rest(pj.ClassRows(*map(jnp.asarray, rows)), curve="isotonic")


def test_bad_arguments_as_on_the_host(rows):
    scores, which = rows
    for f, y, more in (
        (scores[:, 0], which, {}),
        (scores, which, {"classes": [0, 1]}),
        (scores, which, {"classes": [0, 1, 3]}),
        (scores[:, :2], which, {}),
        (scores, which, {"weights": np.ones((400, 3))}),
        (scores, which, {"weights": -np.ones(400)}),
        (scores, which, {"offset": np.ones(7)}),
    ):
        _, expected = outcome(pj.fit_one_vs_rest, f, y, **more)
        assert isinstance(expected, str)
        assert outcome(pj.fit_one_vs_rest, jnp.asarray(f), jnp.asarray(y), **more)[1] == expected
        assert outcome(pj.fit_one_vs_rest, jnp.asarray(f), y, **more)[1] == expected
    for y in (which[1:], which / 2):
        with pytest.raises(ValueError, match=r"labels: expected integers \(400,\) or"):
            pj.fit_one_vs_rest(jnp.asarray(scores), jnp.asarray(y))
    with pytest.raises(ValueError, match="pos_label: expected None for labels on a device"):
        pj.fit_one_vs_rest(*map(jnp.asarray, rows), pos_label=1)
