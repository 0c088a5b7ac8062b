"""The words that the command line knows, and its help."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeAlias

import platt_jax
from platt_jax.cli import commands
from platt_jax.cli.help import epilog

# What `add_subparsers` returns.
_Among: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class _Once(argparse.Action):
    """Stores a value, and refuses a second one, where argparse by itself would take the last."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            raise argparse.ArgumentError(self, "given twice")
        setattr(namespace, self.dest, values)


class _Command:
    """A command's options, which are much the same."""

    def __init__(
        self, among: _Among, name: str, about: str, run: Callable[[argparse.Namespace], int]
    ) -> None:
        self._parser = among.add_parser(
            name,
            help=about,
            description=about,
            epilog=epilog(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._parser.set_defaults(command=run)
        self.add = self._parser.add_argument
        self.group = self._parser.add_argument_group

    def once(self, name: str, **about: Any) -> argparse.Action:
        return self.add(name, action=_Once, **about)

    def files(self, several: bool = False) -> None:
        about = "CSV, TSV (.tsv), one of these compressed (.gz), or Parquet; - for standard input"
        self.add("files" if several else "file", metavar="FILE", help=about, **_many(several))
        self.once(
            "--delimiter",
            metavar="CHAR",
            type=_delimiter,
            help="between fields: a character, or 'tab'",
        )

    def calibrator(self) -> None:
        self.once(
            "--calibrator", required=True, metavar="FILE.npz", help="from platt-jax fit, or save"
        )

    def columns(self, labels: bool, segment: str) -> None:
        self.once("--score", required=True, metavar="COL", help="column of scores")
        self.add(
            "--logit",
            action="store_true",
            help="scores are probabilities: take their log-odds. A calibrator does not remember "
            "it: give it to each command, or to none",
        )
        if labels:
            self.once(
                "--label", required=True, metavar="COL", help="column of 0/1, -1/1 or true/false"
            )
        self.add("--segment", metavar="COL", action="append", default=[], help=segment)

    def out(self, metavar: str, about: str, required: bool = True) -> None:
        self.once("--out", required=required, metavar=metavar, help=about)

    def weight(self) -> None:
        self.once("--weight", metavar="COL", help="column of weights; 2 is the row twice")

    def non_finite(self) -> None:
        self.once(
            "--non-finite",
            choices=["flag", "omit", "raise"],
            help="what NaN, infinite numbers and missing values do: their segment is not fitted or "
            "tested (flag, if not given), their row goes (omit), or end all (raise)",
        )

    def cache(self) -> None:
        self.once(
            "--cache",
            metavar="FOLDER",
            help="keep compiled programs there, which later calls read and so begin sooner; "
            "if not given, the folder that the variable PLATT_JAX_CACHE names, if any",
        )

    def json(self) -> None:
        self.add("--json", action="store_true", help="tell what was done as one line of JSON")


def _many(several: bool) -> dict[str, Any]:
    return {"nargs": "+"} if several else {}


def _delimiter(word: str) -> str:
    delimiter = {"tab": "\t", "\\t": "\t"}.get(word, word)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise argparse.ArgumentTypeError(f"expected one character or 'tab', got {word!r}")
    return delimiter


def parser() -> argparse.ArgumentParser:
    """That of all commands."""
    whole = argparse.ArgumentParser(
        prog="platt-jax",
        description="Platt scaling for thousands to millions of classifiers at once.\n"
        "P(y=1 | score) = 1 / (1 + exp(A score + B)), so A < 0 for a useful score.",
        epilog=epilog(""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"platt-jax {platt_jax.__version__}")
    _add_completion(whole)
    among = whole.add_subparsers(required=True, metavar="COMMAND")
    _Command(among, "demo", "one sigmoid per aircraft and per route, on real data", commands.demo)
    _add_fit(among)
    _add_update(among)
    for_rows = "column of segments, if fitted with one; again for each of several"

    applying = _Command(among, "apply", "add a column of probabilities", commands.apply)
    applying.files()
    applying.calibrator()
    applying.columns(labels=False, segment=for_rows)
    applying.out(
        "FILE",
        "FILE and a column 'probability': Parquet if it ends in .parquet, else text, compressed "
        "if in .gz; - for standard output",
    )
    applying.json()

    judging = _Command(
        among,
        "triage",
        "which segments have changed, or are mispredicted, by fresh rows",
        commands.triage,
    )
    judging.files(several=True)
    judging.calibrator()
    judging.columns(labels=True, segment="column of segments; again for each of several")
    judging.once(
        "--against",
        choices=["fit", "predictions"],
        help="whether segments have changed since they were fitted (fit, the default), or are not "
        "as predicted, however little the fit knew",
    )
    judging.once(
        "--fdr", type=float, metavar="Q", help="false discovery rate of the flagged segments: 0.05"
    )
    judging.out(
        "FILE.csv", "where all segments go, most urgent first; - for standard output", False
    )
    judging.non_finite()
    judging.cache()
    judging.json()

    reporting = _Command(among, "report", "one HTML page of a calibrator", commands.report)
    reporting.files(several=True)
    reporting.calibrator()
    reporting.columns(labels=True, segment="column of segments; again for each of several")
    reporting.out("FILE.html", "where the page goes")
    reporting.cache()
    reporting.json()

    exporting = _Command(among, "export", "a calibrator for other programs", commands.export)
    exporting.add("calibrator", metavar="FILE.npz", help="from platt-jax fit, or save")
    exporting.once("--to", required=True, choices=["json", "python", "sql", "onnx"], help="what")
    exporting.out("FILE", "where to; - for standard output")
    of_sql = exporting.group("of --to sql")
    for name, metavar, about in (
        ("--score", "COL", "column of scores"),
        ("--dialect", "NAME", "one that sqlglot knows: duckdb if not given"),
        ("--table", "NAME", "a table to make for the segments, instead of a CASE"),
    ):
        of_sql.add_argument(name, metavar=metavar, action=_Once, help=about)
    about = "column of segments; again for each of several"
    of_sql.add_argument("--segment", metavar="COL", action="append", default=[], help=about)
    return whole


def _add_fit(among: _Among) -> None:
    fitting = _Command(among, "fit", "fit sigmoids to scores and labels", commands.fit)
    fitting.files(several=True)
    fitting.columns(labels=True, segment="one sigmoid for each; again for each of several columns")
    fitting.weight()
    fitting.out("FILE.npz", "where the sigmoids go")
    fitting.once(
        "--pooling",
        choices=["none", "partial", "complete"],
        help="of segments: each by its own rows (none), shrunk to their population, or all alike",
    )
    fitting.non_finite()
    fitting.cache()
    fitting.json()
    several = fitting.group(
        "several processes",
        "Started by SLURM (srun), Open MPI (mpirun) or another launcher that\n"
        "jax.distributed.initialize knows. Process i of n, counted from 0, reads the FILEs\n"
        "i, i + n, i + 2n and so on; a segment may have rows in all of them.",
    )
    several.add_argument("--distributed", action="store_true", help="fit by all processes of a job")
    several.add_argument(
        "--checkpoint",
        metavar="DIR",
        action=_Once,
        help="keep the sums of each pass there; the same command goes on from them",
    )
    several.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=float,
        action=_Once,
        help="how long a process waits for the others in a pass; forever if not given",
    )


def _add_update(among: _Among) -> None:
    updating = _Command(
        among, "update", "a calibrator with what new rows add to it", commands.update
    )
    updating.files(several=True)
    updating.calibrator()
    updating.columns(labels=True, segment="column of segments; again for each of several")
    updating.weight()
    updating.once(
        "--forgetting",
        type=float,
        metavar="Q",
        help="in (0, 1], what the weights of all earlier rows are multiplied by: 1",
    )
    updating.out(
        "FILE.npz", "where the new calibrator goes; another file, so that a call can be repeated"
    )
    updating.non_finite()
    updating.cache()
    updating.json()


def _add_completion(whole: argparse.ArgumentParser) -> None:
    """`--print-completion bash`, which shtab writes."""
    try:
        import shtab
    except ImportError:
        return
    shtab.add_argument_to(whole, ["--print-completion"], help="print a script for the shell")
