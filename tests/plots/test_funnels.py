"""Funnel plots: what is compared with what, what is marked, and what the legend says of chance."""

import numpy as np
import pytest
from artists import drawn, labelled, pairs, sizes, starting
from data import labels_of
from matplotlib.text import Annotation
from scipy import stats

import platt_jax as pj
from platt_jax import Flag, plots
from platt_jax.plots import slopes

NO_SLOPE = Flag.ONE_CLASS | Flag.CONSTANT_SCORES | Flag.SEPARABLE


def alike(K=3000, low=10, high=800, base=-1.2, slope=0.9, seed=0):
    """Rows of segments that have one curve: scores, labels, segments, probabilities."""
    rng = np.random.default_rng(seed)
    rows = np.exp(rng.uniform(np.log(low), np.log(high), K)).astype(int)
    segments = np.repeat(np.arange(K), rows)
    scores = rng.normal(size=len(segments))
    logit = base + slope * scores
    return scores, labels_of(rng, logit).astype(int), segments, 1 / (1 + np.exp(-logit))


def named(ax):
    """The names written beside points."""
    return [text.get_text() for text in ax.texts if isinstance(text, Annotation)]


@pytest.mark.slow
@pytest.mark.parametrize(("base", "slope"), [(-1.2, 0.9), (0, 2), (-4, 1.5)])
def test_slopes_of_one_curve_are_around_the_expected_ones_at_every_size(base, slope):
    scores, labels, segments, _ = alike(base=base, slope=slope)
    fitted = pj.fit_segments(scores, labels, segments)
    ax = plots.slope_funnel(fitted)
    precision, z = np.asarray(starting(ax, "segments").get_offsets()).T
    known = 1 / fitted.fit.standard_errors[:, 0]
    order = np.argsort(known)
    n = sizes(fitted)[order][np.searchsorted(known[order], precision * (1 - 1e-12))]
    for low, high in ((10, 30), (30, 100), (100, 1000)):
        mine = z[(n >= low) & (n < high)]
        # Where positives are few, many segments have no slope, and the others are not a sample.
        assert abs(mine.mean()) < (0.3 if low * 3 / (1 + np.exp(-base)) < 2 else 0.15)
        assert mine.std() < 1.05
    assert not named(ax) and starting(ax, "none off (q ≤ 0.05)")


def off_and_not(ax, off):
    """The points of marked problems and of the others."""
    return drawn(starting(ax, off)), drawn(starting(ax, "segments"))


def test_slopes_are_drawn_in_their_own_errors(calibrator):
    ax = plots.slope_funnel(calibrator)
    fit = calibrator.fit
    usable = (fit.flags & NO_SLOPE) == 0
    n, error = sizes(calibrator)[usable], fit.standard_errors[usable, 0]
    left = slopes._left_by_targets(fit)[usable]
    assert (left > 0).all() and (left < 1).all() and np.corrcoef(left, np.log(n))[0, 1] > 0.5
    z = (-fit.A[usable] - left * calibrator.fallback.slope) / error
    p_value = 2 * stats.norm.sf(np.abs(z))
    off = stats.false_discovery_control(p_value) <= 0.05
    assert off.any()
    low, high = ax.get_ylim()
    shown = (z >= low) & (z <= high)
    marked, others = off_and_not(ax, f"{off.sum()} off (q ≤ 0.05)")
    np.testing.assert_allclose(marked, pairs(1 / error[off & shown], z[off & shown]))
    np.testing.assert_allclose(others, pairs(1 / error[~off & shown], z[~off & shown]))
    assert set(named(ax)) <= set(calibrator.keys[usable][off].astype(str)) and named(ax)
    for level, text in ((0.95, "95 %"), (0.998, "99.8 %")):
        reach = stats.norm.ppf((1 + level) / 2)
        beyond, chance = np.count_nonzero(np.abs(z) > reach), (1 - level) * len(z)
        label = f"{text} limits: {beyond} beyond, chance up to {chance:.2g}"
        np.testing.assert_allclose(starting(ax, label).get_ydata(), reach)
    assert starting(ax, "expected").get_ydata()[0] == 0


