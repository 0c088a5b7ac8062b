"""Every function over rows by segment times every relation that must hold.

A cell says that both answers are equal, or why they are not.
"""

import warnings
from functools import cache
from itertools import product

import changes
import numpy as np
import pytest
from relations import RELATIONS, compare
from subjects import SUBJECTS

_UNITS = "the scores are log-odds"
_OPEN = "a bin has its lower end, not its upper one"
_ALL_FINITE = "finite rows of a bad segment tell of the curve of all rows"
_REFUSED = "rows that are not finite are refused"
_NOT_FINITE = "a metric of rows that are not finite is NaN"
_WHOLE = "a row is left out with its whole weight"
_FOLDS = "equal rows may fall into different folds"
_AT_ZERO = "the spread of B is that of the log-odds at score 0"
_NO_BEST = "without targets labels of one class have no best curve, and the slope is rounding"

# Answers that differ, and why.
NOT_EQUAL = {
    **{
        ("fit_segments beta", x): _UNITS
        for x in ("scores x 1.4", "scores x 1e4", "scores x 1e-4", "scores + 1e3")
    },
    ("fit_segments temperature", "scores + 1e3"): "the slope is all that is fitted",
    **{
        ("fit_segments shift", x): _UNITS for x in ("scores x 1.4", "scores x 1e4", "scores x 1e-4")
    },
    **{
        ("fit_segments targets=none", x): _NO_BEST
        for x in (
            *("rows permuted", "scores x 1.4", "scores x 1e4", "scores x 1e-4", "scores + 1e3"),
            *("weight 2 is the row twice", "float32"),
        )
    },
    ("fit_segments bins uniform", "mirrored"): _OPEN,
    **{
        (x, "a segment not finite"): _ALL_FINITE
        for x in (
            *("fit_segments partial", "fit_segments complete", "triage fit partial"),
            *("triage predictions partial", "gate, certify partial", "leave_one_out partial"),
            *("update partial", "profile_spreads", "estimate_drift", "fit_segments covariates"),
            *("triage predictions covariates", "leave_one_out covariates", "update covariates"),
            "save, load covariates",
        )
    },
    **{(x, "a segment not finite"): _REFUSED for x in ("choose_curve", "judge_pooling")},
    **{
        (x, "a segment not finite"): _NOT_FINITE
        for x in ("field_calibration_error", "field_squared_error", "multicalibration_error")
    },
    ("choose_curve", "weight 2 is the row twice"): _FOLDS,
    **{
        (f"leave_one_out {x}", "weight 2 is the row twice"): _WHOLE
        for x in ("none", "partial", "covariates")
    },
    ("profile_spreads", "scores + 1e3"): _AT_ZERO,
}
REFUSED = {
    (subject, relation): "expected finite"
    for (subject, relation), why in NOT_EQUAL.items()
    if why == _REFUSED
}
# These take longest. The others' default run has every relation with every kind of answer.
SLOW = (
    *("fit_segments partial", "fit_segments targets=none", "fit_segments monotone"),
    *("fit_segments temperature", "fit_segments shift", "fit_segments beta", "choose_curve"),
    *("triage fit partial", "triage predictions partial", "leave_one_out partial"),
    *("update partial", "bootstrap", "estimate_means", "estimate_drift", "judge_pooling"),
    *("profile_spreads", "summarize_centres", "fit_segments covariates", "update covariates"),
    *("triage predictions covariates", "leave_one_out covariates", "save, load covariates"),
)
CELLS = [
    pytest.param(subject, relation, marks=[pytest.mark.slow] if subject in SLOW else [])
    for subject, relation in product(SUBJECTS, RELATIONS)
    if not (
        (RELATIONS[relation].alone and SUBJECTS[subject].pooled)
        or (RELATIONS[relation].weighted and not SUBJECTS[subject].weighted)
    )
]


@cache
def answered(subject, change):
    """The changed rows, and the answer to them."""
    rows = changes.original()
    rows = change(rows if SUBJECTS[subject].weighted else changes.unweighted(rows))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")  # also of rows that are not finite
        answer = SUBJECTS[subject].answer(rows)
    stray = [str(x.message) for x in seen if "encountered" in str(x.message)]
    assert not stray  # NumPy's own
    return rows, answer


@pytest.mark.parametrize(("subject", "relation"), CELLS)
def test_answers_are_equal(subject, relation):
    left, right, to, *_ = RELATIONS[relation]
    if (subject, relation) in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[subject, relation]):
            answered(subject, left)
        return
    (rows, answer), (others, expected) = answered(subject, left), answered(subject, right)
    off = compare(rows, others, answer, expected, to)
    # What differs for a reason has to differ: the reason may be gone.
    assert bool(off) == ((subject, relation) in NOT_EQUAL), off


def test_an_answer_of_other_rows_differs():
    rows = changes.original()
    (_, answer), (others, other) = (answered("fit_segments", x) for x in (changes.as_it_is,) * 2)
    labels = np.where(np.arange(len(rows.labels)) == 0, 1 - rows.labels, rows.labels)
    off = SUBJECTS["fit_segments"].answer(changes.replace(rows, labels=labels))
    assert not compare(rows, others, answer, other, 0.0)
    assert compare(rows, others, off, other, 1e-3)
