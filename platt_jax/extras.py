"""Optional packages: what to do if one is missing."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def install_hint(reason: str, install: str) -> Iterator[None]:
    """Says how to install a package that is imported inside and is missing.

    Args:
        reason: what needs which package, as "to_onnx needs onnx".
        install: what pip should install.

    Raises:
        ImportError: an import inside fails.
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{reason}: pip install {shlex.quote(install)}") from error
