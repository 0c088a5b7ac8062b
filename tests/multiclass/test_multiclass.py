"""Several classes by segment: optima, statuses, options that are masked, files and refusals."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit, logsumexp

import platt_jax as pj
from platt_jax import Status, export

MODELS = "temperature", "temperature_bias", "vector", "ordinal"


def drawn(rng, rows, classes=4, temperature=2.0, bias=0.0, masked=0.0):
    """Logits and labels of a known temperature."""
    f = 3 * rng.normal(size=(rows, classes)) + 1
    hidden = rng.random(f.shape) < masked
    hidden[np.arange(rows), rng.integers(0, classes, rows)] = False
    f[hidden] = -np.inf
    return f, (f / temperature + bias + rng.gumbel(size=f.shape)).argmax(axis=1)


def log_proba(f, slopes, biases=0.0):
    z = np.where(np.isneginf(f), -np.inf, slopes * np.where(np.isneginf(f), 0, f) + biases)
    return z - logsumexp(z, axis=1, keepdims=True)


def objective(theta, f, y, w, model, penalty):
    """The loss as documented, written anew: in the parameters of the logits as given."""
    classes = f.shape[1]
    slopes = theta if model == "temperature" else theta[:-classes]
    biases = 0.0 if model == "temperature" else theta[-classes:]
    loss = -(w * log_proba(f, slopes, biases)[np.arange(len(y)), y]).sum()
    if model == "temperature":
        return loss
    if model == "vector":
        present = np.isfinite(f)
        each = w[:, None] * present / (w[:, None] * present).sum()
        below = np.where(present, f - f.max(axis=1, keepdims=True), 0)
        unit = np.sqrt((each * below**2).sum())
        mean = (each * np.where(present, f, 0)).sum()
        loss += penalty / 2 * (unit**2 * (slopes - slopes.mean()) ** 2).sum()
        biases = biases + slopes * mean
        biases = biases - biases.mean()
    return loss + penalty / 2 * (biases**2).sum()


@pytest.mark.parametrize("model", MODELS[:3])
@pytest.mark.parametrize("penalty", [1e-3, 5.0])
def test_each_segment_is_at_the_optimum_that_scipy_finds(rng, model, penalty):
    f, y = drawn(rng, 600, bias=np.array([0, 0.5, -0.5, 1]), masked=0.1)
    segments, w = rng.choice([0, 0, 1, 2], 600), rng.integers(0, 3, 600).astype(float)
    found = pj.fit_multiclass(f, y, segments, model=model, weights=w, penalty=penalty)
    assert (found.status == Status.CONVERGED).all()
    for key, here, nll, error in zip(
        found.keys, found.coefficients, found.fits.nll, found.standard_errors, strict=False
    ):
        rows = segments == key
        args = f[rows], y[rows], w[rows], model, penalty
        np.testing.assert_allclose(objective(here, *args), nll, rtol=1e-12)
        best = optimize.minimize(objective, 0.1 * np.ones_like(here), args, options={"gtol": 1e-7})
        theta = best.x
        if model != "temperature":
            theta[-4:] -= theta[-4:].mean()
        np.testing.assert_allclose(here, theta, atol=2e-6)
        assert nll <= best.fun + 1e-9
        if model != "vector":  # whose prior is in other coordinates
            np.testing.assert_allclose(
                error,
                numeric_errors(
                    partial(
                        objective, f=args[0], y=args[1], w=w[rows], model=model, penalty=penalty
                    ),
                    here,
                ),
                rtol=1e-4,
            )
        proba = found.predict_proba(f[rows], segments[rows])
        slopes, biases = (here, 0.0) if model == "temperature" else (here[:-4], here[-4:])
        np.testing.assert_allclose(proba, np.exp(log_proba(f[rows], slopes, biases)), atol=1e-14)


def numeric_errors(loss, theta, centred=True, h=1e-3):
    """Standard errors by central differences; a sum of biases has no error."""
    number = len(theta)
    each = h * np.eye(number)

    def second(a, b):
        return sum(s * t * loss(theta + s * a + t * b) for s in (1, -1) for t in (1, -1))

    hessian = np.array([[second(a, b) for b in each] for a in each]) / (4 * h * h)
    covariance = np.linalg.inv(hessian)
    if number > 1 and centred:
        centring = np.eye(number)
        centring[1:, 1:] -= 1 / (number - 1)
        covariance = centring @ covariance @ centring
    return np.sqrt(np.diag(covariance))


def test_ordinal_is_at_the_optimum_that_scipy_finds(rng):
    scores = 2 * rng.normal(size=500) + 5
    labels = np.searchsorted([5, 7, 9.0], 1.5 * scores + rng.logistic(size=500))
    found = pj.fit_multiclass(scores, labels, model="ordinal", penalty=0.3)

    def proba(theta, x):
        ends = np.concatenate([[-np.inf], theta[1:], [np.inf]])
        return np.diff(expit(ends - theta[0] * np.asarray(x)[:, None]), axis=1)

    def loss(theta):
        more = 0.3 * np.log(proba(theta, [scores.mean()])).sum()
        return -np.log(proba(theta, scores)[np.arange(500), labels]).sum() - more

    def ordered(x):  # thresholds from logarithms of their distances
        return np.array([x[0], *np.cumsum([x[1], *np.exp(x[2:])])])

    start, gtol = [1.0, 5, 1, 1], {"gtol": 1e-6}
    best = optimize.minimize(lambda x: loss(ordered(x)), start, options=gtol)
    here = found.coefficients[0]
    np.testing.assert_allclose(here, ordered(best.x), atol=1e-5)
    np.testing.assert_allclose(found.fits.nll[0], best.fun, rtol=1e-12)
    errors = numeric_errors(loss, here, centred=False)
    np.testing.assert_allclose(found.standard_errors[0], errors, rtol=1e-4)
    np.testing.assert_allclose(found.predict_proba(scores), proba(here, scores), atol=1e-14)
    assert abs(found.slopes[0] - 1.5) < 4 * errors[0]
    far = found.predict_proba([-500.0, 500.0])
    assert 0 < far[0, -1] < 1e-100 and 0 < far[1, 0] < 1e-100


def test_ordinal_takes_the_expected_class_of_logits(rng):
    f, y = drawn(rng, 300, classes=5)
    f[rng.random(f.shape) < 0.1] = -np.inf
    f[:, 2] = 0
    expected = np.exp(log_proba(f, 1.0)) @ np.arange(5)
    one = pj.fit_multiclass(f, y, model="ordinal")
    other = pj.fit_multiclass(expected, y, model="ordinal", classes=np.arange(5))
    np.testing.assert_allclose(one.coefficients, other.coefficients, rtol=1e-10)
    np.testing.assert_allclose(one.predict_proba(f), other.predict_proba(expected), rtol=1e-10)


def test_the_temperature_is_scikit_learns():
    calibration = pytest.importorskip("sklearn.calibration")
    if not hasattr(calibration, "_TemperatureScaling"):
        pytest.skip("scikit-learn 1.8 or later")
    rng = np.random.default_rng(3)
    f, y = drawn(rng, 2000, classes=5, temperature=1.7)
    theirs = calibration._TemperatureScaling().fit(f, y)
    ours = pj.fit_multiclass(f, y)
    loss = [
        -log_proba(f, beta)[np.arange(2000), y].sum() for beta in (theirs.beta_, ours.slopes[0])
    ]
    # scikit-learn searches log(beta) to a relative tolerance of 64 roundings of the loss.
    assert loss[1] <= loss[0]
    np.testing.assert_allclose(ours.slopes[0], theirs.beta_, rtol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(f), theirs.predict(f), atol=1e-6)


def test_the_temperature_is_that_of_probmetrics():
    calibrators = pytest.importorskip("probmetrics.calibrators.temperature_scaling")
    rng = np.random.default_rng(4)
    f, y = drawn(rng, 2000, classes=5, temperature=1.7)
    proba = np.exp(log_proba(f, 1.0))
    theirs = calibrators.TemperatureScalingCalibrator(max_bisection_steps=50).fit(proba, y)
    ours = pj.fit_multiclass(f, y)
    np.testing.assert_allclose(ours.slopes[0], theirs.invtemp_, rtol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(f), theirs.predict_proba(proba), atol=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_a_batch_of_ragged_segments_is_a_loop(rng, model):
    f, y = drawn(rng, 3000, masked=0.1 if model != "ordinal" else 0)
    segments = np.searchsorted(np.cumsum([2, 9, 40, 300, 1000]), np.arange(3000), side="right")
    order = rng.permutation(3000)
    whole = pj.fit_multiclass(f[order], y[order], segments[order], model=model)
    for place, key in enumerate(whole.keys):
        rows = segments == key
        one = pj.fit_multiclass(f[rows], y[rows], model=model, classes=np.arange(4))
        np.testing.assert_allclose(one.coefficients[0], whole.coefficients[place], atol=1e-9)
        np.testing.assert_allclose(one.standard_errors[0], whole.standard_errors[place], rtol=1e-7)
        assert one.status[0] == whole.status[place]
    fallback = pj.fit_multiclass(f, y, model=model)
    unseen = whole.predict_proba(f[:9], "none of them" if whole.keys.dtype.kind == "U" else 99)
    np.testing.assert_allclose(unseen, fallback.predict_proba(f[:9]), atol=1e-12)
    complete = pj.fit_multiclass(f, y, segments, model=model, pooling="complete")
    np.testing.assert_allclose(complete.coefficients, fallback.coefficients[[0] * 6], rtol=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_weight_2_is_the_row_twice_and_weight_0_the_row_gone(rng, model):
    f, y = drawn(rng, 400)
    f = f if model != "ordinal" else f[:, 0]
    w = rng.integers(0, 3, 400)
    f[np.flatnonzero(w == 0)[:3]] = np.nan
    rows = np.repeat(np.arange(400), w)
    args = {"model": model, "classes": np.arange(4)}
    one = pj.fit_multiclass(f, y, weights=w, **args)
    other = pj.fit_multiclass(f[rows], y[rows], **args)
    np.testing.assert_allclose(one.coefficients, other.coefficients, rtol=1e-9)
    np.testing.assert_allclose(one.standard_errors, other.standard_errors, rtol=1e-9)
    assert one.fits.rows[0] == w.sum()


def test_a_masked_class_is_as_if_it_were_no_class(rng):
    f, y = drawn(rng, 500, classes=3)
    wide = np.insert(f, 1, -np.inf, axis=1)
    named = np.array([0, 2, 3])[y]
    one = pj.fit_multiclass(f, y, model="temperature")
    other = pj.fit_multiclass(wide, named, model="temperature")
    np.testing.assert_allclose(one.slopes, other.slopes, rtol=1e-12)
    proba = other.predict_proba(wide)
    assert (proba[:, 1] == 0).all()
    np.testing.assert_allclose(proba[:, [0, 2, 3]], one.predict_proba(f), rtol=1e-12)
    alone = np.full((5, 3), -np.inf)
    alone[:, 0] = 7
    more = pj.fit_multiclass(np.vstack([f, alone]), np.append(y, [0] * 5))
    np.testing.assert_allclose(more.slopes, one.slopes, rtol=1e-12)  # no choice says nothing


def test_all_statuses_come_out_of_one_call(rng):
    f, y = drawn(rng, 100, classes=3)
    right, flat = f.argmax(axis=1), np.zeros((20, 3))
    logits = np.vstack([f, f, f, f, f, f, flat])
    labels = np.concatenate([y, right, y, y, y, y, y[:20]])
    segments = np.repeat(list("abcdefg"), [100] * 6 + [20])
    logits[250, 1] = np.nan  # c
    logits[350, labels[350]] = -np.inf  # d: the label is no option
    weights = np.where(segments == "e", 0.0, 1.0)
    weights[550] = np.inf  # f
    with (
        pytest.warns(RuntimeWarning, match="no parameter is best in 1 of 7 segments, first in 'b'"),
        pytest.warns(RuntimeWarning, match="NaN .* in 3 of 7 segments, first in 'c'"),
    ):
        found = pj.fit_multiclass(logits, labels, segments, weights=weights)
    names = [Status(x).name for x in found.status]
    assert names == [
        "CONVERGED",
        "CONVERGED",
        "NON_FINITE",
        "NON_FINITE",
        "EMPTY",
        "NON_FINITE",
        "CONVERGED",
    ]
    np.testing.assert_array_equal(found.predict_proba(f, "b").argmax(axis=1), right)
    assert np.isnan(found.coefficients[2:6]).all() and np.isnan(found.standard_errors[2:6]).all()
    assert np.isnan(found.predict_proba(f[:2], "c")).all()
    assert found.slopes[6] == 0 and np.isnan(found.standard_errors[6]).all()  # constant logits
    assert list(found.table()["status"]) == names
    with pytest.raises(RuntimeError, match="'c': NON_FINITE"):
        found.raise_if_failed()
    omitted = pj.Options(non_finite="omit")
    less = pj.fit_multiclass(logits, labels, segments, weights=weights, options=omitted)
    assert (less.status[[2, 3, 5]] == Status.CONVERGED).all() and less.fits.rows[2] == 99
    np.testing.assert_array_equal(less.fits.coefficients[-1], found.fits.coefficients[-1])
    with pytest.raises(ValueError, match="row 250 is not so"):
        raising = pj.Options(non_finite="raise")
        pj.fit_multiclass(logits, labels, segments, weights=weights, options=raising)
    short = pj.fit_multiclass(f, y, options=pj.Options(max_iter=2))
    assert short.status[0] == Status.MAX_ITERATIONS and short.fits.iterations[0] == 2


@pytest.mark.parametrize("rows", [1, 3, 10])
def test_labels_that_logits_predict_have_platts_targets(rows, rng):
    """In any unit of logits, and beside any other segments. Absent options have no target."""
    f = rng.normal(size=(rows, 4))
    present = np.arange(4) != np.where(np.arange(rows) == 0, f[0].argmin(), -1)[:, None]
    y = f.argmax(axis=1)
    given = np.where(present, 8 * f, -np.inf)
    weights = rng.integers(1, 4, rows).astype(float)
    rest = 1 / (weights.sum() + 2)

    def loss(t):
        z = f * np.exp(t)
        target = np.where(present, rest / (present.sum(axis=1) - 1)[:, None], 0)
        target[np.arange(rows), y] = 1 - rest
        return weights @ (logsumexp(z, axis=1, b=present) - (target * z).sum(axis=1))

    best = np.exp(optimize.minimize_scalar(loss, bounds=(-5, 5), options={"xatol": 1e-9}).x)
    with pytest.warns(
        RuntimeWarning, match="first in 'all', .* Platt's targets bound it. Use more"
    ):
        found = pj.fit_multiclass(given, y, classes=range(4), weights=weights)
    assert found.status[0] == Status.CONVERGED and found.flags[0] == pj.Flag.SEPARABLE
    np.testing.assert_allclose(found.slopes[0] * 8, best, rtol=1e-6)
    other = rng.normal(size=(200, 4))
    with pytest.warns(RuntimeWarning, match="in 1 of 2 segments.*Use more rows, or pooling"):
        two = pj.fit_multiclass(
            np.vstack([given, other]),
            np.concatenate([y, rng.integers(0, 4, 200)]),
            np.repeat([0, 1], [rows, 200]),
            classes=range(4),
            weights=np.concatenate([weights, np.ones(200)]),
        )
    np.testing.assert_allclose(two.slopes[0], found.slopes[0], rtol=1e-12)


def test_few_rows_of_a_good_model_are_not_certain(rng):
    """Maximum likelihood alone loses 5 to 40 nats a row here."""

    def drawn_well(number):
        y = rng.integers(5, size=number)
        return 2 * (rng.normal(size=(number, 5)) + 2 * np.eye(5)[y]), y

    f, y = drawn_well(2_000)
    with pytest.warns(RuntimeWarning, match="no parameter is best"):
        found = pj.fit_multiclass(f, y, np.arange(2_000) // 10)
    fresh, labels = drawn_well(20_000)
    proba = found.predict_proba(fresh, np.arange(20_000) % 200)
    assert -np.log(proba[np.arange(20_000), labels]).mean() < 0.75  # one temperature: .58


def test_reversed_logits_have_a_slope_of_0(rng):
    f, y = drawn(rng, 300)
    for model in ("temperature", "temperature_bias"):
        found = pj.fit_multiclass(-f, y, model=model)
        assert found.slopes[0] == 0 and found.temperature[0] == np.inf
        assert found.status[0] == Status.CONVERGED
    # Biases alone are then fitted: the frequencies, but for the prior.
    shares = np.bincount(y) / 300
    np.testing.assert_allclose(found.predict_proba(-f[:1])[0], shares, atol=0.01)
    scores = np.where(y > 1, -1.0, 1.0) + rng.normal(size=300)
    ordinal = pj.fit_multiclass(scores, y, model="ordinal")
    assert ordinal.slopes[0] == 0 and ordinal.status[0] == Status.CONVERGED


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1e9, 1e150])
@pytest.mark.parametrize("model", MODELS)
def test_logits_of_any_size_have_the_same_probabilities(rng, model, scale):
    f, y = drawn(rng, 200)
    f = f if model != "ordinal" else f[:, 0]
    one, other = (pj.fit_multiclass(x, y, model=model) for x in (f, f * scale))
    np.testing.assert_allclose(other.predict_proba(f * scale), one.predict_proba(f), rtol=1e-6)


@pytest.mark.parametrize("model", MODELS[1:])
def test_a_class_without_rows_has_finite_parameters(rng, model):
    f, y = drawn(rng, 400, classes=4)
    seen = y != 2
    found = pj.fit_multiclass(f[seen], y[seen], model=model, classes=np.arange(4))
    assert found.status[0] == Status.CONVERGED
    assert np.isfinite(found.coefficients).all() and np.isfinite(found.standard_errors).all()
    proba = found.predict_proba(f[seen])
    assert (proba > 0).all() and proba[:, 2].mean() < 0.005
    if model == "ordinal":
        assert (np.diff(found.thresholds[0]) > 0).all()


def test_ordinal_without_overlap(rng):
    """Where the penalty's rows do not bound the slope there is no optimum; else there is one."""
    scores = np.array([-2.0, -1, 1, 2])
    two = pj.fit_multiclass(scores, [0, 0, 1, 1], model="ordinal")
    assert two.status[0] == Status.MAX_ITERATIONS
    three = pj.fit_multiclass(np.array([-2.0, -1, 0, 1, 2]), [0, 0, 1, 2, 2], model="ordinal")
    assert three.status[0] == Status.CONVERGED and np.isfinite(three.coefficients).all()


