"""What the commands share: arguments, where results go, tables, and work kept between runs."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from benchmarks.native import cache_folder

COLORS = ["#1f4e79", "#d1701f", "#3c8c5a", "#8a4f9e", "#b03a48"]


def arguments(command: str, description: str | None, argv: Sequence[str] | None):
    """--data, --out and --quick."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.papers.{command}", description=description
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the folder of the .npz files; else OpenML"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "results" / "papers"
    )
    parser.add_argument("--quick", action="store_true", help="a small part: does it all run?")
    return parser.parse_args(argv)


def write(args, command: str, text: str, figure: Figure) -> None:
    """Print the report, and write it and its figure."""
    quick = "-quick" if args.quick else ""
    packages = ("platt-jax", "jax", "numpy", "scipy", "scikit-learn")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    option = " --quick" if args.quick else ""
    text += f"\n`python -m benchmarks.papers.{command} --data DIR{option}`, with {versions}.\n"
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{command}{quick}.md").write_text(text)
    figure.savefig(args.out / f"{command}{quick}.png", dpi=110)
    plt.close(figure)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def verdict(holds: bool) -> str:
    return "holds" if holds else "DOES NOT HOLD"


def kept(
    what: str, made_of: Sequence[object], make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Arrays that take long to make, from the cache outside of the checkout where they are there.

    Args:
        what: a name for the file.
        made_of: everything that the arrays depend on: arrays, or what says itself by its repr.
        make: makes them.
    """
    key = hashlib.sha256()
    for part in (metadata.version("scikit-learn"), *made_of):
        key.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    path = cache_folder() / f"{what}-{key.hexdigest()[:16]}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished.npz")
        np.savez(unfinished, **make())
        unfinished.replace(path)
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def bare(axes) -> None:
    """No frame where there is no scale."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
