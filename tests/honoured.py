"""Every option, and who honours it; ``python tests/honoured.py --write`` for the docs.

The page of the reference is made from `platt_jax.options.HONOURED`, and test_honoured.py tries
every cell of it.
"""

import sys
from dataclasses import fields
from pathlib import Path

from platt_jax import Options
from platt_jax.options import HONOURED

STORED = Path(__file__).parents[1] / "docs" / "reference" / "options.md"
# A value of each option that is not the default.
OTHER = {
    "max_iter": 1,
    "min_step": 0.5,
    "sigma": "dynamic",
    "tol": 1e-3,
    "start": "prior",
    "derivatives": "autodiff",
    "targets": "none",
    "monotone": True,
    "non_finite": "raise",
    "line_search": "loss",
    "stopping": "gradient",
    "standardize": False,
    "direction": "newton",
    "intercept": False,
}
# What is so for every option: the curve has it by itself.
BY_ITSELF = {
    ("temperature", "targets"): "none",
    ("temperature", "intercept"): "False",
    ("isotonic", "targets"): "none",
    ("bins", "targets"): "none",
    ("venn_abers", "targets"): "none",
    ("fit_multiclass", "targets"): "none",
    ("isotonic", "monotone"): "True",
    ("venn_abers", "monotone"): "True",
    ("beta", "monotone"): "True",
    ("shift", "monotone"): "True",
}


def honours(name, field):
    """Whether a curve or a function takes the other value of an option."""
    return OTHER[field] in HONOURED[name].get(field, (OTHER[field],))


def page():
    """The page of the reference."""
    lines = [
        "# Options and curves",
        "",
        "Each field of [`Options`](fitting.md), by curve (`curve=` of `fit`, `fit_segments`,",
        "`fit_one_vs_rest`, `choose_curve` and `cluster.fit_segments`), and by function. Where a",
        "cell says yes, the option is honoured; a value is what the curve has in any case. Where",
        "it says no, another value than the default is a `ValueError` that names the option. A",
        "test tries each cell. Isotonic curves, bins and Venn-Abers predictors are computed",
        "without a search: limits of iterations and tolerances do not apply to them.",
        "",
        "| | " + " | ".join(f"`{name}`" for name in HONOURED) + " |",
        "|" + " --- |" * (1 + len(HONOURED)),
    ]
    for field in OTHER:
        cells = [
            BY_ITSELF.get((name, field), "yes") if honours(name, field) else "no"
            for name in HONOURED
        ]
        if field == "non_finite":
            cells[-1] = '"flag", "omit"'
        lines.append(f"| `{field}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


assert list(OTHER) == [x.name for x in fields(Options)]
if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    STORED.write_text(page(), encoding="utf-8")
