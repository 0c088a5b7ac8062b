"""Scores to be expected of labels to come: against every possible draw of the labels."""

import itertools

import jax
import numpy as np
import pytest
from scipy import stats

from platt_jax import metrics

METRICS = {
    "log_loss": metrics.log_loss,
    "brier_score": metrics.brier_score,
    "rate": lambda labels, proba, weights=None: np.average(labels, axis=-1, weights=weights),
}


def every_draw(proba):
    """All labels of these rows (2^n, n), and their probabilities."""
    labels = np.array(list(itertools.product([0, 1], repeat=len(proba))))
    return labels, np.where(labels, proba, 1 - proba).prod(axis=1)


def some_probabilities(rng, n, kind):
    if kind == "equal":
        return np.full(n, rng.random())
    if kind == "rare":
        return np.full(n, 10 ** (-3 * rng.random()))
    if kind == "beta":
        return rng.beta(*np.exp(rng.normal(0, 1.5, 2)), n)
    if kind == "two kinds":
        return np.where(np.arange(n) < rng.integers(n + 1), rng.random(), rng.random() / 10)
    return 1 / (1 + np.exp(-rng.normal(rng.normal(0, 3), 2, n)))


KINDS = ("equal", "rare", "beta", "two kinds", "sigmoid")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_intervals_hold_the_metrics_by_enumeration(rng, kind, level):
    """The worst of 20 problems for each number of rows."""
    # Three moments do not determine the far tails.
    short = {0.5: 3e-4, 0.999: 1e-3}.get(level, 0)
    for n in range(1, 10):
        for _ in range(20):
            proba = some_probabilities(rng, n, kind)
            labels, chances = every_draw(proba)
            found = metrics.expected(proba, level=level)
            drawn = {
                name: metric(labels, np.tile(proba, (len(labels), 1)))
                for name, metric in METRICS.items()
            }
            drawn["positives"] = labels.sum(axis=1)
            for name, values in drawn.items():
                part = getattr(found, name)
                held = chances[(part.lower <= values) & (values <= part.upper)].sum()
                assert held >= level - short - 1e-12, (name, proba)
                np.testing.assert_allclose(part.value, chances @ values, rtol=1e-9)
                deviation = np.sqrt(chances @ (values - chances @ values) ** 2)
                np.testing.assert_allclose(part.standard_deviation, deviation, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_ends_are_quantiles_of_the_shifted_gamma_of_three_moments(rng, kind):
    """Pearson's type III, as SciPy has it, with the third moment of all draws."""
    clipped = 0
    for proba in (some_probabilities(rng, 9, kind) for _ in range(20)):
        labels, chances = every_draw(proba)
        found = metrics.expected(proba, level=0.9)
        for name in ("log_loss", "brier_score"):
            values = METRICS[name](labels, np.tile(proba, (len(labels), 1)))
            part, off = getattr(found, name), values - chances @ values
            skewness = chances @ off**3 / part.standard_deviation**3
            ends = stats.pearson3.ppf([0.05, 0.95], skewness, part.value, part.standard_deviation)
            # Half of a typical row's effect: the root of its mean square, weighted by variance.
            d = np.log(1 / proba - 1) if name == "log_loss" else 1 - 2 * proba
            variance = proba * (1 - proba) * d**2
            step = np.sqrt((variance * d**2).sum() / variance.sum()) / len(proba)
            ends = ends + step / 2 * np.array([-1, 1])
            if np.maximum(proba, 1 - proba).prod() >= 0.95:
                ends = values[chances.argmax()] * np.ones(2)
            clipped += ends[1] > values.max()
            ends = np.clip(ends, values.min(), values.max())
            np.testing.assert_allclose((part.lower, part.upper), ends, rtol=1e-6, atol=1e-12)
    assert clipped < 20


def test_numbers_of_positives_have_exact_intervals(rng):
    for n, p in ((1, 0.01), (1, 0.03), (30, 0.02), (300, 0.02), (10**9, 5e-9), (15, 0.5)):
        for level in (0.8, 0.95, 0.999):
            found = metrics.expected([p], weights=n, level=level).positives
            ends = stats.binom.ppf([(1 - level) / 2, (1 + level) / 2], n, p)
            assert (found.lower, found.upper) == tuple(ends)
    # Rare positives among some rows, rare negatives among the others: Skellam in the limit.
    proba, weights = [1e-6, 1 - 1e-6], [2_000_000, 3_000_000]
    found = metrics.expected(proba, weights=weights, level=0.99).positives
    ends = 3_000_000 + stats.skellam.ppf([0.005, 0.995], 2, 3)
    assert (found.lower, found.upper) == tuple(ends)


@pytest.mark.parametrize("p", [0.02, 0.5, 0.98])
def test_of_many_expected_positives(p):
    n = 100_000
    found = metrics.expected([p], weights=n)
    ends = stats.binom.ppf([0.025, 0.975], n, p)
    np.testing.assert_allclose((found.positives.lower, found.positives.upper), ends, atol=1)
    np.testing.assert_allclose(found.rate.lower, found.positives.lower / n)
    np.testing.assert_allclose(found.rate.upper, found.positives.upper / n)
    # Log loss is a linear function of the number.
    slope, base = np.log(1 / p - 1), -np.log(1 - p)
    loss = np.sort(base + slope * ends / n)
    got = (found.log_loss.lower, found.log_loss.upper)
    np.testing.assert_allclose(got, loss, atol=1.2 * abs(slope) / n + 1e-12)


def test_nearly_no_skewness():
    """On both sides of where the gamma distribution is replaced by its expansion."""
    n, normal = 1e6 + 0.5, stats.norm.ppf(0.995)
    for p in np.linspace(0.49, 0.55, 13):  # skewness of -2e-4 to 4e-5
        count = metrics.expected([p], weights=n, level=0.99).positives
        skewness = (1 - 2 * p) / count.standard_deviation
        for end, side in ((count.lower, -1), (count.upper, 1)):
            z = (end - side / 2 - count.value) / count.standard_deviation
            expansion = side * normal + skewness * (normal**2 - 1) / 6
            np.testing.assert_allclose(z, expansion, rtol=1e-6)


@pytest.fixture
def rows(rng):
    return rng.beta(0.3, 3, size=(2, 3, 60))


def close(one, other, rtol=1e-10):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)


