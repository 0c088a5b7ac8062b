import ctypes
import os
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import shards

from platt_jax.passes import shapes

# The programs that one process compiled the others read, those that tests start among them, and so
# does the next run.
_COMPILED = os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "compiled")
)
_SECONDS = os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
# Tests replace constants of programs, so that this package's own folder keeps nothing here.
os.environ.setdefault("PLATT_JAX_CACHE", "off")
jax.config.update("jax_compilation_cache_dir", _COMPILED)
jax.config.update("jax_persistent_cache_min_compile_time_secs", float(_SECONDS))

# Compiling takes most of the tests' time: few of XLA's optimizations nearly halve it, and one size
# of small chunks instead of two takes a third. `pytest --as-users` compiles what users do.
_QUICKLY = "JAX_DISABLE_MOST_OPTIMIZATIONS"
_CHUNK_ROWS = shapes.CPU.chunk_rows

# The benchmarks are tested, too. Last, so that the package is the one that is installed.
sys.path.append(str(Path(__file__).parents[1]))

# No silent promotion of dtypes or ranks inside the library.
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# JAX keeps every program, of 10 to 30 MB each. Above this much memory they are dropped; each that
# is used again is traced and read again, which takes half a second.
_MOST_BYTES_OF_PROGRAMS = 4 << 30
_BYTES_OF_OTHERS = pytest.StashKey[int]()


def pytest_addoption(parser):
    told = "run one part of the tests only, such as the first of four: 1/4"
    parser.addoption("--shard", type=shards.parsed, metavar="PART/PARTS", help=told)
    told = "compile what users do: with all optimizations, and chunks of all sizes"
    parser.addoption("--as-users", action="store_true", help=told)


def pytest_configure(config):
    if not config.getoption("--as-users"):
        os.environ[_QUICKLY] = "1"  # for the processes that tests start
        jax.config.update(_QUICKLY.lower(), True)
        shapes.CPU = shapes.CPU._replace(chunk_rows=_CHUNK_ROWS[1:])


_THOROUGH = shards.names(Path(__file__).parent / "thorough.txt")


def pytest_itemcollected(item):
    if item.nodeid.startswith(_THOROUGH):
        item.add_marker("thorough")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if shard := config.getoption("shard"):
        others = [item for item in items if not shards.is_in(item.nodeid, shard)]
        items[:] = [item for item in items if shards.is_in(item.nodeid, shard)]
        config.hook.pytest_deselected(items=others)


def pytest_runtest_setup(item):
    if item.get_closest_marker("on_cpu") and jax.default_backend() != "cpu":
        pytest.skip("of the CPU's layout of rows, its bits, or its subnormal numbers")
    if item.get_closest_marker("as_users") and not item.config.getoption("--as-users"):
        pytest.skip("needs --as-users")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    others = item.config.stash.setdefault(_BYTES_OF_OTHERS, _resident_bytes())
    if _resident_bytes() > others + _MOST_BYTES_OF_PROGRAMS:
        jax.clear_caches()
        # Else the C library keeps what is free now, and every test from here on starts anew.
        ctypes.CDLL(None).malloc_trim(0)
        item.config.stash[_BYTES_OF_OTHERS] = _resident_bytes()


def _resident_bytes():
    """What this process has in memory; 0 on other systems than Linux."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if told.exists() else 0


@pytest.fixture(autouse=True)
def figures_are_closed():
    """Matplotlib warns of more than 20 open figures, in whichever test opens the next."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


# While a browser is open no other event loop runs, so that it is closed after each module.
@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium")
    with playwright.sync_playwright() as driver:
        # In a container it has no sandbox of its own to build.
        opened = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def real_data():
    """A function from the name of an evaluation set to its arrays; skips where they are absent."""
    beside_the_checkout = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("PLATT_JAX_DATA", beside_the_checkout))

    def read(name):
        path = folder / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"needs {path.name}: set PLATT_JAX_DATA to the folder that holds it")
        with np.load(path) as file:
            return {key: file[key] for key in file.files}

    return read


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def dtype(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def x64():
    """JAX with 64-bit types, as a caller of `solve` would switch them on."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def sizes(monkeypatch):
    """A function that replaces some of the sizes of calls on a CPU: fields of `shapes.Sizes`."""

    def replace(**fields):
        monkeypatch.setattr(shapes, "CPU", shapes.CPU._replace(**fields))

    return replace


@pytest.fixture
def chunks_of_all_sizes(sizes):
    """The chunks that users have."""
    sizes(chunk_rows=_CHUNK_ROWS)


@pytest.fixture(params=["plain", "pyarrow"])
def reader(request, monkeypatch):
    """Every test with this fixture runs without pyarrow, and with it where it is installed."""
    if request.param == "plain":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    else:
        pytest.importorskip("pyarrow")
    return request.param


@pytest.fixture
def in_tmp(tmp_path, monkeypatch):
    """A directory of our own to work in, so that messages name files as a user would."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
