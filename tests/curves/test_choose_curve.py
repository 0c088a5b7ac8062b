"""`choose_curve`: rows of weight 0, unknown losses, one segment, and classes."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import platt_jax as pj
from platt_jax.curves import Isotonic
from platt_jax.execution.class_rows import ClassRows
from platt_jax.inference.choose_curve import expected_loss, first_as_good

KINDS = ("sigmoid", "quadratic", "isotonic")


def bent(number, seed=0):
    rng = np.random.default_rng(seed)
    f = rng.normal(size=number)
    return f, rng.random(number) < 1 / (1 + np.exp(1 - f - f * f))


def assert_same(found, expected):
    assert found.chosen == expected.chosen
    for name, column in expected.candidates.items():
        np.testing.assert_array_equal(found.candidates[name], column)


def test_rows_of_weight_0_choose_nothing():
    """Before, a segment of such rows gave all kinds a NaN loss, and the first was chosen."""
    (f, y), s = bent(2000), np.arange(2000) % 4
    w = np.where((np.arange(2000) % 5 == 0) | (s == 2), 0.0, 1.0)
    found, used = pj.inference.choose_curve(f, y, s, candidates=KINDS, weights=w), w > 0
    assert_same(found, pj.inference.choose_curve(f[used], y[used], s[used], candidates=KINDS))
    assert found.chosen == "quadratic"
    # Rows of weight 0 may hold anything.
    bad, labels = np.where(used, f, np.nan), np.where(used, y, np.nan)
    assert_same(pj.inference.choose_curve(bad, labels, s, candidates=KINDS, weights=w), found)
    lines = found.segments
    assert lines["rows"].tolist() == [400, 400, 0, 400]
    assert np.isnan(lines["loss_sigmoid"]).tolist() == [False, False, True, False]
    assert set(lines["curve"]) == {"quadratic"}
    assert np.isnan(found.calibrator.predict_proba([0.0], 2)).all()
    assert found.calibrator.table()["status"][2] == "EMPTY"
    with pytest.raises(ValueError, match="expected two or more rows, to hold some out, got 1"):
        pj.inference.choose_curve(f, y, s, candidates=KINDS, weights=np.arange(2000) == 3)


@dataclass(frozen=True)
class Unknown(Isotonic):
    """A kind of curve that predicts NaN for the first segment, or for all."""

    everywhere: bool = False

    def fit(self, problems, context):
        found = super().fit(problems, context)
        probabilities = found.probabilities.copy()
        probabilities[: None if self.everywhere else found.sizes[0]] = np.nan
        return replace(found, probabilities=probabilities)


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_kind_with_unknown_losses_is_not_chosen(everywhere):
    (f, y), s = bent(2000), np.arange(2000) % 4
    for kinds in (
        ("sigmoid", Unknown(everywhere=everywhere)),
        (Unknown(everywhere=everywhere), "sigmoid"),
    ):
        found = pj.inference.choose_curve(f, y, s, candidates=kinds)
        assert found.chosen == "sigmoid" and set(found.segments["curve"]) == {"sigmoid"}
    with pytest.raises(ValueError, match="candidates: expected a kind that predicts the rows left"):
        pj.inference.choose_curve(f, y, s, candidates=(Unknown(), Unknown(everywhere=True)))


def test_the_loss_to_expect_is_not_the_least_of_several():
    """Where all folds agree it is the chosen kind's; where chance chooses it is larger."""
    f, y = bent(3000)
    found = pj.inference.choose_curve(f, y, candidates=KINDS)
    losses = dict(zip(found.candidates["curve"], found.candidates["log_loss"], strict=True))
    assert found.chosen == "quadratic"
    assert found.log_loss == pytest.approx(losses["quadratic"], rel=1e-12)
    assert f"log loss {found.log_loss:.4g}; each" in repr(found)
    # Of two folds, two rows each, either kind is best in one: the other fold chooses the wrong one.
    by_fold = np.array([[1.0, 1.0, 2.0, 2.0], [2.0, 2.0, 1.0, 1.0]])
    rows, fold = np.arange(4), np.array([0, 0, 1, 1])
    assert expected_loss(rows, np.ones(4), by_fold, fold) == 2.0
    assert expected_loss(rows, np.array([1, 1, 5, 5.0]), by_fold, fold) == 2.0


def test_a_nan_is_as_bad_as_infinity():
    total = np.array([[np.nan, 2.0, 3.0], [1.0, 2.0, 1.0]])
    assert first_as_good(total, np.ones(2))[0] == 1


