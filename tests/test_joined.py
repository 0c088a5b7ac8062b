"""Every function that joins rows with a fit, in every situation: what the table says."""

from itertools import product

import joined
import pytest

NEEDS = {
    "plots.explore": "anywidget",
    "plots.risk_coverage": "matplotlib",
    "report.to_html": "matplotlib",
}
# Fits and refits with weights or an offset have programs of their own.
COMPILED = {
    "`weights=`",
    "rows of weight 0",
    "`offset=`",
    "`SegmentRows` with weights",
    "`SegmentRows` with an offset",
}
FITTING = {"leave_one_out", "inference.robust_covariance", "update", "judge_pooling"}


def is_slow(name, situation):
    return name == "estimate_drift" or (name in FITTING and situation in COMPILED)


CELLS = [
    pytest.param(*cell, marks=pytest.mark.slow if is_slow(*cell) else ())
    for cell in product(joined.FUNCTIONS, joined.SITUATIONS)
]


@pytest.mark.parametrize(("name", "situation"), CELLS)
def test_a_cell_is_what_the_function_does(name, situation):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    assert joined.word(name, situation) == joined.cell(name, situation)


def test_the_table_has_a_word_for_each_cell_and_a_meaning_for_each_word():
    assert [*joined.CELLS] == [*joined.SITUATIONS]
    used = {
        word for cells in joined.CELLS.values() for words in cells for word in words.split(", ")
    }
    assert used == {*joined.WORDS}


def test_the_page_of_the_reference_is_that_of_the_table():
    """Where the change is meant: python tests/joined.py --write."""
    assert joined.STORED.read_text(encoding="utf-8") == joined.page()
