"""Scores of any scale: the same probabilities, or a refusal that names the scale."""

import numpy as np
import pytest

import platt_jax as pj
from platt_jax.plots.explorer import judged_rows

POOLINGS = ("partial", "nested", "crossed")
REFUSED = "scores: expected (a spread between|magnitudes of) .*; multiply the scores"


@pytest.fixture
def rows(rng):
    segment = np.repeat(np.arange(12), 40)
    scores = rng.normal(size=len(segment))
    log_odds = 1.2 * scores + rng.normal(size=12)[segment]
    return scores, rng.random(len(segment)) < 1 / (1 + np.exp(-log_odds)), segment


def ids_of(segment, pooling):
    if pooling == "partial":
        return segment
    return np.stack([segment % 4, segment if pooling == "nested" else segment // 4], 1)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(
    ("dtype", "power"),
    [(np.float64, -245), (np.float64, 245), (np.float32, -50), (np.float32, 55)],
)
@pytest.mark.slow
def test_pooled_fits_do_not_depend_on_the_scale(rows, pooling, dtype, power):
    scores, labels, segment = rows
    segments, found = ids_of(segment, pooling), []
    for factor in (1.0, 2.0**power):
        scaled = (scores.astype(dtype) * dtype(factor)).astype(dtype)
        calibrator = pj.fit_segments(scaled, labels, segments, pooling=pooling)
        updated = pj.update(calibrator, scaled, labels, segments)
        unseen = np.full_like(segments[:1], 99)
        found.append(
            [
                calibrator.predict_proba(scaled, segments),
                *calibrator.band(scaled, segments),
                *calibrator.band(scaled[:1], unseen),
                updated.predict_proba(scaled, segments),
                *updated.band(scaled[:1], unseen),
            ]
        )
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-9 if dtype == np.float64 else 1e-4)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [*((np.float64, x) for x in (1e160, 1e300, 1e-100, 1e-310)), (np.float32, 1e30)],
)
def test_pooled_fits_refuse_scales_of_which_no_covariance_is_a_number(rows, pooling, dtype, scale):
    scores, labels, segment = rows
    with pytest.raises(ValueError, match=REFUSED):
        pj.fit_segments(
            (scores * scale).astype(dtype), labels, ids_of(segment, pooling), pooling=pooling
        )


@pytest.mark.parametrize("scores", [np.arange(4) * 1e-310, np.float32([1e-40, 2e-40, 3e-40, 0])])
def test_fits_refuse_subnormal_scores(scores):
    """Compiled programs take them as 0: they were constant, or separable."""
    labels, segments = [0, 1, 0, 1], [0, 0, 1, 1]
    many = np.concatenate([np.zeros(200, scores.dtype), scores])
    for fitted in (
        lambda: pj.fit(scores, labels),
        lambda: pj.fit(many, np.arange(204) % 2),
        lambda: pj.fit_segments(scores, labels, segments),
        lambda: pj.fit_one_vs_rest(scores.reshape(2, 2), [0, 1]),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            fitted()
    assert pj.fit(0 * scores, labels).A == 0
    assert pj.fit(np.append(scores, [1]).astype(scores.dtype), [0, 1, 0, 1, 1]).converged


@pytest.mark.parametrize("factor", [2.0**-33, 2.0**40])
def test_the_updated_curve_of_all_rows_does_not_depend_on_the_scale(rows, factor):
    """A pseudoinverse of the covariance dropped A or B: the band was 1.4 times as wide."""
    scores, labels, segment = rows
    found = []
    for scale in (1.0, factor):
        calibrator = pj.fit_segments(scale * scores, labels, segment)
        updated = pj.update(calibrator, scale * scores, labels, segment, forgetting=0.9)
        found.append([updated.fallback.B, *updated.band(scale * scores[:5], [99] * 5)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-7)


@pytest.mark.parametrize("scale", [1e160, 1e-100])
def test_pages_refuse_scores_that_they_cannot_store(rows, scale):
    """The report ended in an OverflowError."""
    scores, labels, segment = rows
    calibrator = pj.fit_segments(scale * scores, labels, segment)
    with pytest.raises(ValueError, match="scores: expected magnitudes between 1e-30 and 1e\\+30"):
        judged_rows(calibrator, scale * scores, labels, segment, 0.1)


@pytest.mark.parametrize("pooling", ["partial", "nested"])
@pytest.mark.parametrize("dtype, near, far", [(np.float32, 2e3, 1e4), (np.float64, 1e6, 1.7e9)])
def test_scores_far_from_zero_are_pooled_or_refused(pooling, dtype, near, far, rng):
    """They ended in NaN of converged fits in float32, and in a LinAlgError in float64."""
    scores = np.round(64 * rng.normal(size=3_000)) / 64
    ids = np.arange(3_000) % 60
    segments = ids if pooling == "partial" else np.stack([ids % 6, ids], 1)
    labels = rng.random(3_000) < 1 / (1 + np.exp(-2 * scores - 0.5 * rng.normal(size=60)[ids]))

    def proba(center):
        f = (scores + center).astype(dtype)
        return pj.fit_segments(f, labels, segments, pooling=pooling).predict_proba(f, segments)

    np.testing.assert_allclose(proba(near), proba(0), atol=1e-3)
    with pytest.raises(ValueError, match="subtract the center from all scores"):
        proba(far)
