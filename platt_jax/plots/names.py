"""Names in figures: of curves, and ids of segments, shortened, in a font of their characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from platt_jax.results.segment_calibrator import SegmentCalibrator

# The font that has a box for every character.
_BOXES = "Last Resort"
_HAIR_SPACE = "\u200a"
_WIDE = "WF"  # East Asian widths of characters as wide as two letters


def text(key: Any) -> str:
    """An id as text; the columns of an id of several are separated by commas."""
    parts = key.tolist() if isinstance(key, np.void) else key
    return ", ".join(map(str, parts)) if isinstance(parts, tuple) else str(key)


def kind_of_curve(calibrator: SegmentCalibrator) -> str:
    """What kind of curve the segments have."""
    kind = "sigmoid" if calibrator.curves is None else calibrator.curves.label
    return {"venn_abers": "Venn-Abers"}.get(kind, kind)


def printable(whole: str) -> str:
    """The text as `drawable`, with spaces for line ends."""
    return drawable(" ".join(whole.split()))


def drawable(whole: str) -> str:
    """The text with the Unicode number of each character that cannot be drawn.

    It is not printable, or no installed font has it. So different ids stay different.
    """
    lacking = _fonts(whole)[1] | {ord(x) for x in whole if not x.isprintable() and x != "\n"}
    return "".join(ascii(letter)[1:-1] if ord(letter) in lacking else letter for letter in whole)


def width(characters: str) -> int:
    """The width of a text in letters; Chinese, Japanese and Korean characters are two wide."""
    return sum(2 if unicodedata.east_asian_width(letter) in _WIDE else 1 for letter in characters)


def wrapped(whole: str, columns: int, lines: int) -> str:
    """The text in up to this many lines of up to this width, with … in the middle if it is longer.

    Lines end at spaces where there are any in their second half. The end of a longer text stays, as
    ids often differ there.
    """
    whole = printable(whole)
    room = columns * lines
    if width(whole) > room:
        whole = _ends(whole, room - (lines - 1) * (columns // 4))
    split_lines: list[str] = []
    while whole and len(split_lines) < lines - 1:
        first = _fitting(whole, columns)
        at_space = whole.rfind(" ", len(first) // 2, len(first) + 1)
        cut = at_space if at_space > 0 and len(first) < len(whole) else len(first)
        split_lines.append(whole[:cut].strip())
        whole = whole[cut:].strip()
    if width(whole) > columns:
        whole = _ends(whole, columns)
    return "\n".join([*split_lines, whole] if whole else split_lines)


def distinct(wholes: Sequence[str], columns: int) -> list[str]:
    """Texts in one line of up to this width each, as `wrapped`.

    Where that makes different texts equal, they are without most of what all start and end with.
    """
    wholes = [printable(whole) for whole in wholes]
    shortened = [wrapped(whole, columns, 1) for whole in wholes]
    if len(set(shortened)) == len(set(wholes)):
        return shortened
    start = _shared(wholes)
    end = _shared([whole[start:][::-1] for whole in wholes])
    middles = [whole[start : len(whole) - end] for whole in wholes]
    extra = max(columns - 2 - max(map(width, middles)), 0)  # of the shared start
    context = wholes[0][max(start - extra, 0) : start]
    return [wrapped(f"…{context}{whole}…", columns, 1) for whole in middles]


def _shared(texts: Sequence[str]) -> int:
    """The number of characters that all texts start with."""
    positions = enumerate(zip(*texts, strict=False))
    return next((i for i, letters in positions if len(set(letters)) > 1), min(map(len, texts)))


def in_legend(whole: str) -> str:
    """The text as the label of an artist: drawn as it is, without formulas, and never left out."""
    plain = drawable(whole).replace("$", r"\$")
    return _HAIR_SPACE + plain if plain.startswith("_") else plain  # "_" hides it from legends


def _ends(whole: str, room: int) -> str:
    """The start and the end of a text, with … between."""
    start = _fitting(whole, (room - 1) // 2)
    end = _fitting(whole[::-1], room - 1 - width(start))[::-1]
    return f"{start.rstrip()}…{end.lstrip()}"


def _fitting(whole: str, columns: int) -> str:
    """As much of the start of a text as has this width."""
    used = 0
    for i, letter in enumerate(whole):
        used += width(letter)
        if used > columns:
            return whole[:i]
    return whole


def families(texts: Iterable[str]) -> list[str]:
    """Font families for these texts: the user's, and families with what the user's lacks."""
    return _fonts("".join(texts))[0]


def _fonts(whole: str) -> tuple[list[str], set[int]]:
    """Font families for a text, and the characters that none of the installed fonts has."""
    from matplotlib import font_manager, rcParams

    chosen = list(rcParams["font.family"])
    font = font_manager.findfont(font_manager.FontProperties(family=chosen))
    lacking = {ord(letter) for letter in set(whole) - {"\n"}} - _characters(font)
    installed = [entry for entry in font_manager.fontManager.ttflist if _BOXES not in entry.name]
    for entry in sorted(installed, key=_by_plainness) if lacking else ():
        if covered := lacking & _characters(entry.fname):
            chosen.append(entry.name)
            lacking -= covered
        if not lacking:
            break
    return chosen, lacking


def _by_plainness(entry: Any) -> tuple[bool, bool, str]:
    """Upright fonts of medium weight first."""
    return entry.style != "normal", entry.weight not in (400, "normal", "regular"), entry.name


@lru_cache(maxsize=1024)
def _characters(path: str) -> frozenset[int]:
    """The characters of a font file; none if it cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