def test_slopes_of_a_batch_are_compared_with_their_common_one(rng):
    scores = rng.normal(size=(3, 4, 80))
    fit = pj.fit(scores, labels_of(rng, scores))
    ax = plots.slope_funnel(fit)
    left, error = slopes._left_by_targets(fit), fit.standard_errors[..., 0].ravel()
    # The common slope minimizes the sum of squares of what is drawn.
    z = np.asarray(starting(ax, "12 problems").get_offsets())[:, 1]
    assert len(z) == 12 and abs(np.sum(z * left / error)) < 1e-9 * np.sum(left / error)
    assert ax.get_xlabel() == "1 / standard error of the slope of the problem"


def test_partially_pooled_slopes_are_around_the_population_without_limits(pooled):
    ax = plots.slope_funnel(pooled)
    usable = (pooled.fit.flags & NO_SLOPE) == 0
    assert drawn(starting(ax, "segments")) == pairs(sizes(pooled)[usable], -pooled.fit.A[usable])
    assert starting(ax, "mean of the population").get_ydata()[0] == 1.2
    band = starting(ax, "95 % of the population")
    ends = band.get_y(), band.get_y() + band.get_height()
    np.testing.assert_allclose(ends, [1.2 - stats.norm.ppf(0.975), 1.2 + stats.norm.ppf(0.975)])
    assert not any("limits" in text or "off" in text for text in labelled(ax))
    assert ax.get_ylabel() == "slope, $-A$"
    complete = pj.fit_segments(*alike(30, 10, 40)[:3], pooling="complete")
    ax = plots.slope_funnel(complete)
    assert starting(ax, "all rows pooled").get_ydata()[0] == complete.fallback.slope
    assert not any("limits" in text for text in labelled(ax))


@pytest.mark.parametrize("weighted", [False, True])
def test_rate_funnel_compares_observed_with_expected(rows, calibrator, weighted):
    scores, labels, segments = rows
    p = calibrator.fallback.predict_proba(scores)
    w = np.arange(len(p)) % 3 if weighted else np.ones(len(p))
    ax = plots.rate_funnel(labels, p, [f"s{s}" for s in segments], weights=w if weighted else None)
    observed, expected, variance = (
        np.array([np.sum((w * x)[segments == s]) for s in np.unique(segments)])
        for x in (labels, p, p * (1 - p))
    )
    ratio = observed / expected
    low, high = ax.get_ylim()
    (zero,) = [
        y
        for y, text in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True)
        if text.get_text() == "0"
    ]
    assert (ratio == 0).any() and low < zero < ratio[ratio > 0].min()
    shown = ratio <= high
    points_drawn = drawn(starting(ax, "segments")) + drawn(starting(ax, " off ("))
    height = np.where(ratio > 0, ratio, zero)
    np.testing.assert_allclose(sorted(points_drawn), pairs(expected[shown], height[shown]))
    x, y = np.asarray(starting(ax, "99.8 % limits").get_xydata()).T
    z, spread = stats.norm.isf(0.001), variance.sum() / expected.sum()
    third = np.sum(w * p * (1 - p) * (1 - 2 * p)) / expected.sum()
    corrected = z * np.sqrt(spread * x) + (z**2 - 1) / 6 * third / spread
    np.testing.assert_allclose(y, 1 + corrected / x)
    assert ax.get_yscale() == "log" and starting(ax, "as expected").get_ydata()[0] == 1


def test_limits_of_rates_are_where_chance_puts_them():
    """The share of segments beyond them is as the legend says, for few expected positives too."""
    p = np.full(12, 0.15)
    (counts,) = (np.arange(13),)
    chance = stats.binom.pmf(counts, 12, 0.15)
    ax = plots.rate_funnel(np.zeros(12), p, np.zeros(12))
    for level, text in ((0.95, "95 %"), (0.998, "99.8 %")):
        x, y = starting(ax, f"{text} limits").get_xydata().T
        limit = np.interp(1.8, x, y)
        assert chance[counts / 1.8 > limit].sum() < 1.1 * (1 - level) / 2
        assert chance[counts / 1.8 > limit - 1 / 1.8].sum() > 0.8 * (1 - level) / 2


