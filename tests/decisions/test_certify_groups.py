"""Certification of groups of segments: against the procedure word for word, and by simulation."""

import numpy as np
import pytest
from scipy.stats import binom

import platt_jax as pj
from platt_jax.decisions.exact import Evidence
from platt_jax.results.tables import Table

pytestmark = pytest.mark.filterwarnings("ignore:of .* accepted rows:RuntimeWarning")


def gates_of(columns, target=0.9):
    """Gates at a score of 0 of segments with these columns of ids."""
    number = len(next(iter(columns.values())))
    return Table(
        columns,
        side=np.full(number, "positive"),
        threshold=np.zeros(number),
        rows=np.full(number, 100),
        share=np.full(number, 0.5),
        precision=np.full(number, 0.95),
        standard_error=np.full(number, 0.01),
        lower=np.full(number, 0.92),
        target=np.full(number, target),
        basis=np.full(number, "model"),
        status=np.full(number, "OK"),
    )


def rows_of(columns, number, right):
    """Accepted rows of each segment, so many of each, of which so many are right."""
    line = np.repeat(np.arange(len(number)), number)
    rank = np.arange(len(line)) - np.repeat(np.cumsum(number) - number, number)
    segments = list(zip(*(x[line] for x in columns.values()), strict=True))
    if len(columns) == 1:
        segments = next(iter(columns.values()))[line]
    return np.ones(len(line)), rank < np.asarray(right)[line], segments


