"""What the explorer holds: the numbers of triage and of the fits, in few bytes."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from data import labels_of
from explored import decoded, unpacked, variance

import platt_jax as pj
from platt_jax import Status
from platt_jax.plots import explorer
from platt_jax.plots.explorer import rows as page_rows
from platt_jax.plots.explorer.columns import Column, layout, packed


def contents_of(calibrator, *rows):
    return explorer.contents(calibrator, *explorer.judged_rows(calibrator, *rows, 0.05), 0.05)


@pytest.fixture(scope="module")
def fresh(rows):
    """Rows of the same segments, but for one that has none and one that is new."""
    scores, labels, segments = rows
    segments = np.where(segments == 50, 77, segments)
    flipped = np.where(segments < 3, 1 - labels, labels)
    return scores, flipped, segments


@pytest.fixture(scope="module")
def shown(calibrator, fresh):
    return contents_of(calibrator, *fresh)


@pytest.fixture(scope="module")
def table(shown):
    return decoded(shown.about, shown.blocks)


def test_packed_numbers_are_those_given(rng):
    columns = {
        "counts": Column(rng.integers(0, 2**32, 1000), "u4"),
        "exact": Column(rng.normal(size=1000).astype(np.float32), "f4"),
        "codes": Column(rng.integers(0, 256, 1000), "u1"),
        "five": Column(np.exp(rng.normal(0, 20, 1000)) * rng.choice([-1, 1], 1000), "f4", 16),
        "three": Column(np.append(rng.normal(size=997), [np.nan, np.inf, 0]), "f4", 11),
    }
    block = packed(columns)
    found = unpacked(block, (layout(columns), 1000))
    for name in ("counts", "exact", "codes"):
        np.testing.assert_array_equal(found[name], columns[name].values)
    np.testing.assert_allclose(found["five"], columns["five"].values, rtol=1.01 * 2.0**-17)
    np.testing.assert_allclose(found["three"], columns["three"].values, rtol=1.01 * 2.0**-12)
    assert found["three"].view(np.uint32).max() > 0
    dropped = found["three"][:997].view(np.uint32) & ((1 << 12) - 1)
    assert not dropped.any()  # or it would not be small


def test_it_has_what_triage_says(calibrator, fresh, table):
    judged = pj.triage(calibrator, *fresh, against="predictions")
    number = len(judged["segment"])
    assert len(table["segment"]) == number + 1 and "50" in table["segment"]
    assert table["segment"][:number].tolist() == judged["segment"].astype(str).tolist()
    for name, column in {"rows": "rows", "positives": "positives", "off": "flagged"}.items():
        np.testing.assert_array_equal(table[name][:number], judged[column])
    np.testing.assert_allclose(table["expected"][:number], judged["expected"], rtol=1e-5)
    np.testing.assert_allclose(table["O/E"][:number], judged["ratio"], rtol=1e-5)
    np.testing.assert_allclose(table["q-value"][:number], judged["q_value"], rtol=3e-4)
    assert table["off"].any() and table["rows"][number] == 0 and not table["off"][number]


def test_it_has_what_the_fits_say(calibrator, shown, table):
    seen = table["segment"] != "77"
    which = table["segment"][seen].astype(int)
    fit = calibrator.fit
    np.testing.assert_allclose(table["A"][seen], fit.A[which], rtol=1e-5)
    np.testing.assert_allclose(table["B"][seen], fit.B[which], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(table["fitted rows"][seen], (fit.n_pos + fit.n_neg)[which])
    fits = calibrator.table()
    assert (table["status"][seen] == fits["status"][which]).all()
    assert (table["flags"][seen] == np.char.replace(fits["flags"][which], "|", ", ")).all()
    assert (table["status"][~seen] == "UNSEEN").all() and np.isnan(table["A"][~seen]).all()
    assert set(fits["status"]) <= set(json.loads(shown.about)["statuses"])
    scores = np.linspace(-4, 3, 9)
    covariance = np.asarray(fit.covariance)[which]
    directions = np.stack([scores, np.ones(9)], 1)
    expected = np.einsum("fi,kij,fj->kf", directions, covariance, directions)
    usable = np.isfinite(expected).all(1)
    found = variance(table, shown.about, scores)[seen]
    np.testing.assert_allclose(found[usable], expected[usable], rtol=5e-3)
    assert usable.sum() > 50


def test_it_keeps_its_digits_where_scores_are_far_from_zero(rows):
    scores, labels, segments = rows
    far = 1e6 + scores
    calibrator = pj.fit_segments(far, labels, segments)
    shown = contents_of(calibrator, far, labels, segments)
    table = decoded(shown.about, shown.blocks)
    which = table["segment"].astype(int)
    here = np.array([1e6 - 1, 1e6, 1e6 + 1])
    logit = -(np.outer(calibrator.fit.A[which], here) + calibrator.fit.B[which][:, None])
    low, high, _ = json.loads(shown.about)["window"]
    middle = (low + high) / 2
    level = table["B"] + table["A"].astype(float) * middle
    found = -(level[:, None] + np.outer(table["A"].astype(float), here - middle))
    usable = calibrator.fit.flags[which] == 0
    np.testing.assert_allclose(found[usable], logit[usable], atol=1e-3)


def test_failed_fits_come_first_and_a_population_adds_shrinkage(pooled, rows):
    scores, labels, segments = rows
    bad = np.where(segments == 33, np.nan, scores)
    with pytest.warns(RuntimeWarning):
        calibrator = pj.fit_segments(bad, labels, segments)
    with pytest.warns(RuntimeWarning, match="1 of 60 segments not tested"):
        table = decoded(*contents_of(calibrator, *rows)[:2])
    assert table["segment"][0] == "33" and table["status"][0] == Status.NON_FINITE.name
    assert "shrinkage" not in table
    table = decoded(*contents_of(pooled, *rows)[:2])
    which = table["segment"].astype(int)
    np.testing.assert_allclose(table["shrinkage"], pooled.shrinkage[which], rtol=3e-4)


def test_bins_are_those_of_equal_numbers_of_rows(fresh, table):
    scores, labels, segments = fresh
    for i, curve in enumerate(table["curve"]):
        mine = np.flatnonzero(segments == int(table["segment"][i]))
        if curve is None:
            assert not len(mine)
            continue
        mine = mine[np.argsort(scores[mine], kind="stable")]
        parts = np.array_split(mine, min(10, max(1, len(mine) // 10)))
        assert len(curve) == len(parts)
        assert curve[:, 1].sum() == len(mine) and curve[:, 2].sum() == labels[mine].sum()
        sizes = sorted(map(len, parts))
        np.testing.assert_array_equal(sorted(curve[:, 1]), sizes)
        edges = np.cumsum([0, *curve[:, 1].astype(int)])
        for (mean, _, positives), start, end in zip(curve, edges, edges[1:], strict=False):
            part = mine[start:end]
            np.testing.assert_allclose(mean, scores[part].mean(), rtol=1e-3, atol=1e-3)
            assert positives == labels[part].sum()


def test_bins_are_kept_for_the_most_urgent_and_the_largest(calibrator, rows, monkeypatch):
    monkeypatch.setattr(page_rows, "MOST_BINS", 60)
    table = decoded(*contents_of(calibrator, *rows)[:2])
    kept = np.array([curve is not None for curve in table["curve"]])
    number = sum(len(curve) for curve in table["curve"] if curve is not None)
    assert 50 < number <= 60
    by_size = np.argsort(-table["rows"].astype(int), kind="stable")
    rank = np.empty(len(kept), int)
    rank[by_size] = np.arange(len(kept))
    first = np.minimum(np.arange(len(kept)), rank)
    assert first[kept].max() <= first[~kept].min()


def test_the_ids_of_several_columns_and_hostile_ones(calibrator, rows):
    scores, labels, segments = rows
    pairs = [("<b>", int(i)) for i in segments]
    of_pairs = pj.fit_segments(scores, labels, pairs)
    shown = contents_of(of_pairs, scores, labels, pairs)
    table = decoded(shown.about, shown.blocks)
    assert sorted(table["segment"]) == sorted(f"<b>, {i}" for i in np.unique(segments))
    assert "<" not in shown.about
    place = shown.ids.place(("<b>", 7), "selected")
    assert table["segment"][place] == "<b>, 7" and shown.ids.at(place).tolist() == ("<b>", 7)
    assert shown.ids.place(("<c>", 7), "selected") == -1


def test_a_region_has_the_segments_between_its_ends(shown, table):
    ratio, expected = table["O/E"], table["expected"]
    for region, inside in (
        ([None] * 4, np.isfinite(ratio)),
        ([8, 20, None, None], (expected >= 8) & (expected <= 20)),
        ([None, None, 0.9, None], ratio >= 0.9),
        ([12, None, None, 1.1], (expected >= 12) & (ratio <= 1.1)),
        *(([None, None, x, x], ratio == np.float64(x)) for x in ratio[:20].tolist()),
        *(([None, None, x + 1e-12, None], ratio > np.float64(x)) for x in ratio[:20].tolist()),
    ):
        found = shown.within(region).astype(str).tolist()
        assert found == table["segment"][inside & np.isfinite(ratio)].tolist() and found


def many(calibrator, K):
    """A calibrator of K segments, and rows that it predicts well, five of each on average."""
    rng = np.random.default_rng(1)
    which = rng.integers(0, len(calibrator), K)
    fit = jax.tree.map(lambda x: x[which], calibrator.fit)
    spread = np.exp(rng.normal(0, 0.5, K))
    fit = replace(
        fit,
        A=fit.A + rng.normal(size=K),
        B=fit.B + rng.normal(size=K),
        hessian=fit.hessian * spread[:, None, None],
    )
    segments = np.repeat(np.arange(K), rng.geometric(0.2, K))
    scores = rng.normal(size=len(segments))
    labels = labels_of(rng, -fit.A[segments] * scores - fit.B[segments])
    return replace(calibrator, keys=np.arange(K), fit=fit), (scores, labels, segments)


def test_ten_thousand_segments_take_less_than_half_a_megabyte(calibrator):
    large, rows = many(calibrator, 10_000)
    shown = contents_of(large, *rows)
    assert sum(map(len, shown.blocks)) < 500_000
    assert json.loads(shown.about)["size"] == sum(map(len, shown.blocks))


@pytest.mark.slow
def test_100_000_segments_take_less_than_thirty_bytes_each(calibrator, monkeypatch):
    """With as few bins for each as a million segments have."""
    monkeypatch.setattr(page_rows, "MOST_BINS", page_rows.MOST_BINS // 10)
    large, rows = many(calibrator, 100_000)
    shown = contents_of(large, *rows)
    assert sum(map(len, shown.blocks)) < 30 * 100_000  # 40 bytes as base64
    table = decoded(shown.about, shown.blocks)
    assert sorted(map(int, table["segment"])) == list(range(100_000))
