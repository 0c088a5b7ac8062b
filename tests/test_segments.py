"""Segments and classes: grouping, finding again, predicting; and the real data of both kinds."""

import numpy as np
import pytest
from data import ragged

import platt_jax as pj
from platt_jax import Flag, Options, Status, metrics
from platt_jax.ids import read
from platt_jax.ids.factorize import factorize
from platt_jax.ids.indexing import get_indexer

IDS = {
    "small ints": np.array([3, 1, 3, 2, 1, 3]),
    "wide ints": np.array([3, 1, 3, 2**60, 1, 3]),
    "negative": np.array([-3, 1, -3, 0, 1, -3]),
    "far apart": np.array([70_000, -5, 70_000, 900_000, 3, -5]),
    "farther": np.array([7 * 10**15, -5, 7 * 10**15, 900_000, 3, -5]),
    "uint8": np.array([250, 1, 250, 0, 1, 250], np.uint8),
    "int8": np.array([127, 1, 127, -128, 1, 127], np.int8),
    "uint64": np.array([2**63 + 3, 2**63, 2**63 + 3, 2**63 + 1, 2**63, 2**63 + 3], np.uint64),
    "bool": np.array([True, False, True, True, False, True]),
    "text": np.array(["b", "a", "b", "ä", "a", "b"]),
    "objects of text": np.array(["b", "a", "b", "ccc", "a", "b"], object),
    "mixed objects": np.array(["b", 1, "b", ("t", 2), 1, "b"], object),
    "bytes": np.array([b"b", b"a", b"b", b"ccc", b"a", b"b"]),
    "long text": np.array(["b" * 30, "a" * 30, "b" * 30, "Ω" * 9, "a" * 30, "b" * 30]),
    "dates": np.array(["2020-01-02", "2020-01-01"] * 3, "datetime64[D]"),
}


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())
def test_number_and_locate(ids):
    rows = factorize(read(ids))
    numbers = rows.of(slice(None))
    assert numbers.min() >= 0 and numbers.max() < rows.numbers
    np.testing.assert_array_equal(rows.of(slice(2, 4)), numbers[2:4])
    assert (rows.named(numbers) == ids).all()
    used, codes = np.unique(numbers, return_inverse=True)
    keys = rows.named(used)
    assert len(set(keys.tolist())) == len(keys) == len(set(ids.tolist()))
    if keys.dtype != object:
        assert (np.sort(keys) == keys).all() and keys.dtype.kind in ids.dtype.kind + "U"
    np.testing.assert_array_equal(get_indexer(keys, read(ids)), codes)
    np.testing.assert_array_equal(get_indexer(keys[1:], read(ids)), codes - 1)


def test_ids_that_are_none():
    for bad in (np.array([1.0, np.nan]), np.array(["a", np.nan], object)):
        with pytest.raises(ValueError, match="segments: expected ids, got NaN at row 1"):
            read(bad)
    with pytest.raises(ValueError, match="segments: expected hashable ids"):
        read(np.array([{}, {}], object))
    with pytest.raises(ValueError, match="segments: expected ids of the kind of"):
        get_indexer(np.array(["1", "2"]), np.array([1, 2]))


def test_large_ids_of_another_integer_type_are_not_rounded():
    keys = np.array([2**60, 2**60 + 1, 2**60 + 2], np.uint64)
    assert get_indexer(keys, keys.astype(np.int64)).tolist() == [0, 1, 2]
    assert get_indexer(keys, np.array([-1, 2**60 + 1])).tolist() == [-1, 1]


def test_unseen_integers_are_not_found_wherever_they_lie():
    keys = np.array([-3, 5, 9])
    ids = np.array([-4, -3, 0, 5, 9, 10, 2**62, -(2**62)])
    assert get_indexer(keys, ids).tolist() == [-1, 0, -1, 1, 2, -1, -1, -1]


