"""The multicalibration error: by plain loops, beside mcgrad, and its interval and p-value."""

import math
import warnings

import numpy as np
import pytest

from platt_jax import metrics
from platt_jax.metrics.multicalibration import kuiper_p_value


@pytest.mark.parametrize("weight", [1e3, 1e17, 1e300])
def test_a_group_keeps_its_statistic_beside_one_of_large_weights(rng, weight):
    """Of weights of 1e17 the other groups had 0 and p-values of 1; of 1e300 they were left out."""
    proba, city = rng.uniform(0.1, 0.9, 300), np.repeat(["Bern", "Oslo", "Rome"], 100)
    labels = rng.random(300) < proba**2
    given = np.where(city == "Oslo", weight, 1.0)
    found = metrics.multicalibration_error(labels, proba, segments=city, weights=given).groups
    for name in ("Bern", "Rome"):
        mine = city == name
        kuiper, sd = plain(labels[mine], proba[mine])
        (k,) = np.flatnonzero(found["group"] == name)
        np.testing.assert_allclose(found["sigma"][k], kuiper / sd, rtol=1e-12)
        np.testing.assert_allclose(found["p_value"][k], kuiper_p_value(kuiper / sd), rtol=1e-9)
        assert found["rows"][k] == 100


@pytest.fixture
def rows(rng):
    """Labels, tied probabilities, five overlapping masks, and two fields."""
    n = 300
    proba = np.round(rng.beta(1.0, 2.0, n), 2).clip(0.01, 0.99)
    labels = rng.random(n) < proba
    masks = rng.random((5, n)) < np.array([0.9, 0.5, 0.3, 0.1, 0.0])[:, None]
    city = rng.choice(["Bern", "Oslo", "Rome"], n, p=[0.5, 0.45, 0.05])
    return labels, proba, masks, np.stack([city, rng.choice(["x", "y"], n)], axis=1)


def plain(labels, proba):
    """The Kuiper statistic and its standard deviation by loops over thresholds and rows."""
    n, sums = len(labels), [0.0]
    for threshold in set(proba.tolist()):
        sums.append(sum(y - p for y, p in zip(labels, proba, strict=True) if p <= threshold) / n)
    variance = sum(p * (1 - p) for p in proba) / n**2
    return max(sums) - min(sums), math.sqrt(variance)


def numbers(error):
    return np.array(error[:-2], float)


def test_values_by_loops(rows):
    labels, proba, masks, fields = rows
    found = metrics.multicalibration_error(labels, proba, masks, segments=fields, min_rows=20)
    of_fields = {
        (f"segment_{i}", value): fields[:, i] == value
        for i in range(2)
        for value in np.unique(fields[:, i])
    }
    expected = {("all rows", "all rows"): np.ones(len(labels), bool)}
    expected |= {("mask", i): mask for i, mask in enumerate(masks)} | of_fields
    expected = {name: mask for name, mask in expected.items() if mask.sum() >= 20}
    table = found.groups
    assert list(zip(table["field"].tolist(), table["group"], strict=True)) == list(expected)
    sigmas = []
    for i, mask in enumerate(expected.values()):
        statistic, sd = plain(labels[mask], proba[mask])
        assert table["rows"][i] == mask.sum()
        assert table["kuiper"][i] == pytest.approx(statistic, rel=1e-11)
        sigmas.append(statistic / sd)
    np.testing.assert_allclose(table["sigma"], sigmas, rtol=1e-11)
    assert found.sigma == pytest.approx(max(sigmas)) and found.worst == np.argmax(sigmas)
    assert found.value == pytest.approx(max(sigmas) * plain(labels, proba)[1], rel=1e-11)
    assert found.table()["sigma"][0] == found.sigma


