"""Parts of the suite for jobs that run side by side."""

import argparse
from pathlib import Path

import pytest
import shards

NAMES = [f"tests/test_{a}.py::test_{b}[{c}]" for a in "xyz" for b in "fgh" for c in range(100)]


def test_every_test_is_in_exactly_one_part_and_parts_are_alike():
    counts = dict.fromkeys((1, 2, 3, 4), 0)
    for name in NAMES:
        (part,) = (part for part in counts if shards.is_in(name, (part, 4)))
        counts[part] += 1
    assert min(counts.values()) > 0.8 * len(NAMES) / 4


def test_one_part_is_all():
    assert all(shards.is_in(name, shards.parsed("1/1")) for name in NAMES)


@pytest.mark.parametrize("text", ["", "1", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "a/4"])
def test_other_words_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a part and the number"):
        shards.parsed(text)


def test_the_tests_that_are_left_out_exist():
    tests = Path(__file__).parent
    for name in shards.names(tests / "thorough.txt"):
        file, _, function = name.partition("::")
        text = (tests.parent / file).read_text()
        assert f"def {function.partition('[')[0]}" in text if function else "slow" in text, name
