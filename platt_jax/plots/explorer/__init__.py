"""The page that shows every segment: what it holds, as bytes, and the script that draws it.

`platt_jax.plots.explore` shows it in a notebook, `platt_jax.report` in a report.
"""

from platt_jax.plots.explorer.assets import markup, module, script, style
from platt_jax.plots.explorer.columns import Ids, shortened
from platt_jax.plots.explorer.contents import Contents, contents
from platt_jax.plots.explorer.rows import JudgedSegments, PredictedRows, judged_rows

__all__ = [
    "Contents",
    "Ids",
    "JudgedSegments",
    "PredictedRows",
    "contents",
    "judged_rows",
    "markup",
    "module",
    "script",
    "shortened",
    "style",
]