def test_beside_mcgrad(rng):
    pytest.importorskip("mcgrad")
    import pandas as pd
    from mcgrad.metrics import MulticalibrationError

    n = 2000
    frame = pd.DataFrame({name: rng.integers(0, 3, n).astype(str) for name in ("a", "b")})
    frame["score"] = np.sort(rng.random(n))
    frame["label"] = (rng.random(n) < frame["score"] ** 1.2).astype(int)
    with warnings.catch_warnings():  # of pandas, about mcgrad's calls
        warnings.simplefilter("ignore")
        theirs = MulticalibrationError(
            frame, "label", "score", None, ["a", "b"], precision_dtype="float64", max_depth=2
        )
        masks = theirs._segments[0].reshape(-1, n)[1 : theirs.total_number_segments]
    ours = metrics.multicalibration_error(frame["label"], frame["score"], masks)
    for name, other in (("kuiper", theirs.segments_ecce), ("sigma", theirs.segments_ecce_sigma)):
        np.testing.assert_allclose(ours.groups[name], other, rtol=1e-9)
    np.testing.assert_allclose(ours.groups["p_value"], theirs.segments_ecce_pvalue, atol=1e-9)
    np.testing.assert_allclose(ours[:2], (theirs.mce, theirs.mce_sigma), rtol=1e-9)


def test_weights_are_repeated_rows(rows, rng):
    labels, proba, masks, fields = rows
    weights = rng.integers(0, 4, len(labels))
    one = metrics.multicalibration_error(labels, proba, masks, segments=fields, weights=weights)
    y, p, again = (np.repeat(x, weights, axis=0) for x in (labels, proba, fields))
    other = metrics.multicalibration_error(
        y, p, np.repeat(masks, weights, axis=1), segments=again, replicates=2000
    )
    for name in one.groups:
        if one.groups[name].dtype.kind == "f":
            np.testing.assert_allclose(one.groups[name], other.groups[name], rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_array_equal(one.groups[name], other.groups[name])
    np.testing.assert_allclose(one[:2], other[:2], rtol=1e-9)
    np.testing.assert_allclose(one.by_chance, other.by_chance, rtol=0.08)  # other draws


def test_rows_and_groups_in_any_order(rows, rng):
    labels, proba, masks, fields = rows
    proba = proba + rng.uniform(-0.001, 0.001, len(proba))  # draws go by rows, sorted
    expected = metrics.multicalibration_error(labels, proba, masks, segments=fields)
    order = rng.permutation(len(labels))
    found = metrics.multicalibration_error(
        labels[order], proba[order], masks[::-1][:, order], segments=fields[order]
    )
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=1e-9)
    names = [error.groups["group"][error.worst] for error in (found, expected)]
    assert names[0] == names[1] or {type(x) for x in names} == {int}


def test_a_group_given_twice_changes_nothing(rows):
    labels, proba, masks, _ = rows
    one, twice = (
        metrics.multicalibration_error(labels, proba, given)
        for given in (masks[:3], np.concatenate([masks[:3]] * 2))
    )
    np.testing.assert_allclose(numbers(one), numbers(twice), rtol=1e-12)


def test_dtypes_logits_containers_and_seeds(rows):
    pd = pytest.importorskip("pandas")
    labels, proba, _, fields = rows
    expected = metrics.multicalibration_error(labels, proba, segments=fields)
    narrow = metrics.multicalibration_error(labels, np.float32(proba), segments=fields)
    assert {np.asarray(x).dtype for x in narrow[:-2]} == {np.dtype("float32")}
    np.testing.assert_allclose(numbers(narrow), numbers(expected), rtol=1e-5)
    frame = pd.DataFrame(fields, columns=["city", "side"])
    logits = np.log(proba / (1 - proba))
    again = metrics.multicalibration_error(
        np.where(labels, 1, -1), logits, segments=frame, from_logits=True
    )
    np.testing.assert_allclose(numbers(again)[:2], numbers(expected)[:2], rtol=1e-9)
    assert again.groups["field"].tolist()[1] == "city"
    other = metrics.multicalibration_error(labels, proba, segments=fields, seed=1)
    assert other.sigma == expected.sigma and other.by_chance != expected.by_chance


