"""Curves other than the sigmoid, of ragged segments: against a loop, SciPy and scikit-learn."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from data import CURVED_SIZES as SIZES
from data import batch, labels_of
from data import curved as world
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize, minimize_scalar
from sklearn.isotonic import IsotonicRegression

import platt_jax as pj
from platt_jax import Status, curves
from platt_jax.export import to_python
from platt_jax.inference.choose_curve import first_as_good

NAMES = ("shift", "temperature", "quadratic", "beta", "spline", "isotonic", "bins", "venn_abers")
LOG_ODDS = ("quadratic", "beta", "spline")


def platt(y, w):
    n_pos, n_neg = w[y == 1].sum(), w[y == 0].sum()
    return np.where(y == 1, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))


def objective(z, t, w):
    return (w * (np.logaddexp(0, -z) * t + np.logaddexp(0, z) * (1 - t))).sum()


def functions(found, k, f):
    """(n, P) the functions of problem k at scores (n,)."""
    center, scale = found.center[k], found.scale[k]
    is_beta = found.label == "beta"
    values = found.features.values(*(f, (center, 1.0)) if is_beta else ((f - center) * scale,))
    return np.stack([np.ones_like(f), *values], 1)


def roughness(found):
    """(P, P) integrals of products of second derivatives: 0 but for splines, by SciPy's."""
    made = np.zeros((found.features.number, found.features.number))
    if found.label == "spline":
        knots = np.array(found.features.knots)
        columns = np.stack([np.ones_like(knots), *found.features.values(knots)], 1)
        bend = CubicSpline(knots, columns, bc_type="natural").derivative(2)
        # Simpson's rule is exact for products of lines.
        ends, middle = bend(knots), bend((knots[1:] + knots[:-1]) / 2)
        parts = ((1, ends[:-1]), (4, middle), (1, ends[1:]))
        gaps = np.diff(knots) / 6
        made = sum(n * (x * gaps[:, None]).T @ x for n, x in parts)
    return made


@pytest.mark.parametrize("name", LOG_ODDS)
def test_parameters_are_the_optimum_by_scipy(name, calibrators):
    f, y, s, w = world()
    found = calibrators[name].curves
    assert (found.status == Status.CONVERGED).all()
    penalty = curves.Spline().penalty * roughness(found)
    for k in (4, 5, 6, len(SIZES)):  # the last is the curve of all rows
        mine = s == k if k < len(SIZES) else np.ones(len(s), bool)
        x = functions(found, k, f[mine])
        t = platt(y[mine], w[mine])

        def loss(theta, x=x, t=t, mine=mine):
            return objective(x @ theta, t, w[mine]) + theta @ penalty @ theta / 2

        bounds = [(None, None)] + [(0, None)] * (x.shape[1] - 1) if name == "beta" else None
        best = minimize(
            loss,
            np.zeros(x.shape[1]),
            bounds=bounds,
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000},
        )
        assert loss(found.coefficients[k]) <= best.fun + 1e-9
        assert found.nll[k] == pytest.approx(loss(found.coefficients[k]), rel=1e-10)
        # In standard errors, as far as SciPy's search goes.
        moved = found.coefficients[k] - best.x
        errors = np.sqrt(np.diagonal(found.covariance[k]))
        known = errors > 0
        assert (np.abs(moved[known]) <= 2e-4 * errors[known] + 1e-6).all()


@pytest.mark.parametrize("name", LOG_ODDS)
def test_covariances_are_inverse_hessians(name, calibrators):
    f, _, s, w = world()
    found, k = calibrators[name].curves, 6
    mine = s == k
    x = functions(found, k, f[mine])
    p = 1 / (1 + np.exp(-x @ found.coefficients[k]))
    free = found.coefficients[k] != 0  # others are at beta's bound
    hessian = (x * (w[mine] * p * (1 - p))[:, None]).T @ x
    hessian += curves.Spline().penalty * roughness(found)
    expected = np.linalg.inv(hessian[np.ix_(free, free)])
    np.testing.assert_allclose(found.covariance[k][np.ix_(free, free)], expected, rtol=1e-6)


def test_shift_and_temperature_are_the_optimum_of_one_parameter(calibrators):
    f, y, s, w = world()
    for k in (3, 5, 6):
        mine = s == k
        t = platt(y[mine], w[mine])
        rows = f[mine], t, w[mine]
        best = minimize_scalar(lambda b, f, t, w: objective(f + b, t, w), args=rows, tol=1e-12)
        fit = calibrators["shift"][k]
        assert fit.A == -1 and -fit.B == pytest.approx(best.x, abs=1e-6)
        assert fit.standard_errors[0] == 0
        p = 1 / (1 + np.exp(fit.B - f[mine]))
        assert fit.standard_errors[1] == pytest.approx((w[mine] * p * (1 - p)).sum() ** -0.5)
    for k in (5, 6):
        mine = s == k
        rows = f[mine], y[mine], w[mine]
        best = minimize_scalar(lambda b, f, t, w: objective(b * f, t, w), args=rows, tol=1e-12)
        fit = calibrators["temperature"][k]
        assert fit.B == 0 and -fit.A == pytest.approx(best.x, abs=1e-6)


def test_isotonic_curves_are_scikit_learns(calibrators):
    f, y, s, w = world()
    at = np.linspace(-4, 4, 101)
    for k in range(len(SIZES)):
        mine = s == k
        theirs = IsotonicRegression(out_of_bounds="clip").fit(f[mine], y[mine], w[mine])
        mine_at = calibrators["isotonic"].predict_proba(at, k)
        np.testing.assert_allclose(mine_at, theirs.predict(at), atol=1e-12)


