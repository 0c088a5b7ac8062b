"""The gallery shows every figure, by the code beside it."""

import io
import re

import numpy as np
import pytest
from test_picture import DOCS, greys, script

from platt_jax import plots

PAGE = (DOCS / "gallery.md").read_text(encoding="utf-8")
NO_PICTURE = {"alt_text", "explore"}  # words, and a page that the reader moves
MOST_BYTES, MOST_BYTES_OF_ALL = 40_000, 500_000


@pytest.fixture(scope="module")
def gallery():
    return script("draw_gallery")


def test_every_figure_is_named_drawn_and_shown(gallery):
    shown = [code for code, picture in gallery.EXAMPLE.findall(PAGE) if picture]
    drawn = set(re.findall(r"\bplots\.(\w+)", "".join(shown)))
    assert {*plots.__all__} - NO_PICTURE - drawn == set()
    assert set(re.findall(r"^`(\w+)`", PAGE, re.M)) == {*plots.__all__}


def test_pictures_are_light_and_all_in_use(gallery):
    used = {DOCS / picture for _, picture in gallery.EXAMPLE.findall(PAGE) if picture}
    assert {*(DOCS / "images" / "gallery").iterdir()} == used
    sizes = [path.stat().st_size for path in used]
    assert max(sizes) < MOST_BYTES and sum(sizes) < MOST_BYTES_OF_ALL


def test_no_picture_is_without_its_code(gallery):
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE)
    assert pictures == [picture for _, picture in gallery.EXAMPLE.findall(PAGE) if picture]


@pytest.mark.slow
def test_the_pictures_are_those_that_the_code_draws_today(gallery):
    drawn = dict(gallery.drawn())
    assert len(drawn) >= len({*plots.__all__} - NO_PICTURE)
    differing = {}
    for path, data in drawn.items():
        now, committed = greys(io.BytesIO(data)), greys(path)
        assert now.shape == committed.shape, path.name
        # Fonts differ between versions of matplotlib; a figure that changed differs by more.
        differing[path.name] = np.mean(np.abs(now - committed) > 0.2)
    assert [x for x, share in differing.items() if share > 0.01] == [], "docs/draw_gallery.py"
