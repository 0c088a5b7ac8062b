"""The page that shows every segment: what it holds, as bytes, and the script that draws it.

`platt_jax.plots.explore` shows it in a notebook, `platt_jax.report` in a report.
"""

import json
from importlib.resources import files

from platt_jax.plots.explorer.columns import Ids, shortened
from platt_jax.plots.explorer.contents import Contents, contents
from platt_jax.plots.explorer.rows import ExploredRows, JudgedSegments, judged_rows

__all__ = [
    "Contents",
    "ExploredRows",
    "Ids",
    "JudgedSegments",
    "contents",
    "judged_rows",
    "markup",
    "module",
    "script",
    "shortened",
    "style",
]

# In the order in which they are read.
_SCRIPTS = (
    "unpack.js",
    "numbers.js",
    "scales.js",
    "funnel.js",
    "pointing.js",
    "curves.js",
    "chosen.js",
    "table.js",
    "filters.js",
    "explorer.js",
)


def script() -> str:
    """The script, with a function `explorer`."""
    return "\n".join(map(_text, _SCRIPTS))


def style() -> str:
    """The style."""
    return _text("explorer.css")


def markup() -> str:
    """The elements that the script fills."""
    return _text("explorer.html")


def module() -> str:
    """A module for anywidget, with script and markup."""
    return f"const MARKUP = {json.dumps(markup())};\n{script()}\n{_text('widget.js')}"


def _text(name: str) -> str:
    return (files(__package__) / "static" / name).read_text(encoding="utf-8")
