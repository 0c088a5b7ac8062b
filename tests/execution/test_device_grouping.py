"""Rows grouped by ids on a GPU: any integers, in the layout of the fits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import accelerated

from platt_jax.execution import device_grouping, planning
from platt_jax.passes.columns import Columns

pytestmark = pytest.mark.slow  # compiles many programs

INT64 = np.iinfo(np.int64)
IDS = {
    "negative": np.array([-5, 3, -70_000, 0], np.int32),
    "all of 8 bits": np.arange(-128, 128, dtype=np.int8),
    "all of 16 bits": np.array([0, 65_535, 3, 65_534], np.int32),
    "17 bits": np.array([-1, 65_535], np.int64),
    "all of 32 bits": np.array([-(2**31), 2**31 - 1, 0], np.int32),
    "unsigned": np.array([2**64 - 1, 2**63, 2**64 - 2], np.uint64),
    "large, close together": np.array([2**60 + 7, 2**60, 2**60 + 3]),
    "over 32 bits": np.array([-(2**40), 2**40, 17, 2**40 - 1]),
    "all of 64 bits": np.array([INT64.min, INT64.max, 0, -1]),
    "one segment": np.array([-9]),
}


@pytest.fixture(autouse=True)
def on_accelerator(monkeypatch):
    with accelerated(monkeypatch, np.float64):
        yield


def grouped(ids):
    """The groups, and the columns laid out, of rows whose score is their number."""
    groups = device_grouping.group_ids(jnp.asarray(ids), len(ids))
    scores = np.pad(np.arange(len(ids), dtype=np.float32), (0, groups.padded - len(ids)))
    labels = jnp.asarray(scores % 2, np.int8)
    return groups, jax.device_get(groups.laid_out(Columns(jnp.asarray(scores), labels)))


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("name", IDS)
def test_rows_of_each_id_lie_together_in_their_order(rng, name, ascending):
    ids = rng.choice(IDS[name], 3_000)
    ids = np.sort(ids) if ascending else ids
    groups, rows = grouped(ids)
    keys, sizes = np.unique(ids, return_counts=True)
    assert groups.keys.dtype == ids.dtype
    np.testing.assert_array_equal(groups.keys, keys)
    np.testing.assert_array_equal(groups.largest_first, planning.largest_first(sizes))
    for place, segment in enumerate(groups.largest_first):
        first, size = groups.starts[place], groups.sizes[place]
        expected = np.flatnonzero(ids == keys[segment])
        np.testing.assert_array_equal(rows.scores[first : first + size], expected)
        np.testing.assert_array_equal(rows.labels[first : first + size], expected % 2)


@pytest.mark.parametrize("number", [1, 2])
def test_few_rows(number):
    groups, rows = grouped(np.full(number, 7))
    assert groups.keys.tolist() == [7] and groups.sizes.tolist() == [number]
    assert rows.scores[:number].tolist() == list(range(number))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("all of 8 bits", np.uint16),
        ("all of 16 bits", np.uint16),
        ("17 bits", np.uint32),
        ("large, close together", np.uint16),
        ("all of 32 bits", np.uint32),
        ("over 32 bits", np.uint64),
        ("all of 64 bits", np.uint64),
    ],
)
def test_the_sort_is_one_of_those_that_a_gpu_has_a_fast_one_for(monkeypatch, name, kind):
    """CUB sorts unsigned keys of 16 to 64 bits beside one column of places; signed ones not."""
    programs = []

    def recorded(*arguments, program=device_grouping._in_order, **static):
        programs.append(program.trace(*arguments, **static).jaxpr)
        return program(*arguments, **static)

    monkeypatch.setattr(device_grouping, "_in_order", recorded)
    grouped(IDS[name][::-1])
    (sort,) = (x for program in programs for x in program.eqns if x.primitive.name == "sort")
    assert [x.aval.dtype for x in sort.invars] == [kind, np.int32]
    assert sort.params["num_keys"] == 1
