"""Input as users hand it over: containers, shapes that say something else than meant, hints."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from reference import problem

import platt_jax as pj
from platt_jax import Options, Status

LABELS = np.array([0, 1, 0, 1, 1, 0])


def fit_bad(*arguments, **options):
    with pytest.warns(RuntimeWarning, match=r'Options\(non_finite="omit"\) fits them without'):
        return pj.fit(*arguments, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_masked_rows_are_not_finite(dtype):
    scores = np.array([1, 5, 2, 3, 4, 9])
    masked = np.ma.masked_array(scores.astype(dtype), scores == 9)
    omit = Options(non_finite="omit")
    expected = pj.fit(scores[:5].astype(dtype), LABELS[:5])
    assert fit_bad(masked, LABELS).status == Status.NON_FINITE
    assert pj.fit(masked, LABELS, options=omit) == expected
    labels = np.ma.masked_array(LABELS, scores == 9)
    assert fit_bad(scores, labels).status == Status.NON_FINITE
    assert pj.fit(scores.astype(dtype), labels, options=omit) == expected
    weights = np.ma.masked_array(np.ones(6), scores == 9)
    assert fit_bad(scores, LABELS, weights=weights).status == Status.NON_FINITE
    assert pj.solve(masked.astype(np.float32), LABELS).status == Status.NON_FINITE
    unmasked = np.ma.masked_array(scores.astype(dtype))
    assert pj.fit(unmasked, LABELS) == pj.fit(scores.astype(dtype), LABELS)
    sigmoid = pj.Sigmoid(-1.0, 0.0)
    by_segment = pj.fit_segments(scores.astype(float), LABELS, LABELS)
    assert np.isnan(by_segment.predict_proba(masked, LABELS)[-1])
    assert np.isnan(sigmoid.predict_proba(masked.astype(float))[-1])


def test_a_column_vector_is_told_from_a_batch(rng):
    scores, labels = problem(rng, 50)
    with pytest.warns(
        RuntimeWarning, match=r"50 problems of one row each.*scores.ravel\(\)"
    ) as seen:
        pj.fit(scores[:, None], labels[:, None])
    assert [warning.filename for warning in seen] == [__file__]
    one_hot = np.eye(5, dtype=int)[rng.integers(0, 5, 50)]
    with pytest.warns(RuntimeWarning, match="50 problems of 5 rows.*see fit_one_vs_rest"):
        pj.fit(rng.normal(size=(50, 5)), one_hot)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pj.fit(scores[None], labels[None])
        pj.fit(scores[:1], labels[:1])
        pj.fit(rng.normal(size=(50, 5)), rng.random((50, 5)) < 0.5)
        pj.fit(rng.normal(size=(5, 50)), one_hot.T)
    with pytest.raises(ValueError, match=r"scores: expected a flat array.*scores.ravel\(\)"):
        pj.fit_segments(scores[:, None], labels, labels)


def test_labels_of_words_name_the_comparison():
    scores = np.arange(4.0)
    for labels, word in (
        (["no", "yes"] * 2, "yes"),
        (np.array(["ham", "spam"] * 2, object), "spam"),
    ):
        with pytest.raises(ValueError, match=f"labels: expected .* labels == '{word}'"):
            pj.fit(scores, labels)
    with pytest.raises(ValueError, match=r"labels: expected .*, got dtype object$"):
        pj.fit(scores, np.array([{}, {}, {}, {}], object))


def test_weights_of_one_vs_rest_are_one_per_row(rng):
    scores, labels = rng.normal(size=(6, 3)), np.arange(6) % 3
    for weights in (np.ones((6, 3)), np.ones((3, 6)), np.ones(3)):
        with pytest.raises(ValueError, match=r"weights: expected one per row, \(6,\), got shape"):
            pj.fit_one_vs_rest(scores, labels, weights=weights)
    assert pj.fit_one_vs_rest(scores, labels, weights=1) == pj.fit_one_vs_rest(
        scores, labels, weights=np.ones(6)
    )


class Tensor:
    """What a tensor of torch does when NumPy asks for it."""

    def __init__(self, values, dtype="torch.float32", detached=False):
        self.values, self.dtype, self.detached = values, dtype, detached

    def detach(self):
        return Tensor(self.values, self.dtype, detached=True)

    def cpu(self):
        return self

    def float(self):
        return Tensor(self.values, detached=self.detached)

    def __array__(self, dtype=None, copy=None):
        if not self.detached:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return np.asarray(self.values, np.float32)


def test_tensors_that_numpy_does_not_take():
    scores = np.array([1, 5, 2, 3, 4, 9], np.float32)
    expected = pj.fit(scores, LABELS)
    for dtype in ("torch.float32", "torch.bfloat16"):
        assert pj.fit(Tensor(scores, dtype), Tensor(LABELS)) == expected
        assert pj.solve(Tensor(scores, dtype), LABELS).A == pytest.approx(expected.A, rel=1e-4)
    torch = pytest.importorskip("torch")
    for tensor in (torch.tensor(scores, requires_grad=True), torch.tensor(scores).bfloat16()):
        assert pj.fit(tensor, torch.tensor(LABELS)) == expected
        assert pj.solve(tensor, LABELS).A == pytest.approx(expected.A, rel=1e-4)


def test_arrays_of_other_libraries(rng):
    scores, labels = problem(rng, 30)
    expected = pj.fit(scores.astype(np.float32), labels)
    assert pj.fit(jnp.asarray(scores, jnp.float32), jnp.asarray(labels)) == expected
    assert pj.fit(memoryview(scores.astype(np.float32)), labels) == expected
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"score": scores.astype(np.float32), "label": labels})
    assert pj.fit(frame["score"], frame["label"]) == expected
    with pytest.raises(ValueError, match="scores: expected numbers, got dtype object"):
        pj.fit(np.array([None] * 30), labels)
