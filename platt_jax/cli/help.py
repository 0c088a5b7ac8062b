"""Text below the options in the help of each command: examples, missing values, exit status."""

from platt_jax.cli.inputs import MISSING

_DONE = "done"
_CONVERGED = "done, and every fit converged"
_BAD_INPUT = """\
bad input, or an output that cannot be written; one line on standard error
       says what"""
_FAILED = """\
some fits failed, or all: the calibrator is written, and one line on standard
       error says how many failed and which first"""
_ALARMS = "done, with alarms"
_LOST = "with --distributed: another process ended, or said nothing for too long"

_STATUSES = {
    "": {0: _CONVERGED, 2: _BAD_INPUT, 3: _FAILED, 4: _LOST, 5: f"monitor: {_ALARMS}"},
    "fit": {0: _CONVERGED, 2: _BAD_INPUT, 3: _FAILED, 4: _LOST},
    "update": {0: _CONVERGED, 2: _BAD_INPUT, 3: _FAILED},
    "monitor": {0: "done, and no segment has an alarm", 2: _BAD_INPUT, 5: _ALARMS},
    "demo": {0: _DONE},
}
_OTHER_STATUSES = {0: _DONE, 2: _BAD_INPUT}
# What a shell reports of programs that SIGINT and SIGPIPE stop.
_STOPPED = {130: "stopped by Ctrl-C", 141: "the output was closed, as by head"}

_EXAMPLES = {
    "": """\
examples:
  platt-jax fit history.csv --score f --label y --segment shop --out calibrator.npz
  platt-jax apply new.csv --calibrator calibrator.npz --score f --segment shop --out -
  platt-jax triage new.csv --calibrator calibrator.npz --score f --label y --segment shop
""",
    "fit": """\
examples:
  platt-jax fit history.csv --score f --label y --out sigmoid.npz
  platt-jax fit day-*.parquet --score f --label y --segment shop --segment year --out c.npz
  platt-jax fit photos.csv --scores cat dog bird --label animal --out animals.npz
  zcat history.csv.gz | platt-jax fit - --score f --label y --segment shop --out c.npz --json
""",
    "update": """\
example:
  platt-jax update day-2.csv --calibrator 1.npz --score f --label y --segment shop --out 2.npz
""",
    "apply": """\
examples:
  platt-jax apply new.csv --calibrator c.npz --score f --segment shop --out with_p.csv.gz
  platt-jax apply new.parquet --calibrator c.npz --score f --segment shop --out with_p.parquet
  platt-jax apply new.csv --calibrator animals.npz --scores cat dog bird --out with_p.csv
  cat new.tsv | platt-jax apply - --delimiter tab --calibrator c.npz --score f --out - | head
""",
    "shift": """\
example:
  platt-jax shift --calibrator c.npz --from-rate 0.5 --to-rate 0.01 --out shifted.npz
""",
    "threshold": """\
examples:
  platt-jax threshold --calibrator c.npz --probability 0.8 --out thresholds.csv
  platt-jax threshold --calibrator c.npz --cost 1 20 --level 0.9
""",
    "triage": """\
examples:
  platt-jax triage new.csv --calibrator c.npz --score f --label y --segment shop
  platt-jax triage new.csv --calibrator c.npz --score f --label y --segment shop --out all.csv
  platt-jax triage new.csv --calibrator c.npz --score p --label y --against predictions
""",
    "monitor": """\
examples:
  platt-jax monitor state.npz day-1.csv --calibrator c.npz --score f --label y --segment shop \\
    --night 2026-11-26
  platt-jax monitor 1.npz day-2.csv --out 2.npz --calibrator c.npz --score f --label y \\
    --segment shop
""",
    "report": """\
example:
  platt-jax report new.csv --calibrator c.npz --score f --label y --segment shop --out c.html
""",
    "export": """\
examples:
  platt-jax export --calibrator c.npz --to json --out c.json
  platt-jax export --calibrator c.npz --to sql --score f --segment shop --dialect spark --out -
  platt-jax export --calibrator c.npz --to sql --score f --segment shop --table curves \\
    --view p --rows sales --out night.sql
  platt-jax export --calibrator c.npz --to onnx --threshold 0.8 --out c.onnx
""",
}

_WORDS = ", ".join(MISSING[1:])
_MISSING_VALUES = f"""\
missing values:
  In text files an empty field is a missing score, label, weight or offset, and so are
  {_WORDS}, in any case; in Parquet files a null.
"""
_WHAT_MISSING_VALUES_DO = {
    "fit": "  They are NaN, for which see --non-finite.\n",
    "update": "  They are NaN, for which see --non-finite.\n",
    "apply": "  The probability for a missing score is nan.\n",
    "triage": "  They are NaN, for which see --non-finite.\n",
    "monitor": "  They are NaN, for which see --non-finite.\n",
    "report": "  A row with one counts only in the number of rows.\n",
}


def epilog(command: str) -> str:
    """The text for a command; for "" the text for the whole program."""
    missing = _WHAT_MISSING_VALUES_DO.get(command)
    statuses = _STATUSES.get(command, _OTHER_STATUSES) | _STOPPED
    parts = (
        _EXAMPLES.get(command),
        missing and _MISSING_VALUES + missing,
        "exit status:\n" + "".join(f"  {n:<3}  {about}\n" for n, about in statuses.items()),
    )
    return "\n".join(part for part in parts if part)
