"""The graph of an ONNX model: the parameters of each row's curve, and its probability.

Curves that are no sigmoids are in pieces: each row's is found by bisection in a table of all.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.export.curves import ExportedCurves, Reached, column_types
from platt_jax.extras import install_hint
from platt_jax.results.averages import nodes
from platt_jax.results.pieces import Pieces, numbers_used
from platt_jax.results.probabilities import FARTHEST
from platt_jax.version import __version__

with install_hint("to_onnx needs onnx", "platt-jax[onnx]"):
    import onnx
    from onnx import TensorProto, helper

# Oldest versions of the domains whose operators are used, of 2023 and 2021, and the version of the
# format, which every later runtime supports.
_OLDEST, _IR_VERSION = {"": 18, "ai.onnx.ml": 3}, 9
# The version of each domain, and of the format.
Versions: TypeAlias = tuple[Mapping[str, int], int]
# Types of scores, and their names in ONNX.
DTYPES = {"float32": "FLOAT", "float64": "DOUBLE"}
# ONNX names of the segments' types, in a LabelEncoder and in a tensor.
_KEY_TYPES: dict[type, tuple[str, str]] = {str: ("strings", "STRING"), int: ("int64s", "INT64")}
_MOST_COMBINATIONS = 2**63
_COLUMNS = "slope", "intercept", "AA", "twice_AB", "BB"  # slope and intercept are -A and -B
# Scores beyond are taken as this one; infinite ones would make a constant NaN.
_LARGEST = 1e300


def versions(opset: int | Mapping[str, int], ir_version: int | None) -> Versions:
    """The versions that `to_onnx` was asked for; see there."""
    opsets = {**_OLDEST, **(opset if isinstance(opset, Mapping) else {"": opset})}
    newest = {
        domain: max(x.since_version for x in onnx.defs.get_all_schemas() if x.domain == domain)
        for domain in _OLDEST
    } | {"": onnx.defs.onnx_opset_version()}
    for domain, version in opsets.items():
        is_valid = domain in _OLDEST and isinstance(version, int)
        if not is_valid or not _OLDEST[domain] <= version <= newest[domain]:
            domains = "; ".join(f"{x!r}: {_OLDEST[x]} to {newest[x]}" for x in newest)
            raise ValueError(f"opset: expected versions of {domains}; got {opset!r}")
    least = helper.find_min_ir_version_for(_imports(opsets))
    if ir_version is None:
        ir_version = max(_IR_VERSION, least)
    if not isinstance(ir_version, int) or not least <= ir_version <= onnx.IR_VERSION:
        raise ValueError(
            f"ir_version: expected {least} to {onnx.IR_VERSION} with opset={opset!r}, "
            f"got {ir_version!r}"
        )
    return opsets, ir_version


def _imports(opsets: Mapping[str, int]) -> list[Any]:
    return [helper.make_opsetid(*opset) for opset in opsets.items()]


def model_of(found: ExportedCurves, dtype: str, cuts: Reached | None, versions: Versions) -> Any:
    """The model of these curves for scores of this dtype, checked; with cuts also its decisions."""
    graph = _Graph(found, dtype)
    outputs = dict.fromkeys(("logit", "probability"), "DOUBLE")
    if cuts is not None:
        graph.add_decisions(cuts)
        outputs["accepted"] = "BOOL"

    def tensors(kinds: dict[str, str]) -> list[Any]:
        return [
            helper.make_tensor_value_info(name, getattr(TensorProto, kind), ["N"])
            for name, kind in kinds.items()
        ]

    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "platt_jax",
            tensors(graph.inputs),
            tensors(outputs),
            initializer=[onnx.numpy_helper.from_array(x, n) for n, x in graph.constants.items()],
        ),
        producer_name="platt_jax",
        producer_version=__version__,
        ir_version=versions[1],
        opset_imports=_imports(versions[0]),
    )
    onnx.checker.check_model(model, full_check=True)
    return model


class _Graph:
    """Nodes, inputs and constants as they are added.

    The tensor `parameters` describes each row's curve. Its last axis has the `_COLUMNS`; or the
    numbers of the curve's first and last piece.
    """

    def __init__(self, found: ExportedCurves, dtype: str) -> None:
        self._found = found
        self.nodes: list[Any] = []
        self.inputs = {"score": DTYPES[dtype]}
        self.constants: dict[str, NDArray[Any]] = {
            "zero": np.zeros(()),
            "one": np.ones(()),
            "nan": np.array(np.nan),
            "one_axis": np.array([-1]),
            "of_segments_table": (
                _stored([*found.parameters, found.fallback])
                if found.pieces is None
                else _first_and_last(found.pieces)
            ),
        }
        if found.segments is None:
            self.add("Constant", [], "place", value_int=0)
            self.add("Gather", ["of_segments_table", "place"], "parameters")
        else:
            self._add_codes()
            self._gather("of_segments", range(len(found.columns)), found.segments)
            if found.levels:
                self._add_levels()
            else:
                self.nodes[-1].output[0] = "parameters"
        self.add("Cast", [self._flat("score")], "wide_score", to=TensorProto.DOUBLE)
        if found.pieces is not None:
            self._add_pieces(found.pieces)
            return
        self._add_logit()
        if found.averaged:
            self._add_mean()
        else:
            self._add_sigmoid("logit", "probability")

    def add(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        """Adds a node with one output."""
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))

    def _flat(self, source: str) -> str:
        """An input (N,). Behind a classifier it may be (N, 1), whose rows would meet all others."""
        self.add("Reshape", [source, "one_axis"], f"{source}_by_row")
        return f"{source}_by_row"

    def add_decisions(self, cuts: Reached) -> None:
        """Whether sign score >= sign threshold, where the sign is -1 for curves that fall.

        Thresholds that no score reaches are NaN, which no score compares with.
        """
        sign = np.where(cuts.falls, -1.0, 1.0)
        bound = sign * cuts.at
        self.constants["sign_table"] = sign
        self.constants["bound_table"] = np.where(bound == np.inf, np.nan, bound)
        for name in ("sign", "bound"):
            self.add("Gather", [f"{name}_table", "of_segments_place"], name)
        self.add("Mul", ["sign", "wide_score"], "signed_score")
        self.add("GreaterOrEqual", ["signed_score", "bound"], "accepted")

    def _add_codes(self) -> None:
        """The place of each column's value among the column's values."""
        expected = "calibrator: expected segments of text or integers"
        kinds = column_types(self._found, _KEY_TYPES, expected, 64, "ONNX's tensors")
        names = ["segment"] if len(kinds) == 1 else [f"segment_{i}" for i in range(len(kinds))]
        self._codes: list[dict[Any, int]] = []
        for i, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            in_encoder, self.inputs[name] = _KEY_TYPES[kind]
            values = list(dict.fromkeys(self._found.columns[i]))
            self._codes.append({value: code for code, value in enumerate(values)})
            self._encode(self._flat(name), f"code_{i}", in_encoder, values or [kind()])
        if prod(len(codes) + 1 for codes in self._codes) >= _MOST_COMBINATIONS:
            raise ValueError(
                "calibrator: expected fewer than 2^63 combinations of ids of its columns, got more"
            )

    def _encode(self, source: str, output: str, kind: str, keys: list[Any]) -> None:
        """The place of each value among the keys, or their number. There is at least one key."""
        attributes: dict[str, Any] = {
            "values_int64s": list(range(len(keys))),
            "default_int64": len(keys),
            f"keys_{kind}": keys,
        }
        self.add("LabelEncoder", [source], output, domain="ai.onnx.ml", **attributes)

    def _gather(self, name: str, columns: range, values: Sequence[Any]) -> None:
        """The rows of the table `name`_table at the places of ids among these values.

        A table has one more row than there are values, for other ids. Also adds the tensor
        `name`_place.
        """
        keys = [x if isinstance(x, tuple) else (x,) for x in values]
        source = f"code_{columns[0]}"
        if len(columns) > 1 or keys != [(value,) for value in self._codes[columns[0]]]:
            source, keyed = self._combined(name, columns, keys)
            self._encode(source, f"{name}_place", "int64s", keyed or [-1])
        else:
            self.add("Identity", [source], f"{name}_place")
        if not keys:  # the one key that is there, and all others
            table = self.constants[f"{name}_table"]
            self.constants[f"{name}_table"] = np.repeat(table, 2, axis=0)
        self.add("Gather", [f"{name}_table", f"{name}_place"], name)

    def _combined(self, name: str, columns: range, keys: list[Any]) -> tuple[str, list[int]]:
        """One number for the codes of several columns: its tensor, and the numbers of the keys."""
        total, keyed, stride = "", [0] * len(keys), 1
        for i, column in enumerate(columns):
            codes = self._codes[column]
            self.constants[f"{name}_stride_{i}"] = np.array(stride, np.int64)
            self.add("Mul", [f"code_{column}", f"{name}_stride_{i}"], f"{name}_part_{i}")
            if i:
                self.add("Add", [total, f"{name}_part_{i}"], f"{name}_sum_{i}")
            total = f"{name}_sum_{i}" if i else f"{name}_part_{i}"
            keyed = [x + stride * codes[key[i]] for x, key in zip(keyed, keys, strict=True)]
            stride *= len(codes) + 1
        return total, keyed

    def _add_levels(self) -> None:
        """Parameters of segments that were not fitted, by level, and `parameters` of all."""
        self.constants |= {
            "root": _stored([self._found.root])[0],
            "behind_rows": np.array([1]),
            "of_segments_number": np.array(len(self._found.segments or []), np.int64),
        }
        fallback = "root"
        for i, level in enumerate(self._found.levels):
            name = f"of_level_{i}"
            last = level.unseen or level.parameters[0]
            self.constants[f"{name}_table"] = _stored([*level.parameters, last])
            self._gather(name, level.columns, level.values)
            if level.unseen is not None:
                self.add("Add", [fallback, name], f"others_{i}")
            else:
                self.constants[f"{name}_number"] = np.array(len(level.values), np.int64)
                self._choose(name, fallback, f"others_{i}")
            fallback = f"others_{i}"
        self._choose("of_segments", fallback, "parameters")

    def _choose(self, name: str, other: str, output: str) -> None:
        """The rows of a table where the ids are among its values, else the other parameters."""
        self.add("Less", [f"{name}_place", f"{name}_number"], f"{name}_known")
        self.add("Unsqueeze", [f"{name}_known", "behind_rows"], f"{name}_known_rows")
        self.add("Where", [f"{name}_known_rows", name, other], output)

    def _add_columns(self, *names: str) -> None:
        """Some of the parameters of each row."""
        for name in names:
            self.constants[f"number_{name}"] = np.array(_COLUMNS.index(name))
            self.add("Gather", ["parameters", f"number_{name}"], name, axis=-1)

    def _add_logit(self) -> None:
        self._add_columns("slope", "intercept")
        self.add("Mul", ["slope", "wide_score"], "product")
        self.add("Add", ["product", "intercept"], "logit")

    def _add_pieces(self, pieces: Pieces) -> None:
        """The log-odds and the probability by the piece that a row's score lies in."""
        names = [*numbers_used(pieces), "is_log_odds", "odds"]
        table = [np.asarray(getattr(pieces, name), float) for name in names]
        self.constants |= {
            "pieces_table": np.stack(table, 1),
            "least_score": np.array(-_LARGEST),
            "largest_score": np.array(_LARGEST),
        }
        self.add("Clip", ["wide_score", "least_score", "largest_score"], "within")
        self.add("Gather", ["pieces_table", self._piece(pieces)], "pieces")
        for i, name in enumerate(names):
            self.constants[f"number_{name}"] = np.array(i)
            self.add("Gather", ["pieces", f"number_{name}"], name, axis=-1)
        self.add("IsNaN", ["wide_score"], "is_lost")
        self.add("Where", ["is_lost", "nan", self._value(names)], "value")
        self.add("Cast", ["is_log_odds"], "has_log_odds", to=TensorProto.BOOL)
        # As `platt_jax.logit`, of a value that rounding has left in [0, 1].
        self.constants |= {"lowest": np.array(-FARTHEST), "highest": np.array(FARTHEST)}
        self.add("Clip", ["value", "zero", "one"], "inside")
        self.add("Sub", ["one", "inside"], "against")
        for name in ("inside", "against", "odds"):
            self.add("Log", [name], f"log_{name}")
        self.add("Sub", ["log_inside", "log_against"], "exact")
        self.add("Clip", ["exact", "lowest", "highest"], "clipped")
        self.add("Add", ["clipped", "log_odds"], "shifted")
        self.add("Where", ["has_log_odds", "value", "shifted"], "logit")
        # A probability that was not shifted stays as it is, also 0 and 1.
        self._add_sigmoid("logit", "by_logit")
        self.add("Equal", ["odds", "one"], "is_unshifted")
        self.add("Not", ["has_log_odds"], "has_probability")
        self.add("And", ["is_unshifted", "has_probability"], "is_value")
        self.add("Where", ["is_value", "value", "by_logit"], "probability")

    def _piece(self, pieces: Pieces) -> str:
        """The number of each row's piece: the last of its curve that starts by its score."""
        self.constants |= {"number_first": np.array(0), "number_last": np.array(1)}
        low, high = "first", "last"
        for name in (low, high):
            self.add("Gather", ["parameters", f"number_{name}"], name, axis=-1)
        first, last = _first_and_last(pieces).T
        steps = int((last - first).max()).bit_length()
        if steps:
            self.constants |= {
                "starts": pieces.start,
                "int_one": np.array(1, np.int64),
                "int_two": np.array(2, np.int64),
            }
        for i in range(steps):
            self.add("Add", [low, high], f"ends_{i}")
            self.add("Add", [f"ends_{i}", "int_one"], f"twice_{i}")
            self.add("Div", [f"twice_{i}", "int_two"], f"middle_{i}")
            self.add("Gather", ["starts", f"middle_{i}"], f"start_{i}")
            self.add("LessOrEqual", [f"start_{i}", "within"], f"right_{i}")
            self.add("Sub", [f"middle_{i}", "int_one"], f"before_{i}")
            self.add("Where", [f"right_{i}", f"middle_{i}", low], f"low_{i}")
            self.add("Where", [f"right_{i}", high, f"before_{i}"], f"high_{i}")
            low, high = f"low_{i}", f"high_{i}"
        return low

    def _value(self, names: Sequence[str]) -> str:
        """The polynomial of each row's piece by Horner's scheme, and its bend."""
        if "scale" in names:
            argument = "within"
            if "origin" in names:
                self.add("Sub", [argument, "origin"], "apart")
                argument = "apart"
            self.add("Mul", ["scale", argument], "x")
        degrees = [name for name in ("c3", "c2", "c1", "c0") if name in names]
        value = degrees[0]
        for degree in range(int(value[1]) - 1, -1, -1):
            self.add("Mul", ["x", value], f"risen_{degree}")
            value = f"risen_{degree}"
            if f"c{degree}" in degrees:
                self.add("Add", [f"c{degree}", value], f"polynomial_{degree}")
                value = f"polynomial_{degree}"
        if "bend" not in names:
            return value
        # Where e is small, 1 + e lacks its digits, and log(1 + e) is e - e^2 / 2.
        self.constants |= {"half": np.array(0.5), "near_score": np.array(12.0)}
        self.add("Abs", ["within"], "size")
        self.add("Neg", ["size"], "minus_size")
        self.add("Exp", ["minus_size"], "tail")
        self.add("Add", ["one", "tail"], "one_and_tail")
        self.add("Log", ["one_and_tail"], "near_tail")
        self.add("Mul", ["tail", "half"], "half_tail")
        self.add("Sub", ["one", "half_tail"], "one_less_half")
        self.add("Mul", ["tail", "one_less_half"], "far_tail")
        self.add("Less", ["size", "near_score"], "is_near")
        self.add("Where", ["is_near", "near_tail", "far_tail"], "log_tail")
        self.add("Mul", ["bend", "log_tail"], "bent")
        self.add("Add", [value, "bent"], "bent_value")
        return "bent_value"

    def _add_sigmoid(self, logit: str, probability: str) -> None:
        """`expit`; runtimes' own Sigmoid rounds small probabilities, in the end to 0.

        In OpenVINO the exponential of NaN is a number, and NaN is above 0.
        """
        self.add("Abs", [logit], "distance")
        self.add("Neg", ["distance"], "exponent")
        self.add("Exp", ["exponent"], "e")
        self.add("GreaterOrEqual", [logit, "zero"], "is_likely")
        self.add("Where", ["is_likely", "one", "e"], "numerator")
        self.add("Add", ["one", "e"], "denominator")
        self.add("Div", ["numerator", "denominator"], f"{probability}_of_number")
        self.add("IsNaN", [logit], f"no_{logit}")
        self.add("Where", [f"no_{logit}", "nan", f"{probability}_of_number"], probability)

    def _add_mean(self) -> None:
        """The mean of the sigmoid over normal log-odds, with one column per `nodes` entry."""
        points, weight = np.array(nodes()).T
        self.constants |= {"nodes": points, "weights": weight, "behind": np.array([1])}
        self._add_columns("AA", "twice_AB", "BB")
        self.add("Mul", ["AA", "wide_score"], "by_score")
        self.add("Add", ["by_score", "twice_AB"], "rising")
        self.add("Mul", ["rising", "wide_score"], "risen")
        self.add("Add", ["risen", "BB"], "variance")
        self.add("Max", ["variance", "zero"], "positive_variance")
        self.add("Sqrt", ["positive_variance"], "deviation")
        self.add("Unsqueeze", ["logit", "behind"], "middle")
        self.add("Unsqueeze", ["deviation", "behind"], "unit")
        self.add("Mul", ["unit", "nodes"], "off")
        self.add("Add", ["middle", "off"], "logits")
        self._add_sigmoid("logits", "probabilities")
        self.add("MatMul", ["probabilities", "weights"], "probability")


def _first_and_last(pieces: Pieces) -> NDArray[np.int64]:
    """(K, 2), the numbers of the first and last piece of each curve."""
    first = np.flatnonzero(np.append(True, np.diff(pieces.curve) != 0))
    return np.stack([first, np.append(first[1:], len(pieces)) - 1], 1)


def _stored(parameters: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Parameters as the graph needs them."""
    table = np.array(list(parameters), float)
    return table * [-1, -1, 1, 2, 1][: table.shape[1]]
