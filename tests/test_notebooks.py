"""The notebooks run from top to bottom, and are kept without what they print."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks():
    assert NOTEBOOKS


@each_notebook
def test_runs_without_an_error(path, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    for guest in ("ipykernel", "matplotlib", "pandas", "sklearn"):
        pytest.importorskip(guest)
    # The kernel shares the GPU, if there is one, with the process of the tests.
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))

    notebook = nbformat.read(path, as_version=4)
    here = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=here).execute()

    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)


@each_notebook
def test_is_kept_without_outputs(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["id"] for cell in cells if cell["outputs"]] == []
    assert [cell["id"] for cell in cells if cell["execution_count"] is not None] == []
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
