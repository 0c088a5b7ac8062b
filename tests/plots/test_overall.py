"""Square reliability diagrams with numbers, four figures in one, and figures in words."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
from artists import labelled, notes
from figures import FIGURES, every_figure

import platt_jax as pj
from platt_jax import metrics, plots


@pytest.fixture
def predictions(rows, calibrator):
    scores, labels, _ = rows
    return labels, calibrator.fallback.predict_proba(scores)


def written(ax):
    return [line for text in ax.texts for line in text.get_text().splitlines()]


@pytest.mark.parametrize("size", [(5, 6), (9, 4)])
def test_a_reliability_diagram_is_square_as_wide_as_its_histogram(predictions, size):
    ax = plots.reliability_diagram(*predictions)
    ax.figure.set_size_inches(*size)
    ax.figure.canvas.draw()
    upper, lower = (each.get_window_extent() for each in ax.figure.axes)
    assert upper.width == pytest.approx(upper.height, rel=0.01)
    assert upper.x0 == pytest.approx(lower.x0, abs=2) and upper.x1 == pytest.approx(lower.x1, abs=2)
    assert lower.y1 < upper.y0


def test_a_reliability_diagram_has_its_numbers(predictions):
    labels, p = predictions
    weights = 1.0 + np.arange(len(p)) % 2
    ax = plots.reliability_diagram(labels, p, weights=weights, n_bins=7)
    shared = {"weights": weights}
    bins = {"n_bins": 7, "strategy": "quantile"} | shared
    error, lower, upper = metrics.ece_interval(labels, p, **bins)
    assert lower == 0
    assert written(ax) == [
        f"log loss {metrics.log_loss(labels, p, **shared):.4g}",
        f"ECE {error:#.2g} (95 %: 0 to {upper:#.2g})",
        f"smECE {metrics.smooth_ece(labels, p, **shared):#.2g}",
    ]
    ax = plots.reliability_diagram(labels, {"one": p, "$2$": p**2}, level=0.8)
    lines = written(ax)
    error = metrics.ece_interval(labels, p, strategy="quantile", level=0.8)
    told = "one: {:.4g}, {:#.2g} (0 to {:#.2g})".format(metrics.log_loss(labels, p), *error[::2])
    assert lines[:2] == ["log loss, ECE (80 % interval)", told]
    assert lines[2].startswith("$2$: ") and len(lines) == 3
    assert written(plots.reliability_diagram(labels, p, numbers=False)) == []
    calibrated = plots.reliability_diagram([0, 1] * 50, np.full(100, 0.5))
    assert written(calibrated)[1].startswith("ECE 0 (95 %: 0 to ")


def test_names_of_models_are_drawn_as_they_are():
    p = np.linspace(0.1, 0.9, 40)
    long = "an overconfident model of last year with a long name"
    ax = plots.reliability_diagram(p > 0.5, {"_old": p, "cost $5$": p, long: p})
    texts = [text.get_text().strip("\u200a") for text in ax.get_legend().get_texts()]
    assert texts[1:3] == ["_old", r"cost \$5\$"] and "\n" in texts[3]
    assert written(ax)[3].startswith("an overconf…a long name: ")
    with pytest.raises(ValueError, match=r"labels: .* \(model 'short'\)$"):
        plots.reliability_diagram(p > 0.5, {"all": p, "short": p[1:]})
    with pytest.raises(ValueError, match=r"pass proba\[:, 1\]$"):
        plots.reliability_diagram(p > 0.5, np.stack([1 - p, p], 1))
    with pytest.raises(ValueError, match="proba: expected rows, got none"):
        plots.reliability_diagram([], [])


@pytest.mark.parametrize("method", ["smooth", "isotonic"])
def test_one_prediction_is_a_dot(method):
    ax = plots.reliability_diagram([0, 1, 1] * 30, np.full(90, 0.5), method=method)
    (line,) = (x for x in ax.lines if x.get_marker() == "o")
    assert line.get_xdata().tolist() == [0.5] and line.get_ydata() == pytest.approx(2 / 3)


@pytest.mark.parametrize("method", ["smooth", "isotonic"])
def test_two_predictions_are_drawn(method):
    """No point lies between the quantiles of two points that limit the axes."""
    ax = plots.reliability_diagram([0, 1, 1, 0], [0.2, 0.8, 0.2, 0.8], method=method)
    assert ax.get_xlim()[0] < 0.2 and ax.get_xlim()[1] > 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a smooth curve of split classes is NaN
        plots.reliability_diagram([0, 1], [0.2, 0.8], method=method)


def test_a_summary_has_four_titled_panels(rows, calibrator):
    axes = plots.summary(calibrator, *rows, title="All of it")
    figure = axes[0, 0].figure
    assert axes.shape == (2, 2) and figure.get_suptitle() == "All of it"
    assert list(labelled(axes[0, 0]))[1:] == ["all rows pooled", "by segment"]
    labels = [ax.get_ylabel() for ax in axes.flat]
    assert labels == [
        "observed frequency",
        "observed / expected",
        "(slope - expected) / error",
        "B",
    ]
    figure.canvas.draw()
    for ax in axes.flat:
        assert ax.get_title(loc="left").strip()
        ink = [text.get_window_extent() for text in (ax._left_title, ax._right_title)]
        note_lines = ax.get_title(loc="right").splitlines()
        if note_lines:  # the title's own line is above them
            assert ink[0].y1 > ink[1].y1 + 5
    assert not plt.figure().axes  # no other figure was drawn on


@pytest.mark.slow
def test_a_summary_of_weighted_rows(rows):
    scores, labels, segments = rows
    weights = np.arange(len(scores)) % 3
    fitted = pj.fit_segments(scores, labels, segments, weights=weights)
    axes = plots.summary(fitted, *rows, weights=weights)
    kept = [column[weights > 0] for column in rows]
    same = plots.summary(fitted, *kept, weights=weights[weights > 0])
    assert list(labelled(axes[0, 1])) == list(labelled(same[0, 1]))
    with pytest.raises(ValueError, match="calibrator: expected a SegmentCalibrator, got Fit"):
        plots.summary(fitted.fit, *rows)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_in_words(name, rows, calibrator, pooled):
    ax = every_figure(rows, calibrator, pooled)[name]()
    words = plots.alt_text(ax)
    assert ax.get_ylabel().split(",")[0] in words and "From " in words and words.endswith(".")
    assert all(" ".join(text.split()) in words for text in labelled(ax))
    assert ("\n" not in words and "against" in words) or name == "levels"
    note = ax.get_title(loc="right")
    assert " ".join(note.split()) in words
    if name == "binned":
        assert words.startswith("observed frequency against predicted probability. From ")
    ax.set_title("A title", loc="left")
    assert plots.alt_text(ax).startswith("A title. ")


def rare(rows=20_000, base=-7.0, seed=3):
    """Labels of a rare class, and their probabilities."""
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-(base + 1.5 * rng.normal(size=rows))))
    return (rng.random(rows) < p).astype(int), p


def test_rare_positives_are_spread_over_logarithmic_axes():
    labels, p = rare()
    assert 0 < labels.mean() < 0.01
    ax = plots.reliability_diagram(labels, p)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    line = ax.lines[1]
    curve = pj.metrics.reliability_curve(labels, p, n_bins=10, strategy="positives")
    np.testing.assert_allclose(line.get_xdata(), curve.prob_pred)
    np.testing.assert_allclose(line.get_ydata(), curve.prob_true)
    x = np.sort(ax.transData.transform(np.c_[line.get_xdata(), line.get_xdata()])[:, 0])
    box = ax.get_window_extent()
    # On linear axes most points are within a few pixels of each other, at the lower end.
    assert np.diff(x).min() > 5 and x.max() - x.min() > 0.4 * box.width
    heights, edges, _ = ax.figure.axes[1].patches[0].get_data()
    np.testing.assert_array_equal(heights, np.histogram(p, edges)[0])
    assert heights.sum() > 0.95 * len(p)
    linear = plots.reliability_diagram(labels, p, strategy="quantile")
    assert linear.get_xscale() == "linear"
    assert plots.reliability_diagram(labels, p, method="smooth").get_xscale() == "linear"


def test_bins_without_positives_are_at_the_lower_edge():
    labels, p = rare(2000)
    labels[np.flatnonzero(labels)[3:]] = 0
    ax = plots.reliability_diagram(labels, {"one": p, "two": np.minimum(2 * p, 1)})
    bottom = ax.get_ylim()[0]
    for line, proba in zip(labelled_lines(ax, "_without"), (p, 2 * p), strict=True):
        curve = pj.metrics.reliability_curve(labels, proba, n_bins=10, strategy="positives")
        none = curve.prob_pred[curve.prob_true == 0]
        np.testing.assert_allclose(line.get_xdata(), none)
        assert len(none) >= 7 and (line.get_ydata() == bottom).all()


def labelled_lines(ax, start):
    return [line for line in ax.lines if line.get_label().startswith(start)]


def test_probabilities_of_zero_have_no_place_on_logarithmic_axes():
    labels, p = rare()
    some = np.where(p < np.median(p), 0, p)
    ax = plots.reliability_diagram(labels, some)
    ax.figure.canvas.draw()
    assert ax.get_xlim()[0] > 0 and "50 % of the rows beyond the axes" in notes(ax)
    nothing = plots.reliability_diagram(np.zeros(50), np.zeros(50))
    assert nothing.get_xscale() == "linear"
    with pytest.raises(ValueError, match='above 0 with strategy="positives"'):
        plots.reliability_diagram(np.zeros(50), np.zeros(50), strategy="positives")
