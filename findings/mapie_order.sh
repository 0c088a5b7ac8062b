#!/usr/bin/env bash
# MAPIE: the expected calibration error in bins of equal numbers of rows, of the same rows in two orders.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mapie==1.6.0 scikit-learn==1.9.1 numpy==2.4.6
cat > "$folder/program.py" <<'PY'
import numpy as np
from mapie.metrics.calibration import expected_calibration_error

rng = np.random.default_rng(0)
truth = rng.random(10_000)
labels = (rng.random(10_000) < truth).astype(int)
said = np.where(truth > 0.5, 0.99, 0.01) + 0.009 * (2 * truth - 1)  # far too sure; right on average
order = np.argsort(said)


def error(rows):
    return expected_calibration_error(
        labels[rows], said[rows], num_bins=10, split_strategy="array split"
    )


print(f"{error(slice(None)):.3f} {error(order):.3f}")
PY
echo "mapie 1.6.0"
echo "guess: the expected calibration error of one set of rows, as drawn and sorted by probability: 0.24 0.24"
seen=$("$folder/venv/bin/python" "$folder/program.py")
echo "seen: the expected calibration error of one set of rows, as drawn and sorted by probability: $seen"
test "$seen" = "0.007 0.245"
