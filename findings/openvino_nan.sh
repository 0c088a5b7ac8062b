#!/usr/bin/env bash
# OpenVINO on a CPU: an ONNX model of doubles with a NaN among its inputs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet openvino==2026.4.1 onnx==1.23.2 numpy==2.4.6
cat > "$folder/program.py" <<'PY'
import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper

X = np.array([-100.0, np.nan])


def answer(*nodes):
    """What the model with these nodes from x to y says of X."""
    graph = helper.make_graph(
        [helper.make_node(*node) for node in nodes],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, ["N"])],
        initializer=[
            onnx.numpy_helper.from_array(np.zeros(()), "zero"),
            onnx.numpy_helper.from_array(np.ones(()), "one"),
        ],
    )
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    onnx.checker.check_model(model, full_check=True)
    core = openvino.Core()
    return core.compile_model(core.read_model(model.SerializeToString(), b""), "CPU")([X])[0]


exponential = answer(("Exp", ["x"], ["y"]))
chosen = answer(("GreaterOrEqual", ["x", "zero"], ["c"]), ("Where", ["c", "one", "zero"], ["y"]))
print(f"{exponential[0]:.3g} {exponential[1]:.3g} {chosen[1]:.3g}")
PY
echo "openvino 2026.4.1, on a CPU"
echo "guess: exp(-100), exp(NaN), and whether NaN >= 0: 3.72e-44 nan 0"
seen=$("$folder/venv/bin/python" "$folder/program.py")
echo "seen: exp(-100), exp(NaN), and whether NaN >= 0: $seen"
test "$seen" = "0 3.4e+38 1"
