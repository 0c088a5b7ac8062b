"""Scores of some segments in another unit than all others', such as codes for missing values."""

import numpy as np
import pytest
from data import labels_of

import platt_jax as pj

SEGMENTS, POINTS = np.arange(40), np.linspace(-3, 3, 7)
LEAST = float(np.finfo(np.float32).min)


def rows(dtype=float, seed=0):
    rng = np.random.default_rng(seed)
    segment, scores = np.repeat(SEGMENTS, 100), rng.normal(size=4000)
    labels = labels_of(rng, scores + rng.normal(0, 0.5, 40)[segment])
    return scores.astype(dtype), labels, segment


def with_code(code, segments, dtype=float):
    """The rows, half of which have the code for a score in the first segments."""
    scores, labels, segment = rows(dtype)
    scores[(segment < segments) & (np.arange(4000) % 2 == 0)] = code
    return scores, labels, segment


def predictions(calibrator, first):
    """Of segments from the first on, and of an unseen one."""
    asked = np.append(SEGMENTS[first:], 99)
    return calibrator.predict_proba(
        np.tile(POINTS, len(asked)).astype(calibrator.fit.A.dtype), np.repeat(asked, len(POINTS))
    )


@pytest.mark.parametrize("segments", [1, 10])
@pytest.mark.parametrize(
    ("dtype", "code"),
    [(np.float64, x) for x in (-9999, 1e20, -1e20, LEAST)]
    + [(np.float32, x) for x in (-1e20, LEAST)],
)
def test_codes_for_missing_scores_tell_nothing_of_other_segments(dtype, code, segments):
    """Predictions of others moved by .98 at a code of -9999, and were flat at one of -1e20."""
    scores, labels, segment = with_code(code, segments, dtype)
    with pytest.warns(RuntimeWarning, match=f"in {segments} of 40 segments, first in 0"):
        found = pj.fit_segments(scores, labels, segment, pooling="partial")
    others = segment >= segments
    without = pj.fit_segments(scores[others], labels[others], segment[others], pooling="partial")
    np.testing.assert_allclose(
        predictions(found, segments), predictions(without, segments), atol=1e-4
    )
    assert (found.fit.flags[:segments] & pj.Flag.OUTLIER).all()
    assert not found.population.likelihood_precision[:segments].any()


@pytest.mark.parametrize("change", ["code", "offset"])
def test_a_segment_that_is_left_out_has_its_own_curve(change):
    scores, labels, segment = with_code(-9999, 1) if change == "code" else rows()
    if change == "offset":
        scores[:100] += 1e4
    with pytest.warns(RuntimeWarning, match="scores lie over 100 times as far out"):
        found = pj.fit_segments(scores, labels, segment, pooling="partial")
    own = pj.fit(scores[:100], labels[:100])
    np.testing.assert_allclose([found.fit.A[0], found.fit.B[0]], [own.A, own.B], rtol=1e-6)
    here, there = found.predict_proba(scores[:100], segment[:100]), own.predict_proba(scores[:100])
    assert np.abs(here - there).max() < 0.05


# The curve of all rows has the codes.
@pytest.mark.filterwarnings("ignore:scores. by their weight")
def test_updates_leave_such_segments_out_too():
    """The others moved, and the memory of the codes stayed."""
    before = pj.fit_segments(*rows(seed=1), pooling="partial")
    scores, labels, segment = with_code(-1e20, 1)
    with pytest.warns(RuntimeWarning, match="in 1 of 40 segments, first in 0"):
        found = pj.update(before, scores, labels, segment)
    others = segment > 0
    without = pj.update(before, scores[others], labels[others], segment[others])
    assert np.abs(predictions(found, 1) - predictions(without, 1)).max() < 0.01
    with pytest.warns(RuntimeWarning, match="the earlier rows of 1 of 40 segments, first in 0"):
        again = pj.update(found, *rows(seed=2))
    assert again.fit.A[0] == pytest.approx(again.population.mean[0], abs=0.3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("factor", "offset"), [(1, 5), (10, 0), (1e-4, 0)])
def test_a_segment_of_another_place_or_a_moderate_width_is_not_left_out(factor, offset):
    scores, labels, segment = rows()
    scores[:100] = scores[:100] * factor + offset
    found = pj.fit_segments(scores, labels, segment, pooling="partial")
    assert found.population.likelihood_precision[0].any()


def test_where_half_of_the_segments_are_wide_none_is_left_out():
    scores, labels, segment = rows()
    found = pj.fit_segments(
        np.where(segment < 20, 1e4 * scores, scores), labels, segment, pooling="partial"
    )
    assert found.population.likelihood_precision.any((1, 2)).all()


@pytest.mark.parametrize("code", [-9999, -1e20])
@pytest.mark.parametrize("pooling", ["nested", "crossed"])
def test_levels_leave_such_segments_out_too(pooling, code):
    """The others moved by .08 and .15, and a code of -1e20 ended in a LinAlgError."""
    scores, labels, segment = with_code(code, 1)
    ids = np.stack(
        [segment % 4, segment] if pooling == "nested" else [segment % 8, segment // 8], 1
    )
    with pytest.warns(RuntimeWarning, match="in 1 of 40 segments"):
        found = pj.fit_segments(scores, labels, ids, pooling=pooling)
    others = segment > 0
    without = pj.fit_segments(scores[others], labels[others], ids[others], pooling=pooling)
    asked = np.tile(POINTS, 39), np.repeat(ids[::100][1:], len(POINTS), 0)
    np.testing.assert_allclose(
        found.predict_proba(*asked), without.predict_proba(*asked), atol=1e-3
    )
    own = pj.fit(scores[:100], labels[:100])
    np.testing.assert_allclose([found.fit.A[0], found.fit.B[0]], [own.A, own.B], rtol=1e-5)
