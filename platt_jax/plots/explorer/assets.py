"""Script, style and markup of the page, which a notebook and a report have in common."""

import json
from importlib.resources import files

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
