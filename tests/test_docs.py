"""What the documentation shows is run: docstring examples, and the README's Python."""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import platt_jax
from platt_jax import Flag, Status, curves, inference, metrics, plots

MODULES = [
    module.name
    for module in pkgutil.walk_packages(platt_jax.__path__, "platt_jax.")
    if not module.name.endswith("__main__")
]
# What the examples of a module need, where not every environment of the tests has it.
GUESTS = {
    "platt_jax.cluster.dask": "dask",
    "platt_jax.cluster.ray": "ray",
    "platt_jax.plots.explore": "anywidget",
}
PACKAGES = [platt_jax, inference, metrics, plots, curves]
ROOT = Path(__file__).parents[1]
README, TOUR = ROOT / "README.md", ROOT / "docs" / "tour.md"
INSTALLING = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if "pip install" in page.read_text(encoding="utf-8")
]
DOCUMENTS = [README, *INSTALLING, *sorted((ROOT / "notebooks").glob("*.ipynb"))]
EXAMPLE = re.compile(r"```python\n(.*?)```", re.S)
PRINTED = re.compile(r"```text\n(.*?)```", re.S)
EXAMPLES, OF_TOUR = (EXAMPLE.findall(x.read_text(encoding="utf-8")) for x in (README, TOUR))
DOCS = ROOT / "docs"
# That of leaving SVC(probability=True) is run where its method is tested.
PAGES = [
    DOCS / "index.md",
    *sorted(DOCS.glob("howto/*.md")),
    *sorted(DOCS.glob("explanation/*.md")),
    *sorted(DOCS.glob("stories/*.md")),
]
PAGES_WITH_EXAMPLES = [page for page in PAGES if EXAMPLE.search(page.read_text(encoding="utf-8"))]


def test_the_readme_names_every_extra_and_all_has_those_of_users():
    """Those of a GPU are left out of `all`: which one depends on the driver."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    said = README.read_text(encoding="utf-8").split("Extras: ")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", said)) == set(extras)
    (all_of,) = extras["all"]
    others = {"all", "bench", "cuda12", "cuda13", "docs", "notebook", "test"}
    assert set(all_of.removeprefix("platt-jax[").rstrip("]").split(",")) == set(extras) - others


class Decorated(doctest.DocTestFinder):
    """Finds examples of decorated functions, too."""

    def _from_module(self, module, object):
        return super()._from_module(module, inspect.unwrap(object))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    if name in GUESTS:
        pytest.importorskip(GUESTS[name])
    runner = doctest.DocTestRunner()
    for example in Decorated().find(importlib.import_module(name), name):
        assert runner.run(example).failed == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_is_installed_from_a_checkout(document):
    """No index has the package, so to install it by its name would fail, or install another."""
    commands = re.findall(r"pip install\s+(.*)", document.read_text(encoding="utf-8"))
    assert commands
    assert [what for what in commands if not re.match(r"'?\.", what)] == []


def test_readme_and_tour_have_examples():
    assert EXAMPLES and len(OF_TOUR) >= 5


@pytest.mark.parametrize(
    "example", [*EXAMPLES, *(pytest.param(x, marks=pytest.mark.slow) for x in OF_TOUR)]
)
def test_an_example_of_readme_or_tour_runs_by_itself(example, tmp_path, monkeypatch):
    if "plots.explore" in example:
        pytest.importorskip("anywidget")
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(README), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("folder", ["howto", "stories"])
def test_pages_have_examples(folder):
    pages = {*DOCS.glob(f"{folder}/*.md")} - {DOCS / folder / "index.md"}
    assert pages and pages - {*PAGES_WITH_EXAMPLES} == set()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_in_order(page, tmp_path, monkeypatch, capsys):
    """And print what the page shows, if it shows it."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    text = page.read_text(encoding="utf-8")
    for example in EXAMPLE.findall(text):
        exec(compile(example, str(page), "exec"), names)
    if shown := PRINTED.findall(text):
        assert capsys.readouterr().out == "".join(shown)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_the_reference_has_every_public_name(package):
    text = "".join(x.read_text(encoding="utf-8") for x in DOCS.glob("reference/*.md"))
    if f"automodule:: {package.__name__}\n" in text:
        return
    missing = [x for x in package.__all__ if not re.search(rf":: platt_jax.*\b{x}\n", text)]
    assert missing == []


def test_every_status_and_flag_is_explained():
    text = (DOCS / "explanation" / "numbers.md").read_text(encoding="utf-8")
    assert [x.name for x in (*Status, *Flag) if f"| `{x.name}` | " not in text] == []


@pytest.fixture(scope="module")
def drawing():
    spec = importlib.util.spec_from_file_location("draw_layers", ROOT / "docs" / "draw_layers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_of_the_architecture_is_that_of_the_imports(drawing):
    """Where this fails: python docs/draw_layers.py --write."""
    assert drawing.drawn() == drawing.diagram()


def test_the_image_of_the_architecture_has_every_box_and_arrow_of_the_picture(drawing):
    mermaid = "flowchart TD\n    top --> middle & low\n    middle --> low\n"
    image = drawing.svg(mermaid)
    boxes = re.findall(r'<rect x="[^"]*" y="([^"]*)".*?<text[^>]*>(\w+)</text>', image)
    heights = {name: float(y) for y, name in boxes}
    assert heights["top"] < heights["middle"] < heights["low"] and len(boxes) == 3
    assert image.count("marker-end") == 3


def test_the_files_and_functions_that_are_named_exist():
    text = (ROOT / "benchmarks" / "NOTES.md").read_text(encoding="utf-8")
    folders = [ROOT / name for name in ("platt_jax", "benchmarks")]
    here = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    here += (ROOT / "tests").rglob("*.py")  # its folders have the package's names

    def called(name):
        return [x for x in here if f"/{x.relative_to(ROOT).as_posix()}".endswith(f"/{name}")]

    named = {name.rstrip("/") for name in re.findall(r"`([\w/]+(?:\.py|/))`", text)}
    assert len(named) > 10 and [name for name in named if not called(name)] == []
    functions = re.findall(r"`([\w/]+\.py)` `(\w+)`", text)
    assert [
        (name, function)
        for name, function in functions
        if not any(re.search(rf"\b{function}\b", x.read_text()) for x in called(name))
    ] == []


def test_the_architecture_names_files_by_their_paths_and_describes_every_package():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "platt_jax"
    named = re.findall(r"`([\w/]+\.(?:md|py|toml)|[\w/]+/)`", text)
    missing = [x for x in named if not ((package / x).exists() or (ROOT / x).exists())]
    assert len(named) > 60 and missing == []
    inside = re.findall(r"`(\w+)` in `([\w/]+\.py)`", text)
    absent = [
        (name, path)
        for name, path in inside
        if not re.search(rf"\b{name}\b", (package / path).read_text(encoding="utf-8"))
    ]
    assert len(inside) > 20 and absent == []
    parts = [x for x in package.iterdir() if x.suffix == ".py" or (x / "__init__.py").exists()]
    names = {x.name + "/" * x.is_dir() for x in parts if not x.name.startswith("__")}
    assert sorted(names - {*named}) == []
