"""The part of an ONNX graph that finds the parameters of each row's curve."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.export.curves import Curves, require_integers, require_unicode

# ONNX names of the segments' types, in a LabelEncoder and in a tensor.
_KEY_TYPES: dict[type, tuple[str, str]] = {str: ("strings", "STRING"), int: ("int64s", "INT64")}
_MOST_COMBINATIONS = 2**63


class Parameters(NamedTuple):
    """Nodes that compute the tensor `parameters`, and what they need.

    Its last axis has minus A, minus B, and with a population AA, twice AB and BB.

    Attributes:
        inputs: names of the inputs of ids, and the names of their types.
        nodes: the nodes.
        constants: the initializers, by name.
    """

    inputs: list[tuple[str, str]]
    nodes: list[Any]
    constants: dict[str, NDArray[Any]]


def parameters_of(found: Curves, helper: Any) -> Parameters:
    """The nodes for these curves; `helper` is `onnx.helper`.

    Raises:
        ValueError: a column of ids is neither text nor integers of 64 bits.
    """
    constants = {"of_segments_table": _stored([*found.parameters, found.fallback])}
    if found.segments is None:
        nodes = [
            helper.make_node("Constant", [], ["place"], value_int=0),
            helper.make_node("Gather", ["of_segments_table", "place"], ["parameters"]),
        ]
        return Parameters([], nodes, constants)
    graph = _Graph(found, helper, constants)
    graph.gather("of_segments", range(len(found.columns)), found.segments)
    if found.levels:
        graph.add_levels()
    else:
        graph.nodes[-1].output[0] = "parameters"
    return Parameters(graph.inputs, graph.nodes, constants)


class _Graph:
    """Nodes, inputs and constants as they are added."""

    def __init__(self, found: Curves, helper: Any, constants: dict[str, NDArray[Any]]) -> None:
        self._found, self._helper, self._constants = found, helper, constants
        self.nodes: list[Any] = []
        kinds = [_key_type(found, column) for column in range(len(found.columns))]
        names = ["segment"] if len(kinds) == 1 else [f"segment_{i}" for i in range(len(kinds))]
        self.inputs = [(name, _KEY_TYPES[kind][1]) for name, kind in zip(names, kinds, strict=True)]
        self._codes: list[dict[Any, int]] = []
        for i, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            values = list(dict.fromkeys(found.columns[i]))
            self._codes.append({value: code for code, value in enumerate(values)})
            self._encode(name, f"code_{i}", _KEY_TYPES[kind][0], values or [kind()])
        if prod(len(codes) + 1 for codes in self._codes) >= _MOST_COMBINATIONS:
            raise ValueError(
                "calibrator: expected fewer than 2^63 combinations of ids of its columns, got more"
            )

    def add(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        """Adds a node with one output."""
        self.nodes.append(self._helper.make_node(operator, list(inputs), [output], **attributes))

    def _encode(self, source: str, output: str, kind: str, keys: list[Any]) -> None:
        """The place of each value among the keys, or their number. There is at least one key."""
        attributes: dict[str, Any] = {
            "values_int64s": list(range(len(keys))),
            "default_int64": len(keys),
            f"keys_{kind}": keys,
        }
        self.add("LabelEncoder", [source], output, domain="ai.onnx.ml", **attributes)

    def gather(self, name: str, columns: range, values: Sequence[Any]) -> None:
        """The rows of the table `name`_table at the places of ids among these values.

        A table has one more row than there are values, for other ids. Also adds the tensor
        `name`_place.
        """
        keys = [x if isinstance(x, tuple) else (x,) for x in values]
        place = f"code_{columns[0]}"
        if len(columns) > 1 or keys != [(value,) for value in self._codes[columns[0]]]:
            place, keyed = self._combined(name, columns, keys)
            self._encode(place, f"{name}_place", "int64s", keyed or [-1])
        else:
            self.add("Identity", [place], f"{name}_place")
        if not keys:  # the one key that is there, and all others
            table = self._constants[f"{name}_table"]
            self._constants[f"{name}_table"] = np.repeat(table, 2, axis=0)
        self.add("Gather", [f"{name}_table", f"{name}_place"], name)

    def _combined(self, name: str, columns: range, keys: list[Any]) -> tuple[str, list[int]]:
        """One number for the codes of several columns: its tensor, and those of the keys."""
        total, keyed, stride = "", [0] * len(keys), 1
        for i, column in enumerate(columns):
            codes = self._codes[column]
            self._constants[f"{name}_stride_{i}"] = np.array(stride, np.int64)
            self.add("Mul", [f"code_{column}", f"{name}_stride_{i}"], f"{name}_part_{i}")
            if i:
                self.add("Add", [total, f"{name}_part_{i}"], f"{name}_sum_{i}")
            total = f"{name}_sum_{i}" if i else f"{name}_part_{i}"
            keyed = [x + stride * codes[key[i]] for x, key in zip(keyed, keys, strict=True)]
            stride *= len(codes) + 1
        return total, keyed

    def add_levels(self) -> None:
        """Parameters of segments that were not fitted, by level, and `parameters` of all."""
        self._constants |= {
            "root": _stored([self._found.root])[0],
            "behind_rows": np.array([1]),
            "of_segments_number": np.array(len(self._found.segments or []), np.int64),
        }
        others = "root"
        for i, level in enumerate(self._found.levels):
            name = f"of_level_{i}"
            last = level.unseen or level.parameters[0]
            self._constants[f"{name}_table"] = _stored([*level.parameters, last])
            self.gather(name, level.columns, level.values)
            if level.unseen is not None:
                self.add("Add", [others, name], f"others_{i}")
            else:
                self._constants[f"{name}_number"] = np.array(len(level.values), np.int64)
                self._choose(name, others, f"others_{i}")
            others = f"others_{i}"
        self._choose("of_segments", others, "parameters")

    def _choose(self, name: str, other: str, output: str) -> None:
        """The rows of a table where the ids are among its values, else the other parameters."""
        self.add("Less", [f"{name}_place", f"{name}_number"], f"{name}_known")
        self.add("Unsqueeze", [f"{name}_known", "behind_rows"], f"{name}_known_rows")
        self.add("Where", [f"{name}_known_rows", name, other], output)


def _stored(parameters: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Parameters as the graph needs them."""
    table = np.array(list(parameters), float)
    return table * [-1, -1, 1, 2, 1][: table.shape[1]]


def _key_type(found: Curves, column: int) -> type:
    """The type of a column of ids, which are all text or all integers of 64 bits."""
    types = found.types[column]
    if len(types) > 1 or not types <= set(_KEY_TYPES):
        raise ValueError(
            "calibrator: expected segments of text or integers, one type a column, got "
            + " and ".join(sorted(x.__name__ for x in types))
        )
    require_integers(found, 64, "ONNX's tensors")
    require_unicode(found.columns[column])
    return next(iter(types))