def test_limits_hold_at_every_base_rate():
    """Topics of .03 to 33 %, of equal numbers of rows: by these the limits would fit none."""
    rng = np.random.default_rng(2)
    rates = np.geomspace(0.0003, 0.33, 2000)
    segments = np.repeat(np.arange(2000), 1000)
    labels = rng.random(len(segments)) < rates[segments]
    ax = plots.rate_funnel(labels, rates[segments], segments)
    expected, ratio = np.asarray(starting(ax, "2,000 segments, none off").get_offsets()).T
    assert len(expected) > 1990 and expected.min() < 1 and expected.max() > 300
    assert ax.get_xlabel() == "expected positives of the segment"
    lines = [line for line in ax.lines if line.get_linestyle() == "-" and len(line.get_xdata()) > 2]
    lower, upper = (np.interp(expected, *line.get_data()) for line in lines[:2])
    beyond = (ratio > upper) | (ratio < lower)
    # Half of the topics at a time; the rarest have no lower limit.
    for some, least in ((expected < 10, 0.01), (expected >= 10, 0.025)):
        assert least < beyond[some].mean() < 0.06


def test_none_is_off_where_all_is_chance():
    _, labels, segments, p = alike(20_000, 1, 60)
    ax = plots.rate_funnel(labels, p, segments)
    (text,) = [text for text in labelled(ax) if text.startswith("99.8 %")]
    beyond = int(text.split("limits: ")[1].split()[0])
    assert beyond <= 40 and text.endswith("chance up to 40")
    assert starting(ax, "20,000 segments, none off (q ≤ 0.05)") and not named(ax)


def test_what_is_reliably_off_is_marked_and_named():
    _, labels, segments, p = alike(400, 50, 200)
    names = np.array([f"shop {i}" for i in range(400)])
    labels[segments == 17] = 1
    labels[segments == 23] = 0
    ax = plots.rate_funnel(labels, p, names[segments])
    off = starting(ax, "2 off (q ≤ 0.05)")
    expected = np.bincount(segments, p)
    np.testing.assert_allclose(sorted(x for x, _ in drawn(off)), np.sort(expected[[17, 23]]))
    assert sorted(named(ax)) == ["shop 17", "shop 23"]
    assert starting(ax, "398 other segments")
    judged = {"segment": names[[5, 17, 23]], "flagged": np.array([True, True, False])}
    ax = plots.rate_funnel(labels, p, names[segments], judged=judged)
    flagged = sorted(x for x, _ in drawn(starting(ax, "2 flagged by triage")))
    np.testing.assert_allclose(flagged, np.sort(expected[[5, 17]]))
    none = {"segment": names[:3], "flagged": np.zeros(3, bool)}
    ax = plots.rate_funnel(labels, p, names[segments], judged=none)
    assert starting(ax, "400 segments, none flagged by triage")
    with pytest.raises(ValueError, match="judged: expected the table of triage, got columns"):
        plots.rate_funnel(labels, p, names[segments], judged={"segment": names})


def test_triage_of_several_columns_is_found_again():
    scores, labels, segments, p = alike(40, 60, 60)
    columns = np.rec.fromarrays([segments % 4, np.array(list("abcdefghij"))[segments // 4]])
    calibrator = pj.fit_segments(scores, labels, columns)
    changed = np.where(segments == 9, 1 - labels, labels)
    judged = pj.triage(calibrator, scores, changed, columns)
    ax = plots.rate_funnel(changed, p, columns, judged=judged)
    assert named(ax) == ["1, c"] and starting(ax, "1 flagged by triage")


def test_names_do_not_overlap():
    _, labels, segments, p = alike(40, 100, 102)
    labels[segments < 20] = 1
    ax = plots.rate_funnel(labels, p, [f"a long name {i}" for i in segments])
    assert 2 <= len(named(ax)) <= 8
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert min(text.zorder for text in ax.texts) > ax.get_legend().zorder
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert all(ax.bbox.contains(*box.min) and ax.bbox.contains(*box.max) for box in boxes)
