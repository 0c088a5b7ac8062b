"""non_finite="omit" leaves out a row that has a NaN, whichever column the NaN is in."""

import warnings

import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax.inference import robust_covariance

OMIT = pj.Options(non_finite="omit")
RNG = np.random.default_rng(0)
GOOD, BAD = 1200, 500
PLACE = RNG.integers(0, 12, GOOD + BAD)
SCORES = RNG.normal(size=GOOD + BAD)
SCORES[GOOD:] = -999  # a code beside what is missing
OFFSET = RNG.normal(0, 0.5, GOOD + BAD)
LABELS = labels_of(RNG, RNG.normal(1.3, 0.4, 12)[PLACE] * SCORES + OFFSET).astype(float)
PAIRS = np.array([(x % 4, x) for x in PLACE.tolist()], "i8,i8")
SPOILT = "scores", "labels", "weights", "offset"


def rows(spoilt, with_bad):
    """The columns of all rows, with a number of the last ones spoilt; or of the good ones."""
    weights = np.ones(GOOD + BAD)
    weights[:GOOD] = 1 + np.arange(GOOD) % 3
    columns = {"scores": SCORES, "labels": LABELS, "weights": weights, "offset": OFFSET}
    columns = {name: x.copy() for name, x in columns.items()}
    columns[spoilt][GOOD:] = np.nan
    some = slice(None if with_bad else GOOD)
    return {name: x[some] for name, x in columns.items()}, PLACE[some], PAIRS[some]


def fitted(pooling=None, **more):
    def answer(columns, places, pairs):
        ids = pairs if pooling in ("nested", "crossed") else places
        made = pj.fit_segments(**columns, segments=ids, pooling=pooling, options=OMIT, **more)
        return made.predict_proba(np.linspace(-2, 2, 60), ids[:60])

    return answer


def curve(name):
    def answer(columns, places, pairs):
        return pj.fit(**columns, curve=name, options=OMIT).predict_proba(np.linspace(-2, 2, 9))

    return answer


def spreads(columns, places, pairs):
    found = pj.inference.profile_spreads(**columns, segments=places, options=OMIT)
    return [x for x in found.values() if np.asarray(x).dtype.kind == "f"]


def drift(columns, places, pairs):
    first = pj.fit_segments(SCORES[:GOOD] / 2, LABELS[:GOOD], PLACE[:GOOD], pooling="partial")
    return pj.inference.estimate_drift(first, **columns, segments=places, options=OMIT).shift


def intervals(columns, places, pairs):
    made = pj.inference.bootstrap(**columns, replicates=40, kind="bayesian", seed=0, options=OMIT)
    return made.interval()


def sandwich(columns, places, pairs):
    fit = pj.fit(**columns, options=OMIT)
    return robust_covariance(fit, **columns, options=OMIT).covariance


def left_out(columns, places, pairs):
    fit = pj.fit(**columns, options=OMIT)
    return pj.inference.leave_one_out(fit, **columns, options=OMIT)[:GOOD]


FUNCTIONS = {
    **{x: fitted(x) for x in ("none", "complete", "partial", "nested", "crossed")},
    **{x: curve(x) for x in ("quadratic", "beta", "spline")},
    "profile_spreads": spreads,
    "estimate_drift": drift,
    "bootstrap": intervals,
    "robust_covariance": sandwich,
    "leave_one_out": left_out,
}


@pytest.mark.parametrize(
    "spoilt", [pytest.param(x, marks=[] if x == "offset" else [pytest.mark.slow]) for x in SPOILT]
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_omitted_rows_change_no_answer(name, spoilt):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = (FUNCTIONS[name](*rows(spoilt, x)) for x in (True, False))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("spoilt", ["labels", "trials", "weights", "scores", "offset"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_of_trials_is_bad_in_both_halves(spoilt, bad, rng):
    trials, more = rng.integers(1, 6, 400).astype(float), np.ones(400)
    columns = {
        "scores": rng.normal(size=400),
        "labels": rng.binomial(trials.astype(int), 0.3).astype(float),
        "trials": trials,
        "weights": more,
        "offset": 0 * more,
    }
    expected = pj.fit(**{name: x[:350] for name, x in columns.items()})
    columns[spoilt][350:] = bad
    if spoilt == "labels" and bad == np.inf:
        with pytest.raises(ValueError, match="labels: expected numbers from 0 to the row's trials"):
            pj.fit(**columns, options=OMIT)
        return
    found = pj.fit(**columns, options=OMIT)
    assert (found.n_pos, found.n_neg) == (expected.n_pos, expected.n_neg)
    assert found.B == pytest.approx(expected.B, rel=1e-9)


def test_a_weight_that_is_no_number_spoils_its_centre(rng):
    centres, weights = np.arange(90) % 3, np.ones(90)
    weights[1] = np.nan
    table = pj.metrics.summarize_centres(
        rng.random(90), rng.random(90) < 0.5, centres, weights=weights
    )
    assert (table["status"] == "NON_FINITE").tolist() == [False, True, False]
