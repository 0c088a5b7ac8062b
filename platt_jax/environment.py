"""The environment of platt_jax: versions, devices, and the cache of compiled programs."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import jax

from platt_jax.backend import stored_programs, xla
from platt_jax.backend.threads import cores
from platt_jax.passes import shapes

__all__ = ["show_config", "use_compilation_cache"]

_PACKAGES = (
    *("platt-jax", "jax", "jaxlib", "numpy", "scipy"),
    *("pandas", "polars", "pyarrow", "narwhals", "scikit-learn", "matplotlib", "tqdm"),
)
_VARIABLES = ("JAX_", "XLA_", "CUDA_VISIBLE_DEVICES")


def show_config() -> None:
    """Prints what a bug report needs: versions, devices, and settings that affect how fits run."""
    for title, lines in _sections().items():
        print(f"{title}:")
        width = max(map(len, lines))
        for name, value in lines.items():
            print(f"  {name:{width}}  {value}")


def use_compilation_cache(path: str | os.PathLike[str] | None) -> None:
    """Chooses the folder in which compiled programs are kept for later processes.

    Without a call it is the one named by the environment variable `PLATT_JAX_CACHE`, or else
    `platt_jax` in the user's cache folder: `$XDG_CACHE_HOME`, or `~/.cache`. With
    `PLATT_JAX_CACHE=off` nothing is kept. Up to 500 MB are kept, of the programs used last.

    On a CPU these are the programs of this package alone, and none where JAX's own compilation
    cache is on, which then keeps them. On a GPU this function turns on JAX's own cache in the
    folder, for the whole process; without a call nothing is kept there.

    Args:
        path: the folder, created if it does not exist. None turns the cache off.

    Raises:
        OSError: the folder cannot be created.
        ValueError: others may write in the folder, whose programs are run.
    """
    if path is None:
        stored_programs.choose(None)
        return
    path = Path(path).absolute()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not stored_programs.is_own(path):
        raise ValueError(f"path: expected a folder in which only you may write, got {path}")
    stored_programs.choose(path)
    if xla.platform() != "cpu":
        config: Any = jax.config  # its methods have no types
        config.update("jax_compilation_cache_dir", str(path))
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _sections() -> dict[str, dict[str, Any]]:
    config: Any = jax.config  # type checkers do not know its attributes
    settings = {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)
    }
    return {
        "versions": {"python": platform.python_version()}
        | {name: _version(name) for name in _PACKAGES},
        "machine": {
            "system": platform.platform(),
            "cores": cores(),
            "devices": ", ".join(map(str, jax.devices())),
            "device memory": f"{memory / 2**30:.0f} GiB"
            if (memory := shapes.memory())
            else "unknown",
            "rows per call": f"at most {shapes.sizes().chunk_rows[-1]:,}",
        },
        "settings": {
            "64-bit types in JAX": config.jax_enable_x64,
            "compiled programs": stored_programs.contents(),
            "JAX's compilation cache": config.jax_compilation_cache_dir or "none",
            "programs": xla.missing() or "as intended",
            "sums": xla.sums_status(),
            "kernels": xla.kernel_compiler() or "none",
        }
        | settings,
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
