"""What holds for every metric alike: batches, weights, dtypes, degenerate and bad input."""

import re
from functools import partial

import jax
import numpy as np
import pytest
from process_state import global_state

from platt_jax import metrics


def _auc(labels, proba, *, weights=None, from_logits=False):
    return metrics.roc_auc(labels, proba, weights=weights)


EVERY = {
    "log_loss": metrics.log_loss,
    "brier_score": metrics.brier_score,
    "brier_decomposition": metrics.brier_decomposition,
    "brier_decomposition bins": partial(metrics.brier_decomposition, n_bins=7),
    "brier_decomposition mass": partial(metrics.brier_decomposition, n_bins=7, strategy="quantile"),
    "reliability_curve": metrics.reliability_curve,
    "reliability_curve mass": partial(metrics.reliability_curve, n_bins=4, strategy="quantile"),
    "ece": metrics.expected_calibration_error,
    "ece by chance": metrics.ece_by_chance,
    "interval of ece": partial(metrics.ece_interval, level=0.8),
    "reliability_curve positives": partial(
        metrics.reliability_curve, n_bins=4, strategy="positives"
    ),
    "ece mass": partial(metrics.expected_calibration_error, strategy="quantile"),
    "mce": metrics.maximum_calibration_error,
    "mce mass": partial(metrics.maximum_calibration_error, strategy="quantile"),
    "smooth_ece": metrics.smooth_ece,
    "cox_calibration": metrics.cox_calibration,
    "spiegelhalter": metrics.spiegelhalter,
    "hosmer_lemeshow": metrics.hosmer_lemeshow,
    "hosmer_lemeshow in_sample": partial(metrics.hosmer_lemeshow, in_sample=True, n_bins=5),
    "roc_auc": _auc,
}


@pytest.fixture(params=EVERY.values(), ids=EVERY)
def metric(request):
    return request.param


@pytest.fixture
def close(request, metric):
    tolerance = 1e-10
    if metric is metrics.cox_calibration:
        tolerance = 1e-7  # its fit stops at 1e-8 standard errors from the optimum

    def check(one, other):
        one, other = jax.tree.leaves(one), jax.tree.leaves(other)
        assert len(one) == len(other) > 0
        for a, b in zip(one, other, strict=True):
            assert np.shape(a) == np.shape(b)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 100)

    return check


@pytest.fixture
def rows(rng):
    """Labels and tied, somewhat miscalibrated probabilities of 2 x 3 problems."""
    proba = np.round(rng.beta(1.2, 1.5, size=(2, 3, 60)), 2).clip(0.01, 0.99)
    labels = (rng.random(proba.shape) < 0.15 + 0.7 * proba).astype(np.int8)
    return labels, proba


def _at(results, index):
    return jax.tree.map(lambda x: x[index], results)


def _all_nan(results):
    floats = [x for x in jax.tree.leaves(results) if np.asarray(x).dtype.kind == "f"]
    return all(np.isnan(x).all() for x in floats)


def _no_nan(results):
    return not any(np.isnan(x).all() for x in jax.tree.leaves(results))


def test_a_batch_is_a_loop(metric, close, rows):
    labels, proba = rows
    together = metric(labels, proba)
    for index in np.ndindex(2, 3):
        close(_at(together, index), metric(labels[index], proba[index]))
    assert _no_nan(together)


def test_labels_and_weights_broadcast(metric, close, rows, rng):
    labels, proba = rows
    weights = rng.integers(1, 4, size=(3, 1))
    together = metric(labels[0, 0], proba, weights=weights)
    for i, j in np.ndindex(2, 3):
        close(
            _at(together, (i, j)),
            metric(labels[0, 0], proba[i, j], weights=np.full(60, weights[j, 0])),
        )


def test_weights_are_repeated_rows(metric, close, rows, rng):
    labels, proba = (x[0, 0] for x in rows)
    weights = rng.integers(0, 4, size=60)
    assert 0 in weights
    repeated = np.repeat(labels, weights), np.repeat(proba, weights)
    close(metric(labels, proba, weights=weights), metric(*repeated))


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in EVERY
        if not name.startswith(("rel", "cox", "spi", "hos", "ece by", "interval"))
    ],
)
def test_scores_and_errors_know_no_scale_of_weights(name, rows, rng):
    labels, proba = rows
    weights = rng.integers(0, 4, size=60)
    one, other = (
        jax.tree.leaves(EVERY[name](labels, proba, weights=w)) for w in (weights, weights / 7)
    )
    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-14)


