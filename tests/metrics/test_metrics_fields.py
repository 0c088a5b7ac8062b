"""Field-level errors: by plain loops, by enumeration of all labels, and on bad input."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from process_state import global_state

from platt_jax import metrics
from platt_jax.metrics import fields
from platt_jax.metrics.field_sums import grouped

ERRORS = {
    "calibration": metrics.field_calibration_error,
    "relative": metrics.field_relative_error,
    "relative 0.2": partial(metrics.field_relative_error, epsilon=0.2),
    "squared": metrics.field_squared_error,
}
PLUG_INS = [name for name in ERRORS if name != "squared"]


@pytest.fixture(params=ERRORS)
def name(request):
    return request.param


@pytest.fixture
def rows(rng):
    """Labels, probabilities and two fields; one value of "ad" has one row."""
    ad = rng.permutation(np.repeat(["one", "few", "some", "many"], [1, 4, 25, 90]))
    day = rng.choice(["Mon", "Tue", "Wed"], len(ad))
    proba = rng.beta(1.0, 2.0, len(ad)).clip(0.01, 0.99)
    labels = rng.random(len(ad)) < proba
    return labels, proba, ad, day


def plain(name, labels, proba, segments):
    """The error by loops over rows."""
    total, rows = 0.0, 0
    for value in set(segments.tolist()):
        of_rows = zip(labels, proba, segments, strict=True)
        mine = [(int(y), float(p)) for y, p, s in of_rows if s == value]
        n, off = len(mine), sum(y - p for y, p in mine)
        if name == "squared" and n > 1:
            r = [y - p for y, p in mine]
            pairs = [r[i] * r[j] for i in range(n) for j in range(n) if i != j]
            total, rows = total + n * sum(pairs) / len(pairs), rows + n
        elif name == "calibration":
            total, rows = total + abs(off), rows + n
        elif name.startswith("relative"):
            epsilon = 0.2 if name.endswith("0.2") else 0.01
            total, rows = total + n * abs(off) / sum(y + epsilon for y, _ in mine), rows + n
    return total / rows


def numbers(error):
    return np.array([x for field, x in error._asdict().items() if field != "fields"])


def assert_close(one, other, rtol=1e-10):
    np.testing.assert_allclose(numbers(one), numbers(other), rtol=rtol, atol=1e-13)


def test_values_by_loops(name, rows):
    labels, proba, *fields = rows
    for segments in fields:
        found = ERRORS[name](labels, proba, segments)
        assert found.value == pytest.approx(plain(name, labels, proba, segments), rel=1e-12)
        assert found.lower < found.upper
        size = len(set(segments.tolist()))
        assert found.n_groups == size - (name == "squared" and "one" in segments)


@pytest.mark.parametrize("name", PLUG_INS)
def test_by_chance_by_all_possible_labels(name, rng):
    """Every draw of 10 labels, weighted by its probability."""
    proba = np.append(rng.random(8), [1.0, 0.0])
    segments = np.array(list("aabbbbcccc"))
    mean = square = 0.0
    for labels in product([0, 1], repeat=10):
        chance = np.prod(np.where(labels, proba, 1 - proba))
        value = plain(name, labels, proba, segments)
        mean, square = mean + chance * value, square + chance * value**2
    found = ERRORS[name](proba > 0.5, proba, segments)
    assert found.by_chance == pytest.approx(mean, rel=1e-10)
    assert found.excess == pytest.approx(found.value - mean, rel=1e-9)


@pytest.mark.parametrize("name", PLUG_INS)
@pytest.mark.parametrize("center", [0.0, -2.0, 2.5])
def test_by_chance_where_many_labels_are_expected(name, center, rng):
    """The normal distribution with its correction for skewness, against the exact one."""
    proba = 1 / (1 + np.exp(-rng.normal(center, size=200)))
    assert min(proba.sum(), 200 - proba.sum()) > 10
    chances = np.ones(1)
    for p in proba:
        chances = np.convolve(chances, [1 - p, p])
    count = np.arange(201)
    values = np.abs(count - proba.sum()) / 200
    if name != "calibration":
        values *= 200 / (count + (0.2 if name.endswith("0.2") else 0.01) * 200)
    found = ERRORS[name](np.arange(200) < 100, proba, np.zeros(200))
    assert found.by_chance == pytest.approx(chances @ values, rel=0.004)


def test_the_field_error_is_the_error_by_bins(rng):
    """With bins as segments, it is another function's, and chance's."""
    proba = rng.random(400)
    labels = rng.random(400) < proba
    bins = np.minimum((proba * 10).astype(int), 9)
    found = metrics.field_calibration_error(labels, proba, bins)
    assert found.value == pytest.approx(metrics.expected_calibration_error(labels, proba))
    # That takes the normal mean where 10 labels are expected, without quadrature.
    assert found.by_chance == pytest.approx(metrics.ece_by_chance(labels, proba), rel=1e-6)


@pytest.mark.parametrize("n", [2, 4, 5])
def test_unbiased_by_all_possible_samples(n):
    """Rows drawn from three possible ones: the mean of values and of variances of all samples."""
    possible = [(1, 0.7, 0.2), (0, 0.6, 0.5), (1, 0.1, 0.3)]  # label, proba, chance
    truth = sum(chance * (y - p) for y, p, chance in possible) ** 2
    mean = square = variance = 0.0
    for sample in product(possible, repeat=n):
        labels, proba, chances = zip(*sample, strict=True)
        rows, (field,) = fields._read(labels, proba, ["a"] * n, None, False)
        value, estimate, _ = (x.item() for x in fields._mean_products(grouped(rows, field)))
        chance = np.prod(chances)
        mean, square = mean + chance * value, square + chance * value**2
        variance += chance * estimate
        assert value == pytest.approx(metrics.field_squared_error(labels, proba, ["a"] * n).value)
    assert mean == pytest.approx(truth, rel=1e-12)
    left_out = truth**2 if n < 4 else 0
    assert variance == pytest.approx(square - mean**2 + left_out, rel=1e-10)


def test_the_variance_is_at_least_that_of_calibrated_probabilities():
    """By all possible labels; without positives the estimate would be next to nothing."""
    proba = np.array([0.1, 0.2, 0.25])
    square = 0.0
    for labels in product([0, 1], repeat=3):
        value = metrics.field_squared_error(labels, proba, [1] * 3).value
        square += np.prod(np.where(labels, proba, 1 - proba)) * value**2
    found = metrics.field_squared_error([0] * 3, proba, [1] * 3)
    assert (found.upper - found.lower) / 2 == pytest.approx(1.959964 * square**0.5, rel=1e-6)


def test_weights_are_repeated_rows(name, rows, rng):
    labels, proba, *fields = rows
    weights = rng.integers(0, 4, len(labels))
    assert 0 in weights
    repeated = [np.repeat(x, weights) for x in (labels, proba, *fields)]
    for segments, again in zip(fields, repeated[2:], strict=True):
        one = ERRORS[name](labels, proba, segments, weights=weights)
        assert_close(one, ERRORS[name](*repeated[:2], again))


def test_several_fields_are_one_each(name, rows):
    pd = pytest.importorskip("pandas")
    labels, proba, ad, day = rows
    alone = [numbers(ERRORS[name](labels, proba, segments)) for segments in (ad, day)]
    containers = {
        "frame": pd.DataFrame({"ad": pd.Categorical(ad), "day": day}),
        "tuples": list(zip(ad.tolist(), day.tolist(), strict=True)),
        "array": np.stack([ad, day], axis=1),
    }
    for kind, segments in containers.items():
        found = ERRORS[name](labels, proba, segments)
        np.testing.assert_allclose(numbers(found).T, alone, rtol=1e-12)
        names = ["ad", "day"] if kind == "frame" else ["segment_0", "segment_1"]
        assert found.fields.tolist() == names and found.table()["field"].tolist() == names
        assert len(found.table().to_pandas()) == 2
    one = ERRORS[name](labels, proba, ad).table()
    assert one["field"].tolist() == ["segment"] and one["value"].shape == (1,)


def test_rows_in_any_order_and_ids_of_any_type(name, rows, rng):
    labels, proba, ad, _ = rows
    expected = ERRORS[name](labels, proba, ad)
    order = rng.permutation(len(labels))
    assert_close(ERRORS[name](labels[order], proba[order], ad[order]), expected)
    codes = np.unique(ad, return_inverse=True)[1]
    for segments in (codes, codes - 7, codes / 4, ad.tolist(), codes.astype("M8[D]")):
        assert_close(ERRORS[name](labels, proba, segments), expected)


def test_pieces_make_no_difference(name, rows, monkeypatch):
    labels, proba, ad, day = rows
    segments = np.stack([ad, day], axis=1)
    expected = ERRORS[name](labels, proba, segments)
    monkeypatch.setattr("platt_jax.metrics.counts._AT_ONCE", 20)
    monkeypatch.setattr("platt_jax.metrics.field_sums._GROUPS", 2)
    np.testing.assert_allclose(
        numbers(ERRORS[name](labels, proba, segments)), numbers(expected), rtol=1e-12
    )


def test_dtypes_logits_and_codings(name, rows):
    labels, proba, ad, _ = rows
    expected = ERRORS[name](labels, proba, ad)
    narrow = ERRORS[name](labels, proba.astype(np.float32), ad)
    assert narrow.value.dtype == narrow.upper.dtype == np.float32
    assert_close(narrow, expected, rtol=2e-5)
    logits = np.log(proba / (1 - proba))
    assert_close(ERRORS[name](labels, logits, ad, from_logits=True), expected)
    assert_close(ERRORS[name](2 * labels - 1, proba, ad), expected)


@pytest.mark.parametrize("where", ["labels", "proba", "weights", "infinite weight", "no weight"])
def test_nan(name, rows, where):
    labels, proba, ad, _ = rows
    labels, proba, weights = labels.astype(float), proba.copy(), np.ones(len(labels))
    if where == "no weight":
        weights[:] = 0
    else:
        given = {"labels": labels, "proba": proba}.get(where, weights)
        given[5] = np.inf if where == "infinite weight" else np.nan
    found = ERRORS[name](labels, proba, ad, weights=weights)
    assert np.isnan([found.value, found.lower, found.upper]).all()
    if where in ("labels", "proba"):
        weights[5] = 0
        kept = np.arange(len(labels)) != 5
        assert_close(
            ERRORS[name](labels, proba, ad, weights=weights),
            ERRORS[name](labels[kept], proba[kept], ad[kept]),
        )


def test_degenerate_rows_are_silent(name):
    """One row, certainties, one class: warnings are errors here."""
    for labels, proba, segments in (
        ([1], [0.3], ["a"]),
        ([1, 0, 0], [1.0, 0.0, 0.0], [1, 1, 2]),
        ([0, 0, 0], [1.0, 0.0, 0.0], [1, 1, 2]),
        ([0] * 40, [1e-9] * 40, [1] * 40),
        ([1, 0, 1] * 30, [0.5] * 90, [1] * 90),
    ):
        for weights in (None, 0.3, 2.5):
            found = ERRORS[name](labels, proba, segments, weights=weights)
            if name != "squared":
                assert np.isfinite(numbers(found)).all()
    alone = metrics.field_squared_error([1], [0.3], ["a"])
    assert np.isnan(alone.value) and alone.n_groups == 0
    before = global_state()
    ERRORS[name]([1, 0], [0.5, 0.6], [1, 1])
    assert global_state() == before


def test_what_is_refused(name, rows):
    labels, proba, ad, _ = rows
    error = ERRORS[name]
    for given, message in (
        (dict(segments=ad[1:]), "segments: expected one id per row"),
        (dict(segments=[None] * len(ad)), "segments: expected ids, got None"),
        (dict(proba=proba[None]), "proba: expected a flat array with rows"),
        (dict(labels=[], proba=[], segments=[]), "proba: expected a flat array with rows"),
        (dict(labels=labels[1:]), "labels: expected a shape"),
        (dict(labels=labels + 2), "labels: expected bool"),
        (dict(proba=proba + 1), r"proba: expected probabilities in \[0, 1\]"),
        (dict(weights=-1), "weights: expected >= 0"),
        (dict(level=95), r"level: expected a number in \(0, 1\), got 95"),
    ):
        with pytest.raises(ValueError, match=message):
            error(**{"labels": labels, "proba": proba, "segments": ad} | given)


@pytest.mark.parametrize("epsilon", [0, -1, np.nan, np.inf, "1"])
def test_a_bad_epsilon(epsilon):
    with pytest.raises(ValueError, match="epsilon: expected a number > 0, got"):
        metrics.field_relative_error([0, 1], [0.1, 0.9], [0, 1], epsilon=epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("center", [0.0, -4.6])
@pytest.mark.parametrize("n", [3, 50])
def test_corrections_have_no_bias_and_intervals_cover(name, center, n, rng):
    """Calibrated probabilities with up to 1 % of positives; chance makes most of the plug-in."""
    segments = np.repeat(np.arange(100), n)
    found = []
    for _ in range(400):
        logits = rng.normal(center, size=len(segments))
        labels = rng.random(len(segments)) < 1 / (1 + np.exp(-logits))
        error = ERRORS[name](labels, logits, segments, from_logits=True)
        corrected = error.value if name == "squared" else error.excess
        found.append((corrected, error.lower <= 0 <= error.upper))
    corrected, covered = np.array(found, float).T
    assert abs(corrected.mean()) < 4 * corrected.std() / 20
    assert covered.mean() > 0.92
