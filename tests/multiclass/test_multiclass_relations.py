"""What must not change a fit of several classes, or must change it in a known way."""

import warnings
from typing import NamedTuple

import numpy as np
import pytest

import platt_jax as pj
from platt_jax import Flag, Status, export

N, C, K = 900, 4, 6
KINDS = [
    (model, pooling)
    for model in ("temperature", "temperature_bias", "vector", "ordinal")
    for pooling in ("none", "partial", "complete")
    if pooling != "partial" or model == "temperature"
]
FINFO = float(np.finfo(np.float32).min)


class Rows(NamedTuple):
    """The rows of a fit, and where the row and the column of each probability were."""

    f: np.ndarray
    y: np.ndarray
    segments: np.ndarray
    w: np.ndarray
    row: np.ndarray
    column: np.ndarray

    def change(self, **changes):
        return self._replace(**changes)


def rows_of(model, masked=0.0):
    rng = np.random.default_rng(5)
    f = 2 * rng.normal(size=(N, C)) + rng.normal(size=(N, 1))
    hidden = rng.random(f.shape) < masked
    hidden[np.arange(N), rng.integers(0, C, N)] = False
    f[hidden] = -np.inf
    segments = rng.integers(0, K, N)
    slope = np.exp(0.4 * rng.normal(size=K))[segments, None] / 2
    y = (slope * f + [0, 0.5, -0.5, 1] + rng.gumbel(size=f.shape)).argmax(axis=1)
    w = rng.integers(1, 4, N).astype(float)
    if model == "ordinal":
        f = f[:, 0] + y
    return Rows(f, y, segments, w, np.arange(N), np.arange(C))


def fitted(rows, kind, **options):
    model, pooling = kind
    args = {"model": model, "pooling": pooling, "classes": np.arange(C)} | options
    return pj.fit_multiclass(rows.f, rows.y, rows.segments, weights=rows.w, **args)


def proba(rows, kind, **options):
    """Probabilities of the rows, and for an unseen segment, in the order of the first rows."""
    found = fitted(rows, kind, **options)
    assert (found.status == Status.CONVERGED).all()
    p = np.stack([found.predict_proba(rows.f, x) for x in (rows.segments, None, 99)])
    return p[:, rows.row][:, :, rows.column]


def permuted(rows):
    order = np.random.default_rng(0).permutation(N)
    f, y, segments, w, _, _ = (x[order] if len(x) == N else x for x in rows)
    return Rows(f, y, segments, w, np.argsort(order), rows.column)


def twice(rows):
    """Each row once for each unit of its weight, and some of weight 0."""
    which = np.repeat(np.arange(N), rows.w.astype(int))
    first = np.searchsorted(which, np.arange(N))
    f, y, segments = (x[np.append(which, range(9))] for x in rows[:3])
    f[-9:] = f[-9:] * 1e9 + 7
    return Rows(f, y, segments, np.repeat([1.0, 0], [len(which), 9]), first, rows.column)


def classes_reversed(rows):
    """The scale of "ordinal" mirrored: classes and scores change their sign."""
    f = -rows.f if rows.f.ndim == 1 else rows.f[:, ::-1]
    return rows.change(f=f, y=C - 1 - rows.y, column=rows.column[::-1])


def with_constants(rows):
    shift = np.random.default_rng(1).normal(size=N) * 1e3
    return rows.change(f=rows.f + (1e3 if rows.f.ndim == 1 else shift[:, None]))


