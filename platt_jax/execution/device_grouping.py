"""Rows on an accelerator grouped by segment there: the order of their ids, and their layout."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax import columns, ids, validation
from platt_jax.backend import accelerators, xla
from platt_jax.backend.threads import run_programs
from platt_jax.columns import Column
from platt_jax.execution import planning
from platt_jax.groups import Groups
from platt_jax.ids.factorize import factorize
from platt_jax.passes import shapes
from platt_jax.passes.columns import Columns

_STEP_OF_ROWS, _STEP_OF_KEYS = 2 * shapes.BLOCK_TILE, 1 << 10


class DeviceGroups(NamedTuple):
    """N rows in the layout: segments end to end, in the order of `planning.largest_first`."""

    keys: NDArray[Any]  # (K,) the distinct ids, ascending or in order of appearance
    length: int  # N
    padded: int  # the length of the columns, with the rows added
    largest_first: NDArray[Any]  # (K,) the segment at each place of the layout
    sizes: NDArray[Any]  # (K,) numbers of rows, in the layout's order
    starts: NDArray[Any]  # (K,) first rows, in the layout's order
    places: tuple[Any, ...]  # on the device; see `_laid_out`

    def laid_out(self, rows: Columns) -> Columns:
        """The columns, which have the length `padded`, in the layout; see `_laid_out`."""
        lay_out = partial(_laid_out, rows, *self.places, np.int64(self.length))
        laid: Columns = run_programs(lay_out, x64=True)
        return laid

    def in_given_order(self, values: jax.Array) -> jax.Array:
        """Values of the layout's rows as values (N,) of the rows in the user's order."""
        order = partial(_given_order, values, *self.places, np.int64(self.length))
        ordered: jax.Array = run_programs(lambda: order()[: self.length], x64=True)
        return ordered


def group_ids(segments: Column, length: int) -> DeviceGroups:
    """The groups of rows by their ids.

    Args:
        segments: integers on a device, or any ids on the host.
        length: the number of rows.

    Raises:
        ValueError: there are more ids or fewer, or ids on a device of another kind.
    """
    name = columns.labelled("segments", segments)
    if accelerators.holds(segments := accelerators.taken(segments)):
        if segments.ndim != 1 or not jnp.issubdtype(segments.dtype, jnp.integer):
            raise validation.segment_codes_error(name, segments)
        _require_length(len(segments), length)
        return _grouped(segments)
    row_ids = ids.read(segments)
    _require_length(ids.length(row_ids), length)
    numbered = factorize(row_ids)
    groups = _grouped(numbered.of(slice(None)))
    return groups._replace(keys=numbered.named(groups.keys))


def _require_length(number: int, length: int) -> None:
    if number != length:
        raise ValueError(f"segments: expected one id per score {(length,)}, got shape ({number},)")


def _grouped(numbers: Any) -> DeviceGroups:
    # With 64-bit types, so that there may be more than 2^31 rows, and ids are not cut.
    groups: DeviceGroups = run_programs(partial(_group, numbers), x64=True)
    return groups


def _group(numbers: Any) -> DeviceGroups:
    numbers, length = jnp.asarray(numbers), len(numbers)
    padded = padded_length(length)
    low, high, ascending = jax.device_get(_id_facts(numbers))
    codes, order, number, among = _in_order(
        numbers,
        low,
        np.int64(length),
        kind=np.promote_types(np.uint16, np.min_scalar_type(int(high) - int(low))),
        place=np.promote_types(np.int32, np.min_scalar_type(-padded)),
        padded=padded,
        ascending=bool(ascending),
    )
    count = int(jax.device_get(among))
    first, distinct = _firsts(codes, number, most=shapes.few_lengths(count, _STEP_OF_KEYS))
    firsts, key_offsets = (x[:count] for x in jax.device_get((first, distinct)))
    sizes = np.diff(firsts, append=length)
    largest_first = planning.largest_first(sizes)
    sizes = sizes[largest_first]
    starts = Groups(sizes).starts
    to = np.zeros(first.shape, first.dtype)
    to[largest_first] = starts
    # The sum is modulo the size of the type, as the codes are.
    keys = key_offsets.astype(low.dtype) + low
    places = order, number, first, to
    return DeviceGroups(keys, length, padded, largest_first, sizes, starts, places)


def padded_length(length: int) -> int:
    """The length to which this many rows are padded."""
    return shapes.few_lengths(length, _STEP_OF_ROWS)


@xla.jit
def _id_facts(ids: jax.Array) -> jax.Array:
    """The smallest id, the largest one, and whether ids are ascending: an array of their dtype."""
    ascending = jnp.all(ids[1:] >= ids[:-1]).astype(ids.dtype)
    return jnp.stack([jnp.min(ids), jnp.max(ids), ascending])


@partial(xla.jit, static_argnames=("kind", "place", "padded", "ascending"))
def _in_order(
    ids: jax.Array,
    low: jax.Array,
    length: jax.Array,
    kind: np.dtype[Any],
    place: np.dtype[Any],
    padded: int,
    ascending: bool,
) -> tuple[jax.Array, jax.Array | None, jax.Array, jax.Array]:
    """The rows in the order of their ids, and of rows with one id in their own.

    Args:
        ids: (N,) the ids.
        low: the smallest.
        length: N.
        kind: an unsigned dtype of 16 to 64 bits for codes, which are the ids less the smallest. A
            GPU sorts keys and numbers by CUB's radix sort if keys are such: thirty times as fast.
        place: the dtype of the numbers of rows.
        padded: the length of the results. Places from N on keep the rows added.
        ascending: whether the ids are, so that no sort is needed.

    Returns:
        The codes in ascending order; the row of each, or None for the same order; the number of
        each code among the distinct ones; and how many the rows have.
    """
    # Modulo 2^64, so that no difference overflows.
    codes = (ids.astype(np.uint64) - low.astype(np.uint64)).astype(kind)
    # Rows added have the largest code, and a stable sort leaves them at the end.
    largest = np.array(np.iinfo(kind).max, kind)
    codes = lax.pad(codes, largest, [(0, padded - len(codes), 0)])
    order = None
    if not ascending:
        codes, order = lax.sort((codes, lax.iota(place, padded)), num_keys=1, is_stable=True)
    steps = codes[1:] != codes[:-1]
    number = jnp.cumsum(jnp.pad(steps, (1, 0)), dtype=place)
    return codes, order, number, number[length - 1] + 1


@partial(xla.jit, static_argnames=("most",))
def _firsts(codes: jax.Array, number: jax.Array, most: int) -> tuple[jax.Array, jax.Array]:
    """The first place of each of the distinct codes, and the code; undefined beyond their count."""
    first = jnp.searchsorted(number, jnp.arange(most, dtype=number.dtype)).astype(number.dtype)
    return first, codes[first]


@xla.jit
def _laid_out(
    rows: Columns,
    order: jax.Array | None,
    number: jax.Array,
    first: jax.Array,
    to: jax.Array,
    length: jax.Array,
) -> Columns:
    """The rows in the order of the layout, followed by those added and a block's length of others.

    Args:
        rows: the columns, in the order of the user's.
        order: the row at each place of the ascending codes; None for the same order.
        number: the number of the distinct code at each place.
        first: the first place of each distinct code.
        to: the first place of each distinct code in the layout.
        length: the number of rows, without those added.
    """
    places = _layout_places(number, first, to, length)
    source = jnp.arange(len(number), dtype=number.dtype) if order is None else order
    row = jnp.zeros_like(places).at[places].set(source, unique_indices=True)
    laid: Columns = jax.tree.map(lambda x: jnp.pad(x[row], (0, room())), rows)
    return laid


@xla.jit
def _given_order(
    values: jax.Array,
    order: jax.Array | None,
    number: jax.Array,
    first: jax.Array,
    to: jax.Array,
    length: jax.Array,
) -> jax.Array:
    """The inverse of `_laid_out`, of one column, with the values of added rows last."""
    by_code = values[_layout_places(number, first, to, length)]
    if order is None:
        return by_code
    return jnp.zeros_like(by_code).at[order].set(by_code, unique_indices=True)


def _layout_places(
    number: jax.Array, first: jax.Array, to: jax.Array, length: jax.Array
) -> jax.Array:
    """The place in the layout of each place of the ascending codes; see `_laid_out`."""
    index = jnp.arange(len(number), dtype=number.dtype)
    return jnp.where(index < length.astype(number.dtype), (to - first)[number] + index, index)


def room() -> int:
    """Places behind the rows added, so that any requested slice exists.

    No chunk and no block is longer than a block. The columns are whole tile rows, which `FlatRows`
    takes without a copy.
    """
    return -(-shapes.sizes().block_rows // shapes.BLOCK_TILE) * shapes.BLOCK_TILE