def test_the_order_of_rows_does_not_matter(metric, close, rows, rng):
    labels, proba = (x[0, 0] for x in rows)
    order = rng.permutation(60)
    close(metric(labels, proba), metric(labels[order], proba[order]))


def test_logits_are_as_good_as_probabilities(metric, close, rows):
    labels, proba = rows
    # Steps of 1/8 in the logit: no probability near the edge of a bin but 1/2, which is exact.
    logits = np.round(8 * np.log(proba / (1 - proba))) / 8
    close(
        metric(labels, logits, from_logits=True),
        metric(labels, 1 / (1 + np.exp(-logits))),
    )


def test_codings_of_labels(metric, close, rows):
    labels, proba = rows
    expected = metric(labels, proba)
    for coding in (labels == 1, 2 * labels - 1, labels.astype(float), labels.tolist()):
        close(metric(coding, proba), expected)


def test_float32_in_float32_out(metric, rows):
    labels, proba = rows
    proba = proba.astype(np.float32)
    # No probability is on an edge of bins, which is rounded as the probabilities are.
    proba += np.float32(1e-4)
    narrow, wide = metric(labels, proba), metric(labels, proba.astype(np.float64))
    for a, b in zip(jax.tree.leaves(narrow), jax.tree.leaves(wide), strict=True):
        if a.dtype.kind == "f":
            assert (a.dtype, b.dtype) == (np.float32, np.float64)
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


def test_one_problem_gives_scalars(metric, rows):
    labels, proba = (x[0, 0] for x in rows)
    for x in jax.tree.leaves(metric(labels, proba)):
        assert np.ndim(x) == 0 or np.shape(x) in {(4,), (10,)}  # bins


@pytest.mark.parametrize("where", ["labels", "proba", "weights", "infinite weight"])
def test_a_bad_number_spoils_its_own_problem_only(metric, close, rows, where):
    labels, proba = rows
    weights = np.ones(proba.shape)
    good = metric(labels, proba, weights=weights)
    labels = labels.astype(float)
    proba = proba.copy()
    at = (1, 1, 5)
    if where == "labels":
        labels[at] = np.nan
    elif where == "proba":
        proba[at] = np.nan
    else:
        weights[at] = np.nan if where == "weights" else np.inf
    spoilt = metric(labels, proba, weights=weights)
    assert _all_nan(_at(spoilt, (1, 1)))
    for index in set(np.ndindex(2, 3)) - {(1, 1)}:
        close(_at(spoilt, index), _at(good, index))


def test_a_row_of_weight_0_is_gone_whatever_it_holds(metric, close, rows):
    labels, proba = (x[0, 0] for x in rows)
    expected = metric(labels, proba)
    labels = np.append(labels.astype(float), [np.nan, 1, 0])
    proba = np.append(proba, [0.5, np.nan, 0.999])
    close(metric(labels, proba, weights=np.append(np.ones(60), [0, 0, 0])), expected)


def test_no_weight_at_all_is_nan(metric, rows):
    labels, proba = rows
    assert _all_nan(metric(labels, proba, weights=0.0))


@pytest.mark.filterwarnings("ignore:proba. probabilities of 0 or 1")  # by cox_calibration
@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("value", [0.0, 0.3, 0.5, 1.0])
def test_degenerate_problems_are_silent_and_alone(metric, close, rows, label, value):
    """One class, equal probabilities, certainties: warnings are errors here."""
    labels, proba = (x.copy() for x in rows)
    expected = metric(labels, proba)
    labels[0, 0], proba[0, 0], proba[1, 2] = label, value, value
    got = metric(labels, proba)
    for index in ((0, 1), (0, 2), (1, 0), (1, 1)):
        close(_at(got, index), _at(expected, index))
    close(_at(got, (0, 0)), metric(labels[0, 0, :1], proba[0, 0], weights=1))
    metric([label], [value])


def test_infinite_logits_are_no_numbers(rows):
    labels, _ = rows
    logits = np.where(labels == 1, 1.0, -1.0)
    logits[0, 0, 0] = np.inf
    loss = metrics.log_loss(labels, logits, from_logits=True)
    assert np.isnan(loss[0, 0]) and np.isnan(loss).sum() == 1


