"""All functions on one world."""

from collections.abc import Collection
from typing import NamedTuple

from .cell import Bench, run
from .promises import LINES


class Broken(NamedTuple):
    """A cell of the table, and what is broken in it."""

    seed: int
    function: str
    what: list[str]

    def __str__(self) -> str:
        again = f'--worlds {self.seed}:{self.seed + 1} --only "{self.function}"'
        what = "; ".join(self.what)
        return f"  {self.function}: {what}\n    python -m tests.gauntlet {again}"


def broken_cells(
    bench: Bench, only: Collection[str] | None = None, every: int = 1
) -> tuple[int, list[Broken]]:
    """How many cells a world has, and which are broken.

    Args:
        bench: the world.
        only: names of lines, each of which is tried; None for all lines, each as often as it says.
        every: a line is tried in one of so many worlds of those that it says.
    """
    found, tried, seed = [], 0, bench.world.seed
    for place, (name, line) in enumerate(LINES.items()):
        if name not in only if only else (seed + place) % (line.every * every):
            continue
        tried += 1
        what = run(bench, name, line.check)
        if what:
            found.append(Broken(seed, name, what))
    return tried, found
