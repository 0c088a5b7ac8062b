"""Groups in which few labels of a class are expected: by enumeration, and by simulation."""

import itertools

import numpy as np
import pytest
from scipy import stats

import platt_jax as pj
from platt_jax import metrics


def rare(rng, problems, rows, center=-5.1):
    """Labels, and the probabilities they were drawn with: 1 % if the center is left as it is."""
    proba = 1 / (1 + np.exp(-rng.normal(center, size=(problems, rows))))
    return rng.random(proba.shape) < proba, proba


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "problems"), [(10, 4000), (50, 2000), (500, 1000)])
def test_hosmer_lemeshow_of_rare_positives_is_valid(rng, rows, problems):
    """By chi-square alone 15 % are rejected at 5 %, 8 % at 0.1 %."""
    p_value = metrics.hosmer_lemeshow(*rare(rng, problems, rows)).p_value
    for level in (0.001, 0.01, 0.05, 0.2, 0.5):
        error = np.sqrt(level * (1 - level) / problems)
        assert np.mean(p_value <= level) < level + 3 * error, level
    if rows == 500:
        assert abs(np.mean(p_value <= 0.5) - 0.5) < 0.05  # and not too large either


def test_hosmer_lemeshow_of_some_large_groups(rng):
    labels, proba = rare(rng, 1000, 300, center=-1.5)
    expected = np.sort(proba, axis=1).reshape(1000, 10, 30).sum(axis=2)
    assert (expected.min(axis=1) < 5).all() and (expected.max(axis=1) > 10).mean() > 0.9
    p_value = metrics.hosmer_lemeshow(labels, proba).p_value
    for level, off in ((0.05, 0.021), (0.25, 0.041), (0.5, 0.048)):
        assert abs(np.mean(p_value <= level) - level) < off, level


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_hosmer_lemeshow_by_enumeration(rng, flip, weighted):
    for n_bins in (1, 2, 3, 5):
        n = 9
        proba = np.sort(rng.random(n)) ** 2
        proba = 1 - proba if flip else proba
        weights = rng.integers(0, 4, n) if weighted else np.ones(n, int)
        every = np.array(list(itertools.product(*(range(w + 1) for w in weights))))
        chances = stats.binom.pmf(every, weights, proba).prod(axis=1)
        # A row's w labels as two rows, of 1 and of 0.
        labels, both = np.r_[np.ones(n), np.zeros(n)], np.r_[proba, proba]
        counts = np.concatenate([every, weights - every], axis=1)
        some = rng.choice(len(every), 20)
        found = metrics.hosmer_lemeshow(
            labels, np.tile(both, (20, 1)), weights=counts[some], n_bins=n_bins
        )
        statistic = metrics.hosmer_lemeshow(
            labels, np.tile(both, (len(every), 1)), weights=counts, n_bins=n_bins, in_sample=True
        ).statistic
        # Of the statistic that is rounded to a 500th.
        for k, p_value in enumerate(found.p_value):
            least, most = (
                chances[statistic >= found.statistic[k] * (1 + off) - 1e-12].sum()
                for off in (0.006, -0.006)
            )
            assert least * (1 - 1e-9) <= p_value <= most * (1 + 1e-9)


def test_hosmer_lemeshow_of_tiny_probabilities_keeps_its_digits():
    """One group: the p-value is that of the count, binomial."""
    for n, positives in ((1000, 30), (50, 12), (5, 5), (10**12, 40)):
        p = 4 / n if n > 5 else 1e-40
        found = metrics.hosmer_lemeshow([1, 0], [p, p], weights=[positives, n - positives])
        exact = stats.binom.sf(positives - 1, n, p)  # so far above that no count is below as far
        np.testing.assert_allclose(found.p_value, exact, rtol=1e-9)


def test_company_and_order_do_not_matter(rng):
    labels, proba = rare(rng, 40, 300)
    whole = metrics.hosmer_lemeshow(labels, proba).p_value
    alone = [metrics.hosmer_lemeshow(*one).p_value for one in zip(labels, proba, strict=True)]
    assert np.array_equal(whole, alone)
    order = rng.permutation(300)
    other = metrics.hosmer_lemeshow(labels[:, order], proba[:, order]).p_value
    np.testing.assert_allclose(other, whole, rtol=1e-9)
    logits = np.log(proba / (1 - proba))
    by_logits = metrics.hosmer_lemeshow(labels, logits, from_logits=True).p_value
    np.testing.assert_allclose(by_logits, whole, rtol=1e-9)
    flipped = metrics.hosmer_lemeshow(~labels, -logits, from_logits=True).p_value
    np.testing.assert_allclose(flipped, whole, rtol=1e-9)


def test_weights_that_are_no_counts_are_by_chi_square(rng):
    labels, proba = rare(rng, 5, 50)
    test = metrics.hosmer_lemeshow(labels, proba, weights=1.5)
    np.testing.assert_allclose(test.p_value, stats.chi2.sf(test.statistic, test.df), rtol=1e-9)


@pytest.mark.slow
def test_hosmer_lemeshow_of_the_rows_fitted_to_does_not_reject_too_many(rng):
    labels, scores = rare(rng, 2000, 500)
    fitted = pj.fit(scores, labels, options=pj.Options(targets="none"))
    proba = fitted.predict_proba(scores)[fitted.converged]
    test = metrics.hosmer_lemeshow(labels[fitted.converged], proba, in_sample=True)
    assert np.mean(test.p_value <= 0.05) < 0.065


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
@pytest.mark.parametrize(("rows", "center"), [(50, 0.0), (50, -5.1), (400, -2.0), (3000, 0.0)])
def test_errors_by_chance_are_those_of_labels_drawn(rng, rows, center, strategy):
    """Calibrated probabilities of 50 rows have an error of .145, if they are around 1/2."""
    proba = 1 / (1 + np.exp(-rng.normal(center, 1.5, size=rows)))
    labels = rng.random((3000, rows)) < proba
    proba = np.tile(proba, (3000, 1))
    drawn = metrics.expected_calibration_error(labels, proba, strategy=strategy)
    found = metrics.ece_by_chance(labels[:2], proba[:2], strategy=strategy)
    assert abs(found[0] - drawn.mean()) < 4 * drawn.std() / np.sqrt(3000) + 0.003 * found[0]
    assert found[1] == found[0]
    if (rows, center) == (50, 0):
        assert found[0] > 0.1


def test_errors_by_chance_by_enumeration(rng):
    """Exact where fewer than 10 labels of a class are expected."""
    proba = rng.random(10)
    labels = np.array(list(itertools.product([0, 1], repeat=10)))
    chances = np.where(labels, proba, 1 - proba).prod(axis=1)
    of_each = metrics.expected_calibration_error(labels, np.tile(proba, (1024, 1)), n_bins=3)
    found = metrics.ece_by_chance(labels[0], proba, n_bins=3)
    np.testing.assert_allclose(found, chances @ of_each, rtol=1e-12)


def test_errors_by_chance_of_many_expected_labels():
    """One bin of n equal probabilities: the mean distance of a binomial (De Moivre)."""
    for n, p in ((21, 0.5), (100, 0.12), (10_000, 0.3)):
        mean = stats.binom(n, p).expect(lambda x, n=n, p=p: abs(x - n * p)) / n
        found = metrics.ece_by_chance([1], [p], weights=n, n_bins=1)
        np.testing.assert_allclose(found, mean, rtol=0.012)
    assert metrics.ece_by_chance([0, 1], [0.0, 1.0]) == 0