RELATIONS = {
    "rows permuted": (permuted, 1e-9),
    "segments renamed": (lambda x: x.change(segments=7 - x.segments), 1e-9),
    "weight 2 is the row twice": (twice, 1e-9),
    "scores x 1.4": (lambda x: x.change(f=1.4 * x.f), 1e-9),
    "scores x 1e4": (lambda x: x.change(f=1e4 * x.f), 1e-9),
    "scores x 1e-4": (lambda x: x.change(f=1e-4 * x.f), 1e-9),
    "scores x 1e-200": (lambda x: x.change(f=1e-200 * x.f), 1e-9),
    "scores x 1e200": (lambda x: x.change(f=1e200 * x.f), 1e-9),
    "constants": (with_constants, 1e-9),
    "classes reversed": (classes_reversed, 1e-9),
    "float32": (lambda x: x.change(f=x.f.astype(np.float32)), 1e-5),
}


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("relation", RELATIONS)
def test_relations(kind, relation):
    change, tolerance = RELATIONS[relation]
    if relation == "constants" and kind[0] == "vector":
        pytest.skip("own slopes: a constant is no constant in log-odds")
    for masked in (0.0, 0.4) if kind[0] != "ordinal" else (0.0,):
        rows = rows_of(kind[0], masked)
        np.testing.assert_allclose(proba(change(rows), kind), proba(rows, kind), atol=tolerance)


@pytest.mark.parametrize("kind", [x for x in KINDS if x[0] != "ordinal"], ids="-".join)
@pytest.mark.parametrize("mask", [-1e4, -65504.0, -1e9, -1e20, FINFO, -1e300])
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_numbers_that_mask_options_are_none(kind, mask, shift):
    rows = rows_of(kind[0], masked=0.4)
    hidden = np.isneginf(rows.f)
    other = rows.change(f=np.where(hidden, mask, rows.f))
    one, found = fitted(rows, kind), fitted(other.change(f=other.f + shift * hidden), kind)
    np.testing.assert_array_equal(found.coefficients, one.coefficients)
    np.testing.assert_array_equal(found.standard_errors, one.standard_errors)
    np.testing.assert_array_equal(found.fits.nll, one.fits.nll)
    np.testing.assert_array_equal(proba(other, kind), proba(rows, kind))
    narrow = rows.change(f=np.where(hidden, max(mask, FINFO), rows.f).astype(np.float32))
    np.testing.assert_allclose(proba(narrow, kind), proba(rows, kind), atol=1e-5)


