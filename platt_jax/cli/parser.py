"""The parser of the command line, with its help; neither JAX nor NumPy is imported for it."""

from __future__ import annotations

import argparse
from typing import Any, TypeAlias, get_args

from platt_jax.cli.help import epilog
from platt_jax.options import CURVES, Pooling
from platt_jax.version import __version__

_Options: TypeAlias = "argparse.ArgumentParser | argparse._ArgumentGroup"


class _Once(argparse.Action):
    """Stores a value and rejects a second one, where argparse would use the last."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        used_options: list[str] = vars(namespace).setdefault("given", [])
        if self.dest in used_options:
            raise argparse.ArgumentError(self, "given twice")
        used_options.append(self.dest)
        setattr(namespace, self.dest, values)


def _delimiter(word: str) -> str:
    delimiter = {"tab": "\t", "\\t": "\t"}.get(word, word)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise argparse.ArgumentTypeError(f"expected one character or 'tab', got {word!r}")
    return delimiter


_FILE = {
    "metavar": "FILE",
    "help": "CSV, TSV (.tsv), one of these compressed (.gz), or Parquet; - for standard input",
}
_SAVED = {"metavar": "FILE.npz", "help": "from platt-jax fit, or save"}

# What several commands have, or most of it.
_COMMON: dict[str, dict[str, Any]] = {
    "file": _FILE,
    "files": _FILE | {"nargs": "+"},
    "calibrator": _SAVED,
    "--delimiter": {
        "metavar": "CHAR",
        "type": _delimiter,
        "help": "field delimiter: a character, or 'tab'",
    },
    "--calibrator": _SAVED | {"required": True},
    "--score": {"metavar": "COL", "help": "column of scores"},
    "--scores": {
        "metavar": "COL",
        "nargs": "+",
        "help": "columns of scores, one for each class, each named like its class",
    },
    "--classes": {
        "metavar": "CLASS",
        "nargs": "+",
        "help": "with --scores: the classes of these columns, if they are not named like them",
    },
    "--logit": {
        "action": "store_true",
        "help": "use the log-odds of scores that are probabilities. A calibrator keeps the --logit "
        "of its fit, and later commands follow it",
    },
    "--label": {
        "metavar": "COL",
        "help": "column of 0/1, -1/1 or true/false; with --scores, of the class of each row",
    },
    "--labels": {
        "metavar": "COL",
        "nargs": "+",
        "help": "with --scores: columns of 0/1, -1/1 or true/false, one for each of the scores, "
        "where a row may be of several classes or of none",
    },
    "--pos-label": {
        "metavar": "VALUE",
        "help": "label that is 1, in a column of two other values, such as yes and no",
    },
    "--segment": {
        "metavar": "COL",
        "action": "append",
        "default": [],
        "help": "column of segments; repeat for several columns",
    },
    "--weight": {"metavar": "COL", "help": "column of weights; 2 is the row twice"},
    "--offset": {
        "metavar": "COL",
        "help": "column of log-odds of label 1 that are added to the curve of each row",
    },
    "--non-finite": {
        "choices": ["flag", "omit", "raise"],
        "default": "flag",
        "help": "effect of NaN, infinite numbers and missing values: their segment is not fitted "
        "or tested (flag, the default), their row is left out (omit), or the command fails "
        "(raise)",
    },
    "--against": {
        "choices": ["fit", "predictions"],
        "help": "what is tested: that segments are as they were fitted (fit, the default), or that "
        "they are as predicted",
    },
    "--margin": {
        "metavar": "M",
        "type": float,
        "help": "log-odds that a segment may be off by without being wrong",
    },
    "--fdr": {
        "metavar": "Q",
        "type": float,
        "default": 0.05,
        "help": "false discovery rate of the flagged segments; default 0.05",
    },
    "--cache": {
        "metavar": "FOLDER",
        "help": "folder for compiled programs, with which later calls start sooner; default: the "
        "environment variable PLATT_JAX_CACHE, or platt_jax in your cache folder",
    },
    "--json": {"action": "store_true", "help": "print a summary as one line of JSON"},
}


def _add(to: _Options, *names: str, **more: Any) -> None:
    """Add options of `_COMMON`, or one with more said of it."""
    for name in names:
        about = _COMMON.get(name, {}) | more
        once = {"action": _Once} if name.startswith("--") else {}
        to.add_argument(name, **once | about)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    program = argparse.ArgumentParser(
        prog="platt-jax",
        description="Platt scaling for thousands to millions of classifiers at once.\n"
        "P(y=1 | score) = 1 / (1 + exp(A score + B)), so A < 0 for a useful score.",
        epilog=epilog(""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    program.add_argument("--version", action="version", version=f"platt-jax {__version__}")
    _add_completion(program)
    among = program.add_subparsers(required=True, metavar="COMMAND")
    for name, add_options, about in (
        ("demo", None, "one sigmoid per aircraft and per route, on real data"),
        ("fit", _add_fit, "fit sigmoids to scores and labels"),
        ("update", _add_update, "update a calibrator with new rows"),
        ("apply", _add_apply, "add a column of probabilities"),
        (
            "shift",
            _add_shift,
            "shift a calibrator to another rate of label 1, as after undersampling of label 0",
        ),
        ("threshold", _add_threshold, "the scores that reach a probability"),
        (
            "triage",
            _add_triage,
            "test on fresh rows which segments have changed, or are mispredicted",
        ),
        (
            "monitor",
            _add_monitor,
            "judge the rows of another night, and report segments whose predictions are off",
        ),
        ("report", _add_report, "write one HTML page of a calibrator"),
        ("export", _add_export, "write a calibrator for other programs"),
    ):
        command = among.add_parser(
            name,
            help=about,
            description=about,
            epilog=epilog(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(command=name, refuse=command.error)
        if add_options:
            add_options(command)
    return program


def _add_scores(to: argparse.ArgumentParser) -> None:
    _add(to.add_mutually_exclusive_group(required=True), "--score", "--scores")
    _add(to, "--classes", "--logit")


def _add_calibrator(to: argparse.ArgumentParser) -> None:
    """Add the calibrator of a command without rows, by its option or alone."""
    either = to.add_mutually_exclusive_group(required=True)
    _add(either, "calibrator", nargs="?", default=argparse.SUPPRESS)
    _add(either, "--calibrator", required=False, default=argparse.SUPPRESS)


def _add_labelled(to: argparse.ArgumentParser) -> None:
    _add_scores(to)
    _add(to.add_mutually_exclusive_group(required=True), "--label", "--labels")
    _add(to, "--pos-label")


def _add_fresh_rows(to: argparse.ArgumentParser) -> None:
    _add(to, "files", "--delimiter", "--calibrator")
    _add_labelled(to)
    _add(to, "--segment")


def _add_fit(fit: argparse.ArgumentParser) -> None:
    _add(fit, "files", "--delimiter")
    _add_labelled(fit)
    _add(fit, "--segment", help="column of segments, one sigmoid each; repeat for several columns")
    _add(fit, "--weight", "--offset")
    _add(fit, "--out", metavar="FILE.npz", required=True, help="file for the calibrator")
    _add(
        fit,
        "--pooling",
        choices=get_args(Pooling),
        help="of segments or classes: shrunk to their population (partial, the default of segments "
        "with sigmoids), each by its own many rows (none, the default of all others), for several "
        "columns shrunk to their prefixes (nested) or to the values of each column (crossed), or "
        "one curve for all (complete)",
    )
    covariates = fit.add_mutually_exclusive_group()
    _add(
        covariates,
        "--covariate",
        metavar="COL",
        action="append",
        default=[],
        help="with --pooling partial: column of what is known of a segment besides its rows, of "
        "numbers or categories, the same in all rows of a segment; repeat for several columns",
    )
    about = "the same, with the logarithm of a segment's number of rows"
    _add(covariates, "--covariate-rows", action="store_true", help=about)
    _add(fit, "--curve", choices=CURVES, help="kind of curve of segments or classes")
    _add(fit, "--non-finite", "--cache", "--json")
    several = fit.add_argument_group(
        "several processes",
        "Started by SLURM (srun), Open MPI (mpirun) or another launcher that\n"
        "jax.distributed.initialize knows. Process i of n, counted from 0, reads the FILEs\n"
        "i, i + n, i + 2n and so on; a segment may have rows in all of them.",
    )
    _add(several, "--distributed", action="store_true", help="fit by all processes of a job")
    about = "directory for the sums of each pass, from which a repeated command continues"
    _add(several, "--checkpoint", metavar="DIR", help=about)
    about = "maximum time to wait for other processes in a pass; default: no limit"
    _add(several, "--time-limit", metavar="SECONDS", type=float, help=about)


def _add_update(update: argparse.ArgumentParser) -> None:
    _add_fresh_rows(update)
    _add(update, "--weight", "--offset")
    about = "factor in (0, 1] for the weights of all earlier rows; default 1"
    _add(update, "--forgetting", metavar="Q", type=float, default=1.0, help=about)
    about = (
        "name of the new rows, such as a date, kept in the file; rows of a night that the "
        "calibrator has are refused"
    )
    _add(update, "--night", metavar="ID", help=about)
    about = "file for the new calibrator; not the old one, so that a call can be repeated"
    _add(update, "--out", metavar="FILE.npz", required=True, help=about)
    _add(update, "--non-finite", "--cache", "--json")


def _add_apply(apply: argparse.ArgumentParser) -> None:
    _add(apply, "file", "--delimiter", "--calibrator")
    _add_scores(apply)
    about = "column of segments, if fitted with one; repeat for several columns"
    _add(apply, "--segment", help=about)
    _add(apply, "--offset")
    about = (
        "name of the new column; default probability. With --scores the new columns are COL_CLASS"
    )
    _add(apply, "--name", metavar="COL", default="probability", help=about)
    about = (
        "rows of FILE with a column of probabilities: Parquet if it ends in .parquet, else text, "
        "compressed if in .gz; - for standard output"
    )
    _add(apply, "--out", metavar="FILE", required=True, help=about)
    _add(apply, "--json")


def _add_shift(shift: argparse.ArgumentParser) -> None:
    _add_calibrator(shift)
    for name, rows in (("--from-rate", "that were fitted"), ("--to-rate", "to predict")):
        about = f"share of label 1 among the rows {rows}, between 0 and 1"
        _add(shift, name, metavar="R", type=float, required=True, help=about)
    about = "file for the shifted calibrator, for apply, export and the others"
    _add(shift, "--out", metavar="FILE.npz", required=True, help=about)
    _add(shift, "--json")


def _add_threshold(threshold: argparse.ArgumentParser) -> None:
    _add_calibrator(threshold)
    reached = threshold.add_mutually_exclusive_group(required=True)
    about = "probability to reach, between 0 and 1"
    _add(reached, "--probability", metavar="P", type=float, help=about)
    about = "costs of a false positive and of a false negative, which give the probability FP / "
    _add(reached, "--cost", metavar=("FP", "FN"), nargs=2, type=float, help=about + "(FP + FN)")
    about = "let the lower end of a confidence band of this level reach it; default: the prediction"
    _add(threshold, "--level", metavar="L", type=float, help=about)
    about = "file for the thresholds of all segments; - for standard output"
    _add(threshold, "--out", metavar="FILE.csv", help=about)
    _add(threshold, "--json")


def _add_triage(triage: argparse.ArgumentParser) -> None:
    _add_fresh_rows(triage)
    _add(triage, "--offset")
    _add(triage, "--against", default="fit")
    _add(triage, "--margin", default=0.0, help=_COMMON["--margin"]["help"] + "; default 0")
    _add(triage, "--fdr")
    about = "column of ids, such as days: rows of a segment and cluster depend on each other"
    _add(triage, "--cluster", metavar="COL", help=about)
    about = (
        "with --cluster: standard deviation by which the log-odds of the rows of a cluster move "
        "together; default: estimated"
    )
    _add(triage, "--cluster-sd", metavar="SD", type=float, help=about)
    about = "file for all segments, most urgent first; - for standard output"
    _add(triage, "--out", metavar="FILE.csv", help=about)
    _add(triage, "--non-finite", "--cache", "--json")


def _add_monitor(monitor: argparse.ArgumentParser) -> None:
    about = "file of the monitor, as of the night before; if there is none, a new one begins"
    _add(monitor, "state", metavar="STATE.npz", help=about)
    _add_fresh_rows(monitor)
    _add(monitor, "--offset", "--against")
    _add(monitor, "--margin", help=_COMMON["--margin"]["help"] + "; default 0.1")
    _add(monitor, "--fdr")
    about = (
        "standard deviation by which the log-odds of a segment's rows move together from one "
        "night to the next; default 0"
    )
    _add(monitor, "--night-sd", metavar="SD", type=float, help=about)
    about = "the night's name, such as its date; a night that is in STATE.npz is refused"
    _add(monitor, "--night", metavar="ID", help=about)
    about = "share of the positives that are known by now, if labels come late; default 1"
    _add(monitor, "--reported", metavar="SHARE", type=float, help=about)
    about = "report alarms of this night and all before, rather than of this night alone"
    _add(monitor, "--ever", action="store_true", help=about)
    about = "forget what is known of a segment, because it was dealt with; may be repeated"
    _add(monitor, "--restart", metavar="ID", action="append", default=[], help=about)
    about = "file for the monitor; default STATE.npz, and then only --night lets a call be repeated"
    _add(monitor, "--out", metavar="FILE.npz", help=about)
    _add(monitor, "--table", metavar="FILE.csv", help="file for all segments, the worst first")
    about = (
        "effect of NaN, infinite numbers and missing values: their row is left out (omit, the "
        "default), or the command fails (raise)"
    )
    _add(monitor, "--non-finite", choices=["omit", "raise"], default="omit", help=about)
    _add(monitor, "--cache", "--json")


def _add_report(report: argparse.ArgumentParser) -> None:
    _add_fresh_rows(report)
    _add(report, "--out", metavar="FILE.html", required=True, help="file for the page")
    _add(report, "--cache", "--json")


def _add_export(export: argparse.ArgumentParser) -> None:
    _add_calibrator(export)
    formats = ["json", "python", "javascript", "sql", "onnx"]
    _add(export, "--to", required=True, choices=formats, help="format")
    about = "file to write; - for standard output"
    _add(export, "--out", metavar="FILE", required=True, help=about)
    about = (
        "decisions, too: where scores reach this probability in their segment (json), or whether "
        "they do (onnx; sql, in place of the probability)"
    )
    _add(export, "--threshold", metavar="P", type=float, help=about)
    sql = export.add_argument_group("with --to sql")
    _add(sql, "--score")
    for name, about in (
        ("--dialect", "a dialect of sqlglot; default duckdb"),
        ("--table", "create a table for the segments, instead of a CASE"),
        ("--view", "create a view of the rows with a column 'probability'"),
        ("--rows", "with --view: the table of rows"),
    ):
        _add(sql, name, metavar="NAME", help=about)
    _add(sql, "--segment")
    onnx = export.add_argument_group("with --to onnx")
    _add(
        onnx, "--dtype", choices=["float32", "float64"], help="type of the scores; default float64"
    )


def _add_completion(whole: argparse.ArgumentParser) -> None:
    """Add `--print-completion`, whose scripts shtab writes."""
    try:
        import shtab
    except ImportError:
        return
    shtab.add_argument_to(whole, ["--print-completion"], help="print a script for the shell")