def test_a_batch_is_a_loop(rows, rng):
    weights = rng.integers(0, 3, (3, 60))
    together = metrics.expected(rows, weights=weights, level=0.9)
    for i, j in np.ndindex(2, 3):
        one = metrics.expected(rows[i, j], weights=weights[j], level=0.9)
        close(jax.tree.map(lambda x, at=(i, j): x[at], together), one)
    many = np.tile(rows.reshape(6, 60), (200, 1))  # more rows than are summed at once
    upper = metrics.expected(many).positives.upper
    assert (upper.reshape(200, 6) == metrics.expected(rows).positives.upper.ravel()).all()


def test_weights_are_repeated_rows(rows, rng):
    proba, weights = rows[0, 0], rng.integers(0, 4, 60)
    assert 0 in weights
    repeated = metrics.expected(np.repeat(proba, weights))
    close(metrics.expected(proba, weights=weights), repeated)
    proba[weights == 0] = np.nan
    close(metrics.expected(proba, weights=weights), repeated)


def test_weights_that_are_no_counts(rows):
    """No rounding of the number, but clipped to what is attainable."""
    found = metrics.expected(rows[0, 0], weights=0.25)
    np.testing.assert_allclose(found.positives.value, rows[0, 0].sum() / 4)
    assert found.positives.upper % 1 and found.positives.lower == 0
    whole = metrics.expected(rows[0, 0])
    np.testing.assert_allclose(
        found.log_loss.standard_deviation, 2 * whole.log_loss.standard_deviation
    )


def test_logits_and_mirrored_classes(rows):
    logits = np.log(rows / (1 - rows))
    close(metrics.expected(logits, from_logits=True), metrics.expected(rows), rtol=1e-8)
    mirrored = metrics.expected(-logits, from_logits=True)
    found = metrics.expected(rows)
    close(mirrored[:2], found[:2], rtol=1e-8)
    for end, other in (("lower", "upper"), ("upper", "lower"), ("value", "value")):
        mine, yours = (getattr(x.positives, y) for x, y in ((found, end), (mirrored, other)))
        np.testing.assert_allclose(mine, 60 - yours)


def test_probabilities_that_say_all():
    found = metrics.expected([0, 1, 1e-300])
    assert found.positives.lower == found.positives.upper == 1
    assert found.log_loss.upper < 1e-15 and found.brier_score.upper == 0
    huge = metrics.expected([1e300, -1e300], from_logits=True)
    assert huge.positives[2:] == (1, 1) and huge.log_loss[2:] == (0, 0)
    half = metrics.expected([0.5] * 40)
    for part, value in ((half.log_loss, np.log(2)), (half.brier_score, 0.25)):
        np.testing.assert_allclose([part.value, part.lower, part.upper], value, rtol=1e-12)
        assert part.lower < part.upper and part.standard_deviation == 0  # by rounding


