"""No circle of files: lazy imports, imports by name and those for type checkers count."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = "platt_jax"
ROOT = Path(__file__).parents[1]


def modules(root: Path) -> dict[str, Path]:
    """The files of the package by the names of their modules."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts if parts[-1] != "__init__" else parts[:-1])] = path
    return found


def imported(path: Path, package: str) -> Iterator[str]:
    """What a file names in imports, wherever they stand: of `from a import b` a.b.

    Of `import_module` and `__import__` it is what they are given, if that is a constant.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            called = called.id if isinstance(called, ast.Name) else called
            if called in ("import_module", "__import__"):
                yield from (str(x.value) for x in node.args if isinstance(x, ast.Constant))


@cache
def bound(path: Path) -> set[str]:
    """The names that a package takes from its modules; one may be called as its module.

    What it takes from itself are modules.
    """
    if path.stem != "__init__":
        return set()
    nodes = ast.walk(ast.parse(path.read_text()))
    found = [x for x in nodes if isinstance(x, ast.ImportFrom) and x.module != path.parent.name]
    return {alias.asname or alias.name for node in found for alias in node.names}


def imports(root: Path) -> dict[str, set[str]]:
    """For each module those that it imports: itself left out, and names that are no module cut."""
    files = modules(root)
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        found[name] = set()
        for target in imported(path, package):
            above, _, last = target.rpartition(".")
            if above in files and last in bound(files[above]):
                found[name] |= {above} - {name}
            while target and target not in files:
                target = target.rpartition(".")[0]
            found[name] |= {target} - {name, ""}
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        path.append(node)
        for below in sorted(graph[node]):
            if below not in number:
                visit(below)
                lowest[node] = min(lowest[node], lowest[below])
            elif below in path:
                lowest[node] = min(lowest[node], number[below])
        if lowest[node] == number[node]:
            component = path[path.index(node) :]
            del path[path.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return found


def test_no_circle_of_files():
    """Imports in functions and for type checkers count, and those by name."""
    graph = imports(ROOT)
    assert len(graph) > 150 and graph["platt_jax.cli.commands"] >= {"platt_jax.report"}
    assert circles(graph) == []


def test_circles_are_found_in_every_kind_of_import(tmp_path):
    files = {
        "__init__": "from platt_jax.a import f",
        "a": "def f():\n    from platt_jax import b",
        "b": "if TYPE_CHECKING:\n    import platt_jax.c as c",
        "c": "import_module('platt_jax.sub.d').g()",
        "sub/__init__": "",
        "sub/d": "from . import e",
        "sub/e": "from ..a import f\nfrom .f import h",
        "sub/f": "from importlib import import_module\nx = 'platt_jax.sub.e'",
    }
    for name, text in files.items():
        path = tmp_path / PACKAGE / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    circle = ["platt_jax.a", "platt_jax.b", "platt_jax.c", "platt_jax.sub.d", "platt_jax.sub.e"]
    assert circles(imports(tmp_path)) == [circle]