@pytest.mark.parametrize("characters", ["ab", "0123456789", " aAzé\0ÿ", "aΩ€𝄞"])
@pytest.mark.parametrize("kind", ["<U1", "<U3", "<U8", ">U8", "<U9"])
def test_text_of_any_characters_and_length(rng, characters, kind):
    def words(count, characters, longest):
        letters = rng.choice(list(characters), (count, longest))
        return ["".join(word[: rng.integers(longest + 1)]) for word in letters]

    ids = np.array(words(200, characters, int(kind[2:])), kind)
    rows = factorize(ids)
    keys, numbers = np.unique(ids, return_inverse=True)
    named = rows.named(np.arange(rows.numbers))
    np.testing.assert_array_equal(named, keys)
    assert named.dtype == ids.dtype
    np.testing.assert_array_equal(rows.of(slice(None)), numbers)
    others = np.array(words(300, "abé€0 ", 10))
    number = {key: i for i, key in enumerate(keys.tolist())}
    for some in (others, ids, others[:1]):
        found = [number.get(id_, -1) for id_ in some.tolist()]
        np.testing.assert_array_equal(get_indexer(keys, some), found)


def segmented(rng, dtype=np.float64):
    """(scores, labels, ids) of 40 segments of very different sizes, shuffled."""
    sizes = np.concatenate([[2000, 1100], rng.integers(1, 150, 38)])
    scores, labels, place = ragged(rng, sizes, dtype, shift=2)
    ids = rng.permutation(40)[place]
    order = rng.permutation(len(ids))
    return scores[order], labels[order], ids[order]


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_segments_are_fits_of_their_rows(rng, dtype):
    scores, labels, ids = segmented(rng, dtype)
    weights = rng.uniform(0.5, 2, len(ids))
    calibrator = pj.fit_segments(scores, labels, ids, weights=weights)
    assert calibrator.keys.tolist() == list(range(40))
    rtol = 1e-8 if dtype == np.float64 else 1e-3
    for key in calibrator.keys:
        mine = ids == key
        one = pj.fit(scores[mine], labels[mine], weights=weights[mine])
        assert one.A == pytest.approx(calibrator.fit.A[key], rel=rtol, abs=rtol)
        assert one.status == calibrator.fit.status[key]
        np.testing.assert_allclose(
            calibrator.predict_proba(scores, ids)[mine],
            one.sigmoid.predict_proba(scores[mine]),
            rtol=rtol,
        )
    pooled = pj.fit(scores, labels, weights=weights)
    assert calibrator.fallback.A == pytest.approx(pooled.A, rel=1e-12)
    unseen = calibrator.predict_proba(scores[:5], np.full(5, 777))
    np.testing.assert_allclose(unseen, pooled.sigmoid.predict_proba(scores[:5]), rtol=1e-6)
    np.testing.assert_array_equal(calibrator.predict_proba(scores[:5], 777), unseen)
    assert unseen.dtype == dtype


def test_text_keys_fit_the_same(rng):
    scores, labels, ids = segmented(rng)
    names = np.array([f"segment {i:02d}" for i in range(40)])
    one, other = pj.fit_segments(scores, labels, ids), pj.fit_segments(scores, labels, names[ids])
    np.testing.assert_array_equal(other.keys, names)
    np.testing.assert_array_equal(other.fit.A, one.fit.A)
    probabilities = other.predict_proba(scores[:9], names[ids][:9])
    np.testing.assert_array_equal(probabilities, one.predict_proba(scores[:9], ids[:9]))


def test_a_prior_per_segment_goes_with_its_key(rng):
    scores, labels, ids = segmented(rng)
    means = np.stack([np.linspace(-3, 3, 40), np.zeros(40)], -1)
    prior = pj.GaussianPrior(means, 1e9 * np.eye(2))
    calibrator = pj.fit_segments(scores, labels, ids, prior=prior)
    np.testing.assert_allclose(calibrator.fit.A, means[:, 0], atol=1e-3)


def test_one_bad_row_costs_one_segment_only(rng):
    scores, labels, ids = segmented(rng)
    clean = pj.fit_segments(scores, labels, ids)
    row = np.argmax(ids == 7)
    scores[row] = np.inf
    with pytest.warns(RuntimeWarning, match="1 of 40 segments, first in 7"):
        poisoned = pj.fit_segments(scores, labels, ids)
    assert np.flatnonzero(~poisoned.fit.converged).tolist() == [7]
    others = np.arange(40) != 7
    np.testing.assert_array_equal(poisoned.fit.A[others], clean.fit.A[others])
    assert np.isfinite(poisoned.fallback.A)
    assert np.isnan(poisoned.predict_proba(np.zeros(1), np.array([7]))).all()
    with pytest.raises(RuntimeError, match=r"1 of 40 fits failed:\n  7: NON_FINITE"):
        poisoned.raise_if_failed()


