"""The parser of the command line, with its help."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeAlias, get_args

import platt_jax
from platt_jax.cli import commands
from platt_jax.cli.help import epilog
from platt_jax.cli.monitoring import monitor
from platt_jax.options import Pooling

# Return type of `add_subparsers`.
_Among: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


_SEGMENT = "column of segments; repeat for several columns"


class _Once(argparse.Action):
    """Stores a value and rejects a second one, where argparse would use the last."""

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
    """The options of a command, most of which are common to several."""

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
        many: dict[str, Any] = {"nargs": "+"} if several else {}
        self.add("files" if several else "file", metavar="FILE", help=about, **many)
        self.once(
            "--delimiter",
            metavar="CHAR",
            type=_delimiter,
            help="field delimiter: a character, or 'tab'",
        )

    def calibrator(self) -> None:
        self.once(
            "--calibrator", required=True, metavar="FILE.npz", help="from platt-jax fit, or save"
        )

    def fresh_rows(self) -> None:
        self.files(several=True)
        self.calibrator()
        self.columns(labels=True)

    def columns(self, labels: bool, segment: str = _SEGMENT) -> None:
        self.once("--score", required=True, metavar="COL", help="column of scores")
        self.add(
            "--logit",
            action="store_true",
            help="use the log-odds of scores that are probabilities. The calibrator does not store "
            "this: use it in all commands or in none",
        )
        if labels:
            self.once(
                "--label", required=True, metavar="COL", help="column of 0/1, -1/1 or true/false"
            )
            self.once(
                "--pos-label",
                metavar="VALUE",
                help="label that is 1, in a column of two other values, such as yes and no",
            )
        self.add("--segment", metavar="COL", action="append", default=[], help=segment)

    def out(self, metavar: str, about: str, required: bool = True) -> None:
        self.once("--out", required=required, metavar=metavar, help=about)

    def weight(self) -> None:
        self.once("--weight", metavar="COL", help="column of weights; 2 is the row twice")

    def offset(self) -> None:
        self.once(
            "--offset",
            metavar="COL",
            help="column of log-odds of label 1 that are added to the curve of each row",
        )

    def non_finite(self) -> None:
        self.once(
            "--non-finite",
            choices=["flag", "omit", "raise"],
            help="effect of NaN, infinite numbers and missing values: their segment is not fitted "
            "or tested (flag, the default), their row is left out (omit), or the command fails "
            "(raise)",
        )

    def hypothesis(self, margin: str) -> None:
        self.once(
            "--against",
            choices=["fit", "predictions"],
            help="what is tested: that segments are as they were fitted (fit, the default), or "
            "that they are as predicted",
        )
        self.once(
            "--margin",
            type=float,
            metavar="M",
            help=f"log-odds that a segment may be off by without being wrong; default {margin}",
        )
        self.once(
            "--fdr",
            type=float,
            metavar="Q",
            help="false discovery rate of the flagged segments; default 0.05",
        )

    def cache(self) -> None:
        self.once(
            "--cache",
            metavar="FOLDER",
            help="folder for compiled programs, with which later calls start sooner; default: the "
            "environment variable PLATT_JAX_CACHE, if set",
        )

    def json(self) -> None:
        self.add("--json", action="store_true", help="print a summary as one line of JSON")


def _delimiter(word: str) -> str:
    delimiter = {"tab": "\t", "\\t": "\t"}.get(word, word)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise argparse.ArgumentTypeError(f"expected one character or 'tab', got {word!r}")
    return delimiter


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
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

    applying = _Command(among, "apply", "add a column of probabilities", commands.apply)
    applying.files()
    applying.calibrator()
    applying.columns(
        labels=False,
        segment="column of segments, if fitted with one; repeat for several columns",
    )
    applying.offset()
    applying.once("--name", metavar="COL", help="name of the new column; default probability")
    applying.out(
        "FILE",
        "rows of FILE with a column of probabilities: Parquet if it ends in .parquet, else text, "
        "compressed if in .gz; - for standard output",
    )
    applying.json()

    _add_shift(among)

    judging = _Command(
        among,
        "triage",
        "test on fresh rows which segments have changed, or are mispredicted",
        commands.triage,
    )
    judging.fresh_rows()
    judging.offset()
    judging.hypothesis(margin="0")
    judging.once(
        "--cluster",
        metavar="COL",
        help="column of ids, such as days: rows of a segment and cluster depend on each other",
    )
    judging.once(
        "--cluster-sd",
        type=float,
        metavar="SD",
        help="with --cluster: standard deviation by which the log-odds of the rows of a cluster "
        "move together; default: estimated",
    )
    judging.out(
        "FILE.csv", "file for all segments, most urgent first; - for standard output", False
    )
    judging.non_finite()
    judging.cache()
    judging.json()

    _add_monitor(among)

    reporting = _Command(among, "report", "write one HTML page of a calibrator", commands.report)
    reporting.fresh_rows()
    reporting.out("FILE.html", "file for the page")
    reporting.cache()
    reporting.json()

    exporting = _Command(among, "export", "write a calibrator for other programs", commands.export)
    exporting.add("calibrator", metavar="FILE.npz", help="from platt-jax fit, or save")
    exporting.once("--to", required=True, choices=["json", "python", "sql", "onnx"], help="format")
    exporting.out("FILE", "file to write; - for standard output")
    sql_group = exporting.group("with --to sql")
    for name, metavar, about in (
        ("--score", "COL", "column of scores"),
        ("--dialect", "NAME", "a dialect of sqlglot; default duckdb"),
        ("--table", "NAME", "create a table for the segments, instead of a CASE"),
        ("--view", "NAME", "create a view of the rows with a column 'probability'"),
        ("--rows", "NAME", "with --view: the table of rows"),
    ):
        sql_group.add_argument(name, metavar=metavar, action=_Once, help=about)
    sql_group.add_argument("--segment", metavar="COL", action="append", default=[], help=_SEGMENT)
    onnx_group = exporting.group("with --to onnx")
    onnx_group.add_argument(
        "--dtype",
        choices=["float32", "float64"],
        action=_Once,
        help="type of the scores; default float64",
    )
    return whole


def _add_fit(among: _Among) -> None:
    fitting = _Command(among, "fit", "fit sigmoids to scores and labels", commands.fit)
    fitting.files(several=True)
    fitting.columns(
        labels=True, segment="column of segments, one sigmoid each; repeat for several columns"
    )
    fitting.weight()
    fitting.offset()
    fitting.out("FILE.npz", "file for the calibrator")
    fitting.once(
        "--pooling",
        choices=get_args(Pooling),
        help="of segments: each by its own rows (none, the default), shrunk to their population "
        "(partial), for several columns to their prefixes (nested) or to the values of each column "
        "(crossed), or one curve for all (complete)",
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
        help="directory for the sums of each pass, from which a repeated command continues",
    )
    several.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=float,
        action=_Once,
        help="maximum time to wait for other processes in a pass; default: no limit",
    )


def _add_update(among: _Among) -> None:
    updating = _Command(among, "update", "update a calibrator with new rows", commands.update)
    updating.fresh_rows()
    updating.weight()
    updating.offset()
    updating.once(
        "--forgetting",
        type=float,
        metavar="Q",
        help="factor in (0, 1] for the weights of all earlier rows; default 1",
    )
    updating.once(
        "--night",
        metavar="ID",
        help="name of the new rows, such as a date, kept in the file; rows of a night that the "
        "calibrator has are refused",
    )
    updating.out(
        "FILE.npz", "file for the new calibrator; not the old one, so that a call can be repeated"
    )
    updating.non_finite()
    updating.cache()
    updating.json()


def _add_shift(among: _Among) -> None:
    shifting = _Command(
        among,
        "shift",
        "shift a calibrator to another rate of label 1, as after undersampling of label 0",
        commands.shift,
    )
    shifting.add("calibrator", metavar="FILE.npz", help="from platt-jax fit, or save")
    for name, about in (
        ("--from-rate", "share of label 1 among the rows that were fitted, between 0 and 1"),
        ("--to-rate", "share of label 1 among the rows to predict, between 0 and 1"),
    ):
        shifting.once(name, required=True, type=float, metavar="R", help=about)
    shifting.out("FILE.npz", "file for the shifted calibrator, for apply, export and the others")
    shifting.json()


def _add_monitor(among: _Among) -> None:
    watching = _Command(
        among,
        "monitor",
        "judge the rows of another night, and report segments whose predictions are off",
        monitor,
    )
    watching.add(
        "state",
        metavar="STATE.npz",
        help="file of the monitor, as of the night before; if there is none, a new one begins",
    )
    watching.fresh_rows()
    watching.offset()
    watching.hypothesis(margin="0.1")
    watching.once(
        "--night-sd",
        type=float,
        metavar="SD",
        help="standard deviation by which the log-odds of a segment's rows move together from one "
        "night to the next; default 0",
    )
    watching.once(
        "--night",
        metavar="ID",
        help="the night's name, such as its date; a night that is in STATE.npz is refused",
    )
    watching.once(
        "--reported",
        type=float,
        metavar="SHARE",
        help="share of the positives that are known by now, if labels come late; default 1",
    )
    watching.add(
        "--ever",
        action="store_true",
        help="report alarms of this night and all before, rather than those of this night",
    )
    watching.add(
        "--restart",
        metavar="ID",
        action="append",
        default=[],
        help="forget what is known of a segment, because it was dealt with; may be repeated",
    )
    watching.out(
        "FILE.npz",
        "file for the monitor; default STATE.npz, and then only --night lets a call be repeated",
        False,
    )
    watching.once("--table", metavar="FILE.csv", help="file for all segments, the worst first")
    watching.once(
        "--non-finite",
        choices=["omit", "raise"],
        help="effect of NaN, infinite numbers and missing values: their row is left out (omit, the "
        "default), or the command fails (raise)",
    )
    watching.cache()
    watching.json()


def _add_completion(whole: argparse.ArgumentParser) -> None:
    """Add `--print-completion`, whose scripts shtab writes."""
    try:
        import shtab
    except ImportError:
        return
    shtab.add_argument_to(whole, ["--print-completion"], help="print a script for the shell")
