"""Calibrators as text or a model for other programs, which need no platt_jax.

`to_json` and `from_json` keep everything. `to_python`, `to_javascript`, `to_sql` and `to_onnx`
export the computation of probabilities: one sigmoid, or one for each segment and the fallback for
all others; other curves are written in pieces.
`to_sql` needs `pip install 'platt-jax[sql]'`, and `to_onnx` `pip install 'platt-jax[onnx]'`.
"""

from platt_jax.export.javascript import to_javascript
from platt_jax.export.json import from_json, to_json
from platt_jax.export.onnx import to_onnx
from platt_jax.export.python import to_python
from platt_jax.export.sql import SqlExport, to_sql

__all__ = ["SqlExport", "from_json", "to_javascript", "to_json", "to_onnx", "to_python", "to_sql"]