def test_nan_and_dtype(rows):
    rows[0, 1, 3] = np.nan
    found = metrics.expected(rows.astype(np.float32))
    for part in jax.tree.leaves(found):
        assert part.dtype == np.float32
        np.testing.assert_array_equal(np.isnan(part), [[False, True, False], [False] * 3])
    nothing = metrics.expected([0.2, 0.3], weights=0)
    infinite = metrics.expected([0.2, 0.3], weights=[1, np.inf])
    for x in jax.tree.leaves((nothing, infinite, metrics.expected([np.inf, 1], from_logits=True))):
        assert np.isnan(x)
    exact = metrics.expected(rows)
    np.testing.assert_allclose(found.log_loss.upper, exact.log_loss.upper, rtol=2e-5)


def test_the_likely_metric_is_inside_whatever_the_rounding(rng):
    """Summed in another order, and in float32."""
    scores = metrics.log_loss, metrics.brier_score
    for n, dtype in itertools.product((3, 50, 1000), (np.float32, np.float64)):
        proba = rng.uniform(1e-6, 1e-5, n).astype(dtype)
        of = metrics.expected(proba, segments=np.zeros(n)).values
        for _, (part, score) in itertools.product(range(20), zip(of[:2], scores, strict=True)):
            assert part.lower <= score(np.zeros(n), rng.permutation(proba)) <= part.upper


@pytest.mark.parametrize("weighted", [False, True])
def test_segments_are_each_alone(rng, weighted):
    segments = rng.permutation(np.repeat([7, 3, 5, 4, 9], [1, 2, 3, 64, 130]))
    proba = rng.beta(0.5, 2, 200)
    weights = rng.integers(1, 4, 200) if weighted else None
    found = metrics.expected(proba, weights=weights, level=0.8, segments=segments)
    assert found.keys.tolist() == [3, 4, 5, 7, 9] and found.rows.tolist() == [2, 64, 3, 1, 130]
    for i, key in enumerate(found.keys):
        mine = segments == key
        of_mine = weights[mine] if weighted else None
        alone = metrics.expected(proba[mine], weights=of_mine, level=0.8)
        close(jax.tree.map(lambda x, i=i: x[i], found.values), alone)
    table = found.table()
    assert list(table)[:4] == ["segment", "rows", "log_loss_value", "log_loss_standard_deviation"]
    assert len(table.keys()) == 18 and len(table) == 5
    assert table["positives_upper"] is found.values.positives.upper
    logits = np.log(proba / (1 - proba))
    close(
        metrics.expected(logits, from_logits=True, segments=segments).values,
        metrics.expected(proba, segments=segments).values,
        rtol=1e-8,
    )


def test_labels_drawn_are_held(rng):
    """Segments of 40 rows; with labels of three times the rate few are."""
    segments = np.repeat(np.arange(2000), 40)
    proba = rng.beta(0.6, 2.4, len(segments))
    bounds = metrics.expected(proba, segments=segments).values.log_loss
    for rate, least, most in ((1, 0.95, 0.995), (3, 0, 0.6)):
        labels = rng.random(len(proba)) < np.minimum(rate * proba, 1)
        loss = metrics.by_segment(metrics.log_loss, labels, proba, segments).values
        assert least <= np.mean((bounds.lower <= loss) & (loss <= bounds.upper)) <= most


def test_what_is_refused():
    for arguments, options, message in (
        ([0.2, 1.2], {}, r"proba: expected probabilities in \[0, 1\], got 1.2"),
        ([], {}, r"proba: expected \(..., N\) with rows"),
        (0.3, {}, r"proba: expected \(..., N\) with rows"),
        ([0.3], {"level": 1}, r"level: expected a number in \(0, 1\), got 1"),
        ([0.3], {"level": 95, "segments": [1]}, r"level: expected a number in \(0, 1\), got 95"),
        ([0.3], {"weights": [-1]}, "weights: expected >= 0, got -1"),
        ([0.3], {"weights": [1, 2]}, "weights: expected a shape"),
        ([[0.3]], {"segments": [1]}, "proba: expected a flat array with rows"),
        ([0.3], {"segments": [1, 2]}, "segments: expected"),
    ):
        with pytest.raises(ValueError, match=message):
            metrics.expected(arguments, **options)