def test_flat_arrays_are_asked_for():
    good = {"scores": np.zeros(3), "labels": [0, 1, 0], "segments": [1, 1, 2]}
    for bad, message in (
        ({"scores": np.zeros((3, 1))}, r"scores: expected a flat array .*\(3, 1\)"),
        ({"segments": [1, 2]}, r"segments: expected one id per score \(3,\), got shape \(2,\)"),
        ({"labels": [0, 1]}, r"labels: .*\(3,\), got \(2,\)"),
        ({"prior": (0, 1)}, "prior: expected a GaussianPrior"),
    ):
        with pytest.raises(ValueError, match=message):
            pj.fit_segments(**{**good, **bad})
    calibrator = pj.fit_segments(**good)
    with pytest.raises(ValueError, match="segments: expected one id per row, 2 of them, got 3"):
        calibrator.predict_proba(np.zeros(2), [1, 1, 2])


# --- one versus rest -----------------------------------------------------------------------------


def test_one_vs_rest_is_a_fit_per_class(rng, dtype):
    classes = np.array(["cat", "dog", "eel"])
    labels = rng.integers(0, 3, 200)
    scores = (rng.normal(size=(200, 3)) + 2 * np.eye(3)[labels]).astype(dtype)
    calibrator = pj.fit_one_vs_rest(scores, classes[labels])
    np.testing.assert_array_equal(calibrator.classes, classes)
    each = pj.fit(scores.T, labels == np.arange(3)[:, None])
    np.testing.assert_array_equal(calibrator.fit.A, each.A)
    raw = calibrator.predict_proba(scores, normalize=False)
    np.testing.assert_allclose(raw.T, each.sigmoid.predict_proba(scores.T), rtol=1e-6)
    proba = calibrator.predict_proba(scores)
    np.testing.assert_allclose(proba, raw / raw.sum(1, keepdims=True), rtol=1e-5)

    # The columns may come in any order, if classes says so; multilabel gives the same fits.
    order = [2, 0, 1]
    shuffled = pj.fit_one_vs_rest(scores[:, order], classes[labels], classes=classes[order])
    np.testing.assert_array_equal(shuffled.fit.A, each.A[order])
    multilabel = pj.fit_one_vs_rest(scores, np.eye(3, dtype=int)[labels])
    np.testing.assert_array_equal(multilabel.fit.A, each.A)
    assert multilabel.classes.tolist() == [0, 1, 2]
    # Their rows are not of one class each, as far as is known.
    assert multilabel.multilabel and not shuffled.multilabel
    np.testing.assert_array_equal(multilabel.predict_proba(scores), raw)
    np.testing.assert_array_equal(multilabel.predict_proba(scores, normalize=True), proba)
    weights = np.ones(200)
    weights[:100] = 0
    half = pj.fit_one_vs_rest(scores, labels, weights=weights)
    np.testing.assert_allclose(
        half.fit.A, pj.fit_one_vs_rest(scores[100:], labels[100:]).fit.A, rtol=1e-3
    )


def test_one_vs_rest_names_what_is_wrong(rng):
    scores, labels = rng.normal(size=(6, 3)), np.array([0, 1, 2, 0, 1, 2])
    for bad, message in (
        ({"scores": scores[:, 0]}, r"scores: .*\(6,\); for one binary score see fit"),
        ({"labels": labels % 2 + 1}, "labels: expected 3 classes.*found 2 .*classes="),
        ({"labels": labels[:4]}, r"labels: expected \(6,\) class ids or \(6, 3\)"),
        ({"classes": [0, 1]}, "classes: expected 3 distinct ids"),
        ({"classes": [0, 1, 1]}, "classes: expected 3 distinct ids"),
        ({"classes": [0, 1, 5]}, "labels: 2 is not among classes"),
    ):
        with pytest.raises(ValueError, match=message):
            pj.fit_one_vs_rest(**{"scores": scores, "labels": labels, **bad})
    calibrator = pj.fit_one_vs_rest(scores, labels)
    with pytest.raises(ValueError, match=r"scores: expected shape \(N, 3\).*got \(6, 2\)"):
        calibrator.predict_proba(scores[:, :2])
    with pytest.raises(ValueError, match="labels: expected ids of the kind"):
        pj.fit_one_vs_rest(scores, labels, classes=["a", "b", "c"])