def test_nothing_global_changes(metric, rows):
    before = global_state()
    metric(*rows)
    assert global_state() == before


BAD = {
    "proba: expected probabilities in .0, 1., got 1.5; for logits": dict(proba=[0.5, 1.5, 0.2]),
    "proba: expected probabilities in .0, 1., got -0.5": dict(proba=[0.5, -0.5, 0.2]),
    "proba: expected .*rows, got shape .0,.": dict(proba=[], labels=[]),
    "proba: expected .*rows, got shape ..": dict(proba=0.5, labels=1),
    "proba: expected numbers": dict(proba=["a", "b", "c"]),
    "labels: expected a shape that broadcasts to .3,., the shape of proba, got .2,.": dict(
        labels=[0, 1]
    ),
    "labels: expected bool, .0, 1. or .-1, .1., got 2": dict(labels=[0, 1, 2]),
    "weights: expected a shape that broadcasts to .3,., the shape of proba, got .4,.": dict(
        weights=[1] * 4
    ),
    "weights: expected >= 0, got -1": dict(weights=[1, -1, 1]),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input(metric, message):
    if metric is _auc:
        if "probabilities" in message:
            pytest.skip("any scores will do")
        message, given = message.replace("proba", "scores"), BAD[message]
    else:
        given = BAD[message]
    given = {"labels": [0, 1, 1], "proba": [0.1, 0.4, 0.9], "weights": None} | given
    with pytest.raises(ValueError, match=message):
        metric(given["labels"], given["proba"], weights=given["weights"])


@pytest.mark.parametrize(
    "function",
    [
        metrics.reliability_curve,
        metrics.expected_calibration_error,
        metrics.maximum_calibration_error,
        metrics.brier_decomposition,
        metrics.hosmer_lemeshow,
    ],
)
@pytest.mark.parametrize("n_bins", [0, -1, 2.0, True, "10"])
def test_bad_numbers_of_bins(function, n_bins):
    with pytest.raises(
        ValueError, match=r"n_bins: expected an integer >= 1(, or .cube_root.)?, got"
    ):
        function([0, 1], [0.1, 0.9], n_bins=n_bins)


def test_bad_strategy_and_confidence():
    with pytest.raises(ValueError, match=r"strategy: expected one of .*, got 'width'"):
        metrics.expected_calibration_error([0, 1], [0.1, 0.9], strategy="width")
    for level in (0, 1, 95, float("nan"), "95%"):
        with pytest.raises(ValueError, match="level: expected a number in"):
            metrics.reliability_curve([0, 1], [0.1, 0.9], level=level)


@pytest.mark.parametrize("metric", [metrics.log_loss, metrics.brier_score, metrics.roc_auc])
def test_probabilities_of_many_classes(metric, rng):
    """The message names what to pass, and that gives a number per class."""
    proba = rng.dirichlet(np.ones(3), 40)
    labels = np.arange(40) % 3
    name = "scores" if metric is metrics.roc_auc else "proba"
    advice = re.escape(
        f"for class ids pass labels == classes[:, None] and {name}.T, a problem per class, "
        f"where {name} has shape (N, C)"
    )
    with pytest.raises(ValueError, match=f"^labels: expected bool.* got 2; {advice}$"):
        metric(labels, proba)
    with pytest.raises(ValueError, match=f"^labels: expected a shape.* got .40,.; {advice}$"):
        metric(labels % 2, proba)
    with pytest.raises(ValueError, match=r"^labels: expected a shape.* got .39,.$"):
        metric(labels[1:] % 2, proba)
    classes = np.arange(3)
    found = metric(labels == classes[:, None], proba.T)
    assert found.tolist() == [metric(labels == c, proba[:, c]) for c in classes]


@pytest.mark.parametrize("scale", [2.0**1010, 2.0**-1010])
def test_weights_whose_products_are_out_of_range(scale, rng):
    proba = rng.random((3, 60))
    labels = rng.random((3, 60)) < proba
    weights = rng.integers(1, 4, 60)
    by_mass = partial(metrics.expected_calibration_error, n_bins=5, strategy="quantile")
    for metric in (metrics.roc_auc, by_mass):
        plain, scaled = (metric(labels, proba, weights=w) for w in (weights, weights * scale))
        np.testing.assert_array_equal(plain, scaled)