@pytest.mark.parametrize("where", ["labels", "proba", "weights", "no weight"])
def test_nan(rows, where):
    labels, proba, masks, fields = rows
    labels, weights = labels.astype(float), np.ones(len(labels))
    if where == "no weight":
        weights[:] = 0
    else:
        {"labels": labels, "proba": proba, "weights": weights}[where][7] = np.nan
    found = metrics.multicalibration_error(labels, proba, masks, segments=fields, weights=weights)
    assert np.isnan(numbers(found)).all()
    if where in ("labels", "proba"):
        weights[7] = 0
        kept = np.arange(len(labels)) != 7
        found, expected = (
            metrics.multicalibration_error(labels, proba, masks, segments=fields, weights=weights),
            metrics.multicalibration_error(
                labels[kept], proba[kept], masks[:, kept], segments=fields[kept]
            ),
        )
        np.testing.assert_allclose(numbers(found), numbers(expected), rtol=1e-9)


def test_degenerate_rows_are_silent():
    """Warnings are errors here."""
    right = metrics.multicalibration_error([1, 0], [1.0, 0.0])
    assert (right.sigma, right.value, right.p_value) == (0, 0, 1)
    wrong = metrics.multicalibration_error([0, 0], [1.0, 0.0])
    assert wrong.sigma == np.inf and wrong.p_value < 0.01
    one = metrics.multicalibration_error([1], [0.25], segments=["a"], min_rows=1)
    assert one.sigma == pytest.approx(0.75 / math.sqrt(0.25 * 0.75))
    assert one.groups["rows"].tolist() == [1, 1]
    metrics.multicalibration_error([1, 0, 1], [0.2, 0.2, 1.0], weights=0.3)


def test_the_distribution_of_a_range(rng):
    """Feller's series against each other, and against walks."""
    x = np.linspace(0.05, 12, 500)
    found = kuiper_p_value(x)
    assert (np.diff(found) <= 0).all() and found[0] == 1 and 0 < found[-1] < 1e-30
    edge = kuiper_p_value(np.array([1.5 - 1e-9, 1.5]))
    assert abs(edge[0] - edge[1]) < 1e-8
    walks = np.cumsum(rng.choice([-1.0, 1.0], (4000, 2000)), axis=1) / 2000**0.5
    ranges = np.maximum(walks.max(axis=1), 0) - np.minimum(walks.min(axis=1), 0)
    for level in (1.2, 1.6, 2.2):
        assert abs((ranges >= level).mean() - kuiper_p_value(np.array([level]))[0]) < 0.05


def test_what_is_refused(rows):
    labels, proba, masks, fields = rows
    for given, message in (
        (dict(groups=masks[:, 1:]), r"groups: expected bool of shape \(G, 300\)"),
        (dict(groups=masks.astype(int)), r"groups: expected bool .* got int64"),
        (dict(groups=masks[0]), r"groups: expected bool"),
        (dict(segments=fields[1:]), "segments: expected one id per row"),
        (dict(proba=proba[None]), "proba: expected a flat array with rows"),
        (dict(proba=proba + 1), r"proba: expected probabilities in \[0, 1\]"),
        (dict(labels=labels + 2), "labels: expected bool"),
        (dict(weights=-1), "weights: expected >= 0"),
        (dict(level=1), "level: expected a number in"),
        (dict(min_rows=0), "min_rows: expected an integer >= 1, got 0"),
        (dict(replicates=0), "replicates: expected an integer >= 1, got 0"),
        (dict(seed=-1), "seed: expected an integer >= 0, got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            metrics.multicalibration_error(**{"labels": labels, "proba": proba} | given)


@pytest.mark.slow
def test_p_values_and_intervals_over_many_overlapping_groups(rng):
    """Calibrated probabilities: rejections as stated, the mean by chance, 0 in the interval."""
    found = []
    for i in range(400):
        proba = rng.random(500)
        fields = rng.integers(0, [4, 8, 16], (500, 3))
        error = metrics.multicalibration_error(
            rng.random(500) < proba, proba, segments=fields, seed=i, replicates=100
        )
        found.append((error.sigma - error.by_chance, error.p_value <= 0.1, error.lower > 0))
    excess, rejected, excluded = np.array(found, float).T
    assert abs(excess.mean()) < 4 * excess.std() / 20
    assert abs(rejected.mean() - 0.1) < 0.05 and excluded.mean() < 0.1