def test_normalising_keeps_order_in_the_tails_and_nan_where_it_belongs(rng):
    labels = rng.integers(0, 3, 300)
    scores = rng.normal(size=(300, 3)) + 2 * np.eye(3)[labels]
    scores[:, 2][0] = np.nan
    with pytest.warns(RuntimeWarning, match="1 of 3 classes, first in 2"):
        calibrator = pj.fit_one_vs_rest(scores, labels)
    far = calibrator.predict_proba([[-1000.0, -600.0, 0.0], [np.nan, 0.0, 0.0], [3.0, -3.0, 9.0]])
    np.testing.assert_allclose(far[0, :2], [0, 1], atol=1e-12)
    assert np.isnan(far[1]).all() and np.isnan(far[:, 2]).all()
    np.testing.assert_allclose(far[2, :2].sum(), 1)


# --- real data -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("column", ["seg_tailnum", "seg_flight", "seg_route"])
def test_nycflights(real_data, column):
    data = real_data("nycflights")
    ids = data[column]
    calibrator = pj.fit_segments(data["score_hgb"], data["y"], ids)
    fit, keys = calibrator.fit, calibrator.keys
    assert len(keys) == len(np.unique(ids)) and fit.converged.all()
    counts = np.bincount(ids, minlength=keys[-1] + 1)[keys]
    np.testing.assert_array_equal(fit.n_pos + fit.n_neg, counts)
    rate = np.bincount(ids, data["y"], minlength=keys[-1] + 1)[keys] / counts
    np.testing.assert_array_equal((fit.flags & Flag.ONE_CLASS) != 0, (rate == 0) | (rate == 1))
    # At the optimum the mean probability of each segment is its mean target.
    mean = np.bincount(ids, calibrator.predict_proba(data["score_hgb"], ids))[keys] / counts
    target = (fit.n_pos * (fit.n_pos + 1) / (fit.n_pos + 2) + fit.n_neg / (fit.n_neg + 2)) / counts
    # The float32 tolerance of 1e-4 standard errors moves a mean probability by less than that.
    np.testing.assert_allclose(mean, target, atol=1e-4)


def test_letter(real_data):
    data = real_data("letter")
    calibrator = pj.fit_one_vs_rest(data["cv_scores"], data["y"])
    assert calibrator.fit.converged.all() and len(calibrator.classes) == 26
    proba = calibrator.predict_proba(data["cv_scores"])
    picked = np.clip(proba[np.arange(len(proba)), data["y"]], 1e-12, 1)
    assert -np.log(picked).mean() < 1.35 and (proba.argmax(1) == data["y"]).mean() > 0.70


def test_reuters_multilabel_with_nan_topics(real_data):
    data = real_data("reuters_modapte")
    train = ~data["is_test"]
    scores, topics = data["svm_scores"][train], data["topics"][train]
    with pytest.warns(RuntimeWarning, match="14 of 90 classes"):
        calibrator = pj.fit_one_vs_rest(scores, topics, classes=data["topic_names"])
    bad = np.isnan(scores).any(0)
    np.testing.assert_array_equal(calibrator.fit.status == Status.NON_FINITE, bad)
    assert bad.sum() == 14 and calibrator.fit.converged.sum() == 76
    test = data["svm_scores"][data["is_test"]].astype(float), data["topics"][data["is_test"]]
    proba = calibrator.predict_proba(test[0])
    assert np.isnan(proba[:, bad]).all() and np.isfinite(proba[:, ~bad]).all()
    # A text may have several of the topics, or none of those that were fitted.
    found = [
        metrics.log_loss(test[1][:, ~bad].T, p[:, ~bad].T).mean()
        for p in (proba, calibrator.predict_proba(test[0], normalize=True))
    ]
    assert found[0] == pytest.approx(0.01086, abs=1e-5)
    assert found[1] == pytest.approx(0.01336, abs=1e-5)
    kept = pj.fit_one_vs_rest(scores[:, ~bad], topics[:, ~bad], options=Options())
    np.testing.assert_array_equal(kept.fit.A, calibrator.fit.A[~bad])
