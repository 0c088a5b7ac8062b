"""A calibrator as an ONNX model."""

from typing import Any, Literal

import numpy as np

from platt_jax import validation
from platt_jax.export.curves import Curves, Exportable, curves
from platt_jax.export.onnx_parameters import parameters_of
from platt_jax.extras import install_hint
from platt_jax.results.averages import nodes
from platt_jax.version import __version__

# Versions of 2023 and 2021, which every later runtime supports.
_OPSET, _ML_OPSET, _IR_VERSION = 18, 3, 9
# Types of scores, and their names in ONNX.
_DTYPES = {"float32": "FLOAT", "float64": "DOUBLE"}
# The columns of `parameters`, see `onnx_parameters`.
_COLUMNS = "slope", "intercept", "AA", "twice_AB", "BB"


def to_onnx(calibrator: Exportable, *, dtype: Literal["float32", "float64"] = "float64") -> Any:
    """A calibrator as an ONNX model: scores and segments in, probabilities out.

    The inputs are `score`, (N,) of the given dtype, and, unless it is one sigmoid, `segment`, (N,)
    text or int64; for ids of several columns `segment_0`, `segment_1` and so on. The outputs are
    `logit` and `probability`, float64 (N,). `probability` is that of `predict_proba`, within
    rounding; with a population the error is at most 1e-7 where the standard deviation of the
    log-odds is up to 2. `logit` is then the mean of the log-odds, not the log-odds of
    `probability`. Segments that were not fitted get the fallback, or the population's mean, given
    what the levels say of their values.

    Args:
        calibrator: a SegmentCalibrator whose ids are columns of text or integers; a Sigmoid; or a
            Fit of one problem.
        dtype: the type of `score`. A model of ONNX has inputs of one type each, and a runtime
            refuses all others: take "float32" behind a classifier of float32. Everything is
            computed in float64 nevertheless.

    Returns:
        An `onnx.ModelProto`, checked by `onnx.checker`. `SerializeToString()` gives its bytes.

    Raises:
        ValueError: an argument is not as above; or the calibrator has integer ids of more than 64
            bits, or text that UTF-8 cannot hold.
        ImportError: onnx is missing.

    Example:
        >>> from platt_jax import fit_segments
        >>> model = to_onnx(fit_segments([2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"]))
        >>> [x.name for x in model.graph.input]
        ['score', 'segment']
    """
    with install_hint("to_onnx needs onnx", "platt-jax[onnx]"):
        import onnx
        from onnx import TensorProto, helper

    validation.require_one_of(dtype, tuple(_DTYPES), "dtype")
    found = curves(calibrator)
    rows = ["N"]
    inputs = [helper.make_tensor_value_info("score", getattr(TensorProto, _DTYPES[dtype]), rows)]
    widened = helper.make_node("Cast", ["score"], ["wide_score"], to=TensorProto.DOUBLE)
    parameters = parameters_of(found, helper)
    inputs += [
        helper.make_tensor_value_info(name, getattr(TensorProto, kind), rows)
        for name, kind in parameters.inputs
    ]
    probability = _mean(helper) if found.averaged else _sigmoid(helper, "logit")
    graph = helper.make_graph(
        [*parameters.nodes, widened, *_logit(helper), *probability],
        "platt_jax",
        inputs,
        [
            helper.make_tensor_value_info(x, TensorProto.DOUBLE, rows)
            for x in ("logit", "probability")
        ],
        initializer=[
            onnx.numpy_helper.from_array(array, name)
            for name, array in (_constants(found) | parameters.constants).items()
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
    """The initializers of the rest of the graph, by name."""
    constants = {"zero": np.zeros(()), "one": np.ones(())}
    columns = _COLUMNS[: len(found.names)]
    constants |= {f"number_{name}": np.array(i) for i, name in enumerate(columns)}
    if found.averaged:
        at, weight = np.array(nodes()).T
        constants |= {"nodes": at, "weights": weight, "behind": np.array([1])}
    return constants


def _column(helper: Any, name: str) -> Any:
    """A node of one of the parameters of each row."""
    return helper.make_node("Gather", ["parameters", f"number_{name}"], [name], axis=-1)


def _logit(helper: Any) -> list[Any]:
    """Nodes of the mean log-odds."""
    return [
        *(_column(helper, name) for name in ("slope", "intercept")),
        helper.make_node("Mul", ["slope", "wide_score"], ["product"]),
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
        *(_column(helper, name) for name in ("AA", "twice_AB", "BB")),
        helper.make_node("Mul", ["AA", "wide_score"], ["by_score"]),
        helper.make_node("Add", ["by_score", "twice_AB"], ["rising"]),
        helper.make_node("Mul", ["rising", "wide_score"], ["risen"]),
        helper.make_node("Add", ["risen", "BB"], ["variance"]),
        helper.make_node("Max", ["variance", "zero"], ["positive_variance"]),
        helper.make_node("Sqrt", ["positive_variance"], ["deviation"]),
        helper.make_node("Unsqueeze", ["logit", "behind"], ["middle"]),
        helper.make_node("Unsqueeze", ["deviation", "behind"], ["unit"]),
        helper.make_node("Mul", ["unit", "nodes"], ["off"]),
        helper.make_node("Add", ["middle", "off"], ["logits"]),
        *_sigmoid(helper, "logits", "probabilities"),
        helper.make_node("MatMul", ["probabilities", "weights"], ["probability"]),
    ]