def shops(countries, cities, each):
    k = np.arange(countries * cities * each)
    return {"country": k // (cities * each), "city": k // each, "shop": k}


def by_the_words(path, p_value, tested, fdr):
    """The groups that cover segments, by trying each threshold of p-values."""
    for t in sorted({p_value[g] for g in tested}, reverse=True):
        covers = {}
        for segment, groups in enumerate(path):  # from coarse to fine
            certified = [g for g in groups if g in tested and p_value[g] <= t]
            if certified:
                covers[segment] = certified[-1]
        if len(tested) * t <= fdr * len(set(covers.values())):
            return covers, t
    return {}, 0


@pytest.mark.parametrize("seed", range(12))
def test_groups_are_those_of_the_procedure(seed):
    rng = np.random.default_rng(seed)
    columns = shops(3, 3, 4)
    number = np.exp(rng.uniform(0, 5, 36)).astype(int)
    share = np.clip(0.9 + 0.06 * rng.normal(size=9)[columns["city"]], 0, 1)
    right = rng.binomial(number, share)
    found = pj.certify(
        gates_of(columns), *rows_of(columns, number, right), levels=["country", "city"], fdr=0.2
    )
    path = [
        (("all",), ("country", c), ("city", t), ("segment", s))
        for c, t, s in zip(*columns.values(), strict=True)
    ]
    n, k = {}, {}
    for groups, rows, good in zip(path, number, right, strict=True):
        for g in groups:
            n[g], k[g] = n.get(g, 0) + rows, k.get(g, 0) + good
    p_value = {g: binom.sf(k[g] - 1, n[g], 0.9) for g in n}
    tested = {g for g in n if 0.9 ** n[g] <= 0.2}
    covers, least = by_the_words(path, p_value, tested, 0.2)
    lines = [
        ("all",) if a == "all" else (a, {"country": c, "city": t, "segment": s}[a])
        for a, c, t, s in zip(*(found[x] for x in ("level", *columns)), strict=True)
    ]
    assert len(lines) == len(set(lines)) == len(n) == 1 + 3 + 9 + 36
    doubt = 0.2 * max(len(set(covers.values())), 1) / len(tested)
    for i, g in enumerate(lines):
        assert (found["rows"][i], found["right"][i]) == (n[g], k[g])
        np.testing.assert_allclose(found["p_value"][i], p_value[g], rtol=1e-9)
        assert found["flagged"][i] == (g in tested and p_value[g] <= least)
        tail = binom.sf(k[g] - 1, n[g], found["lower"][i])
        np.testing.assert_allclose(tail, doubt if k[g] else 1, rtol=1e-6)
        assert (found["lower"][i] >= 0.9) == found["flagged"][i] or g not in tested
        assert np.isnan(found["q_value"][i]) == (g not in tested)
        assert np.isnan(found["threshold"][i]) == (g[0] != "segment")
    by = found["certified_by"][found["level"] == "segment"]
    assert by.tolist() == [covers[s][0] if s in covers else "" for s in range(36)]


def single(found):
    """The lines of the segments, which come last."""
    some = found["level"] == "segment"
    assert some[-np.count_nonzero(some) :].all()
    return Table({name: x[some] for name, x in found.items()})


def test_the_procedure_finds_something_at_each_level():
    """So that the test above compares more than groups of all or none."""
    columns = shops(2, 2, 2)
    number = np.array([200, 20, 5, 5, 20, 20, 2, 2])
    right = number - [0, 0, 0, 0, 10, 10, 0, 0]
    found = pj.certify(gates_of(columns), *rows_of(columns, number, right), levels=True, fdr=0.1)
    assert found["level"].tolist() == ["all", *["country"] * 2, *["city"] * 4, *["segment"] * 8]
    assert found["country"].tolist() == [None, 0, 1, 0, 0, 1, 1, *[0] * 4, *[1] * 4]
    assert found["city"].tolist() == [None] * 3 + [0, 1, 2, 3, 0, 0, 1, 1, 2, 2, 3, 3]
    assert found["shop"].tolist() == [None] * 7 + list(range(8))
    assert found["rows"][:7].tolist() == [274, 230, 44, 220, 10, 40, 4]
    assert found["flagged"][:7].tolist() == [False, True, False, True, False, False, False]
    assert single(found)["certified_by"].tolist() == [
        "segment",
        "city",
        *["country"] * 2,
        *[""] * 4,
    ]
    assert single(found)["status"].tolist() == ["OK", *["TOO_FEW"] * 7]
    assert found["certified_by"][3:5].tolist() == ["city", "country"]
    # Rows that are right certify all together, those that are wrong included.
    right = number - [0, 0, 0, 0, 4, 0, 0, 0]
    together = pj.certify(gates_of(columns), *rows_of(columns, number, right), levels=[])
    assert single(together)["certified_by"].tolist() == ["segment"] + ["all"] * 7


def test_levels_may_be_a_dict_and_lines_without_rows_are_not_certified():
    columns = shops(3, 2, 2)
    number = np.array([30, 30, 0, 0, 15, 15, 15, 15, 200, 0, 0, 0])
    rows = rows_of(columns, number, number)
    gates = gates_of(columns)
    named = pj.certify(gates, *rows, levels=["country", "city"])
    same = pj.certify(gates, *rows, levels=True)
    for name, column in named.items():
        np.testing.assert_array_equal(same[name], column)
    by_shop = gates_of({"segment": columns["shop"]})
    rows = rows_of({"segment": columns["shop"]}, number, number)
    as_dict = {"country": columns["country"].astype(str), "city": columns["city"].tolist()}
    given = pj.certify(by_shop, *rows, levels=as_dict)
    for name in ("level", "rows", "lower", "certified_by", "status", "city"):
        np.testing.assert_array_equal(given[name], named[name])
    assert given["country"].tolist()[:4] == [None, "0", "1", "2"]
    named = single(named)
    assert set(named["status"][number == 0]) == {"NO_ROWS"}
    np.testing.assert_array_equal(named["certified_by"] != "", number > 0)
    # A city of the same name in another country is another city.
    levels = {"country": columns["country"], "city": np.zeros(12)}
    again = pj.certify(by_shop, *rows, levels=levels)
    assert again["rows"][again["level"] == "city"].tolist() == [60, 60, 200]
    assert single(again)["certified_by"].tolist()[4:9] == ["city"] * 4 + ["segment"]


def test_what_is_too_few_alone_suffices_together_and_sides_are_apart():
    shop = {"segment": np.arange(10)}
    rows = rows_of(shop, np.full(10, 12), np.full(10, 12))
    alone, together = (pj.certify(gates_of(shop), *rows, levels=x) for x in (None, True))
    assert set(alone["status"]) == {"TOO_FEW"}
    assert set(single(together)["certified_by"]) == {"all"}
    assert set(together) - set(alone) == {"level", "certified_by"}
    few = pj.certify(gates_of(shop), *rows_of(shop, np.full(10, 2), np.full(10, 2)), levels=True)
    assert set(few["status"]) == {"TOO_FEW"} and np.isnan(few["q_value"]).all()
    both = gates_of({"segment": np.repeat(np.arange(10), 2)})
    both["side"] = np.tile(["positive", "negative"], 10)
    both["threshold"] = np.tile([0.5, -0.5], 10)
    scores = np.concatenate([rows[0], -rows[0]])
    labels = np.concatenate([rows[1], np.ones(120, bool)])  # no accepted negative is right
    sides = pj.certify(both, scores, labels, np.tile(rows[2], 2), levels=True)
    assert sides["rows"][:2].tolist() == [120, 120] and sides["level"][:2].tolist() == ["all"] * 2
    np.testing.assert_array_equal(sides["certified_by"] != "", sides["side"] == "positive")


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ("country", "levels: expected True, a list of the gate's columns of ids"),
        (3, "levels: expected True, a list"),
        (["region"], "levels: expected columns of ids of the gate"),
        ({"all": np.zeros(4)}, "levels: 'all' is a level anyway"),
        ({"rows": np.zeros(4)}, "levels: expected other names than the table's, got 'rows'"),
        ({"city": np.zeros(4)}, "levels: expected other names than the table's, got 'city'"),
        ({"region": np.zeros(3)}, r"levels\['region'\]: expected"),
    ],
)
def test_levels_are_refused_by_name(levels, told):
    columns = shops(1, 2, 2)
    with pytest.raises(ValueError, match=told):
        pj.certify(gates_of(columns), *rows_of(columns, [9] * 4, [9] * 4), levels=levels)


