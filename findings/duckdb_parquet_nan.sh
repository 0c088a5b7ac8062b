#!/usr/bin/env bash
# DuckDB: a score that is NaN, in a Parquet file that pyarrow wrote, and in memory.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet duckdb==2.0.1 pyarrow==26.0.1
cat > "$folder/program.py" <<'PY'
import math
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

path = sys.argv[1]
rows = pa.table({"score": [0.1, 0.2, math.nan, 0.3]})
pq.write_table(rows, path)


def counts(source):
    """How many scores are NaN, are from -1 to 1, and are left by WHERE score >= 0.9."""
    one_by_one = duckdb.sql(f"SELECT score, isnan(score), score BETWEEN -1 AND 1 FROM {source}")
    scores, nan, within = zip(*one_by_one.fetchall(), strict=True)
    assert [math.isnan(x) for x in scores] == [False, False, True, False]
    above = duckdb.sql(f"SELECT score FROM {source} WHERE score >= 0.9").fetchall()
    return f"{sum(nan)} {sum(within)} {len(above)}"


print(counts("rows"), counts(f"'{path}'"), sep=", ")
PY
echo "duckdb 2.0.1, pyarrow 26.0.1"
echo "guess: of 0.1, 0.2, NaN and 0.3, are NaN, from -1 to 1, and at least 0.9 (in memory, in a file): 1 3 1, 1 3 1"
seen=$("$folder/venv/bin/python" "$folder/program.py" "$folder/scores.parquet")
echo "seen:  of 0.1, 0.2, NaN and 0.3, are NaN, from -1 to 1, and at least 0.9 (in memory, in a file): $seen"
test "$seen" = "1 3 1, 0 4 0"
