"""Replicates of whole clusters: the weights they have, and what they cover."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import batch, labels_of

import platt_jax as pj
from platt_jax.execution import replicates
from platt_jax.ids.hashing import hashes
from platt_jax.inference import robust_covariance
from platt_jax.passes import replicated, shapes


def weights(kind, problems, replicates, clusters):
    """(R, K, N), drawn by the hashes of the clusters."""
    words = hashes(np.asarray(clusters)).astype(np.uint32)
    which = np.repeat(np.asarray(problems, np.uint64), replicates)
    stream = replicated.streams(0, which, np.tile(np.arange(replicates), len(problems)))
    stream = replicated.Stream(*(x[:, None] for x in stream))
    with jax.enable_x64(True):
        drawn = replicated.draw(kind, stream, jnp.asarray(words)[None], np.dtype(np.float64))
    return np.asarray(drawn).reshape(len(problems), replicates, -1).swapaxes(0, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tile_shapes", "size", "kind"),
    [
        (shapes.VECTOR_SHAPES, 40, "poisson"),
        (shapes.VECTOR_SHAPES, 400, "bayesian"),
        (shapes.TILE_SHAPES, 40, "poisson"),
    ],
)
def test_a_replicate_is_the_fit_with_its_clusters_weights(rng, sizes, tile_shapes, size, kind):
    scores, labels = batch(rng, 3, size)
    users = rng.permutation(np.arange(size) // 4)
    drawn = weights(kind, range(3), 5, users)
    assert (drawn[:, :, users == 2] == drawn[:, :, [np.argmax(users == 2)]]).all()
    own = rng.integers(1, 3, scores.shape)
    expected = pj.fit(np.tile(scores, (5, 1, 1)), labels, weights=drawn * own)
    sizes(tile_shapes=tile_shapes)
    made = pj.inference.bootstrap(
        scores, labels, weights=own, clusters=users, replicates=5, kind=kind
    )
    np.testing.assert_array_equal(made.status, expected.status)
    used = ~made.failed
    np.testing.assert_allclose(made.A[used], expected.A[used], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(made.B[used], expected.B[used], rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_rows_that_are_their_own_clusters_are_drawn_as_rows(rng, monkeypatch):
    """By the same scheme: with their numbers for hashes, the replicates are the same."""
    scores, labels = batch(rng, 4, 300)
    by_rows = pj.inference.bootstrap(scores, labels, replicates=8)
    monkeypatch.setattr(replicates, "hashes", lambda keys: keys.astype(np.uint64))
    by_clusters = pj.inference.bootstrap(scores, labels, clusters=np.arange(300), replicates=8)
    np.testing.assert_allclose(by_clusters.A, by_rows.A, rtol=1e-9)
    np.testing.assert_allclose(by_clusters.influence.cubes, by_rows.influence.cubes, rtol=1e-6)
    flat = scores.ravel(), labels.ravel()
    segments = np.repeat(np.arange(4), 300)
    by_rows = pj.inference.bootstrap(*flat, segments=segments, replicates=8)
    number = np.tile(np.arange(300), 4)
    by_clusters = pj.inference.bootstrap(*flat, segments=segments, clusters=number, replicates=8)
    np.testing.assert_allclose(by_clusters.A, by_rows.A, rtol=1e-9)


@pytest.mark.slow
def test_neither_order_nor_company_nor_the_kind_of_ids_matters(rng):
    scores, labels = (x.ravel() for x in batch(rng, 3, 140))
    segments = np.repeat(["a", "b", "c"], [60, 300, 60])
    users = rng.integers(0, 60, 420)
    given = {"segments": segments, "clusters": users, "replicates": 20}
    made = pj.inference.bootstrap(scores, labels, **given)
    order = rng.permutation(420)
    given = {"segments": segments[order], "clusters": users[order], "replicates": 20}
    other = pj.inference.bootstrap(scores[order], labels[order], **given)
    np.testing.assert_allclose(other.A, made.A, rtol=1e-7, atol=1e-9)
    for one, another in zip(other.interval(), made.interval(), strict=True):
        np.testing.assert_allclose(one, another, rtol=1e-6, atol=1e-9)
    some = segments != "b"
    given = {"segments": segments[some], "clusters": users[some].tolist(), "replicates": 10}
    fewer = pj.inference.bootstrap(scores[some], labels[some], **given)
    np.testing.assert_allclose(fewer.A, made.A[:10, [0, 2]], rtol=1e-7)
    again = pj.inference.bootstrap(scores, labels, segments=segments, clusters=users, replicates=20)
    assert again == made


@pytest.mark.slow
def test_replicates_of_an_oversized_problem(rng, sizes):
    scores, labels = (x.ravel() for x in batch(rng, 1, 40_000))
    users = rng.integers(0, 5000, 40_000)
    expected = pj.inference.bootstrap(scores, labels, clusters=users, replicates=3)
    sizes(problem_rows=32_768, block_rows=32_768)
    made = pj.inference.bootstrap(scores, labels, clusters=users, replicates=3)
    np.testing.assert_allclose(made.A, expected.A, rtol=1e-9)


@pytest.mark.slow
def test_bca_intervals_know_of_clusters(rng):
    """Each cluster's rows as one: a row four times in a cluster is a row of weight 4."""
    scores, labels = batch(rng, 2, 50)
    four = pj.inference.bootstrap(
        np.repeat(scores, 4, axis=1),
        np.repeat(labels, 4, axis=1),
        clusters=np.repeat(np.arange(50), 4),
        replicates=30,
    )
    once = pj.inference.bootstrap(scores, labels, weights=4, clusters=np.arange(50), replicates=30)
    np.testing.assert_allclose(four.influence.cubes, once.influence.cubes, rtol=1e-6)
    for one, other in zip(four.interval(), once.interval(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_clusters_beside_segment_rows_are_refused(rng):
    scores, labels = (x.ravel() for x in batch(rng, 2, 20))
    rows = pj.SegmentRows(scores, labels, np.repeat([0, 1], 20))
    with pytest.raises(ValueError, match="clusters: expected None beside SegmentRows"):
        pj.inference.bootstrap(rows, clusters=np.arange(40))


@pytest.mark.slow
def test_errors_are_those_of_clustered_rows(rng):
    """80 clusters of 10 rows: intervals by rows hold the truth in 8 of 10 problems."""
    cluster = np.repeat(np.arange(80), 10)
    shared = rng.normal(size=(300, 80))[:, cluster]
    scores = 0.8 * shared + 0.6 * rng.normal(size=shared.shape)
    off = 1.0 * rng.normal(size=(300, 80))[:, cluster]
    labels = labels_of(rng, scores + off)
    options = pj.Options(targets="none")
    # Infinitely many rows of the same kind.
    f, x = np.linspace(-6, 6, 801), np.linspace(-6, 6, 201)
    p = (np.exp(-x * x / 2) / (1 + np.exp(-f[:, None] - x))).sum(1) / np.exp(-x * x / 2).sum()
    weights = np.exp(-f * f / 2) * np.stack([p, 1 - p])
    truth = pj.fit(np.tile(f, 2), np.repeat([1, 0], 801), weights=weights.ravel(), options=options)
    truth = np.stack([truth.A, truth.B])

    def covered(**given):
        made = pj.inference.bootstrap(scores, labels, options=options, **given)
        lower, upper = made.interval()
        return ((lower <= truth) & (truth <= upper)).mean(0), made

    of_clusters, made = covered(clusters=cluster)
    of_rows, _ = covered()
    assert (of_clusters > 0.89).all() and (of_clusters < 0.985).all(), of_clusters
    assert (of_rows < 0.87).all(), of_rows
    robust = robust_covariance(made.fit, scores, labels, clusters=cluster, options=options)
    ratio = np.median(made.standard_errors / robust.standard_errors, axis=0)
    assert (abs(ratio - 1) < 0.06).all(), ratio
