"""The arguments of a call, which must be the same in all processes."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from platt_jax import validation
from platt_jax.distributed.exchange import Gathers, results_of_all
from platt_jax.execution.checkpoint import digest
from platt_jax.execution.progress import Stage
from platt_jax.options import Options
from platt_jax.population.segments import FitArguments
from platt_jax.version import __version__

# Maximum numbers of processes and of values in a message.
_PROCESSES, _VALUES = 8, 4


def require_same_call(exchange: Gathers, describe: Callable[[], dict[str, str | None]]) -> None:
    """Refuses a call whose arguments are invalid in a process, or differ between processes.

    `describe` checks the arguments of this process, and returns a text for each by its name; None
    for an argument that does not matter in this process. All processes raise the same error.
    """
    gathered = results_of_all(exchange, lambda: json.dumps(describe()).encode())
    calls = [json.loads(message) for message in gathered]
    names = dict.fromkeys(name for call in calls for name in call)
    differences = [_difference(name, [call.get(name) for call in calls]) for name in names]
    if any(differences):
        raise ValueError("; ".join(filter(None, differences)))


def require_same_fit(
    exchange: Gathers, source: object, arguments: FitArguments, texts: dict[str, str | None]
) -> None:
    """`require_same_call` of `fit_segments` with rows of a source, which adds texts of its own."""

    def describe() -> dict[str, str | None]:
        arguments.check_without_mesh(source)
        Stage.of(arguments.progress)
        return {
            **described("fit_segments", arguments.options, pooling=arguments.pooling),
            "prior": hashed("prior", arguments.prior),
            "start": hashed("start", arguments.start),
            "covariates": _covariates(arguments.covariates),
            **texts,
        }

    require_same_call(exchange, describe)


def described(function: str, options: Options, **arguments: object) -> dict[str, str | None]:
    """Texts for the function, the version of the package, the options and other plain values."""
    names = [*(x.name for x in fields(options)), "slope"]
    option_values = {f"options.{name}": getattr(options, name) for name in names}
    values = {
        "version of platt_jax": __version__,
        "function": function,
        **option_values,
        **arguments,
    }
    return {name: _text(value) for name, value in values.items()}


def hashed(name: str, values: Any) -> str:
    """A text for a prior or a start, which may have numbers for each segment."""
    if not isinstance(values, tuple | list):
        return _text(values)
    hash_text = digest(validation.numbers(x, name) for x in values)
    return f"numbers with hash {hash_text[:16]}"


def _covariates(given: Any) -> str:
    """A text for a table of covariates, which has a line for each segment of all processes."""
    if given is None or isinstance(given, str):
        return _text(given)
    columns = {name: x.tolist() for name, x in given.columns.items()}
    keys = None if given.keys is None else given.keys.tolist()
    return f"a table with hash {hashlib.sha256(repr((columns, keys)).encode()).hexdigest()[:16]}"


def presence(values: object, what: str) -> str:
    """A text for whether an argument is given."""
    return "None" if values is None else what


def _text(value: object) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)


def _difference(name: str, texts: Sequence[str | None]) -> str:
    """What differs in an argument, given its text in each process; empty if nothing does."""
    having: dict[str, list[int]] = {}
    for process, text in enumerate(texts):
        if text is not None:
            having.setdefault(text, []).append(process)
    if len(having) <= 1:
        return ""
    got = [f"{text} ({_listed(where)})" for text, where in having.items()]
    more = [f"{len(got) - _VALUES} others"] if len(got) > _VALUES else []
    return f"{name}: expected the same in all processes, got {' and '.join(got[:_VALUES] + more)}"


def _listed(processes: list[int]) -> str:
    if len(processes) == 1:
        return f"process {processes[0]}"
    more = ", ..." if len(processes) > _PROCESSES else ""
    return f"processes {', '.join(map(str, processes[:_PROCESSES]))}{more}"
