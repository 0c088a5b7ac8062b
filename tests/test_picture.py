"""The README's picture is the one that its script draws today."""

import importlib.util
import io
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("matplotlib")
    place = importlib.util.spec_from_file_location("draw_picture", DOCS / "draw_picture.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def greys(file):
    """A PNG's pixels, as grey from 0 to 1."""
    from matplotlib.image import imread

    return imread(file)[..., :3].mean(-1)


def test_the_picture_is_todays(script):
    import matplotlib.pyplot as plt
    from PIL import Image

    with Image.open(script.PICTURE) as picture:
        software = picture.info["Software"]
    if plt.matplotlib.__version__ not in software:
        pytest.skip(f"drawn by another version of matplotlib: {software}")
    drawn = io.BytesIO()
    figure = script.draw()
    figure.savefig(drawn, dpi=120)
    plt.close(figure)
    drawn.seek(0)
    now, committed = greys(drawn), greys(script.PICTURE)
    assert now.shape == committed.shape
    # A pixel at an edge may differ by rounding; a word or a line that differs has hundreds.
    differing = np.count_nonzero(np.abs(now - committed) > 0.2)
    assert differing < 100, f"{differing} pixels differ: run docs/draw_picture.py"