@pytest.mark.parametrize("model", ["temperature", "temperature_bias", "vector"])
@pytest.mark.parametrize("mask", [-1e4, -65504.0])
@pytest.mark.parametrize("columns", [8, 26])
def test_numbers_that_mask_most_options_are_none(model, mask, columns):
    """Questions of two to four options in a table as wide as the widest question."""
    rng = np.random.default_rng(0)
    segments, f = np.arange(1000) % 10, 2 * rng.normal(size=(1000, columns))
    hidden = np.arange(columns) >= rng.integers(2, 5, 1000)[:, None]
    f[hidden] = -np.inf
    y = (f / 2 + rng.gumbel(size=f.shape)).argmax(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of biases of options that no row has
        one, found = (
            pj.fit_multiclass(x, y, segments, model=model, classes=range(columns))
            for x in (f, np.where(hidden, mask, f))
        )
    np.testing.assert_array_equal(found.farthest, one.farthest)
    np.testing.assert_array_equal(found.coefficients, one.coefficients)


@pytest.mark.parametrize("mask", [-np.inf, -1e9, FINFO])
def test_masked_options_have_probability_0_even_where_logits_say_nothing(mask):
    rng = np.random.default_rng(0)
    f = rng.normal(size=(300, 5))
    hidden = rng.random(f.shape) < 0.7  # half of the rows have one option or none to compare
    hidden[np.arange(300), rng.integers(0, 5, 300)] = False
    y = np.where(hidden, np.inf, f).argmin(axis=1)  # the least likely option
    f[hidden] = mask
    for model in ("temperature", "temperature_bias"):
        found = pj.fit_multiclass(f, y, model=model, classes=range(5))
        assert found.slopes[0] == 0 and found.flags[0] == Flag.REVERSED
        assert found.status[0] == Status.CONVERGED
        assert (found.predict_proba(f)[hidden] == 0).all()
        assert "1 REVERSED" in repr(found) and found.table()["flags"][0] == "REVERSED"
    vector = pj.fit_multiclass(f, y, model="vector", classes=range(5))
    assert vector.flags[0] & Flag.REVERSED and (vector.predict_proba(f)[hidden] == 0).all()


def test_a_label_far_below_its_row_is_no_option():
    rows = rows_of("temperature")
    f = rows.f.copy()
    f[3, rows.y[3]] = -1e9
    with pytest.warns(RuntimeWarning, match="labels that are no option, in 1 of 6 segments"):
        found = pj.fit_multiclass(f, rows.y, rows.segments)
    own = found.keys == rows.segments[3]
    assert ((found.status == Status.NON_FINITE) == own).all()
    without = pj.fit_multiclass(*(np.delete(x, 3, axis=0) for x in (f, rows.y, rows.segments)))
    omitted = pj.fit_multiclass(f, rows.y, rows.segments, options=pj.Options(non_finite="omit"))
    np.testing.assert_allclose(omitted.slopes, without.slopes, rtol=1e-12)
    with pytest.raises(ValueError, match="a label that is an option; row 3 is not so"):
        pj.fit_multiclass(f, rows.y, options=pj.Options(non_finite="raise"))


@pytest.mark.parametrize("kind", [x for x in KINDS if x[1] != "partial"], ids="-".join)
@pytest.mark.parametrize("unit", [2.0**-66, 2.0**66, 1e-300, 1e300])
def test_weights_have_no_unit_but_that_of_the_penalty(kind, unit):
    rows = rows_of(kind[0], masked=0.2 if kind[0] != "ordinal" else 0.0)
    penalty = 0.1 if abs(np.log2(unit)) < 100 else 1e-5
    one = fitted(rows, kind, penalty=penalty)
    other = fitted(rows.change(w=rows.w * unit), kind, penalty=penalty * unit)
    assert (other.status == Status.CONVERGED).all()
    np.testing.assert_allclose(other.coefficients, one.coefficients, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(other.fits.nll / unit, one.fits.nll, rtol=1e-12)
    np.testing.assert_allclose(
        other.standard_errors * np.sqrt(unit), one.standard_errors, rtol=1e-6
    )


@pytest.mark.parametrize("model", ["temperature", "temperature_bias", "vector"])
@pytest.mark.parametrize("unit", [1e-20, 1e20, 1e-300, 1e300])
def test_a_penalty_that_outweighs_the_rows_or_the_reverse(model, unit):
    """Light rows still have the slope that biases of 0 leave; heavy ones have the likeliest."""
    rows = rows_of(model)
    args = {"model": model, "classes": range(C)}
    found = pj.fit_multiclass(rows.f, rows.y, weights=rows.w * unit, **args)
    assert found.status[0] == Status.CONVERGED
    if unit < 1:
        limit = pj.fit_multiclass(rows.f, rows.y, weights=rows.w).slopes[0]
        np.testing.assert_allclose(found.slopes, np.full_like(found.slopes, limit), rtol=1e-9)
    else:
        limit = pj.fit_multiclass(rows.f, rows.y, weights=rows.w, penalty=1e-7, **args)
        np.testing.assert_allclose(found.coefficients, limit.coefficients, atol=1e-6)


@pytest.mark.parametrize("kind", [x for x in KINDS if x[1] == "none"], ids="-".join)
def test_no_segment_depends_on_another(kind):
    rows = rows_of(kind[0], masked=0.2 if kind[0] != "ordinal" else 0.0)
    one = fitted(rows, kind)
    loud = rows.segments == 2
    for change in (
        {"w": np.where(loud, 1e300, rows.w)},
        {"w": np.where(loud, 1e-300, rows.w)},
        {"f": rows.f * np.where(loud, 1e-9, 1).reshape(-1, *(1,) * (rows.f.ndim - 1))},
        {"f": rows.f * np.where(loud, 1e150, 1).reshape(-1, *(1,) * (rows.f.ndim - 1))},
        {"y": np.where(loud, rows.f.argmax(axis=1) if rows.f.ndim > 1 else 0, rows.y)},
    ):
        other = fitted(rows.change(**change), kind)
        quiet = one.keys != 2
        for name in ("coefficients", "standard_errors", "nll", "status", "flags"):
            a, b = (getattr(x.fits, name)[:-1][quiet] for x in (one, other))
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(one.farthest[:-1][quiet], other.farthest[:-1][quiet])
        few = ~loud
        np.testing.assert_array_equal(
            other.predict_proba(rows.f[few], rows.segments[few]),
            one.predict_proba(rows.f[few], rows.segments[few]),
        )


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_a_file_keeps_flags_and_what_is_no_option(kind, tmp_path):
    rows = rows_of(kind[0])
    turned = rows.change(
        f=np.where((rows.segments == 1)[(...,) + (None,) * (rows.f.ndim - 1)], -rows.f, rows.f)
    )
    found = fitted(turned, kind)
    assert found.flags[1] & Flag.REVERSED or kind[1] == "complete"
    pj.save(tmp_path / "x.npz", found)
    for loaded in (pj.load(tmp_path / "x.npz"), export.from_json(export.to_json(found))):
        assert loaded == found and (loaded.flags == found.flags).all()


def test_logits_without_digits_have_no_fit():
    rows = rows_of("temperature")
    with pytest.raises(ValueError, match="logits: expected magnitudes of"):
        pj.fit_multiclass(rows.f * 1e-310, rows.y)
    few = np.where(rows.segments[:, None] == 0, rows.f * 1e-310, rows.f)
    for model in ("temperature", "temperature_bias", "vector"):
        with pytest.warns(RuntimeWarning, match="in 1 of 6 segments, first in 0"):
            found = pj.fit_multiclass(few, rows.y, rows.segments, model=model)
        assert found.status.tolist() == [Status.NON_FINITE] + [Status.CONVERGED] * 5
        assert np.isnan(found.coefficients[0]).all()


def test_probabilities_in_place_of_logits_are_noticed():
    rows = rows_of("temperature")
    p = np.exp(rows.f) / np.exp(rows.f).sum(axis=1, keepdims=True)
    for given in (p, p.round(3), p.astype(np.float32)):
        for model in ("temperature", "ordinal"):
            pj.caller.Caller._warned_once.clear()
            with pytest.warns(RuntimeWarning, match=r"logarithms, numpy.log\(p\)") as caught:
                pj.fit_multiclass(given, rows.y, model=model)
            assert caught[0].filename == __file__
    pj.fit_multiclass(np.log(p), rows.y)
    pj.fit_multiclass(np.eye(C)[rows.y], rows.y)  # votes: the suite makes warnings errors


def test_pooled_temperatures_tell_what_they_have_no_optimum_for():
    rows = rows_of("temperature")
    right = rows.f.argmax(axis=1)
    with pytest.warns(RuntimeWarning, match="no population to estimate"):
        none = pj.fit_multiclass(rows.f, right, rows.segments, pooling="partial")
    assert (none.status == Status.CONVERGED).all() and (none.flags == Flag.SEPARABLE).all()
    assert len(np.unique(none.slopes)) == 1 and none.slopes[0] < 100  # Platt's targets, of all rows
    y = np.where(rows.segments == 3, right, rows.y)
    some = pj.fit_multiclass(rows.f, y, rows.segments, pooling="partial")
    assert (some.status == Status.CONVERGED).all()  # the population bounds the temperature
    assert some.flags.tolist() == [0, 0, 0, Flag.SEPARABLE, 0, 0]
    alone = pj.fit_multiclass(rows.f, y, rows.segments)
    assert alone.status[3] == Status.CONVERGED and alone.flags[3] == Flag.SEPARABLE


def test_infinite_scores_of_grades_have_limits():
    rows = rows_of("ordinal")
    found = pj.fit_multiclass(rows.f, rows.y, model="ordinal")
    got = found.predict_proba([-np.inf, np.inf, -1e300, 1e308, np.nan])
    np.testing.assert_array_equal(got[[0, 2]], [[1, 0, 0, 0]] * 2)
    np.testing.assert_array_equal(got[[1, 3]], [[0, 0, 0, 1]] * 2)
    assert np.isnan(got[4]).all() and not np.signbit(got[:4]).any()
    flat = pj.fit_multiclass(-rows.f, rows.y, model="ordinal")
    assert flat.slopes[0] == 0 and flat.flags[0] == Flag.REVERSED
    same = flat.predict_proba([-np.inf, np.inf, 0.0])
    np.testing.assert_array_equal(same, same[[2, 2, 2]])
