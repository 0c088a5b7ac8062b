"""The notebooks are stored with the outputs of today, in small files without traces of a machine.

Where the outputs changed: python tests/run_notebooks.py --write.
"""

import base64
import io
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")
pytest.importorskip("nbclient")
pytest.importorskip("pandas")
pytest.importorskip("sklearn.base")  # "sklearn" is a folder here, too

import drawn
import jax
import nbformat
from PIL import Image
from run_notebooks import NOTEBOOKS, code_cells, differences, executed, pictures

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.slow
@each_notebook
def test_the_stored_outputs_are_todays(path):
    now = executed(path, compiled=True)
    if jax.default_backend() != "cpu":
        pytest.skip("it runs; sums are rounded in another way than on a CPU")
    assert differences(read(path), now) == []


@each_notebook
def test_is_stored_as_it_ran_from_top_to_bottom(path):
    notebook = read(path)
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == [*range(1, len(counts) + 1)]
    assert notebook.metadata.kernelspec.name == "python3"


@each_notebook
def test_outputs_are_small_and_name_no_machine(path):
    assert path.stat().st_size < 500_000
    outputs = [output for cell in code_cells(read(path)) for output in cell.outputs]
    assert [x for x in outputs if x.output_type == "error" or x.get("name") == "stderr"] == []
    assert all(len(png) < 60_000 for output in outputs for png in pictures(output))
    texts = json.dumps([x.get("text") or x.data.get("text/plain") for x in outputs])
    assert re.findall(r"/(?:home|root|tmp|usr|work)\b|\b0x[0-9a-f]{6,}|Linux|Warning", texts) == []


def read(path: Path):
    return nbformat.read(path, as_version=4)


def ran(*outputs, tags=()):
    """A notebook of one cell with these outputs: printed texts, or PNGs."""
    cell = nbformat.v4.new_code_cell(id="cell", metadata={"tags": [*tags]})
    for output in outputs:
        if isinstance(output, bytes):
            data = {"image/png": base64.b64encode(output).decode()}
        else:
            data = {"text/plain": output}
        cell.outputs.append(nbformat.v4.new_output("display_data", data))
    return nbformat.v4.new_notebook(cells=[cell])


@pytest.mark.parametrize(
    ("now", "same"),
    [
        ("37 of 217 flagged, loss 0.1234", True),
        ("37  of 217\nflagged, loss 0.1234", True),
        ("37 of 217 flagged, loss 0.1235", True),  # by rounding
        ("37 of 217 flagged, loss 0.1236", False),
        ("38 of 217 flagged, loss 0.1234", False),
        ("37 of 217 flagged, loss -0.1234", False),
        ("37 of 217 flagged, gain 0.1234", False),
        ("37 of 217 flagged", False),
        ("37 of 218, flagged, loss 0.1234", False),
        ("", False),
    ],
)
def test_texts_differ_by_a_count_a_word_or_more_than_rounding(now, same):
    found = differences(ran("37 of 217 flagged, loss 0.1234"), ran(now))
    assert (found == []) == same, found


@pytest.mark.parametrize(("old", "new"), [("1.2e-05", "1.4e-05"), ("1,234.5", "1,235.5")])
def test_the_last_digit_is_known_from_the_exponent_and_the_decimals(old, new):
    assert differences(ran(old), ran(old)) == []
    assert differences(ran(old), ran(new)) != []


def test_a_cell_that_varies_is_not_compared():
    assert differences(ran("0.3 s", tags=["varies"]), ran("0.7 s", tags=["varies"])) == []


def test_an_output_more_or_less_differs():
    assert differences(ran("a"), ran("a", "b")) != []
    assert differences(ran("a", "b"), ran("a")) != []


def drawing(heights, software=None):
    """A PNG of bars of these heights, said to be drawn by this software."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(3, 2))
    ax.bar(range(len(heights)), heights)
    ax.set(ylim=(0, 10))
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": software} if software else {})
    plt.close(figure)
    return file.getvalue()


def test_a_picture_of_other_numbers_differs_unless_another_matplotlib_drew_it():
    one, other = drawing([3, 4, 5]), drawing([3, 4, 6])
    assert differences(ran(one), ran(one)) == []
    assert differences(ran(one), ran(other)) != []
    assert differences(ran(one), ran(drawing([3, 4, 6], software="Matplotlib 4"))) == []
    assert differences(ran(one), ran("a text instead")) != []


def test_a_picture_of_another_size_differs():
    one = drawing([3, 4, 5])
    larger = io.BytesIO()
    Image.open(io.BytesIO(one)).resize((310, 200)).save(larger, "png")
    assert differences(ran(one), ran(larger.getvalue())) != []


def draw(ax, x, y):
    """One artist of each kind, of these numbers."""
    ax.plot(x, y)
    ax.scatter(x, y, label="dots")
    ax.fill_between(x, y - 1, y + 1)
    ax.bar(x, y)
    ax.errorbar(x, y, 0.1)
    ax.imshow(y[None, :])


def test_the_text_of_a_figure_has_every_number_and_word():
    import matplotlib.pyplot as plt
    import numpy as np

    def text(change=0.0, label="score"):
        figure, ax = plt.subplots()
        x, y = np.arange(300.0), np.sin(np.arange(300.0))
        y[17] += change
        draw(ax, x, y)
        ax.set(xlabel=label, xlim=(0, 300), ylim=(-3, 3))
        plt.close(figure)
        return drawn.text(figure)

    kinds = re.findall(r"^  (\w+): ", text(), re.M)
    assert sorted({*kinds}) == ["dots", "image", "line", "patches", "shapes"]
    assert differences(ran(text()), ran(text())) == []
    assert differences(ran(text()), ran(text(label="rows"))) != []
    before, after = text().splitlines(), text(change=0.5).splitlines()
    same = [a for a, b in zip(before, after, strict=True) if not differences(ran(a), ran(b))]
    # One of 300 numbers has changed: nothing but the size and the axes' limits is the same.
    assert [line for line in same if line.startswith("  ")] == []
