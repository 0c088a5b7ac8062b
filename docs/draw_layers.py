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
_WIDTH = 640
_BEGIN, _END = "```mermaid\n", "```\n"


def diagram() -> str:
    """The diagram in Mermaid's language."""
    arrows = _without_implied(_imports())
    lines = [f"    {above} --> {' & '.join(arrows[above])}\n" for above in sorted(arrows)]
    return "flowchart TD\n" + "".join(lines)


def drawn() -> str:
    """The diagram that architecture.md has."""
    return _page_parts()[1]


def svg(mermaid: str) -> str:
    """A diagram as an image: what imports stands above what is imported."""
    lines_in = [line.split(" --> ") for line in mermaid.split("\n    ")[1:]]
    arrows = [(above, x.strip()) for above, below in lines_in for x in below.split(" & ")]
    place = _places(arrows)
    lines, boxes = [], []
    for above, below in arrows:
        (x, y), (to_x, to_y) = place[above], place[below]
        middle = (y + to_y) / 2
        curve = f"M{x},{y + 14} C{x},{middle} {to_x},{middle} {to_x},{to_y - 16}"
        lines.append(f'<path d="{curve}" fill="none" marker-end="url(#tip)"/>')
    for name, (x, y) in place.items():
        boxes.append(
            f'<rect x="{x - 46}" y="{y - 14}" width="92" height="28" rx="5"/>'
            f'<text x="{x}" y="{y + 5}" text-anchor="middle">{name}</text>'
        )
    height = max(y for _, y in place.values()) + 20
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    tip += 'orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker>'
    return (
        f'<svg class="layers" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="imports between packages"><defs>{tip}</defs>{"".join(lines + boxes)}</svg>'
    )


def _places(arrows):
    """The middles of boxes, in rows: each package one below the lowest of those that import it."""
    importers: dict[str, list[str]] = {name: [] for arrow in arrows for name in arrow}
    for above, below in arrows:
        importers[below].append(above)

    def row(name):
        return 1 + max(map(row, importers[name]), default=-1)

    rows: dict[int, list[str]] = {}
    for name in sorted(importers):
        rows.setdefault(row(name), []).append(name)
    place: dict[str, tuple[float, float]] = {}
    for number in sorted(rows):

        def mean_of_importers(name):
            return sum(place[x][0] for x in importers[name]) / max(len(importers[name]), 1)

        names = sorted(rows[number], key=mean_of_importers)
        for i, name in enumerate(names):
            place[name] = _WIDTH * (i + 0.5) / len(names), 20 + 62 * number
    return place


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
