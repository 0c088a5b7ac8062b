"""A calibrator as an ONNX model."""

from typing import Any

import numpy as np

from platt_jax.export.curves import Curves, Exportable, curves, require_integers
from platt_jax.extras import needing
from platt_jax.results.averages import nodes
from platt_jax.version import __version__

# Versions of 2023 and 2021, which every later runtime supports.
_OPSET, _ML_OPSET, _IR_VERSION = 18, 3, 9

# ONNX names of the segments' types, in a LabelEncoder and in a tensor.
_KEY_TYPES: dict[type, tuple[str, str]] = {str: ("strings", "STRING"), int: ("int64s", "INT64")}


def to_onnx(calibrator: Exportable) -> Any:
    """A calibrator as an ONNX model: scores and segments in, probabilities out.

    The inputs are `score`, float64 (N,), and, unless it is one sigmoid, `segment`, (N,) text or
    int64. The outputs are `logit` and `probability`, float64 (N,). `probability` is that of
    `predict_proba`, within rounding; with a population the error is at most 1e-7 where the standard
    deviation of the log-odds is up to 2. `logit` is then the mean of the log-odds, not the log-odds
    of `probability`. Segments that were not fitted get the fallback, or the population's mean.

    Args:
        calibrator: a SegmentCalibrator whose ids are one column of text or integers; a Sigmoid; or
            a Fit of one problem.

    Returns:
        An `onnx.ModelProto`, checked by `onnx.checker`. `SerializeToString()` gives its bytes.

    Raises:
        ValueError: calibrator is not as above, or has integer ids of more than 64 bits.
        ImportError: onnx is missing.

    Example:
        >>> from platt_jax import fit_segments
        >>> model = to_onnx(fit_segments([2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"]))
        >>> [x.name for x in model.graph.input]
        ['score', 'segment']
    """
    with needing("to_onnx needs onnx", "platt-jax[onnx]"):
        import onnx
        from onnx import TensorProto, helper

    found = curves(calibrator)
    rows = ["N"]
    inputs = [helper.make_tensor_value_info("score", TensorProto.DOUBLE, rows)]
    if found.segments is None:
        place = helper.make_node("Constant", [], ["place"], value_int=0)
    else:
        key_type = _key_type(found)
        name, kind = _KEY_TYPES[key_type]
        inputs.append(helper.make_tensor_value_info("segment", getattr(TensorProto, kind), rows))
        # Indices of the segments; the fallback's is the last. LabelEncoder needs at least one key.
        keys: dict[str, Any] = {f"keys_{name}": found.segments or [key_type()]}
        place = helper.make_node(
            "LabelEncoder",
            ["segment"],
            ["place"],
            domain="ai.onnx.ml",
            values_int64s=list(range(max(1, len(found.segments)))),
            default_int64=len(found.segments),
            **keys,
        )
    probability = _mean(helper) if found.averaged else _sigmoid(helper, "logit")
    graph = helper.make_graph(
        [place, *_logit(helper), *probability],
        "platt_jax",
        inputs,
        [
            helper.make_tensor_value_info(x, TensorProto.DOUBLE, rows)
            for x in ("logit", "probability")
        ],
        initializer=[
            onnx.numpy_helper.from_array(array, name) for name, array in _constants(found).items()
        ],
    )
    model = helper.make_model(
        graph,
        producer_name="platt_jax",
        producer_version=__version__,
        ir_version=_IR_VERSION,
        opset_imports=[
            helper.make_opsetid("", _OPSET),
            helper.make_opsetid("ai.onnx.ml", _ML_OPSET),
        ],
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def _constants(found: Curves) -> dict[str, Any]:
    """The initializers of the graph, by name."""
    table = np.array([*found.parameters, found.fallback])
    constants = {"zero": np.zeros(()), "one": np.ones(())}
    constants |= {"negative_A": -table[:, 0], "negative_B": -table[:, 1]}
    if found.averaged:
        at, weight = np.array(nodes()).T
        constants |= {"AA": table[:, 2], "twice_AB": 2 * table[:, 3], "BB": table[:, 4]}
        constants |= {"nodes": at, "weights": weight, "behind": np.array([1])}
    return constants


def _logit(helper: Any) -> list[Any]:
    """Nodes of the mean log-odds."""
    return [
        helper.make_node("Gather", ["negative_A", "place"], ["slope"]),
        helper.make_node("Gather", ["negative_B", "place"], ["intercept"]),
        helper.make_node("Mul", ["slope", "score"], ["product"]),
        helper.make_node("Add", ["product", "intercept"], ["logit"]),
    ]


def _sigmoid(helper: Any, logit: str, probability: str = "probability") -> list[Any]:
    """Nodes of `expit`; runtimes' own Sigmoid rounds small probabilities, in the end to 0."""
    return [
        helper.make_node("Abs", [logit], ["distance"]),
        helper.make_node("Neg", ["distance"], ["exponent"]),
        helper.make_node("Exp", ["exponent"], ["e"]),
        helper.make_node("GreaterOrEqual", [logit, "zero"], ["is_likely"]),
        helper.make_node("Where", ["is_likely", "one", "e"], ["numerator"]),
        helper.make_node("Add", ["one", "e"], ["denominator"]),
        helper.make_node("Div", ["numerator", "denominator"], [probability]),
    ]


def _mean(helper: Any) -> list[Any]:
    """Nodes of the mean of the sigmoid over normal log-odds, with one column per `nodes` entry."""
    return [
        *(helper.make_node("Gather", [x, "place"], [f"of_{x}"]) for x in ("AA", "twice_AB", "BB")),
        helper.make_node("Mul", ["of_AA", "score"], ["by_score"]),
        helper.make_node("Add", ["by_score", "of_twice_AB"], ["rising"]),
        helper.make_node("Mul", ["rising", "score"], ["risen"]),
        helper.make_node("Add", ["risen", "of_BB"], ["variance"]),
        helper.make_node("Max", ["variance", "zero"], ["positive_variance"]),
        helper.make_node("Sqrt", ["positive_variance"], ["deviation"]),
        helper.make_node("Unsqueeze", ["logit", "behind"], ["middle"]),
        helper.make_node("Unsqueeze", ["deviation", "behind"], ["unit"]),
        helper.make_node("Mul", ["unit", "nodes"], ["off"]),
        helper.make_node("Add", ["middle", "off"], ["logits"]),
        *_sigmoid(helper, "logits", "probabilities"),
        helper.make_node("MatMul", ["probabilities", "weights"], ["probability"]),
    ]


def _key_type(found: Curves) -> type:
    """The type of the segments, which are all text or all integers of 64 bits."""
    types = found.types[0] if len(found.types) == 1 else {tuple}
    if len(types) > 1 or not types <= set(_KEY_TYPES):
        raise ValueError(
            "calibrator: expected segments of one column, text or integers, got "
            + " and ".join(sorted(x.__name__ for x in types))
        )
    require_integers(found, 64, "ONNX's tensors")
    return next(iter(types))
