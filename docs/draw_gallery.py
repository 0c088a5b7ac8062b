"""Runs the code of gallery.md and writes its pictures: ``python docs/draw_gallery.py``."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from PIL import Image

PAGE = Path(__file__).parent / "gallery.md"
# Code, and the picture that follows it if it draws one.
EXAMPLE = re.compile(r"```python\n(.*?)```(?:\n\n!\[[^\]]+\]\((images/gallery/\w+\.png)\))?", re.S)
DPI, MOST_PIXELS = 100, 850  # across
COLOURS = 256


def drawn() -> Iterator[tuple[Path, bytes]]:
    """Each picture of the page, as its code draws it."""
    names = {"__name__": "__main__"}
    for code, picture in EXAMPLE.findall(PAGE.read_text(encoding="utf-8")):
        plt.close("all")
        exec(compile(code, PAGE.name, "exec"), names)
        if picture:
            yield PAGE.parent / picture, png(plt.gcf())
    plt.close("all")


def png(figure: plt.Figure) -> bytes:
    """The figure as a PNG with a palette, which has half the bytes."""
    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, dpi=min(DPI, MOST_PIXELS / figure.get_figwidth()))
    with Image.open(whole) as picture:
        palette = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    palette.save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    for path, data in drawn():
        path.write_bytes(data)
        print(f"{path.name}: {len(data) / 1024:.0f} kB")
