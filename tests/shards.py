"""A part of the tests, for jobs that run side by side: `pytest -m slow --shard 1/4` is a quarter.

The name of a test alone decides its part. So every test is in exactly one part, and it stays there
when other tests are added.
"""

import argparse
import re
import zlib


def parsed(text):
    """Which part, from 1 on, and of how many."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    part, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= part <= parts:
        message = f"expected a part and the number of parts, such as 1/4, got {text!r}"
        raise argparse.ArgumentTypeError(message)
    return part, parts


def is_in(name, shard):
    """Whether the test of this name is in this part."""
    part, parts = shard
    return zlib.crc32(name.encode()) % parts == part - 1


def names(path):
    """The lines of a file that are no comments: how the names of some tests begin."""
    lines = path.read_text().splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))