def test_one_segment_has_the_curve_that_is_chosen():
    """Before, the segment had the first candidate, not the chosen one, and no standard error."""
    f, y = bent(1500)
    found = pj.inference.choose_curve(f, y, candidates=KINDS)
    assert found.chosen == "quadratic" and found.segments["curve"].tolist() == ["quadratic"]
    expected = pj.fit(f, y, curve="quadratic").predict_proba(f)
    np.testing.assert_allclose(found.calibrator.predict_proba(f, 0), expected, rtol=1e-9)
    np.testing.assert_allclose(found.calibrator.predict_proba(f, 77), expected, rtol=1e-9)
    error = found.candidates["standard_error"]
    assert (error[[0, 2]] > 0).all() and error[1] == 0
    assert_same(pj.inference.choose_curve(f, y, np.full(1500, "a"), candidates=KINDS), found)


@pytest.mark.parametrize("multilabel", [False, True])
def test_a_curve_is_chosen_for_classes(multilabel, tmp_path):
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(1500, 3))
    odds = scores + scores**2 * [1.5, 1.5, 1.5]
    labels = rng.random(odds.shape) < 1 / (1 + np.exp(1 - odds))
    if not multilabel:
        labels = np.array(["cow", "ant", "bee"])[np.argmax(odds + rng.gumbel(size=odds.shape), 1)]
    given = dict(classes=["cow", "ant", "bee"])
    rows = ClassRows(scores, labels, **given)
    found = pj.inference.choose_curve(rows, candidates=KINDS)
    assert found.chosen == "quadratic"
    assert found.segments["class"].tolist() == ["ant", "bee", "cow"]
    assert found.segments["rows"].tolist() == [1500] * 3
    expected = pj.fit_one_vs_rest(scores, labels, curve="quadratic", **given)
    assert set(found.segments["curve"]) == {"quadratic"}
    assert found.calibrator == expected
    pj.save(tmp_path / "c", found.calibrator)
    assert pj.load(tmp_path / "c") == expected
    # Columns in another order.
    if not multilabel:
        other = pj.inference.choose_curve(scores[:, [1, 2, 0]], labels, candidates=KINDS)
        assert_same(other, found)
    with pytest.raises(ValueError, match="segments: expected none beside ClassRows"):
        pj.inference.choose_curve(scores, labels == "ant" if multilabel else labels, labels)


def test_classes_may_have_curves_of_several_kinds():
    """Bins are too coarse for a steep sigmoid."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(3000, 6))
    odds = 6 * scores
    odds[:, 0] = 1.2 * scores[:, 0] ** 2 - 1
    labels = rng.random(scores.shape) < 1 / (1 + np.exp(-odds))
    found = pj.inference.choose_curve(scores, labels, candidates=("sigmoid", "bins"))
    kinds = found.segments["curve"]
    assert kinds[0] == "bins" and set(kinds) == {"bins", "sigmoid"}
    p = found.calibrator.predict_proba(scores)
    for kind in set(kinds):
        of_kind = pj.fit_one_vs_rest(scores, labels, curve=kind).predict_proba(scores)
        np.testing.assert_allclose(p[:, kinds == kind], of_kind[:, kinds == kind], rtol=1e-12)
    assert np.isnan(found.calibrator.by_class.predict_proba([0.0], 9)).all()


def test_few_rows_are_told_once():
    """Before, once for each kind of curve."""
    (f, _), s = bent(600), np.arange(600) % 60
    kinds = ("isotonic", "sigmoid", "quadratic", "beta")
    with pytest.warns(RuntimeWarning, match="12 positives, but Platt's targets") as seen:
        pj.inference.choose_curve(f, np.arange(600) % 50 == 0, s, candidates=kinds)
    assert len(seen) == 1


@pytest.mark.parametrize("unit", [2.0**990, 2.0**-990])
def test_the_choice_depends_on_no_unit_of_far_weights(unit):
    """Before, squares of weights of 1e300 overflowed: the first was chosen."""
    (f, y), s = bent(2000), np.arange(2000) % 4
    without = pj.Options(targets="none")
    found, expected = (
        pj.inference.choose_curve(
            f, y, s, candidates=KINDS, weights=np.full(2000, w), options=without
        )
        for w in (unit, 1.0)
    )
    assert found.chosen == expected.chosen == "quadratic"
    for name in ("log_loss", "difference", "standard_error"):
        column, other = found.candidates[name], expected.candidates[name]
        # Fits with tiny weights stop sooner, as their errors are large.
        np.testing.assert_allclose(column, other, rtol=1e-3, err_msg=name)
    np.testing.assert_array_equal(found.segments["rows"], 500 * unit)