def test_slopes_of_any_sign_have_no_optimum_where_the_smallest_logit_is_right(rng):
    f, _ = drawn(rng, 50)
    found = pj.fit_multiclass(f, f.argmin(axis=1), model="vector")
    assert found.status[0] == Status.MAX_ITERATIONS and (found.slopes < 0).all()
    one = pj.fit_multiclass(f, f.argmin(axis=1), model="temperature_bias")
    assert one.status[0] == Status.CONVERGED and one.slopes[0] == 0


@pytest.mark.parametrize("seed", [10, 71, 102, 106, 115])
def test_few_rows_end_without_a_failed_line_search(seed):
    """Where a weak prior alone bounds parameters, the loss is a small difference of large terms."""
    rng = np.random.default_rng(seed)
    f, y = rng.normal(size=(30, 3)).round(1), rng.integers(0, 3, 30)
    for model in ("vector", "temperature_bias"):
        segments = rng.integers(0, 6, 30)
        found = pj.fit_multiclass(f, y, segments, model=model, classes=np.arange(3), penalty=1e-6)
        assert np.isin(found.status, [Status.CONVERGED, Status.MAX_ITERATIONS]).all()


def test_classes_are_named_and_found():
    f = [[2.0, 0, 1], [0, 3, 0], [1, 0, 2], [2, 1, 0]]
    text = pj.fit_multiclass(f, ["a", "b", "c", "b"])
    assert text.classes.tolist() == ["a", "b", "c"]
    turned = pj.fit_multiclass(f, ["a", "b", "c", "b"], classes=["b", "a", "c"])
    assert turned.classes.tolist() == ["b", "a", "c"] and turned.slopes[0] != text.slopes[0]
    swapped = np.asarray(f)[:, [1, 0, 2]]
    same = pj.fit_multiclass(swapped, ["a", "b", "c", "b"], classes=["b", "a", "c"])
    np.testing.assert_allclose(same.slopes, text.slopes, rtol=1e-12)
    shifted = pj.fit_multiclass(np.asarray(f)[:, [2, 0, 1]], list("abcb"), classes=list("cab"))
    np.testing.assert_allclose(shifted.slopes, text.slopes, rtol=1e-12)
    assert pj.fit_multiclass(f, [0, 1, 1, 1]).classes.tolist() == [0, 1, 2]
    assert pj.fit_multiclass(f, [1, 2, 3, 2]).classes.tolist() == [1, 2, 3]
    for labels in ([0, 1, 9, 2], ["a"] * 4):
        with pytest.raises(ValueError, match="labels: expected 3 classes"):
            pj.fit_multiclass(f, labels)
    with pytest.raises(ValueError, match="classes: expected 3 distinct ids"):
        pj.fit_multiclass(f, [0, 1, 2, 1], classes=[0, 1])
    with pytest.raises(ValueError, match="labels: 7 is not among classes"):
        pj.fit_multiclass(f, [0, 1, 7, 1], classes=[0, 1, 2])


