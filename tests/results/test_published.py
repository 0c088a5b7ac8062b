"""A calibrator from a table of A and B is the one that has the table."""

import numpy as np
import pytest

import platt_jax as pj
from platt_jax import Flag, Status
from platt_jax.export import from_json, to_json


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    shops, scores = np.array(["b", "a", "c"])[np.arange(900) % 3], rng.normal(size=900)
    return pj.fit_segments(scores, rng.random(900) < 1 / (1 + np.exp(-2 * scores)), shops)


def columns(calibrator):
    fit = calibrator.fit
    given = {"covariance": fit.covariance, "n_pos": fit.n_pos, "n_neg": fit.n_neg}
    return (calibrator.keys, fit.A, fit.B), given


@pytest.mark.parametrize("targets", ["platt", "none"])
def test_the_table_of_a_calibrator_makes_it_again(rng, targets):
    options = pj.Options(targets=targets)
    scores, shops = rng.normal(size=60), np.array(["a", "b", "c"])[np.arange(60) % 3]
    fitted = pj.fit_segments(scores, rng.random(60) < 0.6, shops, options=options)
    args, given = columns(fitted)
    back = slice(None, None, -1)
    again = pj.SegmentCalibrator.from_table(
        *(x[back] for x in args), **{name: x[back] for name, x in given.items()}, options=options
    )
    f, s = rng.normal(size=60), np.array(["a", "b", "c"])[np.arange(60) % 3]
    np.testing.assert_array_equal(again.predict_proba(f, s), fitted.predict_proba(f, s))
    np.testing.assert_array_equal(again.band(f, s), fitted.band(f, s))
    np.testing.assert_allclose(again.fit.hessian, fitted.fit.hessian, rtol=1e-8)
    gates = [pj.gate(x, f, s, precision=0.7) for x in (again, fitted)]
    assert gates[0]["threshold"].tolist() == gates[1]["threshold"].tolist()
    y = rng.random(60) < 0.5
    updated = [pj.update(x, f, y, s, options=options).fit.A for x in (again, fitted)]
    np.testing.assert_allclose(*updated, rtol=1e-7)
    tested = [pj.triage(x, f, y, s)["p_value"] for x in (again, fitted)]
    np.testing.assert_allclose(*tested, rtol=1e-7)
    rates = [pj.inference.estimate_rates(x, f, s)["rate"] for x in (again, fitted)]
    np.testing.assert_allclose(*rates, rtol=1e-7)


def test_a_and_b_alone_predict(fitted, tmp_path):
    birds = pj.SegmentCalibrator.from_table(["wren", "rook", "owl"], [-8, 5.0, np.nan], [6.0, 1, 2])
    assert birds.keys.tolist() == ["owl", "rook", "wren"]
    assert birds.fit.status.tolist() == [Status.NON_FINITE, *[Status.CONVERGED] * 2]
    assert birds.fit.flags.tolist() == [0, Flag.REVERSED, 0]
    names = ["wren", "rook", "owl", "unseen"]
    expected = [1 / (1 + np.exp(-8 * 0.5 + 6)), 1 / (1 + np.exp(5 * 0.5 + 1)), np.nan, np.nan]
    np.testing.assert_allclose(birds.predict_proba([0.5] * 4, names), expected)
    assert np.isnan(birds.band([0.5], "wren")).all()
    assert pj.gate(birds, [0.5], "wren")["status"] == "TOO_FEW"
    pj.save(tmp_path / "birds.npz", birds)
    assert pj.load(tmp_path / "birds.npz") == birds == from_json(to_json(birds))


def test_without_errors_new_rows_decide_alone(fitted, rng):
    (keys, A, B), _ = columns(fitted)
    bare = pj.SegmentCalibrator.from_table(keys, A, B)
    f, s = rng.normal(size=300), np.array(["b", "c"])[np.arange(300) % 2]
    y = rng.random(300) < 1 / (1 + np.exp(-f))
    later, alone = pj.update(bare, f, y, s), pj.fit_segments(f, y, s)
    assert later.fit.A[0] == A[0]
    np.testing.assert_allclose(later.fit.A[1:], alone.fit.A, rtol=1e-6)


def test_ids_of_several_columns():
    pairs = np.array([("owl", 2), ("ant", 1)], [("bird", "<U3"), ("site", int)])
    made = pj.SegmentCalibrator.from_table(pairs, [-1.0, -2.0], [0.0, 1.0])
    assert made.keys.tolist() == [("ant", 1), ("owl", 2)] and made.fit.A.tolist() == [-2, -1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"segments": ["a", "a"]}, "segments: expected distinct ids, got 1 again"),
        ({"segments": ["a", "b", "c"]}, "segments: expected"),
        ({"A": [[-1.0], [-2.0]]}, "A: expected"),
        ({"B": [1.0]}, r"B: expected one per curve, \(2,\), got shape \(1,\)"),
        ({"n_pos": [1, -1]}, "n_pos: expected finite numbers >= 0"),
        ({"covariance": np.eye(2)}, r"covariance: expected shape \(2, 2, 2\), got \(2, 2\)"),
        ({"covariance": -np.stack([np.eye(2)] * 2)}, "covariance: expected symmetric, positive"),
        ({"covariance": [[[1e-10, 5e-11], [0, 1e-10]]] * 2}, "covariance: expected symmetric"),
    ],
)
def test_refusals(given, message):
    with pytest.raises(ValueError, match=message):
        pj.SegmentCalibrator.from_table(
            **{"segments": ["a", "b"], "A": [-1, -2], "B": [0, 1]} | given
        )
