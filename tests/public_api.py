"""The public interface as text, one name a line: `python tests/public_api.py --write` stores it."""

import enum
import inspect
import sys
from pathlib import Path

import platt_jax
import platt_jax.cluster
import platt_jax.distributed
import platt_jax.environment
import platt_jax.export
import platt_jax.report
import platt_jax.sklearn
import platt_jax.sql
import platt_jax.streaming
from platt_jax import curves, inference, metrics, plots

STORED = Path(__file__).with_suffix(".txt")
PACKAGES = (
    platt_jax,
    inference,
    metrics,
    curves,
    plots,
    platt_jax.sklearn,
    platt_jax.sql,
    platt_jax.cluster,
    platt_jax.distributed,
    platt_jax.streaming,
    platt_jax.export,
    platt_jax.report,
    platt_jax.environment,
)


def described() -> str:
    """Every public name with its arguments; methods and properties below their class."""
    return "\n".join(f"# {package.__name__}\n{_lines(package)}" for package in PACKAGES)


def _lines(package):
    lines = []
    for name in sorted(package.__all__):
        one = getattr(package, name)
        if inspect.isclass(one) and issubclass(one, enum.Enum):
            lines += [name, *(f"    .{member.name} = {member.value}" for member in one)]
        else:
            lines.append(f"{name}({_arguments(one)})")
        # Of kinds of curves users only make objects; the fitting functions call their methods.
        if inspect.isclass(one) and package is not curves:
            lines += [f"    .{x}" for x in map(lambda n: _member(one, n), sorted(dir(one))) if x]
    return "".join(f"{line}\n" for line in lines)


def _member(cls, name):
    """A method or property of this package, as text; fields are among the class's arguments."""
    owner = next((base for base in cls.__mro__ if name in vars(base)), object)
    if name.startswith("_") or not owner.__module__.startswith("platt_jax"):
        return None
    if isinstance(vars(owner)[name], property):
        return name
    method = getattr(cls, name)
    return f"{name}({_arguments(method)})" if inspect.isroutine(method) else None


def _arguments(function):
    """The arguments; of a default whose text is long only that there is one."""
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=parameter.empty, default=_short(parameter.default))
        for parameter in signature.parameters.values()
    ]
    return str(inspect.Signature(parameters))[1:-1]


def _short(default):
    return default if default is inspect.Parameter.empty or len(repr(default)) < 30 else ...


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        STORED.write_text(described(), encoding="utf-8")
    else:
        print(described(), end="")