def test_arguments_are_refused():
    f, y = np.eye(3), np.arange(3)
    for message, bad in {
        "logits: expected": dict(logits=f[0]),
        r"labels: expected \(3,\) class ids": dict(labels=y[:2]),
        "segments: expected one id per row": dict(segments=[0]),
        "model: expected": dict(model="matrix"),
        "pooling: expected one of": dict(pooling="nested"),
        'pooling: expected "none" or "complete"': dict(
            model="vector", pooling="partial", segments=y
        ),
        'pooling: expected "none" without segments': dict(pooling="partial"),
        "penalty: expected": dict(penalty=0),
        "weights: expected >= 0": dict(weights=[1, -1, 1]),
        "weights: expected one per row": dict(weights=[1, 1]),
    }.items():
        with pytest.raises(ValueError, match=message):
            pj.fit_multiclass(**{"logits": f, "labels": y} | bad)
    fitted = pj.fit_multiclass(np.eye(3)[[0, 1, 2, 0]], [0, 1, 2, 1])
    with pytest.raises(ValueError, match="logits: expected shape"):
        fitted.predict_proba(np.eye(2))
    with pytest.raises(AttributeError, match="no temperature"):
        _ = pj.fit_multiclass(np.arange(4.0), [0, 1, 0, 1], model="ordinal").temperature


