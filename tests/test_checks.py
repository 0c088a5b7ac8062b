"""Input as users hand it over: containers, shapes that say something else than meant, hints."""

import warnings
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import problem

import platt_jax as pj
from platt_jax import Options, Status

LABELS = np.array([0, 1, 0, 1, 1, 0])


def fit_bad(*arguments, **options):
    with pytest.warns(RuntimeWarning, match=r'Options\(non_finite="omit"\) fits them without'):
        return pj.fit(*arguments, **options)


@pytest.mark.slow
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


def test_what_is_missing_among_objects_is_named():
    pandas = pytest.importorskip("pandas")
    objects = np.array([1.0, None, 0.0], object)
    for values, what in ((objects, "None"), (pandas.array([True, None, False]), "NA")):
        message = f"expected .*, got dtype object with {what} in it; convert to float, with NaN"
        with pytest.raises(ValueError, match=f"labels: {message}"):
            pj.fit([1.0, 2.0, 3.0], values)
        with pytest.raises(ValueError, match=message.replace(".*", "numbers")):
            pj.fit([1.0, 2.0, 3.0], [0, 1, 0], weights=values)
    # Databases' exact numbers, in a column of pandas.
    values = pandas.Series([Decimal(0), Decimal(1), Decimal(1)])
    for arguments in ((values, [0, 1, 1]), ([1.0, 2.0, 3.0], values)):
        with pytest.raises(ValueError, match="got dtype object of Decimal; convert to float"):
            pj.fit(*arguments)


def test_weights_of_one_vs_rest_are_one_per_row(rng):
    scores, labels = rng.normal(size=(6, 3)), np.arange(6) % 3
    for weights in (np.ones((6, 3)), np.ones((3, 6)), np.ones(3)):
        with pytest.raises(ValueError, match=r"weights: expected one per row, \(6,\), got shape"):
            pj.fit_one_vs_rest(scores, labels, weights=weights)
    assert pj.fit_one_vs_rest(scores, labels, weights=1) == pj.fit_one_vs_rest(
        scores, labels, weights=np.ones(6)
    )


NO_NUMBERS = {
    "text": np.array(["1", "2", "3"]),
    "objects": np.array([1.0, None, 2.0], object),
    "dates": np.arange(3).astype("M8[D]"),
    "complex": np.ones(3) + 1j,
}


@pytest.mark.parametrize("values", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_predictions_are_of_numbers(rng, values):
    scores, labels = problem(rng, 6)
    by_segment = pj.fit_segments(scores, labels, LABELS)
    by_class = pj.fit_one_vs_rest(rng.normal(size=(6, 3)), np.arange(6) % 3)
    sigmoid = by_segment.fallback
    for predict in (
        sigmoid.predict_proba,
        sigmoid.log_proba,
        sigmoid.logit,
        lambda scores: by_segment.predict_proba(scores, [0, 1, 0]),
        lambda scores: by_class.predict_proba(scores[None]),
    ):
        with pytest.raises(ValueError, match="scores: expected numbers, got dtype"):
            predict(values)


def test_scores_of_another_batch_than_the_sigmoids(rng):
    sigmoid = pj.Sigmoid(np.ones(2), np.ones(2))
    for of_numpy in (sigmoid, pj.Sigmoid(jnp.ones(2), jnp.ones(2))):
        with pytest.raises(ValueError, match=r"scores: expected .*\(2,\) and \(2,\), got \(3, 5\)"):
            of_numpy.predict_proba(np.zeros((3, 5)))


def test_priors_of_any_container(rng):
    scores, labels = problem(rng, 30)
    mean, precision = np.array([-1.0, 0.5]), np.eye(2)
    expected = pj.fit(scores, labels, prior=pj.GaussianPrior(mean, precision))
    for one in ((mean.tolist(), precision.tolist()), (jnp.asarray(mean), jnp.asarray(precision))):
        assert pj.fit(scores, labels, prior=pj.GaussianPrior(*one)) == expected
    for bad, message in (
        (["a", "b"], "prior: expected numbers, got dtype"),
        (1j * mean, "prior: expected numbers, got dtype"),
        ({}, "prior: expected numbers, got dtype"),
        (np.ma.masked_array(mean, [True, False]), "prior: expected finite numbers"),
    ):
        prior = pj.GaussianPrior(bad, precision)
        for fit in (pj.fit, pj.solve):
            with pytest.raises(ValueError, match=message):
                fit(scores, labels, prior=prior)
    with pytest.raises(ValueError, match="prior: expected an array, got a traced one"):
        jax.jit(lambda x: pj.fit(scores, labels, prior=pj.GaussianPrior(x, precision)).A)(mean)


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


@pytest.mark.slow
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


@pytest.mark.on_cpu
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


def test_decimal_commas_are_named():
    with pytest.raises(ValueError, match=r"scores: .* '0,5'; convert .*, and its decimal comma to"):
        pj.fit(["0,5", "1,5"], [0, 1])
    with pytest.raises(ValueError, match=r"'0\.5'; convert it to float, with NaN"):
        pj.fit(["0.5", "1.5"], [0, 1])
