"""Engines that execute exported SQL: DuckDB and SQLite, in memory."""

import datetime as dt
import sqlite3

import pytest


class InDuckDB:
    dialect = "duckdb"

    def __init__(self):
        duckdb = pytest.importorskip("duckdb")
        self.connection = duckdb.connect()

    def __call__(self, statement):
        return self.connection.execute(statement).fetchall()

    def table(self, rows, names):
        import pyarrow as pa

        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        self.connection.register("arrow", pa.table(columns, names=names))
        self("CREATE TABLE t AS SELECT * FROM arrow")

    def drop(self, table):
        self(f"DROP TABLE {table} CASCADE")


class InSQLite:
    dialect = "sqlite"

    def __init__(self):
        self.connection = sqlite3.connect(":memory:")

    def __del__(self):
        self.connection.close()  # Python 3.13 warns of connections that are left open

    def __call__(self, statement):
        return self.connection.execute(statement).fetchall()

    def table(self, rows, names):
        columns = ", ".join(f'"{name}"' for name in names)
        self.connection.execute(f"CREATE TABLE t ({columns})")
        kept = [[x.isoformat() if isinstance(x, dt.date) else x for x in row] for row in rows]
        self.connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(names))})", kept)

    def drop(self, table):
        self(f"DROP TABLE {table}")