@pytest.mark.parametrize("pooling", ["none", "partial", "complete"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["text", "pairs"])
def test_a_file_has_all(rng, tmp_path, model, pooling, kind):
    if pooling == "partial" and model != "temperature":
        pytest.skip("has no population")
    f, y = drawn(rng, 300, classes=3)
    shop = rng.integers(0, 4, 300)
    segments = shop.astype(str) if kind == "text" else [("a", int(x)) for x in shop]
    labels = np.array(["low", "middle", "top"])[y]
    names = ["low", "middle", "top"]
    found = pj.fit_multiclass(f, labels, segments, model=model, pooling=pooling, classes=names)
    path = tmp_path / "calibrator.npz"
    pj.save(path, found)
    assert pj.load(path) == found
    text = export.to_json(found)
    assert export.from_json(text) == found
    schema = Path(export.__file__).with_name("calibrator.schema.json")
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(json.loads(text), json.loads(schema.read_text()))
    other = found.only(found.keys == found.keys[1])
    pj.save(path, other)
    assert pj.load(path) == other != found
    np.testing.assert_array_equal(
        other.predict_proba(f[:3], segments[:1] * 3 if kind == "pairs" else [segments[0]] * 3),
        found.predict_proba(
            f[:3], [segments[0]] * 3 if shop[0] == 1 else [("z", 9)] * 3 if kind == "pairs" else "z"
        ),
    )


def test_damaged_files_are_refused(rng, tmp_path):
    f, y = drawn(rng, 300, classes=3)
    found = pj.fit_multiclass(f, y, rng.integers(0, 4, 300))
    text = json.loads(export.to_json(found))
    for change in (
        lambda x: x.update(model="matrix"),
        lambda x: x["arrays"]["fits_status"].__setitem__(0, 99),
        lambda x: x["arrays"]["fits_coefficients"][0].__setitem__(0, 5.0),
        lambda x: x["arrays"].pop("fits_nll"),
        lambda x: x["arrays"]["keys"].pop(),
        lambda x: x.pop("layouts"),
    ):
        damaged = json.loads(json.dumps(text))
        change(damaged)
        damaged["types"] = {x: text["types"][x] for x in damaged["arrays"]}
        with pytest.raises(ValueError, match="not a calibrator"):
            export.from_json(json.dumps(damaged))


def test_results_are_in_the_dtype_of_the_logits(rng):
    f, y = drawn(rng, 100)
    found = pj.fit_multiclass(f.astype(np.float32), y)
    assert found.predict_proba(f.astype(np.float32)).dtype == np.float32
    assert found.predict_proba(f).dtype == np.float64
    bad = np.array([[np.nan, 0, 0, 0], [-np.inf] * 4, [np.inf, 0, 0, 0], [0, 0, 0, 0.0]])
    assert np.isnan(found.predict_proba(bad)).all(axis=1).tolist() == [True] * 3 + [False]
    assert "1 segment," in repr(found) and len(found) == 1 and "all" in found


def test_rows_that_are_not_finite_are_told_of_without_segments_too(rng):
    f, y = drawn(rng, 50, classes=3)
    f[3, 1] = np.nan
    with pytest.warns(RuntimeWarning, match="NaN or infinite numbers.* in 1 of 1 segment"):
        assert np.isnan(pj.fit_multiclass(f, y).temperature).all()


@pytest.mark.parametrize("large", [1.0, 1e300])
def test_the_unit_of_masks_is_of_the_segments_own_weights(large, rng):
    """Beside weights of 1e300 a segment of weights 1e-30 had no typical distance."""
    f, y = drawn(rng, 200, classes=3)
    f = f * 1e5
    s, w = np.repeat([0, 1], 100), np.repeat([1e-30, large], 100)
    found = pj.fit_multiclass(f, y, s, weights=w)
    alone = pj.fit_multiclass(f[:100], y[:100], s[:100])
    assert found.slopes[0] == pytest.approx(alone.slopes[0], rel=1e-6)


@pytest.mark.parametrize("gap", [1e-9, 1e-7, 1e-6, 1e-3])
@pytest.mark.parametrize("shift", [0.0, 1e5])
def test_options_that_tie_but_for_rounding_do_not_make_others_masks(gap, shift, rng):
    """One distance of 1e-9 was the typical one; logits 1,000 below the largest were no options."""
    f = 1500 * rng.normal(size=(40, 4))
    y = (f / 350 + rng.gumbel(size=f.shape)).argmax(1)
    f[0], y[0] = [0, 0, 4500, 4500], 3
    expected = pj.fit_multiclass(f, y, classes=range(4)).temperature
    f[0, 3] -= gap
    found = pj.fit_multiclass(f + shift, y, classes=range(4))
    assert found.temperature == pytest.approx(expected, rel=1e-6)