def fifth_null(rng, columns):
    """Shops at the target, beside others that are better: countries are, too."""
    return np.where(columns["shop"] % 5 == 0, 0.9, 0.98)


def null_countries(rng, columns):
    return np.where(columns["country"] % 2 == 0, 0.9, 0.98)


def null_but_unlike(rng, columns):
    """Countries at the target, of shops unlike each other."""
    return np.where(columns["shop"] % 2 == 0, 0.85, 0.95)


def test_50_labels_a_segment_certify_by_groups_what_they_do_not_alone(rng):
    columns = shops(4, 3, 5)
    share = np.where(columns["country"] % 2 == 0, 0.95, 0.99)
    number = np.full(60, 50)
    for _ in range(10):
        rows = rows_of(columns, number, rng.binomial(number, share))
        gates = gates_of(columns, 0.95)
        found = pj.certify(gates, *rows, levels=["country", "city"])
        assert (single(found)["certified_by"] != "").mean() > 0.9
        assert not pj.certify(gates, *rows)["flagged"].any()


@pytest.mark.slow
@pytest.mark.parametrize("world", [fifth_null, null_countries, null_but_unlike])
@pytest.mark.parametrize("most", [20, 200, 2_000])
def test_the_rate_of_false_discoveries(world, most, rng):
    columns = shops(4, 3, 5)
    false, covered, alone = [], [], []
    for _ in range(200):
        number = np.exp(rng.uniform(np.log(5), np.log(most), 60)).astype(int)
        share = world(rng, columns)
        rows = rows_of(columns, number, rng.binomial(number, share))
        found = pj.certify(gates_of(columns), *rows, levels=["country", "city"])
        alone.append(number[pj.certify(gates_of(columns), *rows)["flagged"]].sum() / number.sum())
        by = single(found)["certified_by"]
        covered.append(number[by != ""].sum() / number.sum())
        groups = {}
        for name in ("all", "country", "city", "segment"):
            ids = {"all": np.zeros(60, int), "segment": columns["shop"], **columns}[name]
            for g in np.unique(ids[by == name]):
                inside = ids == g
                groups[name, g] = (number * share)[inside].sum() / number[inside].sum() <= 0.9
        false.append(np.mean([*groups.values()]) if groups else 0)
    assert np.mean(false) <= 0.05 + 3 * np.std(false) / np.sqrt(len(false))
    assert np.mean(covered) >= np.mean(alone)


def by_clusters(seed, columns, share, most):
    """Rows of 1 to `most` a cluster, all of them right or all wrong, in random order."""
    rng = np.random.default_rng(seed)
    line = np.repeat(np.arange(len(share)), 40)  # of clusters
    sizes = rng.integers(1, most + 1, len(line))
    right = np.repeat(rng.random(len(line)) < share[line], sizes)
    order = rng.permutation(len(right))
    line, cluster = (np.repeat(x, sizes)[order] for x in (line, np.arange(len(line))))
    segments = list(zip(*(x[line] for x in columns.values()), strict=True))
    return (np.ones(len(line)), right[order], segments), cluster


@pytest.mark.parametrize("levels", [None, True])
def test_clusters_of_one_row_are_rows(levels):
    columns = shops(2, 2, 3)
    rows, cluster = by_clusters(0, columns, np.linspace(0.8, 1, 12), 1)
    found = pj.certify(gates_of(columns), *rows, levels=levels, clusters=cluster)
    without = pj.certify(gates_of(columns), *rows, levels=levels)
    assert found.pop("clusters").tolist() == without["rows"].tolist()
    for name in without:
        np.testing.assert_array_equal(found[name], without[name])


