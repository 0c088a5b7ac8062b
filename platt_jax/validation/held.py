"""Objects that hold rows, which some functions take in place of arrays; and missing arrays."""

from typing import Any, ClassVar

from platt_jax.columns import Column

_TABLE = "pass its columns; platt_jax.sql and platt_jax.cluster take whole tables"


class HeldRows:
    """An object that holds rows: scores with their segments, labels and so on."""

    _taken_by: ClassVar[str]  # the functions that take it, for messages


def named_with_takers(values: object) -> str:
    """The type of an argument that is refused, and the functions that take rows that it holds."""
    takers = f", rows for {values._taken_by}" if isinstance(values, HeldRows) else ""
    return type(values).__name__ + takers


def refuse_held(values: object, name: str) -> None:
    """Refuses an object that holds rows, or a whole table, in place of an array."""
    # A table by its type: to ask a lazy one for its columns may be slow.
    is_table = hasattr(type(values), "columns")
    if isinstance(values, HeldRows) or is_table:
        advice = f": {_TABLE}" if is_table else ""
        raise ValueError(f"{name}: expected an array, got {named_with_takers(values)}{advice}")


def require_none_beside(rows: object, **columns: Any) -> None:
    """Refuses columns beside an object that holds the rows."""
    for name, values in columns.items():
        if values is not None:
            raise ValueError(
                f"{name}: expected none beside {type(rows).__name__}, which hold the rows"
            )


def require_each(first: Column, name: str = "scores", /, **columns: Column) -> None:
    """Refuses missing columns beside a first one of this name, which may be all that was given."""
    missing = [name for name, values in columns.items() if values is None]
    if missing:
        refuse_held(first, name)
        raise ValueError(f"{missing[0]}: expected one per row, got None")
