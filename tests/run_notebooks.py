"""The notebooks are stored with their outputs: `python tests/run_notebooks.py --write` stores them.

A notebook runs from top to bottom, in an empty folder, without the user's settings of IPython.
Without --write, what differs from the stored outputs is printed. --write stores the notebooks
whose outputs differ. With names, such as `--write quickstart`, only these run, and are stored in
any case. The stored outputs are those of a CPU.

Outputs of a cell with the tag "varies" are times or properties of the machine: they are stored, but
not compared.
"""

from __future__ import annotations

import base64
import io
import os
import re
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path

import nbclient
import nbformat
import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
VARIES = "varies"
SETUP = f"""\
import runpy
import warnings
# Of one jaxlib; the outputs are those of any.
warnings.filterwarnings("ignore", "jaxlib .* adds up some sums wrongly")
runpy.run_path({str(ROOT / "tests" / "drawn.py")!r})["install"](get_ipython())
del runpy, warnings
"""
_SECONDS = 300  # of one cell, at most
_COLORS = 64  # of a stored picture
_DRAWN_BY = "Software"  # the item of a PNG that names the version of matplotlib
# A pixel at an edge may differ by rounding; a word or a line that differs has hundreds.
_MOST_PIXELS, _MOST_GREY = 100, 51
_NUMBER = re.compile(r"([-+]?\d+(?:,\d{3})*(?:\.\d*)?(?:e[-+]?\d+)?)")


def executed(path: Path, *, compiled: bool = False):
    """The notebook with today's outputs, without times and paths that differ from run to run.

    With `compiled` it shares compiled programs with other processes. One that is stored has the
    times of first calls instead.
    """
    notebook = nbformat.read(path, as_version=4)
    metadata = nbformat.from_dict(notebook.metadata)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(SETUP))
    with tempfile.TemporaryDirectory() as folder:
        # The kernel shares the GPU, if there is one, with other processes.
        settings = {"IPYTHONDIR": folder, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        own = () if compiled else ("JAX_COMPILATION_CACHE_DIR",)
        environment = {x: os.environ[x] for x in os.environ if x not in own}
        client = nbclient.NotebookClient(
            notebook,
            timeout=_SECONDS,
            resources={"metadata": {"path": folder}},
            record_timing=False,
            coalesce_streams=True,
        )
        client.execute(env=environment | settings)
    del notebook.cells[0]
    notebook.metadata = metadata
    for number, cell in enumerate(code_cells(notebook), 1):
        cell.execution_count = number
        for output in cell.outputs:
            if output.output_type == "error":  # of a result's or figure's text
                raise RuntimeError("\n".join(output.traceback))
            if "execution_count" in output:
                output.execution_count = number
            for png in pictures(output):
                output.data["image/png"] = _small(png)
    return notebook


def code_cells(notebook) -> list:
    """Its cells of code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(output) -> list[bytes]:
    """The PNG of an output, if it has one."""
    png = output.get("data", {}).get("image/png")
    return [] if png is None else [base64.b64decode(png)]


def _small(png: bytes) -> str:
    """The picture in few colours, which make a small file."""
    picture, small = Image.open(io.BytesIO(png)), io.BytesIO()
    kept = PngInfo()
    kept.add_text(_DRAWN_BY, picture.info[_DRAWN_BY])
    few = picture.convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE)
    few.save(small, "png", optimize=True, pnginfo=kept)
    return base64.b64encode(small.getvalue()).decode()


def differences(stored, now) -> list[str]:
    """What differs between the outputs of two runs of a notebook, a line each."""
    return [
        f"{before.id}: {what}"
        for before, after in zip(code_cells(stored), code_cells(now), strict=True)
        if VARIES not in before.metadata.get("tags", [])
        for pair in zip_longest(before.outputs, after.outputs, fillvalue={})
        for what in (*_of_texts(*map(_text, pair)), *_of_pictures(*map(pictures, pair)))
    ]


def _text(output) -> str:
    """What was printed, or the result's or the figure's text; HTML shows the same result."""
    return output.get("text", "") or output.get("data", {}).get("text/plain", "")


def _of_texts(before: str, after: str) -> list[str]:
    """The first difference of two texts, apart from spaces and from rounding.

    Rounding may turn the last digit of a number with a decimal point: however small, it decides
    whether 0.12345 is printed as 0.1234 or as 0.1235. Whole numbers are counts.
    """
    parts = (_NUMBER.split(" ".join(text.split())) for text in (before, after))
    for number, (old, new) in enumerate(zip_longest(*parts, fillvalue="")):
        same = _equal_as_printed(old, new) if number % 2 else old.split() == new.split()
        if not same:
            return [f"expected {new!r} for the stored {old!r}"]
    return []


def _equal_as_printed(old: str, new: str) -> bool:
    if old == new or "" in (old, new):
        return old == new
    unit = max(map(_last_digit, (old, new)))
    apart = abs(float(old.replace(",", "")) - float(new.replace(",", "")))
    return bool(apart < 1.5 * unit)


def _last_digit(number: str) -> float:
    """What one in the last digit of a number with a decimal point is worth; 0 of a whole number."""
    digits, _, exponent = number.partition("e")
    _, point, decimals = digits.partition(".")
    return 10.0 ** (int(exponent or 0) - len(decimals)) if point or exponent else 0.0


def _of_pictures(before: list[bytes], after: list[bytes]) -> list[str]:
    """How two pictures differ; of other versions of matplotlib only whether there is one."""
    if len(before) != len(after):
        return ["a picture more" if after else "a picture less"]
    found = []
    for stored, drawn in zip(before, after, strict=True):
        old, new = (Image.open(io.BytesIO(png)) for png in (stored, drawn))
        if old.size != new.size:
            found.append(f"a picture of {new.size} pixels, stored with {old.size}")
        elif old.info[_DRAWN_BY] == new.info[_DRAWN_BY]:
            greys = (np.asarray(one.convert("L"), np.int16) for one in (old, new))
            differing = np.count_nonzero(np.abs(np.subtract(*greys)) > _MOST_GREY)
            if differing > _MOST_PIXELS:
                found.append(f"a picture with {differing} other pixels")
    return found


def _main(arguments: list[str]) -> None:
    write = arguments[:1] == ["--write"]
    named = arguments[write:]
    if unknown := {*named} - {path.stem for path in NOTEBOOKS}:
        sys.exit(f"no notebooks: {', '.join(sorted(unknown))}")
    for path in NOTEBOOKS:
        if named and path.stem not in named:
            continue
        now = executed(path)
        found = differences(nbformat.read(path, as_version=4), now)
        print(path.stem, *(found or ["as stored"]), sep="\n  ", flush=True)
        if write and (found or named):
            nbformat.write(now, path)


if __name__ == "__main__":
    _main(sys.argv[1:])