def test_copies_of_rows_are_worth_no_more_than_one(rng):
    columns = shops(2, 2, 3)
    share = np.array([0.9, 0.97, 1.0] * 4)
    (ones, right, ids), cluster = by_clusters(1, columns, share, 1)
    found = pj.certify(gates_of(columns), ones, right, ids, levels=True, clusters=cluster)
    four = [x for x in ids for _ in range(4)]
    copies = pj.certify(
        *(gates_of(columns), np.repeat(ones, 4), np.repeat(right, 4), four),
        **dict(levels=True, clusters=np.repeat(cluster, 4)),
    )
    assert copies["rows"].tolist() == (4 * found["rows"]).tolist()
    for name in ("clusters", "precision"):
        np.testing.assert_array_equal(copies[name], found[name])
    # A single row of each could not be told from shares: the bounds are those of shares.
    assert (copies["p_value"] >= found["p_value"] * (1 - 1e-12)).all()
    assert (copies["lower"] <= found["lower"]).all()
    clean = found["right"] == found["rows"]
    np.testing.assert_allclose(copies["p_value"][clean], found["p_value"][clean], rtol=1e-12)


def test_p_values_of_shares_are_above_the_exact_tail_and_bounds_invert_them():
    """Of clusters of two rows of one fate, half of them of two fates."""
    target, n = 0.8, 40
    rng = np.random.default_rng(3)
    draws = rng.random((200_000, n)) < target
    halves = np.where(np.arange(n) < 20, draws, (draws + (rng.random(draws.shape) < target)) / 2)
    sums = halves.sum(1)
    evidence = Evidence(np.full(101, n), np.linspace(30, 40, 101), np.zeros(101, bool))
    p = evidence.p_values(np.full(101, target))
    tail = (sums[:, None] >= evidence.right - 1e-9).mean(0)
    assert (p >= tail - 5 * np.sqrt(tail / len(sums)))[tail > 0].all()
    assert (np.diff(p) <= 1e-15).all()
    np.testing.assert_allclose(evidence.p_values(evidence.lower(0.03)), 0.03, rtol=1e-9)


def test_the_share_of_clusters_is_their_precision_whatever_group():
    """A cluster of rows in two segments counts in each of them, and once in both together."""
    columns = {"country": np.zeros(2, int), "shop": np.arange(2)}
    ids = [(0, 0), (0, 0), (0, 1), (0, 1), (0, 1)]
    found = pj.certify(
        *(gates_of(columns), np.ones(5), [1, 0, 1, 1, 0], ids),
        **dict(levels=["country"], clusters=["a", "a", "a", "b", "b"]),
    )
    assert found["level"].tolist() == ["all", "country", "segment", "segment"]
    assert found["clusters"].tolist() == [2, 2, 1, 2]
    np.testing.assert_allclose(found["precision"], [(2 / 3 + 1 / 2) / 2] * 2 + [1 / 2, 3 / 4])


@pytest.mark.slow
@pytest.mark.parametrize("levels", [None, True])
def test_false_discoveries_among_clusters(levels):
    """As many as were asked for at most, where rows in place of clusters give a third."""
    columns = shops(2, 2, 4)
    share = np.full(16, 0.9)  # the target: each certificate is wrong
    of_clusters, of_rows = [], []
    for seed in range(200):
        rows, cluster = by_clusters(seed, columns, share, 5)
        for found, given in ((of_clusters, cluster), (of_rows, None)):
            made = pj.certify(gates_of(columns), *rows, levels=levels, clusters=given)
            found.append(made["flagged"].any())
    assert np.mean(of_clusters) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    assert np.mean(of_rows) > 0.3


def test_clusters_that_cannot_be():
    columns = {"shop": np.arange(2)}
    gates, ids = gates_of(columns), np.array([0, 0, 1])
    with pytest.raises(ValueError, match=r"clusters: expected one id per row, 3 of them, got 2"):
        pj.certify(gates, np.ones(3), [1, 0, 1], ids, clusters=[0, 1])
    with pytest.raises(ValueError, match="clusters: expected None beside SegmentRows"):
        pj.certify(gates, pj.SegmentRows(np.ones(3), [1, 0, 1], ids), clusters=ids)
    empty = pj.certify(gates, np.zeros(0), np.zeros(0), np.zeros(0, int), clusters=np.zeros(0, int))
    assert empty["clusters"].tolist() == [0, 0] and np.isnan(empty["lower"]).all()
