"""What a fit must give in every engine, and how to kill a worker of it."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

import platt_jax as pj
from platt_jax import cluster
from platt_jax.cluster.meeting import Coordinator

NAMES = {"score": "f", "label": "y", "segment": "s"}
# In the first parts of a search for the population.
_ROUND = 6


class Ways(NamedTuple):
    """From a data frame to rows of an engine, in several blocks, and back."""

    rows: Callable[[pd.DataFrame], Any]
    frame: Callable[[Any], pd.DataFrame]


def made_frame(segments: int = 200, share: float = 0.0) -> pd.DataFrame:
    """50 rows a segment, in no order; this share of the rows is of one segment."""
    rng = np.random.default_rng(7)
    segment = rng.integers(0, segments, 50 * segments)
    slope, intercept = 1 + 0.4 * rng.normal(size=segments), -1 + 0.7 * rng.normal(size=segments)
    score = rng.normal(size=len(segment))
    label = rng.random(len(segment)) < 1 / (
        1 + np.exp(-slope[segment] * score - intercept[segment])
    )
    segment = np.where(rng.random(len(segment)) < share, 3, segment)
    ids = np.array([f"shop {i}" for i in range(segments)])[segment]
    return pd.DataFrame({"s": ids, "f": score, "y": label, "other": np.arange(len(ids))})


def in_memory(frame: pd.DataFrame, **options: Any) -> pj.SegmentCalibrator:
    """The fit that an engine's must agree with."""
    return pj.fit_segments(frame.f.to_numpy(), frame.y.to_numpy(), frame.s, **options)


def check_same_bits(ways: Ways, folder: Any) -> None:
    """Without pooling all is as in memory, to the bit."""
    frame = made_frame()
    fitted, expected = cluster.fit_segments(ways.rows(frame), **NAMES), in_memory(frame)
    collected = fitted.collect()
    np.testing.assert_array_equal(collected.keys, expected.keys)
    for name in ("A", "B", "status", "flags", "nll", "covariance"):
        np.testing.assert_array_equal(getattr(collected.fit, name), getattr(expected.fit, name))
    assert len(fitted) == len(expected.keys)

    table = ways.frame(fitted.table()).sort_values("s")
    assert table.s.tolist() == expected.keys.tolist()
    np.testing.assert_array_equal(table.A.to_numpy(float), expected.fit.A)
    fitted.write_parquet(str(folder))
    written = pq.read_table(folder).to_pandas().sort_values("s")
    assert written.columns.tolist() == table.columns.tolist()
    np.testing.assert_array_equal(written.B, expected.fit.B)

    fresh = frame.assign(s=np.where(frame.other % 100 == 0, "unseen", frame.s)).drop(columns="y")
    found = ways.frame(fitted.predict(ways.rows(fresh), out="p"))
    assert found.columns.tolist() == ["s", "f", "other", "p"]
    found = found.sort_values("other")
    assert found.s.tolist() == fresh.s.tolist()
    probabilities = expected.predict_proba(fresh.f.to_numpy(), fresh.s)
    is_seen = (fresh.s != "unseen").to_numpy()
    np.testing.assert_array_equal(found.p.to_numpy(float)[is_seen], probabilities[is_seen])
    # The curve of all rows is fitted to sums of several parts.
    np.testing.assert_allclose(found.p.to_numpy(float), probabilities, rtol=1e-12)


def check_skew(ways: Ways) -> None:
    """A segment that has most of the rows is fitted by all parts together."""
    frame = made_frame(share=0.9)
    fitted, expected = cluster.fit_segments(ways.rows(frame), **NAMES), in_memory(frame)
    collected = fitted.collect()
    np.testing.assert_array_equal(collected.keys, expected.keys)
    is_large = expected.keys == "shop 3"
    np.testing.assert_array_equal(collected.fit.A[~is_large], expected.fit.A[~is_large])
    np.testing.assert_allclose(collected.fit.A, expected.fit.A, rtol=1e-12)
    np.testing.assert_array_equal(collected.fit.status, expected.fit.status)
    found = ways.frame(fitted.predict(ways.rows(frame))).sort_values("other")
    probabilities = expected.predict_proba(frame.f.to_numpy(), frame.s)
    np.testing.assert_allclose(found.probability.to_numpy(float), probabilities, rtol=1e-12)


