"""How fits end, what they say of themselves, and how bad input is answered."""

import dataclasses

import jax
import numpy as np
import pytest
from data import batch, problem

import platt_jax as pj
from platt_jax import Flag, GaussianPrior, Options, Status


def test_every_status_and_flag_from_one_call():
    nan = np.nan
    scores = np.array(
        [
            [0.1, 0.9, 0.4, 0.6, 0.5, 0.7],
            [0.1, 0.9, nan, 0.6, 0.5, 0.7],
            [2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
            [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            [0.1, 0.2, 0.3, 0.7, 0.8, 0.9],
            [0.9, 0.2, 0.8, 0.3, 0.7, 0.1],
            [0.1, 0.9, 0.4, np.inf, 0.5, 0.7],
            [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        ]
    )
    labels = np.array(
        [
            [0, 1, 1, 0, 0, 1],
            [0, 1, 1, 0, 0, 1],
            [0, 1, 1, 0, 0, 0],
            [1, 1, 1, 1, 1, 1],
            [0, 0, 0, 1, 1, 1],
            [0, 1, 0, 1, 1, 0],
            [0, 1, 1, 0, 0, 1],
            [0, 1, 1, 0, 0, 1],
        ]
    )
    weights = np.ones_like(scores)
    weights[-1] = 0
    with pytest.warns(RuntimeWarning, match="2 of 8 problems, first in 1:"):
        fit = pj.fit(scores, labels, weights=weights)
    status = [Status(s).name for s in fit.status]
    assert status == ["CONVERGED", "NON_FINITE", *["CONVERGED"] * 4, "NON_FINITE", "EMPTY"]
    flags = [Flag(int(f)) for f in fit.flags]
    assert flags == [
        Flag(0),
        Flag(0),
        Flag.CONSTANT_SCORES,
        Flag.ONE_CLASS,
        Flag.SEPARABLE,
        Flag.REVERSED,
        Flag(0),
        Flag(0),
    ]
    assert np.isnan(fit.A[[1, 6, 7]]).all() and np.isfinite(fit.A[[0, 2, 3, 4, 5]]).all()

    # Constant scores: A = 0 and B the log-odds of the mean target.
    mean_target = (2 * 3 / 4 + 4 * 1 / 6) / 6
    assert fit.A[2] == 0 and fit.B[2] == pytest.approx(np.log(1 / mean_target - 1), rel=1e-12)
    # One class: as constant as its target, 7/8.
    np.testing.assert_allclose(fit.sigmoid.predict_proba(scores)[3], 7 / 8, rtol=1e-8)

    with pytest.raises(RuntimeError, match=r"(?s)3 of 8 fits failed.*1: NON_FINITE.*7: EMPTY"):
        fit.raise_if_failed()
    limited = pj.fit(scores[0], labels[0], options=Options(max_iter=1, start="prior"))
    assert limited.status == Status.MAX_ITERATIONS
    assert pj.fit(scores[0], labels[0]).raise_if_failed().converged

    # The bad ones leave every bit of the others as it was.
    alone = pj.fit(scores[[0, 2, 3, 4, 5]], labels[[0, 2, 3, 4, 5]], weights=weights[:5])
    for name in (field.name for field in dataclasses.fields(pj.Fit)):
        np.testing.assert_array_equal(
            getattr(alone, name), getattr(fit, name)[[0, 2, 3, 4, 5]], err_msg=name
        )


@pytest.mark.parametrize("where", ["scores", "labels", "weights"])
def test_non_finite_is_flagged_raised_or_omitted(where, rng):
    arrays = dict(zip(("scores", "labels"), batch(rng, 3, 20), strict=True))
    arrays["labels"] = arrays["labels"].astype(float)
    arrays["weights"] = np.ones((3, 20))
    arrays[where][1, 4] = np.nan
    with pytest.warns(RuntimeWarning, match="first in 1"):
        fit = pj.fit(**arrays)
    assert fit.status.tolist() == [0, Status.NON_FINITE, 0]
    with pytest.raises(ValueError, match="first in 1"):
        pj.fit(**arrays, options=Options(non_finite="raise"))
    columns = {k: v.T for k, v in arrays.items()}
    if where != "weights":
        columns["weights"] = None
        with pytest.warns(RuntimeWarning, match="1 of 3 classes, first in 1"):
            assert pj.fit_one_vs_rest(**columns).fit.status.tolist() == fit.status.tolist()
    flat = {k: v.ravel() for k, v in arrays.items()}
    with pytest.warns(RuntimeWarning, match="1 of 3 segments, first in 1"):
        calibrator = pj.fit_segments(**flat, segments=np.repeat([0, 1, 2], 20))
    assert calibrator.fit.status.tolist() == fit.status.tolist()
    assert np.isfinite(calibrator.fallback.A)
    omitted = pj.fit(**arrays, options=Options(non_finite="omit"))
    without = pj.fit(**{k: np.delete(v[1], 4) for k, v in arrays.items()})
    assert omitted.A[1] == pytest.approx(without.A, rel=1e-10)
    assert omitted.n_pos[1] + omitted.n_neg[1] == 19


def test_the_smallest_problems(dtype):
    for scores, labels in (([3.0], [1]), ([3.0], [0]), ([1.0, 2.0], [0, 1]), ([2.0, 2.0], [0, 1])):
        one = pj.fit(np.array(scores, dtype), labels)
        assert one.converged and np.isfinite([one.A, one.B]).all()
    # Two rows, one of each class: a line through both targets, 2/3 and 1/3.
    two = pj.fit([1.0, 2.0], [0, 1])
    np.testing.assert_allclose(two.sigmoid.predict_proba([1.0, 2.0]), [1 / 3, 2 / 3], rtol=1e-10)


def test_extreme_scores_stay_finite(rng):
    scores, labels = problem(rng, 100)
    outlier = scores.copy()
    outlier[np.argmax(labels)] = 1e8
    for extreme in (
        scores * 1e300,
        scores * 1e-300,
        outlier,
        np.sign(scores) * 10.0 ** (90 * scores),
    ):
        one = pj.fit(extreme, labels)
        assert one.converged and np.isfinite([one.A, one.B, one.nll]).all()


@pytest.mark.slow
@pytest.mark.parametrize("labels", [[0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]])
def test_without_targets_what_has_no_optimum_does_not_converge(labels):
    plain = Options(targets="none")
    one = pj.fit([1.0, 2, 3, 4], labels, options=plain)
    assert one.status == Status.MAX_ITERATIONS and np.isfinite([one.A, one.B]).all()
    prior = GaussianPrior(np.zeros(2), np.eye(2))
    assert pj.fit([1.0, 2, 3, 4], labels, prior=prior, options=plain).converged


def test_overflow_is_non_finite_with_nan_parameters():
    with pytest.warns(RuntimeWarning, match="overflowing numbers in 1 of 1 problem,"):
        one = pj.fit([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1], weights=[1e308] * 4)
    assert one.status == Status.NON_FINITE and np.isnan([one.A, one.B, one.nll]).all()


@pytest.mark.slow
def test_light_weights_are_not_drowned_by_sigma(rng):
    scores, labels = problem(rng, 60)
    plain = Options(targets="none")
    one = pj.fit(scores, labels, options=plain)
    light = pj.fit(scores, labels, weights=np.full(60, 1e-12), options=plain)
    assert light.A == pytest.approx(one.A, rel=1e-4)


def test_rounding_that_keeps_a_fit_far_off_is_told(rng):
    """Float32 cannot hold the sums of weights that spread over 24 orders of magnitude."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores, labels = problem(rng, 50)
        weights = 10.0 ** rng.uniform(-12, 12, 50)
        single = pj.fit(scores.astype(np.float32), labels, weights=weights)
        double = pj.fit(scores.astype(np.float32).astype(float), labels, weights=weights)
        off = np.array([single.A - double.A, single.B - double.B])
        error = np.sqrt(off @ double.hessian @ off)
        assert not single.converged or error < 0.1


@pytest.mark.slow
@pytest.mark.on_cpu
def test_a_slope_below_the_normal_numbers_is_told(dtype):
    """XLA takes it for 0: of scores of such a range that is not the optimum."""
    rng = np.random.default_rng(0)
    labels = rng.random(60) < 0.4
    scores = np.clip(rng.normal(size=60) / 4 + labels / 16, -1, 1)
    most = float(np.finfo(dtype).max)
    range_ = np.array([1e-6, 0.03, 0.7, 0.99])[:, None] * most
    fit = pj.fit((scores * range_).astype(dtype), labels)
    assert fit.status[0] == Status.CONVERGED and fit.A[0] < 0
    assert np.all((fit.A != 0) == fit.converged)
    assert np.all(fit.status[2:] == Status.LINE_SEARCH_FAILED)
    assert np.isfinite(fit.A).all() and np.isfinite(fit.B).all()
    # Where the slope is 0 by right, nothing is lost.
    held = pj.fit(-scores * range_[:3], labels, options=Options(monotone=True))
    assert held.converged.all() and np.all(held.A == 0)


def test_the_curvature_of_one_far_score_hides_no_slope():
    """Where Newton's steps move a far score by 1 in z each, the decrement falls slowly for long.

    That is not rounding's doing: the optimum lies where that score has no curvature left.
    """
    scores, labels = np.empty((60, 40), np.float32), np.arange(40) < 3
    weights = np.where(labels, 1.0, 25e3)
    weights[-1] = 1
    for seed, row in enumerate(scores):
        rng = np.random.default_rng(seed)
        row[:] = rng.normal(size=40)
        row[:3] += 2
        row[-1] = -(10 ** rng.uniform(5.5, 7))
    single = pj.fit(scores, labels, weights=weights)
    double = pj.fit(scores.astype(float), labels, weights=weights)
    off = np.stack([single.A - double.A, single.B - double.B], -1)
    error = np.sqrt(np.einsum("ki,kij,kj->k", off, double.hessian, off))
    assert double.converged.all() and single.converged.all() and np.all(error < 1e-2)


def test_monotone_holds_however_the_search_ends():
    scores, labels = [1, 2, 3, 4, 2.5], [1, 1, 0, 0, 1]
    one = pj.fit(scores, labels, options=Options(max_iter=1, monotone=True, start="prior"))
    assert one.A <= 0 and np.isfinite(one.B)


def test_a_slope_held_at_zero_is_an_optimum_of_separable_labels_too():
    """Without a bound on the slope, plain targets would have none."""
    low = np.arange(300) < 225
    options = Options(monotone=True, targets="none", start="prior")
    held = pj.fit(np.where(low, -1.0, 1.0), low, options=options)
    assert held.status == Status.CONVERGED and held.A == 0
    assert held.B == pytest.approx(np.log(75 / 225), rel=1e-9)


def test_monotone_holds_the_slope_at_its_useful_sign(rng):
    scores, labels = batch(rng, 6, 60)
    scores[::2] *= -1
    free, held = pj.fit(scores, labels), pj.fit(scores, labels, options=Options(monotone=True))
    wrong = free.A > 0
    assert wrong.any() and not wrong.all() and held.converged.all()
    assert np.all(held.A[wrong] == 0) and np.all(held.flags[wrong] & Flag.REVERSED == 0)
    np.testing.assert_array_equal(held.A[~wrong], free.A[~wrong])
    np.testing.assert_allclose(held.gradient[wrong, 1], 0, atol=1e-7)
    assert np.all(held.nll[wrong] > free.nll[wrong])


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_prior_of_no_precision_does_not_bound_separable_labels(intercept):
    options = Options(targets="none", intercept=intercept)
    rows = np.array([-2.0, -1, 1, 2]), np.array([0, 0, 1, 1])
    precision = np.stack([np.zeros((2, 2)), np.eye(2)])
    found = pj.fit(
        *(np.stack([x, x]) for x in rows),
        prior=GaussianPrior(np.zeros((2, 2)), precision),
        options=options,
    )
    assert found.status.tolist() == [Status.MAX_ITERATIONS, Status.CONVERGED]
    alone = pj.fit(*rows, options=options)
    assert alone.status == Status.MAX_ITERATIONS


GOOD = {"scores": np.zeros((3, 4)), "labels": np.array([0, 1, 0, 1])}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"scores": np.zeros((3, 0))}, r"scores: .*\(3, 0\)"),
        ({"scores": 1.0}, r"scores: .*\(\)"),
        ({"scores": ["a", "b"]}, "scores: expected numbers"),
        ({"scores": np.zeros(4, complex)}, "scores: expected numbers, got dtype complex"),
        ({"scores": [[1.0], [1.0, 2.0]]}, "scores: expected an array"),
        ({"labels": np.zeros(5)}, r"labels: expected a shape .*\(3, 4\), got \(5,\)"),
        ({"labels": np.array([0, 1, 2, 0])}, "labels: expected bool.*got 2"),
        ({"labels": np.array([0, 1, -1, 0])}, "labels: .*0 and -1 together"),
        ({"labels": np.array([0.5, 1, 0, 1])}, "labels: .*got 0.5"),
        ({"labels": ["yes", "no", "no", "yes"]}, "labels: expected bool"),
        ({"weights": -np.ones(4)}, "weights: expected >= 0, got -1"),
        ({"weights": [np.nan, 1, -2, 1]}, "weights: expected >= 0, got -2"),
        ({"labels": np.zeros((0,), int)}, r"labels: expected a shape .*\(0,\)"),
        ({"weights": np.ones(3)}, r"weights: expected a shape .*\(3, 4\), got \(3,\)"),
        ({"prior": (0.0, 1.0)}, "prior: expected a GaussianPrior, got tuple"),
        ({"prior": GaussianPrior(np.zeros(3), np.eye(2))}, "prior: expected mean"),
        ({"prior": GaussianPrior([np.nan, 0], np.eye(2))}, "prior: expected finite numbers"),
        ({"prior": GaussianPrior([-1, 0], 4.0)}, r"prior: .* precision \(2, 2\).*and \(\)"),
        ({"prior": GaussianPrior([-1, 0], -np.eye(2))}, "prior: .*positive semidefinite"),
        ({"prior": GaussianPrior([-1, 0], [[1, 5], [0, 1]])}, "prior: .*symmetric"),
        ({"options": {"max_iter": 3}}, "options: expected an Options, got dict"),
    ],
)
def test_bad_input_is_named(bad, message):
    with pytest.raises(ValueError, match=message):
        pj.fit(**{**GOOD, **bad})


def test_inside_jit_the_way_to_solve_is_shown():
    with pytest.raises(ValueError, match=r"scores: .* inside jit use solve"):
        jax.jit(lambda f: pj.fit(f, [0, 1, 0]).A)(np.zeros(3, np.float32))


def healthy(rng, problems, rows):
    """Overlapping classes, half or a tenth of them positive, wherever the scores may lie."""
    base_rate = np.where(np.arange(problems) % 2, 0.5, 0.1)[:, None]
    labels = rng.random((problems, rows)) < base_rate
    labels[:, :4] = [0, 1, 0, 1]
    # So far apart that no sample of a dozen positives is reversed by chance.
    scores = rng.normal(size=(problems, rows)) + 2 * labels
    # The first two are ranked as they should be, the next two are not: nothing is separable.
    scores[:, :4] = [-1, 1, 2, -2]
    center, scale = rng.normal(size=(problems, 1)), np.exp(rng.normal(size=(problems, 1)))
    return (scores + center) * scale, labels


@pytest.mark.slow
@pytest.mark.parametrize("weight", [None, 3.0, 1e-3], ids=["unweighted", "tripled", "thousandth"])
def test_no_flag_on_healthy_problems(weight, dtype, rng):
    scores, labels = healthy(rng, 10_000, 200)
    weights = None if weight is None else dtype(weight)
    fit = pj.fit(scores.astype(dtype), labels, weights=weights).raise_if_failed()
    assert not fit.flags.any()


def outlying(rng, rows, dtype, at):
    scores, labels = problem(rng, rows)
    labels[0], scores[0] = 1, at
    return scores.astype(dtype), labels


@pytest.mark.slow
@pytest.mark.parametrize("rows", [20, 60, 6_000])
@pytest.mark.parametrize("at", [-1e8, 1e5, 1e30])
def test_an_outlier_is_flagged(rows, at, dtype, rng):
    scores, labels = outlying(rng, rows, dtype, at)
    fit = pj.fit(scores, labels)
    assert Flag.OUTLIER in Flag(int(fit.flags))
    assert fit.status == Status.CONVERGED
    if at < 0:  # a positive at the wrong end: the loss would rather give up all the others
        assert np.ptp(fit.sigmoid.predict_proba(scores[1:])) < 0.1
    tripled = pj.fit(scores, labels, weights=np.full(rows, 3, dtype))
    assert Flag.OUTLIER in Flag(int(tripled.flags))
    if rows > 20:
        gone = pj.fit(scores, labels, weights=np.arange(rows) > 0)
        assert Flag.OUTLIER not in Flag(int(gone.flags))


def test_flags_say_what_to_do():
    for member in [*Status, *Flag]:
        assert member.message.endswith(".") and len(member.message) > 20
    both = Flag.ONE_CLASS | Flag.OUTLIER
    assert both.message == f"{Flag.ONE_CLASS.message} {Flag.OUTLIER.message}"


def test_the_complement_of_a_flag_is_all_others():
    """Python 3.11.0 to 3.11.3 take other values than integers for members wrongly."""
    for flag in Flag:
        assert int(~flag) == sum(Flag) - flag


@pytest.mark.parametrize("sign", [1, -1])
def test_classes_that_meet_at_one_score_are_separable(sign):
    flags = pj.fit(sign * np.array([0.0, 1, 1, 2]), [0, 0, 1, 1]).flags
    assert Flag(int(flags)) & Flag.SEPARABLE