def test_centered_isotonic_curves_rise_strictly_and_keep_the_mean():
    f, y, s, _ = world()
    centered = pj.fit_segments(f, y, s, curve=curves.Isotonic(centered=True))
    plain = pj.fit_segments(f, y, s, curve="isotonic")
    k, inner = 6, np.sort(f[s == 6])[5:-5]
    levels = plain.predict_proba(inner, k)
    rising = np.diff(centered.predict_proba(inner, k))
    between = (levels[1:] < levels[-1]) & (levels[:-1] > levels[0]) & (np.diff(inner) > 0)
    assert (rising[between] > 0).all() and (np.diff(levels)[between] == 0).any()
    # A plateau's point has the plateau's probability at its mean score.
    middle = levels[len(levels) // 2]
    block = f[(s == k)][plain.predict_proba(f[s == k], k) == middle]
    assert centered.predict_proba([block.mean()], k)[0] == pytest.approx(middle, abs=1e-12)


def exact_plateaus(labels, weights):
    """(start, end) of the plateaus of rows in ascending order, by fractions."""
    blocks = []
    for i, (y, w) in enumerate(zip(labels.tolist(), weights.tolist(), strict=True)):
        blocks.append((Fraction(w) * y, Fraction(w), i))
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            (p, w, _), (before, mass, start) = blocks.pop(), blocks.pop()
            blocks.append((before + p, mass + w, start))
    starts = [start for *_, start in blocks]
    return list(zip(starts, [*starts[1:], len(labels)], strict=True))


@pytest.mark.parametrize("unit", [1.0, 0.1, 1 / 3])
def test_equal_shares_are_one_plateau_whatever_the_unit_of_weights(unit):
    """Centered curves show plateaus: shares that differed by rounding moved points by up to .46."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 20, 300)
    s = np.repeat(np.arange(300), sizes)
    f = np.concatenate([np.sort(rng.normal(size=n)) for n in sizes])
    y, w = rng.integers(0, 2, len(s)), rng.integers(1, 4, len(s))
    kind = curves.Isotonic(centered=True)
    found = pj.fit_segments(f, y, s, weights=w * unit, curve=kind)
    p = found.predict_proba(f, s)
    for k in range(300):
        at, labels, weights = (x[s == k] for x in (f, y, w))
        points = [
            [np.average(x[start:end], weights=weights[start:end]) for x in (at, labels)]
            for start, end in exact_plateaus(labels, weights)
        ]
        # Outer plateaus reach to the outer scores.
        points = np.array([[at[0], points[0][1]], *points, [at[-1], points[-1][1]]])
        np.testing.assert_allclose(p[s == k], np.interp(at, *points.T), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("unit", [0.1, 1 / 3])
def test_the_unit_of_weights_moves_no_row_to_another_bin(unit):
    rng = np.random.default_rng(0)
    # The middle row is on an edge.
    s, f, y = np.repeat(np.arange(200), 9), rng.normal(size=1800), rng.integers(0, 2, 1800)
    for strategy in ("quantile", "uniform"):
        kind = curves.Bins(2, strategy)
        one, other = (pj.fit_segments(f, y, s, weights=w, curve=kind) for w in (None, unit))
        np.testing.assert_allclose(one.predict_proba(f, s), other.predict_proba(f, s), rtol=1e-12)


def test_venn_abers_by_two_isotonic_fits_a_row(calibrators):
    f, y, s, w = world()
    at = np.array([-9.0, -0.7, -0.65, 0.0, 0.31, 1.2, 9.0])
    for k in (0, 1, 2, 3, 4):
        mine = s == k
        both = []
        for label in (0, 1):
            each = []
            for score in at:
                rows = [np.append(x[mine], new) for x, new in ((f, score), (y, label), (w, 1.0))]
                each.append(IsotonicRegression().fit(*rows).predict([score])[0])
            both.append(np.array(each))
        found = calibrators["venn_abers"].curves.both(at, np.full(len(at), k))
        np.testing.assert_allclose(found, both, atol=1e-12)
        p0, p1 = both
        merged = calibrators["venn_abers"].predict_proba(at, k)
        np.testing.assert_allclose(merged, p1 / (1 - p0 + p1), atol=1e-12)


def test_bounds_of_venn_abers(calibrators, rng):
    made, k = calibrators["venn_abers"], calibrators["venn_abers"].keys
    at = np.append(rng.normal(size=len(k)), np.nan)
    ids = np.append(k, k[0])
    p0, p1 = made.bounds(at, ids)
    p = made.predict_proba(at, ids)
    assert (p0[:-1] <= p[:-1]).all() and (p[:-1] <= p1[:-1]).all()
    assert np.isnan([p0[-1], p1[-1]]).all()
    shifted = made.shift_prior(0.5, 0.1)
    lower, upper = shifted.bounds(at[:-1], ids[:-1])
    p = shifted.predict_proba(at[:-1], ids[:-1])
    assert (lower <= p).all() and (p <= upper).all()
    some = p0[:-1] > 0
    np.testing.assert_allclose((pj.logit(lower) - pj.logit(p0[:-1]))[some], -np.log(9))
    for wrong in ("shift", "bins"):
        with pytest.raises(ValueError, match="expected Venn-Abers predictors for bounds, got "):
            calibrators[wrong].bounds(at, ids)


def test_the_bound_of_the_own_label_is_calibrated(rng):
    """Of 20 rows by segment and a truth that falls and rises; the merged probability is not."""

    def rows(number):
        shop, f = np.repeat(np.arange(3000), number), rng.normal(size=3000 * number)
        return f, rng.random(len(f)) < 1 / (1 + np.exp(1 - np.sin(5 * f))), shop

    fitted = pj.fit_segments(*rows(20), curve="venn_abers")
    f, y, shop = rows(1)
    p0, p1 = fitted.bounds(f, shop)

    def deviations(p):
        """Labels less probabilities in four bins, in standard errors."""
        for low, high in ((0, 0.2), (0.2, 0.4), (0.4, 0.7), (0.7, 1.01)):
            some = (low <= p) & (p < high)
            yield abs((y - p)[some].sum()) / np.sqrt((p * (1 - p))[some].sum())

    assert max(deviations(np.where(y, p1, p0))) < 3
    assert max(deviations(fitted.predict_proba(f, shop))) > 6


@pytest.mark.parametrize("unit", [1e15, 1e17, 1e300])
def test_venn_abers_of_large_weights_are_an_isotonic_fit(unit):
    """Sums of such weights lose the row that is predicted: the tangent stayed on a passed point."""
    rng = np.random.default_rng(0)
    f, w = rng.normal(size=100), rng.uniform(0.1, 2, 100)
    y = labels_of(rng, f)
    for weights in (np.full(100, unit), w * unit):
        p = pj.fit(f, y, weights=weights, curve="venn_abers").predict_proba(f)
        expected = IsotonicRegression().fit(f, y, weights / unit).predict(f)
        np.testing.assert_allclose(p, expected, atol=1e-12)


def test_venn_abers_fail_where_sums_lose_small_weights():
    rng = np.random.default_rng(0)
    f = np.sort(rng.normal(size=60))
    y, s = labels_of(rng, f), np.repeat([0, 1], 30)
    weights = np.ones(60)
    weights[15] = 1e17
    found = pj.fit_segments(f, y, s, weights=weights, curve="venn_abers")
    assert found.curves.status.tolist() == [2, 0, 2]  # the last is of all rows
    assert np.isnan(found.predict_proba(f, s)).tolist() == [True] * 30 + [False] * 30
    alone = pj.fit_segments(f[30:], y[30:], s[30:], curve="venn_abers")
    same = found.predict_proba(f[30:], s[30:]) == alone.predict_proba(f[30:], s[30:])
    assert same.all()
    with pytest.raises(RuntimeError, match="weights that differ"):
        found.raise_if_failed()


def test_bins_have_the_share_of_their_rows():
    f, y, s, w = world()
    for strategy in ("quantile", "uniform"):
        kind = curves.Bins(n_bins=5, strategy=strategy)
        found = pj.fit_segments(f, y, s, weights=w, curve=kind)
        for k in range(len(SIZES)):
            mine = s == k
            p = found.predict_proba(f[mine], k)
            assert len(np.unique(p)) <= 5
            for share in np.unique(p):
                here = mine.copy()
                here[mine] = p == share
                assert np.average(y[here], weights=w[here]) == pytest.approx(share)
            if k == 6 and strategy == "quantile":
                masses = [w[mine][p == share].sum() for share in np.unique(p)]
                assert min(masses) > 0.1 * sum(masses)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_a_loop_and_all_rows_are_for_unseen_segments(name, calibrators):
    f, y, s, w = world()
    at = np.linspace(-3, 3, 21)
    for k in (0, 1, 2, 5):
        one = pj.fit_segments(f[s == k], y[s == k], s[s == k], weights=w[s == k], curve=name)
        expected, found = (c.predict_proba(at, k) for c in (one, calibrators[name]))
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-12)
    together = pj.fit_segments(f, y, s, weights=w, curve=name, pooling="complete")
    np.testing.assert_allclose(
        together.predict_proba(at, 2), calibrators[name].predict_proba(at, -7), rtol=1e-9
    )


@pytest.mark.parametrize("name", ["quadratic", "isotonic", "venn_abers"])
def test_bad_rows_cost_their_segment_only(name):
    f, y, s, w = world()
    f, w = f.copy(), w.copy()
    f[np.flatnonzero(s == 4)[0]] = np.nan
    w[s == 2] = 0
    with pytest.warns(RuntimeWarning, match="their curves are NaN"):
        found = pj.fit_segments(f, y, s, weights=w, curve=name)
    status = [Status(int(x)).name for x in found.curves.status]
    assert status[4] == "NON_FINITE" and status[2] == "EMPTY"
    assert {*status[:2], status[3], *status[5:]} == {"CONVERGED"}
    p = found.predict_proba([0.3] * 8, np.arange(8))
    module = {}
    exec(to_python(found), module)
    exported = [module["predict_proba"](0.3, k) for k in range(8)]
    np.testing.assert_allclose(exported, p, rtol=1e-12)
    assert np.isnan(p).tolist() == [False, False, True, False, True, False, False, False]
    whole = pj.fit_segments(*(x[s != 4] for x in (f, y, s)), weights=w[s != 4], curve=name)
    np.testing.assert_allclose(p[5], whole.predict_proba([0.3], 5), rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["beta", "spline"])
def test_an_offset_is_known_log_odds(name):
    f, y, s, _ = world()
    offset = np.random.default_rng(1).normal(size=len(f))
    found = pj.fit_segments(f, y, s, offset=offset, curve=name)
    k, mine = 6, s == 6
    z = found.curves.log_odds(f[mine], np.full(mine.sum(), k)) + offset[mine]
    p = 1 / (1 + np.exp(-z))
    # The optimum's condition for the constant.
    assert (p - platt(y[mine], np.ones(mine.sum()))).sum() == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(found.predict_proba(f[mine], k, offset=offset[mine]), p)


def test_offsets_are_refused_where_curves_have_no_log_odds():
    f, y, s, _ = world()
    with pytest.raises(ValueError, match="offset: expected None beside curve=Isotonic"):
        pj.fit_segments(f, y, s, offset=f, curve="isotonic")


@pytest.mark.parametrize("name", NAMES)
def test_files_and_json_keep_the_curves(name, calibrators, tmp_path):
    from platt_jax.export import from_json, to_json

    path = tmp_path / "calibrator"
    pj.save(path, calibrators[name])
    assert pj.load(path) == calibrators[name]
    assert from_json(to_json(calibrators[name])) == calibrators[name]


@pytest.mark.parametrize("name", ["quadratic", "isotonic", "bins", "venn_abers"])
def test_a_shifted_rate_moves_the_log_odds(name, calibrators):
    at = np.linspace(-1, 1, 9)
    before, after = calibrators[name], calibrators[name].shift_prior(0.5, 0.1)
    p, q = before.predict_proba(at, 6), after.predict_proba(at, 6)
    np.testing.assert_allclose(q / (1 - q), p / (1 - p) / 9, rtol=1e-6)
    np.testing.assert_allclose(after.unshifted().predict_proba(at, 6), p, rtol=1e-12)


@pytest.mark.parametrize("name", ["quadratic", "isotonic", "venn_abers"])
def test_functions_of_sigmoids_refuse_other_curves_by_name(name, calibrators):
    f, y, s, _ = world()
    calibrator = calibrators[name]
    rows = f, y, s
    from platt_jax import inference, plots

    refused = [
        lambda: pj.update(calibrator, *rows),
        lambda: pj.triage(calibrator, *rows),
        lambda: pj.Monitor.start(calibrator),
        lambda: pj.inference.estimate_rates(calibrator, f, s),
        lambda: inference.robust_covariance(calibrator, *rows),
        lambda: pj.inference.leave_one_out(calibrator, f, y, segments=s),
        lambda: plots.parameter_map(calibrator),
        lambda: calibrator[3],
    ]
    for call in refused:
        with pytest.raises(ValueError, match=f"expected sigmoids, got a calibrator with {name}"):
            call()
    table = pj.triage(calibrator, *rows, against="predictions")
    assert sorted(table["segment"]) == list(range(len(SIZES)))
    night = pj.Monitor.start(calibrator, against="predictions").update(*rows)
    assert len(night.table()["rows"]) == len(SIZES)


@pytest.mark.parametrize("name", ["shift", "temperature"])
def test_what_would_fit_two_parameters_refuses_curves_of_one(name, calibrators):
    """Before, `update` gave shifts a slope of their own, and left-out rows an intercept."""
    from platt_jax import inference

    f, y, s, w = world()
    calibrator = calibrators[name]
    for call in (
        lambda: pj.update(calibrator, f, y, s),
        lambda: pj.inference.leave_one_out(calibrator, f, y, s, weights=w),
        lambda: inference.robust_covariance(calibrator, f, y, s, weights=w),
        lambda: pj.inference.leave_one_out(pj.fit(f, y, curve=name), f, y),
    ):
        with pytest.raises(ValueError, match=f"calibrator: expected .* got {name}s"):
            call()
    if name == "temperature":
        options = pj.Options(intercept=False, targets="none")
        updated = pj.update(calibrator, f, y, s, weights=w, options=options)
        assert (updated.fit.B == 0).all()
        with pytest.raises(ValueError, match="from_rate: expected shares of positives"):
            pj.inference.estimate_rates(calibrator, f, s)


def test_rows_elsewhere_refuse_curves_that_need_them_here():
    duckdb = pytest.importorskip("duckdb")
    from platt_jax import sql

    relation = duckdb.sql("SELECT * FROM (VALUES (2.0, 1, 'a'), (-1.0, 0, 'a')) t(f, y, shop)")
    rows = sql.rows(relation, score="f", label="y", segment="shop")
    with pytest.raises(ValueError, match="scores: expected arrays in memory beside curve=Isotonic"):
        pj.fit_segments(rows, curve="isotonic")
    assert pj.fit_segments(rows, curve="shift").fit.A == -1


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_classes_are_segments(name):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(200, 3))
    labels = np.array(["b", "c", "a"])[(scores + rng.normal(size=(200, 3))).argmax(1)]
    kwargs = dict(classes=["b", "c", "a"], curve=name)
    found = pj.fit_one_vs_rest(scores, labels, **kwargs)
    each = found.predict_proba(scores, normalize=False)
    for i, class_ in enumerate("bca"):
        one = pj.fit_segments(scores[:, i], labels == class_, np.zeros(200, int), curve=name)
        np.testing.assert_allclose(each[:, i], one.predict_proba(scores[:, i], 0), rtol=1e-7)
    rows = found.predict_proba(scores)
    np.testing.assert_allclose(rows.sum(1), 1)
    assert found.table()["class"].tolist() == ["b", "c", "a"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_float32_gives_float32_and_nearly_the_same(name, calibrators):
    f, y, s, w = world(dtype=np.float32)
    at = np.linspace(-2, 2, 9, dtype=np.float32)
    if name == "quadratic":
        found = pj.fit_segments(f, y, s, weights=w, curve=name)
        p, expected = (x.predict_proba(at, 6) for x in (found, calibrators[name]))
    else:  # one problem compiles one program instead of four
        mine = s == 6
        rows, weights = (f[mine], y[mine]), w[mine]
        p = pj.fit(*rows, weights=weights, curve=name).predict_proba(at)
        wide = pj.fit(rows[0].astype(float), y[mine], weights=weights.astype(float), curve=name)
        expected = wide.predict_proba(at.astype(float))
    assert p.dtype == np.float32
    np.testing.assert_allclose(p, expected, atol=2e-4)


def test_a_quadratic_goes_on_along_its_tangent(calibrators):
    found = calibrators["quadratic"].curves
    high = found.high[6]
    z = found.log_odds(high + np.array([-1e-5, 0.0, 1.0, 2.0]), np.full(4, 6))
    assert z[3] - z[2] == pytest.approx(z[2] - z[1], rel=1e-9)
    assert z[2] - z[1] == pytest.approx((z[1] - z[0]) * 1e5, rel=1e-4)


def test_without_platts_targets_a_separable_segment_has_no_optimum(calibrators):
    f, y = np.arange(6.0), np.array([0, 0, 0, 1, 1, 1])
    plain = pj.fit(f, y, curve="quadratic", options=pj.Options(targets="none"))
    assert plain.status == Status.MAX_ITERATIONS
    assert pj.fit(f, y, curve="quadratic").status == Status.CONVERGED
    found = calibrators["quadratic"]
    failed = np.where(np.arange(len(found.curves)) == 3, plain.status, found.curves.status)
    with pytest.raises(RuntimeError, match="MAX_ITERATIONS"):
        found._replaced(curves=replace(found.curves, status=failed)).raise_if_failed()


@pytest.mark.slow
def test_a_problem_larger_than_a_call_is_read_in_blocks():
    rows = 600_000
    rng = np.random.default_rng(0)
    f = rng.normal(size=rows)
    y = rng.random(rows) < 1 / (1 + np.exp(-f))
    found = pj.fit_segments(f, y, np.zeros(rows, int), curve="quadratic").curves
    np.testing.assert_allclose(found.coefficients[0], found.coefficients[1], rtol=1e-8, atol=1e-10)
    slope = found.coefficients[0][1] * found.scale[0]
    assert slope == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(curve="cubic"), "curve: expected one of 'sigmoid'.*got 'cubic'"),
        (dict(curve="isotonic", pooling="partial"), 'pooling: expected "none" or "complete"'),
        (dict(curve="isotonic", start=(0.0, 0.0)), "start: expected None beside curve="),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    f, y, s, _ = world()
    with pytest.raises(ValueError, match=message):
        pj.fit_segments(f, y, s, **arguments)


def test_options_of_curves_are_checked():
    for make in (
        lambda: curves.Bins(n_bins=0),
        lambda: curves.Bins(strategy="x"),
        lambda: curves.Spline(knots=2),
        lambda: curves.Spline(penalty=-1),
    ):
        with pytest.raises(ValueError, match="expected"):
            make()


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_problems_is_its_segments(name):
    rng = np.random.default_rng(5)
    f = rng.normal(size=(2, 3, 40))
    y = rng.random(f.shape) < 1 / (1 + np.exp(-f))
    found = pj.fit(f, y, curve=name)
    assert found.status.shape == (2, 3) and found.converged.all()
    segments = np.repeat(np.arange(6), 40)
    each = pj.fit_segments(f.ravel(), y.ravel(), segments, curve=name)
    expected = each.predict_proba(f.ravel(), segments).reshape(f.shape)
    np.testing.assert_allclose(found.predict_proba(f), expected, rtol=1e-9)
    at = np.linspace(-1, 1, 5)
    assert found.predict_proba(np.tile(at, (2, 3, 1))).shape == (
        2,
        3,
        5,
    )


def test_a_curve_is_chosen_by_left_out_rows(tmp_path):
    rng = np.random.default_rng(0)
    s, f = np.arange(8000) % 8, rng.normal(size=8000)
    for curvature, expected in ((1.0, "quadratic"), (0.0, "sigmoid")):
        y = rng.random(8000) < 1 / (1 + np.exp(1 - f - curvature * f * f))
        choice = pj.inference.choose_curve(f, y, s, candidates=("sigmoid", "quadratic", "isotonic"))
        assert choice.chosen == expected
        assert set(choice.segments["curve"]) == {expected}
        again = pj.inference.choose_curve(f, y, s, candidates=("sigmoid", "quadratic", "isotonic"))
        np.testing.assert_array_equal(again.candidates["log_loss"], choice.candidates["log_loss"])
        pj.save(tmp_path / "c", choice.calibrator)
        assert pj.load(tmp_path / "c") == choice.calibrator


@pytest.mark.slow
def test_segments_that_differ_clearly_get_their_own_kind(tmp_path):
    rng = np.random.default_rng(0)
    s, f = np.arange(16_000) % 8, rng.normal(size=16_000)
    curvature = np.where(np.arange(8) < 2, 1.5, 0.0)[s]
    y = rng.random(len(f)) < 1 / (1 + np.exp(1 - f - curvature * f * f))
    choice = pj.inference.choose_curve(f, y, s, candidates=("sigmoid", "quadratic"))
    kinds = choice.segments["curve"]
    assert (kinds[:2] == "quadratic").all()
    part = np.flatnonzero(kinds == "sigmoid")
    if len(part):  # the curves are then of several kinds
        pj.save(tmp_path / "c", choice.calibrator)
        assert pj.load(tmp_path / "c") == choice.calibrator
        table = choice.calibrator.table()
        assert table["curve"].tolist() == kinds.tolist()
    for kind in set(kinds):
        alone = pj.fit_segments(f, y, s, curve=kind)
        for k in np.flatnonzero(kinds == kind):
            np.testing.assert_allclose(
                choice.calibrator.predict_proba([0.5], k), alone.predict_proba([0.5], k)
            )


def test_the_command_line_fits_and_applies_other_curves(tmp_path):
    from platt_jax.cli.main import main

    f, y, s, _ = world()
    rows = tmp_path / "rows.csv"
    lines = [f"{a},{b},{c}" for a, b, c in zip(f, y, s, strict=True)]
    rows.write_text("score,label,shop\n" + "\n".join(lines) + "\n")
    out, applied = tmp_path / "c.npz", tmp_path / "applied.csv"
    columns = ["--score", "score", "--label", "label", "--segment", "shop"]
    command = ["fit", str(rows), *columns, "--curve", "isotonic", "--out", str(out)]
    assert main(command) == 0
    expected = pj.fit_segments(f, y, s.astype(str), curve="isotonic")
    loaded = pj.load(out)
    np.testing.assert_allclose(
        loaded.predict_proba(f, loaded.keys[s]), expected.predict_proba(f, s.astype(str))
    )
    columns = ["--score", "score", "--segment", "shop"]
    command = ["apply", str(rows), "--calibrator", str(out), *columns, "--out", str(applied)]
    assert main(command) == 0
    assert len(applied.read_text().splitlines()) == len(f) + 1


def test_rows_are_held_out_of_two_or_more():
    kinds = ("sigmoid", "quadratic")
    with pytest.raises(ValueError, match="scores: expected two or more rows, to hold some out"):
        pj.inference.choose_curve([0.5], [1], ["a"], candidates=kinds)
    two = pj.inference.choose_curve([0.5, -0.5], [1, 0], ["a", "a"], candidates=kinds)
    assert two.segments["rows"].tolist() == [2]


def test_a_choice_does_not_depend_on_the_kind_of_ids(rng):
    codes, f = np.arange(400) % 4, rng.normal(size=400)
    y, kinds = rng.random(400) < 0.5, ("sigmoid", "quadratic")
    expected = pj.inference.choose_curve(f, y, codes, candidates=kinds)
    pd = pytest.importorskip("pandas")
    texts, pairs = [f"s{x}" for x in codes], [codes // 2, codes % 2]
    for segments in (texts, pd.DataFrame({"a": pairs[0], "b": pairs[1]})):
        found = pj.inference.choose_curve(f, y, segments, candidates=kinds)
        np.testing.assert_array_equal(found.candidates["log_loss"], expected.candidates["log_loss"])
        p = found.calibrator.predict_proba(f, segments)
        np.testing.assert_array_equal(p, expected.calibrator.predict_proba(f, codes))


@pytest.mark.parametrize("sign", [1, -1])
def test_beta_of_scores_that_are_far_on_one_side(sign):
    """There one of both functions is constant; its rounding is no information."""
    f = sign * np.array([67605.2, 72233.4, 8798.9, 60891.7, 70000.0, 69563.9])
    y, s = [1, 1, 0, 0, 1, 0], [0, 0, 0, 0, 1, 1]
    found = pj.fit_segments(f, y, s, curve="beta")
    assert (found.curves.status == Status.CONVERGED).all()
    sums = np.bincount(s, found.predict_proba(f, s))
    # Platt's targets add up to as much.
    np.testing.assert_allclose(sums, [2 * 3 / 4 + 2 / 4, 2 / 3 + 1 / 3], rtol=1e-9)
    assert np.isposinf(found.curves.covariance[:, 1, 1] + found.curves.covariance[:, 2, 2]).all()
    lower, upper = found.band(f, s)
    p = found.predict_proba(f, s)
    assert ((lower < p) & (p < upper)).all() and np.isfinite([lower, upper]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("apart", [0, 1])
def test_neighbouring_scores_keep_their_labels(dtype, apart):
    """The label travels through the sort in the last bit of the score: scores may differ in it."""
    rng = np.random.default_rng(3)
    ids, y = rng.integers(0, 40, 4000), rng.integers(0, 2, 4000)
    scores = rng.integers(-3, 4, 4000).astype(dtype)
    up = rng.random(4000) < apart / 2
    scores[up] = np.nextafter(scores[up], dtype(9))  # 5e-324 or 1e-45 beside 0
    scores[(scores == 0) & (ids % 2 == 0)] *= -1  # to -0.0
    found = pj.fit_segments(scores, y, ids, curve="isotonic")
    for k in range(40):
        mine = ids == k
        distinct, place = np.unique(scores[mine], return_inverse=True)
        w = np.bincount(place)
        expected = IsotonicRegression().fit_transform(
            np.arange(len(w)), np.bincount(place, y[mine]) / w, sample_weight=w
        )
        np.testing.assert_allclose(
            found.predict_proba(distinct, np.full(len(w), k)), expected, rtol=1e-5
        )


def test_corners_of_isotonic_curves():
    scores = np.arange(10.0)
    found = pj.fit(scores, [0, 0, 0, 1, 0, 1, 0, 1, 1, 1], curve="isotonic").curves
    np.testing.assert_array_equal(found.scores, [0, 2, 3, 6, 7, 9])
    np.testing.assert_array_equal(found.probabilities, [0, 0, 0.5, 0.5, 1, 1])
    twice = pj.fit(np.repeat(scores, 2), np.repeat(scores > 4, 2), curve="isotonic").curves
    np.testing.assert_array_equal(twice.scores, [0, 4, 5, 9])
    tied = pj.fit([1.0, 1.0, 1.0, 2.0, 2.0, 3.0], [1, 0, 0, 0, 1, 1], curve="isotonic")
    np.testing.assert_allclose(tied.predict_proba([1.0, 2.0, 3.0]), [1 / 3, 1 / 2, 1])


@pytest.mark.parametrize("kind", [curves.Isotonic(), curves.Bins(), curves.Bins(10, "uniform")])
def test_one_class_and_constant_scores_have_the_share_of_class_1(kind):
    scores, labels = np.linspace(-2, 3, 48), np.arange(48) < 13
    batch = [scores, scores, np.full(48, -1.7)], [0 * labels, 0 * labels + 1, labels]
    p = pj.fit(*batch, curve=kind).predict_proba([-9.0, -1.7, 0.3, 9.0])
    np.testing.assert_allclose(p, np.repeat([[0], [1], [13 / 48]], 4, axis=1))


def test_isotonic_curves_between_scores_that_are_nearly_equal_or_far_apart():
    far = pj.fit([-1.5e308, 1.5e308], [0, 1], curve="isotonic")
    np.testing.assert_allclose(far.predict_proba([-1e308, 0, 1e308]), [1 / 6, 1 / 2, 5 / 6])
    for least in (5e-324, 2e-310, 2e-308):
        near = pj.fit([0.0, least, 1.0], [0, 1, 1], curve="isotonic")
        p = near.predict_proba([0.0, least, 0.5, -1.0, least / 2])
        assert (p[:4] == [0, 1, 1, 0]).all()
        assert p[4] == pytest.approx(0.5) or least == 5e-324  # its half is 0


@pytest.mark.parametrize("n_bins", [2, 7, 10, 49])
def test_a_score_on_an_edge_of_equal_width_is_in_the_bin_above(n_bins, dtype):
    counts = np.array([n_bins, 3 * n_bins, 10 * n_bins, 48, 97, 343, 490])[:, None]
    # Problem k has scores 0 ... counts[k], the last of them several times.
    whole = np.minimum(np.arange(counts.max() + 1), counts)
    expected = np.minimum(whole * n_bins // counts, n_bins - 1)
    kind = curves.Bins(n_bins, "uniform")
    for first, unit in ((0, 1), (-17, 1), (100, 2.0**-12), (0, 0.1), (-10, 0.2), (0, 0.07)):
        scores = ((first + whole) * unit).astype(dtype)
        # The share of class 1 tells bins apart: all even ones have 1.
        found = pj.fit(scores, expected % 2 == 0, curve=kind).predict_proba(scores)
        np.testing.assert_array_equal(found, expected % 2 == 0)


def test_bins_of_equal_mass_are_equal_and_equal_scores_share_one(dtype):
    for n_bins in (3, 7, 49):
        scores = np.arange(7 * n_bins, dtype=dtype)
        labels = np.arange(7 * n_bins) // 7 % 2
        found = pj.fit(scores, labels, curve=curves.Bins(n_bins))
        np.testing.assert_array_equal(found.predict_proba(scores), labels)
    scores, labels = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 2.0], dtype), [0, 1, 0, 0, 1, 1]
    p = pj.fit(scores, labels, curve=curves.Bins(3)).predict_proba([0.0, 1.0, 2.0])
    np.testing.assert_allclose(p, [1 / 4, 1, 1])
    largest = np.finfo(dtype).max
    wide = np.array([-largest, -largest / 4, largest / 4, largest], dtype)
    found = pj.fit(wide, [0, 1, 0, 1], curve=curves.Bins(4, "uniform")).predict_proba(wide)
    np.testing.assert_array_equal(found, [0, 1, 0, 1])


def test_the_bounds_of_beta_hold_and_are_met():
    rng, plain = np.random.default_rng(0), pj.Options(targets="none")
    scores, labels = batch(rng, 20, 48)
    scores -= 0.7
    found = pj.fit(scores, labels, curve="beta", options=plain).curves.coefficients
    assert (found[:, 1:] >= 0).all()
    assert (0 < (found[:, 1:] == 0).sum(0)).all() and ((found[:, 1:] == 0).sum(0) < 20).all()
    found = pj.fit(scores, 1 - labels, curve="beta", options=plain).curves.coefficients
    both = (found[:, 1:] == 0).all(1)
    assert both.any()
    share = np.log((1 - labels).mean(axis=1) / labels.mean(axis=1))
    np.testing.assert_allclose(found[both, 0], share[both], rtol=1e-7, atol=1e-12)
    # Classes that are apart get a steep curve, and one class the mean of Platt's targets.
    apart = np.tile(np.array([-3.0, -2, -1, 1, 2, 3]), (20, 8))
    p = pj.fit(apart, apart > 0, curve="beta", options=plain).predict_proba(apart)
    assert np.all(abs(p - (apart > 0)) < 0.01)
    p = pj.fit(apart, np.ones(48), curve="beta").predict_proba(apart)
    np.testing.assert_allclose(p, 49 / 50)


@pytest.mark.slow
def test_the_optimum_of_many_rows_is_found_in_float32():
    """Sums of all rows at once lose small terms in float32: then no step gains anything."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=300_000)
    labels = labels_of(rng, 1.3 * scores - 0.2)
    found = pj.fit(scores.astype(np.float32), labels, curve="beta").curves
    assert found.iterations < 12
    x = functions(found, 0, scores)
    p = 1 / (1 + np.exp(-x @ found.coefficients[0].astype(float)))
    gradient = (p - platt(labels, np.ones(len(scores)))) @ x
    hessian = (x * (p * (1 - p))[:, None]).T @ x
    # In standard errors.
    assert gradient @ np.linalg.solve(hessian, gradient) < 1e-2**2


def test_the_first_candidate_within_a_standard_error_of_the_best_is_chosen():
    rng, ones = np.random.default_rng(0), np.ones(400)
    first = rng.random(400)
    noise, infinite = rng.normal(0, 0.1, 400), np.where(first > 0.9, np.inf, 0.0)
    best = first - noise.mean() + noise - 0.003
    assert first_as_good(np.stack([first, best], 1), ones)[0] == 0
    assert first_as_good(np.stack([first, best - 0.01], 1), ones)[0] == 1
    three = np.stack([first + 1, first + noise - noise.mean(), first], 1)
    place, difference, error = first_as_good(three, ones)
    assert place == 1 and difference[2] == error[2] == 0
    assert error[1] == pytest.approx(noise.std(ddof=1) / 20)
    # Infinite losses are not chosen, but where all have them.
    assert first_as_good(np.stack([infinite, first], 1), ones)[0] == 1
    assert first_as_good(np.full((4, 2), np.inf), ones[:4])[0] == 0


def test_beta_of_one_score_that_hardly_differs_from_the_limit():
    """A parameter of 1e14 takes all digits of a constant that is not the log-odds at the center."""
    f = np.array([32.0, 200.0, 3e4, 5e4, 7e4, 9e4])
    found = pj.fit_segments(f, [0, 1, 0, 1, 1, 0], np.zeros(6), curve="beta")
    p = found.predict_proba(f, 0.0)
    assert p.sum() == pytest.approx(3 * 4 / 5 + 3 / 5, rel=1e-12)  # Platt's targets
    at = found.threshold([0.3, 0.5], 0.0)  # where the curve rises, and is flat soon after
    np.testing.assert_allclose(found.predict_proba(at, 0.0), [0.3, 0.5], rtol=1e-6)
    module = {}
    exec(to_python(found), module)
    np.testing.assert_allclose([module["predict_proba"](x, 0.0) for x in f], p, rtol=1e-9)


@pytest.mark.parametrize("name", [*LOG_ODDS, "constant beta", "level quadratic"])
def test_infinite_scores_have_the_limit_of_the_curve(name, dtype):
    """Without warnings: tests make errors of these. Before, products of 0 and infinity were NaN."""
    f = np.linspace(-2, 3, 24)
    y = {"constant beta": f < 0, "level quadratic": np.abs(f - 0.5) < 1}.get(name, f > 0)
    if name == "constant beta":
        y = y & (np.arange(24) % 3 > 0)
    kind, most = name.split()[-1], np.finfo(dtype).max / 64
    found = pj.fit([f.astype(dtype)], [y], curve=kind)
    ends = np.array([-np.inf, np.inf, -most, most, -most / 1e8, most / 1e8, np.nan], dtype)
    p = found.predict_proba(ends)[0]
    np.testing.assert_array_equal(p[:2], p[2:4])
    np.testing.assert_array_equal(p[:2], p[4:6])
    assert np.isnan(p[6]) and found.predict_proba(ends).dtype == dtype
    if name == "constant beta":
        assert p[0] == p[1] == pytest.approx(found.predict_proba(f)[0, 0])
    variance = found.curves.variance(ends, np.zeros(7, int))
    assert np.isnan(variance[6]) and (variance[:6] > 0).all()
    # The square of the farthest score overflows.
    for band in pj.fit_segments(f.astype(dtype), y, np.zeros(24), curve=kind).band(ends, 0):
        np.testing.assert_array_equal(band[[0, 0, 1, 1]], band[[2, 4, 3, 5]])


def test_a_parameter_at_its_bound_has_a_standard_error():
    """Half of beta curves of few rows have one; before, their bands were from 0 to 1."""
    rng = np.random.default_rng(1)
    f, y = batch(rng, 12, 60)
    found = pj.fit(f, y, curve="beta").curves
    bound = (found.coefficients[:, 1:] == 0).any(1)
    assert bound.any()
    variance = found.variance(np.tile([-1.0, 0.0, 1.0], 12), np.repeat(np.arange(12), 3))
    assert ((variance > 0) & np.isfinite(variance)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shifts_of_small_and_large_scores(dtype):
    """A was held by a prior, beside which small scores were rounding; between large ones h is 0."""
    rng = np.random.default_rng(7)
    unit = rng.normal(size=253)
    scores = np.array([1e-6 * unit, 1e-4 + 1e-6 * unit, unit, 1e3 * unit, 1e4 * unit], dtype)
    labels = rng.random(253) < 0.02
    for offset in (None, dtype([[5], [0], [0], [-5], [2000]])):
        found = pj.fit(scores, labels, curve="shift", offset=offset)
        assert (found.status == Status.CONVERGED).all()
        assert (found.A == -1).all() and (found.standard_errors[:, 0] == 0).all()
        n, n_pos = len(labels), labels.sum()
        targets = n_pos * (n_pos + 1) / (n_pos + 2) + (n - n_pos) / (n - n_pos + 2)
        p = found.predict_proba(scores, offset=offset)
        np.testing.assert_allclose(p.sum(1), targets, rtol=1e-3 if dtype == np.float32 else 1e-9)
    one_class = pj.fit(unit, np.ones(253), curve="shift", options=pj.Options(targets="none"))
    assert one_class.status == Status.MAX_ITERATIONS


def test_a_beta_parameter_that_moves_no_log_odds_does_not_hold_up_the_others():
    scores = np.array([93786.0, 91098.0, 99392.0, 43910.0, 97491.0, 54.6, 25974.0])
    offset = np.array([-1.15, 0.5, 1.1, 0.67, -0.88, 0.47, -1.73])
    found = pj.fit(scores, [0, 1, 1, 0, 0, 0, 0], curve="beta", offset=offset)
    assert found.curves.status == Status.CONVERGED


def test_a_shift_stops_by_its_own_gradient(rng):
    """With LIBSVM's rule, though the gradient by the slope that is held is not 0."""
    scores = rng.normal(size=60)
    labels = labels_of(rng, 1 + scores)
    for options in (pj.Options.libsvm(), pj.Options(stopping="gradient")):
        found = pj.fit(scores, labels, curve="shift", options=options)
        assert found.status == pj.Status.CONVERGED
    reversed_scores = pj.Options(monotone=True, stopping="gradient")
    assert pj.fit(-scores, labels, options=reversed_scores).status == pj.Status.CONVERGED
    with pytest.raises(ValueError, match=r"intercept=False\): expected True for shift"):
        pj.fit(scores, labels, curve="shift", options=pj.Options(intercept=False))


@pytest.mark.parametrize("curve", ["bins", "isotonic", "venn_abers", "quadratic", "beta", "spline"])
def test_falls_are_found_between_any_two_scores(curve, rng):
    """Of bins and quadratics with far scores: 65 even scores of the range lay outside the fall."""
    number, shop = 2000, np.repeat(np.arange(4), 500)
    f = np.exp(1.5 * rng.normal(size=number))
    f[shop == 1] = rng.normal(size=500)
    log_odds = np.where(shop == 2, 1 - np.abs(np.log(f.clip(1e-9))), np.where(shop == 3, -f, f))
    y = rng.random(number) < 1 / (1 + np.exp(1 - log_odds))
    f[np.flatnonzero(shop == 1)[:3]] = -9999
    made = pj.fit_segments(f, y, shop, curve=curve).curves
    for k in range(4):
        mine = np.unique(f[shop == k])
        at = np.unique(np.concatenate([np.linspace(*x, 40) for x in pairwise(mine)]))
        p = made.proba(at, np.full(len(at), k))
        assert made.is_monotone[k] == (np.diff(p) >= -1e-9).all()
    assert made.is_monotone.all() == (curve in ("isotonic", "venn_abers", "beta"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("code", [-1e3, -1e4, -1e9, -3e38])
@pytest.mark.parametrize("rows", [16, 400])
def test_a_quadratic_beside_a_code_is_the_optimum_or_not_converged(dtype, code, rows, rng):
    """A far code of both classes took the digits that tell u from u^2 elsewhere, CONVERGED."""
    f = rng.normal(size=rows)
    y = rng.random(rows) < 1 / (1 + np.exp(-2 * f))
    y[:4] = [True, False, True, False]
    f[:2] = code
    found = pj.fit(f.astype(dtype), y, curve="quadratic")
    n_pos, n_neg = y.sum(), (~y).sum()
    t = np.where(y, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))
    # With a function that is 0 at the code: (1, u + u^2 / c, (u / c)^2) spans the same.
    X = np.stack([np.ones(rows), f - f * (f / code), (f / code) ** 2], 1)

    def loss(theta):
        z = X @ theta
        p = 1 / (1 + np.exp(-z))
        return (np.logaddexp(0, z) - t * z).sum(), X.T @ (p - t)

    best = minimize(loss, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-9}).fun
    assert found.status != Status.CONVERGED or found.curves.nll[0] < best + 0.05
    assert found.status == Status.CONVERGED or code < (-1e6 if dtype == np.float64 else -1e2)


@pytest.mark.parametrize("unit", [1.0, 2.0**-990, 2.0**1020])
def test_centred_isotonic_curves_in_any_unit(unit):
    rng = np.random.default_rng(0)
    f, y = rng.normal(size=400), rng.random(400) < 0.4
    made = curves.Isotonic(centered=True)
    p, q = (pj.fit(x, y, curve=made).predict_proba(x) for x in (f, f * unit))
    np.testing.assert_allclose(p, q, rtol=1e-9)
