"""Programs that a process compiled, kept as executables for the next one.

Tracing, lowering and compiling a fit's program takes two seconds; reading its executable takes a
tenth of one. JAX's own cache keeps what XLA compiled: programs are still traced and lowered.

A file has a line of JSON, which says how results are put together, and the executable. Its name is
a digest of all that a program depends on. Nothing here raises an error: what cannot be kept or read
is compiled.
"""

import contextlib
import enum
import hashlib
import inspect
import json
import os
import pkgutil
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache, partial, update_wrapper
from operator import attrgetter
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, cast

import jax
import jaxlib
import numpy as np

# Names the folder, or turns the store off.
VARIABLE = "PLATT_JAX_CACHE"
_OFF = "off"

# The least recently used files beyond this size are removed.
_MOST_BYTES = 500_000_000
_ENDING = ".program"

# What else of JAX's configuration a program depends on, and what makes JAX run it in another way.
_configuration = attrgetter(
    *("jax_enable_x64", "jax_default_device", "jax_default_matmul_precision"),
    *("jax_disable_jit", "jax_debug_nans", "jax_debug_infs"),
)
_PACKAGE = __name__.partition(".")[0]


class _NotKept(Exception):
    """A program depends on something that has no lasting name."""


# --- the folder -----------------------------------------------------------------------------------

_off = False
_chosen: Path | None = None


def choose(path: Path | None) -> None:
    """Keeps programs in this folder, or, with None, nowhere."""
    global _off, _chosen
    _off, _chosen = path is None, path
    folder.cache_clear()


@cache
def folder() -> Path | None:
    """The folder of stored programs, which is made if need be; None if there is none."""
    named = os.environ.get(VARIABLE)
    if _off or (_chosen is None and named == _OFF):
        return None
    try:
        default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / _PACKAGE
        path = _chosen or Path(named or default).absolute()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path if is_own(path) else None
    except (OSError, RuntimeError):  # no home, or one that can only be read
        return None


def is_own(path: Path) -> bool:
    """Whether the folder is the user's, and nobody else may write in it: its programs are run."""
    about = path.stat()
    return not hasattr(os, "getuid") or (about.st_uid == os.getuid() and not about.st_mode & 0o022)


def contents() -> str:
    """Where programs are kept, how many, and how large they are; for bug reports."""
    path = folder()
    if path is None:
        return "none"
    sizes = [size for _, size, _ in _files(path)]
    return f"{path}: {len(sizes)} programs, {sum(sizes) / 1e6:.1f} MB"


def _files(path: Path) -> Iterator[tuple[float, int, Path]]:
    """The time of the last use, the size and the name of each stored program."""
    for file in path.glob(f"*{_ENDING}"):
        with contextlib.suppress(OSError):  # another process may have removed it
            about = file.stat()
            yield about.st_mtime, about.st_size, file


def _keep(path: Path, content: bytes) -> None:
    """Writes a file at once, and removes those used least recently."""
    with contextlib.suppress(OSError):
        partial_path = path.with_name(f"{path.stem}-{os.getpid()}-{threading.get_ident()}")
        try:
            partial_path.write_bytes(content)
            os.replace(partial_path, path)
        finally:
            partial_path.unlink(missing_ok=True)
        files = sorted(_files(path.parent))
        total = sum(size for _, size, _ in files)
        for _, size, file in files:
            if total <= _MOST_BYTES:
                break
            file.unlink(missing_ok=True)
            total -= size


# --- what a program depends on --------------------------------------------------------------------


@cache
def _surroundings() -> str:
    """This package's code, JAX, and the machine."""
    files, code = sorted(Path(__file__).parents[1].rglob("*.py")), hashlib.sha256()
    if not files:  # in an archive or without sources: versions would not differ
        raise _NotKept
    for file in files:
        code.update(str(file).encode() + file.read_bytes())
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        kinds = ("model name", "flags", "Features", "CPU part")
        machine = sorted({line for line in lines if line.startswith(kinds)})
    except OSError:
        machine = [platform.node(), platform.processor()]
    device = jax.devices()[0]
    versions = jax.__version__, jaxlib.__version__, sys.version, np.__version__  # type: ignore[attr-defined]
    flags = [f"{x}={os.environ[x]}" for x in sorted(os.environ) if x.startswith(("XLA_", "JAX_"))]
    facts = versions, flags, platform.machine(), machine, device.device_kind, os.cpu_count()
    return f"{code.hexdigest()} {facts}"


def _name(x: Any) -> str:
    """The lasting name of a class or function of this package, or of NumPy or JAX."""
    if x.__module__.partition(".")[0] not in (_PACKAGE, "builtins", "numpy", "jax", "functools"):
        raise _NotKept
    return f"{x.__module__}:{x.__qualname__}"


