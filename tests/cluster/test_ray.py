"""Rows in Ray, with two CPUs; a worker process is killed."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import in_engines
import numpy as np
import pyarrow as pa
import pytest

pytestmark = [
    pytest.mark.slow,
    # Ray forks to start its daemon at once, which is safe, but JAX warns of every fork.
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    # Ray sets options of its own that it has deprecated.
    pytest.mark.filterwarnings("ignore:`use_.*` is deprecated:DeprecationWarning"),
]
ray = pytest.importorskip("ray", reason="pip install '.[ray]'")
pytest.importorskip("ray.data", reason="pip install '.[ray]'")


def _rows(frame):
    table, blocks = pa.Table.from_pandas(frame, preserve_index=False), 5
    each = -(-len(frame) // blocks)
    return ray.data.from_arrow([table.slice(i * each, each) for i in range(blocks)])


def _frame(rows):
    return pa.concat_tables(ray.get(rows.to_arrow_refs())).to_pandas()


WAYS = in_engines.Ways(_rows, _frame)


@pytest.fixture(scope="module", autouse=True)
def workers():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_same_bits_as_in_memory(tmp_path):
    in_engines.check_same_bits(WAYS, tmp_path / "fits")


def test_most_rows_in_one_segment():
    in_engines.check_skew(WAYS)


def test_triage():
    in_engines.check_triage(WAYS)


def test_errors(monkeypatch):
    in_engines.check_errors(WAYS, pytest.raises, monkeypatch)


def test_more_parts_than_cpus():
    rows = _rows(in_engines.made_frame(2))
    with pytest.raises(ValueError, match=r"partitions: expected at most 2, .* got 3"):
        in_engines.cluster.fit_segments(rows, **in_engines.NAMES, partitions=3)


def test_partial_pooling_where_a_worker_is_killed(monkeypatch):
    in_engines.check_partial(WAYS, lambda: os.kill(_a_part(), signal.SIGKILL), monkeypatch)


def _a_part():
    """The process of a part: a child of Ray's daemon, which is a child of this process."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_part = (folder / "cmdline").read_bytes().startswith(b"ray::_fit")
        except OSError:
            continue  # it has ended
        if is_part and _parent(_parent(folder.name)) == str(os.getpid()):
            return int(folder.name)
    raise AssertionError("no part runs")


def _parent(pid):
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]


def test_rows_of_a_part_are_in_their_order():
    """Blocks may come in any order."""
    from platt_jax.cluster.engines import whole
    from platt_jax.cluster.ray import Ray
    from platt_jax.cluster.tasks import EngineColumns

    frame, engine = in_engines.made_frame(20), Ray(2)
    rows = engine.select(_rows(frame), ["f", "s", "other"])
    backwards = SimpleNamespace(
        schema=rows.schema, to_arrow_refs=lambda: rows.to_arrow_refs()[::-1]
    )
    of_parts = engine._together(backwards, EngineColumns("f", ("s",)))
    found = [whole(ray.get(list(of_part)))["other"].to_numpy() for of_part in of_parts]
    assert all((np.diff(numbers) > 0).all() for numbers in found)
    assert sorted(np.concatenate(found)) == frame.other.tolist()
