"""What is learnt, as text and compared."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from data import batch
from test_scalers import FIXED, ONE_OF_EACH, PROBLEMS, ROWS, each

from platt_jax.scalers import BetaCalibration, Binning, Clip, PlattScaling, Softmax

KINDS = [*ONE_OF_EACH, PlattScaling()]


@pytest.fixture
def fitted_of(rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    return lambda scaler: scaler.fit(scores, labels)


@each(KINDS)
def test_a_batch_is_a_few_lines_of_text(scaler, fitted_of):
    fitted = fitted_of(scaler)
    text = repr(fitted)
    assert text.startswith(f"{type(fitted).__name__}: ")
    assert text.count("\n") <= 2 and len(text) < 300
    assert scaler in FIXED or (f"{PROBLEMS} " in text and "float64" in text)


@pytest.mark.slow
def test_text_of_some(fitted_of):
    assert repr(fitted_of(Binning(4))) == (
        "FittedBinning: 20 problems, float64: probabilities (..., 4), edges (..., 3)"
    )
    assert repr(fitted_of(Softmax())) == "FittedSoftmax: no parameters"
    one = BetaCalibration("probabilities").fit(np.float32([0.5, 0.5]), [0, 1])
    assert repr(one) == (
        "FittedBetaCalibration: 1 problem, float32: a=0, b=0, c=0, inputs='probabilities'"
    )
    assert repr(PlattScaling().fit([1.0, 2.0, 3.0], [0, 1, 0])).startswith("FittedPlatt: 1 sigmoid")


def test_text_of_anything_that_takes_the_place_of_arrays(fitted_of):
    fitted = fitted_of(Binning(4))
    assert "edges (..., 3)" in repr(jax.eval_shape(lambda x: x, fitted))
    assert "edges=" in repr(jax.tree.map(lambda _: "anything", fitted))
    traced = []
    jax.jit(lambda x: traced.append(repr(x)))(fitted)
    assert "edges (..., 3)" in traced[0]


@each(KINDS)
def test_equal_by_value(scaler, fitted_of):
    one, other = fitted_of(scaler), fitted_of(scaler)
    assert one == other
    assert scaler in FIXED or one != jax.tree.map(lambda x: x[1:], other)
    assert one != "anything"


@pytest.mark.slow
def test_nan_is_equal_and_what_differs_is_not():
    with pytest.warns(RuntimeWarning, match="NaN"):
        one, other = (Binning(2).fit([[np.nan, 1.0], [0.0, 1.0]], [0, 1]) for _ in range(2))
    assert np.isnan(one.edges).any() and one == other
    assert one != replace(one, edges=one.edges + 1)
    flat = [BetaCalibration(x).fit([0.5, 0.5], [0, 1]) for x in ("scores", "probabilities")]
    assert flat[0].a == flat[1].a and flat[0] != flat[1]
    assert Softmax().fit([0.0], [0]) != Clip().fit([0.0], [0])


def test_class_ids():
    with pytest.raises(ValueError, match=r"got 2; for class ids pass labels == classes\[:, None\]"):
        Binning().fit(np.zeros((4, 3)), [0, 1, 2, 0])