def _described(x: Any) -> Any:
    """A value as JSON that two values share only if they are equal."""
    if isinstance(x, enum.Enum):
        return [_name(type(x)), x.name]
    if x is None or isinstance(x, bool | int | float | str):
        return [type(x).__name__, repr(x)]
    if isinstance(x, np.dtype):
        return ["dtype", x.str]
    if isinstance(x, np.ndarray) and not x.dtype.hasobject:
        return ["array", x.dtype.str, x.shape, hashlib.sha256(x.tobytes()).hexdigest()]
    if isinstance(x, tuple | list):
        return [_name(type(x)), *map(_described, x)]
    if isinstance(x, dict):
        return ["dict", *([_described(key), _described(x[key])] for key in sorted(x))]
    if isinstance(x, partial):
        return ["partial", *map(_described, (x.func, x.args, x.keywords))]
    if isinstance(x, type):
        return ["type", _name(x)]
    if isinstance(x, FunctionType):
        cells = [cell.cell_contents for cell in x.__closure__ or ()]
        defaults = x.__defaults__ or (), x.__kwdefaults__ or {}
        code = x.__code__  # tells lambdas of one name apart
        location = code.co_firstlineno, code.co_code.hex(), repr(code.co_names)
        return ["function", _name(x), *location, *map(_described, (cells, *defaults))]
    if isinstance(x, MethodType):
        return ["method", x.__name__, _described(x.__self__)]
    if is_dataclass(x):
        values = [[field.name, _described(getattr(x, field.name))] for field in fields(x)]
        return [_name(type(x)), *values]
    raise _NotKept


def _structure(tree: Any) -> Any:
    """The structure of a pytree as JSON: null is a leaf, and [] is None."""
    node = tree.node_data()
    if node is None:
        return None
    kind, about = node
    if kind is type(None):
        return []
    if about is not None and not all(isinstance(x, str) for x in about):
        raise _NotKept
    keys = about if about is None else [type(about).__name__, *about]
    return [_name(kind), keys, [_structure(child) for child in tree.children()]]


def _tree(structure: Any) -> Any:
    """The structure of a pytree from JSON."""
    if not structure:
        return jax.tree.structure(None if structure == [] else 0)
    name, keys, children = structure
    if keys is not None:  # of a dictionary, or the fields of a dataclass that are no leaves
        kind, *keys = keys
        keys = keys if kind == "list" else tuple(keys)
    build = jax.tree_util.PyTreeDef.from_node_data_and_children
    parts = [_tree(child) for child in children]
    return build(jax.tree_util.default_registry, (pkgutil.resolve_name(name), keys), parts)


# --- programs -------------------------------------------------------------------------------------

_SILENT = 2.0  # seconds of compiling before a line says so
_compiling = 0.0  # seconds so far
_untold = threading.Lock()  # held once the line is written

_Ready = tuple[Any, Any]  # an executable, and the structure of its results


