"""Offsets at the doors that `doors.py` does not try: devices, meshes, engines, and programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import accelerated
from data import labels_of
from jax.sharding import Mesh
from rows_elsewhere import fit_relation, fit_stored, predict_relation

import platt_jax as pj
from platt_jax.backend import xla
from platt_jax.cli.main import main
from platt_jax.passes.columns import Columns

pytestmark = pytest.mark.slow  # compiles many programs


@pytest.fixture
def rows(rng):
    """Scores, labels, segments and offsets of eight segments."""
    segments = rng.permutation(np.repeat(np.arange(8), 30))
    scores = rng.normal(size=240)
    offset = rng.normal(0.5, 1.0, 240) + 0.4 * scores
    labels = labels_of(rng, 1.3 * scores - 0.4 + offset).astype(int)
    return scores, labels, segments, offset


@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_rows_on_a_device(rows, monkeypatch, pooling):
    scores, labels, segments, offset = rows
    host = pj.fit_segments(scores, labels, segments, offset=offset, pooling=pooling)
    of_host = host.predict_proba(scores, segments, offset=offset)
    dense = pj.fit(scores.reshape(2, -1), labels.reshape(2, -1), offset=offset.reshape(2, -1))
    with jax.enable_x64(True), accelerated(monkeypatch, np.float64):
        f, y, s, o = map(jnp.asarray, rows)
        there = pj.fit_segments(f, y, s, offset=o, pooling=pooling)
        by_device = there.predict_proba(f, s, offset=o)
        mixed = pj.fit_segments(f, y, s, offset=offset, pooling=pooling)
        of_dense = pj.fit(f.reshape(2, -1), y.reshape(2, -1), offset=o.reshape(2, -1))
        with pytest.raises(ValueError, match=r"offset: .*got \(3,\)"):
            pj.fit(f, y, offset=o[:3])
    np.testing.assert_allclose(there.fit.A, host.fit.A, rtol=1e-5)
    np.testing.assert_array_equal(mixed.fit.A, there.fit.A)
    np.testing.assert_allclose(of_dense.B, dense.B, rtol=1e-8)
    np.testing.assert_allclose(by_device, of_host, rtol=1e-5)


def test_classes_on_a_device(rng, monkeypatch):
    scores, offset = rng.normal(size=(2, 60, 3)).astype(np.float32)
    made = pj.fit_one_vs_rest(scores, rng.integers(0, 3, 60), offset=offset)
    expected = made.predict_proba(scores, offset=offset)
    with accelerated(monkeypatch, np.float32):
        found = made.predict_proba(jnp.asarray(scores), offset=jnp.asarray(offset))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_mesh_over_rows(rows):
    scores, labels, segments, offset = rows
    mesh = Mesh(np.array(jax.devices()[:1]), ("rows",))
    found = pj.fit_segments(scores, labels, segments, offset=offset, mesh=mesh)
    expected = pj.fit_segments(scores, labels, segments, offset=offset)
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-9)
    np.testing.assert_allclose(found.fallback.B, expected.fallback.B, rtol=1e-9)


def test_a_query_predicts_with_the_offset(rows):
    duckdb, pa = pytest.importorskip("duckdb"), pytest.importorskip("pyarrow")

    scores, labels, segments, offset = rows
    table = pa.table({"f": scores, "s": segments, "o": offset})
    relation = duckdb.connect().from_arrow(table)
    for pooling in ("none", "partial"):
        made = pj.fit_segments(scores, labels, segments, offset=offset, pooling=pooling)
        named = predict_relation(relation, made, score="f", segment="s", offset="o", name="p")
        found = named.to_arrow_table()["p"].to_numpy()
        expected = made.predict_proba(scores, segments, offset=offset)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="offset: expected one of the columns"):
        predict_relation(relation, made, score="f", segment="s", offset="x", name="p")


def test_moments_far_from_zero_take_a_query_of_their_own(rows):
    """Sums of the original scores lose their digits there, and those of the offsets with them."""
    duckdb, pa = pytest.importorskip("duckdb"), pytest.importorskip("pyarrow")

    scores, labels, segments, offset = rows
    scores = scores + 1e9
    expected = pj.fit_segments(scores, labels, segments, offset=offset)
    relation = duckdb.connect().from_arrow(
        pa.table({"f": scores, "y": labels, "s": segments, "o": offset})
    )
    found = fit_relation(relation, score="f", label="y", segment="s", offset="o")
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-6)
    np.testing.assert_array_equal(found.fit.passes, expected.fit.passes)


def test_rows_on_disk_with_and_without(rows, tmp_path):
    from platt_jax import streaming

    scores, labels, segments, offset = rows
    batches = [(scores[i::2], labels[i::2], segments[i::2], None, offset[i::2]) for i in (0, 1)]
    stored = streaming.rows(batches, tmp_path / "a")
    assert stored.has_offset
    expected = pj.fit_segments(scores, labels, segments, offset=offset)
    found = fit_stored(streaming.StoredRows(tmp_path / "a"))
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-8)
    mixed = [batches[0], batches[1][:3]]
    with pytest.raises(ValueError, match="offset: expected them in all batches or in none"):
        streaming.rows(mixed, tmp_path / "b")
    assert not streaming.rows([x[:3] for x in batches], tmp_path / "c").has_offset
    assert pj.SegmentRows(scores, labels, segments, offset=offset).digest() != (
        pj.SegmentRows(scores, labels, segments).digest()
    )


def test_the_command_line(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scores, labels, segments, offset = rows
    columns = np.column_stack([scores, labels, segments, offset])
    header = "f,y,s,known"  # a name of several letters: each was taken for a column
    np.savetxt("rows.csv", columns, delimiter=",", header=header, comments="", fmt="%.17g")
    by = ["rows.csv", "--score", "f", "--segment", "s", "--offset", "known"]
    assert main(["fit", *by, "--label", "y", "--pooling", "none", "--out", "made.npz"]) == 0
    made = pj.load("made.npz")
    expected = pj.fit_segments(scores, labels, segments.astype(str), offset=offset)
    np.testing.assert_allclose(made.fit.A, expected.fit.A, rtol=1e-9)
    assert main(["apply", *by, "--calibrator", "made.npz", "--out", "with.csv"]) == 0
    p = np.genfromtxt("with.csv", delimiter=",", names=True)["probability"]
    np.testing.assert_allclose(p, made.predict_proba(scores, segments.astype(str), offset=offset))
    tested = ["triage", *by, "--label", "y", "--calibrator", "made.npz"]
    assert main([*tested, "--against", "predictions"]) == 0
    assert main(tested) == 0
    assert main(["update", *by, "--label", "y", "--calibrator", "made.npz", "--out", "b.npz"]) == 0
    later = pj.update(made, scores, labels, segments.astype(str), offset=offset)
    np.testing.assert_allclose(pj.load("b.npz").fit.A, later.fit.A, rtol=1e-9)
    alone = "fit rows.csv --score f --label y --offset known --out c.npz"
    assert main(alone.split()) == 0
    np.testing.assert_allclose(pj.load("c.npz").A, expected.fallback.A, rtol=1e-7)


def test_scikit_learn(rows):
    pytest.importorskip("sklearn")
    from sklearn import config_context
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    from platt_jax.sklearn import PlattCalibratedClassifier, SegmentCalibratedClassifier

    scores, labels, segments, offset = rows
    X = scores[:, None]
    base = LogisticRegression().fit(X, labels)
    margin = base.decision_function(X)
    model = PlattCalibratedClassifier(FrozenEstimator(base)).fit(X, labels, offset=offset)
    expected = pj.fit(margin, labels, offset=offset)
    np.testing.assert_allclose(model.calibrators_[0].fit.A, [expected.A])
    p = model.predict_proba(X, offset=offset)
    np.testing.assert_allclose(p[:, 1], expected.predict_proba(margin, offset=offset))
    np.testing.assert_array_equal(model.predict(X, offset=offset), p.argmax(1))
    by_fold = PlattCalibratedClassifier(LogisticRegression(), cv=3, ensemble=False)
    line = PlattCalibratedClassifier(LogisticRegression(), cv=3, ensemble=False)
    by_fold.fit(X, labels)
    line.fit(X, labels, offset=np.full(240, 2.0))
    np.testing.assert_allclose(line.calibrators_[0].fit.B, by_fold.calibrators_[0].fit.B + 2)

    both = np.column_stack([scores, segments])
    by_segment = SegmentCalibratedClassifier(FrozenEstimator(base), segments=1)
    by_segment.fit(both, labels, offset=offset)
    ours = pj.fit_segments(margin, labels, segments.astype(float), offset=offset)
    np.testing.assert_allclose(by_segment.calibrator_.fit.A, ours.fit.A)
    np.testing.assert_allclose(
        by_segment.predict_proba(both, offset=offset)[:, 1],
        ours.predict_proba(margin, segments.astype(float), offset=offset),
    )
    with pytest.raises(ValueError, match="offset: expected one per row"):
        model.predict_proba(X, offset=offset[:5])
    with pytest.raises(ValueError, match="offset: expected None but for two classes"):
        PlattCalibratedClassifier().fit(X, segments, offset=offset)
    with config_context(enable_metadata_routing=True):
        routed = PlattCalibratedClassifier(FrozenEstimator(base))
        routed.set_fit_request(offset=True).set_predict_proba_request(offset=True)
        whole = make_pipeline(routed).fit(X, labels, offset=offset)
        np.testing.assert_allclose(whole.predict_proba(X, offset=offset), p)


def test_judge_pooling_and_spreads_move_with_a_line(rng):
    times, segments = np.repeat([0, 1], 1500), np.arange(3000) % 30
    scores = rng.normal(size=3000)
    labels = labels_of(rng, scores + rng.normal(0, 0.7, 30)[segments])
    line = 0.5 * scores + 1.5
    given = scores, labels, segments, times, 1
    one, other = pj.inference.judge_pooling(*given), pj.inference.judge_pooling(*given, offset=line)
    np.testing.assert_allclose(other["log_loss"], one["log_loss"], rtol=1e-5)
    before, after = times == 0, times == 1
    drifts = []
    for offset in (None, line):
        early, late = (None if offset is None else offset[x] for x in (before, after))
        first = pj.fit_segments(
            scores[before], labels[before], segments[before], offset=early, pooling="partial"
        )
        of_late = scores[after], labels[after], segments[after]
        drifts.append(pj.inference.estimate_drift(first, *of_late, offset=late))
    assert abs(drifts[0].lasting - drifts[1].lasting) < 1e-4


def test_columns_are_a_pytree():
    columns = Columns(np.ones(3), np.zeros(3), offset=np.ones(3))
    assert len(jax.tree.leaves(columns)) == 3
    assert jax.tree.map(len, columns) == Columns(3, 3, None, 3)


def test_tiles_as_on_a_gpu(rng, monkeypatch, sizes):
    """Small problems side by side, a larger one, and one in blocks; and their replicates."""
    lengths = np.array([5_000, 600, 90, 40, 40, 7])
    segments = np.repeat(np.arange(len(lengths)), lengths)
    scores, offset = rng.normal(size=(2, len(segments)))
    labels = labels_of(rng, scores + offset)
    weights = rng.integers(0, 3, len(scores))
    offset[-3] = np.nan
    options = pj.Options(non_finite="omit")
    given = dict(weights=weights, offset=offset, options=options)
    expected = pj.fit_segments(scores, labels, segments, **given)
    replicates = pj.inference.bootstrap(scores, labels, segments=segments, replicates=2, **given)
    sizes(problem_rows=1_000, block_rows=8 * 4096)
    monkeypatch.setattr(xla, "fused_cpu_supported", lambda: False)
    found = pj.fit_segments(scores, labels, segments, **given)
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-8)
    np.testing.assert_allclose(found.fit.nll, expected.fit.nll, rtol=1e-8)
    again = pj.inference.bootstrap(scores, labels, segments=segments, replicates=2, **given)
    np.testing.assert_allclose(again.A, replicates.A, rtol=1e-6)
