"""What the commands of this folder share: their options, and the JSON files of their results."""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import machine


def options(name: str) -> argparse.ArgumentParser:
    """A parser for `python -m benchmarks.inference.name`, with the option --out."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.inference.{name}")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results/inference")
    return parser


def printed(lines: Iterable[dict]) -> list[dict]:
    """The lines, each printed as soon as it is computed."""
    found = []
    for line in lines:
        print(json.dumps(line), flush=True)
        found.append(line)
    return found


def write(folder: Path, name: str, found: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


def run_parts(
    parser: argparse.ArgumentParser, name: str, parts: Mapping[str, Callable], *given: str
) -> None:
    """Computes the parts named by --only, and puts them into the file with those it has.

    Each part is called with the values of the `given` options.
    """
    parser.add_argument("--only", nargs="+", choices=sorted(parts), default=sorted(parts))
    args = parser.parse_args()
    path = args.out / f"{name}.json"
    found = json.loads(path.read_text())["results"] if path.exists() else {}
    about = machine.describe()  # before the run: the checkout may have moved on by its end
    for part in args.only:
        found[part] = parts[part](*(getattr(args, option) for option in given))
        print(f"{part}: {json.dumps(found[part], indent=1)}", flush=True)
    write(args.out, name, {"machine": about, "results": found})