class StoredProgram:
    """A function as a program of its own, kept in the folder where that is possible."""

    def __init__(
        self, function: Callable[..., Any], options: dict[str, Any], **settings: Any
    ) -> None:
        self._jitted: Any = jax.jit(function, compiler_options=options, **settings)
        self._function, self._options, self._settings = function, options, settings
        static = settings.get("static_argnames", ())
        self._static = (static,) if isinstance(static, str) else tuple(static)
        parameters = inspect.signature(function).parameters.values()
        self._names = [x.name for x in parameters if x.kind is x.POSITIONAL_OR_KEYWORD]
        places = [i for i, name in enumerate(self._names) if name in self._static]
        self._first_static = min(places, default=sys.maxsize)
        self._ready: dict[Any, _Ready | None] = {}
        self._locks: dict[Any, threading.Lock] = {}
        update_wrapper(self, function)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_jitted"], name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The results of the function."""
        if folder() is None:
            return self._jitted(*arguments, **named)
        if len(arguments) > self._first_static:
            arguments, named = (), {**dict(zip(self._names, arguments, strict=False)), **named}
        static = tuple([(name, named[name]) for name in self._static if name in named])
        traced = {name: x for name, x in named.items() if name not in self._static}
        leaves, tree = jax.tree.flatten((arguments, traced))
        kinds = tuple(map(_kind, leaves))
        key = kinds, tree, static, _configuration(jax.config)
        try:
            entry = self._ready[key]
        except KeyError:
            entry = None if None in kinds else self._made(key, leaves)
        if entry is None:
            return self._jitted(*arguments, **named)
        compiled, results = entry
        return jax.tree.unflatten(results, compiled(leaves))

    def _made(self, key: Any, leaves: list[Any]) -> _Ready | None:
        """The executable, read or compiled; None if JAX has to make it."""
        with self._locks.setdefault(key, threading.Lock()):
            if key not in self._ready:
                self._ready[key] = self._read_or_compiled(key, leaves)
        return self._ready[key]

    def _read_or_compiled(self, key: Any, leaves: list[Any]) -> _Ready | None:
        kinds, tree, static, configuration = key
        path, config = folder(), cast(Any, jax.config)
        # On a CPU, a program that JAX's own cache has read cannot be written again.
        if path is None or config.jax_compilation_cache_dir or any(configuration[3:]):
            return None
        if set(self._settings) - {"static_argnames"} or not _on_one_cpu(leaves):
            return None
        try:
            described = _described((self._function, dict(static), self._options))
            quickly: Any = jax.config.read("jax_disable_most_optimizations")
            parts = described, _structure(tree), repr(kinds), repr(configuration), quickly
            depends_on = f"{_surroundings()} {json.dumps(parts)}"
        # An empty cell, a function within itself, or code that cannot be read.
        except (_NotKept, ValueError, RecursionError, OSError):
            return None
        digest = hashlib.sha256(depends_on.encode()).hexdigest()
        file = path / f"{digest}{_ENDING}"
        return _loaded(file, len(leaves)) or self._compiled(file, tree, dict(static), leaves)

    def _compiled(self, file: Path, tree: Any, static: dict[str, Any], leaves: list[Any]) -> _Ready:
        results: list[Any] = []

        def flat(values: list[Any]) -> list[Any]:
            arguments, traced = jax.tree.unflatten(tree, values)
            outputs, structure = jax.tree.flatten(self._function(*arguments, **traced, **static))
            results.append(structure)
            return outputs

        flat.__name__ = getattr(self._function, "__name__", "program")
        with _told_at_a_terminal():
            program = jax.jit(flat, compiler_options=self._options).lower(leaves)
            compiled = program.compile()
        with contextlib.suppress(Exception):  # JAX cannot write every program
            about = json.dumps([len(jax.tree.leaves(program.out_info)), _structure(results[-1])])
            _keep(file, _written(about, compiled))
        return compiled, results[-1]


@contextlib.contextmanager
def _told_at_a_terminal() -> Iterator[None]:
    """Says what takes so long: one line, once the process has compiled for two seconds in all."""
    global _compiling
    start = time.monotonic()
    timer = threading.Timer(max(0.0, _SILENT - _compiling), _tell)
    timer.daemon = True
    if _is_watched(sys.stderr):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _compiling += time.monotonic() - start


def _tell() -> None:
    if _untold.acquire(blocking=False):  # of programs compiled side by side, one tells
        message = "platt_jax: compiling, once for this version: later processes need not"
        print(message, file=sys.stderr, flush=True)


def _is_watched(stream: Any) -> bool:
    """Whether a terminal or a notebook shows the stream; the latter is no terminal to Python."""
    try:
        return type(stream).__module__.startswith("ipykernel") or stream.isatty()
    except (AttributeError, ValueError):  # none, one of a program's own, or one that is closed
        return False


def _kind(x: Any) -> Any:
    """What of an argument a program depends on; None of one that JAX traces."""
    if type(x) is np.ndarray:
        return x.shape, x.dtype
    if isinstance(x, jax.core.Tracer):
        return None
    if isinstance(x, jax.Array):
        return x.shape, x.dtype, x.weak_type, x.sharding
    return type(x) if isinstance(x, bool | int | float | np.generic) else None


def _on_one_cpu(leaves: list[Any]) -> bool:
    """Whether a program of these arguments runs on the first CPU, for which programs are kept."""
    device, config = jax.devices()[0], cast(Any, jax.config)
    chosen = config.jax_default_device or device
    device_sets = [x.devices() for x in leaves if isinstance(x, jax.Array)]
    return device.platform == "cpu" and chosen == device and all(x == {device} for x in device_sets)


def _written(about: str, compiled: Any) -> bytes:
    from jax.experimental import serialize_executable

    executable, _, _ = serialize_executable.serialize(compiled)
    content = about.encode() + b"\n" + executable
    return hashlib.sha256(content).digest() + content


def _loaded(file: Path, arguments: int) -> _Ready | None:
    """The program of a file; None if there is none, or it is damaged."""
    from jax.experimental import serialize_executable

    try:
        content = file.read_bytes()
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            return None
        about, _, executable = content[32:].partition(b"\n")
        number, structure = json.loads(about)
        in_tree, out_tree = map(jax.tree.structure, ((([0] * arguments,), {}), [0] * number))
        compiled = serialize_executable.deserialize_and_load(executable, in_tree, out_tree)
        os.utime(file)
        return compiled, _tree(structure)
    except Exception:  # of another version of JAX, whose formats are its own
        return None
