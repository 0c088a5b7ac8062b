"""``python -m tests.gauntlet [--worlds 0:2000] [--only NAME ...]`` prints what is broken."""

import argparse
import sys
import time
from collections import Counter

from .cell import Bench
from .promises import LINES
from .trial import broken_cells
from .worlds import world


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gauntlet", description=__doc__)
    parser.add_argument("--worlds", default="0:60", help="first:last, the seeds (0:60)")
    parser.add_argument("--only", nargs="+", choices=LINES, metavar="NAME", help=", ".join(LINES))
    args = parser.parse_args()
    first, last = (int(x) for x in args.worlds.split(":"))
    cells, broken, start = 0, Counter(), time.time()
    for seed in range(first, last):
        bench = Bench(world(seed))
        tried, found = broken_cells(bench, args.only)
        cells += tried
        if found:
            print(f"world {seed}: {bench.world.about}")
        for cell in found:
            broken[cell.function] += 1
            print(cell, flush=True)
    seconds = time.time() - start
    print(f"{broken.total()} of {cells} cells broken in {seconds:.0f} s")
    for name, number in broken.most_common():
        print(f"{number:6} {name}")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
