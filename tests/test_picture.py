"""The pictures of README and site are those that their scripts draw today."""

import importlib.util
import io
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[1] / "docs"


def script(name):
    """The module of a script in docs/."""
    pytest.importorskip("matplotlib")
    place = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def skip_unless_drawn_by(version, software):
    if version not in software:
        pytest.skip(f"drawn by another version of matplotlib: {software}")


def greys(file):
    """A PNG's pixels, as grey from 0 to 1."""
    from matplotlib.image import imread

    return imread(file)[..., :3].mean(-1)


@pytest.mark.slow
def test_the_picture_is_todays():
    drawing = script("draw_picture")
    import matplotlib.pyplot as plt
    from PIL import Image

    with Image.open(drawing.PICTURE) as picture:
        skip_unless_drawn_by(plt.matplotlib.__version__, picture.info["Software"])
    drawn = io.BytesIO()
    figure = drawing.draw()
    figure.savefig(drawn, dpi=120)
    plt.close(figure)
    drawn.seek(0)
    now, committed = greys(drawn), greys(drawing.PICTURE)
    assert now.shape == committed.shape
    # A pixel at an edge may differ by rounding; a word or a line that differs has hundreds.
    differing = np.count_nonzero(np.abs(now - committed) > 0.2)
    assert differing < 100, f"{differing} pixels differ: run docs/draw_picture.py"


@pytest.fixture(scope="module")
def animation():
    """The module that draws the animation, where Pillow reads what it drew."""
    drawing = script("draw_animation")
    from PIL import features

    if not features.check("webp"):
        pytest.skip("this Pillow reads no WebP")
    return drawing


def grey(picture):
    """A Pillow image's pixels, as grey from 0 to 1."""
    return np.asarray(picture.convert("RGB")).mean(-1) / 255


def ends(pictures):
    """The first and the last picture of an animation, in grey."""
    for number in (0, pictures.n_frames - 1):
        pictures.seek(number)
        yield grey(pictures)


def test_the_animation_is_light_and_moves(animation):
    from PIL import Image

    assert animation.ANIMATION.stat().st_size < 1_000_000
    with Image.open(animation.ANIMATION) as pictures:
        assert pictures.n_frames > 10
        assert pictures.info["loop"] == 0, "it stops"
        first, last = ends(pictures)
    assert np.mean(np.abs(first - last) > 0.2) > 0.1


@pytest.mark.slow
def test_the_animation_is_todays(animation):
    from PIL import ExifTags, Image

    with Image.open(animation.ANIMATION) as pictures:
        software = pictures.getexif()[ExifTags.Base.Software]
        skip_unless_drawn_by(animation.matplotlib.__version__, software)
        committed = list(ends(pictures))
    curves = animation.curves()
    for part, there in zip((0, 1), committed, strict=True):
        now = grey(animation.draw(curves, part))
        assert now.shape == there.shape
        # WebP changes no pixel by as much; a word or a digit that differs has hundreds.
        differing = np.count_nonzero(np.abs(now - there) > 0.2)
        assert differing < 100, f"{differing} pixels differ: run docs/draw_animation.py"
