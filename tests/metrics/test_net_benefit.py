"""Net benefit, decision curves and costs: against definitions, and intervals by simulation."""

import numpy as np
import pytest

import platt_jax as pj
from platt_jax import metrics


def rows_of(rng, n=400, rate=0.2):
    logits = rng.normal(float(pj.logit(rate)), 1.2, n)
    p = 1 / (1 + np.exp(-logits))
    return rng.random(n) < p, p


def test_it_is_the_definition(rng):
    y, p = rows_of(rng)
    at = [0.05, 0.2, 0.5]
    found = metrics.net_benefit(y, p, threshold=at)
    for i, t in enumerate(at):
        called, odds = p >= t, t / (1 - t)
        tp, fp = (called & y).sum(), (called & ~y).sum()
        np.testing.assert_allclose(found.value[i], tp / 400 - fp / 400 * odds, rtol=1e-12)
        terms = np.where(called, np.where(y, 1, -odds), 0)
        np.testing.assert_allclose(found.standard_error[i], terms.std() / 20, rtol=1e-12)
        np.testing.assert_allclose(found.treat_all[i], y.mean() - (1 - y.mean()) * odds, rtol=1e-12)
    assert (found.treat_none == 0).all() and (found.lower < found.value).all()
    alone = metrics.net_benefit(y, p, threshold=0.2)
    assert alone.value.shape == () and alone.value == found.value[1]


def test_a_threshold_reached_is_a_call():
    for dtype in (np.float32, np.float64):
        p = np.array([0.3, 0.3], dtype)
        assert metrics.net_benefit([1, 0], p, threshold=0.3).value > 0
    assert metrics.net_benefit([1, 1], [0.0, 0.0], threshold=0.5, from_logits=True).value == 1


@pytest.mark.parametrize("now", [np.float32, np.float64])
@pytest.mark.parametrize("then", [np.float32, np.float64])
def test_thresholds_of_both_predictions_are_rounded_as_these(now, then):
    p, y = np.arange(1, 100) / 100, np.arange(99) % 3 == 0
    at = [0.1, 0.3, 0.7]
    found = metrics.decision_curve(y, p.astype(now), before=p.astype(then), threshold=at)
    assert (found.difference == 0).all()
    alone = metrics.net_benefit(y, p.astype(then), threshold=at)
    np.testing.assert_allclose(found.before, alone.value, rtol=1e-6)


def test_weights_count_rows_and_batches_are_problems(rng):
    y, p = rows_of(rng)
    w = rng.integers(0, 4, 400)
    q = np.clip(p**1.5, 0, 1)
    for metric, options in (
        (metrics.net_benefit, {"threshold": [0.1, 0.3]}),
        (metrics.decision_curve, {"threshold": [0.1, 0.3], "before": q}),
        (metrics.expected_cost, {"cost": (1, 3)}),
    ):
        weighted = metric(y, p, weights=w, **options)
        repeated = {k: np.repeat(x, w) if k == "before" else x for k, x in options.items()}
        for a, b in zip(
            weighted, metric(np.repeat(y, w), np.repeat(p, w), **repeated), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)
        both = {k: np.stack([x, x]) if k == "before" else x for k, x in options.items()}
        of_two = metric(np.stack([y, ~y]), np.stack([p, p]), **both)
        for a, b in zip(of_two, metric(y, p, **options), strict=True):
            np.testing.assert_allclose(a[0], b, rtol=1e-12)


def test_differences_are_paired(rng):
    y, p = rows_of(rng, 6_000)
    q = p.copy()
    q[:2_000] = 1 - q[:2_000]
    at = np.array([0.1, 0.5])
    curve = metrics.decision_curve(y, p, before=q, threshold=at)
    for i, t in enumerate(at):
        value = [metrics.net_benefit(y, x, threshold=t) for x in (p, q)]
        np.testing.assert_allclose(curve.difference[i], value[0].value - value[1].value, atol=1e-15)
        terms = np.where(y, 1, -t / (1 - t)) * ((p >= t) * 1.0 - (q >= t))
        width = curve.difference_upper[i] - curve.difference_lower[i]
        np.testing.assert_allclose(width, 2 * 1.96 * terms.std() / 6_000**0.5, rtol=0.05)
        unpaired = np.hypot(value[0].standard_error, value[1].standard_error)
        assert width < 0.9 * 2 * 1.96 * unpaired
    same = metrics.decision_curve(y, p, before=p)
    assert len(same.table()["threshold"]) == 99 and not same.difference_upper.any()


