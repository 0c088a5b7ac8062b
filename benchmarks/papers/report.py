"""What the commands share: arguments, where results go, tables, and work kept between runs."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from benchmarks import machine
from benchmarks.native import cache_folder

COLORS = ["#1f4e79", "#d1701f", "#3c8c5a", "#8a4f9e", "#b03a48"]


def arguments(command: str, description: str | None, argv: Sequence[str] | None):
    """--data, --out and --quick; and what the figures of this run depend on."""
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
    args = parser.parse_args(argv)
    # Before the run: the checkout may have moved on by its end.
    args.machine = machine.describe()
    return args


def write(args, command: str, results: Any, render: Callable[[Any], str], figure: Figure) -> None:
    """Write the results, the report that is rendered from them, and its figure; print the report.

    Args:
        args: of `arguments`.
        command: the name of the command.
        results: what was found; written as JSON has it.
        render: makes the report of what is read from that JSON.
        figure: is drawn already.
    """
    name = f"{command}-quick" if args.quick else command
    found = {"machine": args.machine, "results": _plain(results)}
    text = document(name, found, render)
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{name}.json").write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")
    (args.out / f"{name}.md").write_text(text)
    figure.savefig(args.out / f"{name}.png", dpi=110)
    plt.close(figure)


def document(name: str, found: dict[str, Any], render: Callable[[Any], str]) -> str:
    """The report of what a file of results holds, and where it comes from."""
    command = name.removesuffix("-quick")
    option = " --quick" if name != command else ""
    about = found["machine"]
    packages = ("platt-jax", "jax", "numpy", "scipy", "scikit-learn")
    versions = ", ".join(f"{package} {about['versions'][package]}" for package in packages)
    changed = " and uncommitted changes" if about["uncommitted_changes"] else ""
    return (
        f"{render(found['results'])}\n"
        f"`python -m benchmarks.papers.{command} --data DIR{option}`, with {versions}, at commit "
        f"{about['commit']}{changed}.\n"
    )


def _plain(x: Any) -> Any:
    """Arrays, dataclasses and named tuples as JSON has them; NaN is null."""
    if dataclasses.is_dataclass(x):
        return _plain(vars(x))
    if hasattr(x, "_asdict"):
        return _plain(x._asdict())
    if isinstance(x, dict):
        return {key: _plain(value) for key, value in x.items()}
    if isinstance(x, list | tuple | np.ndarray):
        return [_plain(value) for value in x]
    if isinstance(x, np.generic):
        return _plain(x.item())
    return None if x != x else x


def array(values: list | None) -> np.ndarray | None:
    """An array as it was before it was written; null is NaN in it, None without it."""
    if values is None:
        return None
    found = np.array(values)
    return found.astype(np.float64) if found.dtype == object else found


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
