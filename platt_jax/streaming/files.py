"""Parquet files on any file system: a local path or a URI, a directory or a pattern."""

import os
import re
from glob import glob
from typing import Any, NamedTuple
from urllib.parse import unquote

from platt_jax.extras import install_hint

# What Hive writes for a missing value.
_MISSING = "__HIVE_DEFAULT_PARTITION__"

_WILDCARDS = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class File(NamedTuple):
    """A file."""

    filesystem: Any  # its pyarrow.fs.FileSystem
    path: str  # its path there
    root: str  # what precedes the path in a URI: "" for a local path, or a scheme such as "s3://"

    @property
    def change_time(self) -> int | None:
        """When a local file or its entry changed last (POSIX's ctime), in ns; None elsewhere.

        No program can set it, unlike the modification time.
        """
        from pyarrow import fs

        filesystem, path = self.filesystem, self.path
        while isinstance(filesystem, fs.SubTreeFileSystem):
            filesystem, path = filesystem.base_fs, filesystem.base_path + path
        return os.stat(path).st_ctime_ns if isinstance(filesystem, fs.LocalFileSystem) else None

    def __str__(self) -> str:
        # Without what a URI may hold beside the path: keys and passwords.
        return self.path if "://" in self.path else self.root + self.path

    @property
    def partition(self) -> dict[str, str | None]:
        """Columns and their values by the names of its directories, as "year=2026" of Hive."""
        parts = (part.partition("=") for part in self.path.split("/")[:-1] if "=" in part)
        return {unquote(k): None if x == _MISSING else unquote(x) for k, _, x in parts}


def file_at(place: str | os.PathLike[str]) -> File:
    """The file, or directory, at a path or URI."""
    text = os.fspath(place)
    with install_hint("Parquet files need pyarrow", "platt-jax[streaming]"):
        from pyarrow import fs
    if not re.match(r"\w[\w+.-]+://", text):
        return File(fs.LocalFileSystem(), os.path.expanduser(text), "")
    root = text[: text.index("://") + 3]
    try:
        filesystem, path = fs.FileSystem.from_uri(text)
    except ValueError as error:
        shown = re.sub("://[^/@]*@", "://", text).partition("?")[0]
        reason = str(error).replace(text, shown)
        filesystem, path = _by_fsspec(text, f"source: no file system opens {shown}: {reason}")
    return File(filesystem, path.rstrip("/") or path, root)


def _by_fsspec(uri: str, problem: str) -> tuple[Any, str]:
    from pyarrow import fs

    try:
        import fsspec
    except ImportError:
        raise ValueError(f"{problem}; fsspec knows more: pip install fsspec") from None
    try:
        filesystem, path = fsspec.core.url_to_fs(uri)
    except (ValueError, ImportError) as error:
        raise ValueError(f"{problem}; fsspec: {error}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


def files_at(place: str | os.PathLike[str]) -> list[File]:
    """The Parquet files of a directory or pattern, in order; or the one file at the place."""
    location = file_at(place)
    from pyarrow.fs import FileType

    kind = location.filesystem.get_file_info(location.path).type
    if kind == FileType.Directory:
        if not (inside := _inside(location)):
            raise ValueError(f"source: expected a directory of .parquet files, {location} has none")
        return inside
    if kind != FileType.NotFound or not any(character in location.path for character in "*?["):
        return [location]
    # A pattern may match both a file and a directory that contains it.
    matches: dict[str, File] = {}
    for file, is_directory in _matching(location):
        matches |= {inner.path: inner for inner in (_inside(file) if is_directory else [file])}
    if not matches:
        raise ValueError(f"source: expected Parquet files, none match {location}")
    return _in_order(matches.values())


def _inside(directory: File) -> list[File]:
    """Parquet files in a directory, without hidden ones, such as Spark's unfinished output."""
    from pyarrow.fs import FileSelector

    files = []
    for info in directory.filesystem.get_file_info(FileSelector(directory.path, recursive=True)):
        parts = info.path.removeprefix(directory.path).strip("/").split("/")
        _refuse_tables(directory, parts)
        hidden = any(part.startswith((".", "_")) for part in parts)
        if info.is_file and info.path.endswith(".parquet") and not hidden:
            files.append(directory._replace(path=info.path))
    return _in_order(files)


def _refuse_tables(directory: File, parts: list[str]) -> None:
    """Refuses tables whose files may hold rows that were deleted."""
    if parts[0] == "_delta_log":
        kind, instead = "a Delta", "deltalake.DeltaTable(path).to_pyarrow_dataset()"
    elif parts[0] == "metadata" and parts[-1].endswith(".metadata.json"):
        kind, instead = "an Iceberg", "the batches of table.scan().to_arrow_batch_reader()"
    else:
        return
    raise ValueError(
        f"source: {directory} is {kind} table, expected plain Parquet files; give {instead}"
    )


def _matching(pattern: File) -> list[tuple[File, bool]]:
    """The files and directories that match a pattern, and whether each is a directory."""
    from pyarrow.fs import FileSelector

    path = pattern.path
    if not pattern.root:
        local = glob(path, recursive=True)
        return [(pattern._replace(path=x), os.path.isdir(x)) for x in local]
    base = re.split(r"[*?[]", path)[0].rpartition("/")[0]
    deep = "/" in path.removeprefix(base).strip("/")
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]+\])", path)
    expression = re.compile(
        "".join(_WILDCARDS.get(x, x if x.startswith("[") else re.escape(x)) for x in pieces)
    )
    inside = FileSelector(base, allow_not_found=True, recursive=deep or "**" in path)
    return [
        (pattern._replace(path=info.path), not info.is_file)
        for info in pattern.filesystem.get_file_info(inside)
        if expression.fullmatch(info.path)
    ]


def _in_order(files: Any) -> list[File]:
    return sorted(files, key=lambda file: file.path.split("/"))