def test_by_segment_takes_the_probabilities_before(rng):
    y, p = rows_of(rng)
    segments, q = rng.integers(0, 3, 400), p**2
    made = metrics.by_segment(
        metrics.decision_curve, y, p, segments, before=q, threshold=[0.1, 0.4]
    ).values
    for k in range(3):
        own = segments == k
        alone = metrics.decision_curve(y[own], p[own], before=q[own], threshold=[0.1, 0.4])
        for a, b in zip(made, alone, strict=True):
            np.testing.assert_allclose(a[k], b, rtol=1e-12, atol=1e-15)


def test_costs_and_the_best_threshold(rng):
    y, p = rows_of(rng, 20_000)
    found = metrics.expected_cost(y, p, cost=(1, 4))
    called = p >= 0.2
    by_hand = ((called & ~y).sum() + 4 * (~called & y).sum()) / 20_000
    np.testing.assert_allclose(found.value, by_hand, rtol=1e-12)
    others = [metrics.expected_cost(y, p, cost=(1, 4), threshold=t).value for t in (0.1, 0.4)]
    assert found.value < min(others)
    assert metrics.expected_cost(y, p, cost=(0, 1)).value == 0
    assert metrics.expected_cost(y, p, cost=(1, 0)).value == 0


def test_nan_spoils_its_own_problem(rng):
    y, p = (np.stack(x) for x in zip(*[rows_of(rng, 50) for _ in range(3)], strict=True))
    q = p.copy()
    p[0, 3], q[1, 3] = np.nan, np.nan
    curve = metrics.decision_curve(y, p, before=q, threshold=[0.2])
    assert np.isnan(curve.difference[:, 0]).tolist() == [True, True, False]
    assert not np.isnan(curve.threshold).any()


def test_what_is_refused():
    rows = [1, 0], [0.9, 0.2]
    for call, message in (
        (lambda: metrics.net_benefit(*rows, threshold=1.0), "threshold: expected numbers"),
        (lambda: metrics.net_benefit(*rows, threshold=[]), "threshold: expected numbers"),
        (lambda: metrics.net_benefit(*rows, level=1), "level: expected"),
        (lambda: metrics.decision_curve(*rows, before=[0.1]), "before: expected the shape"),
        (lambda: metrics.decision_curve(*rows, before=[2, 0.1]), "before: expected probab"),
        (lambda: metrics.expected_cost(*rows, cost=(0, 0)), "cost: expected two costs"),
        (lambda: metrics.expected_cost(*rows, cost=1), "cost: expected two costs"),
        (lambda: metrics.expected_cost(*rows, cost=("a", "b")), "cost: expected numbers"),
        (lambda: metrics.expected_cost(*rows, cost=(1, 1), threshold=[0.1]), "expected one num"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_ends_are_those_of_wilson_where_one_share_counts(rng):
    y, p = rows_of(rng)
    found = metrics.expected_cost(y, p, cost=(0, 1), threshold=0.3)
    k, n, z2 = ((p < 0.3) & y).sum(), 400, 1.959963984540054**2
    center, half = (k + z2 / 2) / (n + z2), np.sqrt(z2 * (k * (n - k) / n + z2 / 4)) / (n + z2)
    np.testing.assert_allclose([found.lower, found.upper], [center - half, center + half])


def expected_parts(rng, rate, threshold):
    """The expected net benefit, and its difference from that of the probabilities before."""
    logits = rng.normal(float(pj.logit(rate)), 1, 1_000_000)
    p, q = 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(-(0.6 * logits + 0.3)))
    gain = p - (1 - p) * threshold / (1 - threshold)
    now, then = p >= threshold, q >= threshold
    return (gain * now).mean(), (gain * (now * 1.0 - then)).mean()


@pytest.mark.parametrize(("rows", "rate"), [(50, 0.02), (200, 0.02), (200, 0.1), (500, 0.5)])
def test_intervals_hold_the_expected_benefit(rows, rate):
    """With one positive and less among the rows that count, normal intervals hold 23 to 76 %."""
    rng = np.random.default_rng(3)
    logits = rng.normal(float(pj.logit(rate)), 1, (1000, rows))
    p, q = 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(-(0.6 * logits + 0.3)))
    y, at = rng.random(p.shape) < p, rate / 2
    curve = metrics.decision_curve(y, p, before=q, threshold=[at])
    value, difference = expected_parts(rng, rate, at)
    held = (curve.lower[:, 0] <= value) & (value <= curve.upper[:, 0])
    paired = curve.difference_lower[:, 0], curve.difference_upper[:, 0]
    assert 0.92 < held.mean() < 0.985
    assert 0.92 < ((paired[0] <= difference) & (difference <= paired[1])).mean() < 0.985
