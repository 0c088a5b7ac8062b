"""Every function that joins rows with a fit, in every situation: what the table says."""

import joined
import matplotlib
import pytest

matplotlib.use("Agg")


@pytest.mark.parametrize("situation", joined.SITUATIONS)
@pytest.mark.parametrize("name", joined.FUNCTIONS)
def test_a_cell_is_what_the_function_does(name, situation):
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