def check_triage(ways: Ways) -> None:
    """A segment with turned labels is flagged, with the numbers of memory."""
    frame = made_frame(20)
    fitted, expected = cluster.fit_segments(ways.rows(frame), **NAMES), in_memory(frame)
    later = frame.assign(y=frame.y ^ (frame.s == "shop 5"))
    found = ways.frame(fitted.triage(ways.rows(later), label="y")).sort_values("s")
    tested = pj.triage(expected, later.f.to_numpy(), later.y.to_numpy(), later.s).to_pandas()
    tested = tested.sort_values("segment")
    assert found.s.tolist() == tested.segment.tolist()
    assert found.flagged.tolist() == tested.flagged.tolist() and tested.flagged.any()
    np.testing.assert_allclose(found.q_value.to_numpy(float), tested.q_value, rtol=1e-9)


def check_curves(ways: Ways) -> None:
    """Isotonic curves predict as those of memory do, also for unseen segments."""
    frame = made_frame(20)
    fitted = cluster.fit_segments(ways.rows(frame), **NAMES, curve="isotonic")
    expected = pj.fit_segments(frame.f.to_numpy(), frame.y.to_numpy(), frame.s, curve="isotonic")
    fresh = frame.assign(s=frame.s.where(frame.s != "shop 5", "unseen"))
    found = ways.frame(fitted.predict(ways.rows(fresh)))
    p = expected.predict_proba(found.f.to_numpy(), found.s)
    np.testing.assert_allclose(found.probability.to_numpy(float), p, rtol=1e-9)
    table = ways.frame(fitted.table())
    assert sorted(table.s) == expected.keys.tolist() and table.monotone.all()


def check_errors(ways: Ways, raises: Any, monkeypatch: Any) -> None:
    """Invalid labels and ids are the ValueErrors of a fit in memory."""
    frame = made_frame(20)
    labels = frame.y.astype(int).replace(1, 7)
    with raises(ValueError, match="labels: expected"):
        cluster.fit_segments(ways.rows(frame.assign(y=labels)), **NAMES)
    # As in more rows than are sampled: the first look does not find it.
    monkeypatch.setattr("platt_jax.cluster.fitting._SAMPLED", len(frame) // 10)
    with raises(ValueError, match="expected ids, got None"):
        cluster.fit_segments(ways.rows(frame.assign(s=frame.s.where(frame.other != 2))), **NAMES)


def check_partial(ways: Ways, kill: Callable[[], None], monkeypatch: Any) -> None:
    """With a population the fits agree within rounding.

    A worker that is killed in the middle of another fit does not change its bits.

    Args:
        ways: from data frames to rows.
        kill: kills a worker's process.
        monkeypatch: the fixture.
    """
    frame = made_frame()
    first = cluster.fit_segments(ways.rows(frame), **NAMES, pooling="partial").collect()
    expected = in_memory(frame, pooling="partial")
    away = np.abs(first.fit.A - expected.fit.A) / expected.fit.standard_errors[:, 0]
    assert away.max() < 1e-6
    gather, lock, begun, killed = Coordinator.gather, threading.Lock(), Counter(), []

    def gather_and_kill(self: Coordinator, number: int, part: int, *said: Any) -> list[bytes]:
        with lock:
            begun[part] += number == 0
            if number == _ROUND and not killed:
                killed.append(part)
                kill()
        return gather(self, number, part, *said)

    monkeypatch.setattr(Coordinator, "gather", gather_and_kill)
    second = cluster.fit_segments(ways.rows(frame), **NAMES, pooling="partial").collect()
    assert killed and max(begun.values()) > 1  # a part ran again
    np.testing.assert_array_equal(first.fit.A, second.fit.A)
    np.testing.assert_array_equal(first.fit.B, second.fit.B)
    np.testing.assert_array_equal(first.population.mean, second.population.mean)
