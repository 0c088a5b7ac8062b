"""Optional packages: what to do if one is missing."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def install_hint(reason: str, install: str) -> Iterator[None]:
    """Says what pip should install if a package that is imported inside is missing.

    The reason says what needs which package, as "to_onnx needs onnx".
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{reason}: pip install {shlex.quote(install)}") from error
