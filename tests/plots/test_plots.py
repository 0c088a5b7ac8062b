"""Figures show the numbers they should, on the axes they are given, and change no setting."""

import re
import subprocess
import sys
import time
import timeit
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from artists import drawn, failing, labelled, notes, pairs, sizes, starting
from figures import FIGURES, JUDGED, crossed, every_figure, nested
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from scipy import stats
from sklearn.calibration import CalibrationDisplay
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import platt_jax as pj
from platt_jax import Flag, Status, metrics, plots
from platt_jax.plots import overview, points
from platt_jax.validation.doubts import FittedScores


@pytest.mark.parametrize("name", FIGURES)
def test_draws_on_the_axes_given_or_on_new_ones(name, rows, calibrator, pooled):
    make = every_figure(rows, calibrator, pooled)[name]
    figure, (ax, other) = plt.subplots(1, 2)
    assert make(ax=ax) is ax and ax.figure is figure
    assert not other.has_data()
    new = make()
    assert new.figure is not figure and new.has_data()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FIGURES, "segments"])
def test_all_text_is_legible_and_inside_at_six_inches(name, rows, calibrator, pooled):
    if name == "segments":
        ax = plots.segment_sigmoids(calibrator, *rows, chosen=calibrator.keys)[0, 0]
        ax.figure.set_size_inches(6, 7)
    else:
        ax = every_figure(rows, calibrator, pooled)[name]()
        ax.figure.set_size_inches(6, 4)
    ax.figure.canvas.draw()
    texts = [x for x in ax.figure.findobj(Text) if x.get_visible() and x.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 8
    whole = ax.figure.bbox.padded(1)
    boxes = [each.get_tightbbox() for each in ax.figure.axes if each.get_visible()]
    assert all(whole.contains(*box.min) and whole.contains(*box.max) for box in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_panel_takes_its_place_from_axes_without_a_grid(rows, calibrator, pooled):
    figure = plt.figure()
    ax = figure.add_axes((0.2, 0.3, 0.6, 0.5))
    every_figure(rows, calibrator, pooled)["binned"](ax=ax)
    upper, lower = (x.get_position(original=True).bounds for x in figure.axes)
    assert lower[:2] == (0.2, 0.3) and lower[1] + lower[3] < upper[1]
    np.testing.assert_allclose(upper[1] + upper[3], 0.8)


def test_reliability_is_that_of_scikit_learn_with_wilson_intervals(rows, calibrator):
    scores, labels, _ = rows
    p = calibrator.fallback.predict_proba(scores)
    ax = plots.reliability_diagram(labels, p, strategy="uniform", n_bins=7, level=0.9)
    line, _, (bars,) = starting(ax, "observed, 90 %").lines
    theirs = CalibrationDisplay.from_predictions(labels, p, n_bins=7)
    np.testing.assert_allclose(line.get_xydata(), np.c_[theirs.prob_pred, theirs.prob_true])
    which = np.searchsorted(np.arange(1, 7) / 7, p)
    for number, ((_, low), (_, high)) in zip(np.unique(which), bars.get_segments(), strict=True):
        mine = labels[which == number]
        interval = stats.binomtest(int(mine.sum()), len(mine)).proportion_ci(0.9, "wilson")
        np.testing.assert_allclose([low, high], interval, atol=1e-12)
    (histogram,) = ax.figure.axes[1].patches
    counts, edges, _ = histogram.get_data()
    np.testing.assert_array_equal(counts, np.histogram(p, edges)[0])
    assert counts.sum() == len(p)


def test_models_share_axes_and_differ_in_colour_and_marker(rows, calibrator):
    scores, labels, segments = rows
    models = {
        "pooled": calibrator.fallback.predict_proba(scores),
        "own": calibrator.predict_proba(scores, segments),
    }
    ax = plots.reliability_diagram(labels, models, histogram=False)
    assert len(ax.figure.axes) == 1
    lines = [starting(ax, name).lines[0] for name in models]
    for line, p in zip(lines, models.values(), strict=True):
        curve = metrics.reliability_curve(labels, p, strategy="quantile")
        np.testing.assert_allclose(line.get_xydata(), np.c_[curve.prob_pred, curve.prob_true])
    assert lines[0].get_color() != lines[1].get_color()
    assert lines[0].get_marker() != lines[1].get_marker()


def test_logits_and_weights_of_a_reliability_diagram(rows, calibrator):
    scores, labels, _ = rows
    logit = calibrator.fallback.logit(scores)
    weights = np.arange(len(scores)) % 3
    ax = plots.reliability_diagram(labels, logit, weights=weights, from_logits=True)
    p = np.repeat(1 / (1 + np.exp(-logit)), weights)
    curve = metrics.reliability_curve(np.repeat(labels, weights), p, strategy="quantile")
    line = starting(ax, "observed").lines[0]
    np.testing.assert_allclose(line.get_xydata(), np.c_[curve.prob_pred, curve.prob_true])
    counts, edges, _ = ax.figure.axes[1].patches[0].get_data()
    np.testing.assert_array_equal(counts, np.histogram(p, edges)[0])


def test_smooth_diagram(rows, calibrator):
    scores, labels, _ = rows
    p = calibrator.fallback.predict_proba(scores)
    ax = plots.reliability_diagram(labels, p, method="smooth", level=0.8)
    line, curve = (
        starting(ax, "observed, 80 % band"),
        metrics.smooth_curve(labels, p, level=0.8),
    )
    np.testing.assert_array_equal(line.get_xydata(), np.c_[curve.prob_pred, curve.prob_true])
    (band,) = [c for c in ax.collections if isinstance(c, PolyCollection)]
    corners = band.get_paths()[0].vertices
    for end in (curve.lower, curve.upper):
        assert set(zip(curve.prob_pred, end, strict=True)) <= set(map(tuple, corners.tolist()))
    assert to_rgb(line.get_color()) == tuple(band.get_facecolor()[0, :3])


def test_isotonic_diagram(rows, calibrator):
    scores, labels, _ = rows
    p = calibrator.fallback.predict_proba(scores)
    ax = plots.reliability_diagram(labels, p, method="isotonic")
    line = starting(ax, "isotonic")
    x, y = line.get_xydata().T
    theirs = IsotonicRegression(y_min=0, y_max=1).fit(p, labels)
    np.testing.assert_allclose(y, theirs.predict(x), atol=1e-12)
    assert x[0] == p.min() and x[-1] == p.max()
    (band,) = [c for c in ax.collections if isinstance(c, PolyCollection)]
    curve = metrics.isotonic_curve(labels, p)
    corners = band.get_paths()[0].vertices
    for end in (curve.lower, curve.upper):
        assert set(zip(x, end, strict=True)) <= set(map(tuple, corners.tolist()))
    # It is around the diagonal, not around the curve: grey, with an entry of its own.
    assert band is starting(ax, "95 % if calibrated")
    assert np.ptp(band.get_facecolor()[0, :3]) == 0 and np.ptp(to_rgb(line.get_color())) > 0.3
    models = {"one": p, "other": p**2}
    ax = plots.reliability_diagram(labels, models, method="isotonic", level=0.8)
    assert list(labelled(ax))[1:] == ["80 % if calibrated", "one", "other"]


def test_display_keeps_its_parts():
    display = plots.ReliabilityDisplay.from_predictions(
        [0, 1, 0, 1], [0.1, 0.3, 0.6, 0.8], n_bins=2, name="mine", color="red"
    )
    assert display.line_ in display.ax_.lines and display.figure_ is display.ax_.figure
    assert display.line_.get_color() == "red" and display.interval_.get_label() == "mine"
    np.testing.assert_allclose(display.line_.get_xydata(), [[0.2, 0.5], [0.7, 0.5]])
    again = display.plot()
    assert again is display and display.ax_.figure.number == 2


@pytest.mark.parametrize("pos_label", [None, "no"])
def test_the_display_of_an_estimator_is_as_scikit_learns(rng, pos_label):
    X = rng.normal(size=(300, 2))
    y = np.where(X[:, 0] + rng.normal(size=300) > 0, "yes", "no")
    model = LogisticRegression().fit(X, y)
    theirs = CalibrationDisplay.from_estimator(
        model, X, y, n_bins=5, strategy="quantile", pos_label=pos_label
    )
    ours = plots.ReliabilityDisplay.from_estimator(model, X, y, n_bins=5, pos_label=pos_label)
    np.testing.assert_allclose(ours.curve.prob_pred, theirs.prob_pred)
    np.testing.assert_allclose(ours.curve.prob_true, theirs.prob_true)
    assert ours.name == "LogisticRegression"
    three = np.where(X[:, 1] > 1, "maybe", y)
    for labels, wrong in ((y, "maybe"), (three, None)):
        model = LogisticRegression().fit(X, labels)
        with pytest.raises(ValueError, match="pos_label: expected one of the classes"):
            plots.ReliabilityDisplay.from_estimator(model, X, labels, pos_label=wrong)


def test_sigmoid_its_band_rates_and_densities(rows):
    scores, labels, _ = rows
    one = pj.fit(scores, labels)
    ax = plots.sigmoid(one, scores, labels, n_bins=6, level=0.8)
    x, y = starting(ax, "sigmoid, 80 %").get_xydata().T
    np.testing.assert_allclose(y, 1 / (1 + np.exp(one.A * x + one.B)))
    (band,) = [c for c in ax.collections if isinstance(c, PolyCollection)]
    corners = set(map(tuple, band.get_paths()[0].vertices.tolist()))
    for end in one.band(x, 0.8):
        assert set(zip(x, end, strict=True)) <= corners
    line = starting(ax, "observed, 80 %").lines[0]
    by_score = np.array_split(np.argsort(scores, kind="stable"), 6)
    middle = [scores[part].mean() for part in by_score]
    np.testing.assert_allclose(line.get_xdata(), middle, atol=0.02)
    np.testing.assert_allclose(line.get_ydata(), [labels[i].mean() for i in by_score], atol=0.02)
    for label in (0, 1):
        density, edges, _ = starting(ax.figure.axes[1], f"class {label}").get_data()
        mine = scores[labels == label]
        assert edges[0] <= np.quantile(scores, 0.01) and edges[-1] >= np.quantile(scores, 0.99)
        inside = (mine >= edges[0]) & (mine <= edges[-1])
        expected = np.histogram(mine, edges, density=True)[0] * inside.mean()
        np.testing.assert_allclose(density, expected)
    assert len(plots.sigmoid(one, scores, labels, densities=False).figure.axes) == 1


def test_segments_are_drawn_in_the_order_chosen(rows, calibrator):
    scores, labels, segments = rows
    axes = plots.segment_sigmoids(calibrator, *rows, chosen=[20, 7, 31, 2])
    assert axes.shape == (2, 2)
    for ax, name in zip(axes.flat, (20, 7, 31, 2), strict=True):
        assert ax.get_title() == f"{name}, {np.sum(segments == name)} rows"
        x, y = starting(ax, "sigmoid").get_xydata().T
        np.testing.assert_allclose(y, calibrator[name].predict_proba(x))
        x, y = starting(ax, "all rows").get_xydata().T
        np.testing.assert_allclose(y, calibrator.fallback.predict_proba(x))
        x, y = starting(ax, "observed").lines[0].get_xydata().T
        mine = segments == name
        assert len(x) <= max(1, mine.sum() // 10)
        if len(x) == 1:
            np.testing.assert_allclose((x[0], y[0]), (scores[mine].mean(), labels[mine].mean()))


def test_segments_of_a_table(rows, calibrator):
    table = {
        "segment": np.array([3, 40, 12]),
        "p_value": np.array([1e-6, 0.01, 0.5]),
        "q_value": np.array([0.00123, 0.2, 0.6]),
    }
    axes = plots.segment_sigmoids(calibrator, *rows, chosen=table, most=2)
    titles = [ax.get_title() for ax in axes.flat if ax.get_visible()]
    assert [title.split(",")[0] for title in titles] == ["3", "40"]
    assert [title.split("\n")[1] for title in titles] == ["q = 0.0012", "q = 0.2"]
    del table["q_value"]
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    for chosen in (pandas.DataFrame(table, index=[7, 8, 9]), pyarrow.table(table)):
        axes = plots.segment_sigmoids(calibrator, *rows, chosen=chosen)
        titles = [ax.get_title() for ax in axes.flat if ax.get_visible()]
        assert [title.split("\n")[1] for title in titles] == ["p = 1e-06", "p = 0.01", "p = 0.5"]
        assert not axes[1, 1].get_visible()


def test_segments_of_a_column(rows, calibrator):
    column = pytest.importorskip("pandas").Series([12, 3], index=[5, 6])
    axes = plots.segment_sigmoids(calibrator, *rows, chosen=column)
    assert [ax.get_title().split(",")[0] for ax in axes.flat] == ["12", "3"]


def test_names_of_segments_are_no_formulas(rows):
    scores, labels, segments = rows
    names = np.where(segments == 4, r"$\frac{$", segments.astype(str))
    calibrator = pj.fit_segments(scores, labels, names)
    axes = plots.segment_sigmoids(calibrator, scores, labels, names, chosen=[r"$\frac{$"])
    axes[0, 0].figure.canvas.draw()


@pytest.mark.parametrize("kind", ["text", "objects", "categories", "dates"])
def test_segments_of_a_table_of_any_type(rows, kind):
    pandas = pytest.importorskip("pandas")
    scores, labels, segments = rows
    days = np.datetime64("2024-03-01") + segments
    text = days.astype(str)
    ids = {"objects": text.astype(object), "dates": days}.get(kind, text)
    if kind == "categories":
        ids = pandas.Categorical(ids)
    calibrator = pj.fit_segments(scores, labels, ids)
    chosen = pandas.DataFrame({"segment": ids[np.flatnonzero(segments == 4)[:1]]})
    axes = plots.segment_sigmoids(calibrator, scores, labels, ids, chosen)
    assert axes[0, 0].get_title().startswith("2024-03-05")
    assert axes[0, 0].get_title().endswith(f", {np.sum(segments == 4)} rows")


def test_rows_of_other_segments_do_not_matter(rows, calibrator):
    scores, labels, segments = (x.copy() for x in rows)
    scores[segments == 11] = np.nan
    given = np.empty(2, object)
    given[:] = plt.subplots(1, 2)[1]
    axes = plots.segment_sigmoids(calibrator, scores, labels, segments, [30], axes=given)
    assert axes is given and axes[0].has_data() and not axes[1].has_data()
    with pytest.raises(ValueError, match=r"scores: expected finite numbers, got \d+ that are NaN"):
        plots.segment_sigmoids(calibrator, scores, labels, segments, [11])


def test_segments_of_several_columns(rows):
    scores, labels, segments = rows
    columns = [("ab"[s % 2], int(s // 2)) for s in segments]
    calibrator = pj.fit_segments(scores, labels, columns)
    axes = plots.segment_sigmoids(calibrator, scores, labels, columns, [("b", 10)])
    assert axes[0, 0].get_title() == f"b, 10, {np.sum(segments == 21)} rows"


def test_map_shows_every_problem_once_by_its_flag(calibrator):
    ax = plots.parameter_map(calibrator)
    fit = calibrator.fit
    assert (fit.flags == Flag.SEPARABLE | Flag.REVERSED).any()
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    inside = (fit.A >= left) & (fit.A <= right) & (fit.B >= bottom) & (fit.B <= top)
    order = [Flag.CONSTANT_SCORES, Flag.ONE_CLASS, Flag.SEPARABLE, Flag.OUTLIER, Flag.REVERSED]
    seen = 0
    for i, flag in enumerate([None, *order]):
        if flag is None:
            mine = fit.flags == 0
        else:
            earlier = sum(order[: i - 1], Flag(0))
            mine = ((fit.flags & flag) != 0) & ((fit.flags & earlier) == 0)
        if mine.any():
            dots = starting(ax, "no flag" if flag is None else flag.name)
            every = mine if flag is None else fit.flags & flag != 0
            elsewhere = every.sum() - mine.sum()
            also = f"{flag.name}, {elsewhere} of them above" if elsewhere else ""
            assert dots.get_label().startswith(f"{every.sum():,} {also}")
            assert drawn(dots) == pairs(fit.A[mine & inside], fit.B[mine & inside])
            seen += mine.sum()
    assert seen == len(fit.A) and (fit.flags != 0).any()
    assert (~inside).any()
    assert ax.get_title(loc="right") == f"{np.sum(~inside)} beyond the axes"


def test_every_flag_has_its_own_look():
    assert set(overview._LOOKS) == set(Flag) and len(set(overview._LOOKS.values())) == len(Flag)


def test_what_is_not_drawn_is_counted_with_its_reasons(calibrator, pooled, rows):
    assert "not drawn" not in notes(plots.parameter_map(calibrator))
    failed = failing(failing(calibrator, [7, 20, 21]), [22], Status.EMPTY)
    assert notes(plots.parameter_map(failed)).startswith("4 not drawn: 3 NON_FINITE, 1 EMPTY")

    ax = plots.slope_funnel(failed)
    flags, lost = calibrator.fit.flags.copy(), 4
    flags[[7, 20, 21, 22]] = 0
    reasons = ["3 NON_FINITE", "1 EMPTY"]
    for flag in (Flag.ONE_CLASS, Flag.CONSTANT_SCORES, Flag.SEPARABLE):
        mine = flags & flag != 0
        flags[mine] = 0
        if mine.any():
            more = "" if mine.sum() == np.sum(calibrator.fit.flags & flag != 0) else "more "
            reasons.append(f"{mine.sum()} {more}{flag.name}")
        lost += mine.sum()
    assert len(reasons) > 3
    assert notes(ax).startswith(f"{lost} not drawn: {', '.join(reasons)}")
    assert max(map(len, ax.get_title(loc="right").splitlines())) <= 60
    shown = [int(starting(ax, x).get_label().split()[0]) for x in ("segments", " off (")]
    assert sum(shown) + lost == len(calibrator)

    scores, labels, segments = rows
    p = np.where(segments == 3, 0, calibrator.fallback.predict_proba(scores))
    gone = segments != 5  # of weight 0, and so no segment of the rows
    ax = plots.rate_funnel(labels, p, segments, weights=gone)
    assert notes(ax).startswith("1 not drawn: 1 with 0 expected")

    counts = {name: getattr(pooled.fit, name).copy() for name in ("n_pos", "n_neg")}
    for each in counts.values():
        each[[4, 5]] = 0
    partial = replace(pooled, fit=replace(pooled.fit, **counts))
    ax = plots.shrinkage(partial)
    assert notes(ax) == "2 not drawn: 2 without rows" and starting(ax, "58 segments")
    ax = plots.shrinkage(partial, failing(calibrator, [5, 6]))
    assert notes(ax).startswith("3 not drawn: 2 without rows, 1 more without a slope")


def test_looks_differ_in_colour_and_in_shape(calibrator):
    dots = [c for c in plots.parameter_map(calibrator).collections if isinstance(c, PathCollection)]
    assert len(dots) >= 4
    assert len({c.get_facecolor()[0, :3].tobytes() for c in dots}) == len(dots)
    assert len({c.get_paths()[0].vertices.tobytes() for c in dots}) == len(dots)


def test_shrinkage_by_rows_and_slopes_before_and_after(pooled, calibrator):
    dots = plots.shrinkage(pooled).collections[0]
    assert drawn(dots) == pairs(sizes(pooled), pooled.shrinkage)
    ax = plots.shrinkage(pooled, calibrator)
    before, after = -calibrator.fit.A, -pooled.fit.A
    n = sizes(pooled)
    assert drawn(starting(ax, "unpooled")) == pairs(n, before)
    assert drawn(starting(ax, "partially pooled")) == pairs(n, after)
    (lines,) = [c for c in ax.collections if isinstance(c, LineCollection)]
    ends = sorted((x, start, end) for (x, start), (_, end) in lines.get_segments())
    assert ends == pairs(n, before, after)
    assert starting(ax, "mean of the population").get_ydata()[0] == 1.2


def panels(by_level, calibrator):
    """Intercepts' and slopes' axes."""
    plots.levels(replace(calibrator, by_level=by_level))
    return plt.gcf().axes


@pytest.mark.parametrize("parameter", [0, 1])
def test_levels_have_their_spreads_with_errors_and_the_effects_of_values(calibrator, parameter):
    by_level = crossed(3)
    ax = panels(by_level, calibrator)[1 - parameter]
    table = by_level.table()
    name = ("slope_sd", "intercept_sd")[parameter]
    deviations, errors = table[name], table[f"se_{name}"]
    of_bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    np.testing.assert_allclose(of_bars, np.stack([-deviations, deviations], 1))
    whiskers = [x for x in ax.collections if isinstance(x, LineCollection)]
    for whisker, deviation, error in zip(whiskers, deviations, errors, strict=True):
        left, right = (np.sort(each[:, 0]) for each in whisker.get_segments())
        # Not beyond 0, where the two of a level would meet.
        inner = max(deviation - error, 0)
        np.testing.assert_allclose(right, [inner, deviation + error])
        np.testing.assert_allclose(left, -right[::-1])
    dots = [x for x in ax.collections if isinstance(x, PathCollection)]
    for line, (each, level) in enumerate(zip(dots, by_level.each, strict=True)):
        effects, heights = np.asarray(each.get_offsets()).T
        expected = np.sort(-level.mean[:, parameter])
        if line < 2:
            np.testing.assert_allclose(effects, expected)
        assert len(effects) == min(len(expected), 300)
        # By rank, from the first to the last: the quantiles are those of all values.
        shares = np.linspace(0, 1, 9)
        np.testing.assert_allclose(
            np.quantile(effects, shares), np.quantile(expected, shares), atol=0.02
        )
        bar = ax.patches[line]
        low, high = sorted([bar.get_y(), bar.get_y() + bar.get_height()])
        assert low < heights.min() and heights.max() < high
        assert np.abs(np.diff(heights)).min() > 0.3 * (high - low)  # neighbours are apart
    assert dots[0].get_offsets()[0, 1] < dots[1].get_offsets()[0, 1]
    assert ax.yaxis_inverted()  # the first column at the top


def test_effects_of_nested_levels_are_relative_to_the_value_above(calibrator):
    left, right = panels(nested(), calibrator)
    of_slopes, of_intercepts = (
        [np.asarray(x.get_offsets())[:, 0] for x in ax.collections if isinstance(x, PathCollection)]
        for ax in (right, left)
    )
    np.testing.assert_allclose(of_slopes[0], [-1, 1])
    np.testing.assert_allclose(of_slopes[1], [-0.4, -0.3, 0.1, 0.2], atol=1e-12)
    np.testing.assert_allclose(of_intercepts[0], [-1, -0.5])
    np.testing.assert_allclose(of_intercepts[1], [-0.1, 0, 0, 0], atol=1e-12)
    texts = [text.get_text() for text in left.get_yticklabels()]
    assert texts == ["country\n2 values, 50 %", "> city\n4 values, 50 %"]


def test_names_of_levels_are_short_and_no_formulas(calibrator):
    by_level = crossed(6)
    left, right = panels(by_level, calibrator)
    texts = left.get_yticklabels()
    lines = [text.get_text().split("\n") for text in texts]
    assert all(len(each) <= 3 and max(map(len, each)) <= 21 for each in lines)
    assert lines[0][1].endswith("…") and lines[2] == ["$x_1$", "400 values, 17 %"]
    assert not any(text.get_parse_math() for text in texts)
    left.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert not any(text.get_visible() and text.get_text() for text in right.get_yticklabels())


def test_a_panel_beside_takes_its_place_from_axes_without_a_grid(calibrator):
    ax = plt.figure().add_axes((0.2, 0.3, 0.6, 0.5))
    plots.levels(replace(calibrator, by_level=nested()), ax=ax)
    left, right = (x.get_position().bounds for x in ax.figure.axes)
    assert left[:2] == (0.2, 0.3) and left[0] + left[2] < right[0]
    np.testing.assert_allclose(right[0] + right[2], 0.8)
    assert left[3] == right[3] == 0.5


def test_pooling_losses_with_their_intervals():
    ax = plots.pooling_losses(JUDGED, level=0.9)
    for name, label in (("partial", "partial pooling"), ("drift", "what lasts")):
        mine = JUDGED["pooling"] == name
        line, _, (bars,) = starting(ax, label)
        np.testing.assert_array_equal(line.get_ydata(), JUDGED["difference"][mine])
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        reach = stats.norm.ppf(0.95) * np.nan_to_num(JUDGED["standard_error"][mine])
        np.testing.assert_allclose(np.ptp(ends, axis=1) / 2, reach)
        assert np.all(np.abs(line.get_xdata() - [0, 1]) < 0.5)
    assert [x.get_text() for x in ax.get_xticklabels()] == ["2013-10", "2013-11"]
    assert ax.get_title(loc="right") == "1 beyond the axes"


def test_very_many_problems_are_counted_in_hexagons(calibrator, monkeypatch):
    dots = plots.parameter_map(calibrator)
    monkeypatch.setattr(points, "MOST_POINTS", 20)
    ax = plots.parameter_map(calibrator)
    (hexagons,) = [c for c in ax.collections if isinstance(c, PolyCollection)]
    assert hexagons.get_array().sum() == len(starting(dots, "no flag").get_offsets())
    funnel = plots.slope_funnel(calibrator)
    (hexagons,) = [c for c in funnel.collections if isinstance(c, PolyCollection)]
    marked = starting(funnel, " off (").get_offsets()
    usable = (calibrator.fit.flags & (Flag.ONE_CLASS | 2 | Flag.SEPARABLE)) == 0
    assert "beyond the axes" not in notes(funnel)
    assert hexagons.get_array().sum() == usable.sum() - len(marked)
    ticks = [text.get_text() for text in funnel.get_xticklabels()]
    assert ticks and all(re.fullmatch(r"[\d,]+(\.\d+)?", text) for text in ticks)


def test_a_mark_for_each_cell_of_very_many():
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 60_000))
    ax = plt.subplots()[1]
    window = (0.0, 1.0), (0.0, 0.5)
    dots = points.points(ax, x, y, window, "many", marked=True)
    cells = {(int(a * 60), int(b * 120)) for a, b in dots.get_offsets().tolist()}
    assert len(cells) == len(dots.get_offsets())
    assert cells == {(int(a * 60), int(b * 120)) for a, b in zip(x, y, strict=True) if b <= 0.5}


@pytest.mark.slow
def test_a_million_problems_are_drawn_within_40_sorts_of_their_rows(million, pooled):
    K = len(million.keys)
    rng = np.random.default_rng(2)
    segments = np.sort(rng.integers(0, K, 3 * K))
    p = rng.beta(2, 5, 3 * K)
    labels = rng.random(3 * K) < p
    population = replace(pooled.population, shrinkage=rng.random(K))
    partial = replace(million, population=population)
    of_a_million = crossed(2)
    many = replace(of_a_million.each[1], keys=np.arange(K), mean=rng.normal(size=(K, 2)))
    of_a_million = replace(of_a_million, each=(of_a_million.each[0], many))
    figures = {
        "map": lambda: plots.parameter_map(million),
        "slopes": lambda: plots.slope_funnel(million),
        "rates": lambda: plots.rate_funnel(labels, p, segments),
        "shrinkage": lambda: plots.shrinkage(partial),
        "moves": lambda: plots.shrinkage(partial, million),
        "levels": lambda: plots.levels(replace(million, by_level=of_a_million)),
    }
    sorts = {}
    for name, make in figures.items():
        drawn = thread_seconds(lambda make=make: make().figure.canvas.draw())
        sorts[name] = drawn / min(thread_seconds(lambda: np.argsort(p)) for _ in range(3))
    assert max(sorts.values()) < 40, sorts


def thread_seconds(call):
    """Of this thread: others may keep the cores busy. `timeit` collects no garbage meanwhile."""
    return timeit.timeit(call, timer=time.thread_time, number=1)


def test_what_cannot_be_drawn_is_named(rows, calibrator, pooled):
    scores, labels, segments = rows
    p = calibrator.fallback.predict_proba(scores)
    one = pj.fit(scores, labels)
    bad = np.where(np.arange(len(p)) == 3, np.nan, p)
    flat = replace(calibrator.fit, flags=calibrator.fit.flags | Flag.ONE_CLASS)
    failed = replace(
        calibrator, fit=replace(calibrator.fit, A=np.full_like(calibrator.fit.A, np.nan))
    )
    grid = calibrator, scores, labels, segments
    for call, message in (
        (lambda: plots.reliability_diagram(labels, bad), "proba: expected finite numbers, got 1 "),
        (lambda: plots.reliability_diagram(labels, p * 2), "proba: expected probabilities in"),
        (lambda: plots.reliability_diagram(labels, p[None]), r"proba: expected \(N,\)"),
        (lambda: plots.reliability_diagram(labels, {}), "proba: .* got an empty mapping"),
        (lambda: plots.reliability_diagram(labels[1:], p), "labels: expected"),
        (lambda: plots.reliability_diagram(labels, p, method="corp"), "method: expected one of"),
        (lambda: plots.reliability_diagram(labels, p, strategy="x"), "strategy: expected"),
        (lambda: plots.reliability_diagram(labels, p, weights=0 * p), "weights: expected some"),
        (lambda: plots.sigmoid(calibrator.fit, scores, labels), "fit: expected a fit of one"),
        (lambda: plots.sigmoid(one, bad, labels), "scores: expected finite numbers"),
        (lambda: plots.sigmoid(one, scores, labels, level=2), "level: expected"),
        (lambda: plots.segment_sigmoids(*grid, chosen=[99]), "chosen: 99 was not among"),
        (lambda: plots.segment_sigmoids(*grid, chosen=[]), "chosen: expected at least one"),
        (lambda: plots.segment_sigmoids(*grid, chosen={"id": [1]}), "expected a column 'segment'"),
        (
            lambda: plots.segment_sigmoids(calibrator, scores[:9], labels[:9], segments[:9], [50]),
            "chosen: .*50.* has none of the rows",
        ),
        (
            lambda: plots.segment_sigmoids(calibrator, scores[1:], labels, segments, [50]),
            r"segments: expected one id per row, \d+ of them, got \d+",
        ),
        (
            lambda: plots.segment_sigmoids(*grid, chosen=[1, 2], axes=plt.subplots()[1]),
            "axes: expected 2 or more, got 1",
        ),
        (lambda: plots.parameter_map(failed), "fits: expected problems with parameters"),
        (lambda: plots.parameter_map(p), "fits: expected a SegmentCalibrator, .*, got a ndarray$"),
        (lambda: plots.slope_funnel(flat), "fits: expected problems with a slope"),
        (lambda: plots.rate_funnel(labels, p, segments[1:]), "segments: expected one id per row"),
        (lambda: plots.rate_funnel(labels, 0 * p, segments), "proba: expected some above 0"),
        (lambda: plots.pooling_losses({"cut": p}), "judged: expected the table of judge_pooling"),
        (
            lambda: plots.levels(calibrator),
            'calibrator: expected .*"nested" or "crossed", got one with pooling=.none',
        ),
        (lambda: plots.levels(pooled), "calibrator: expected .* got one with pooling=.partial"),
        (lambda: plots.levels(one), "calibrator: expected .* got Fit"),
        (lambda: plots.shrinkage(calibrator), 'calibrator: expected one with pooling="partial"'),
        (
            lambda: plots.shrinkage(pooled, replace(calibrator, keys=calibrator.keys + 1)),
            "unpooled: expected a calibrator of the same segments",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_classifiers_are_refused_with_the_attribute_to_pass(rows):
    pytest.importorskip("sklearn")
    from platt_jax.sklearn import PlattCalibratedClassifier, SegmentCalibratedClassifier

    scores, labels, segments = rows
    folds = PlattCalibratedClassifier(cv=2).fit(scores[:, None], labels)
    X = np.column_stack([scores, segments])
    by_segment = SegmentCalibratedClassifier(segments=1, cv=2).fit(X, labels)
    for draw in (plots.parameter_map, plots.slope_funnel):
        with pytest.raises(ValueError, match="PlattCalibratedClassifier: pass one of its calibra"):
            draw(folds)
        with pytest.raises(ValueError, match="SegmentCalibratedClassifier: pass its calibrator_"):
            draw(by_segment)
    assert plots.parameter_map(folds.calibrators_[0]).get_xlabel() == "A"


def test_rows_of_weight_zero_are_gone(rows, calibrator):
    scores, labels, segments = rows
    p = calibrator.fallback.predict_proba(scores)
    weights = np.ones(len(p))
    weights[3] = 0
    bad = np.where(weights == 0, np.nan, p)
    kept = weights == 1
    one, same = (
        plots.rate_funnel(labels, bad, segments, weights=weights),
        plots.rate_funnel(labels[kept], p[kept], segments[kept]),
    )
    assert drawn(starting(one, "segments")) == drawn(starting(same, "segments"))


def test_a_missing_matplotlib_is_named_with_its_extra(monkeypatch, calibrator):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'platt-jax\[plots\]'"):
        plots.parameter_map(calibrator)
    with pytest.raises(ImportError, match=r"pip install 'platt-jax\[plots\]'"):
        plots.segment_sigmoids(calibrator, [1.0], [1], [3], [3])


def test_importing_does_not_import_matplotlib():
    code = (
        "import sys, platt_jax; assert 'platt_jax.plots' not in sys.modules; "
        "import platt_jax.plots; assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_reliability_of_classes_is_that_of_each_against_the_others(rng):
    logits = 2 * rng.normal(size=(600, 7))
    names = np.array(list("abcdefg"))
    codes = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    p[:, 2] /= 4  # the class whose error is largest
    p /= p.sum(1, keepdims=True)
    ax = plots.class_reliability(names[codes], p, classes=names, n_bins=4, title="all")
    drawn = labelled(ax)
    assert "2 classes with smaller errors not drawn" in notes(ax)
    errors = [
        metrics.expected_calibration_error(codes == c, p[:, c], n_bins=4, strategy="quantile")
        for c in range(7)
    ]
    expected = {"perfectly calibrated", "most probable class", *names[np.argsort(errors)[2:]]}
    assert "c" in drawn and set(drawn) == expected
    for name, y, x in (
        ("c", codes == 2, p[:, 2]),
        ("most probable class", codes == p.argmax(1), p.max(1)),
    ):
        curve = metrics.reliability_curve(y, x, n_bins=4, strategy="quantile")
        np.testing.assert_allclose(drawn[name][0].get_ydata(), curve.prob_true)
    with pytest.raises(ValueError, match=r"proba: expected \(N, C\)"):
        plots.class_reliability(codes, p[:, 0])


def test_the_scores_of_a_grid_are_no_rows():
    """The covariance of a pooled segment has more than its rows, and the grid's ends are sure."""
    rng = np.random.default_rng(12)
    shop, f = rng.integers(0, 8, 2000), rng.normal(size=2000)
    slope = 1.5 * np.exp(0.2 * rng.normal(size=8))
    log_odds = slope[shop] * f - 1 + (0.3 * rng.normal(size=8))[shop]
    y = rng.random(2000) < 1 / (1 + np.exp(-log_odds))
    calibrator = pj.fit_segments(f, y, shop, pooling="partial")
    plots.segment_sigmoids(calibrator, f, y, shop, list(range(8)))  # warned


def test_a_prior_does_not_say_which_scores_were_fitted():
    fitted = FittedScores.of(np.diag([1.0, 1e-5]), 2000)
    assert np.isnan(fitted.square)
    assert FittedScores.of(np.diag([1.0, 1.0]) / 400, 2000).square == pytest.approx(1.25)
