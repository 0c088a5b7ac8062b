#!/usr/bin/env bash
# pyarrow: decimals cast to double, against the double nearest to their digits.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyarrow==26.0.1 polars==2.1.0 numpy==2.4.6
cat > "$folder/program.py" <<'PY'
from decimal import Decimal

import polars as pl
import pyarrow as pa

digits = [Decimal(i) / 100 for i in range(1000)]  # 0.00, 0.01, ... 9.99
nearest = [float(x) for x in digits]
column = pa.array(digits, pa.decimal128(18, 2))
ways = {
    "cast": column.cast("double").to_pylist(),
    "by text": column.cast("string").cast("double").to_pylist(),
    "polars": pl.Series(digits).cast(pl.Float64).to_list(),
}
print(*(sum(x != y for x, y in zip(found, nearest)) for found in ways.values()))
PY
echo "pyarrow 26.0.1, polars 2.1.0"
echo "guess: of 1,000 decimals, other doubles than the nearest: 0 by cast, 0 by text, 0 by polars"
seen=$("$folder/venv/bin/python" "$folder/program.py")
echo "seen: of 1,000 decimals, other doubles than the nearest (cast, text, polars): $seen"
test "$seen" = "129 0 0"
