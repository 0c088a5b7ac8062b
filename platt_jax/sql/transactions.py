"""Transactions of a connection, which is left as it came."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any


def in_transaction(connection: Any) -> bool | None:
    """Whether a transaction has begun; None if the driver does not tell.

    The connection is one of Python's database interface, or SQLAlchemy's cover of one.
    """
    driver = _driver(connection)
    begun: bool | None = getattr(driver, "in_transaction", None)  # of sqlite3
    status = getattr(getattr(driver, "info", None), "transaction_status", None)  # of psycopg
    return begun if status is None else status != 0


@contextmanager
def restored_transaction(connection: Any, dialect: str) -> Iterator[None]:
    """End a transaction that begins within; in one that was there, undo only what failed."""
    before = in_transaction(connection)
    if before and dialect == "postgres":
        with _savepoint(connection):
            yield
        return
    try:
        yield
    except BaseException:
        if before is False:
            with suppress(Exception):  # the first error tells more
                _end(connection, "ROLLBACK")
        raise
    if before is False:
        _end(connection, "COMMIT")


@contextmanager
def repeatable(connection: Any) -> Iterator[bool]:
    """Let PostgreSQL's queries within read one state of the database; says whether they do.

    They do not in a transaction that was begun with a lower isolation.
    """
    before = in_transaction(connection)
    with restored_transaction(connection, "postgres"), closing(connection.cursor()) as cursor:
        if before is False:
            if _autocommits(connection):
                cursor.execute("BEGIN")
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SHOW transaction_isolation")
        yield cursor.fetchone()[0] in ("repeatable read", "serializable")


@contextmanager
def _savepoint(connection: Any) -> Iterator[None]:
    name = "platt_jax"
    execute(connection, f"SAVEPOINT {name}")
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the first error tells more
            execute(connection, f"ROLLBACK TO SAVEPOINT {name}")
            execute(connection, f"RELEASE SAVEPOINT {name}")
        raise
    execute(connection, f"RELEASE SAVEPOINT {name}")


def execute(connection: Any, statement: str) -> None:
    """Execute a statement without a result."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement)


def _end(connection: Any, how: str) -> None:
    if not in_transaction(connection):
        return
    if _autocommits(connection):  # some drivers then ignore their own methods
        execute(connection, how)
    else:
        (connection.commit if how == "COMMIT" else connection.rollback)()


def _autocommits(connection: Any) -> bool:
    return getattr(_driver(connection), "autocommit", None) is True


def _driver(connection: Any) -> Any:
    return getattr(connection, "driver_connection", connection)
