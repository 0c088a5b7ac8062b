"""Draws how the packages of platt_jax import each other, as in docs/architecture.md.

python docs/draw_layers.py prints the diagram; with --write it replaces the one in architecture.md.
An arrow that other arrows imply is left out.
"""

import ast
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs" / "architecture.md"
_PACKAGE = "platt_jax"
_BEGIN, _END = "```mermaid\n", "```\n"


def diagram() -> str:
    """The diagram in Mermaid's language."""
    arrows = _without_implied(_imports())
    lines = [f"    {above} --> {below}\n" for above in sorted(arrows) for below in arrows[above]]
    return "flowchart TD\n" + "".join(lines)


def drawn() -> str:
    """The diagram that architecture.md has."""
    return _page_parts()[1]


def _page_parts():
    before, _, rest = _PAGE.read_text().partition(_BEGIN)
    found, _, after = rest.partition(_END)
    return before, found, after


def _imports() -> dict[str, set[str]]:
    """Which packages and modules at the top import which others."""
    imports: dict[str, set[str]] = {}
    for file in (_ROOT / _PACKAGE).rglob("*.py"):
        importer = file.relative_to(_ROOT / _PACKAGE).parts[0].removesuffix(".py")
        if importer.startswith("__"):
            continue
        for imported in _imported(ast.parse(file.read_text())):
            if imported != importer:
                imports.setdefault(importer, set()).add(imported)
    return imports


def _imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == _PACKAGE:
            inner = node.module.split(".")[1:2]
            yield from inner or [name.name for name in node.names if _is_ours(name.name)]


def _is_ours(name):
    here = _ROOT / _PACKAGE / name
    return here.is_dir() or here.with_suffix(".py").exists()


def _without_implied(imports):
    def reached(start):
        found = set()
        for below in imports.get(start, ()):
            found |= {below} | reached(below)
        return found

    return {
        above: sorted(all_below - set().union(*map(reached, all_below)))
        for above, all_below in imports.items()
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        before, _, after = _page_parts()
        _PAGE.write_text(before + _BEGIN + diagram() + _END + after)
    else:
        print(diagram(), end="")
